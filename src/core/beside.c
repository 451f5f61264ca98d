/* SPDX-License-Identifier: Apache-2.0 */
/* beside.c - what few requests have. */
#include "core/beside.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

int tei_beside_set(struct batch *b, enum beside_kind kind, const void *item, size_t size, size_t n)
{
    char *all = atomic_load_explicit(&b->beside[kind], memory_order_relaxed);
    size_t first = atomic_load_explicit(&b->claimed, memory_order_relaxed);

    if (!all && !item)
        return 0;
    if (!all) {
        all = calloc(b->capacity, size);
        if (!all)
            return TEI_FAIL(TE_ERR_MEMORY, "no memory for what %zu requests have beside them",
                            b->capacity);
        /* Release: see tei_beside_of(). */
        atomic_store_explicit(&b->beside[kind], all, memory_order_release);
    }
    for (size_t i = first; i < first + n; i++) {
        if (item)
            memcpy(all + i * size, item, size);
        else
            memset(all + i * size, 0, size);
    }
    return 0;
}

void tei_beside_free(struct batch *b)
{
    for (int i = 0; i < BESIDE_KINDS; i++)
        free(atomic_load_explicit(&b->beside[i], memory_order_relaxed));
}
