#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds one static site of all documents: pages in Markdown, manual pages, pictures, and the sources that they link to.

Usage: scripts/make_site.py [--out DIR]      builds DIR (build/site), DIR/html/index.html being its first page
       scripts/make_site.py --check FOLDER   looks at a folder of HTML alone

Sphinx makes it, with myst-parser and furo; mandoc renders the manual pages. Nothing that the pages need is fetched from
elsewhere, and they can be read from a disk. Then each link is looked at: a page, a picture or a heading that is not there,
or anything that would be fetched, is told, and the exit status is 1.
"""
import argparse
import os
import shutil
import subprocess
import sys

import site_check
import site_pages


def python_with_sphinx():
    """An interpreter that has what makes the site: this one, or else the system's."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run([python, "-c", "import furo, myst_parser, sphinx"], check=False,
                                                     stderr=subprocess.DEVNULL).returncode == 0:
            return python
    return None


def build(out):
    python = python_with_sphinx()
    if not python or not shutil.which("mandoc"):
        what = "mandoc" if python else "Sphinx with myst-parser and furo"
        print(f"make_site.py: {what} is missing: scripts/deps.sh site installs it", file=sys.stderr)
        return 77
    pages, html = os.path.join(out, "pages"), os.path.join(out, "html")
    for folder in (pages, html):
        shutil.rmtree(folder, ignore_errors=True)
    site_pages.stage(pages)
    command = [python, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", os.path.join(out, "trees"), pages, html]
    if subprocess.run(command, check=False).returncode:
        print("make_site.py: what Sphinx warns of is to be mended", file=sys.stderr)
        return 1
    join_scripts(html)
    return tell(html)


def join_scripts(html):
    """Debian's furo of 2022 loads a script that imports another one, as only a module may: with both in one it runs."""
    folder, line = os.path.join(html, "_static", "scripts"), 'import Gumshoe from "./gumshoe-patched.js";\n'
    with open(os.path.join(folder, "furo.js"), encoding="utf-8") as f:
        text = f.read()
    if text.startswith(line):
        with open(os.path.join(folder, "gumshoe-patched.js"), encoding="utf-8") as f:
            text = f.read() + text[len(line):]
        with open(os.path.join(folder, "furo.js"), "w", encoding="utf-8") as f:
            f.write(text)


def tell(html):
    wrong = list(site_check.wrong(html))
    for line in wrong:
        print(f"make_site.py: {line}", file=sys.stderr)
    if not wrong:
        print(f"make_site.py: {os.path.join(html, 'index.html')}, all links lead somewhere")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(site_pages.ROOT, "build", "site"))
    parser.add_argument("--check", metavar="FOLDER")
    args = parser.parse_args()
    return tell(args.check) if args.check else build(args.out)


if __name__ == "__main__":
    sys.exit(main())
