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
NAMED = 'title "A"\ndesc "all"\n'


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
        bold = "".join(re.findall(r'good "((?:\*[^|]+\|)+)', described("paths")))
        drawn = re.findall(r"\w+", bold)
        self.assertEqual(sorted(drawn), sorted(listed))
        below = re.search(r'"\*transport/\*/\|([^"]+)"', described("layers")).group(1)
        self.assertEqual(sorted(re.findall(r"\w+", below)), sorted(listed))

    def test_layers_are_those_of_lint(self):
        """But for archive, which nothing includes and which includes nothing."""
        drawn = {name for name in re.findall(r'"\*?(?:src/)?([\w/*]+)/', described("layers")) if name in lint.LAYERS}
        self.assertEqual(drawn | {"transport", "archive"}, set(lint.LAYERS))

    def test_calls_are_in_the_interface(self):
        declared = "".join(read(os.path.relpath(path, ROOT)) for path in glob.glob(os.path.join(ROOT, "include", "te*.h")))
        for name in names():
            for call in re.findall(r"\bte_\w+(?=\()", described(name)):
                self.assertIn(f" {call}(", declared, name)

    def test_each_is_shown(self):
        pages = "".join(read(os.path.relpath(p, ROOT)) for p in glob.glob(os.path.join(ROOT, "docs", "*.md")))
        shown = set(re.findall(r"\]\((?:docs/)?pictures/(\w+)\.svg\)", pages + read("README.md")))
        self.assertEqual(shown, {*names(), "topology"})  # which te_info draws


class Drawn(unittest.TestCase):
    def test_light_and_dark_and_nothing_fetched(self):
        for name in names():
            text = pictures.draw(described(name), pictures.read_file)
            root = ET.fromstring(text)
            self.assertEqual(re.findall(r"https?:[^\"]*", text), ["http://www.w3.org/2000/svg"], name)
            self.assertNotRegex(text, r"@import|@font-face|<script|<image")
            light, dark = root.find(SVG + "style").text.split("@media (prefers-color-scheme:dark)")
            every = "".join(style.text for style in root.iter(SVG + "style"))
            for element in root.iter():
                for word in (element.get("class") or "").split():
                    self.assertRegex(every, rf"\.{word}\b")
                    if f".{word}" in pictures.COLOURS:
                        self.assertIn(f".{word}{{", dark)
            named = [root.find(f"{SVG}{word}[@id='{root.get(by)}']").text for word, by in
                     (("title", "aria-labelledby"), ("desc", "aria-describedby"))]
            self.assertTrue(0 < len(named[0]) < 60 < len(named[1]), name)
            self.assertLessEqual(float(root.get("width")), 480 if name != "demo" else 770, "is small on a phone")

    def test_curve(self):
        """Column 0 goes to the right, the other one up; a dot is where that is not 0."""
        def drawn(kind, axes="0 4 0 2"):
            return self.drawn(f"curve 10 10 80 50 {axes} 1 {kind} a.csv", kind)
        self.assertEqual(drawn("rate"), ['<polyline points="10,60 50,35 90,10" class="rate"/>'])
        self.assertEqual(drawn("dots"), ['<circle cx="50" cy="35" r="4.5" class="dots"/>',
                                         '<circle cx="90" cy="10" r="4.5" class="dots"/>'])
        for axes in ("0 3 0 2", "0 4 0 1"):
            with self.assertRaisesRegex(pictures.Wrong, "a number of column 1 is beyond the axes"):
                drawn("rate", axes)

    def drawn(self, row, kind, data="# a comment\n0,0\n2,1\n4,2\n"):
        """The lines of the picture with that in it."""
        text = pictures.draw(f"size 300 100\n{NAMED}{row}\n", {"a.csv": data}.get)
        return [line for line in text.splitlines() if re.search(rf'class="[^"]*\b{kind}\b', line)]

    def test_logarithmic(self):
        """Each factor of ten is as wide, and ticks lie where the curve has such a number."""
        (curve,) = self.drawn("curve 0 0 300 100 1 1000 0 2 1 second a.csv", "second", "1,0\n10,1\n1000,2\n")
        self.assertEqual(curve, '<polyline points="0,100 100,50 300,0" class="second"/>')
        right = self.drawn('ticks 0 0 300 80 1 1000 right "10=ten 1000=all"', "axis")
        self.assertEqual(right, ['<polyline points="100,0 100,80" class="axis"/><text x="100" y="99" class="tick">ten</text>',
                                 '<polyline points="300,0 300,80" class="axis"/><text x="300" y="99" class="tick">all'
                                 '</text>'])
        (up,) = self.drawn('ticks 50 0 200 80 0 4 up "1=one"', "axis")
        self.assertEqual(up, '<polyline points="50,60 250,60" class="axis"/><text x="42" y="64" class="tick end">one</text>')

    def test_note(self):
        """Small text is cut where the picture ends, and where a bar says; two leave room."""
        lines = self.drawn('note 10 20 "that is more than will go into one line of it|and||more"', "small")
        self.assertEqual(lines, ['<text x="10" y="20" class="small">that is more than will go into one</text>',
                                 '<text x="10" y="38" class="small">line of it</text>',
                                 '<text x="10" y="56" class="small">and</text>',
                                 '<text x="10" y="83" class="small">more</text>'])

    def test_label(self):
        """What stands on a line is on paper, so the line does not run through it."""
        lines = self.drawn('line 0 50 100 50 arrow "yes"', "paper")
        self.assertEqual(lines[1:], ['<rect x="36.3" y="41" width="27.4" height="18" class="paper"/>'])

    def test_screen(self):
        """A line appears when it did, twice as fast; what went well is seen."""
        lines = self.drawn("screen 0 0 300 100 2 a.csv", "mono", "0.00,$ a & b\n4.00,all is  ok\n")
        self.assertEqual(lines, ['<text x="12" y="20" class="mono l0">$ a &amp; b</text>',
                                 '<text x="12" y="38" class="mono l1">all is  <tspan class="fine">ok</tspan></text>'])
        text = pictures.draw(f"size 300 100\n{NAMED}screen 0 0 300 100 2 a.csv\n", {"a.csv": "0,a\n4,b\n"}.get)
        self.assertIn("@media (prefers-reduced-motion:no-preference)", text)
        self.assertIn("@keyframes l1{0%,33.33%{opacity:0}33.34%,100%{opacity:1}}.l1{animation:l1 6.0s infinite}", text)
        for data in ("0,a\n" * 5, "0," + "a" * 40):
            with self.assertRaisesRegex(pictures.Wrong, "fit into a screen of 300 x 100"):
                self.drawn("screen 0 0 300 100 2 a.csv", "mono", data)

    def test_refused(self):
        for rows, why in (('box 0 0 60 20 part "far too long for this box"', "does not fit into a box of 60 x 20"),
                          ('text 80 10 left "beyond the edge"', "is wider than the picture"),
                          ('note 10 80 "all|below|the end"', "'below' is below the picture: its height is to be 106"),
                          ('box 0 0 60 part "a"', "is nothing that can be drawn"),
                          ("line 0 0 5 5 curly", "is nothing that can be drawn"),
                          ("line 0 0 5 arrow", "is nothing that can be drawn"),
                          ('circle 5 5 "a"', "is nothing that can be drawn")):
            with self.assertRaisesRegex(pictures.Wrong, why):
                pictures.draw(f"size 100 100\n{NAMED}{rows}\n")
        for rows in (NAMED, 'size 100 100\ntitle "A"\n', 'size 100 100\ndesc "all"\n'):
            with self.assertRaisesRegex(pictures.Wrong, "no size, no title or no desc"):
                pictures.draw(rows)


if __name__ == "__main__":
    unittest.main()
