/* SPDX-License-Identifier: Apache-2.0 */
#include "te_segment/registry.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/os.h"
#include "te_segment/record.h"

static int64_t deadline(const struct registry *r)
{
    return tei_deadline_ns(r->conf->metadata_timeout_ms);
}

static int no_memory(void)
{
    return TEI_FAIL(TE_ERR_MEMORY, "no memory for the keys of a segment");
}

int registry_open(struct registry *r, const char *conn, const struct tei_conf *conf)
{
    r->conf = conf;
    return tei_store_open(conn, conf, &r->store);
}

void registry_close(struct registry *r)
{
    tei_store_close(r->store);
}

bool registry_is_name(const struct registry *r, const char *name)
{
    char *prefix = tei_keys_prefix(r->conf), *key = tei_keys_segment(r->conf, name);
    bool is = prefix && key && tei_keys_name(prefix, key);

    free(prefix);
    free(key);
    return is;
}

/* ---- one key */

int registry_get(struct registry *r, char *key, struct tei_bytes *out)
{
    int rc = key ? r->store->ops->get(r->store, key, deadline(r), out, NULL) : no_memory();

    free(key);
    return rc;
}

int registry_put(struct registry *r, char *key, const char *text, size_t len)
{
    const struct tei_store_ops *ops = r->store->ops;
    int rc = key ? ops->put(r->store, key, text, len, 0, deadline(r)) : no_memory();

    if (rc == TE_ERR_EXISTS) {
        rc = ops->del(r->store, key, deadline(r));
        if (!rc)
            rc = ops->put(r->store, key, text, len, 0, deadline(r));
    }
    free(key);
    return rc;
}

int registry_del(struct registry *r, char *key)
{
    int rc = key ? r->store->ops->del(r->store, key, deadline(r)) : no_memory();

    free(key);
    return rc;
}

int registry_where(struct registry *r, const char *name, struct tei_hostport *out)
{
    struct tei_bytes value;
    int rc = registry_get(r, tei_keys_rpc(r->conf, name), &value);

    *out = (struct tei_hostport){0};
    if (rc)
        return rc == TE_ERR_NOT_FOUND ? 0 : rc;
    rc = tei_rpc_meta_decode(&value, name, out);
    out->expected = name;
    tei_bytes_fini(&value);
    return rc;
}

/* ---- one segment */

void entry_fini(struct entry *e)
{
    free(e->name);
    free(e->wrong);
    free(e->silent);
    tei_bytes_fini(&e->text);
    json_decref(e->root);
    tei_segment_put(e->segment);
}

/* Keeps the text of an error that is the entry's; false when memory is out. */
static bool keep_wrong(struct entry *e)
{
    if (!e->wrong)
        e->wrong = strdup(te_errmsg());
    return e->wrong != NULL;
}

/* Of a segment of files. */
static int check_files(struct entry *e)
{
    char why[WHY_MAX];

    if (!e->segment || !e->segment->files)
        return 0;
    e->is_files = record_check(e->root, why);
    if (!e->is_files)
        e->wrong = strdup(why);
    return e->is_files || e->wrong ? 0 : no_memory();
}

/* The entry's engine is found under the name in the descriptor, as te_open() does it. */
static int fill(struct registry *r, const char *name, struct entry *e)
{
    int rc = tei_segment_decode(e->text.data, e->text.len, &tei_segment_unlimited, &e->segment);

    e->name = strdup(name);
    if (!rc) {
        e->root = json_loadb(e->text.data, e->text.len, 0, NULL);
        rc = e->root ? 0 : TE_ERR_MEMORY;
    }
    if (rc == TE_ERR_MEMORY || !e->name || (rc && !keep_wrong(e)))
        return no_memory();
    rc = check_files(e);
    if (rc)
        return rc;
    rc = registry_where(r, e->segment ? e->segment->name : e->name, &e->where);
    if (rc == TE_ERR_JSON)
        return keep_wrong(e) ? 0 : no_memory();
    return rc;
}

int entry_read(struct registry *r, const char *name, struct entry *out)
{
    struct entry e = {0};
    int rc = registry_get(r, tei_keys_segment(r->conf, name), &e.text);

    if (rc)
        return rc;
    rc = fill(r, name, &e);
    if (rc) {
        entry_fini(&e);
        return rc;
    }
    *out = e;
    return 0;
}

/* ---- all segments */

struct names {
    char *prefix;
    char **list;
    size_t n, cap;
};

static void names_fini(struct names *s)
{
    while (s->n)
        free(s->list[--s->n]);
    free(s->list);
    free(s->prefix);
}

static int add_name(void *arg, const char *key)
{
    struct names *s = arg;
    const char *name = tei_keys_name(s->prefix, key);
    size_t cap = s->cap ? s->cap * 2 : 64;

    if (!name)
        return 0;
    if (s->n == s->cap) {
        char **list = reallocarray(s->list, cap, sizeof(char *));

        if (!list)
            return no_memory();
        s->list = list;
        s->cap = cap;
    }
    s->list[s->n] = strdup(name);
    return s->list[s->n++] ? 0 : no_memory();
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A segment that is gone by now is left out; a store may have named one twice. */
static int read_all(struct registry *r, const struct names *s, struct entry *list, size_t *n)
{
    for (size_t i = 0; i < s->n; i++) {
        bool twice = i > 0 && strcmp(s->list[i], s->list[i - 1]) == 0;
        int rc = twice ? TE_ERR_NOT_FOUND : entry_read(r, s->list[i], &list[*n]);

        if (rc && rc != TE_ERR_NOT_FOUND)
            return rc;
        *n += rc == 0;
    }
    return 0;
}

void entries_free(struct entry *list, size_t n)
{
    while (n)
        entry_fini(&list[--n]);
    free(list);
}

int registry_list(struct registry *r, struct entry **out, size_t *n)
{
    struct names s = {.prefix = tei_keys_prefix(r->conf)};
    struct entry *list = NULL;
    size_t read = 0;
    int rc =
        s.prefix ? r->store->ops->list(r->store, s.prefix, deadline(r), add_name, &s) : no_memory();

    if (!rc) {
        if (s.n)
            qsort(s.list, s.n, sizeof(char *), by_name);
        list = calloc(s.n + 1, sizeof *list);
        rc = list ? read_all(r, &s, list, &read) : no_memory();
    }
    names_fini(&s);
    if (rc) {
        entries_free(list, read);
        return rc;
    }
    *out = list;
    *n = read;
    return 0;
}
