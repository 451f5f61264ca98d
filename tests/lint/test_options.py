#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
"""Options that the documentation shows as working are read somewhere; those marked idle are not."""
import glob
import os
import re
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
# Members that conf.c itself turns into another one.
FOLDED = ("verbose",)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def rows():
    """(name, member, idle) of every row of the option table."""
    table = read(os.path.join(ROOT, "src", "conf", "table.c"))
    body = table[table.index("tei_option_rows[] = {"):table.index("tei_option_count =")]
    for text in re.split(r"\n    \{(?=[A-Z]+\()", body)[1:]:
        name, member = re.match(r'[A-Z]+\("(\w+)", (\w+)', text).groups()
        yield name, member, ".idle = true" in text


def sources():
    names = glob.glob(os.path.join(ROOT, "src", "**", "*.[ch]"), recursive=True)
    conf = os.path.join(ROOT, "src", "conf") + os.sep
    return "\n".join(read(n) for n in names if not n.startswith(conf))


def bindings():
    """Names of options that a binding reads from the environment by itself."""
    names = glob.glob(os.path.join(ROOT, "bindings", "**", "*.py"), recursive=True)
    return set(re.findall(r'environ\.get\("(\w+)"', "\n".join(read(n) for n in names)))


class OptionsTest(unittest.TestCase):
    def test_every_option_is_read_or_marked(self):
        code, by_bindings = sources(), bindings()
        has_redis = os.path.exists(os.path.join(ROOT, "src", "meta", "store_redis.c"))
        wrong, count = [], 0
        for name, member, idle in rows():
            count += 1
            if member in FOLDED or (member.startswith("redis_") and not has_redis):
                continue
            is_read = name in by_bindings or re.search(r"(->|\.)" + member + r"\b", code) is not None
            if is_read and idle:
                wrong.append(f"{name}: {member} is read now: drop .idle in src/conf/table.c, print docs/config.md anew")
            if not is_read and not idle:
                wrong.append(f"{name}: nothing reads {member}: mark the row .idle = true in src/conf/table.c")
        self.assertGreater(count, 80)
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
