/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_fetch.c - a descriptor straight from its engine.
 *
 * A request asks for the page that begins with buffer `from`. An engine that knows no pages ignores
 * that and sends everything, which is told by the missing page key. Else the pages are put together
 * until their total is reached. An engine may change its descriptor between two pages; then what
 * was collected is of no use and it begins again, RESTARTS_MAX times at most, as an engine that
 * registers memory all the time would never be read otherwise, and its peer should be told.
 *
 * Time: each request has MC_HANDSHAKE_CONNECT_TIMEOUT, reading its answer included; all together have
 * TOTAL_FACTOR times as much. Memory: all pages together may have TE_DESCRIPTOR_MAX_BYTES, and as
 * many buffers as TE_DESCRIPTOR_MAX_BUFFERS, which the first page tells.
 */
#include "meta/directory.h"

#include "auth/auth.h"
#include "base/err.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>

#define RESTARTS_MAX 5
#define TOTAL_FACTOR 12
#define FRAME_EXTRA  2 /* type byte and newline count as part of a message */

struct fetch {
    const struct tei_hostport *where;
    const struct tei_conf *conf;
    int64_t deadline_ns;
    struct tei_segment *whole; /* of the pages so far */
    size_t bytes;              /* of their texts */
    struct tei_page last;
};

static void forget_pages(struct fetch *f)
{
    tei_segment_put(f->whole);
    f->whole = NULL;
    f->bytes = 0;
}

static int64_t request_deadline(const struct fetch *f)
{
    int64_t mine = tei_deadline_ns((int64_t)f->conf->handshake_connect_timeout_s * 1000);

    return mine < f->deadline_ns ? mine : f->deadline_ns;
}

static size_t next_buffer(const struct fetch *f)
{
    return f->whole ? f->whole->n_listed : 0;
}

static int request_page(struct fetch *f, struct tei_segment **out)
{
    size_t max_len = f->conf->handshake_max_length;
    char *body = tei_page_request_encode(next_buffer(f), max_len - FRAME_EXTRA);
    struct tei_segment_limits limits =
        tei_directory_limits(f->conf, request_deadline(f), f->bytes, next_buffer(f));
    struct tei_ticket *ticket;
    struct tei_bytes reply;
    int rc;

    if (!body)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to ask %s for its segment", f->where->host);
    rc = tei_rpc_request_ticket(f->conf->identity, f->where, TEI_RPC_METADATA, body, strlen(body),
                                max_len, limits.deadline_ns, &reply, &ticket);
    free(body);
    if (rc)
        return rc;
    rc = tei_segment_decode(reply.data, reply.len, &limits, out);
    if (rc)
        tei_ticket_put(ticket);
    else
        (*out)->ticket = ticket;
    f->bytes += reply.len;
    tei_bytes_fini(&reply);
    return rc;
}

/* What the page says of itself: TE_ERR_STALE when it does not go with those before it. */
static int check_page(struct fetch *f, const struct tei_segment *s)
{
    const size_t from = next_buffer(f);
    int rc = tei_segment_page(s, &f->last);

    if (rc)
        return rc;
    if (f->whole && (s->version != f->whole->version || s->incarnation != f->whole->incarnation))
        return TE_ERR_STALE;
    if (f->last.total > f->conf->descriptor_max_buffers)
        return TEI_FAIL(TE_ERR_TOO_LARGE,
                        "the segment of %s has %zu buffers, more than the %zu of "
                        "TE_DESCRIPTOR_MAX_BUFFERS; raise it if that is right",
                        f->where->host, f->last.total, f->conf->descriptor_max_buffers);
    if (f->last.total && (f->last.from != from || !f->last.count))
        return TEI_FAIL(TE_ERR_PROTOCOL,
                        "%s sends buffers from %zu for its segment, asked from %zu", f->where->host,
                        f->last.from, from);
    return 0;
}

static int add_page(struct fetch *f)
{
    struct tei_segment *s;
    int rc = request_page(f, &s);

    if (rc)
        return rc;
    rc = check_page(f, s);
    if (!rc && !f->whole) {
        f->whole = s;
        return 0;
    }
    if (!rc)
        rc = tei_segment_append(f->whole, s);
    tei_segment_put(s);
    return rc;
}

/* Collects one version. */
static int collect(struct fetch *f)
{
    int rc;

    do {
        rc = add_page(f);
    } while (!rc && f->whole->n_listed < f->last.total);
    return rc ? rc : tei_segment_complete(f->whole);
}

struct tei_segment_limits tei_directory_limits(const struct tei_conf *conf, int64_t deadline_ns,
                                               size_t bytes, size_t buffers)
{
    return (struct tei_segment_limits){
        .max_bytes = conf->descriptor_max_bytes - tei_min(bytes, conf->descriptor_max_bytes),
        .max_buffers =
            conf->descriptor_max_buffers - tei_min(buffers, conf->descriptor_max_buffers),
        .deadline_ns = deadline_ns};
}

int tei_directory_expect(const struct tei_conf *conf, const char *name, struct tei_hostport *where)
{
    where->expected = tei_auth_name(conf->identity, name);
    return where->expected ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for the name %s", name);
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
        rc = collect(&f);
    }
    if (!rc) {
        *out = f.whole;
        return tei_directory_check(where->host, false, out);
    }
    forget_pages(&f);
    if (rc == TE_ERR_STALE)
        return TEI_FAIL(
            TE_ERR_METADATA,
            "the segment of %s port %u changes faster than its pages can be read; register "
            "in batches, or raise MC_HANDSHAKE_MAX_LENGTH",
            where->host, (unsigned)where->port);
    return rc;
}
