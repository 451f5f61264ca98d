/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metadata.c - descriptors and keys as text, for programs that look at them or keep some of their own.
 *
 * The keys are read and written over a connection made for the call: who asks for them does so seldom,
 * and needs no engine for it.
 */
#include "core/core.h"
#include "core/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- segments */

static int own_descriptor(te_engine *e, char *buf, size_t n)
{
    size_t len;
    char *text;
    int rc = tei_descriptor_text(e, NULL, 0, 0, &text, &len);

    if (rc)
        return rc;
    rc = tei_text_give(text, buf, n);
    free(text);
    return rc;
}

/* The keys of a buffer. Of those of tcp address and length are kept; the name is that of the segment. */
static json_t *buffer_json(const struct tei_segment *s, const struct tei_buffer *b)
{
    json_t *kept = tei_segment_buffer(s, b->index);

    return kept ? kept
                : json_pack("{sI sI ss}", "addr", (json_int_t)b->addr, "length",
                            (json_int_t)b->length, "name", s->name);
}

/* Without what is kept elsewhere: the list of buffers, and who may do what with them. */
static json_t *head_json(const struct tei_segment *s)
{
    json_t *root = tei_json_clone(s->root);

    json_object_del(json_object_get(root, "te"), "rights");
    return root;
}

/* Of several protocols all that are listed. NULL when memory is out. */
static json_t *list_json(const struct tei_segment *s)
{
    size_t n = s->several ? s->n_listed : s->n_buffers;
    json_t *list = json_array();

    for (size_t i = 0; list && i < n; i++)
        tei_json_append(&list,
                        s->several ? tei_segment_buffer(s, i) : buffer_json(s, &s->buffers[i]));
    return list;
}

/* NULL when memory is out. */
static char *descriptor_text(const struct tei_segment *s)
{
    json_t *root = head_json(s);
    char *text;

    tei_json_set(&root, "buffers", list_json(s));
    text = tei_json_text(root, NULL);
    json_decref(root);
    return text;
}

int te_segment_json(te_engine *e, te_segment seg, char *buf, size_t n)
{
    struct view *v;
    char *text;
    int rc = tei_engine_check(e);

    if (rc)
        return rc;
    if (seg == TE_LOCAL_SEGMENT)
        return own_descriptor(e, buf, n);
    v = tei_view_get(&e->peers, seg);
    if (!v)
        return TEI_FAIL(TE_ERR_NOT_FOUND, "segment %d is not open; te_open() gives its id",
                        (int)seg);
    text = descriptor_text(v->seg);
    tei_view_put(v, 1);
    rc = text ? tei_text_give(text, buf, n) : TEI_FAIL(TE_ERR_MEMORY, "no memory for a descriptor");
    free(text);
    return rc;
}

/* ------------------------------------------------------------------------------------------ keys */

/* One key of one server, for one call. */
struct access {
    struct tei_conf conf;
    struct tei_store *store;
    char *key;
    int64_t deadline_ns;
};

static int open_store(struct access *a, const te_options *o, const char *key)
{
    char *prefix = tei_keys_prefix(&a->conf);
    int rc = prefix && asprintf(&a->key, "%s%s", prefix, key) >= 0
                 ? 0
                 : TEI_FAIL(TE_ERR_MEMORY, "no memory for the key %.64s", key);

    free(prefix);
    a->deadline_ns = tei_deadline_ns(a->conf.metadata_timeout_ms);
    return rc ? rc : tei_store_open(o->metadata, &a->conf, &a->store);
}

static void end_access(struct access *a)
{
    if (!a)
        return;
    tei_store_close(a->store);
    free(a->key);
    free(a);
}

static int begin_access(const te_options *o, const char *key, struct access **out)
{
    struct access *a;
    te_options known;
    int rc = tei_options_take(o, &known);

    if (rc)
        return rc;
    if (!key || !key[0])
        return TEI_FAIL(TE_ERR_INVALID, "the key is empty: give \"ram/NAME\" or \"rpc_meta/NAME\"");
    if (strcmp(known.metadata, "P2PHANDSHAKE") == 0)
        return TEI_FAIL(TE_ERR_UNSUPPORTED,
                        "P2PHANDSHAKE has no keys: te_options.metadata must name a server");
    a = calloc(1, sizeof(*a));
    if (!a)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a metadata store");
    rc = tei_conf_load(known.set, &a->conf);
    tei_conf_tell_unused();
    if (!rc)
        rc = open_store(a, &known, key);
    if (rc)
        end_access(a);
    else
        *out = a;
    return rc;
}

int te_metadata_get(const te_options *o, const char *key, char *buf, size_t n)
{
    struct tei_bytes value = {0};
    struct access *a = NULL;
    int rc = begin_access(o, key, &a);

    if (rc)
        return rc;
    rc = a->store->ops->get(a->store, a->key, a->deadline_ns, &value, NULL);
    if (!rc)
        rc = tei_text_give(value.data, buf, n);
    tei_bytes_fini(&value);
    end_access(a);
    return rc;
}

/* Servers that refuse to overwrite take the value once the old one is gone. */
static int replace(const struct access *a, const char *value)
{
    const struct tei_store_ops *ops = a->store->ops;
    size_t len = strlen(value);
    int rc = ops->put(a->store, a->key, value, len, 0, a->deadline_ns);

    if (rc == TE_ERR_EXISTS)
        rc = ops->del(a->store, a->key, a->deadline_ns);
    else
        return rc;
    return rc ? rc : ops->put(a->store, a->key, value, len, 0, a->deadline_ns);
}

int te_metadata_put(const te_options *o, const char *key, const char *value)
{
    struct access *a = NULL;
    int rc = begin_access(o, key, &a);

    if (rc)
        return rc;
    rc = value ? replace(a, value) : a->store->ops->del(a->store, a->key, a->deadline_ns);
    end_access(a);
    return rc;
}
