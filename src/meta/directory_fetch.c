/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_fetch.c - a descriptor straight from its engine.
 *
 * A request asks for the page that begins with buffer `from`. An engine that knows no pages ignores
 * that and sends everything, which is told by the missing page key. Else the pages are collected
 * until their total is reached. An engine may change its descriptor between two pages; then what
 * was collected is of no use and it begins again, RESTARTS_MAX times at most, as an engine that
 * registers memory all the time would never be read otherwise, and its peer should be told.
 *
 * Time: each request has MC_HANDSHAKE_CONNECT_TIMEOUT, all together have TOTAL_FACTOR times as
 * much. Memory: PAGES_MAX pages of at most MC_HANDSHAKE_MAX_LENGTH bytes.
 */
#include "meta/directory.h"

#include "base/err.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>

#define RESTARTS_MAX 5
#define TOTAL_FACTOR 12
#define PAGES_MAX    4096
#define FRAME_EXTRA  2 /* type byte and newline count as part of a message */

struct fetch {
    const struct tei_hostport *where;
    const struct tei_conf *conf;
    int64_t deadline_ns;
    struct tei_segment **pages;
    size_t n, cap;
    size_t next; /* first buffer that is not in pages yet */
    struct tei_page last;
};

static void forget_pages(struct fetch *f)
{
    while (f->n)
        tei_segment_put(f->pages[--f->n]);
    f->next = 0;
}

static int64_t request_deadline(const struct fetch *f)
{
    int64_t mine = tei_deadline_ns((int64_t)f->conf->handshake_connect_timeout_s * 1000);

    return mine < f->deadline_ns ? mine : f->deadline_ns;
}

static int request_page(struct fetch *f, struct tei_segment **out)
{
    size_t max_len = f->conf->handshake_max_length;
    char *body = tei_page_request_encode(f->next, max_len - FRAME_EXTRA);
    struct tei_bytes reply;
    int rc;

    if (!body)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to ask %s for its segment", f->where->host);
    rc = tei_rpc_request(f->where, TEI_RPC_METADATA, body, strlen(body), max_len,
                         request_deadline(f), &reply);
    free(body);
    if (rc)
        return rc;
    rc = tei_segment_decode(reply.data, reply.len, out);
    tei_bytes_fini(&reply);
    return rc;
}

static int make_room(struct fetch *f)
{
    size_t cap = f->cap ? f->cap * 2 : 8;
    struct tei_segment **pages;

    if (f->n < f->cap)
        return 0;
    if (f->n >= PAGES_MAX)
        return TEI_FAIL(TE_ERR_TOO_LARGE,
                        "the segment of %s has more than %d pages; raise MC_HANDSHAKE_MAX_LENGTH",
                        f->where->host, PAGES_MAX);
    pages = reallocarray(f->pages, cap, sizeof(*pages));
    if (!pages)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for page %zu of the segment of %s", f->n,
                        f->where->host);
    f->pages = pages;
    f->cap = cap;
    return 0;
}

/* TE_ERR_STALE when the page does not go with those before it. */
static int add_page(struct fetch *f)
{
    const struct tei_segment *first;
    struct tei_segment *s;
    int rc = make_room(f);

    if (!rc)
        rc = request_page(f, &s);
    if (rc)
        return rc;
    f->pages[f->n++] = s;
    rc = tei_segment_page(s, &f->last);
    if (rc)
        return rc;
    first = f->pages[0];
    if (s->version != first->version || s->incarnation != first->incarnation)
        return TE_ERR_STALE;
    if (f->last.total && (f->last.from != f->next || !f->last.count))
        return TEI_FAIL(TE_ERR_PROTOCOL,
                        "%s sends buffers from %zu for its segment, asked from %zu", f->where->host,
                        f->last.from, f->next);
    f->next += f->last.count;
    return 0;
}

/* Collects one version. */
static int collect(struct fetch *f, struct tei_segment **out)
{
    int rc;

    do {
        rc = add_page(f);
    } while (!rc && f->next < f->last.total);
    if (rc)
        return rc;
    if (f->n > 1)
        return tei_segment_join(f->pages, f->n, out);
    *out = tei_segment_get(f->pages[0]);
    return 0;
}

int tei_directory_check(const char *name, bool files, struct tei_segment **s)
{
    if (files || !(*s)->files)
        return 0;
    tei_segment_put(*s);
    *s = NULL;
    return TEI_FAIL(TE_ERR_METADATA,
                    "segment '%s' says that it is made of files, as only nvmeof/NAME can be", name);
}

int tei_directory_fetch(const struct tei_hostport *where, const struct tei_conf *conf,
                        struct tei_segment **out)
{
    int64_t total_ms = (int64_t)conf->handshake_connect_timeout_s * 1000 * TOTAL_FACTOR;
    struct fetch f = {.where = where, .conf = conf, .deadline_ns = tei_deadline_ns(total_ms)};
    int rc = TE_ERR_STALE;

    for (int i = 0; i <= RESTARTS_MAX && rc == TE_ERR_STALE; i++) {
        forget_pages(&f);
        rc = collect(&f, out);
    }
    forget_pages(&f);
    free(f.pages);
    if (!rc)
        rc = tei_directory_check(where->host, false, out);
    if (rc == TE_ERR_STALE)
        return TEI_FAIL(
            TE_ERR_METADATA,
            "the segment of %s port %u changes faster than its pages can be read; register "
            "in batches, or raise MC_HANDSHAKE_MAX_LENGTH",
            where->host, (unsigned)where->port);
    return rc;
}
