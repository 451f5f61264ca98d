# SPDX-License-Identifier: Apache-2.0
"""A strict reader of the text format of Prometheus, version 0.0.4, and of what a good exporter keeps to beyond it."""
import math
import re
import shutil
import subprocess
import urllib.request

import te_proc as te

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|(?=\}))')
VALUE = re.compile(r"[+-]?(\d+(\.\d+)?([eE][+-]?\d+)?|Inf)|NaN")
ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class Family:
    """One metric: .type, .help and .samples, {(name, ((label, value), ...)): number}."""

    def __init__(self, name, help_text):
        self.name, self.help, self.type, self.samples = name, help_text, None, {}

    def value(self, suffix="", **labels):
        """The number of the one series that has these labels, among others."""
        found = [v for (name, have), v in self.samples.items()
                 if name == self.name + suffix and set(labels.items()) <= set(have)]
        if len(found) != 1:
            raise AssertionError(f"{len(found)} series of {self.name}{suffix} {labels}: {self.samples}")
        return found[0]

    def total(self, **labels):
        return sum(v for (_, have), v in self.samples.items() if set(labels.items()) <= set(have))


def read_labels(text, line):
    labels, at = [], 0
    while at < len(text) and text[at] != "}":
        match = LABEL.match(text, at)
        if not match:
            raise AssertionError(f"bad labels: {line!r}")
        labels.append((match[1], re.sub(r"\\.", lambda m: ESCAPED[m[0]], match[2])))
        at = match.end()
    if len({name for name, _ in labels}) != len(labels):
        raise AssertionError(f"a label twice: {line!r}")
    return tuple(labels), text[at + 1:]


def read_sample(family, line):
    name = NAME.match(line)[0]
    suffixes = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
    if name not in [family.name + s for s in suffixes]:
        raise AssertionError(f"{line!r} is no sample of {family.type} {family.name}")
    rest, labels = line[len(name):], ()
    if rest.startswith("{"):
        labels, rest = read_labels(rest[1:], line)
    if not rest.startswith(" ") or not VALUE.fullmatch(rest[1:]):
        raise AssertionError(f"bad value: {line!r}")
    if (name, labels) in family.samples:
        raise AssertionError(f"a series twice: {line!r}")
    family.samples[(name, labels)] = float(rest[1:])


def check_histogram(family):
    series = {}
    for (name, labels), value in family.samples.items():
        bound = dict(labels).get("le")
        key = tuple(pair for pair in labels if pair[0] != "le")
        series.setdefault(key, {"buckets": []})
        if name.endswith("_bucket"):
            series[key]["buckets"].append((float(bound), value))
        else:
            series[key][name[len(family.name):]] = value
    for key, one in series.items():
        bounds, counts = zip(*one["buckets"])
        good = (list(bounds) == sorted(set(bounds)) and list(counts) == sorted(counts)
                and math.isinf(bounds[-1]) and counts[-1] == one["_count"] and one["_sum"] >= 0)
        if not good:
            raise AssertionError(f"bad histogram {family.name} {key}: {one}")


def check_family(family):
    if not family.help or family.type not in ("counter", "gauge", "histogram"):
        raise AssertionError(f"{family.name}: no help, or type {family.type}")
    if (family.type == "counter") != family.name.endswith("_total"):
        raise AssertionError(f"{family.name} is a {family.type}")
    if family.type == "histogram":
        check_histogram(family)
    elif family.type == "counter" and any(v < 0 or v != int(v) for v in family.samples.values()):
        raise AssertionError(f"{family.name} has a value that is no count: {family.samples}")


def parse(text):
    """{name: Family} of a whole text; what is wrong with it fails the test."""
    families, now = {}, None
    if not text.endswith("\n"):
        raise AssertionError("the last line has no end")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, _, help_text = line[len("# HELP "):].partition(" ")
            if not NAME.fullmatch(name) or name in families:
                raise AssertionError(f"bad name, or twice: {line!r}")
            now = families[name] = Family(name, help_text)
        elif line.startswith("# TYPE "):
            name, _, kind = line[len("# TYPE "):].partition(" ")
            if not now or name != now.name or now.type:
                raise AssertionError(f"not after its HELP: {line!r}")
            now.type = kind
        elif now and now.type and NAME.match(line):
            read_sample(now, line)
        else:
            raise AssertionError(f"neither comment nor sample: {line!r}")
    for family in families.values():
        check_family(family)
    return families


def promtool(text):
    """What Prometheus's own checker has against it; None where it is not installed."""
    program = shutil.which("promtool")
    if not program:
        return None
    run = subprocess.run([program, "check", "metrics"], input=text, capture_output=True, text=True, check=False,
                         timeout=te.HANG_S)
    return run.stdout + run.stderr if run.returncode else ""


# ---- An engine that serves them -------------------------------------------------------------------

def serve(**more):
    return {"TE_METRICS": "127.0.0.1:0", "MC_LOG_LEVEL": "INFO", **more}


def address_of(proc):
    """Where an engine that was told serve() listens, as the log tells."""
    return te.split_address(proc.wait_found(
        lambda line: re.search(r"metrics at http://(\S+)/metrics", line)).group(1))


def get(address, path="/metrics"):
    with urllib.request.urlopen(f"http://{address[0]}:{address[1]}{path}", timeout=te.HANG_S) as answer:
        return answer.headers, answer.read().decode()
