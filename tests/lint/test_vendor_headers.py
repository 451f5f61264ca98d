#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: optional timeout=1200
"""
src/plat/cuda.h, src/plat/hip.h, src/plat/acl.h and src/transport/nvmeof/cufile.h, which tell the ABIs of drivers
and of cuFile, agree with the vendors' headers.

Those are looked for where packages put them, and in TE_TEST_CUDA_INCLUDE, TE_TEST_CUFILE_INCLUDE,
TE_TEST_HIP_INCLUDE and TE_TEST_ACL_INCLUDE. Without any the test is skipped. NVIDIA's are in the PyPI wheels
nvidia-cuda-runtime-cu12 and nvidia-cufile-cu12, AMD's in the Debian package libamdhip64-dev, Huawei's in the PyPI
wheel torch-npu, which need not be installed: unpacked, TE_TEST_ACL_INCLUDE is torch_npu/include/third_party/acl/inc.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CC = os.environ.get("TE_TEST_CC", "cc")


def folder(variable, header, places):
    """The first of these folders that has the header."""
    for pattern in [os.environ.get(variable, "")] + places:
        for place in sorted(glob.glob(pattern)) if pattern else []:
            if os.path.isfile(os.path.join(place, header)):
                return place
    return None


NVIDIA = (["/usr/local/cuda/include", "/usr/include", "/opt/cuda/include"] +
          [os.path.join(p, "nvidia", "*", "include") for p in sys.path if p])
CUDA = folder("TE_TEST_CUDA_INCLUDE", "cuda.h", NVIDIA)
CUFILE = folder("TE_TEST_CUFILE_INCLUDE", "cufile.h", NVIDIA)
ACL = folder("TE_TEST_ACL_INCLUDE", "acl/acl_rt.h",
             ["/usr/local/Ascend/ascend-toolkit/latest/include"] +
             [os.path.join(p, "torch_npu", "include", "third_party", "acl", "inc") for p in sys.path if p])
HIP = folder("TE_TEST_HIP_INCLUDE", "hip/hip_runtime_api.h", ["/opt/rocm/include", "/usr/include"])


AS_CXX = ["-DERRORS", "-x", "c++", "-std=c++17"]


def messages(name, include, ours, *flags):
    """What the compiler says to tests/lint/vendor/<name>.c, with `ours` in front of the sources."""
    command = [CC, *([] if "-DERRORS" in flags else ["-std=c17"]), "-fsyntax-only", "-D__HIP_PLATFORM_AMD__", "-I", ours, "-I",
               os.path.join(ROOT, "src"), "-isystem", include, *flags,
               os.path.join(ROOT, "tests", "lint", "vendor", name + ".c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


class VendorHeaders(unittest.TestCase):
    def agrees(self, name, include, *more):
        with tempfile.TemporaryDirectory() as nothing:
            for flags in ([], ["-DLAYOUTS"]):
                self.assertEqual(messages(name, include, nothing, *flags, *more), "")

    def is_strict(self, name, include, wrongs, folder_of="plat"):
        """Each of these changes to our header is found."""
        with open(os.path.join(ROOT, "src", folder_of, name + ".h"), encoding="utf-8") as f:
            text = f.read()
        for old, new, flags in wrongs:
            with self.subTest(old), tempfile.TemporaryDirectory() as ours:
                changed, n = re.subn(old, new, text, count=1)
                self.assertEqual(n, 1)
                os.makedirs(os.path.join(ours, folder_of))
                with open(os.path.join(ours, folder_of, name + ".h"), "w", encoding="utf-8") as f:
                    f.write(changed)
                self.assertIn("assert", messages(name, include, ours, *flags))

    @unittest.skipUnless(CUDA, "no cuda.h")
    def test_cuda(self):
        self.agrees("cuda", CUDA)

    @unittest.skipUnless(CUDA, "no cuda.h")
    def test_cuda_is_strict(self):
        self.is_strict("cuda", CUDA, [
            (r"X\(CUDA_ERROR_NOT_READY, 600\)", "X(CUDA_ERROR_NOT_READY, 601)", []),
            (r"X\(cuMemFree_v2, \(CUdeviceptr\)", "X(cuMemFree_v2, (void *)", []),
            (r"unsigned short usage;", "unsigned usage;", ["-DLAYOUTS"]),
            (r"char reserved\[64\]", "char reserved[63]", ["-DLAYOUTS"])])

    @unittest.skipUnless(CUFILE and CUDA, "no cufile.h, which needs cuda.h")
    def test_cufile(self):
        self.agrees("cufile", CUFILE, "-D_GNU_SOURCE", "-isystem", CUDA)

    @unittest.skipUnless(CUFILE and CUDA, "no cufile.h, which needs cuda.h")
    def test_cufile_is_strict(self):
        flags = ["-D_GNU_SOURCE", "-isystem", CUDA]
        self.is_strict("cufile", CUFILE, [
            (r"X\(5008, FILE_UNSUPPORTED", "X(5009, FILE_UNSUPPORTED", flags),
            (r"const void \*ops;", "", flags),
            (r"int cuda;", "long cuda;", flags)], os.path.join("transport", "nvmeof"))

    @unittest.skipUnless(ACL, "no acl/acl_rt.h")
    def test_acl(self):
        self.agrees("acl", ACL)
        with tempfile.TemporaryDirectory() as nothing:
            self.assertEqual(messages("acl", ACL, nothing, *AS_CXX), "")

    @unittest.skipUnless(ACL, "no acl/acl_rt.h")
    def test_acl_is_strict(self):
        self.is_strict("acl", ACL, [
            (r"ACL_ERROR_RT_CONTEXT_NULL, 107002", "ACL_ERROR_RT_CONTEXT_NULL, 107003", AS_CXX),
            (r"X\(ACL_EVENT_SYNC, 1\)", "X(ACL_EVENT_SYNC, 2)", []),
            (r"X\(aclrtFree, \(void \*\)", "X(aclrtFree, (int)", []),
            (r"uint32_t pageSize;", "uint64_t pageSize;", ["-DLAYOUTS"])])

    @unittest.skipUnless(HIP, "no hip/hip_runtime_api.h")
    def test_hip(self):
        self.agrees("hip", HIP)

    @unittest.skipUnless(HIP, "no hip/hip_runtime_api.h")
    def test_hip_is_strict(self):
        self.is_strict("hip", HIP, [
            (r"X\(hipErrorNotReady, 600\)", "X(hipErrorNotReady, 601)", []),
            (r"hipFree, \(void \*\)", "hipFree, (int)", []),
            (r"int isManaged;", "long isManaged;", ["-DLAYOUTS"])])


if __name__ == "__main__":
    if not CUDA and not HIP and not ACL:
        print("neither cuda.h nor hip/hip_runtime_api.h nor acl/acl_rt.h: set TE_TEST_CUDA_INCLUDE, "
              "TE_TEST_HIP_INCLUDE, TE_TEST_ACL_INCLUDE")
        sys.exit(77)
    unittest.main()
