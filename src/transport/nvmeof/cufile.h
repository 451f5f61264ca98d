/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile.h - libcufile.so.0 (GPUDirect Storage), opened at run time: what this library calls of it,
 * and how it is called. Its own header comes with the CUDA toolkit alone;
 * tests/lint/test_vendor_headers.py compares the two where that is installed.
 */
#ifndef TEI_CUFILE_H
#define TEI_CUFILE_H

#include <stddef.h>
#include <sys/types.h>

/* 0, or a number above CUFILE_BASE; what the driver of the GPU said beside it. */
struct cufile_error {
    int err;
    int cuda;
};

#define CUFILE_BASE 5000

/* Numbers that this library minds, and what is wrong, for its texts. */
#define CUFILE_ERRORS(X)                                                          \
    X(5001, NOT_INITIALIZED, "its kernel module, nvidia-fs, is not there")        \
    X(5003, LIMIT, "a property is out of range")                                  \
    X(5004, VERSION, "its kernel module is of another version")                   \
    X(5006, CLOSING, "it is being shut down")                                     \
    X(5007, PLATFORM, "it does not support this host")                            \
    X(5008, FILE_UNSUPPORTED, "it does not support this file or its file system") \
    X(5009, GPU_UNSUPPORTED, "it does not support this GPU")                      \
    X(5010, KERNEL, "its kernel module has failed")                               \
    X(5011, CUDA, "the driver of the GPU has failed")                             \
    X(5012, POINTER, "the address is not the GPU's")                              \
    X(5013, MEMORY_TYPE, "it does not support this sort of memory")               \
    X(5014, POINTER_RANGE, "the range leaves its allocation")                     \
    X(5015, CONTEXT, "the memory belongs to another context")                     \
    X(5016, PINNED_SIZE, "the range is longer than can be pinned")                \
    X(5017, MAPPED_RANGE, "the range is longer than what is mapped")              \
    X(5018, FILE_TYPE, "it does not support this type of file")                   \
    X(5019, FILE_FLAGS, "it does not support how the file was opened")            \
    X(5020, NOT_DIRECT, "the file was not opened for direct I/O")                 \
    X(5022, ARGUMENT, "an argument is wrong")                                     \
    X(5023, MEMORY_KNOWN, "the memory is registered already")                     \
    X(5024, MEMORY_UNKNOWN, "the memory is not registered")                       \
    X(5025, DENIED, "permission is denied")                                       \
    X(5026, ALREADY_OPEN, "it is open already")                                   \
    X(5027, HANDLE_UNKNOWN, "the file is not registered")                         \
    X(5028, HANDLE_KNOWN, "the file is registered already")                       \
    X(5029, NO_GPU, "there is no such GPU")                                       \
    X(5030, INTERNAL, "an internal error")                                        \
    X(5033, SETUP, "its kernel module cannot be set up")                          \
    X(5034, DISABLED, "its configuration forbids it for this file")               \
    X(5036, PINNING, "memory of the GPU cannot be pinned")

#define CUFILE_NUMBER(number, name, text) CUFILE_##name = (number),
enum { CUFILE_ERRORS(CUFILE_NUMBER) };
#undef CUFILE_NUMBER

#define CUFILE_FD 1 /* `type` of a file that is a descriptor */

struct cufile_file {
    int type;
    union {
        int fd;
        void *handle;
    } of;
    const void *ops; /* NULL */
};

/*
 * Member, symbol, arguments. A read or a write gives bytes, -1 with errno, or a negative number of
 * those above; `from` is where registered memory begins, or any memory of a GPU. Older libraries have
 * driver_close by its other name, or not at all: NULL.
 */
#define CUFILE_DRIVER_CLOSE_OLD "cuFileDriverClose"
#define CUFILE_SYMBOLS(X)                                                                      \
    X(driver_open, "cuFileDriverOpen", struct cufile_error, (void))                            \
    X(driver_close, "cuFileDriverClose_v2", struct cufile_error, (void))                       \
    X(handle_register, "cuFileHandleRegister", struct cufile_error,                            \
      (void **handle, struct cufile_file *file))                                               \
    X(handle_deregister, "cuFileHandleDeregister", void, (void *handle))                       \
    X(buf_register, "cuFileBufRegister", struct cufile_error,                                  \
      (const void *from, size_t length, int flags))                                            \
    X(buf_deregister, "cuFileBufDeregister", struct cufile_error, (const void *from))          \
    X(read, "cuFileRead", ssize_t, (void *handle, void *from, size_t n, off_t at, off_t into)) \
    X(write, "cuFileWrite", ssize_t,                                                           \
      (void *handle, const void *from, size_t n, off_t at, off_t into))

struct cufile {
    void *library;
#define CUFILE_MEMBER(member, symbol, type, arguments) type(*member) arguments;
    CUFILE_SYMBOLS(CUFILE_MEMBER)
#undef CUFILE_MEMBER
};

#endif
