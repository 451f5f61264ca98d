/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/metadata.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/auth.h"
#include "base/err.h"
#include "base/os.h"
#include "meta/meta.h"

#define PROBE "te_info" /* a name that no engine has; its absence is as good an answer */

struct counts {
    const char *prefix;
    char *rpc;
    int engines, segments;
};

static int count_key(void *arg, const char *key)
{
    struct counts *n = arg;

    n->engines += strncmp(key, n->rpc, strlen(n->rpc)) == 0;
    n->segments += tei_keys_name(n->prefix, key) != NULL;
    return 0;
}

/* How long one read takes, in milliseconds; negative when it fails, with te_errmsg() set. */
static double time_read(struct tei_store *s, const struct tei_conf *conf)
{
    char *key = tei_keys_rpc(conf, PROBE);
    struct tei_bytes value = {0};
    int64_t begin = tei_now_ns(), end;
    int rc = key ? s->ops->get(s, key, tei_deadline_ns(conf->metadata_timeout_ms), &value, NULL)
                 : TE_ERR_MEMORY;

    end = tei_now_ns();
    tei_bytes_fini(&value);
    free(key);
    return rc && rc != TE_ERR_NOT_FOUND ? -1 : (double)(end - begin) / 1e6;
}

static void count_keys(struct tei_store *s, const struct tei_conf *conf, json_t *found)
{
    char *prefix = tei_keys_prefix(conf);
    struct counts n = {.prefix = prefix, .rpc = tei_keys_rpc(conf, "")};

    if (prefix && n.rpc &&
        s->ops->list(s, prefix, tei_deadline_ns(conf->metadata_timeout_ms), count_key, &n) == 0) {
        json_object_set_new(found, "engines", json_integer(n.engines));
        json_object_set_new(found, "segments", json_integer(n.segments));
    } else {
        json_object_set_new(found, "note", json_string(te_errmsg()));
    }
    free(prefix);
    free(n.rpc);
}

json_t *metadata_ask(const char *conn, const struct tei_conf *conf)
{
    json_t *found = json_object();
    struct tei_store *s = NULL;
    double ms = tei_store_open(conn, conf, &s) == 0 ? time_read(s, conf) : -1;

    json_object_set_new(found, "answers", json_boolean(ms >= 0));
    if (ms >= 0) {
        json_object_set_new(found, "ms", json_real(ms));
        count_keys(s, conf, found);
    } else {
        json_object_set_new(found, "why", json_string(te_errmsg()));
    }
    tei_store_close(s);
    return found;
}

/* Frees the key. */
static int read_key(struct tei_store *s, const struct tei_conf *conf, char *key,
                    struct tei_bytes *out)
{
    int rc = key ? s->ops->get(s, key, tei_deadline_ns(conf->metadata_timeout_ms), out, NULL)
                 : TEI_FAIL(TE_ERR_MEMORY, "no memory for a key");

    free(key);
    return rc;
}

static int ask_owner(struct tei_store *s, const struct tei_conf *conf,
                     const struct tei_segment *seg, struct tei_hostport *where)
{
    struct tei_bytes value = {0};
    struct tei_auth *auth = NULL;
    int rc = read_key(s, conf, tei_keys_rpc(conf, seg->name), &value);

    if (!rc)
        rc = tei_rpc_meta_decode(&value, seg->name, where);
    where->expected = seg->name;
    if (!rc)
        rc = tei_auth_open(conf, tei_random_u64(), &auth);
    if (!rc)
        rc = tei_rpc_ask_owner(auth, where, seg,
                               tei_deadline_ns((int64_t)conf->handshake_connect_timeout_s * 1000));
    where->expected = NULL; /* the segment is not the caller's */
    tei_auth_close(auth);
    tei_bytes_fini(&value);
    return rc;
}

int metadata_ask_engine(const char *conn, const struct tei_conf *conf, const char *segment,
                        struct tei_hostport *where)
{
    struct tei_bytes value = {0};
    struct tei_segment *seg = NULL;
    struct tei_store *s = NULL;
    int rc = tei_store_open(conn, conf, &s);

    if (!rc)
        rc = read_key(s, conf, tei_keys_segment(conf, segment + strspn(segment, "/")), &value);
    if (!rc)
        rc = tei_segment_decode(value.data, value.len, &tei_segment_unlimited, &seg);
    if (!rc && !seg->files)
        rc = ask_owner(s, conf, seg, where);
    tei_segment_put(seg);
    tei_bytes_fini(&value);
    tei_store_close(s);
    return rc == TE_ERR_NOT_FOUND ? 0 : rc;
}

void metadata_print(const char *conn, const json_t *found)
{
    const json_t *engines = json_object_get(found, "engines"),
                 *note = json_object_get(found, "note");
    const char *at = strrchr(conn, '@'), *scheme = strstr(conn, "://");

    /* What is before the '@' may hold a password. */
    printf("Metadata server\n  %.*s%s: ",
           at && scheme && scheme < at ? (int)(scheme - conn) + 3 : 0, conn, at ? at + 1 : conn);
    if (!json_is_true(json_object_get(found, "answers"))) {
        printf("cannot be asked: %s\n", json_string_value(json_object_get(found, "why")));
        return;
    }
    printf("answers in %.2f ms", json_real_value(json_object_get(found, "ms")));
    if (engines)
        printf("; engines: %d, segments: %d (te_segment list shows which of them answer)",
               (int)json_integer_value(engines),
               (int)json_integer_value(json_object_get(found, "segments")));
    printf("\n");
    if (note)
        printf("  %s\n", json_string_value(note));
}
