#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at each page of a folder of HTML in headless Chromium: narrow as a phone and wide, in light and in dark.

Usage: scripts/site_look.py [--shots DIR] FOLDER

A page that is wider than the window, text that ends beyond it where nothing scrolls, text that stands out too little
from what is behind it, a picture that is not shown, and an error of a script are told, a line each, and the exit status is 1. Without Chromium it is 77. --shots
keeps what was seen of each page as PNG files.
"""
import argparse
import base64
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

WINDOWS = {"narrow": (360, 740), "wide": (1440, 900)}
LOOKS = ("light", "dark")
CONTRAST = 4.5  # of WCAG 2.1, 1.4.3, for text of usual size; 3 for large text
PATIENCE_S = 300  # for the browser to end

# What is wrong with the page as it is shown: an array of sentences. Backgrounds are those of the nearest element that has
# one; colours are blended over them.
JUDGE = """
(() => {
    const wrong = [], said = new Set();
    const tell = text => { if (!said.has(text)) { said.add(text); wrong.push(text); } };
    const rgba = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
    const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3]));
    const behind = e => {
        if (!e) return [255, 255, 255];
        const c = rgba(getComputedStyle(e).backgroundColor);
        return c[3] === 1 ? c.slice(0, 3) : over(c, behind(e.parentElement));
    };
    const light = c => c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    // What the heading is in is the page.
    const scrolls = e => e && !e.querySelector("h1") && (/auto|scroll/.test(getComputedStyle(e).overflowX) ||
                                                         getComputedStyle(e).position === "fixed" || scrolls(e.parentElement));
    const ends = text => {  // on the right; what is for screen readers alone is a pixel wide
        const range = document.createRange();
        range.selectNodeContents(text);
        return text.parentElement.offsetWidth === 1 ? 0 : range.getBoundingClientRect().right;
    };
    const width = document.documentElement.scrollWidth;
    if (width > window.innerWidth) tell(`is ${width} pixels wide`);
    for (const image of document.images)
        if (image.checkVisibility() && !(image.complete && image.naturalWidth))
            tell(`does not show ${image.getAttribute("src")}`);
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const text = texts.currentNode.data.trim(), e = texts.currentNode.parentElement;
        if (!text || !e.checkVisibility({opacityProperty: true, visibilityProperty: true}) || e.closest("svg, [aria-hidden]"))
            continue;
        if (ends(texts.currentNode) > window.innerWidth + 1 && !scrolls(e)) tell(`cuts off "${text.slice(0, 60)}"`);
        const style = getComputedStyle(e), under = behind(e), ours = light(over(rgba(style.color), under));
        const theirs = light(under), size = parseFloat(style.fontSize);
        const ratio = (Math.max(ours, theirs) + 0.05) / (Math.min(ours, theirs) + 0.05);
        const large = size >= 24 || (size >= 18.5 && style.fontWeight >= 700);
        if (ratio < (large ? 3 : LEAST))
            tell(`has ${e.tagName.toLowerCase()}${e.className ? "." + e.className : ""} of contrast ${ratio.toFixed(2)}`);
    }
    return wrong;
})()
""".replace("LEAST", str(CONTRAST))


class Browser:
    """Chromium, spoken to over a pair of pipes: JSON with a NUL behind (Chrome DevTools Protocol)."""

    def __init__(self, program, home):
        to, self.out = os.pipe()
        self.inside, back = os.pipe()
        words = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", f"--user-data-dir={home}", "--hide-scrollbars",
                 "--allow-file-access-from-files", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND"]
        if os.geteuid() == 0:
            words.append("--no-sandbox")
        with open(os.path.join(home, "log"), "wb") as log:
            self.process = subprocess.Popen(  # pylint: disable=consider-using-with
                ["bash", "-c", f'exec "$0" "$@" 3<&{to} 4>&{back}', program, *words, "about:blank"], pass_fds=(to, back),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        os.close(to)
        os.close(back)
        self.buffer, self.number, self.session, self.events = b"", 0, None, []

    def message(self):
        while b"\0" not in self.buffer:
            piece = os.read(self.inside, 1 << 20)
            if not piece:
                raise OSError("the browser has ended")
            self.buffer += piece
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        """The answer; events that come meanwhile are kept."""
        self.number += 1
        call = {"id": self.number, "method": method, "params": params}
        if self.session:
            call["sessionId"] = self.session
        os.write(self.out, json.dumps(call).encode() + b"\0")
        while (answer := self.message()).get("id") != self.number:
            self.events.append(answer)
        if "error" in answer:
            raise OSError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            self.call(f"{domain}.enable")

    def load(self, path):
        """Errors of its scripts, once the page is there."""
        self.events.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.message())
        self.call("Runtime.evaluate", expression="document.fonts.ready", awaitPromise=True)
        return [e["params"]["exceptionDetails"]["exception"].get("description", "a script failed").splitlines()[0]
                for e in self.events if e.get("method") == "Runtime.exceptionThrown"]

    def show(self, window, look):
        width, height = WINDOWS[window]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=window == "narrow")
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": look},
                                                          {"name": "prefers-reduced-motion", "value": "reduce"}])

    def wrong(self):
        answer = self.call("Runtime.evaluate", expression=JUDGE, returnByValue=True)
        if "exceptionDetails" in answer:
            raise OSError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"]["value"]

    def shot(self, path):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=False)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def close(self):
        os.close(self.out)
        os.close(self.inside)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def look(browser, folder, shots):
    """What is wrong, a line each."""
    pages = sorted(glob.glob(os.path.join(folder, "**", "*.html"), recursive=True))
    for path in pages:
        name = os.path.relpath(path, folder)
        browser.show("narrow", "light")
        for error in browser.load(path):
            yield f"{name}: {error}"
        for window in WINDOWS:
            for colours in LOOKS:
                browser.show(window, colours)
                for why in browser.wrong():
                    yield f"{name}, {window}, {colours}: {why}"
                if shots:
                    browser.shot(os.path.join(shots, f"{name.replace('/', '-')[:-5]}-{window}-{colours}.png"))
    if not pages:
        yield f"{folder}: there is no page"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shots", metavar="DIR")
    parser.add_argument("folder", metavar="FOLDER")
    args = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        print("site_look.py: Chromium is missing: scripts/deps.sh site installs it", file=sys.stderr)
        return 77
    if args.shots:
        os.makedirs(args.shots, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="te-look-", ignore_cleanup_errors=True) as home:
        browser = Browser(program, home)
        try:
            browser.open()
            wrong = list(look(browser, args.folder, args.shots))
        finally:
            browser.close()
    for line in wrong:
        print(f"site_look.py: {line}", file=sys.stderr)
    if not wrong:
        print(f"site_look.py: all pages of {args.folder} can be read, narrow and wide, light and dark")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
