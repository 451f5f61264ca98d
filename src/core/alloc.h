/* SPDX-License-Identifier: Apache-2.0 */
/* alloc.h - memory of te_alloc(). */
#ifndef TEI_ALLOC_H
#define TEI_ALLOC_H

#include <pthread.h>

struct alloc;

struct allocs {
    pthread_mutex_t lock;
    struct alloc *all; /* by address */
};

void tei_allocs_init(struct allocs *s);
/* Frees what is left. */
void tei_allocs_fini(struct allocs *s);

/* The number in "cuda:1"; TE_ERR_INVALID where there is none, or none that a device can have. */
int tei_location_device(const char *location, int *device);

#endif
