/* SPDX-License-Identifier: Apache-2.0 */
/*
 * efa.c - an empty libefa.so.1, for the same reason as mlx5.c.
 */
#include <errno.h>
#include <stddef.h>

void *efadv_create_qp_ex(void);
int efadv_query_device(void);

void *efadv_create_qp_ex(void)
{
    errno = EOPNOTSUPP;
    return NULL;
}

int efadv_query_device(void)
{
    return EOPNOTSUPP;
}
