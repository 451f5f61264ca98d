#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pictures of docs/pictures name what is there, and what scripts/pictures.py cannot draw it refuses."""
import glob
import os
import re
import sys
import unittest
import xml.etree.ElementTree as ET

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import lint  # noqa: E402
import pictures  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def described(name):
    return read("docs", "pictures", name + ".txt")


def names():
    return sorted(os.path.basename(path)[:-4] for path in glob.glob(os.path.join(ROOT, "docs", "pictures", "*.txt")))


class Content(unittest.TestCase):
    def test_states_are_those_of_the_interface(self):
        states = re.search(r"enum te_state \{(.*?)\}", read("include", "te.h"), re.S).group(1)
        drawn = re.findall(r'"\*([A-Z]+)\|', described("request"))
        self.assertEqual(sorted(drawn), sorted(re.findall(r"TE_(\w+) =", states)))

    def test_transports_are_those_of_the_list(self):
        listed = re.findall(r"^TEI_TRANSPORT\((\w+)\)", read("src", "transport", "transports.def"), re.M)
        drawn = ", ".join(re.findall(r'good "\*([^|]+)\|', described("paths"))).split(", ")
        self.assertEqual(sorted(drawn), sorted(listed))
        below = re.search(r'"\*transport/\*/\|([^"]+)"', described("layers")).group(1)
        self.assertEqual(sorted(re.findall(r"\w+", below)), sorted(listed))

    def test_layers_are_those_of_lint(self):
        """But for archive, which nothing includes and which includes nothing."""
        drawn = {name for name in re.findall(r'"\*?(?:src/)?([\w/*]+)/', described("layers")) if name in lint.LAYERS}
        self.assertEqual(drawn | {"transport", "archive"}, set(lint.LAYERS))

    def test_calls_are_in_the_interface(self):
        header = read("include", "te.h")
        for name in names():
            for call in re.findall(r"\bte_\w+(?=\()", described(name)):
                self.assertRegex(header, rf"\b{call}\(", name)

    def test_each_is_shown(self):
        pages = "".join(read(os.path.relpath(p, ROOT)) for p in glob.glob(os.path.join(ROOT, "docs", "*.md")))
        shown = set(re.findall(r"\]\(pictures/(\w+)\.svg\)", pages))
        self.assertEqual(shown, set(names()))


class Drawn(unittest.TestCase):
    def test_light_and_dark_and_nothing_fetched(self):
        for name in names():
            text = pictures.draw(described(name), pictures.read_file)
            root = ET.fromstring(text)
            self.assertEqual(re.findall(r"https?:[^\"]*", text), ["http://www.w3.org/2000/svg"], name)
            self.assertNotRegex(text, r"@import|@font-face|<script|<image")
            light, dark = root.find(SVG + "style").text.split("@media (prefers-color-scheme:dark)")
            for element in root.iter():
                for word in (element.get("class") or "").split():
                    self.assertRegex(light, rf"\.{word}\b")
                    if f".{word}" in pictures.COLOURS:
                        self.assertIn(f".{word}{{", dark)
            self.assertTrue(root.find(SVG + "title").text)

    def test_curve(self):
        """Column 0 goes to the right, the other one up; a dot is where that is not 0."""
        def drawn(kind):
            text = pictures.draw(f'size 100 100\ntitle "A"\ncurve 10 10 80 50 4 2 1 {kind} a.csv\n',
                                 {"a.csv": "# a comment\n0,0\n2,1\n4,2\n"}.get)
            return [row for row in text.splitlines() if f'class="{kind}"' in row]
        self.assertEqual(drawn("rate"), ['<polyline points="10,60 50,35 90,10" class="rate"/>'])
        self.assertEqual(drawn("dots"), ['<circle cx="50" cy="35" r="4.5" class="dots"/>',
                                         '<circle cx="90" cy="10" r="4.5" class="dots"/>'])

    def test_refused(self):
        for rows, why in (('box 0 0 60 20 part "far too long for this box"', "does not fit into a box of 60 x 20"),
                          ('text 80 10 left "beyond the edge"', "is wider than the picture"),
                          ('box 0 0 60 part "a"', "is nothing that can be drawn"),
                          ("line 0 0 5 5 curly", "is nothing that can be drawn"),
                          ("line 0 0 5 arrow", "is nothing that can be drawn"),
                          ('circle 5 5 "a"', "is nothing that can be drawn")):
            with self.assertRaisesRegex(pictures.Wrong, why):
                pictures.draw(f'size 100 100\ntitle "A"\n{rows}\n')
        with self.assertRaisesRegex(pictures.Wrong, "no size or no title"):
            pictures.draw("size 100 100\n")


if __name__ == "__main__":
    unittest.main()
