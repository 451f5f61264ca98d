/* SPDX-License-Identifier: Apache-2.0 */
/* One text of a segment, for tests that want no more of it. */
#ifndef TE_TESTS_SEGMENT_TEXT_H
#define TE_TESTS_SEGMENT_TEXT_H

#include "model/model.h"

static inline int segment_page(const struct tei_encode *e, size_t from, size_t max_bytes,
                               char **text, size_t *len)
{
    struct tei_segment_text *t;
    int rc = tei_segment_text_new(e, &t);

    if (rc)
        return rc;
    rc = tei_segment_text_page(t, from, max_bytes, text, len);
    tei_segment_text_put(t);
    return rc;
}

/* All of it. */
static inline int segment_text(const struct tei_encode *e, char **text, size_t *len)
{
    return segment_page(e, 0, 0, text, len);
}

#endif
