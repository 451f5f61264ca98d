/* SPDX-License-Identifier: Apache-2.0 */
/* traceparent.h - the trace context of W3C Trace Context, which ties a request to the span that has made it. */
#ifndef TEI_TRACEPARENT_H
#define TEI_TRACEPARENT_H

#include "base/base.h"

#include <assert.h>

#define TEI_TRACEPARENT_LEN  26 /* bytes on the wire */
#define TEI_TRACEPARENT_TEXT 56 /* its text, with the NUL */

/* As it is on the wire. */
struct tei_traceparent {
    uint8_t version; /* 0 */
    uint8_t trace[16], parent[8];
    uint8_t flags; /* bit 0: the trace is recorded */
};
static_assert(sizeof(struct tei_traceparent) == TEI_TRACEPARENT_LEN, "nothing is padded");

/*
 * Reads the value of the header `traceparent`. What a later version adds behind the flags is left out. NULL:
 * it is one; else what is wrong with it, static text.
 */
const char *tei_traceparent_read(const char *text, struct tei_traceparent *out);
/* Reads one that came over the wire; false: it is none. Bytes behind it are left out. */
bool tei_traceparent_take(const uint8_t *bytes, size_t n, struct tei_traceparent *out);
/* Whether neither id is all zeros. */
bool tei_traceparent_is_good(const struct tei_traceparent *t);
/* Returns buf. */
const char *tei_traceparent_write(const struct tei_traceparent *t, char buf[TEI_TRACEPARENT_TEXT]);
/* Whether both are the same; NULL is the same as NULL. */
bool tei_traceparent_same(const struct tei_traceparent *a, const struct tei_traceparent *b);

#endif
