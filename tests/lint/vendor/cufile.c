/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles src/transport/nvmeof/cufile.h against NVIDIA's cufile.h. */
#include <stddef.h>
#include <sys/types.h>

#include "transport/nvmeof/cufile.h"

#include <cufile.h>

#define SIZE(a, b) _Static_assert(sizeof(a) == sizeof(b), #a)
#define AT(a, m, b, n)                                                                             \
    _Static_assert(offsetof(a, m) == offsetof(b, n) && sizeof(((a *)0)->m) == sizeof(((b *)0)->n), \
                   #m)
#define NUMBER(a, b) _Static_assert((int)(a) == (int)(b), #a);
#define TYPE(a, b)   _Static_assert(__builtin_types_compatible_p(__typeof__(a), __typeof__(b)), #b)

SIZE(struct cufile_error, CUfileError_t);
AT(struct cufile_error, err, CUfileError_t, err);
AT(struct cufile_error, cuda, CUfileError_t, cu_err);
SIZE(struct cufile_file, CUfileDescr_t);
AT(struct cufile_file, type, CUfileDescr_t, type);
AT(struct cufile_file, of.fd, CUfileDescr_t, handle.fd);
AT(struct cufile_file, ops, CUfileDescr_t, fs_ops);
NUMBER(CUFILE_FD, CU_FILE_HANDLE_TYPE_OPAQUE_FD)
NUMBER(CUFILE_BASE, CUFILEOP_BASE_ERR)

/* Names of their own for structs keep the other prototypes from being compared as a whole. */
static struct cufile ours;
TYPE(*ours.read, cuFileRead);
TYPE(*ours.write, cuFileWrite);
TYPE(*ours.handle_deregister, cuFileHandleDeregister);
TYPE(CUfileError_t(void), cuFileDriverOpen);
TYPE(CUfileError_t(void), cuFileDriverClose_v2);
TYPE(CUfileError_t(CUfileHandle_t *, CUfileDescr_t *), cuFileHandleRegister);
TYPE(CUfileError_t(const void *, size_t, int), cuFileBufRegister);
TYPE(CUfileError_t(const void *), cuFileBufDeregister);

NUMBER(CUFILE_NOT_INITIALIZED, CU_FILE_DRIVER_NOT_INITIALIZED)
NUMBER(CUFILE_LIMIT, CU_FILE_DRIVER_UNSUPPORTED_LIMIT)
NUMBER(CUFILE_VERSION, CU_FILE_DRIVER_VERSION_MISMATCH)
NUMBER(CUFILE_CLOSING, CU_FILE_DRIVER_CLOSING)
NUMBER(CUFILE_PLATFORM, CU_FILE_PLATFORM_NOT_SUPPORTED)
NUMBER(CUFILE_FILE_UNSUPPORTED, CU_FILE_IO_NOT_SUPPORTED)
NUMBER(CUFILE_GPU_UNSUPPORTED, CU_FILE_DEVICE_NOT_SUPPORTED)
NUMBER(CUFILE_KERNEL, CU_FILE_NVFS_DRIVER_ERROR)
NUMBER(CUFILE_CUDA, CU_FILE_CUDA_DRIVER_ERROR)
NUMBER(CUFILE_POINTER, CU_FILE_CUDA_POINTER_INVALID)
NUMBER(CUFILE_MEMORY_TYPE, CU_FILE_CUDA_MEMORY_TYPE_INVALID)
NUMBER(CUFILE_POINTER_RANGE, CU_FILE_CUDA_POINTER_RANGE_ERROR)
NUMBER(CUFILE_CONTEXT, CU_FILE_CUDA_CONTEXT_MISMATCH)
NUMBER(CUFILE_PINNED_SIZE, CU_FILE_INVALID_MAPPING_SIZE)
NUMBER(CUFILE_MAPPED_RANGE, CU_FILE_INVALID_MAPPING_RANGE)
NUMBER(CUFILE_FILE_TYPE, CU_FILE_INVALID_FILE_TYPE)
NUMBER(CUFILE_FILE_FLAGS, CU_FILE_INVALID_FILE_OPEN_FLAG)
NUMBER(CUFILE_NOT_DIRECT, CU_FILE_DIO_NOT_SET)
NUMBER(CUFILE_ARGUMENT, CU_FILE_INVALID_VALUE)
NUMBER(CUFILE_MEMORY_KNOWN, CU_FILE_MEMORY_ALREADY_REGISTERED)
NUMBER(CUFILE_MEMORY_UNKNOWN, CU_FILE_MEMORY_NOT_REGISTERED)
NUMBER(CUFILE_DENIED, CU_FILE_PERMISSION_DENIED)
NUMBER(CUFILE_ALREADY_OPEN, CU_FILE_DRIVER_ALREADY_OPEN)
NUMBER(CUFILE_HANDLE_UNKNOWN, CU_FILE_HANDLE_NOT_REGISTERED)
NUMBER(CUFILE_HANDLE_KNOWN, CU_FILE_HANDLE_ALREADY_REGISTERED)
NUMBER(CUFILE_NO_GPU, CU_FILE_DEVICE_NOT_FOUND)
NUMBER(CUFILE_INTERNAL, CU_FILE_INTERNAL_ERROR)
NUMBER(CUFILE_SETUP, CU_FILE_NVFS_SETUP_ERROR)
NUMBER(CUFILE_DISABLED, CU_FILE_IO_DISABLED)
NUMBER(CUFILE_PINNING, CU_FILE_GPU_MEMORY_PINNING_FAILED)
