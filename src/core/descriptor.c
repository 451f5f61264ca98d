/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptor.c - our own descriptor: its text.
 *
 * Every change of the regions or transports raises its version, under the lock of what changes, so a
 * list and the version read with it belong together and pages of one version fit. The text is made on
 * demand, kept until the version moves on, and pages are cut out of it. Where some memory is for some peers
 * only, each peer's is made anew, with what that peer may reach.
 */
#include "core/descriptor.h"
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

/*
 * The one whose keys the descriptor has at its top level: the most preferred that reaches other
 * hosts.
 */
static struct tei_transport *primary(struct transports *s)
{
    const struct tei_transport_ops *ops;

    for (size_t i = 0; (ops = tei_transport_at(i)); i++) {
        struct tei_transport *t = tei_transports_find(s, ops->name);

        if (t && (t->ops.caps & TEI_CAP_REMOTE))
            return t;
    }
    return NULL;
}

static int fill_buffer(void *arg, const char *protocol, const struct tei_published *b,
                       json_t *object)
{
    struct tei_transport *t = arg;

    if (protocol && strcmp(protocol, t->ops.name) != 0)
        return 0; /* tcp has no keys */
    return t->ops.describe_buffer(t, b->region, b->addr, object);
}

/* What the others add: the ways of this host and into memory of devices, and tcp beside rdma. */
static int describe_companions(struct transports *s, json_t *base,
                               const struct tei_transport *leader)
{
    int rc = 0;

    for (size_t i = 0; !rc && i < s->n; i++) {
        struct tei_transport *t = s->list[i];

        if (t && t != leader && (t->ops.caps & (TEI_CAP_SAME_HOST | TEI_CAP_REMOTE)))
            rc = t->ops.describe(t, base);
    }
    return rc;
}

/* Whether the descriptor tells several protocols beside each other: TE_MULTI_PROTOCOL. */
static bool tells_several(te_engine *e)
{
    bool all = e->conf.multi_protocol;

    for (size_t i = 0; all && i < TEI_PROTOCOLS_TOLD; i++)
        all = tei_transports_find(&e->transports, tei_protocols_told[i]) != NULL;
    return all;
}

static json_t *protocol_of(const struct tei_encode *enc, const struct tei_transport *t)
{
    json_t *list;

    if (!enc->n_protocols)
        return json_string(t ? t->ops.name : "none");
    list = json_array();
    for (size_t i = 0; i < enc->n_protocols; i++)
        tei_json_append(&list, json_string(enc->protocols[i]));
    return list;
}

/* Protocol and its keys. Without a remote transport there is nothing for other hosts. */
static int fill_base(te_engine *e, const struct tei_encode *enc, struct tei_transport *t)
{
    json_t *base = enc->base;
    int rc;

    if (json_object_set_new(base, "protocol", protocol_of(enc, t)))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the descriptor");
    rc = t ? t->ops.describe(t, base) : 0;
    return rc ? rc : describe_companions(&e->transports, base, t);
}

/* Both locks are held. */
static int encode(te_engine *e, struct tei_transport *t, struct tei_encode *enc,
                  struct tei_segment_text **out)
{
    int rc;

    enc->base = json_object();
    if (!enc->base)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the descriptor");
    /* Buffers without keys of their own are written several times as fast. */
    enc->fill = t && (t->has & TEI_HAS_BUFFER_KEYS) ? fill_buffer : NULL;
    enc->arg = t;
    if (tells_several(e)) {
        enc->protocols = tei_protocols_told;
        enc->n_protocols = TEI_PROTOCOLS_TOLD;
    }
    rc = fill_base(e, enc, t);
    if (!rc)
        rc = tei_segment_text_new(enc, out);
    json_decref(enc->base);
    return rc;
}

/*
 * Regions stay as they are until the text is made, since a transport may look into them. *for_all: none of them was for
 * some peers only.
 */
static int make_text(te_engine *e, const struct reader *by, struct tei_segment_text **out,
                     bool *for_all)
{
    struct tei_published *list;
    struct tei_transport *t;
    struct tei_encode enc = {.name = e->name, .incarnation = e->incarnation};
    int rc;

    pthread_rwlock_rdlock(&e->transports.lock);
    pthread_rwlock_rdlock(&e->regions.lock);
    t = primary(&e->transports);
    *for_all = !atomic_load_explicit(&e->regions.n_allowed, memory_order_relaxed);
    rc = tei_region_list(&e->regions, by, t ? t->ops.buffer_max(t) : UINT64_MAX, &list,
                         &enc.n_buffers, &enc.version);
    if (!rc) {
        enc.buffers = list;
        rc = encode(e, t, &enc, out);
        free(list);
    }
    pthread_rwlock_unlock(&e->regions.lock);
    pthread_rwlock_unlock(&e->transports.lock);
    return rc;
}

/*
 * The text of this version, held for the caller. It is made by one thread at a time, so those that
 * come while it is made find it made.
 */
static int current_text(te_engine *e, struct tei_segment_text **out, bool *for_all)
{
    uint64_t version = atomic_load_explicit(&e->descriptor.version, memory_order_acquire);
    int rc = 0;

    pthread_mutex_lock(&e->descriptor.lock);
    if (!e->descriptor.text || tei_segment_text_version(e->descriptor.text) < version) {
        tei_segment_text_put(e->descriptor.text);
        e->descriptor.text = NULL;
        rc = make_text(e, NULL, &e->descriptor.text, &e->descriptor.for_all);
    }
    if (!rc)
        *out = tei_segment_text_get(e->descriptor.text);
    *for_all = e->descriptor.for_all;
    pthread_mutex_unlock(&e->descriptor.lock);
    return rc;
}

int tei_descriptor_text(te_engine *e, const struct reader *by, size_t from, size_t max_bytes,
                        char **text, size_t *len)
{
    struct tei_segment_text *t = NULL;
    bool for_all;
    int rc = current_text(e, &t, &for_all);

    if (!rc && by && !for_all) {
        tei_segment_text_put(t);
        rc = make_text(e, by, &t, &for_all);
    }
    if (rc)
        return rc;
    rc = tei_segment_text_page(t, from, max_bytes, text, len);
    tei_segment_text_put(t);
    return rc;
}

/* ------------------------------------------------------------------------------------- lifetime */

void tei_descriptor_init(struct descriptor *d)
{
    atomic_init(&d->version, 1);
    pthread_mutex_init(&d->lock, NULL);
}

void tei_descriptor_fini(struct descriptor *d)
{
    tei_segment_text_put(d->text);
    pthread_mutex_destroy(&d->lock);
}
