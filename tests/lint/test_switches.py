#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""The switches of the build: other names and those of Mooncake's build mean something or are refused by name;
a project that adds this one as a subproject is left alone, and finds the targets that find_package() gives."""
import os
import re
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CMAKE = os.path.join(ROOT, "cmake")

# What CMakeLists.txt does with these files, and the cache that comes out, a line for each entry.
SCRIPT = f"""cmake_minimum_required(VERSION 3.21)
set(PROJECT_IS_TOP_LEVEL ON)
include({CMAKE}/aliases.cmake)
include({CMAKE}/options.cmake)
include({CMAKE}/undeclared.cmake)
get_cmake_property(names CACHE_VARIABLES)
foreach(name IN LISTS names)
    message("cache ${{name}}=$CACHE{{${{name}}}}")
endforeach()
"""

# The switches of Mooncake's build: of its page about building, and a few that its scripts set.
MOONCAKE = """
USE_CUDA USE_MNNVL USE_MUSA USE_MACA USE_HIP USE_HYGON USE_COREX USE_MLU USE_SUPA USE_SUNRISE USE_ASCEND USE_ASCEND_DIRECT
USE_ASCEND_HETEROGENEOUS USE_UBSHMEM USE_UB USE_YLT_URMA_RPC USE_INTRA_NVLINK USE_CXL MACA_ROOT MACA_INCLUDE_DIR MACA_LIB_DIR
MACA_RUNTIME_LIBS DTK_ROOT DTK_INCLUDE_DIR DTK_LIB_DIR COREX_ROOT COREX_INCLUDE_DIR COREX_LIB_DIR NEUWARE_ROOT
MLU_INCLUDE_DIR MLU_LIB_DIR USE_TCP USE_NVMEOF USE_EFA USE_NOF USE_3FS USE_BAREX USE_TENT USE_MLX5DV USE_REDIS USE_HTTP
USE_ETCD USE_ETCD_LEGACY USE_EVENT_DRIVEN_COMPLETION USE_LRU_MASTER STORE_USE_ETCD STORE_USE_REDIS STORE_USE_K8S_LEASE
STORE_USE_JEMALLOC WITH_TE WITH_STORE WITH_STORE_GO WITH_STORE_RUST WITH_CONDUCTOR WITH_P2P_STORE WITH_RUST_EXAMPLE
WITH_WITH_RUST_EXAMPLE WITH_EP EP_TORCH_VERSIONS WITH_METRICS WITH_NVIDIA_PEERMEM ENABLE_MULTI_PROTOCOL ENABLE_ASAN
ENABLE_CCACHE ENABLE_SCCACHE BUILD_UNIT_TESTS BUILD_EXAMPLES
""".split()

KINDS = ("transfer_engine", "shared", "static", "mooncake")

# Its last two variables are what find_package(CURL) sets: ours are others.
PARENT = f"""cmake_minimum_required(VERSION 3.21)
project(parent LANGUAGES C)
set(USE_TCP OFF) # the parent's own
option(USE_CXL "the parent's own" ON)
set(CURL_LIBRARIES nosuch)
set(CURL_FOUND FALSE)
get_cmake_property(own CACHE_VARIABLES)
add_subdirectory({ROOT} te)
get_cmake_property(names CACHE_VARIABLES)
list(REMOVE_ITEM names ${{own}})
foreach(name IN LISTS names)
    message(STATUS "new: ${{name}}")
endforeach()
foreach(kind {' '.join(KINDS)})
    add_executable(user_${{kind}} main.c)
    target_link_libraries(user_${{kind}} PRIVATE transfer_engine::${{kind}})
    if(kind STREQUAL "mooncake")
        target_compile_definitions(user_${{kind}} PRIVATE MOONCAKE)
    endif()
endforeach()
get_target_property(aliased transfer_engine::transfer_engine ALIASED_TARGET)
message(STATUS "transfer_engine is ${{aliased}}")
message(STATUS "build type '${{CMAKE_BUILD_TYPE}}', cached '$CACHE{{CMAKE_BUILD_TYPE}}'")
foreach(target te_info te_tests transfer_engine_bench)
    if(TARGET ${{target}})
        message(FATAL_ERROR "the parent got the target ${{target}}")
    endif()
endforeach()
"""


# An engine that begins and ends; for Mooncake's API, where its header is found by the name that it has there.
MAIN = r"""
#include <stdio.h>
#include <te.h>
#ifdef MOONCAKE
#include <transfer_engine_c.h>
#ifndef MOONCAKE_TRANSFER_ENGINE_C_H
#error "not by the name that it has in Mooncake"
#endif
#endif

int main(void)
{
    te_options o;
    te_engine *e;

    te_options_init(&o);
    o.metadata = "P2PHANDSHAKE";
    o.local_server_name = "127.0.0.1";
    if (te_engine_create(&o, &e)) {
        puts(te_errmsg());
        return 1;
    }
    te_engine_destroy(e);
    te_options_fini(&o);
    printf("version %s\n", te_version());
    return 0;
}
"""

# What a configuration of CMake's own adds to a cache, beside what begins with our name.
EXPECTED = re.compile(r"((TE|te|transfer_engine|CMAKE|PKG_CONFIG|FIND_PACKAGE_MESSAGE_DETAILS|_GNUInstallDirs|pkgcfg_lib_TE|"
                      r"__pkg_config_\w+_TE)_|prefix_result$)")


def run(*args, cwd=None):
    got = subprocess.run(args, capture_output=True, text=True, timeout=1500, check=False, cwd=cwd)
    return got.returncode, re.sub(r"\s+", " ", got.stdout + got.stderr), got.stdout + got.stderr


def read(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as f:
        return f.read()


def rows(name):
    """The words of one list of aliases.cmake."""
    body = re.search(rf"set\({name}\n(.*?)\)\n\n", read("cmake", "aliases.cmake"), re.S).group(1)
    return re.findall(r'"([^"]*)"|(\S+)', body)


class Switches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="te-switches-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.script = os.path.join(self.folder, "script.cmake")
        with open(self.script, "w", encoding="utf-8") as f:
            f.write(SCRIPT)

    def given(self, *switches):
        """(exit status, text, the cache) of a configuration with these."""
        rc, text, lines = run("cmake", *switches, "-P", self.script)
        return rc, text, dict(re.findall(r"^cache (\w+)=(.*)$", lines, re.M))

    def test_every_alias_sets_its_switch(self):
        words = [a or b for a, b in rows("te_aliases")]
        self.assertGreater(len(words), 20)
        for old, new in zip(words[::2], words[1::2]):
            for value in ("ON", "OFF"):
                rc, text, cache = self.given(f"-D{old}={value}")
                self.assertEqual(rc, 0, text)
                self.assertEqual(cache[new], value)
                self.assertNotIn(old, cache)
                self.assertIn(f"-D{old}={value} is taken as -D{new}={value}", text)

    def test_every_switch_of_mooncake_is_known(self):
        """Given a value, each is taken as ours, said to change nothing, or refused with the reason; never passed over."""
        for name in MOONCAKE:
            value = "/opt/sdk" if name.endswith(("_ROOT", "_DIR", "_LIBS")) else "ON"
            rc, text, cache = self.given(f"-D{name}={value}")
            if rc:
                self.assertRegex(text, rf"-D{name}={value}: .* Leave it out\.")
                self.assertNotIn("there is no such switch", text)
            else:
                self.assertRegex(text, rf"-D{name}={value} (is taken as -DTE_\w+={value}|changes nothing: .)")
                self.assertNotIn(name, cache)
            rc, text, _ = self.given(f"-D{name}=OFF")
            self.assertEqual(rc, 0, text)

    def test_what_is_always_there_is_said(self):
        for name in ("WITH_TE", "USE_MLX5DV", "MACA_ROOT", "MACA_RUNTIME_LIBS", "DTK_ROOT", "COREX_LIB_DIR", "USE_HYGON", "USE_COREX"):
            self.assertIn(f"-D{name}=ON changes nothing: ", self.given(f"-D{name}=ON")[1])

    def test_what_no_build_has_is_refused_by_name(self):
        for name in ("USE_CXL", "USE_UBSHMEM", "USE_ASCEND_DIRECT", "USE_MLU", "USE_TENT", "USE_EFA", "WITH_STORE",
                     "STORE_USE_K8S_LEASE", "WITH_EP", "NEUWARE_ROOT", "USE_LRU_MASTER", "ENABLE_ASAN"):
            self.assertNotEqual(self.given(f"-D{name}=ON")[0], 0, name)

    def test_a_misspelt_switch_is_refused(self):
        for name in ("USE_RMDA", "WITH_FOO", "BUILD_UNIT_TEST", "MACA_FOO", "TE_USE_RMDA"):
            for value in ("ON", "OFF"):
                rc, text, _ = self.given(f"-D{name}={value}")
                self.assertNotEqual(rc, 0, name)
                self.assertIn("there is no such switch; cmake/options.cmake lists them", text)

    def test_what_is_no_value_is_refused(self):
        for name in ("TE_USE_TCP", "USE_CUDA", "TE_WERROR", "TE_USE_URING", "TE_WHOLE_ARCHIVE"):
            rc, text, _ = self.given(f"-D{name}=maybe")
            self.assertNotEqual(rc, 0, name)
            self.assertRegex(text, r"-DTE_\w+=maybe: it is ON or OFF")
        self.assertIn("-DTE_SANITIZE=adress: it is address,undefined", self.given("-DTE_SANITIZE=adress")[1])
        for given in ("TE_USE_URING=AUTO", "TE_WHOLE_ARCHIVE=AUTO", "TE_USE_TCP=0", "TE_WERROR=yes", "TE_SANITIZE=address,undefined"):
            self.assertEqual(self.given(f"-D{given}")[0], 0, given)

    def test_a_part_of_what_is_left_out_is_refused(self):
        for cuda in ("USE_CUDA", "TE_USE_CUDA"):
            for part in ("USE_MNNVL", "TE_USE_INTRA_NVLINK"):
                rc, text, _ = self.given(f"-D{cuda}=OFF", f"-D{part}=ON")
                self.assertNotEqual(rc, 0, part)
                self.assertRegex(text, r"-DTE_USE_\w+=ON: it needs TE_USE_CUDA, which is OFF")
                self.assertEqual(self.given(f"-D{cuda}=OFF", f"-D{part}=OFF")[0], 0)
            self.assertEqual(self.given(f"-D{cuda}=OFF")[0], 0)
        for whole, part in (("CUDA", "COREX"), ("HIP", "HYGON")):
            for switch in (f"USE_{whole}", f"TE_USE_{whole}"):
                rc, text, _ = self.given(f"-D{switch}=OFF", f"-DUSE_{part}=ON")
                self.assertNotEqual(rc, 0, part)
                self.assertIn(f"-DUSE_{part}=ON: it needs TE_USE_{whole}, which is OFF", text)
                self.assertEqual(self.given(f"-D{switch}=OFF", f"-DUSE_{part}=OFF")[0], 0)
        for whole, part in (("CUDA", "MUSA"), ("HIP", "MACA"), ("HIP", "SUPA")):
            rc, text, _ = self.given(f"-DTE_USE_{whole}=OFF", f"-DTE_USE_{part}=ON")
            self.assertNotEqual(rc, 0, part)
            self.assertIn(f"-DTE_USE_{part}=ON: it needs TE_USE_{whole}, which is OFF", text)

    def test_the_page_names_all(self):
        page = read("docs", "migrating.md")
        words = [a or b for a, b in rows("te_aliases")]
        missing = [w for w in {*words, *MOONCAKE} if f"`{w}`" not in page]
        self.assertEqual(missing, [])

    def test_a_whole_configuration(self):
        rc, text, lines = run("cmake", "-S", ROOT, "-B", os.path.join(self.folder, "build"), "-DUSE_ETCD=OFF",
                              "-DTE_USE_CUDA=OFF", "-DUSE_CXL=OFF", "-DWITH_METRICS=ON")
        self.assertEqual(rc, 0, lines)
        self.assertRegex(text, r"Parts built in: [A-Z_ ]+; left out: ETCD (URING )?CUDA MNNVL INTRA_NVLINK ")
        self.assertNotIn("not used by the project", text)

    def configure_parent(self, *more):
        with open(os.path.join(self.folder, "CMakeLists.txt"), "w", encoding="utf-8") as f:
            f.write(PARENT)
        with open(os.path.join(self.folder, "main.c"), "w", encoding="utf-8") as f:
            f.write(MAIN)
        build = os.path.join(self.folder, "build")
        rc, text, lines = run("cmake", "-S", self.folder, "-B", build, *more)
        self.assertEqual(rc, 0, lines)
        return text, build

    def test_a_parent_is_left_alone(self):
        text, build = self.configure_parent()
        self.assertIn("transfer_engine is te_shared", text)
        self.assertIn("build type '', cached ''", text)
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as f:
            self.assertIn("TE_USE_TCP:BOOL=ON", f.read())
        new = re.findall(r"new: (\S+)", text)
        self.assertIn("TE_USE_TCP", new)
        self.assertEqual([name for name in new if not EXPECTED.match(name)], [])
        # No rule of ours installs anything.
        rc, text, _ = run("cmake", "--install", build, "--prefix", os.path.join(self.folder, "prefix"))
        self.assertEqual(rc, 0, text)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "prefix")))

    def test_a_parent_is_built_and_runs(self):
        _, build = self.configure_parent()
        rc, _, lines = run("cmake", "--build", build, "-j", str(os.cpu_count() or 2), *(
            word for kind in KINDS for word in ("--target", f"user_{kind}")))
        self.assertEqual(rc, 0, lines[-4000:])
        for kind in KINDS:
            rc, text, _ = run(os.path.join(build, f"user_{kind}"))
            self.assertEqual(rc, 0, f"{kind}: {text}")
            self.assertIn("version 0.", text)

    def test_static_where_the_parent_wants_it(self):
        text, _ = self.configure_parent("-DBUILD_SHARED_LIBS=OFF")
        self.assertIn("transfer_engine is te_static", text)


if __name__ == "__main__":
    unittest.main()
