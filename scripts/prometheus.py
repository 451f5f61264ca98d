#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what Prometheus tells of three engines under load, for the picture docs/pictures/prometheus.svg.

Usage: scripts/prometheus.py [FILE]     (FILE is docs/pictures/prometheus.csv unless another is named)

One engine serves; a second one reads from it for 40 s, and a third one writes to it from second 15 to second 30.
Prometheus scrapes all each second. A row of FILE is a second, by queries like those of the dashboard, docs/grafana,
but for all engines together and rates over 5 s: MB/s that were read, MB/s that were written, and the 99th percentile
of the time of requests in ms.
"""
import math
import os
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
import te_proc as te  # noqa: E402
import te_prom  # noqa: E402
import te_prometheus  # noqa: E402

BEGIN, END, ALL = 15, 30, 40
QUERIES = ('sum(rate(transfer_engine_bytes_total{opcode="read"}[5s])) / 1e6',
           'sum(rate(transfer_engine_bytes_total{opcode="write"}[5s])) / 1e6',
           "1e3 * histogram_quantile(0.99, sum by (le) (rate(transfer_engine_request_seconds_bucket[5s])))")


def load(target, operation):
    return te.Proc([te.tool("transfer_engine_bench"), f"--metadata_server={te.P2P}", "--protocol=tcp",
                    f"--segment_id={target.segment}", "--local_server_name=127.0.0.1", "--buffer_size=8M",
                    "--threads=1", f"--operation={operation}", te.FOREVER],
                   env=te_prom.serve(TE_HOST_PATH="0"))


def address(proc):
    return "{}:{}".format(*te_prom.address_of(proc))


def record(prometheus, began):
    columns = []
    for query in QUERIES:
        found = prometheus.ask("query_range", query=query, start=began, end=began + ALL, step=1)
        columns.append({round(float(t) - began): float(v) for t, v in found[0]["values"] if not math.isnan(float(v))})
    return [(s, *(column.get(s, 0) for column in columns)) for s in range(ALL + 1)]


def main(argv):
    path = argv[0] if argv else os.path.join(ROOT, "docs", "pictures", "prometheus.csv")
    with te.Target(env=te_prom.serve()) as target, load(target, "read") as reads, load(target, "write") as writes:
        engines = [address(p) for p in (target, reads, writes)]
        writes.freeze()
        with te_prometheus.Prometheus(transfer_engine=engines) as prometheus:
            te.until(lambda: prometheus.now(QUERIES[0]), "a rate of reads")
            began = time.time()
            for at, resume in ((BEGIN, True), (END, False)):
                time.sleep(began + at - time.time())
                if resume:
                    writes.thaw()
                else:
                    writes.close()
            time.sleep(began + ALL - time.time())
            rows = record(prometheus, began)
    with open(path, "w", encoding="utf-8") as f:
        f.write("# scripts/prometheus.py: seconds, MB/s read, MB/s written, 99th percentile of times in ms\n")
        f.writelines(f"{s},{r:.1f},{w:.1f},{p:.3f}\n" for s, r, w, p in rows)


if __name__ == "__main__":
    main(sys.argv[1:])
