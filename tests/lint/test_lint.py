#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1200
"""Feeds scripts/lint.py a tree that breaks each rule, and one that breaks none."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
LINT = os.path.join(ROOT, "scripts", "lint.py")
sys.path.insert(0, os.path.dirname(LINT))
import pictures  # noqa: E402

SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"
MAP = SPDX + "NODE {\nglobal:\n    te_*;\n    openSegment;\nlocal:\n    *;\n};\n"


class LintTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="te-lint-")
        self.addCleanup(shutil.rmtree, self.root)
        self.write("src/base/err.h", SPDX + "int tei_err_last(void);\n")
        self.write("src/transfer_engine.map", MAP)

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def lint(self, *rules):
        run = subprocess.run([sys.executable, LINT, "--root", self.root, *rules], capture_output=True,
                             text=True, timeout=600, check=False)
        self.assertIn(run.returncode, (0, 1), run.stderr)
        return run.returncode, run.stdout

    def passes(self, *rules):
        rc, out = self.lint(*rules)
        self.assertEqual(rc, 0, out)
        return out

    def fails(self, rule, *texts):
        rc, out = self.lint(rule)
        self.assertEqual(rc, 1, out)
        for text in texts:
            self.assertIn(text, out)

    def source(self, name, body):
        self.write(name, SPDX + body)

    def test_clean_tree(self):
        self.source("src/core/engine.c", '#include "core.h"\n#include "base/err.h"\n#include "te.h"\n'
                    '#include "transport/transport.h"\n')
        self.source("src/transport/tcp/tcp.c", '#include "tcp.h"\n#include "transport/transport.h"\n')
        self.source("src/transport/transport.c", '#include "transport/transports.def"\n')
        self.passes("layers", "transports", "vendor", "hash", "tools", "one-place", "sizes", "symbols", "spdx",
                    "text", "config-doc", "flags", "errors", "links", "documents", "pictures", "editors", "version")

    def test_upward_include(self):
        self.source("src/base/log.c", '\n#include "conf/conf.h"\n')
        self.fails("layers", "src/base/log.c:3:", 'may not include "conf/conf.h"')

    def test_sideways_include(self):
        self.source("src/plat/plat.c", '#include "meta/meta.h"\n')
        self.fails("layers", "src/plat/plat.c:2:")
        self.source("src/plat/plat.c", "")
        self.source("src/meta/store.c", '#include "plat/plat.h"\n')
        self.fails("layers", "src/meta/store.c:2:")

    def test_transport_sees_the_core(self):
        self.source("src/transport/tcp/tcp.c", '#include "core/core.h"\n')
        self.fails("layers", "src/transport/tcp/tcp.c:2:")

    def test_transport_sees_another(self):
        self.source("src/transport/tcp/tcp.c", '#include "transport/local/local.h"\n')
        self.fails("layers", "src/transport/tcp/tcp.c:2:")

    def test_core_sees_a_transport(self):
        self.source("src/core/engine.c", '#include "transport/tcp/tcp.h"\n')
        self.fails("layers", "src/core/engine.c:2:")

    def test_private_header(self):
        self.source("src/meta/store.c", '#include "model/segment.h"\n')
        self.fails("layers", 'include "model/model.h"')

    def test_dotted_include(self):
        self.source("src/core/engine.c", '#include "../base/err.h"\n')
        self.fails("layers", "as a path from src/")

    def test_pure_folder(self):
        self.source("src/rail/rail.c", '#include "rail/rail.h"\n#include "base/base.h"\n#include <stdlib.h>\n')
        self.passes("pure", "layers")
        self.source("src/rail/rail.c", '#include "base/os.h"\n')
        self.fails("pure", 'src/rail/rail.c:2: pure: "base/os.h": rail/ is pure code')
        self.source("src/rail/rail.c", "#include <time.h>\n")
        self.fails("pure", '"time.h"')

    def test_compat_is_a_skin(self):
        self.source("src/compat/transfer_engine_c.c", '#include "transfer_engine_c.h"\n#include "te.h"\n')
        self.passes("layers")
        self.source("src/compat/transfer_engine_c.c", '#include "core/core.h"\n')
        self.fails("layers", "src/compat/transfer_engine_c.c:2:")

    def test_unknown_folder(self):
        self.source("src/util/helper.c", "")
        self.fails("layers", "no such layer")

    def test_list_of_transports(self):
        self.source("src/core/engine.c", '#include "transport/transports.def"\n')
        self.fails("layers", "only src/transport/transport.c")
        self.source("src/core/engine.c", "#include TEI_TRANSPORTS_DEF\n")
        self.fails("transports", "src/core/engine.c:2:")

    def test_names_of_transports(self):
        self.source("src/transport/tcp/tcp.c", 'const struct tei_transport_ops tei_tcp_ops = {.name = "tcp"};\n')
        self.source("src/core/engine.c", '/* "tcp" */ int x = find("tcp,rdma");\n')
        self.source("src/model/segment_protocols.c", 'const char *name = "tcp";\n')
        self.passes("names")
        self.source("src/core/engine.c", 'int x;\nint y = find("tcp");\n')
        self.source("src/transport/rdma/rdma.c", 'int y = find("tcp");\n')
        self.fails("names", "src/core/engine.c:3:", "src/transport/rdma/rdma.c:2:", "of src/transport/tcp")

    def test_vendor_header(self):
        self.source("src/core/engine.c", "#include <infiniband/verbs.h>\n")
        self.fails("vendor", "src/core/engine.c:2:")
        self.source("src/core/engine.c", "")
        self.source("src/transport/rdma/rdma.c", "#include <infiniband/verbs.h>\n")
        self.passes("vendor")

    def test_hash(self):
        self.source("src/base/hash.h", "#include <uthash.h>\n#define TEI_HASH_ADD HASH_ADD_KEYPTR\n")
        self.source("src/core/engine.c", '#include "base/hash.h"\nint x = HASH_COUNT(y);\n')
        self.passes("hash")
        self.source("tools/te_top.c", "#include <uthash.h>\n")
        self.source("src/core/engine.c", "HASH_ADD_PTR(a, b, c);\nHASH_REPLACE_STR(a, b, c, d);\n")
        self.fails("hash", "tools/te_top.c:2:", "src/core/engine.c:2:", "src/core/engine.c:3:", "TEI_HASH_ADD")

    def test_tool_uses_internals(self):
        self.source("tools/te_top.c", '#include "te.h"\n#include "core/core.h"\n')
        self.fails("tools", "tools/te_top.c:3:")
        self.source("tools/te_top.c", '#include "common.h"\n')
        self.source("tools/common.h", "")
        self.passes("tools")

    def test_getenv_and_exit(self):
        self.source("src/core/engine.c", '/* getenv("A") */\nconst char *a = getenv("A");\n')
        self.fails("one-place", "src/core/engine.c:3:", "src/conf/conf.c")
        self.source("src/core/engine.c", "static void f(void)\n{\n    abort();\n}\n")
        self.fails("one-place", "abort() is for src/core/shutdown.c")
        self.source("src/core/engine.c", 'static const char *f = "exit(1)"; void on_exit_hook(void);\n')
        self.source("src/conf/conf.c", 'const char *a = getenv("A");\n')
        self.source("src/core/shutdown.c", "static void f(void)\n{\n    _Exit(1);\n}\n")
        self.passes("one-place")

    def test_getenv_of_tools(self):
        self.source("tools/te_top/page.c", 'const char *a = getenv("A");\nvoid f(void)\n{\n    exit(1);\n}\n')
        self.fails("one-place", "tools/te_top/page.c:2:", "te_option_get()")
        self.source("tools/te_top/page.c", "")
        self.source("tools/common_colour.c", 'const char *a = getenv("NO_COLOR");\n')
        self.passes("one-place")

    def function(self, lines):
        """A function of that many lines, signature and braces counted."""
        return "int tei_f(int a,\n          int b)\n{\n" + "    a++;\n" * (lines - 4) + "}\n"

    def test_function_length(self):
        self.source("src/core/engine.c", "#define X(a) {a}\nstatic int t[] = {1, 2};\n" + self.function(80))
        self.assertIn("functions of src/: 1, median 80 lines, 1 over 40", self.passes("sizes"))
        self.source("src/core/engine.c", 'extern "C" {\n' + self.function(81) + "}\n")
        self.fails("sizes", "src/core/engine.c:3:", "tei_f() has 81 lines")

    def test_function_length_with_conditionals(self):
        self.source("src/core/engine.c", "#if A\nint f(void) {\n#else\nint g(void) {\n#endif\n}\n" + self.function(81))
        self.fails("sizes", "tei_f() has 81 lines")

    def test_file_length(self):
        self.source("src/core/engine.c", "\n" * 900)
        self.fails("sizes", "src/core/engine.c:901:", "901 lines")

    def test_header_length(self):
        self.source("src/core/engine.h", "\n" * 149)
        self.source("src/core/engine.c", "\n" * 400)
        self.assertIn(", 0 over 150", self.passes("headers"))
        self.source("src/core/engine.h", "\n" * 150)
        self.fails("headers", "src/core/engine.h:151:", "151 lines")
        self.source("src/core/engine.h", "\n")
        self.source("src/meta/meta.h", "\n" * 200)
        self.passes("headers")
        self.source("src/meta/meta.h", "\n" * 2000)
        self.fails("headers", "src/meta/meta.h:", "2001 lines")
        self.source("src/meta/meta.h", "\n" * 100)
        self.fails("headers", "src/meta/meta.h:1:", "KNOWN_HEADERS")

    def test_spdx(self):
        for name in ("src/core/engine.c", "scripts/a.sh", "tools/b.py", "cmake/c.cmake"):
            self.write(name, "\n")
        self.fails("spdx", "src/core/engine.c:1:", "scripts/a.sh:1:", "tools/b.py:1:", "cmake/c.cmake:1:")

    def test_text(self):
        self.write("docs/a.md", "one\ntwo \n")
        self.fails("text", "docs/a.md:2:", "space at the end")
        for word in ("TO" + "DO", "FIX" + "ME", "X" * 3):
            self.write("docs/a.md", f"one\n{word}: two\n")
            self.fails("text", "docs/a.md:2:", word)
        self.write("docs/a.md", 'mkstemp("a.XXXX' + 'XX")')
        self.fails("text", "no newline")
        self.write("docs/a.md", 'mkstemp("a.XXXX' + 'XX")\n')
        self.passes("text")

    def build(self, code):
        source = os.path.join(self.root, "a.c")
        lib = os.path.join(self.root, "build", "lib")
        os.makedirs(lib, exist_ok=True)
        with open(source, "w", encoding="utf-8") as f:
            f.write(code)
        cc = os.environ.get("TE_TEST_CC", "cc")
        obj = os.path.join(lib, "a.o")
        archive = os.path.join(lib, "libtransfer_engine.a")
        if os.path.exists(archive):
            os.unlink(archive)
        for command in ([cc, "-fPIC", "-c", source, "-o", obj], ["ar", "rcs", archive, obj],
                        [cc, "-shared", obj, "-o", os.path.join(lib, "libtransfer_engine.so"),
                         "-Wl,--version-script=" + os.path.join(self.root, "src", "transfer_engine.map")]):
            subprocess.run(command, check=True, timeout=600)
        os.unlink(source)

    def test_symbols(self):
        self.build("int te_a; int tei_b; int openSegment; static int c; int f(void); int te_f(void) { return c; }\n")
        self.passes("symbols")
        self.build("int te_a; int helper(void) { return 1; }\n")
        self.fails("symbols", "build/lib/libtransfer_engine.a(a.o):0:", "global symbol helper")
        self.build("int tei_a; int te_a;\n")
        self.passes("symbols")
        self.write("src/transfer_engine.map", MAP.replace("te_*;", "te*;"))
        self.build("int tei_a; int te_a;\n")
        self.fails("symbols", "libtransfer_engine.so", "global symbol tei_a")

    def ring(self, n, prefix):
        """A library of n files, each of which calls the next one, and the last the first."""
        lib = os.path.join(self.root, "build", "lib")
        os.makedirs(lib, exist_ok=True)
        objects = []
        for i in range(n):
            source = os.path.join(self.root, f"{prefix}{i}.c")
            with open(source, "w", encoding="utf-8") as f:
                f.write(f"int tei_{(i + 1) % n}(void); int tei_{i}(void) {{ return 1 + tei_{(i + 1) % n}(); }}\n")
            objects.append(os.path.join(lib, f"{prefix}{i}.c.o"))
            subprocess.run([os.environ.get("TE_TEST_CC", "cc"), "-c", source, "-o", objects[-1]], check=True, timeout=600)
            os.unlink(source)
        archive = os.path.join(lib, "libtransfer_engine.a")
        if os.path.exists(archive):
            os.unlink(archive)
        subprocess.run(["ar", "rcs", archive, *objects], check=True, timeout=600)

    def test_circles(self):
        self.assertIn("not built", self.passes("circles"))
        self.ring(4, "file")
        self.passes("circles")
        self.ring(5, "file")
        self.fails("circles", "build/lib/libtransfer_engine.a:0:", "5 files", "file0.c, file1.c, file2.c, file3.c, file4.c")
        self.ring(5, "tcp_")
        self.passes("circles")

    def test_exports(self):
        self.source("include/te.h", "#define TE_API\nTE_API const char *te_a(void);\nTE_API int te_b(int (*f)(void));\n")
        self.source("include/transfer_engine_c.h", "/* TE_API int te_no(void); */\nTE_API int openSegment(void);\n")
        self.fails("exports", "src/transfer_engine.map:4:", "te_* exports names unseen",
                   "include/te.h:3:", "te_a() is not exported")
        self.write("src/transfer_engine.map", MAP.replace("te_*;", "te_a;\n    te_b;"))
        self.passes("exports")
        self.write("src/transfer_engine.map", MAP.replace("te_*;", "te_a;\n    te_b;\n    te_c;"))
        self.fails("exports", "src/transfer_engine.map:6:", "te_c is in no public header")
        two = MAP.replace("te_*;", "te_a;")
        self.write("src/transfer_engine.map", two)
        self.fails("exports", "include/te.h:4:", "te_b() is not exported")
        self.write("src/transfer_engine.map", two + "NODE_1 {\nglobal: te_b; } NODE;\n")
        self.passes("exports")
        self.write("src/transfer_engine.map", two + "NODE_1 {\n    te_b;\nlocal:\n    te_d;\n} NODE;\n")
        self.passes("exports")
        self.write("src/transfer_engine.map", two + "NODE_1 {\n    te_b;\n    te_c;\n} NODE;\n")
        self.fails("exports", "src/transfer_engine.map:11:", "te_c is in no public header")

    def test_config_doc(self):
        tool = os.path.join(self.root, "build", "bin", "te_info")
        self.write("build/bin/te_info", "#!/bin/sh\nprintf 'a\\nb\\n'\n")
        os.chmod(tool, 0o755)
        self.write("docs/config.md", "a\nb\n")
        self.passes("config-doc")
        self.write("docs/config.md", "a\nc\n")
        self.fails("config-doc", "docs/config.md:2:")
        self.write("docs/config.md", "a\nb\n")
        self.write("man/man5/transfer_engine.5", "a\n")
        self.fails("config-doc", "man/man5/transfer_engine.5:2:")

    def test_flags(self):
        tool = os.path.join(self.root, "build", "bin", "te_top")
        self.write("build/bin/te_top", "#!/bin/sh\nprintf '  --one\\n  --two_words=TEXT\\n'\n")
        os.chmod(tool, 0o755)
        self.write("man/man1/te_top.1", ".B \\-\\-one\n.BI \\-\\-two\\-words= TEXT\n")
        self.passes("flags")
        self.write("man/man1/te_top.1", ".B \\-\\-one_more\n.B \\-\\-two_words\none\n")
        self.fails("flags", "man/man1/te_top.1:1:", "--one of te_top --help", "'.B \\-\\-one'")

    def test_errors(self):
        places = {"bindings/python/transfer_engine/_errors.py": '    -5: ("TE_ERR_TOO_MUCH", RequestError),\n',
                  "bindings/go/te/error.go": "\tErrTooMuch Code = C.TE_ERR_TOO_MUCH\n",
                  "bindings/rust/src/error.rs": "    TooMuch = -5, Request;\n", "abi/constants.txt": "TE_ERR_TOO_MUCH = -5\n"}
        self.write("include/te.h", '#define TE_ERR_MAP(X) X(OK, 0, OK, "a") X(TOO_MUCH, -5, REQUEST, "b")\n')
        for place, line in places.items():
            self.write(place, line)
        self.passes("errors")
        for place, line in places.items():
            self.write(place, "\n")
            self.fails("errors", f"{place}:1: errors: TE_ERR_TOO_MUCH of te.h",
                       "run make abi" if place.startswith("abi/") else f"'{line.strip()}'", " 1 findings")
            self.write(place, line)

    def test_links(self):
        self.write("docs/b.md", "# B\n\n## What `it` does, and why\n\n## Twice\n\n## Twice\n")
        self.write("docs/a.md", "# A\n[b](b.md#what-it-does-and-why) [c](b.md#twice-1) [d](#a) [e](../docs)\n"
                   "[f](https://x.org/#y)\n"
                   "```\n[g](nowhere.md)\n```\n`[h](nowhere.md)`\n")
        self.passes("links")
        self.write("docs/a.md", "# A\n\n[b](b.md#what)\n[c](c.md)\n[d](#b)\n[e](b.md#twice-2)\n")
        self.fails("links", "docs/a.md:3: links: b.md#what: docs/b.md has no heading",
                   "docs/a.md:4: links: c.md: there is no docs/c.md",
                   "docs/a.md:5:", "docs/a.md:6:", " 4 findings")

    def test_documents(self):
        self.write("docs/index.md", "# Index\n\nAll pages.\n\n[a](a.md)\n")
        self.write("docs/a.md", "# A\n\nThis page says a.\n\n|" + "a" * 130 + "|\n```\n" + "b " * 70 + "b\n```\n")
        self.passes("documents")
        self.write("docs/a.md", "# A\n\n## B\n\n" + "b " * 60 + "b\n")
        self.write("docs/b.md", "# B\n\nThis page says b.\n")
        self.fails("documents", "docs/a.md:1: documents: begin the page", "docs/a.md:5: documents: 121 columns",
                   "docs/b.md:1: documents: docs/index.md does not list it", " 3 findings")

    def test_pictures(self):
        self.write("docs/pictures/a.svg", "<svg/>\n")
        self.fails("pictures", "docs/pictures/a.svg:1: pictures: there is no docs/pictures/a.txt")
        described = 'size 10 10\ntitle "A"\ndesc "a"\n'
        self.write("docs/pictures/a.txt", described)
        self.fails("pictures", "docs/pictures/a.svg:1: pictures: is not what docs/pictures/a.txt describes")
        self.write("docs/pictures/a.svg", pictures.draw(described))
        self.passes("pictures")
        self.write("docs/pictures/a.txt", described + "circle 1 2\n")
        self.fails("pictures", "docs/pictures/a.txt:1: pictures: line 4: 'circle 1 2' is nothing that can be drawn")

    def test_editors(self):
        self.write(".clang-format", "IndentWidth: 4\nColumnLimit: 100\n")
        self.write(".editorconfig", "[*]\nmax_line_length = 120\n\n[*.{c,h}]\nindent_size = 4\nmax_line_length = 100\n\n[*.md]\n")
        self.passes("editors")
        self.write(".editorconfig", "[*]\nindent_size = 4\n\n[*.{c,h}]\nindent_size = 4\n\n[*.md]\nmax_line_length = 100\n")
        self.fails("editors", "max_line_length of C is None", " 1 findings")

    def test_version(self):
        self.write("CMakeLists.txt", "project(x VERSION 0.1.0)\n")
        text = "#define TE_VERSION_MAJOR 0\n#define TE_VERSION_MINOR 1\n#define TE_VERSION_PATCH {}\n"
        self.write("include/te.h", text.format(0))
        self.passes("version")
        self.write("include/te.h", text.format(1))
        self.fails("version", "include/te.h:1:")
        self.write("include/te.h", text.format(0))
        self.write("debian/changelog", "x (0.1.0) unstable; urgency=medium\n")
        self.passes("version")
        self.write("debian/changelog", "x (0.2.0) unstable; urgency=medium\n")
        self.fails("version", "debian/changelog:1:")
        self.write("debian/changelog", "x (0.1.0) unstable; urgency=medium\n\n -- A B <a@b>  Sun, 22 Nov 2026 12:00:00 +0000\n")
        title = '.\\" comment\n.TH TE_A 3 "{}" "Transfer Engine 0.1.0" "Transfer Engine"\n'
        self.write("man/man3/te_a.3", title.format("2026-11-22"))
        self.passes("version")
        self.write("man/man3/te_a.3", title.format(""))
        self.fails("version", 'man/man3/te_a.3:2: version: the line must end in "2026-11-22" "Transfer Engine 0.1.0"')

    @unittest.skipUnless(shutil.which("clang-format"), "clang-format is not here")
    def test_format(self):
        shutil.copy(os.path.join(ROOT, ".clang-format"), self.root)
        self.source("src/core/engine.c", "int tei_f(int a)\n{\n    return a;\n}\n")
        self.passes("format")
        self.source("src/core/engine.c", "int tei_f( int a ) {\n  return a;\n}\n")
        self.fails("format", "src/core/engine.c:2:", "make format")


if __name__ == "__main__":
    unittest.main()
