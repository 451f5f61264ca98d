#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/site.py: a link that leads nowhere is told, whatever it is, and pages are where links look for them."""
import os
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import site_check as check  # noqa: E402
import site_pages as pages  # noqa: E402


class Links(unittest.TestCase):
    def told(self, body, **files):
        """What is wrong with a.html, which has that body, beside b.html with the heading #there."""
        with tempfile.TemporaryDirectory(prefix="te-site-") as root:
            folder = os.path.join(root, "html")
            os.mkdir(folder)
            for name, text in {"a.html": body, "b.html": '<h1 id="there">B</h1>', **files}.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                    f.write(text)
            with open(os.path.join(root, "outside.html"), "w", encoding="utf-8") as f:
                f.write("")
            return list(check.wrong(folder))

    def test_what_is_there(self):
        self.assertEqual(self.told('<a href="b.html#there">b</a><a href="#x">x</a><i id="x"></i><img src="data:image/png,">'
                                   '<a href="https://example.org/">elsewhere</a><link href="b.html?v=1">'), [])

    def test_what_is_not(self):
        for body, why in (('<a href="c.html">c</a>', "'c.html' is not there"),
                          ('<a href="b.html#gone">b</a>', "'b.html#gone': the page has no 'gone'"),
                          ('<a href="#gone">here</a>', "'#gone': the page has no 'gone'"),
                          ('<img src="p.svg">', "'p.svg' is not there"),
                          ('<a href="../outside.html">o</a>', "'../outside.html' leads out of the site"),
                          ('<script src="https://example.org/a.js"></script>', "would be fetched from elsewhere"),
                          ('<link href="//example.org/font.css">', "would be fetched from elsewhere")):
            (line,) = self.told(body)
            self.assertTrue(line.startswith("a.html: "), line)
            self.assertIn(why, line)

    def test_styles(self):
        (line,) = self.told("", **{"s.css": "@import url('https://example.org/f.css'); a{background:url(x.png)}"})
        self.assertEqual(line, "s.css: 'https://example.org/f.css' would be fetched from elsewhere")

    def test_no_page(self):
        with tempfile.TemporaryDirectory(prefix="te-site-") as folder:
            self.assertEqual(list(check.wrong(folder)), [f"{folder}: there is no page"])


class Pages(unittest.TestCase):
    def test_links_are_led_there(self):
        text = ("[a](../README.md#try-it) [b](rdma.md) [c](../include/te.h) [d](../tools) [e](#here) [f](https://x.org/a.md) "
                "![p](pictures/hosts.svg) [m](../man/man1/te_metad.1)")
        self.assertEqual(pages.with_links("docs/gpu.md", text),
                         "[a](../index.md#try-it) [b](rdma.md) [c](../include/te.h.md) [d](../tools/README.md) [e](#here) "
                         "[f](https://x.org/a.md) ![p](pictures/hosts.svg) [m](../man/man1/te_metad.1.rst)")

    def test_languages(self):
        """Those that the site cannot colour are plain, and its own blocks stay."""
        self.assertEqual(pages.with_languages("```sh\na\n```\n ```bpftrace\nb\n ```\n```{toctree}\n```\n"),
                         "```sh\na\n```\n ```text\nb\n ```\n```{toctree}\n```\n")

    def test_every_page_of_the_index_is_in_the_menu(self):
        menu = "".join(pages.menu())
        for name in os.listdir(os.path.join(ROOT, "docs")):
            if name.endswith(".md"):
                self.assertIn(f"docs/{name[:-3]}", menu)
        self.assertIn("\n:caption: For operators\n", menu)


if __name__ == "__main__":
    unittest.main()
