/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hns.c - an empty libhns.so.1, for the same reason as mlx5.c.
 */
#include <errno.h>
#include <stddef.h>

void *hnsdv_create_qp(void);

void *hnsdv_create_qp(void)
{
    errno = EOPNOTSUPP;
    return NULL;
}
