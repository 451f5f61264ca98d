/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.c - the list of transports, and the ops that stand in for those a transport leaves out.
 *
 * Only this file expands the list. Tests compile it a second time with TEI_TRANSPORTS_DEF naming a
 * list of their own.
 */
#include "transport/transport.h"

#include "base/err.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef TEI_TRANSPORTS_DEF
#define TEI_TRANSPORTS_DEF "transport/transports.def"
#endif

#define TEI_TRANSPORT(name) extern const struct tei_transport_ops tei_##name##_ops;
#define TEI_ASKS(option, member, name)
#include TEI_TRANSPORTS_DEF
#undef TEI_TRANSPORT

static const struct tei_transport_ops *const table[] = {
#define TEI_TRANSPORT(name) &tei_##name##_ops,
#include TEI_TRANSPORTS_DEF
#undef TEI_TRANSPORT
#undef TEI_ASKS
};

static const struct {
    const char *option;
    size_t member; /* of struct tei_conf */
    const char *name;
} asks[] = {
#define TEI_TRANSPORT(name)
#define TEI_ASKS(option, member, name) {#option, offsetof(struct tei_conf, member), #name},
#include TEI_TRANSPORTS_DEF
#undef TEI_TRANSPORT
#undef TEI_ASKS
};

/* ---------------------------------------------------------------------------------- defaults */

static int no_describe(struct tei_transport *t, json_t *root)
{
    (void)t;
    (void)root;
    return 0;
}

static int no_attach(struct tei_transport *t, struct tei_attach *a, const struct tei_segment *s,
                     const struct tei_hostport *where)
{
    (void)t;
    (void)a;
    (void)s;
    (void)where;
    return TE_ERR_UNSUPPORTED;
}

static void no_detach(struct tei_transport *t, struct tei_attach *a)
{
    (void)t;
    (void)a;
}

static bool always(const struct tei_conf *conf, char *why, size_t n)
{
    (void)conf;
    (void)why;
    (void)n;
    return true;
}

static void no_why_not(struct tei_transport *t, const struct tei_attach *a, const te_request *r,
                       char *why, size_t n)
{
    (void)t;
    (void)a;
    (void)r;
    snprintf(why, n, "cannot carry this request");
}

static bool no_holds(struct tei_transport *t, const struct tei_attach *a, const te_request *r)
{
    (void)t;
    (void)a;
    (void)r;
    return false;
}

static int no_region(struct tei_transport *t, struct tei_region *r)
{
    (void)t;
    (void)r;
    return 0;
}

static int no_buffer_keys(struct tei_transport *t, const struct tei_region *r, uint64_t addr,
                          json_t *object)
{
    (void)t;
    (void)r;
    (void)addr;
    (void)object;
    return 0;
}

static uint64_t any_length(struct tei_transport *t)
{
    (void)t;
    return UINT64_MAX;
}

static void no_handshake(struct tei_transport *t, struct tei_rpc_call *call, const char *body,
                         size_t len)
{
    (void)body;
    (void)len;
    t->host->answer(t->host, call, "{}", 2);
}

static bool no_poll(struct tei_transport *t)
{
    (void)t;
    return false;
}

static bool no_drive(struct tei_transport *t, const struct tei_drive *d)
{
    (void)t;
    (void)d;
    return false;
}

static void no_cancel(struct tei_transport *t, const void *owner)
{
    (void)t;
    (void)owner;
}

static void no_warm(struct tei_transport *t, struct tei_attach *a, struct tei_warmth *w)
{
    (void)t;
    (void)a;
    (void)w;
}

static void no_stats(struct tei_transport *t, struct te_stats *s)
{
    (void)t;
    (void)s;
}

static int no_links(struct tei_transport *t, json_t *nics)
{
    (void)t;
    (void)nics;
    return 0;
}

static void no_nics(struct tei_transport *t, struct tei_nic_table *out)
{
    (void)t;
    (void)out;
}

/* The merged table: ops where it has a member, the default elsewhere. */
static void overlay(struct tei_transport_ops *out, const struct tei_transport_ops *ops)
{
    *out = *ops;
#define DEFAULT(member, fn) \
    if (!out->member)       \
    out->member = (fn)
    DEFAULT(describe, no_describe);
    DEFAULT(attach, no_attach);
    DEFAULT(detach, no_detach);
    DEFAULT(probe, always);
    DEFAULT(why_not, no_why_not);
    DEFAULT(holds, no_holds);
    DEFAULT(describe_buffer, no_buffer_keys);
    DEFAULT(buffer_max, any_length);
    DEFAULT(handshake, no_handshake);
    DEFAULT(region_add, no_region);
    DEFAULT(region_del, no_region);
    DEFAULT(poll, no_poll);
    DEFAULT(drive, no_drive);
    DEFAULT(cancel, no_cancel);
    DEFAULT(peer_gone, no_detach);
    DEFAULT(warm, no_warm);
    DEFAULT(stats, no_stats);
    DEFAULT(links, no_links);
    DEFAULT(nics, no_nics);
#undef DEFAULT
}

static unsigned has_of(const struct tei_transport_ops *ops)
{
    return (ops->poll ? TEI_HAS_POLL : 0U) | (ops->drive ? TEI_HAS_DRIVE : 0U) |
           (ops->handshake ? TEI_HAS_HANDSHAKE : 0U) |
           (ops->describe_buffer ? TEI_HAS_BUFFER_KEYS : 0U) | (ops->settle ? TEI_HAS_SETTLE : 0U);
}

/* One line per member, so that the one that is missing is named. */
static void check_mandatory(const struct tei_transport_ops *ops)
{
    bool to_peers = ops->caps & (TEI_CAP_REMOTE | TEI_CAP_SAME_HOST);
    bool to_files = ops->caps & TEI_CAP_FILE;

    (void)ops;
    (void)to_peers;
    (void)to_files;
    assert(ops->name);
    assert(ops->abi == TEI_TRANSPORT_ABI);
    assert(to_peers || to_files || (ops->caps & TEI_CAP_LOCAL_ONLY));
    assert(ops->mem_kinds & TEI_MEM_BIT(TEI_MEM_HOST));
    assert(ops->target_kinds);
    assert(ops->size >= sizeof(struct tei_transport));
    assert(ops->work_size >= sizeof(struct tei_work));
    assert(ops->attach_size >= sizeof(struct tei_attach));
    assert(ops->open);
    assert(ops->score);
    assert(ops->post);
    assert(ops->close);
    assert(ops->stop);
    assert(ops->fini);
    assert(!to_peers || ops->describe);
    assert(!(to_peers || to_files) || ops->attach);
    assert(!to_files || ops->allow);
    assert(!to_files || ops->admit);
    assert(!ops->settle || ops->is_same);
    assert(!ops->settle || ops->holds);
    assert(!(ops->caps & TEI_CAP_LEASES) || ops->lease_del);
}

/* ----------------------------------------------------------------------------------- the list */

const struct tei_transport_ops *tei_transport_at(size_t i)
{
    return i < TEI_ARRAY_LEN(table) ? table[i] : NULL;
}

const struct tei_transport_ops *tei_transport_find(const char *name)
{
    for (size_t i = 0; i < TEI_ARRAY_LEN(table); i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    return NULL;
}

const char *tei_transport_asked(const struct tei_conf *conf, const char **option)
{
    for (size_t i = 0; i < TEI_ARRAY_LEN(asks); i++) {
        *option = asks[i].option;
        if (*(const bool *)((const char *)conf + asks[i].member))
            return asks[i].name;
    }
    return NULL;
}

/* ---------------------------------------------------------------------------------- instances */

/* 0 for one that is not in the table, as in a test that has made its own. */
static size_t place_of(const struct tei_transport_ops *ops)
{
    for (size_t i = 0; i < TEI_ARRAY_LEN(table); i++)
        if (table[i] == ops)
            return i;
    return 0;
}

int tei_transport_open(const struct tei_transport_ops *ops, struct tei_host *host, size_t index,
                       struct tei_transport **out)
{
    struct tei_transport *t;
    int rc;

    check_mandatory(ops);
    t = calloc(1, ops->size);
    if (!t)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for transport %s", ops->name);
    overlay(&t->ops, ops);
    t->host = host;
    t->index = index;
    t->place = place_of(ops);
    t->has = has_of(ops);
    rc = t->ops.open(t);
    if (rc) {
        tei_transport_destroy(t);
        return rc;
    }
    *out = t;
    return 0;
}

void tei_transport_destroy(struct tei_transport *t)
{
    if (!t)
        return;
    t->ops.fini(t);
    free(t);
}
