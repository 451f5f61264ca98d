/* SPDX-License-Identifier: Apache-2.0 */
/* registry.h - what a metadata server keeps of segments, key by key, without an engine. */
#ifndef TE_SEGMENT_REGISTRY_H
#define TE_SEGMENT_REGISTRY_H

#include "meta/meta.h"

struct registry {
    const struct tei_conf *conf;
    struct tei_store *store;
};

/* Whether the engine of a segment answers now: nobody has asked, or there is none to ask. */
enum answer { ANSWER_NONE, ANSWER_YES, ANSWER_NO };

/* One segment as stored. */
struct entry {
    char *name; /* as te_open() takes it */
    struct tei_bytes text;
    struct tei_segment *segment; /* NULL: the descriptor is malformed */
    json_t *root;                /* all of it; NULL: likewise */
    struct tei_hostport where;   /* of its engine; port 0: there is none */
    char *wrong;                 /* what is malformed, NULL if nothing is */
    bool is_files;               /* a descriptor of files, which is not malformed */
    enum answer answer;
    char *silent; /* why its engine does not answer; NULL: not known, or it does */
};

/* Functions return te_err with te_errmsg() set. */
int registry_open(struct registry *r, const char *conn, const struct tei_conf *conf);
void registry_close(struct registry *r);

/* Whether that is the name of a segment: "x", or "kind/x" with a kind other than rpc_meta. */
bool registry_is_name(const struct registry *r, const char *name);

/* These take over `key`, which may be NULL when memory was out. TE_ERR_NOT_FOUND: no such key. */
int registry_get(struct registry *r, char *key, struct tei_bytes *out);
/* Replaces a key also where the server does not let that be done in one step. */
int registry_put(struct registry *r, char *key, const char *text, size_t len);
int registry_del(struct registry *r, char *key);

/* Where the engine of that name answers, by its rpc_meta key; port 0 if it has none. It lives no longer than `name`. */
int registry_where(struct registry *r, const char *name, struct tei_hostport *out);

int entry_read(struct registry *r, const char *name, struct entry *out);
void entry_fini(struct entry *e);

/* All segments of the cluster, sorted by name; to be given to entries_free(). */
int registry_list(struct registry *r, struct entry **out, size_t *n);
void entries_free(struct entry *list, size_t n);

#endif
