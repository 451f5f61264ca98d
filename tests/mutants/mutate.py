#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws mutants of the library by a seed, and writes them to list.txt, which is kept: a list is drawn before any of it
is run, and not looked through for those that are found. A mutant is one small change of one function that compiles to
other code. Those that no longer apply, since their function has changed, are drawn anew with --again, the others stay.

A mutant in list.txt: "number | operator | file | function | which of the same lines there", then the lines that go
("-") and those that come ("+")."""
import argparse
import glob
import json
import os
import random
import re
import shlex
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
LIST = os.path.join(ROOT, "tests", "mutants", "list.txt")
SEED, EACH = 22, 13  # so many of each operator

# What the simulation runs (docs/simulation.md). The rest of src/ has tests of its own: src/auth, conf, model, plat,
# compat and archive; of these folders what only writes text for people, and what greets with keys.
FOLDERS = ("base", "core", "meta", "rail", "transport")
LEFT_OUT = re.compile(r"(_why|_text|_auth|_trace|_secure)\.c$|/(metrics\w*|log|err|utf8|traceparent|observe|matrix)\.c$")

FUNCTION = re.compile(r"^[A-Za-z_].*?(\w+)\(")
CALL = r"^\s+(?:\(void\))?(?:[\w.>-]+->)?({})\(.*\);$"
COMPLETES = re.compile(CALL.format(r"(?!tei_list_)\w*(?:reap|give_back|complete|settle|work_done|finish|_end|_over|_back|_done)"))
WAKES = re.compile(CALL.format(r"pthread_cond_(?:signal|broadcast)|\w*(?:_call|wake\w*|_ring|_kick|_notify|_signal)"))
UNLOCK = re.compile(r"^\s+pthread_mutex_unlock\(.*\);$")
STORE = re.compile(r"^\s+[\w.>\[\]-]+ = [^;]*;$")
PUBLISH = re.compile(r"^\s+(?:atomic_store\w*|pthread_mutex_unlock)\(.*\);$")
COMPARE = re.compile(r"(?<= )(<=|>=|<|>)(?= )")
OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
DEADLINE = re.compile(r"^(\s+(?:int64_t )?[\w.>\[\]-]*(?:deadline|until|look|due|at|check|limit|expires|wake)_ns = )[^;]*;$")
TIMER = re.compile(CALL.format(r"tei_timer_set"))
ORDER = re.compile(r"memory_order_(?:acquire|release|acq_rel|seq_cst)")
CHECK = re.compile(r"^(\s+)if \((.*)\)$")
LEAVES = re.compile(r"^\s+(return\b.*|continue|break|goto \w+);$")


def dropped(pattern):
    return lambda lines, i: ([lines[i]], []) if pattern.match(lines[i]) else None


def swapped(lines, i):
    if STORE.match(lines[i]) and PUBLISH.match(lines[i + 1]):
        return lines[i:i + 2], [lines[i + 1], lines[i]]
    return None


def off_by_one(lines, i):
    found = COMPARE.findall(lines[i])
    if len(found) != 1 or lines[i].lstrip().startswith(("#", "*", "/*", "//")):
        return None
    return [lines[i]], [COMPARE.sub(lambda m: OTHER[m[0]], lines[i])]


def forgotten(lines, i):
    if TIMER.match(lines[i]):
        return [lines[i]], []
    m = DEADLINE.match(lines[i])
    return ([lines[i]], [m[1] + "TEI_NEVER;"]) if m and "TEI_NEVER;" not in lines[i] else None


def weakened(lines, i):
    if len(ORDER.findall(lines[i])) != 1:
        return None
    return [lines[i]], [ORDER.sub("memory_order_relaxed", lines[i])]


def skipped(lines, i):
    m = CHECK.match(lines[i])
    if not m or not LEAVES.match(lines[i + 1]):
        return None
    return [lines[i]], [f"{m[1]}if (false && ({m[2]}))"]


OPERATORS = {
    "an unlock dropped": dropped(UNLOCK),
    "a store after what publishes it": swapped,
    "a completion missed": dropped(COMPLETES),
    "a wake-up lost": dropped(WAKES),
    "a bound off by one": off_by_one,
    "a deadline forgotten": forgotten,
    "an order weakened": weakened,
    "a check skipped": skipped,
}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def functions_of(lines):
    """(name, index of its first line, index of its closing brace) of each, as the formatter leaves them."""
    name = begin = None
    for i, line in enumerate(lines):
        m = FUNCTION.match(line)
        if m and not line.endswith(";"):
            name = m[1]
        if line == "{" and name:
            begin = i
        if line == "}" and begin is not None:
            yield name, begin, i
            name = begin = None


class Mutant:
    def __init__(self, number, operator, path, function, which, gone, come):
        self.number, self.operator, self.path, self.function = number, operator, path, function
        self.which, self.gone, self.come = which, gone, come

    def text(self):
        head = f"{self.number} | {self.operator} | {self.path} | {self.function} | {self.which}"
        return "\n".join([head] + ["-" + line for line in self.gone] + ["+" + line for line in self.come]) + "\n"

    def place(self, lines):
        """Where what goes is; None: the function has changed."""
        seen = 0
        for name, begin, end in functions_of(lines):
            for i in range(begin, end) if name == self.function else ():
                if lines[i:i + len(self.gone)] == self.gone:
                    seen += 1
                    if seen == self.which:
                        return i
        return None

    def applied(self):
        """The file with it; None: it does not apply."""
        lines = read(self.path).split("\n")
        at = self.place(lines)
        if at is None:
            return None
        return "\n".join(lines[:at] + self.come + lines[at + len(self.gone):])


def frozen():
    """The mutants of list.txt."""
    mutants = []
    for block in read(LIST).strip().split("\n\n"):
        head, *lines = block.split("\n")
        number, operator, path, function, which = head.split(" | ")
        mutants.append(Mutant(number, operator, path, function, int(which), [x[1:] for x in lines if x[0] == "-"],
                              [x[1:] for x in lines if x[0] == "+"]))
    return mutants


def candidates(operator):
    for path in sorted(p for folder in FOLDERS for p in glob.glob(f"src/{folder}/**/*.c", recursive=True, root_dir=ROOT)):
        if LEFT_OUT.search("/" + path):
            continue
        lines = read(path).split("\n")
        for name, begin, end in functions_of(lines):
            seen = {}
            for i in range(begin, end):
                change = OPERATORS[operator](lines, i)
                if change:
                    key = "\n".join(change[0])
                    seen[key] = seen.get(key, 0) + 1
                    yield path, name, seen[key], *change


def compiler_of(path):
    with open(os.path.join(ROOT, "build", "compile_commands.json"), encoding="utf-8") as f:
        return next(entry for entry in json.load(f) if entry["file"] == os.path.join(ROOT, path))


def code(path, text):
    """What it compiles to; None if it does not."""
    entry = compiler_of(path)
    words = shlex.split(entry["command"])
    words = [w for w in words[:words.index("-o")] if w not in ("-Werror", "-g")]
    r = subprocess.run([*words, f"-I{os.path.dirname(os.path.join(ROOT, path))}", "-g0", "-w", "-S", "-o", "-", "-x", "c", "-"],
                       input=text, cwd=entry["directory"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                       check=False)
    return r.stdout if r.returncode == 0 else None


def differs(mutant):
    """An order may be the same code on the processor that draws, and is a fault on others."""
    new = code(mutant.path, mutant.applied())
    return new is not None and (mutant.operator == "an order weakened" or new != code(mutant.path, read(mutant.path)))


def draw(numbers, operator, taken, chance):
    """So many of one operator, of no function that has one of it already."""
    left = list(candidates(operator))
    chance.shuffle(left)
    drawn = []
    while left and len(drawn) < len(numbers):
        path, function, which, gone, come = left.pop()
        mutant = Mutant(numbers[len(drawn)], operator, path, function, which, gone, come)
        if (operator, path, function) not in taken and differs(mutant):
            taken.add((operator, path, function))
            drawn.append(mutant)
    return drawn


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true", help="only those that do not apply any more, and say which")
    args = parser.parse_args()
    kept = [m for m in frozen() if m.applied() is not None] if args.again else []
    taken = {(m.operator, m.path, m.function) for m in kept}
    have = {m.number for m in kept}
    mutants = list(kept)
    for k, operator in enumerate(OPERATORS):
        numbers = [n for n in (f"{k * EACH + i + 1:03}" for i in range(EACH)) if n not in have]
        mutants += draw(numbers, operator, taken, random.Random(f"{SEED} {operator} {','.join(numbers)}"))
        print(f"{operator}: {len(numbers)} drawn" + (f": {', '.join(numbers)}" if args.again else ""), file=sys.stderr)
    with open(LIST, "w", encoding="utf-8") as f:
        f.write("\n".join(m.text() for m in sorted(mutants, key=lambda m: m.number)))


if __name__ == "__main__":
    main()
