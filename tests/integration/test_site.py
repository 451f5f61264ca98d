#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""make site: every document and manual page is there, can be searched and read on a phone, and no link is broken. A browser
looks at each page, narrow and wide, light and dark."""
import glob
import os
import re
import sys
import unittest

import te_proc as te


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


SCRIPT = os.path.join(te.SRC, "scripts", "make_site.py")
LOOK = os.path.join(te.SRC, "scripts", "site_look.py")
WIDE = "<div style='width: 2000px'>wide</div>"
PALE = "<p style='color: #777; background: #888'>pale</p><p style='color: #777; visibility: hidden'>hidden</p>"
LONG = "".join(f"<p style='overflow-x: {how}; white-space: nowrap'>{how} {'far ' * 400}</p>" for how in ("hidden", "auto"))
NO_PICTURE = "<img src='none.png'>"
NO_SCRIPT = "<script>none()</script>"
WINDOWS = [f"{window}, {look}" for window in ("narrow", "wide") for look in ("light", "dark")]


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        out = os.path.join(te.Workdir.get(), "site")
        cls.html = os.path.join(out, "html")
        cls.done = te.call(sys.executable, SCRIPT, "--out", out, timeout=20 * te.HANG_S)
        if cls.done.returncode == 77:
            te.skip(cls.done.stderr.strip())

    def test_site(self):
        self.assertEqual((self.done.returncode, self.done.stderr), (0, ""), self.done.stdout)
        index = read(self.html, "searchindex.js")
        for page in glob.glob(os.path.join(te.SRC, "docs", "*.md")):
            name = f"docs/{os.path.basename(page)[:-3]}"
            self.assertTrue('name="viewport"' in read(self.html, name + ".html"), name)
            self.assertTrue(f'"{name}"' in index, name)
        for page in glob.glob(os.path.join(te.SRC, "man", "man?", "*")):
            path = os.path.relpath(page, te.SRC)
            self.assertTrue("manual-text" in read(self.html, path + ".html"), path)
            self.assertTrue(f'"{path}"' in index, path)
        shown = {os.path.basename(path) for path in glob.glob(os.path.join(self.html, "_images", "*.svg"))}
        self.assertEqual(shown, {os.path.basename(p) for p in glob.glob(os.path.join(te.SRC, "docs", "pictures", "*.svg"))})
        self.assertTrue('"deadlin": [' in index, "the search knows no words")  # as it reduces them

    def test_a_page_is_gone(self):
        """The same check says so."""
        there, away = os.path.join(self.html, "docs", "rdma.html"), os.path.join(te.Workdir.get(), "rdma.html")
        os.rename(there, away)
        done = te.call(sys.executable, SCRIPT, "--check", self.html)
        os.rename(away, there)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, re.compile(r"^make_site.py: index.html: 'docs/rdma.html' is not there$", re.M))

    def test_in_a_browser(self):
        done = te.call(sys.executable, LOOK, self.html, timeout=20 * te.HANG_S)
        if done.returncode == 77:
            te.skip(done.stderr.strip())
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def test_a_browser_sees_what_is_wrong(self):
        folder = os.path.join(te.Workdir.get(), "wrong")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "a.html"), "w", encoding="utf-8") as f:
            f.write("<!doctype html><meta name='viewport' content='width=device-width'>" + WIDE + PALE + LONG + NO_PICTURE +
                    NO_SCRIPT)
        done = te.call(sys.executable, LOOK, folder, timeout=te.HANG_S)
        if done.returncode == 77:
            te.skip(done.stderr.strip())
        seen = re.sub(r" (\d+) pixels", " N pixels", done.stderr).splitlines()
        self.assertEqual(seen[0], "site_look.py: a.html: ReferenceError: none is not defined", done.stderr)
        self.assertEqual(seen[1:], [f"site_look.py: a.html, {shown}: {what}" for shown in WINDOWS for what in
                                    ("is N pixels wide", "does not show none.png", "has p of contrast 1.26",
                                     f'cuts off "hidden{" far" * 13} f"')], done.stderr)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    te.main()
