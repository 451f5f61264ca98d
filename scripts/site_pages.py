# SPDX-License-Identifier: Apache-2.0
"""The pages of make site, laid out for Sphinx: those in Markdown, manual pages, pictures, and sources that are linked to."""
import glob
import os
import re
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COLOURED = {"c", "cpp", "python", "sh", "bash", "rust", "go", "json", "yaml", "ini", "toml", "cmake", "make", "diff", "text"}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
LANGUAGES = {".c": "c", ".h": "c", ".cc": "cpp", ".hpp": "cpp", ".py": "python", ".sh": "bash", ".rs": "rust", ".go": "go"}
FIRST = ("Begin", ("This page <self>", "All documents <docs/index>", "examples/README", "te.h, the interface <include/te.h>",
                   "man/README", "CHANGELOG"))
LAST = ("Other languages", ("Python <bindings/python/README>", "Mooncake's package <bindings/python/shim/README>",
                            "Connector for vLLM <bindings/connectors/vllm/README>",
                            "Backend for SGLang <bindings/connectors/sglang/README>",
                            "C++ <bindings/cpp/README>", "Rust <bindings/rust/README>", "Go <bindings/go/README>"))
CONF = """project = "Transfer Engine"
html_title = "Transfer Engine"
extensions = ["myst_parser"]
html_theme = "furo"
pygments_style, pygments_dark_style = "xcode", "github-dark"
html_show_sphinx = html_show_sourcelink = html_copy_source = False
html_use_index = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"top_of_page_button": None}
myst_heading_anchors = 6
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
"""
# Dark, as the pictures are, where the reader wants that.
CSS = """html { text-size-adjust: 100%; }
body { margin: 0; }
img { border-radius: 8px; }
@media (max-width: 46em) { p:has(> img) { overflow-x: auto; } p > img[src*="demo"], p > img[src*="topology"] { max-width: none; } }
.highlight { border: 1px solid var(--color-background-border); border-radius: 4px; }
.theme-toggle-container { display: none; }
table.docutils th, table.docutils td { text-align: left; vertical-align: top; }
table.docutils td:first-child code { white-space: nowrap; }
article { overflow-wrap: break-word; }
@media (max-width: 46em) { table.docutils { font-size: 85%; } table.docutils td, table.docutils th { padding: 0.2em 0.4em; } }
@media (max-width: 46em) { table.docutils td:first-child { min-width: 10.5em; }
  table.docutils td:first-child code { white-space: normal; overflow-wrap: anywhere; } }
.manual-text pre { overflow-x: auto; font-size: 85%; }
.manual-text dd { margin: 0 0 0.7em 2em; }
.manual-text :is(h1, h2).Sh { font-size: 1.4em; }
.manual-text a.permalink { color: inherit; text-decoration: none; }
h1 { font-size: 2.2em; } h2 { font-size: 1.7em; } h3 { font-size: 1.3em; }
@media (max-width: 46em) { h1 { font-size: 1.7em; } h2 { font-size: 1.4em; } h3 { font-size: 1.2em; } }
@media (prefers-color-scheme: dark) {
  body { color-scheme: dark; --color-foreground-primary: #e6edf3; --color-foreground-secondary: #9198a1;
    --color-foreground-muted: #9198a1; --color-foreground-border: #656c76; --color-background-primary: #0d1117;
    --color-background-secondary: #151b23; --color-background-hover: #1f2630; --color-background-hover--transparent: #1f263000;
    --color-background-border: #3d444d; --color-background-item: #3d444d; --color-brand-primary: #4493f8;
    --color-brand-content: #4493f8; --color-highlighted-background: #3a2b0a; --color-highlight-on-target: #3a2b0a;
    --color-inline-code-background: #151b23; --color-problematic: #f85149; }
}
"""


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return f.read()


def write(name, text):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "w", encoding="utf-8") as f:
        f.write(text)


def tracked(pattern):
    done = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", pattern], stdout=subprocess.PIPE,
                          text=True, check=True)
    return [name for name in done.stdout.split("\n") if name and os.path.exists(os.path.join(ROOT, name))]


def page_of(path):
    """The page of the site on which a file or folder of the tree is."""
    if path.endswith((".md", ".svg")):
        return "index.md" if path == "README.md" else path
    if re.fullmatch(r"man/man\d/.*\.\d", path):
        return path + ".rst"
    return path + ("/README.md" if os.path.isdir(os.path.join(ROOT, path)) else ".md")


def links_of(name, text):
    """The paths to which a page links; those of files that are not there are left to the check."""
    for target, _ in LINK.findall(text):
        path = os.path.normpath(os.path.join(os.path.dirname(name), target))
        if os.path.exists(os.path.join(ROOT, path)):
            yield path


def with_links(name, text):
    """The text, with links to where its targets are on the site."""
    def there(match):
        path = os.path.normpath(os.path.join(os.path.dirname(name), match.group(1)))
        return os.path.relpath(page_of(path), os.path.dirname(name) or ".") + (match.group(2) or "")
    return LINK.sub(there, text)


def with_languages(text):
    """The text, whose blocks of code in languages that the site does not know are plain; not to know one is no fault."""
    def plain(match):
        return match.group(0) if match.group(2) in COLOURED or match.group(2).startswith("{") else match.group(1) + "text"
    return re.sub(r"^( *```)([\w{}]+)$", plain, text, flags=re.M)


def source_page(path):
    """A file as a page, or the names that a folder has."""
    full = os.path.join(ROOT, path)
    if os.path.isdir(full):
        return f"# {path}/\n\n" + "".join(f"- `{name}`\n" for name in sorted(os.listdir(full)))
    return f"# {path}\n\n`````{LANGUAGES.get(os.path.splitext(path)[1], 'text')}\n{read(path).rstrip()}\n`````\n"


def menu():
    """The sections of docs/index.md, and what goes with them."""
    sections = []
    for title, page in re.findall(r"^\| (?:\*\*(.+?)\*\*|\[\S+\]\((\S+?)\)) \|", read("docs/index.md"), re.M):
        if title:
            sections.append((title, []))
        else:
            sections[-1][1].append(os.path.splitext(os.path.normpath(os.path.join("docs", page)))[0])
    for caption, pages in (FIRST, *sections, LAST):
        yield f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"


def stage_man(folder):
    """Each manual page, and one that lists them all."""
    pages = {os.path.basename(path): path for path in tracked("man/man*")}
    rows = {}

    def linked(match):
        name = f"{match.group(1)}.{match.group(2)}"
        return f'<a href="../man{match.group(2)}/{name}.html">{match.group(0)}</a>' if name in pages else match.group(0)

    for name, path in sorted(pages.items()):
        done = subprocess.run(["mandoc", "-T", "html", "-O", "fragment", path], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                              check=True)
        body = re.sub(r"<b>([\w]+)</b>\((\d)\)", linked, done.stdout)
        body = re.sub(r'(?s)<table class="(head|foot)">.*?</table>', "", body)
        title, section = name.rsplit(".", 1)
        also, what = re.search(r"^\.SH NAME\n(.*) \\- (.*)$", read(path), re.M).groups()
        rows.setdefault(section, []).append(f"| [{title}]({path[4:]}.rst) | {what} |\n")
        title = f"{title}({section})"
        indented = "".join(f"   {line}\n" for line in body.splitlines())
        write(os.path.join(folder, path + ".rst"),
              f":orphan:\n\n{title}\n{'=' * len(title)}\n\n.. meta::\n   :keywords: {also}\n\n.. raw:: html\n\n{indented}")
    names = {"1": "Commands", "3": "Functions", "5": "Files and variables", "7": "Overviews"}
    write(os.path.join(folder, "man", "README.md"), "# Manual pages\n" + "".join(
        f"\n## {names[section]}\n\n| Page | Tells |\n|---|---|\n{''.join(of)}" for section, of in sorted(rows.items())))


def stage(folder):
    """All pages, with what they link to, in a folder laid out as the tree."""
    pages, sources = tracked("*.md"), set()
    for name in pages:
        text = read(name)
        sources |= {path for path in links_of(name, text) if not page_of(path).endswith((".svg", ".rst"))} - set(pages)
        if name == "README.md":
            text += "".join(menu())
        elif not re.search(rf"[\n<]{re.escape(name[:-3])}[\n>]", "".join(menu())):
            text = "---\norphan: true\n---\n" + text
        write(os.path.join(folder, page_of(name)), with_languages(with_links(name, text)))
    for path in sources:
        orphan = "" if path == "include/te.h" else "---\norphan: true\n---\n"
        write(os.path.join(folder, page_of(path)), orphan + source_page(path))
    for picture in glob.glob(os.path.join(ROOT, "docs", "pictures", "*.svg")):
        os.makedirs(os.path.join(folder, "docs", "pictures"), exist_ok=True)
        shutil.copy(picture, os.path.join(folder, "docs", "pictures"))
    stage_man(folder)
    write(os.path.join(folder, "static", "site.css"), CSS)
    write(os.path.join(folder, "conf.py"), CONF)
