/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch_memory.c - memory for batches.
 *
 * A program makes a batch for every few hundred requests. Fresh memory of that size comes from the
 * kernel page by page, which takes longer than all the rest of a submit. So an engine keeps what
 * was freed, in classes of powers of two, up to SPARE_TASKS tasks (16 MiB); a batch that is larger
 * than that comes and goes as a whole, in huge pages where the system has them.
 *
 * Tasks are not zeroed: a submit writes each before it counts as claimed.
 */
#include "core/batch_memory.h"
#include "base/os.h"
#include "core/batch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SPARE_TASKS (TEI_ASAN ? 0 : (size_t)1 << (TEI_SPARE_CLASSES - 1))

static size_t class_of(size_t tasks)
{
    size_t k = 0;

    while ((size_t)1 << k < tasks)
        k++;
    return k;
}

static struct batch *take_spare(struct batch_memory *m, size_t room)
{
    struct batch **first = &m->spare[class_of(room)], *b;

    pthread_mutex_lock(&m->lock);
    b = *first;
    if (b) {
        *first = b->next;
        m->tasks -= room;
    }
    pthread_mutex_unlock(&m->lock);
    return b;
}

static struct batch *fresh(size_t room)
{
    size_t bytes = sizeof(struct batch) + room * sizeof(struct task);
    size_t huge = tei_huge_page(), align = bytes < huge ? _Alignof(struct batch) : huge;
    struct batch *b = aligned_alloc(align, (bytes + align - 1) & ~(align - 1));

    /* Where it is refused, pages are small. */
    if (b && align == huge)
        (void)madvise(b, bytes, MADV_HUGEPAGE);
    return b;
}

struct batch *tei_batch_memory_get(struct batch_memory *m, size_t capacity)
{
    bool large = capacity > SPARE_TASKS;
    size_t room = large ? capacity : (size_t)1 << class_of(capacity);
    struct batch *b = large ? NULL : take_spare(m, room);

    if (!b)
        b = fresh(room);
    if (!b)
        return NULL;
    memset(b, 0, offsetof(struct batch, tasks));
    b->room = room;
    return b;
}

void tei_batch_memory_put(struct batch_memory *m, struct batch *b)
{
    bool keep = false;

    if (b->room <= SPARE_TASKS) {
        pthread_mutex_lock(&m->lock);
        keep = m->tasks + b->room <= SPARE_TASKS;
        if (keep) {
            struct batch **first = &m->spare[class_of(b->room)];

            b->next = *first;
            *first = b;
            m->tasks += b->room;
        }
        pthread_mutex_unlock(&m->lock);
    }
    if (!keep)
        free(b);
}

void tei_batch_memory_init(struct batch_memory *m)
{
    pthread_mutex_init(&m->lock, NULL);
}

void tei_batch_memory_fini(struct batch_memory *m)
{
    for (size_t k = 0; k < TEI_SPARE_CLASSES; k++) {
        while (m->spare[k]) {
            struct batch *b = m->spare[k];

            m->spare[k] = b->next;
            free(b);
        }
    }
    pthread_mutex_destroy(&m->lock);
}
