# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a folder of HTML: links that lead nowhere, and what would be fetched from elsewhere."""
import functools
import glob
import os
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page names, and what it refers to: (attribute, target)."""

    def __init__(self, path):
        super().__init__()
        self.names, self.targets = set(), []
        with open(path, encoding="utf-8") as f:
            self.feed(f.read())

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key == "id" or (key == "name" and tag == "a"):
                self.names.add(value)
            elif key in ("href", "src", "srcset", "data", "poster") and value:
                self.targets.append((tag, value))


@functools.lru_cache(maxsize=None)
def parsed(path):
    return Page(path)


def judge(folder, path, tag, target):
    """What is wrong with a reference, or None."""
    url = urlsplit(target)
    if url.scheme or url.netloc:
        fetched = tag not in ("a",) and url.scheme != "data"
        return f"'{target}' would be fetched from elsewhere" if fetched else None
    file = os.path.normpath(os.path.join(os.path.dirname(path), unquote(url.path))) if url.path else path
    if os.path.relpath(file, folder).startswith(".."):
        return f"'{target}' leads out of the site"
    if not os.path.isfile(file):
        return f"'{target}' is not there"
    if url.fragment and file.endswith(".html") and unquote(url.fragment) not in parsed(file).names:
        return f"'{target}': the page has no '{url.fragment}'"
    return None


def wrong(folder):
    """What is wrong with the site, a line each."""
    pages = sorted(glob.glob(os.path.join(folder, "**", "*.html"), recursive=True))
    if not pages:
        yield f"{folder}: there is no page"
    for path in pages:
        for tag, target in parsed(path).targets:
            why = judge(folder, path, tag, target)
            if why:
                yield f"{os.path.relpath(path, folder)}: {why}"
    for path in glob.glob(os.path.join(folder, "**", "*.css"), recursive=True):
        with open(path, encoding="utf-8") as f:
            for url in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^)\"';]+)", f.read()):
                yield f"{os.path.relpath(path, folder)}: '{url}' would be fetched from elsewhere"
