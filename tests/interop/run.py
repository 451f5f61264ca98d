#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the cases between our engine and Mooncake's (cases.py); run.sh calls it with a venv that has the wheel.

docs/compat.md holds the rows between two marks, and what it promises is what ran: a row that says "works"
or "differs" is a case that asserts it. Exit 1 when a case fails or the page holds other rows.
"""
import argparse
import fnmatch
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
PAGE = os.path.join(HERE, "..", "..", "docs", "compat.md")
BEGIN, END = "<!-- interop: rows of tests/interop/run.sh --markdown -->", "<!-- interop: end -->"


def rows(cases):
    """The table of docs/compat.md."""
    lines = ["| Case | Who → to whom | What runs | Result |", "|---|---|---|---|"]
    group = None
    for case in cases:
        if case.group != group:
            group = case.group
            lines.append(f"| **{group}** | | | |")
        result = f"differs: {case.why}" if case.why else "works"
        lines.append(f"| `{case.name}` | {case.pair} | {case.what} | {result} |")
    return lines


def rows_of_page():
    with open(PAGE, encoding="utf-8") as f:
        text = f.read()
    if BEGIN not in text or END not in text:
        return []
    return text.split(BEGIN)[1].split(END)[0].strip().splitlines()


def run_case(case, engine):
    """None, or what went wrong."""
    try:
        case.run()
    except Exception as e:  # pylint: disable=broad-except
        return f"{type(e).__name__}: {e}"
    finally:
        engine.te.close_all()
    return None


def load_engine(venv):
    """The module of processes, and the wheel's version; ends with 77 where the wheel does not load."""
    import te_interop  # pylint: disable=import-outside-toplevel
    te_interop.Venv.folder = venv
    ran = subprocess.run([te_interop.Venv.program("python"), "-c", "from mooncake import engine"],
                         capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode:
        why = (ran.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"interop: Mooncake's wheel does not load here: {why}")
        sys.exit(77)
    with te_interop.Theirs(start=False) as peer:
        return te_interop, peer.do("version")


def summary(results, seconds):
    width = max(len(name) for name, _, _ in results)
    print("\ninterop: summary")
    for name, case, wrong in results:
        print(f"  {name:{width}}  {case.pair:14}  {'FAILED' if wrong else case.result}")
    failed = [name for name, _, wrong in results if wrong]
    works = sum(1 for _, case, wrong in results if not wrong and not case.why)
    print(f"interop: {works} work, {len(results) - works - len(failed)} differ as docs/compat.md says, "
          f"{len(failed)} failed, {seconds:.0f} s")
    return failed


def run_all(cases, engine):
    results, begin = [], time.monotonic()
    for i, case in enumerate(cases, 1):
        start = time.monotonic()
        wrong = run_case(case, engine)
        took = time.monotonic() - start
        print(f"[{i:2}/{len(cases)}] {took:5.1f} s  {'FAILED' if wrong else case.result:7}  {case.name}",
              flush=True)
        if wrong:
            print("    " + wrong.replace("\n", "\n    "), flush=True)
        results.append((case.name, case, wrong))
    return summary(results, time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--only", metavar="PATTERN", help="only cases whose name has it, or matches it with *")
    parser.add_argument("--markdown", action="store_true", help="print the rows of docs/compat.md, run nothing")
    parser.add_argument("--venv", help="the virtual environment with Mooncake's wheel")
    args = parser.parse_args()

    from cases import CASES  # pylint: disable=import-outside-toplevel
    chosen = [c for c in CASES if not args.only or args.only in c.name or fnmatch.fnmatch(c.name, args.only)]
    if args.list:
        print("\n".join(c.name for c in chosen))
        return 0
    if args.markdown:
        print("\n".join(rows(CASES)))
        return 0
    if not chosen:
        parser.error(f"no case is called {args.only}")
    engine, version = load_engine(args.venv)
    print(f"interop: {len(chosen)} cases beside {version['wheel']} {version['version']}")
    failed = run_all(chosen, engine)
    if rows_of_page() != rows(CASES):
        print("interop: docs/compat.md holds other rows than tests/interop/run.sh --markdown prints")
        failed.append("docs/compat.md")
    print(json.dumps({"wheel": version["wheel"], "version": version["version"], "cases": len(chosen),
                      "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
