/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For LD_PRELOAD into a program of another origin: a queue pair that is to try seven times again does so
 * six times. SoftRoCE takes seven for "without end", a NIC for seven; so with SoftRoCE
 * such a program never hears that its peer is gone.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#define WITHOUT_END 7

typedef int modify_fn(struct ibv_qp *, struct ibv_qp_attr *, int);

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    /* By its name: the library may be one that only a module of Python has loaded. */
    void *library = dlopen("libibverbs.so.1", RTLD_LAZY);
    struct ibv_qp_attr finite = *attr;
    modify_fn *modify = NULL;

    if (library)
        *(void **)&modify = dlsym(library, "ibv_modify_qp");
    if (!modify)
        abort();
    if ((mask & IBV_QP_RETRY_CNT) && finite.retry_cnt == WITHOUT_END)
        finite.retry_cnt = WITHOUT_END - 1;
    return modify(qp, &finite, mask);
}
