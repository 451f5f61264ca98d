#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/pictures/*.svg, each from the description beside it, NAME.txt. `make docs` runs it.

A description has one thing a line; texts are in double quotes, and "#" begins a comment:

  size W H                     of the picture
  title TEXT                   its name, a few words
  desc TEXT                    what it shows, for those who cannot see it
  box X Y W H KIND TEXT        a rectangle; "|" parts the lines of its text, of which "*" makes one bold. KIND:
                               host, engine, part, memory, good, bad: these have the text in their middle;
                               room: its text is at the top on the left
  line X Y X Y... KIND [TEXT]  from point to point. KIND: arrow, back (dashed arrow), axis (thin, no arrow), or as of
                               a curve; the text stands on the middle of the first leg
  text X Y KIND TEXT           KIND: left, middle, head, small
  note X Y TEXT                small text, in as many lines as that makes of it; "|" begins a new one, "||" also leaves
                               some room
  curve X Y W H XLOW XHIGH YLOW YHIGH COLUMN KIND FILE
                               numbers of a FILE beside it, rows of comma-separated columns: column 0, from XLOW to
                               XHIGH, goes to the right, the COLUMN from YLOW to YHIGH up; an axis that does not
                               begin at 0 is logarithmic. KIND: rate, second, third, limit (dashed): lines; dots (one
                               for each row that is not 0)
  ticks X Y W H LOW HIGH KIND TEXT
                               of such an axis: pairs VALUE=NAME, with a line across for each; NAME may be empty. KIND: right, up
  screen X Y W H SPEED FILE    a terminal: rows of seconds, a comma and a line, which appear when they did, SPEED times as
                               fast, again and again; all at once for those who want nothing to move

The pictures follow the reader's choice of light or dark, and use the fonts that are there. A text that is wider
than its box, or than the picture, or is below its end, is an error.
"""
import math
import os
import re
import shlex
import sys
import textwrap
from xml.sax.saxutils import escape

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "pictures")
LEADING = 18
WIDTH = 7.8  # of a letter in a wide font, on average; bold ones have a tenth more
SMALL = 0.93  # of that, in small text
MONO = 7.3  # of a letter in a font of equal widths
REST = 4  # seconds for which the last line of a screen stays
CURVES = ("rate", "second", "third", "limit")
KINDS = {"box": ("host", "engine", "part", "memory", "good", "bad", "room"), "ticks": ("right", "up"),
         "line": ("arrow", "back", "axis", *CURVES), "text": ("left", "middle", "head", "small"),
         "curve": (*CURVES, "dots")}
COUNTS = {"size": 2, "title": 0, "desc": 0, "box": 4, "text": 2, "note": 2, "curve": 9, "ticks": 6, "screen": 5}

# class -> (light, dark), of each property that depends on the two
COLOURS = {
    ".paper": {"fill": ("#ffffff", "#0d1117")},
    "text": {"fill": ("#1f2328", "#e6edf3")},
    ".small": {"fill": ("#59636e", "#9198a1")},
    ".host": {"fill": ("#f6f8fa", "#151b23"), "stroke": ("#818b98", "#656c76")},
    ".engine": {"fill": ("#ddf4ff", "#122d42"), "stroke": ("#0969da", "#4493f8")},
    ".part": {"fill": ("#ffffff", "#0d1117"), "stroke": ("#818b98", "#656c76")},
    ".memory": {"fill": ("#fff1d6", "#3a2b0a"), "stroke": ("#9a6700", "#d29922")},
    ".good": {"fill": ("#dafbe1", "#12301b"), "stroke": ("#1a7f37", "#3fb950")},
    ".bad": {"fill": ("#ffebe9", "#3c1618"), "stroke": ("#cf222e", "#f85149")},
    ".room": {"stroke": ("#818b98", "#656c76")},
    ".line": {"stroke": ("#1f2328", "#e6edf3")},
    ".tip": {"fill": ("#1f2328", "#e6edf3")},
    ".axis": {"stroke": ("#818b98", "#656c76")},
    ".rate": {"stroke": ("#0969da", "#4493f8")},
    ".second": {"stroke": ("#bc4c00", "#f0883e")},
    ".third": {"stroke": ("#1a7f37", "#3fb950")},
    ".limit": {"stroke": ("#59636e", "#9198a1")},
    ".dots": {"fill": ("#cf222e", "#f85149")},
    ".fine": {"fill": ("#1a7f37", "#3fb950")},
}
FIXED = """text{font:14px system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;text-anchor:middle}
.left{text-anchor:start}.head{font-size:15px;font-weight:600;text-anchor:start}.bold{font-weight:600}
.small{font-size:13px;text-anchor:start}
rect{stroke-width:1.3px}.line{fill:none;stroke-width:1.6px}.back{stroke-dasharray:5 4}
.room{fill:none;stroke-dasharray:5 4}.axis{stroke-width:1px}.rate,.second,.third,.limit{fill:none;stroke-width:2px}.limit{stroke-dasharray:6 4}
.tick{font-size:13px}.end{text-anchor:end}
.mono{font:12px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;text-anchor:start;white-space:pre}"""


class Wrong(Exception):
    """A description that cannot be drawn."""


def style():
    def rules(side):
        return "".join("%s{%s}" % (name, ";".join(f"{key}:{pair[side]}" for key, pair in of.items()))
                       for name, of in COLOURS.items())
    return f"<style>\n{FIXED}\n{rules(0)}\n@media (prefers-color-scheme:dark){{{rules(1)}}}\n</style>"


def words(x, y, classes, text):
    return f'<text x="{x:g}" y="{y:g}"{classes and f" class={chr(34)}{classes}{chr(34)}"}>{escape(text)}</text>'


def box(numbers, kind, text):
    x, y, w, h = numbers
    yield f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" class="{kind}"/>'
    lines = text.split("|") if text else []
    top = y + 20 if kind == "room" else y + h / 2 - LEADING * (len(lines) - 1) / 2 + 5
    for i, line in enumerate(lines):
        bold = line.startswith("*")
        line = line.lstrip("*")
        if len(line) * WIDTH * (1.1 if bold else 1) > w - 8 or len(lines) * LEADING > h:
            raise Wrong(f"'{line}' does not fit into a box of {w:g} x {h:g}")
        classes = " ".join(c for c in ("left" if kind == "room" else "", "bold" if bold else "") if c)
        yield words(x + 12 if kind == "room" else x + w / 2, top + i * LEADING, classes, line)


def fitting(text, x, kind, size):
    """The text, if it ends inside the picture."""
    end = x + len(text) * WIDTH * {"small": SMALL, "head": 1.15}.get(kind, 1) / (2 if kind == "middle" else 1)
    if not size or end > size[0]:
        raise Wrong(f"'{text}' is wider than the picture")
    return text


def note(numbers, text, size):
    x, y = numbers
    columns = int((size[0] - 2 * x) / WIDTH / SMALL)
    for line_ in (part for paragraph in text.split("|") for part in textwrap.wrap(paragraph, columns) or [""]):
        if y > size[1] - 8:
            raise Wrong(f"'{line_}' is below the picture: its height is to be {y + 8:g} at least")
        if line_:
            yield words(x, y, "small", line_)
        y += LEADING if line_ else LEADING / 2


def line(numbers, kind, text):
    points = list(zip(numbers[::2], numbers[1::2]))
    classes = {"arrow": "line", "back": "line back", "axis": "line axis"}.get(kind, kind)
    yield path(points, classes, ' marker-end="url(#tip)"' if kind in ("arrow", "back") else "")
    if text:
        (x1, y1), (x2, y2) = points[:2]
        wide, x, y = len(text) * WIDTH + 4, (x1 + x2) / 2, (y1 + y2) / 2
        yield f'<rect x="{x - wide / 2:g}" y="{y - 9:g}" width="{wide:g}" height="18" class="paper"/>'
        yield words(x, y + 5, "", text)


def path(points, classes, ends=""):
    return f'<polyline points="{" ".join(f"{x:g},{y:g}" for x, y in points)}" class="{classes}"{ends}/>'


def place(value, low, high, start, length):
    """Where a value lies on an axis, which begins at `start`."""
    if low > 0:
        value, low, high = (math.log(n) for n in (value, low, high))
    return round(start + length * (value - low) / (high - low), 1)


def curve(numbers, kind, data):
    x, y, w, h, x_low, x_high, y_low, y_high, column = numbers
    rows = [[float(n) for n in row.split(",")] for row in data.splitlines() if row and not row.startswith("#")]
    points = [(place(row[0], x_low, x_high, x, w), place(row[int(column)], y_low, y_high, y + h, -h)) for row in rows]
    if any(not x - 0.1 <= at <= x + w + 0.1 or not y - 0.1 <= up <= y + h + 0.1 for at, up in points):
        raise Wrong(f"a number of column {column:g} is beyond the axes")
    if kind != "dots":
        yield path(points, kind)
    for (at, up), row in zip(points, rows):
        if kind == "dots" and row[int(column)]:
            yield f'<circle cx="{at:g}" cy="{up:g}" r="4.5" class="dots"/>'


def ticks(numbers, kind, text):
    x, y, w, h, low, high = numbers
    for pair in text.split():
        value, name = pair.split("=")
        if kind == "right":
            at = place(float(value), low, high, x, w)
            yield path([(at, y), (at, y + h)], "axis") + (name and words(at, y + h + 19, "tick", name))
        else:
            at = place(float(value), low, high, y + h, -h)
            yield path([(x, at), (x + w, at)], "axis") + words(x - 8, at + 4, "tick end", name)


def screen(numbers, _, data):
    """The lines, and what makes each appear."""
    x, y, w, h, speed = numbers
    rows = [row.split(",", 1) for row in data.splitlines() if row and not row.startswith("#")]
    longest = max(len(text) for _, text in rows)
    if len(rows) * LEADING > h - 12 or longest * MONO > w - 24:
        raise Wrong(f"{len(rows)} lines of {longest} letters do not fit into a screen of {w:g} x {h:g}")
    lasts = float(rows[-1][0]) / speed + REST
    yield f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" class="host"/>'
    frames = []
    for i, (at, text) in enumerate(rows):
        share = 100 * float(at) / speed / lasts
        frames.append(f"@keyframes l{i}{{0%,{share:.2f}%{{opacity:0}}{share + 0.01:.2f}%,100%{{opacity:1}}}}"
                      f".l{i}{{animation:l{i} {lasts:.1f}s infinite}}")
        line_ = words(x + 12, y + 20 + i * LEADING, f"mono l{i}", text)
        yield re.sub(r"\b(ok|0 errors)(?=</text>|$)", r'<tspan class="fine">\1</tspan>', line_)
    yield "<style>@media (prefers-reduced-motion:no-preference){\n" + "\n".join(frames) + "}</style>"


def parse(number, row):
    """(word, numbers, kind, text) of a line of a description, or None."""
    parts = shlex.split(row, comments=True)
    if not parts:
        return None
    word, numbers = parts.pop(0), []
    while parts and parts[0].lstrip("-").replace(".", "", 1).isdigit():
        numbers.append(float(parts.pop(0)))
    kind = parts.pop(0) if word in KINDS and parts else ""
    want = COUNTS.get(word, max(4, len(numbers) & ~1))
    if word not in (*COUNTS, "line") or len(numbers) != want or kind not in KINDS.get(word, ("",)) or len(parts) > 1:
        raise Wrong(f"line {number}: '{row}' is nothing that can be drawn")
    return word, numbers, kind, parts[0] if parts else ""


def draw(description, read=None):
    """The picture, as the text of its file; read(name) gives the text of a file of numbers."""
    size, names, body = None, {"title": "", "desc": ""}, []
    for number, row in enumerate(description.splitlines(), 1):
        parsed = parse(number, row)
        if not parsed:
            continue
        word, numbers, kind, text = parsed
        if word == "size":
            size = numbers
        elif word in names:
            names[word] = escape(text)
        elif word == "note":
            body.extend(note(numbers, text, size))
        elif word == "text":
            body.append(words(*numbers, "" if kind == "middle" else kind, fitting(text, numbers[0], kind, size)))
        else:
            make = {"box": box, "line": line, "ticks": ticks, "curve": curve, "screen": screen}[word]
            body.extend(make(numbers, kind, read(text) if word in ("curve", "screen") else text))
    if not size or not all(names.values()):
        raise Wrong("no size, no title or no desc")
    w, h = (f"{n:g}" for n in size)
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" '
        'aria-labelledby="title" aria-describedby="desc">',
        *(f'<{name} id="{name}">{text}</{name}>' for name, text in names.items()), style(),
        '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0,0L10,5L0,10z" class="tip"/></marker>',
        f'<rect width="{w}" height="{h}" rx="8" class="paper"/>', *body, "</svg>", ""))


def read_file(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as f:
        return f.read()


def main():
    for name in sorted(os.listdir(FOLDER)):
        if not name.endswith(".txt"):
            continue
        try:
            picture = draw(read_file(name), read_file)
        except (Wrong, ValueError, OSError) as why:
            return f"pictures.py: {name}: {why}"
        with open(os.path.join(FOLDER, name[:-4] + ".svg"), "w", encoding="utf-8") as f:
            f.write(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
