/* SPDX-License-Identifier: Apache-2.0 */
/*
 * beside.h - what few requests have, and a task has no room for: it lies beside the tasks of a batch, which has room
 * for one of a kind for each from the first te_submit() on that gives any.
 */
#ifndef TEI_BESIDE_H
#define TEI_BESIDE_H

#include "core/batch.h"

/*
 * The next `n` tasks of the batch have a copy of *item, `size` bytes and the same for all of a kind; NULL: zeros. The
 * submit lock is held, and they were not cut yet. TE_ERR_MEMORY.
 */
int tei_beside_set(struct batch *b, enum beside_kind kind, const void *item, size_t size, size_t n);
void tei_beside_free(struct batch *b);

/* That of a task, for as long as the batch lives; zeros if it was given none, NULL if no task of the batch was. */
static inline const void *tei_beside_of(const struct task *t, enum beside_kind kind, size_t size)
{
    /* Acquire: the threads that post a task again have not allocated this. */
    const char *all = atomic_load_explicit(&t->batch->beside[kind], memory_order_acquire);

    return all ? all + (size_t)(t - t->batch->tasks) * size : NULL;
}

#endif
