# SPDX-License-Identifier: Apache-2.0
"""Both sides of each transfer in one trace: their spans, in the file that is named, as OpenTelemetry's JSON (OTLP).

The initiator has a span around each transfer, and the engine takes its context to the target. The log there says what was
served under which context, and for how long: of that the target makes spans whose parents are the initiator's. With
opentelemetry-sdk the context is carrier["traceparent"] after opentelemetry.propagate.inject(carrier). The file has a line for
each side, which a collector reads by its receiver otlpjsonfile, or takes one at a time by POST at /v1/traces.
"""
import json
import logging
import multiprocessing
import re
import secrets
import sys
import time

import transfer_engine as te

SIZE = 4096  # a large transfer has several spans at the target, one for each MiB or so
LOOPBACK = {"TE_BIND": "127.0.0.1", "TE_HOST_PATH": "0"}  # by TCP: within a host nobody serves
SECONDS = 60
TRACE = 5  # the level at which the library tells of what it serves
SERVED = re.compile(r"served(?: slowly)?: (\w+) of (\d+) bytes for (\S+) took ([\d.]+) ms.*; trace 00-(\w+)-(\w+)-\w+")
SERVER, CLIENT = 2, 3  # kinds of spans


def span(name, kind, trace, ident, parent, begin_ns, end_ns):
    times = {"startTimeUnixNano": str(begin_ns), "endTimeUnixNano": str(end_ns)}
    return {"traceId": trace, "spanId": ident, "parentSpanId": parent, "name": name, "kind": kind, **times}


def otlp(service, spans):
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "traces.py"}, "spans": spans}]}]}


class Served(logging.Handler):
    """Makes spans of the lines about what was served. A line comes a moment after the end of that."""

    def __init__(self):
        super().__init__()
        self.spans = []

    def emit(self, record):
        if found := SERVED.fullmatch(record.getMessage()):
            opcode, size, _, ms, trace, parent = found.groups()
            end = int(record.created * 1e9)
            begin = end - int(float(ms) * 1e6)
            self.spans.append(span(f"serve {opcode} of {size}", SERVER, trace, secrets.token_hex(8), parent, begin, end))


def target(pipe):
    log, served = logging.getLogger("transfer_engine.library"), Served()
    log.setLevel(TRACE)
    log.addHandler(served)
    with te.Engine(options=LOOPBACK) as engine, engine.register(bytearray(SIZE), access=te.Access.READ_WRITE) as region:
        pipe.send((engine.name, region.address))
        parents, end = pipe.recv(), time.monotonic() + SECONDS
        while {s["parentSpanId"] for s in served.spans} != parents and time.monotonic() < end:
            time.sleep(0.001)
    pipe.send(served.spans)


def transfer(move, trace, root):
    """What `move` does with a context, in a span of its own."""
    ident, begin = secrets.token_hex(8), time.time_ns()
    move(f"00-{trace}-{ident}-01")
    return span("transfer", CLIENT, trace, ident, root, begin, time.time_ns())


def initiator(pipe):
    trace, root, begin = secrets.token_hex(16), secrets.token_hex(8), time.time_ns()
    sent, came = bytearray(secrets.token_bytes(SIZE)), bytearray(SIZE)
    name, there = pipe.recv()
    with te.Engine(options=LOOPBACK) as engine, engine.register(sent), engine.register(came), engine.open(name) as segment:
        spans = [
            transfer(lambda context: segment.write(sent, there, timeout=SECONDS, traceparent=context), trace, root),
            transfer(lambda context: segment.read(came, there, timeout=SECONDS, traceparent=context), trace, root),
        ]
    pipe.send({s["spanId"] for s in spans})
    return sent == came, [span("request", CLIENT, trace, root, "", begin, time.time_ns()), *spans], pipe.recv()


def main():
    spawn = multiprocessing.get_context("spawn")  # an engine is not for forked children
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=target, args=(theirs,), daemon=True)
    child.start()
    theirs.close()  # so that recv() ends if the child does
    same, asked, served = initiator(ours)
    child.join()
    joined = {(s["traceId"], s["parentSpanId"]) for s in served} == {(s["traceId"], s["spanId"]) for s in asked[1:]}
    with open(sys.argv[1] if len(sys.argv) > 1 else "/dev/null", "w", encoding="utf-8") as file:
        for service, spans in (("initiator", asked), ("target", served)):
            file.write(json.dumps(otlp(service, spans)) + "\n")
    print(f"{len(asked)} spans here, {len(served)} at the target, {'' if joined else 'not '}all of one trace")
    return 0 if same and joined and child.exitcode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
