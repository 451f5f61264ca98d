/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.h - hash tables: uthash, which ends the process when memory is out, unless it is told not to. So
 * this is the one header that includes it, and TEI_HASH_ADD() the one way to add (make lint). The rest
 * of uthash takes no memory, and is used as it is: HASH_FIND_STR(), HASH_DEL(), HASH_ITER(), ...
 */
#ifndef TEI_HASH_H
#define TEI_HASH_H

#include "base/base.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#ifndef IF_HASH_NONFATAL_OOM
#error "this uthash ends the process when memory is out: 2.1 or later is needed"
#endif

/* A function, since its result must not be left unread. */
static inline __attribute__((warn_unused_result)) bool tei_hash_took(const UT_hash_table *table)
{
    return table != NULL;
}

/*
 * Adds `object`, whose UT_hash_handle is `hh`, under the `len` bytes at `key`, which must stay there
 * while it is in the table. False when memory is out: the table is as it was, and `object` not in it.
 */
#define TEI_HASH_ADD(head, key, len, object)             \
    tei_hash_took(__extension__({                        \
        HASH_ADD_KEYPTR(hh, (head), key, len, (object)); \
        (object)->hh.tbl;                                \
    }))

#endif
