#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""make site: every document and manual page is there, can be searched and read on a phone, and no link is broken."""
import glob
import os
import re
import sys
import unittest

import te_proc as te


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


class Site(unittest.TestCase):
    def test_site(self):
        out = os.path.join(te.Workdir.get(), "site")
        script = os.path.join(te.SRC, "scripts", "make_site.py")
        done = te.call(sys.executable, script, "--out", out, timeout=20 * te.HANG_S)
        if done.returncode == 77:
            te.skip(done.stderr.strip())
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        html = os.path.join(out, "html")
        index = read(html, "searchindex.js")
        for page in glob.glob(os.path.join(te.SRC, "docs", "*.md")):
            name = f"docs/{os.path.basename(page)[:-3]}"
            self.assertTrue('name="viewport"' in read(html, name + ".html"), name)
            self.assertTrue(f'"{name}"' in index, name)
        for page in glob.glob(os.path.join(te.SRC, "man", "man?", "*")):
            path = os.path.relpath(page, te.SRC)
            self.assertTrue("manual-text" in read(html, path + ".html"), path)
            self.assertTrue(f'"{path}"' in index, path)
        shown = {os.path.basename(path) for path in glob.glob(os.path.join(html, "_images", "*.svg"))}
        self.assertEqual(shown, {os.path.basename(p) for p in glob.glob(os.path.join(te.SRC, "docs", "pictures", "*.svg"))})
        self.assertTrue('"deadlin": [' in index, "the search knows no words")  # as it reduces them
        self.broken(script, html)

    def broken(self, script, html):
        """The same check says so of a page that is gone."""
        os.rename(os.path.join(html, "docs", "rdma.html"), os.path.join(html, "docs", "gone.html"))
        done = te.call(sys.executable, script, "--check", html)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, re.compile(r"^make_site.py: index.html: 'docs/rdma.html' is not there$", re.M))


if __name__ == "__main__":
    te.main()
