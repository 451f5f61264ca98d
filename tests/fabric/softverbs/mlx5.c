/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mlx5.c - an empty libmlx5.so.1: perftest is linked with the real one, which needs more of
 * libibverbs than softverbs has. Nothing in here works; perftest calls it only when asked to.
 */
#include <errno.h>
#include <stddef.h>

#define NO_POINTER(name)    \
    void *name(void);       \
    void *name(void)        \
    {                       \
        errno = EOPNOTSUPP; \
        return NULL;        \
    }
#define NO_NUMBER(name)    \
    int name(void);        \
    int name(void)         \
    {                      \
        return EOPNOTSUPP; \
    }

NO_POINTER(mlx5dv_create_qp)
NO_POINTER(mlx5dv_open_device)
NO_POINTER(mlx5dv_create_mkey)
NO_POINTER(mlx5dv_qp_ex_from_ibv_qp_ex)
NO_POINTER(mlx5dv_dek_create)
NO_POINTER(mlx5dv_reg_dmabuf_mr)
NO_NUMBER(mlx5dv_query_device)
NO_NUMBER(mlx5dv_devx_general_cmd)
NO_NUMBER(mlx5dv_destroy_mkey)
NO_NUMBER(mlx5dv_dek_destroy)
NO_NUMBER(mlx5dv_crypto_login)
