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
    names = [n for kind in ("*.[ch]", "*.def") for n in glob.glob(os.path.join(ROOT, "src", "**", kind), recursive=True)]
    conf = os.path.join(ROOT, "src", "conf") + os.sep
    return "\n".join(read(n) for n in names if not n.startswith(conf))


def bindings():
    """Names of options that a binding reads from the environment by itself."""
    names = glob.glob(os.path.join(ROOT, "bindings", "**", "*.py"), recursive=True)
    return set(re.findall(r'environ\.get\("(\w+)"', "\n".join(read(n) for n in names)))


# How programs of this tree read the environment, in the languages that they are written in.
READS = (r'environ(?:\.get\(|b?\[b?|\.setdefault\()"(TE_\w+)"', r'getenv\("(TE_\w+)"', r"\$\{(TE_\w+)[:}%#]", r"\$(TE_\w+)",
         r'Getenv\("(TE_\w+)"', r'env::var(?:_os)?\("(TE_\w+)"', r'[vV]ariable = "(TE_\w+)"', r'\bSERVE: &str = "(TE_\w+)"',
         r'\bINSIDE = "(TE_\w+)"', r"\b(TE_\w+_MIRROR)\b")
PROGRAM = re.compile(r"\.(c|h|py|sh|go|rs)$|/[a-z_]+$")


def others():
    """Names and beginnings of names that src/conf/table.c knows of beside the options."""
    table = read(os.path.join(ROOT, "src", "conf", "table.c"))
    return re.findall(r'"(TE_\w+)"', re.search(r"others\[\] = \{(.*?)\};", table, re.S).group(1))


def read_by_programs():
    """{variable: a file that reads it}"""
    found = {}
    for top in ("bindings", "scripts", "tests", "tools", ".ci"):
        for folder, folders, names in os.walk(os.path.join(ROOT, top)):
            folders[:] = [f for f in folders if f not in ("target", "corpus", "__pycache__")]
            for path in (os.path.join(folder, n) for n in names):
                if os.path.islink(path) or not PROGRAM.search(path) or os.path.samefile(path, __file__):
                    continue
                with open(path, encoding="utf-8", errors="replace") as f:
                    text = f.read()
                found.update((name, path) for pattern in READS for name in re.findall(pattern, text))
    return found


class OptionsTest(unittest.TestCase):
    def test_variables_of_other_programs_are_known(self):
        """What is set for a test or a script is not called a variable without effect by the engines there."""
        options, known, found = {name for name, *_ in rows()}, others(), read_by_programs()
        self.assertGreater(len(found), 15)
        wrong = [f"{path}: {name} is neither an option nor among `others` of src/conf/table.c"
                 for name, path in sorted(found.items()) if name not in options and
                 not any(name == o or (o[-1] == "_" and name.startswith(o)) for o in known)]
        self.assertEqual(wrong, [])
        for o in known:
            self.assertTrue(any(n == o or (o[-1] == "_" and n.startswith(o)) for n in found), f"nothing reads {o}")

    def test_every_option_is_read_or_marked(self):
        code, by_bindings = sources(), bindings()
        has_redis = os.path.exists(os.path.join(ROOT, "src", "meta", "store_redis.c"))
        wrong, count = [], 0
        for name, member, idle in rows():
            count += 1
            if member in FOLDED or (member.startswith("redis_") and not has_redis):
                continue
            is_read = name in by_bindings or re.search(r"(->|\.|TEI_ASKS\(\w+, )" + member + r"\b", code) is not None
            if is_read and idle:
                wrong.append(f"{name}: {member} is read now: drop .idle in src/conf/table.c, run make docs")
            if not is_read and not idle:
                wrong.append(f"{name}: nothing reads {member}: mark the row .idle = true in src/conf/table.c")
        self.assertGreater(count, 80)
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
