/* SPDX-License-Identifier: Apache-2.0 */
/* value.c - what keys of a store have: below the kinds of stores, which store.c lists. */
#include "meta/meta.h"

#include "base/err.h"

#include <stdlib.h>

void tei_bytes_fini(struct tei_bytes *b)
{
    free(b->data);
    *b = (struct tei_bytes){0};
}

int tei_store_check_size(const struct tei_store *s, const char *key, size_t len)
{
    size_t max = s->conf->metadata_max_value;

    if (len <= max)
        return 0;
    return TEI_FAIL(TE_ERR_TOO_LARGE,
                    "key %s: the value has %zu bytes, more than TE_METADATA_MAX_VALUE (%zu): raise "
                    "it on all engines, or register fewer, larger regions",
                    key, len, max);
}
