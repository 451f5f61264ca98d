/* SPDX-License-Identifier: Apache-2.0 */
/* batch_memory.h - memory for batches, kept when they are freed. */
#ifndef TEI_BATCH_MEMORY_H
#define TEI_BATCH_MEMORY_H

#include <pthread.h>
#include <stddef.h>

#define TEI_SPARE_CLASSES 18

struct batch;

struct batch_memory {
    pthread_mutex_t lock;
    struct batch *spare[TEI_SPARE_CLASSES]; /* by size */
    size_t tasks;                           /* that there is room for in all of them */
};

void tei_batch_memory_init(struct batch_memory *m);
void tei_batch_memory_fini(struct batch_memory *m);
/* Memory for a batch: its head is zeroed, its tasks are not. NULL when memory is out. */
struct batch *tei_batch_memory_get(struct batch_memory *m, size_t capacity);
void tei_batch_memory_put(struct batch_memory *m, struct batch *b);

#endif
