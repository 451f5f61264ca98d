#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The models of tests/models are of the C code as it is: the same atomic operations, and every atomic is told of."""
import glob
import os
import re
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
MODELS = os.path.join(ROOT, "tests", "models")
README = os.path.join(MODELS, "README.md")

# An operation of C11, its object (the last name before the operation's comma, without its index) and its orders.
OPERATION = re.compile(r"\batomic_(thread_fence|load|store|exchange|compare_exchange_(?:weak|strong)|fetch_(?:add|sub|or|and))"
                       r"(_explicit)?\s*\(")
ORDER = re.compile(r"\bmemory_order_(\w+)")
LITERAL = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
# A comment: "// C FILE FUNCTION: OPERATIONS", and lines behind it that begin with "// C" and five spaces.
ANNOTATION = re.compile(r"^ *// C (\S+) (\w+): (.*(?:\n *// C {5}.*)*)$", re.M)
ROW = re.compile(r"^\| `(src/\S+)` \| (.+?) \| (.+?) \|$", re.M)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def source(path):
    """A C file without its comments and with nothing in its literals."""
    return LITERAL.sub(lambda m: '""' if m.group()[0] in "'\"" else " ", read(os.path.join(ROOT, path)))


def end_of(text, at, pair="()"):
    """Where what opens at `at` closes."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == pair[0]) - (text[i] == pair[1])
        if depth == 0:
            return i
    raise AssertionError(f"unbalanced {pair} at {text[at:at + 60]!r}")


def body_of(text, function):
    """From the opening brace of a function to the closing one; None where it is not defined."""
    for found in re.finditer(r"^(?:[\w*].*[ *])?" + re.escape(function) + r"\(", text, re.M):
        end = end_of(text, found.end() - 1)
        if text[end + 1:].lstrip().startswith("{"):
            begin = text.index("{", end)
            return text[begin:end_of(text, begin, "{}") + 1]
    return None


def first_argument(arguments):
    depth = 0
    for i, c in enumerate(arguments):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            return arguments[:i]
    return arguments


def name_of(argument, body):
    """`&p->table->slots[i].epoch` is epoch; a local pointer is what it was made from."""
    while "[" in argument:
        argument = argument[:argument.index("[")] + argument[end_of(argument, argument.index("["), "[]") + 1:]
    name = re.findall(r"\w+", argument)[-1]
    made = re.search(r"\*" + name + r" = &([^;]+);", body)
    return name_of(made.group(1), body) if made and "&" not in argument else name


def operations(body):
    """"state.fetch_sub release" and so on, in the order of the text."""
    found = []
    for op in OPERATION.finditer(body):
        arguments = body[op.end():end_of(body, op.end() - 1)]
        kind = op.group(1)
        orders = ORDER.findall(arguments)
        if kind == "thread_fence":
            found.append(f"fence {orders[0]}")
            continue
        if not op.group(2):
            orders = ["seq_cst"] * (2 if kind.startswith("compare") else 1)
        found.append(" ".join([f"{name_of(first_argument(arguments), body)}.{kind}", *orders]))
    return found


def annotations(text):
    for a in ANNOTATION.finditer(text):
        told = re.sub(r"\s*\n *// C +", " ", a.group(3)).strip()
        yield a.group(1), a.group(2), [t.strip() for t in told.split(",")]


def differences(text):
    """What the annotations of one model say that the sources do not."""
    for path, function, told in annotations(text):
        body = body_of(source(path), function)
        if body is None:
            yield f"{path} has no function {function}"
        elif operations(body) != told:
            yield f"{path}: {function} has\n    {', '.join(operations(body))}\nand its model\n    {', '.join(told)}"


DECLARED = re.compile(r"(?<!extern )(?:\b_Atomic\b|\batomic_(?:bool|flag)\b)([^;{}]*?)(?:;|\{)")


def declared(text):
    """Names of the atomic variables and members of a file; pointers to atomics of elsewhere are none."""
    for found in DECLARED.finditer(text):
        names = re.sub(r"^\((.*?)\)", "", found.group(1).strip())
        names = re.sub(r"\[[^\]]*\]", "", names).split("=")[0]
        for i, part in enumerate(names.split(",")):
            name = re.findall(r"\w+", part)
            if name and "*" not in part and "(" not in part and (i or len(name)):
                yield name[-1]


def every_atomic():
    paths = glob.glob(os.path.join(ROOT, "src", "**", "*.[ch]"), recursive=True)
    return {(os.path.relpath(p, ROOT), name) for p in paths for name in declared(source(os.path.relpath(p, ROOT)))}


class Models(unittest.TestCase):
    def test_annotations(self):
        """A changed order in C: look at the model, change it and its mutations, then this line of it."""
        n = 0
        for path in glob.glob(os.path.join(MODELS, "src", "*.rs")):
            if os.path.basename(path) in ("lib.rs", "kit.rs"):
                continue
            text = read(path)
            n += len(list(annotations(text)))
            with self.subTest(model=os.path.basename(path)):
                self.assertTrue(list(annotations(text)))
                self.assertIn("#[should_panic", text)
                self.assertEqual(list(differences(text)), [])
        self.assertGreater(n, 60)

    def test_every_atomic_is_in_the_table(self):
        rows = ROW.findall(read(README))
        told = [(path, name) for path, names, _ in rows for name in re.findall(r"`(\w+)`", names)]
        self.assertEqual(len(told), len(set(told)))
        self.assertEqual(sorted(set(told) - every_atomic()), [], "in the table, not in src")
        self.assertEqual(sorted(every_atomic() - set(told)), [], "in src, not in the table")

    def test_models_of_the_table(self):
        """What the table says that a model covers, an annotation of that model names."""
        for path, names, why in ROW.findall(read(README)):
            models = re.search(r"^models? ((?:`\w+`(?: and )?)+)", why)
            if not models:
                self.assertNotIn("model ", why)
                continue
            named = set()
            for model in re.findall(r"\w+", models.group(1).replace(" and ", " ")):
                text = read(os.path.join(MODELS, "src", model + ".rs"))
                named |= {t.split(".")[0] for _, _, told in annotations(text) for t in told}
            for name in re.findall(r"`(\w+)`", names):
                self.assertIn(name, named, f"{path}: {name} is in no annotation of {models.group(1)}")


class Reading(unittest.TestCase):
    TEXT = """
static bool take(struct q *q, int i)
{
    _Atomic int *w = &q->at[i].word;

    atomic_thread_fence(memory_order_release);
    while (!atomic_compare_exchange_weak_explicit(&q->top, &i, f(i, 2),
                                                  memory_order_release, memory_order_relaxed))
        continue;
    return atomic_load(&q->rows[f(i)].busy[1]) || atomic_exchange(w, 1);
}
"""
    TOLD = ["fence release", "top.compare_exchange_weak release relaxed", "busy.load seq_cst", "word.exchange seq_cst"]

    def test_operations(self):
        self.assertEqual(operations(body_of(self.TEXT, "take")), self.TOLD)
        self.assertIsNone(body_of(self.TEXT, "f"))

    def test_a_change_is_told(self):
        model = "    // C src/base/waker.c tei_waker_ring: rung.exchange "
        self.assertEqual(list(differences(model + "acq_rel\n")), [])
        self.assertRegex("".join(differences(model + "relaxed\n")), "tei_waker_ring has\n *rung.exchange acq_rel\nand")
        self.assertRegex("".join(differences("// C src/base/waker.c no_such: rung.load relaxed\n")), "no function no_such")

    def test_declarations(self):
        text = "_Atomic int a, b[3]; _Atomic(struct x *) c; static atomic_bool d; extern _Atomic int e; int _Atomic f = 1;\n" \
               "_Atomic uint64_t *g; static atomic_flag h = {0};"
        self.assertEqual(list(declared(text)), ["a", "b", "c", "d", "f", "h"])


if __name__ == "__main__":
    unittest.main()
