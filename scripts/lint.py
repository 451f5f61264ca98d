#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the house that a compiler does not: format, layers, sizes, names.

Each finding is one line: file:line: rule: what is wrong and what to do. Exit 1 when there is any.
The layers are those of docs/design.md. A rule is a function of the tree; RULES at the end lists them.
"""
import argparse
import bisect
import email.utils
import os
import re
import shutil
import statistics
import subprocess
import sys

import pictures

MAX_FUNCTION = 80
MAX_FILE = 900
MAX_HEADER = 150
# Headers of src/ that are longer still, and how long they may be, so that none grows much. transport.h is the contract, read as a page.
KNOWN_HEADERS = {
    "src/auth/auth.h": 180,
    "src/base/loop.h": 180,
    "src/base/queue.h": 180,
    "src/conf/conf.h": 240,
    "src/core/metrics.h": 200,
    "src/meta/meta.h": 380,
    "src/model/model.h": 320,
    "src/plat/cuda.h": 200,
    "src/plat/gpu.h": 260,
    "src/plat/gpu_row.h": 220,
    "src/plat/hip.h": 180,
    "src/plat/plat.h": 280,
    "src/transport/gpuipc/gpuipc.h": 280,
    "src/transport/host/host.h": 300,
    "src/transport/ledger.h": 180,
    "src/transport/rdma/rdma.h": 560,
    "src/transport/tcp/tcp.h": 200,
    "src/transport/tcp/tcp_wire.h": 220,
    "src/transport/transport.h": 450,
}
MAX_CIRCLE = 4
# Files that still call each other in larger circles, by how their names begin.
KNOWN_CIRCLES = ("tcp", "rdma")
LONG_FUNCTION = 40
PUBLIC_HEADERS = ("te.h", "te_counter.h", "te_lease.h", "te_paths.h", "te_stream.h", "transfer_engine_c.h", "transfer_engine.h", "transfer_engine.hpp")

# What each folder of src/ may include from other folders. "transport/*" stands for one transport.
LAYERS = {
    "base": (),
    "conf": ("base",),
    "model": ("base",),
    "rail": ("base",),
    "auth": ("base", "conf"),
    "plat": ("base", "conf", "model"),
    "meta": ("base", "conf", "model", "auth"),
    "transport": ("base", "conf", "model", "plat"),
    "transport/*": ("base", "conf", "model", "plat", "rail", "auth", "transport"),
    "core": ("base", "conf", "model", "plat", "meta", "auth", "transport"),
    "compat": ("base", "model"),
    "archive": (),
}
# Folders of pure code: no clock, no device, no thread. All that they may include of the system and of the library.
PURE = {
    "rail": ("rail/", "base/base.h", "base/err.h", "std", "string.h"),
}
# Headers besides the one named after their folder that others may include: what several transports are built on.
SHARED_HEADERS = ("transport/ledger.h", "transport/copier.h", "transport/mover.h")
# Vendor headers, and the folders that own them.
VENDOR = (
    (re.compile(r"^(infiniband|rdma)/"), ("src/transport/rdma", "tests/fabric", "tests/lab")),
    (re.compile(r"^(cuda|nvml)[\w.]*\.h$"), ("src/plat", "include/mooncake", "tests/fabric", "tests/device", "tests/lint")),
    (re.compile(r"^hip/"), ("src/plat", "include/mooncake", "tests/fabric", "tests/device", "tests/lint")),
    (re.compile(r"^openssl/"), ("src/auth", "tools/te_keys", "tests/unit", "tests/fuzz")),
    (re.compile(r"^cufile\.h$"), ("src/transport/nvmeof", "tests/fabric", "tests/device", "tests/lint/vendor")),
)
UTHASH_OWNER = "src/base/hash.h"
UTHASH_TAKES_MEMORY = re.compile(r"\bHASH_(ADD|REPLACE|SELECT)\w*")
# Functions that only one file of the library may call. Of the tools, two files read variables that are no options, or
# whether an option was given at all; te_option_get() is for the rest.
TOOLS_ENVIRONMENT = ("tools/common_colour.c", "tools/common_setup.c")
ONE_PLACE = (
    (re.compile(r"\b(secure_)?getenv\s*\("), "src/conf/conf.c",
     "read the environment through the option table of conf/conf.h"),
    (re.compile(r"\bjson_(load\w+|dumps|copy)\s*\("), "src/model/json_read.c",
     "jansson's own leaves parts out when memory is out: tei_json_load(), tei_json_clone(), tei_json_text()"),
    (re.compile(r"\b(abort|exit|_exit|_Exit|quick_exit)\s*\("), "src/core/shutdown.c",
     "a library returns an error; it never ends its host process"),
)
# Tools call public headers only. te_info prints the option table, which is no public interface, asks a
# metadata server, and tells what is built in and what the host has; te_segment reads and writes the keys
# of a metadata server without an engine; te_keys reads key files as an engine does. All of them find the flag that was meant as the library finds names.
TOOL_EXCEPTIONS = {
    "tools/common_flags.c": ("base/near.h",),
    "tools/te_info.c": ("conf/conf.h",),
    "tools/te_info/ask.c": ("plat/plat.h",),
    "tools/te_info/changed.h": ("conf/conf.h",),
    "tools/te_info/check.h": ("conf/conf.h",),
    "tools/te_info/check_network.c": ("plat/plat.h",),
    "tools/te_info/document.h": ("conf/conf.h",),
    "tools/te_info/metadata.c": ("auth/auth.h", "base/err.h", "base/os.h", "meta/meta.h"),
    "tools/te_info/metadata.h": ("base/sock.h", "conf/conf.h"),
    "tools/te_info/metrics.c": ("core/metrics.h",),
    "tools/te_info/path.c": ("base/os.h", "base/sock.h"),
    "tools/te_info/path.h": ("conf/conf.h",),
    "tools/te_info/summary.c": ("meta/meta.h", "transport/transport.h"),
    "tools/te_keys/file.c": ("base/base64.h",),
    "tools/te_keys/keys.h": ("auth/auth_keys.h",),
    "tools/te_segment/answers.c": ("auth/auth.h", "base/err.h", "base/jobs.h", "base/os.h"),
    "tools/te_segment/change.c": ("base/os.h",),
    "tools/te_segment/connect.c": ("base/os.h",),
    "tools/te_segment/memory.c": ("base/os.h", "plat/plat.h"),
    "tools/te_segment/print.c": ("base/os.h",),
    "tools/te_segment/program.c": ("base/os.h",),
    "tools/te_segment/register_files.c": ("base/os.h",),
    "tools/te_segment/registry.c": ("base/err.h", "base/os.h"),
    "tools/te_segment/registry.h": ("meta/meta.h",),
    "tools/te_segment/unregister.c": ("base/err.h", "base/os.h"),
}

SPDX_NAMES = re.compile(r"(\.(c|h|hpp|cc|rs|go|py|pyi|sh|cmake|def|map)|(^|/)(CMakeLists\.txt|Makefile)|^\.ci/run)$")
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)


class Tree:
    """The files of one source tree, and where its build is."""

    def __init__(self, root, build):
        self.root = os.path.abspath(root)
        self.build = os.path.join(self.root, build)
        self.notes = []
        self._raw = {}
        self._code = {}
        self.files = sorted(self._list())

    def _list(self):
        if os.path.exists(os.path.join(self.root, ".git")):
            out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                 cwd=self.root, capture_output=True, check=False)
            if out.returncode == 0:
                names = out.stdout.decode().split("\0")
                return {n for n in names if n and os.path.isfile(os.path.join(self.root, n))}
        names = set()
        for folder, folders, files in os.walk(self.root):
            rel = os.path.relpath(folder, self.root)
            folders[:] = [f for f in folders
                          if f not in ("__pycache__", ".git") and not (rel == "." and f == "build")]
            names.update(os.path.normpath(os.path.join(rel, f)) for f in files)
        return names

    def raw(self, name):
        """Text of a file, or "" for what is not text."""
        if name not in self._raw:
            with open(os.path.join(self.root, name), "rb") as f:
                data = f.read()
            self._raw[name] = "" if b"\0" in data else data.decode("utf-8", "replace")
        return self._raw[name]

    def code(self, name):
        """Text of a C file with comments and the insides of literals blanked, lines kept."""
        if name not in self._code:
            self._code[name] = blank(self.raw(name))
        return self._code[name]

    def c_files(self, *folders):
        """C sources and headers, of all folders or of those given."""
        return [n for n in self.files if n.endswith((".c", ".h"))
                and (not folders or n.split("/")[0] in folders)]

    def formatted_files(self):
        """What clang-format keeps: C and C++, sources and headers."""
        return [n for n in self.files if n.endswith((".c", ".h", ".hpp", ".cc"))]

    def includes(self, name):
        """(line, "<" or '"', path) of each #include; commented-out ones are not seen."""
        raw = self.raw(name)
        code = blank(raw, keep_strings=True)
        for match in INCLUDE.finditer(code):
            yield line_of(code, match.start(1)), match.group(1), match.group(2)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blank(text, keep_strings=False):
    """Comments (and, unless kept, the insides of literals) replaced by spaces."""
    def replace(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token if keep_strings else token[0] + " " * (len(token) - 2) + token[0]
        return re.sub(r"[^\n]", " ", token)
    return TOKEN.sub(replace, text)


def folder_of(name):
    """The folder of src/ that a file belongs to: base, core, transport, transport/tcp, ..."""
    parts = name.split("/")
    if len(parts) >= 4 and parts[1] == "transport":
        return "transport/" + parts[2]
    return parts[1] if len(parts) >= 3 else ""


# ---- Rules -----------------------------------------------------------------------------------------

def rule_format(tree):
    """clang-format leaves every C source as it is"""
    names = tree.formatted_files()
    if not names:
        return
    if not shutil.which("clang-format"):
        yield "(tree)", 0, "clang-format is missing: run scripts/deps.sh dev"
        return
    out = subprocess.run(["clang-format", "--style=file", "--dry-run", "-Werror"] + names,
                         cwd=tree.root, capture_output=True, text=True, check=False)
    seen = set()
    for match in re.finditer(r"^(\S[^:\n]*):(\d+):\d+: error:", out.stderr, re.M):
        if match.groups() not in seen:
            seen.add(match.groups())
            yield match.group(1), int(match.group(2)), "not in the project's format: run make format"
    if out.returncode and not seen:
        yield "(tree)", 0, "clang-format failed: " + out.stderr.strip()[:200]


def rule_layers(tree):
    """src/ includes point down, and only at the header named after a folder"""
    for name in tree.c_files("src"):
        folder = folder_of(name)
        key = "transport/*" if folder.startswith("transport/") else folder
        if key not in LAYERS:
            yield name, 1, f"no such layer as '{folder or 'src'}': put the file into a folder of {', '.join(LAYERS)}"
            continue
        for line, mark, path in tree.includes(name):
            if mark == '"':
                wrong = judge_include(name, folder, LAYERS[key], path)
                if wrong:
                    yield name, line, wrong


def judge_include(name, folder, allowed, path):
    """What is wrong with this quoted include of a file of the library, or None."""
    if path.startswith(("../", "./")) or "/../" in path:
        return f'write "{path}" as a path from src/'
    if path in PUBLIC_HEADERS:
        if path != "te.h" and folder != "compat":
            return f'only src/compat includes "{path}": include "te.h"'
        return None
    if path.endswith("transports.def"):
        return None if name == "src/transport/transport.c" else "only src/transport/transport.c expands transports.def"
    target = path.rpartition("/")[0] or folder
    if target == folder:
        return None
    if target not in allowed:
        return f'{folder}/ may not include "{path}": it may include {", ".join(allowed) or "nothing"} (docs/design.md, layers)'
    if target != "base" and path not in SHARED_HEADERS and path != f"{target}/{os.path.basename(target)}.h":
        return f'"{path}" is private to {target}/: include "{target}/{os.path.basename(target)}.h"'
    return None


def rule_pure(tree):
    """folders of pure code include no clock, device or thread"""
    for name in tree.c_files("src"):
        allowed = PURE.get(folder_of(name))
        for line, _, path in tree.includes(name) if allowed else ():
            if not path.startswith(allowed):
                yield name, line, f'"{path}": {folder_of(name)}/ is pure code; take time and state as arguments'


def rule_list_of_transports(tree):
    """only transport.c knows the list of transports"""
    for name in tree.c_files("src"):
        if name == "src/transport/transport.c":
            continue
        for match in re.finditer(r"\bTEI_TRANSPORTS_DEF\b", tree.code(name)):
            yield name, line_of(tree.code(name), match.start()), "only src/transport/transport.c expands the list of transports"


# Where a name of a transport is written outside its folder, and what it means there.
NAMES_ELSEWHERE = {
    "src/base/here.c": ("host",),                                        # what a hash is made of
    "src/model/model.h": ("hip", "maca", "musa", "supa"),                # a kind of device, in locations
    "src/model/segment.c": ("ascend",),
    "src/model/segment_rank.c": ("ascend",),                             # that of another make
    "src/model/segment_protocols.c": ("hip", "maca", "musa", "nvmeof", "rdma", "tcp"),  # how descriptors spell protocols
    "src/plat/makers.c": ("hip", "maca", "musa", "supa"),                # kinds of device, and prefixes of functions
    "src/plat/mem_hip.c": ("hip",),
    "src/transport/gpuipc/gpuipc_keys.c": ("host",),                     # one of its own keys
}


def rule_names(tree):
    """no transport's name as a literal of src/ outside its folder, but where descriptors spell protocols"""
    homes = {}
    for name in tree.c_files("src"):
        for match in re.finditer(r"\btei_(\w+)_ops\s*=", tree.code(name)):
            homes[match.group(1)] = os.path.dirname(name)
    for name in tree.c_files("src"):
        text = blank(tree.raw(name), keep_strings=True)
        for match in re.finditer(r'"(\w+)"', text):
            word = match.group(1)
            if word in homes and os.path.dirname(name) != homes[word] and word not in NAMES_ELSEWHERE.get(name, ()):
                yield (name, line_of(text, match.start()),
                       f"\"{word}\" is a transport of {homes[word]}: ask for a capability, or read its table")


def rule_vendor(tree):
    """headers of verbs, CUDA, HIP and cuFile only in the folders that own them"""
    for name in tree.c_files():
        for line, _, path in tree.includes(name):
            for pattern, owners in VENDOR:
                if pattern.search(path) and not name.startswith(tuple(o + "/" for o in owners)):
                    yield name, line, f"<{path}> belongs to {', '.join(owners)} only"


def rule_hash(tree):
    """uthash only by src/base/hash.h, whose TEI_HASH_ADD() tells when memory is out"""
    for name in tree.c_files():
        if name == UTHASH_OWNER:
            continue
        for line, _, path in tree.includes(name):
            if path == "uthash.h":
                yield name, line, f"<uthash.h> belongs to {UTHASH_OWNER} only: include \"base/hash.h\""
        for match in UTHASH_TAKES_MEMORY.finditer(tree.code(name)):
            yield (name, line_of(tree.code(name), match.start()),
                   f"{match.group(0)} does not tell when memory is out: use TEI_HASH_ADD() of {UTHASH_OWNER}")


def rule_tools(tree):
    """tools include public headers only"""
    for name in tree.c_files("tools"):
        for line, mark, path in tree.includes(name):
            if mark != '"' or path in PUBLIC_HEADERS or path in TOOL_EXCEPTIONS.get(name, ()):
                continue
            near = os.path.normpath(os.path.join(os.path.dirname(name), path))
            if not (near in tree.files or os.path.join("tools", path) in tree.files):
                yield name, line, f'a tool uses the public headers only: drop "{path}", or make what it needs public'


def rule_one_place(tree):
    """getenv only in conf.c, of tools/ in two files; exit and abort only in shutdown.c"""
    for name in tree.c_files("src"):
        code = tree.code(name)
        for pattern, place, advice in ONE_PLACE:
            if name == place:
                continue
            for match in pattern.finditer(code):
                call = match.group(0).rstrip("( \t\n")
                yield name, line_of(code, match.start()), f"{call}() is for {place} alone: {advice}"
    for name in tree.c_files("tools"):
        code = tree.code(name)
        for match in ONE_PLACE[0][0].finditer(code) if name not in TOOLS_ENVIRONMENT else ():
            yield (name, line_of(code, match.start()),
                   f"getenv() is for {' and '.join(TOOLS_ENVIRONMENT)} alone: read options by te_option_get()")


def without_directives(code):
    """Preprocessor lines blanked, and all branches of a conditional but its first (none of #if 0)."""
    out, keep, in_directive = [], [], False
    for line in code.split("\n"):
        directive = re.match(r"\s*#\s*(\w+)(.*)", line)
        if in_directive or directive:
            word = directive.group(1) if directive and not in_directive else ""
            if word in ("if", "ifdef", "ifndef"):
                keep.append(directive.group(2).strip() != "0")
            elif word in ("else", "elif") and keep:
                keep[-1] = not keep[-1] and word == "else"
            elif word == "endif" and keep:
                keep.pop()
            in_directive = line.rstrip().endswith("\\")
            out.append("")
        else:
            out.append(line if all(keep) else "")
    return "\n".join(out)


def functions_of(code):
    """(name, first line, last line) of each function body of a blanked C source."""
    code = without_directives(code)
    newlines = [m.start() for m in re.finditer("\n", code)]
    def line_at(offset):
        return bisect.bisect_left(newlines, offset) + 1
    depth, start, found, transparent = 0, 0, [], []
    opened = None
    for match in re.finditer(r"[{};]", code):
        c, at = match.group(0), match.start()
        if c == "{":
            head = code[start:at]
            if depth == 0 and re.search(r'extern\s*"\s*"\s*$', head):
                transparent.append(at)
                start = at + 1
                continue
            if depth == 0:
                call = re.search(r"(\w+)\s*\(", head)
                is_function = call and "=" not in head.split("(")[0] and re.search(r"\)[\s\w()]*$", head)
                begin = start + len(head) - len(head.lstrip())
                opened = (call.group(1), line_at(begin)) if is_function else None
            depth += 1
        elif c == "}":
            if depth == 0:
                if transparent:
                    transparent.pop()
                start = at + 1
                continue
            depth -= 1
            if depth == 0:
                if opened:
                    found.append((opened[0], opened[1], line_at(at)))
                opened = None
                start = at + 1
        elif depth == 0:
            start = at + 1
    return found


def rule_sizes(tree):
    """functions of at most 80 lines, files of at most 900"""
    lengths = []
    for name in tree.c_files():
        lines = tree.raw(name).count("\n")
        if lines > MAX_FILE:
            yield name, MAX_FILE + 1, f"{lines} lines: a file has at most {MAX_FILE}; split it by subject"
        for function, first, last in functions_of(tree.code(name)):
            length = last - first + 1
            if name.startswith("src/"):
                lengths.append(length)
            if length > MAX_FUNCTION:
                yield name, first, f"{function}() has {length} lines: at most {MAX_FUNCTION}; split it"
    if lengths:
        over = sum(1 for n in lengths if n > LONG_FUNCTION)
        tree.notes.append(f"functions of src/: {len(lengths)}, median {statistics.median(lengths):g} lines, "
                          f"{over} over {LONG_FUNCTION} ({100 * over / len(lengths):.0f} %)")


def rule_headers(tree):
    """headers of src/ of at most 150 lines; those that are longer still do not grow much"""
    lengths = []
    for name in tree.c_files("src"):
        if not name.endswith(".h"):
            continue
        lines = tree.raw(name).count("\n")
        most = KNOWN_HEADERS.get(name, MAX_HEADER)
        lengths.append(lines)
        if lines > most:
            yield name, most + 1, f"{lines} lines: this header has at most {most}; split it by subject"
        elif name in KNOWN_HEADERS and lines <= MAX_HEADER:
            yield name, 1, f"{lines} lines: take it out of KNOWN_HEADERS of scripts/lint.py"
    if lengths:
        tree.notes.append(f"headers of src/: {len(lengths)}, median {statistics.median(lengths):g} lines, "
                          f"{sum(1 for n in lengths if n > MAX_HEADER)} over {MAX_HEADER}")


def exported_names(tree):
    """The names without a wildcard in src/transfer_engine.map."""
    text = blank(tree.raw("src/transfer_engine.map"))
    names = set()
    for node in re.findall(r"\{(.*?)\}", text, re.S):
        exported = re.sub(r"\blocal\s*:.*?(?=\bglobal\s*:|$)", "", node, flags=re.S)
        names.update(re.findall(r"(?<![\w*?])(\w+)\s*;", exported))
    return names


def symbols(path, *options):
    out = subprocess.run(["nm", "--defined-only", "--format=posix", *options, path],
                         capture_output=True, text=True, check=True).stdout
    member = ""
    for line in out.splitlines():
        parts = line.split()
        if line.endswith("]:"):
            member = line[line.rfind("[") + 1:-2]
        elif len(parts) >= 2 and parts[1] != "A":
            yield parts[0].split("@")[0], member


def static_library(tree):
    """Where it has all symbols: beside a whole archive, which hides them, or by itself."""
    static = os.path.join(tree.build, "internal", "libtransfer_engine.a")
    return static if os.path.exists(static) else os.path.join(tree.build, "lib", "libtransfer_engine.a")


def calls_of(library):
    """Of each object file the others that define what it names."""
    out = subprocess.run(["nm", "-g", "--format=posix", library], capture_output=True, text=True, check=True).stdout
    defined, named, member = {}, {}, ""
    for line in out.splitlines():
        if line.endswith("]:"):
            member = line[line.index("[") + 1:-2]
            named[member] = set()
        elif line:
            symbol, kind = line.split()[:2]
            if kind in "Uwv":
                named[member].add(symbol)
            else:
                defined[symbol] = member
    return {m: {defined[s] for s in names if s in defined} - {m} for m, names in named.items()}


def reached(calls, first):
    seen, todo = set(), [first]
    while todo:
        new = calls[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def rule_circles(tree):
    """at most 4 files of src/ call each other in a circle"""
    library = static_library(tree)
    short = os.path.relpath(library, tree.root)
    if not os.path.exists(library):
        tree.notes.append(f"{short} is not built: circles of calls were not looked for")
        return
    calls = calls_of(library)
    reach = {m: reached(calls, m) for m in calls}
    for member in sorted(calls):
        circle = sorted(m for m in reach[member] if member in reach[m])
        if len(circle) > MAX_CIRCLE and member == circle[0] and not all(m.startswith(KNOWN_CIRCLES) for m in circle):
            names = ", ".join(m[:-2] for m in circle)
            yield short, 0, (f"{len(circle)} files call each other in a circle: {names}: at most {MAX_CIRCLE}; "
                             "put what both sides need below them")


def rule_symbols(tree):
    """global symbols are te_*, tei_* or exported by name"""
    listed = exported_names(tree) if "src/transfer_engine.map" in tree.files else set()
    static = static_library(tree)
    shared = os.path.join(tree.build, "lib", "libtransfer_engine.so")
    # What <sys/sdt.h> makes for probes is hidden, and one for all objects.
    for path, options, allowed in ((static, ("-g",), ("te_", "tei_", "_.stapsdt.")), (shared, ("-D",), ("te_",))):
        short = os.path.relpath(path, tree.root)
        if not os.path.exists(path):
            tree.notes.append(f"{short} is not built: its symbols were not looked at")
            continue
        for symbol, member in symbols(path, *options):
            if symbol not in listed and not symbol.startswith(allowed):
                where = f"{short}({member})" if member else short
                yield where, 0, f"global symbol {symbol}: make it static, or name it {' or '.join(a + '*' for a in allowed)}"


def rule_exports(tree):
    """the shared library exports what the public headers declare, name by name"""
    script, headers = "src/transfer_engine.map", tuple(f"include/{name}" for name in PUBLIC_HEADERS if name.endswith(".h"))
    headers = [header for header in headers if header in tree.files]
    if script not in tree.files or "include/te.h" not in headers:
        return
    declared = {}
    for header in headers:
        code = without_directives(tree.code(header))
        for match in re.finditer(r"\bTE_API\b[^;(]*\b(\w+)\s*\(", code):
            declared[match.group(1)] = header, line_of(code, match.start(1))
    text = tree.code(script)
    for match in re.finditer(r"^\s*(\w+\*)\s*;", text, re.M):
        yield script, line_of(text, match.start(1)), f"{match.group(1)} exports names unseen: list them"
    exported = exported_names(tree)
    for name in sorted(set(declared) - exported):
        yield *declared[name], f"{name}() is not exported: add it to {script}"
    for name in sorted(exported - set(declared)):
        line = line_of(text, re.search(rf"\b{name}\b", text).start())
        yield script, line, f"{name} is in no public header: drop it, or declare it"


def rule_spdx(tree):
    """an SPDX line within the first three lines"""
    for name in tree.files:
        if SPDX_NAMES.search(name) and not re.search(
                r"SPDX-License-Identifier: Apache-2\.0", "\n".join(tree.raw(name).split("\n")[:3])):
            yield name, 1, "add a line with 'SPDX-License-Identifier: Apache-2.0' at the top"


def rule_text(tree):
    """no unfinished words, no space at the end of a line, a newline at the end of a file"""
    for name in tree.files:
        if name.startswith("tests/") and "/corpus/" in name:
            continue
        text = tree.raw(name)
        for number, line in enumerate(text.split("\n"), 1):
            match = UNFINISHED.search(line)
            if match:
                yield name, number, f"'{match.group(0)}': finish it, or open an issue"
            if line != line.rstrip():
                yield name, number, "space at the end of the line"
        if text and not text.endswith("\n"):
            yield name, text.count("\n") + 1, "no newline at the end of the file"


# Pages that are printed from a table, and the flags of te_info that print each.
PRINTED = {"docs/config.md": ("--config", "--markdown"), "man/man5/transfer_engine.5": ("--config", "--man"),
           "docs/metrics.md": ("--metrics", "--markdown")}


def output_of(tool, *arguments):
    """What a tool of the build prints, with no option in its environment."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MC_", "TE_"))}
    return subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=30, check=False, env=clean).stdout


def rule_config_doc(tree):
    """docs/config.md, docs/metrics.md and man/man5/transfer_engine.5 are what te_info prints"""
    tool = os.path.join(tree.build, "bin", "te_info")
    if not os.path.exists(tool):
        return
    for page, flags in PRINTED.items():
        if page not in tree.files:
            continue
        want, have = output_of(tool, *flags).split("\n"), tree.raw(page).split("\n")
        if want != have:
            at = next((i for i, (a, b) in enumerate(zip(want, have)) if a != b), min(len(want), len(have)))
            yield page, at + 1, "differs from the table: run make docs"


# Tools whose page sends its reader to that of another one for what both take.
PAGE_BESIDE = {"transfer_engine_validator": "transfer_engine_bench"}


def rule_flags(tree):
    """every flag that a tool's --help tells is on its page in man/man1"""
    for name in tree.files:
        tool = re.fullmatch(r"man/man1/(\w+)\.1", name)
        program = os.path.join(tree.build, "bin", tool.group(1)) if tool else ""
        if not tool or not os.path.exists(program):
            continue
        beside = f"man/man1/{PAGE_BESIDE.get(tool.group(1), tool.group(1))}.1"
        told = (tree.raw(name) + tree.raw(beside)).replace("\\-", "_").replace("-", "_")
        for flag in re.findall(r"^  --(\w+)", output_of(program, "--help"), re.M):
            if not re.search(rf"(?<!_)__{flag}\b", told):
                dashes = flag.replace("_", "\\-")
                yield name, 1, (f"--{flag} of {tool.group(1)} --help is missing: add a paragraph that begins "
                                f"'.TP' and '.B \\-\\-{dashes}'")


# Where each row of TE_ERR_MAP has one of its own: the file, what is found there, and what is to be added.
CLASSES = {"REQUEST": "Request", "PATH": "Path", "FATAL": "Fatal"}
ERROR_PLACES = (
    ("bindings/python/transfer_engine/_errors.py", '{number}: ("TE_ERR_{name}", ',
     '{number}: ("TE_ERR_{name}", {kind}Error),'),
    ("bindings/go/te/error.go", "Code = C.TE_ERR_{name}\n", "Err{camel} Code = C.TE_ERR_{name}"),
    ("bindings/rust/src/error.rs", "= {number}, {kind};", "/// ...' and '{camel} = {number}, {kind};"),
)


def rule_errors(tree):
    """the bindings have every error of TE_ERR_MAP, and abi/ has it recorded"""
    if "include/te.h" not in tree.files:
        return
    for name, number, kind in re.findall(r"\bX\((\w+), (-\d+), (\w+), ", tree.raw("include/te.h")):
        row = {"name": name, "number": number, "kind": CLASSES[kind], "camel": name.title().replace("_", "")}
        for place, found, line in ERROR_PLACES:
            if place in tree.files and found.format(**row) not in tree.raw(place):
                yield place, 1, f"TE_ERR_{name} of te.h is missing: add '{line.format(**row)}'"
        if "abi/constants.txt" in tree.files and f"TE_ERR_{name} = {number}\n" not in tree.raw("abi/constants.txt"):
            yield "abi/constants.txt", 1, f"TE_ERR_{name} of te.h is not recorded: run make abi"


# ---- The documents ---------------------------------------------------------------------------------

MAX_COLUMNS = 120
DOCUMENT = re.compile(r"(docs/|bindings/.*/)?[\w.-]+\.md")
HISTORY = "CHANGELOG.md"


def documents(tree):
    return [n for n in tree.files if DOCUMENT.fullmatch(n) and n != HISTORY]


def prose(text):
    """(line number, line) of a page, without its blocks of code."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(text):
    """What links to a page may name after '#': its headings, as GitHub turns them into names."""
    found = set()
    for _, line in prose(text):
        title = re.match(r"#+ +(.*)", line)
        if title:
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title.group(1))
            slug = re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")
            found.add(next(s for s in (slug, *(f"{slug}-{i}" for i in range(1, 1000))) if s not in found))
    return found


def rule_links(tree):
    """links in Markdown that lead to a file or heading of this tree find it"""
    folders = {os.path.dirname(n) for n in tree.files}
    folders |= {up for f in list(folders) for up in (f[:m.start()] for m in re.finditer("/", f))}
    for page in (n for n in tree.files if n.endswith(".md")):
        for number, line in prose(tree.raw(page)):
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
                path, _, anchor = target.partition("#")
                if re.match(r"[a-z]+:", target):
                    continue
                there = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
                if there not in tree.files and there not in folders:
                    yield page, number, f"{target}: there is no {there}"
                elif anchor and anchor not in anchors(tree.raw(there)):
                    yield page, number, f"{target}: {there} has no heading of that name"


def rule_documents(tree):
    """pages begin with a sentence, keep to 120 columns, and docs/index.md lists those of docs/"""
    for page in documents(tree):
        lines = [l for _, l in prose(tree.raw(page)) if l]
        if len(lines) > 1 and not re.match(r"[A-Z`\[]", lines[1]):
            yield page, 1, "begin the page with a sentence that says what it answers"
        for number, line in prose(tree.raw(page)):
            if len(line) > MAX_COLUMNS and not line.startswith("|"):
                yield page, number, f"{len(line)} columns: at most {MAX_COLUMNS}; tables and code may have more"
        if page.startswith("docs/") and page != "docs/index.md" and f"]({page[5:]})" not in tree.raw("docs/index.md"):
            yield page, 1, "docs/index.md does not list it: add a row that says what it answers"


def rule_pictures(tree):
    """docs/pictures/*.svg are what scripts/pictures.py draws from the texts beside them; test_te_info sees to topology.svg"""
    for name in (n for n in tree.files if n.startswith("docs/pictures/")):
        stem, kind = os.path.splitext(name)
        if kind == ".svg" and stem + ".txt" not in tree.files and stem != "docs/pictures/topology":
            yield name, 1, f"there is no {stem}.txt from which it is drawn"
        if kind != ".txt":
            continue
        try:
            want = pictures.draw(tree.raw(name), lambda file: tree.raw("docs/pictures/" + file))
        except (pictures.Wrong, ValueError, OSError) as why:
            yield name, 1, str(why)
            continue
        if stem + ".svg" not in tree.files or tree.raw(stem + ".svg") != want:
            yield stem + ".svg", 1, f"is not what {name} describes: run make docs"


def rule_editors(tree):
    """.editorconfig says of C what .clang-format does"""
    if not {".editorconfig", ".clang-format"} <= set(tree.files):
        return
    section = re.search(r"^\[[^\]]*\bc,[^\]]*\]\n(.*?)(?=^\[|\Z)", tree.raw(".editorconfig"), re.M | re.S)
    told = dict(re.findall(r"^(\w+) *= *(\w+)", section.group(1), re.M)) if section else {}
    for key, name in (("max_line_length", "ColumnLimit"), ("indent_size", "IndentWidth")):
        value = re.search(rf"^{name}: (\d+)", tree.raw(".clang-format"), re.M)
        if value and told.get(key) != value.group(1):
            yield ".editorconfig", 1, f"{key} of C is {told.get(key)}: .clang-format has {name}: {value.group(1)}"


def rule_version(tree):
    """te.h, debian/changelog, CMakeLists.txt and the manual pages name the same version, the last its day"""
    if not {"include/te.h", "CMakeLists.txt"} <= set(tree.files):
        return
    project = re.search(r"project\(\w+\s+VERSION\s+(\d+)\.(\d+)\.(\d+)", tree.raw("CMakeLists.txt"))
    header = tree.raw("include/te.h")
    parts = [re.search(rf"#define\s+TE_VERSION_{p}\s+(\d+)", header) for p in ("MAJOR", "MINOR", "PATCH")]
    if project and all(parts) and [p.group(1) for p in parts] != list(project.groups()):
        yield "include/te.h", line_of(header, parts[0].start()), "TE_VERSION_* differ from project(VERSION) of CMakeLists.txt"
    package = re.match(r"\S+ \((\S+)\)", tree.raw("debian/changelog")) if "debian/changelog" in tree.files else None
    if project and package and package.group(1) != ".".join(project.groups()):
        yield "debian/changelog", 1, "the version differs from project(VERSION) of CMakeLists.txt"
    dated = re.search(r"^ -- .*>  (.*)", tree.raw("debian/changelog"), re.M) if package else None
    if project and dated:
        day = email.utils.parsedate_to_datetime(dated.group(1)).strftime("%Y-%m-%d")
        want = f' "{day}" "Transfer Engine {".".join(project.groups())}" "Transfer Engine"'
        for name in (n for n in tree.files if n.startswith("man/") and not os.path.islink(os.path.join(tree.root, n))):
            title = re.search(r"^\.TH \S+ \d(.*)", tree.raw(name), re.M)
            if title and title.group(1) != want:
                yield name, line_of(tree.raw(name), title.start()), f"the line must end in{want}, as debian/changelog has it"


RULES = {
    "format": rule_format,
    "layers": rule_layers,
    "pure": rule_pure,
    "transports": rule_list_of_transports,
    "names": rule_names,
    "vendor": rule_vendor,
    "hash": rule_hash,
    "tools": rule_tools,
    "one-place": rule_one_place,
    "sizes": rule_sizes,
    "headers": rule_headers,
    "symbols": rule_symbols,
    "circles": rule_circles,
    "exports": rule_exports,
    "spdx": rule_spdx,
    "text": rule_text,
    "config-doc": rule_config_doc,
    "flags": rule_flags,
    "errors": rule_errors,
    "links": rule_links,
    "documents": rule_documents,
    "pictures": rule_pictures,
    "editors": rule_editors,
    "version": rule_version,
}


def reformat(tree):
    return subprocess.run(["clang-format", "--style=file", "-i"] + tree.formatted_files(), cwd=tree.root, check=False).returncode


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="rules:\n" + "\n".join(f"  {n:<12} {f.__doc__}" for n, f in RULES.items()))
    parser.add_argument("rules", nargs="*", metavar="RULE", help="rules to check (default: all)")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    parser.add_argument("--build", default="build", help="build tree, from the root (default: build)")
    parser.add_argument("--format", action="store_true", help="rewrite the C sources in the format, check nothing")
    args = parser.parse_args()
    unknown = set(args.rules) - set(RULES)
    if unknown:
        parser.error(f"no such rule: {', '.join(sorted(unknown))}")

    tree = Tree(args.root, args.build)
    if args.format:
        return reformat(tree)
    count = 0
    for rule in args.rules or RULES:
        for name, line, text in RULES[rule](tree):
            print(f"{name}:{line}: {rule}: {text}")
            count += 1
    for note in tree.notes:
        print(f"lint: {note}")
    print(f"lint: {len(tree.files)} files, {count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
