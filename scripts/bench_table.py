#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the samples of scripts/bench.sh into a table of medians, ratios and goals.

A line of samples is: round, tag, and a JSON object of a program of tests/bench or, after '!', why
there is none, separated by tabs. The tag "part:NAME" tells why a whole part was not measured.
"""

import argparse
import json
import os
import platform
import statistics
import sys
from dataclasses import dataclass
from typing import Optional

FAR = 0.85  # a figure that reaches less than this share of its goal is told apart


@dataclass(frozen=True)
class Term:
    """A figure of a program: tag (with the operation, where it has one), field, and a factor."""

    tag: str
    field: str
    times: float = 1.0


@dataclass(frozen=True)
class Limit:
    """What a figure is set beside: the sum of its terms, or the best of them."""

    name: str
    terms: tuple
    plus: float = 0.0
    best: bool = False


@dataclass(frozen=True)
class Row:
    """What is measured, beside which limit, and what is wanted of the ratio (or of the figure)."""

    what: str
    unit: str
    ours: Term
    limit: Optional[Limit] = None
    goal: Optional[float] = None
    at_least: bool = True  # else at most

    def goal_text(self):
        if self.goal is None:
            return "-"
        sign = ">=" if self.at_least else "<="
        return f"{sign} {self.goal:g}" + ("x" if self.limit else f" {self.unit}").rstrip()


# ------------------------------------------------------------------------------------- the rows

OPS = ("read", "write")


def gb_s(tag, times=1.0):
    return Term(tag, "gb_s", times)


def at_most(what, unit, ours, limit=None, goal=None):
    return Row(what, unit, ours, limit, goal, False)


def best_stream(streams, cc, chunks):
    plural = "" if streams == 1 else "s"
    return Limit(f"raw_stream, {streams} stream{plural}, {cc}",
                 tuple(gb_s(f"raw{streams}_{chunk}@{cc}") for chunk in chunks), best=True)


def stream_rows(ccs):
    rows = []
    for cc in ccs:
        one, four = best_stream(1, cc, ("256K", "1M", "4M")), best_stream(4, cc, ("256K", "1M"))
        for op in OPS:
            rows += [
                Row(f"1 MiB x 16 {op}, 1 thread, {cc}", "GB/s", gb_s(f"e1M@{cc}.{op}"), one, 0.95),
                Row(f"64 KiB x 128 {op}, 1 thread, {cc}", "GB/s", gb_s(f"e64K@{cc}.{op}"), one, 0.9),
                Row(f"4 KiB x 128 {op}, 1 thread, {cc}", "GB/s", gb_s(f"e4K@{cc}.{op}"), one, 0.5),
                Row(f"8 MiB x 16 {op}, 1 thread, {cc}", "GB/s", gb_s(f"e8M@{cc}.{op}"),
                    Limit(f"ours, 1 MiB x 16 {op}", (gb_s(f"e1M@{cc}.{op}"),)), 0.95),
                Row(f"1 MiB x 16 {op}, 4 threads, {cc}", "GB/s", gb_s(f"e4T@{cc}.{op}"), four, 0.95),
            ]
    return rows + lockstep_rows()


def lockstep_rows():
    """A batch at a time, beside a raw stream that waits for each as many bytes."""
    return [Row(f"{name} {op}, a batch at a time", "GB/s", gb_s(f"lock_{tag}.{op}"),
                Limit(f"raw_stream, {window} at a time", (gb_s(f"raw_lock_{tag}"),)), goal)
            for tag, name, window, goal in (("1M", "1 MiB x 16", "16 MiB", 0.95), ("64K", "64 KiB x 128", "8 MiB", 0.9),
                                            ("4K", "4 KiB x 128", "512 KiB", 0.5)) for op in OPS]


def latency_rows():
    waits = {"none": "both sleep, two CPUs", "same": "both sleep, one CPU", "one": "one spins",
             "both": "both spin"}
    rows = []
    for size, name in (("4K", "4 KiB"), ("64", "64 B")):
        for mode, how in waits.items():
            for quantile, goal in (("p50", 1.25), ("p99", 1.5)):
                field = f"{quantile}_us"
                rows.append(at_most(f"{name} read {quantile}, {how}", "us",
                                    Term(f"lat_{mode}_{size}", field),
                                    Limit("raw_pingpong, same",
                                          (Term(f"ping_{mode}_{size}", field),)), goal))
    return rows


def delay_rows():
    rows = []
    for us, name in (("100", "100 us"), ("1000", "1 ms")):
        window = Limit("raw_stream, window of 8 MiB", (gb_s(f"d{us}_window"),))
        trips = Limit("3 round trips + 1 ms", (Term(f"d{us}_ping", "p50_us", 3e-3),), plus=1.0)
        rows += [Row(f"64 KiB x 128 {op}, {name} of delay", "GB/s", gb_s(f"d{us}_engine.{op}"), window,
                     0.9) for op in OPS]
        rows += [
            Row(f"raw_stream without a window, {name}", "GB/s", gb_s(f"d{us}_raw")),
            at_most(f"raw_pingpong of 64 B, {name}", "us", Term(f"d{us}_ping", "p50_us")),
            at_most(f"packets that the relay lost, {name}", "", Term(f"d{us}_relay", "dropped")),
            at_most(f"first transfer to a peer, {name}", "ms", Term(f"d{us}_first", "first_ms"), trips,
                    1.0),
            at_most(f"the same with te_open, {name}", "ms", Term(f"d{us}_first", "total_ms"), trips),
            at_most(f"te_warm, {name}", "ms", Term(f"d{us}_warm", "warm_ms")),
            at_most(f"first transfer after te_warm, {name}", "ms", Term(f"d{us}_warm", "first_ms"),
                    Limit("2 round trips + 1 ms", (Term(f"d{us}_ping", "p50_us", 2e-3),), plus=1.0), 1.0),
        ]
    return rows


def links_rows():
    rows = []
    sum_slow = (gb_s("l1_raw", 3), gb_s("slow_raw"))
    for op in OPS:
        rows += [
            Row(f"1 link of 400 Mbit/s, {op}", "GB/s", gb_s(f"l1_engine.{op}"),
                Limit("raw_stream, 1 link", (gb_s("l1_raw"),)), 0.95),
            Row(f"2 links, {op}", "GB/s", gb_s(f"l2_engine.{op}"),
                Limit("2 x raw_stream, 1 link", (gb_s("l1_raw", 2),)), 0.95),
            Row(f"4 links, {op}", "GB/s", gb_s(f"l4_engine.{op}"),
                Limit("4 x raw_stream, 1 link", (gb_s("l1_raw", 4),)), 0.95),
            Row(f"4 links, one at a quarter, {op}", "GB/s", gb_s(f"l4slow_engine.{op}"),
                Limit("raw_stream, sum of the links", sum_slow), 0.92),
        ]
    return rows


def host_rows():
    rows = []
    for op in OPS:
        rows += [Row(f"te_alloc memory, {op}, {n} thread{'s' * (n > 1)}", "GB/s", gb_s(f"shared{n}.{op}"),
                     Limit(f"raw_memcpy, {n}", (gb_s(f"memcpy{n}"),)), 0.95) for n in (1, 2)]
        rows += [
            Row(f"other memory, 1 MiB x 16 {op}", "GB/s", gb_s(f"host_1M.{op}"),
                Limit("raw_process_vm, 1 MiB", (gb_s(f"vm_1M.{op}"),)), 0.95),
            Row(f"other memory, 4 KiB x 128 {op}", "GB/s", gb_s(f"host_4K.{op}"),
                Limit("raw_process_vm, 128 x 4 KiB", (gb_s(f"vm_4K.{op}"),)), 0.9),
        ]
    return rows + [
        at_most("first use of te_alloc memory", "ms", Term("host_first", "cold_first_ms"), goal=1),
        at_most("the same with te_open", "ms", Term("host_first", "cold_total_ms")),
        at_most("first use of other memory", "ms", Term("host_first_vm", "cold_first_ms"), goal=1),
        at_most("the same with te_open, other memory", "ms", Term("host_first_vm", "cold_total_ms")),
        Row("1 MiB x 16 read, own memory", "GB/s", gb_s("self.read"),
            Limit("raw_memcpy, 1", (gb_s("memcpy1"),))),
    ]


def core_rows():
    return [
        at_most("submit, batch of 256", "ns/req", Term("submit256", "ns_request"), goal=150),
        at_most("submit, batch of 1,024", "ns/req", Term("submit1024", "ns_request"), goal=150),
        at_most("submit, prepared list", "ns/req", Term("prepared", "ns_request"), goal=50),
        at_most("100,000 requests posted, one core", "ms", Term("post", "batch_ms"), goal=15),
        at_most("112,000 pages of 4 KiB submitted, a page", "ns", Term("pages", "ns_page"), goal=20),
        at_most("112,000 pages of 4 KiB submitted", "ms", Term("pages", "submit_ms"), goal=3),
        at_most("init with P2PHANDSHAKE", "ms", Term("init", "p50_ms"), goal=20),
        at_most("te_lease_grant, a lease", "ns", Term("lease", "grant_ns"), goal=1000),
        at_most("te_revoke of one that nobody uses", "ns", Term("lease", "revoke_ns"), goal=1000),
        at_most("wake-ups, idle", "/s", Term("idle", "wakeups_s"), goal=1),
        at_most("wake-ups, idle peer", "/s", Term("idle", "peer_wakeups_s"), goal=1),
    ]


def peers_rows():
    return [
        at_most("1,000 peers: a block read from each", "s", Term("peers", "connected_s"), goal=2),
        at_most("1,000 peers: resident memory each", "KiB", Term("peers", "kib_peer"), goal=64),
    ]


def crc_rows():
    return [Row(f"1 MiB x 16 {op}, with CRC32C", "GB/s", gb_s(f"crc_on.{op}"),
                Limit("ours without", (gb_s(f"crc_off.{op}"),)), 0.9) for op in OPS]


def auth_rows():
    rows = [Row(f"1 MiB x 16 {op}, with TE_AUTH=psk", "GB/s", gb_s(f"auth_on.{op}"),
                Limit("ours without", (gb_s(f"auth_off.{op}"),)), 0.99) for op in OPS]
    for name, tag in (("with TE_AUTH=psk", "on"), ("without", "off")):
        rows += [at_most(f"first transfer, {name}", "ms", Term(f"auth_{tag}_first", "first_ms")),
                 at_most(f"the same with te_open, {name}", "ms", Term(f"auth_{tag}_first", "total_ms"))]
    return rows


def rdma_rows():
    rows = [Row(f"raw_process_vm of 64 KiB, {op}", "GB/s", gb_s(f"rdma_vm.{op}")) for op in OPS]
    for op in OPS:
        rows += [Row(f"{n} NIC{'s' * (n > 1)}, {op}", "GB/s", gb_s(f"rdma{n}.{op}"),
                     Limit(f"{n} x 200 MB/s", (Term(f"rdma{n}", "nics_gb_s"),)), 0.95)
                 for n in (1, 2, 4, 8)]
        rows += [Row(f"4 NICs, one at a quarter, {op}", "GB/s", gb_s(f"rdma_slow.{op}"),
                     Limit("their rates", (Term("rdma_slow", "nics_gb_s"),)), 0.92),
                 Row(f"the same, striped by the caller, {op}", "GB/s", gb_s(f"rdma_static.{op}"),
                     Limit("their rates", (Term("rdma_static", "nics_gb_s"),)))]
    for side, name, goal in (("local", "a port of ours", 50), ("peer", "a port of the peer's", 300)):
        of = f"rdma_faults.{side}"
        rows += [at_most(f"{name} down: stall", "ms", Term(of, "stall_ms"), goal=goal),
                 at_most(f"{name} down: the slowest of its requests", "ms", Term(of, "slowest_ms")),
                 at_most(f"{name} down: requests failed", "", Term(of, "failed"), goal=0),
                 Row(f"{name}: a second after it is up", "GB/s", Term(of, "after_gb_s"),
                     Limit("before", (Term(of, "before_gb_s"),)), 0.95)]
    for tag, how in (("4K", "submitted"), ("4K_prep", "from a prepared list")):
        rows += [Row(f"4 KiB requests on one core, {how}, {op}", "M/s",
                     Term(f"rdma_{tag}.{op}", "requests_s", 1e-6), goal=1.0) for op in OPS]
    return rows + [
        Row("work requests a doorbell, 4 KiB x 256", "", Term("rdma_4K", "wrs_doorbell"), goal=16),
        Row("work requests a doorbell, 64 KiB x 256", "", Term("rdma_64K", "wrs_doorbell"), goal=16),
        Row("work requests a doorbell, 8 NICs of 200 MB/s", "", Term("rdma8", "wrs_doorbell")),
        Row("fewest bytes of a NIC of 8, of its share", "", Term("rdma8", "least_share")),
        at_most("instructions a slice of 64 KiB", "", Term("rdma_slice", "slice")),
    ]


def files_rows():
    return [Row(f"{name} {op}, 32 under way", "GB/s", gb_s(f"file_{tag}.{op}"),
                Limit("fio, the same", (gb_s(f"fio_{tag}.{op}"),)), goal)
            for tag, name, goal in (("4K", "4 KiB", 0.9), ("64K", "64 KiB", 0.95), ("1M", "1 MiB", 0.95))
            for op in OPS]


PARTS = {"stream": stream_rows, "latency": latency_rows, "delay": delay_rows, "links": links_rows,
         "host": host_rows, "core": core_rows, "peers": peers_rows, "crc": crc_rows,
         "auth": auth_rows, "rdma": rdma_rows, "files": files_rows}


def rows_of(part, ccs):
    return PARTS[part](ccs) if part == "stream" else PARTS[part]()


# ------------------------------------------------------------------------------------- judging


def load(path):
    """Samples as {tag or tag.op: {round: record}} and the complaints as {tag: text}."""
    records, complaints = {}, {}
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            number, tag, text = line.rstrip("\n").split("\t", 2)
            if text.startswith("!"):
                complaints[tag] = text[1:].strip() or "it failed without a word"
                continue
            try:
                record = json.loads(text)
            except ValueError:
                complaints[tag] = f"not JSON: {text}"
                continue
            key = f"{tag}.{record['op']}" if "op" in record else tag
            records.setdefault(key, {})[int(number)] = record
            if tag == "probe":
                records.setdefault(record["bench"], {})[0] = record
    return records, complaints


def series(records, term):
    """{round: value} of a term."""
    of_tag = records.get(term.tag, {})
    return {n: r[term.field] * term.times for n, r in of_tag.items() if n > 0 and term.field in r}


def limit_series(records, limit):
    """{round: value} of a limit, for the rounds that have all its terms, and its name."""
    terms = [(term, series(records, term)) for term in limit.terms]
    if limit.best:
        measured = [(statistics.median(of.values()), term.tag, of) for term, of in terms if of]
        if not measured:
            return {}, limit.name
        _, tag, of = max(measured, key=lambda m: m[:2])
        return of, f"{limit.name}, {tag.split('@')[0].split('_')[-1]}"
    rounds = set.intersection(*(set(of) for _, of in terms))
    return {n: sum(of[n] for _, of in terms) + limit.plus for n in sorted(rounds)}, limit.name


def complaint(row, part, complaints):
    """Why a row has no figure."""
    tags = [row.ours.tag] + [term.tag for term in (row.limit.terms if row.limit else ())]
    for tag in tags + [tag.rsplit(".", 1)[0] for tag in tags] + [f"part:{part}"]:
        if tag in complaints:
            return complaints[tag]
    return "no sample"


def judge(row, part, records, complaints):
    """One row of the result. `met` is None where there is no goal, or no figure to judge."""
    ours = series(records, row.ours)
    limit, name = limit_series(records, row.limit) if row.limit else ({}, "-")
    out = {"part": part, "what": row.what, "unit": row.unit, "limit": name, "goal": row.goal_text(),
           "ours": statistics.median(ours.values()) if ours else None,
           "limit_value": statistics.median(limit.values()) if limit else None,
           "rounds": len(ours), "ratio": None, "ratio_low": None, "ratio_high": None, "met": None,
           "of_goal": None, "not_measured": None}
    if ours and out["limit_value"]:
        ratios = [ours[n] / limit[n] for n in ours if limit.get(n)]
        if ratios:
            out["ratio"] = statistics.median(ratios)
            out["ratio_low"], out["ratio_high"] = min(ratios), max(ratios)
    figure = out["ratio"] if row.limit else out["ours"]
    if figure is None:
        out["not_measured"] = complaint(row, part, complaints)
    elif row.goal is not None:
        out["met"] = figure >= row.goal if row.at_least else figure <= row.goal
        high, low = (figure, row.goal) if row.at_least else (row.goal, figure)
        out["of_goal"] = high / low if low else None
    return out


def empty_parts(results, complaints):
    """(part, why) of those that have left no sample at all, though they can be measured here."""
    found = {}
    for result in results:
        found.setdefault(result["part"], []).append(result)
    return [(part, of_part[0]["not_measured"]) for part, of_part in found.items()
            if f"part:{part}" not in complaints and
            all(r["ours"] is None and r["limit_value"] is None for r in of_part)]


# ------------------------------------------------------------------------------------- printing


def number(value):
    if value is None:
        return "-"
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def short(reason):
    """Without the names of the program, the call and the error in front, and not too long."""
    head, colon, rest = reason.partition(": ")
    while colon and " " not in head:
        reason = rest
        head, colon, rest = reason.partition(": ")
    return reason if len(reason) <= 60 else reason[:57] + "..."


def verdict(result):
    if result["not_measured"] is not None:
        return f"not measured: {short(result['not_measured'])}"
    if result["met"] is None:
        return "-"
    if result["met"]:
        return "yes"
    return "NO" if not far(result) else f"NO, under {FAR:g} of it"


def far(result):
    return result["met"] is False and result["of_goal"] < FAR


def cells(result):
    spread = "-"
    if result["ratio_low"] is not None:
        spread = f"{result['ratio_low']:.2f}-{result['ratio_high']:.2f}"
    unit = f" {result['unit']}" if result["unit"] else ""
    return [
        result["what"],
        number(result["ours"]) + (unit if result["ours"] is not None else ""),
        result["limit"],
        number(result["limit_value"]) + (unit if result["limit_value"] is not None else ""),
        f"{result['ratio']:.2f}" if result["ratio"] is not None else "-",
        spread,
        str(result["rounds"]),
        result["goal"],
        verdict(result),
    ]


def table(results):
    head = ["figure", "ours", "limit program", "its figure", "ratio", "from-to", "rounds", "goal", "met"]
    rows = [head] + [cells(r) for r in results]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def describe(args, records):
    """Where and how, as a dictionary for the JSON file and the lines above the table."""
    probe = records.get("path", {}).get(0, {})
    moved = records.get("throughput", {}).get(0, {})
    return {
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "rounds": max((n for of_tag in records.values() for n in of_tag), default=0),
        "cc_system": args.system_cc,
        "cc_engine": args.engine_cc,
        "cc_engine_peer": moved.get("peer_cc", "unknown"),
        "cc_measured": args.cc.split(","),
        "version": probe.get("version", "unknown"),
        "optimized": probe.get("optimized"),
        "path": probe.get("path", "unknown"),
    }


def print_report(where, results, complaints):
    print(f"{where['cpus']} CPUs, {where['system']}; medians, of figures and of ratios, over the rounds; "
          f"engine {where['version']}")
    print(f"congestion control: system {where['cc_system']}, engine's choice on this host "
          f"{where['cc_engine']}; the raw sockets use what the engine's do")
    print(f"path: {where['path']}")
    if where["optimized"] is False:
        print("WARNING: this build is not optimised; the figures say little. Use: make build")
    print("\n" + table(results) + "\n")
    tags_of = {}
    for tag, text in sorted(complaints.items()):
        tags_of.setdefault(text, []).append(tag)
    for text, tags in tags_of.items():
        print(f"failed: {', '.join(tags)}: {text}")
    missed = [r for r in results if r["met"] is False]
    met = sum(r["met"] is True for r in results)
    goals = sum(r["goal"] != "-" for r in results)
    print(f"goals met: {met} of {goals}, missed: {len(missed)}, "
          f"not measured: {goals - met - len(missed)}")
    for what, some in ((f"missed, under {FAR:g} of the goal", [r for r in missed if far(r)]),
                       ("missed", [r for r in missed if not far(r)])):
        if some:
            print(f"{what}: {'; '.join(r['what'] for r in some)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="which rows to print")
    parser.add_argument("--cc", default="unknown", help="congestion controls of the part stream")
    parser.add_argument("--engine-cc", default="unknown", help="the engine's own choice")
    parser.add_argument("--system-cc", default="unknown", help="that of the system")
    parser.add_argument("--json", default="", help="write all figures to this file")
    parser.add_argument("samples", help="what scripts/bench.sh collected")
    args = parser.parse_args()
    records, complaints = load(args.samples)
    where = describe(args, records)
    results = [judge(row, part, records, complaints) for part in args.parts.split(",")
               for row in rows_of(part, args.cc.split(","))]
    print_report(where, results, complaints)
    if args.json:
        samples = {tag: [by[n] for n in sorted(by) if n > 0] for tag, by in records.items()}
        samples = {tag: of_tag for tag, of_tag in samples.items() if of_tag}
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump({"where": where, "rows": results, "samples": samples,
                       "not_measured": complaints}, out, indent=1)
            out.write("\n")
    empty = empty_parts(results, complaints)
    for part, why in empty:
        print(f"bench.sh: {part} has left no sample: {why}", file=sys.stderr)
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
