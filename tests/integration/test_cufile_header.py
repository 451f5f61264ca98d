#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: optional parallel
"""What src/transport/nvmeof/cufile.h says of cuFile is what its own header says, where that is installed: under
TE_TEST_CUDA_INCLUDE (folders, with colons between), a CUDA toolkit, or the wheels nvidia-cufile and nvidia-cuda-runtime."""

import glob
import os
import subprocess
import sys
import tempfile

SAME = r"""
#include <stddef.h>
#include <sys/types.h>
#include "transport/nvmeof/cufile.h"
#include <cufile.h>

#define SIZE(a, b) _Static_assert(sizeof(a) == sizeof(b), #a)
#define AT(a, m, b, n) \
    _Static_assert(offsetof(a, m) == offsetof(b, n) && sizeof(((a *)0)->m) == sizeof(((b *)0)->n), #m)
#define NUMBER(a, b) _Static_assert((int)(a) == (int)(b), #a)
#define TYPE(a, b) _Static_assert(__builtin_types_compatible_p(__typeof__(a), __typeof__(b)), #b)

SIZE(struct cufile_error, CUfileError_t);
AT(struct cufile_error, err, CUfileError_t, err);
AT(struct cufile_error, cuda, CUfileError_t, cu_err);
SIZE(struct cufile_file, CUfileDescr_t);
AT(struct cufile_file, type, CUfileDescr_t, type);
AT(struct cufile_file, of.fd, CUfileDescr_t, handle.fd);
AT(struct cufile_file, ops, CUfileDescr_t, fs_ops);
NUMBER(CUFILE_FD, CU_FILE_HANDLE_TYPE_OPAQUE_FD);
NUMBER(CUFILE_BASE, CUFILEOP_BASE_ERR);

static struct cufile ours;
TYPE(*ours.read, cuFileRead);
TYPE(*ours.write, cuFileWrite);
TYPE(*ours.handle_deregister, cuFileHandleDeregister);
/* The others differ in the names of structs alone. */
static __attribute__((unused)) void calls(const void *memory)
{
    CUfileError_t (*open)(void) = cuFileDriverOpen, (*close)(void) = cuFileDriverClose_v2;
    CUfileError_t (*add)(CUfileHandle_t *, CUfileDescr_t *) = cuFileHandleRegister;
    CUfileError_t (*add_memory)(const void *, size_t, int) = cuFileBufRegister;
    CUfileError_t (*del_memory)(const void *) = cuFileBufDeregister;

    (void)open, (void)close, (void)add, (void)add_memory, (void)del_memory, (void)memory, (void)ours;
}
"""

# Our name, theirs without CU_FILE_.
NUMBERS = """
NOT_INITIALIZED DRIVER_NOT_INITIALIZED, LIMIT DRIVER_UNSUPPORTED_LIMIT, VERSION DRIVER_VERSION_MISMATCH,
CLOSING DRIVER_CLOSING, PLATFORM PLATFORM_NOT_SUPPORTED, FILE_UNSUPPORTED IO_NOT_SUPPORTED,
GPU_UNSUPPORTED DEVICE_NOT_SUPPORTED, KERNEL NVFS_DRIVER_ERROR, CUDA CUDA_DRIVER_ERROR,
POINTER CUDA_POINTER_INVALID, MEMORY_TYPE CUDA_MEMORY_TYPE_INVALID, POINTER_RANGE CUDA_POINTER_RANGE_ERROR,
CONTEXT CUDA_CONTEXT_MISMATCH, PINNED_SIZE INVALID_MAPPING_SIZE, MAPPED_RANGE INVALID_MAPPING_RANGE,
FILE_TYPE INVALID_FILE_TYPE, FILE_FLAGS INVALID_FILE_OPEN_FLAG, NOT_DIRECT DIO_NOT_SET, ARGUMENT INVALID_VALUE,
MEMORY_KNOWN MEMORY_ALREADY_REGISTERED, MEMORY_UNKNOWN MEMORY_NOT_REGISTERED, DENIED PERMISSION_DENIED,
ALREADY_OPEN DRIVER_ALREADY_OPEN, HANDLE_UNKNOWN HANDLE_NOT_REGISTERED, HANDLE_KNOWN HANDLE_ALREADY_REGISTERED,
NO_GPU DEVICE_NOT_FOUND, INTERNAL INTERNAL_ERROR, SETUP NVFS_SETUP_ERROR, DISABLED IO_DISABLED,
PINNING GPU_MEMORY_PINNING_FAILED
"""


def folders():
    """Where the headers may be."""
    named = os.environ.get("TE_TEST_CUDA_INCLUDE", "")
    found = [d for d in named.split(":") if d]
    for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if root:
            found.append(os.path.join(root, "include"))
    for site in sys.path:
        found += glob.glob(os.path.join(site, "nvidia", "cu*", "include"))
    return found


def main():
    include = folders()
    for header in ("cufile.h", "cuda.h"):
        if not any(os.path.exists(os.path.join(d, header)) for d in include):
            print(f"{header} is not installed here")
            return 77
    rows = [pair.split() for pair in NUMBERS.split(",")]
    source = SAME + "".join(f"NUMBER(CUFILE_{ours}, CU_FILE_{theirs});\n" for ours, theirs in rows)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "same.c")
        with open(path, "w", encoding="utf-8") as out:
            out.write(source)
        command = [os.environ.get("TE_TEST_CC", "cc"), "-std=gnu17", "-fsyntax-only", "-Wall", "-Werror",
                   "-I" + os.path.join(os.environ["TE_TEST_SRC"], "src")]
        for d in include:
            command += ["-isystem", d]
        return subprocess.run(command + [path], check=False).returncode


sys.exit(main())
