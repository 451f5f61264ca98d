/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_store.c - a metadata server keeps two keys for each engine: where it answers (rpc_meta)
 * and its descriptor (ram).
 *
 * A server may refuse to overwrite a key (it takes a second rpc_meta for a sign of two engines with
 * one name), which an engine that comes back after a crash would run into; so a refused put is
 * tried again after a delete. For the same reason, an engine that leaves deletes its keys only if
 * they still are its own: another may have taken the name meanwhile.
 *
 * Nothing is cached here. An engine that comes back has a new RPC port, and a stale port is exactly
 * what a lookup is for.
 */
#include "meta/directory.h"

#include "auth/auth.h"
#include "base/err.h"
#include "base/os.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define PROBE_MS      500
#define CLASSIC_ADDRS 8
#define NEAR_NS       (5 * TEI_NS_PER_S) /* between two lists for the sake of a wrong name */
#define RPC_META_MAX  4096               /* bytes: a host, a port, and what others may add */

struct store_directory {
    struct tei_directory directory;
    struct tei_store *store;
    char host[TEI_HOST_MAX]; /* of the server, "" if unknown */
    char *own;               /* our name, NULL before own_name() */
    pthread_mutex_t lock;
    char *announced; /* our rpc_meta value, NULL before announce(); under the lock */
    _Atomic bool published;
    _Atomic int64_t near_ns;       /* when names may be listed again */
    struct tei_follower *follower; /* NULL: the store cannot watch, or nobody listens */
};

static struct store_directory *of(struct tei_directory *d)
{
    return tei_container_of(d, struct store_directory, directory);
}

static int64_t deadline_of(struct store_directory *d)
{
    return tei_deadline_ns(d->directory.conf->metadata_timeout_ms);
}

/* ---- keys, malloc'ed; NULL when memory is out */

static char *rpc_key(const struct store_directory *d, const char *name)
{
    return tei_keys_rpc(d->directory.conf, name);
}

static char *segment_key(const struct store_directory *d, const char *name)
{
    return tei_keys_segment(d->directory.conf, name);
}

static int no_memory(const char *name)
{
    return TEI_FAIL(TE_ERR_MEMORY, "no memory for the keys of segment %s", name);
}

/* ---- operations on one key, which may be NULL: no memory */

#define NO_SEGMENT "is not there, is gone, or was published under another MC_METADATA_CLUSTER_ID"
#define NO_ENGINE  "has no engine: it is not up yet, is gone, or uses another MC_METADATA_CLUSTER_ID"

static int look_for(struct store_directory *d, const char *name, const char *key,
                    struct tei_bytes *out, int64_t *revision)
{
    return key ? d->store->ops->get(d->store, key, deadline_of(d), out, revision) : no_memory(name);
}

/* The engine's rpc_meta. That there is none is told as other absent keys are, and not logged. */
static int look_for_rpc(struct store_directory *d, const char *name, struct tei_bytes *out)
{
    char *key = rpc_key(d, name);
    int rc = look_for(d, name, key, out, NULL);

    free(key);
    return rc;
}

static int put_again(struct store_directory *d, const char *key, const char *value, size_t len)
{
    int rc = d->store->ops->del(d->store, key, deadline_of(d));

    if (!rc)
        rc = d->store->ops->put(d->store, key, value, len, d->directory.conf->metadata_ttl_s,
                                deadline_of(d));
    if (rc == TE_ERR_EXISTS)
        rc = TEI_FAIL(TE_ERR_METADATA, "the metadata server refuses key %s: %s", key, te_errmsg());
    else if (!rc)
        TEI_INFO("replaced key %s of an earlier engine", key);
    return rc;
}

/* Takes over the key, as does the next one. */
static int put_key(struct store_directory *d, const char *name, char *key, const char *value,
                   size_t len)
{
    int rc;

    if (!key)
        return no_memory(name);
    rc = d->store->ops->put(d->store, key, value, len, d->directory.conf->metadata_ttl_s,
                            deadline_of(d));
    if (rc == TE_ERR_EXISTS)
        rc = put_again(d, key, value, len);
    free(key);
    return rc;
}

static int delete_key(struct store_directory *d, const char *name, char *key)
{
    int rc;

    if (!key)
        return no_memory(name);
    rc = d->store->ops->del(d->store, key, deadline_of(d));
    free(key);
    return rc;
}

/* ---- where an engine answers */

static char *rpc_meta_encode(const struct tei_hostport *addr)
{
    json_t *j = json_object();
    char *text;

    tei_json_set(&j, "ip_or_host_name", json_string(addr->host));
    tei_json_set(&j, "rpc_port", json_integer(addr->port));
    text = tei_json_text(j, NULL);
    json_decref(j);
    return text;
}

static int rpc_meta_read(const json_t *root, const char *name, struct tei_hostport *out)
{
    const json_t *host = json_object_get(root, "ip_or_host_name");
    const json_t *port = json_object_get(root, "rpc_port");
    size_t n = json_string_length(host);

    if (!json_is_string(host) || !n || n >= sizeof out->host)
        return TEI_FAIL(TE_ERR_JSON, "rpc_meta of %s: key 'ip_or_host_name' is no host", name);
    if (!json_is_integer(port) || json_integer_value(port) < 1 ||
        json_integer_value(port) > UINT16_MAX)
        return TEI_FAIL(TE_ERR_JSON, "rpc_meta of %s: key 'rpc_port' is no port", name);
    memcpy(out->host, json_string_value(host), n + 1);
    out->port = (uint16_t)json_integer_value(port);
    return 0;
}

int tei_rpc_meta_decode(const struct tei_bytes *b, const char *name, struct tei_hostport *out)
{
    json_error_t error;
    json_t *root;
    int rc;

    if (b->len > RPC_META_MAX)
        return TEI_FAIL(TE_ERR_JSON, "rpc_meta of %s: it has %zu bytes, must be at most %d", name,
                        b->len, RPC_META_MAX);
    rc = tei_json_load(b->data, b->len, 0, &root, &error);
    if (rc == TE_ERR_MEMORY)
        return no_memory(name);
    if (rc)
        return TEI_FAIL(rc, "rpc_meta of %s: %s at byte %d", name, error.text, error.position);
    rc = rpc_meta_read(root, name, out);
    json_decref(root);
    return rc;
}

static int store_rpc_addr(struct tei_directory *dir, const char *name, bool fresh,
                          struct tei_hostport *out)
{
    struct store_directory *d = of(dir);
    struct tei_bytes value = {0};
    char *key = rpc_key(d, name);
    int rc = look_for(d, name, key, &value, NULL);

    (void)fresh;
    if (rc == TE_ERR_NOT_FOUND)
        rc = TEI_FAIL(rc, "the metadata server has no key %s: segment %s " NO_ENGINE, key, name);
    if (!rc)
        rc = tei_rpc_meta_decode(&value, name, out);
    if (!rc)
        rc = tei_directory_expect(dir->conf, name, out);
    tei_bytes_fini(&value);
    free(key);
    return rc;
}

/* Keeps what was announced last; takes it over. */
static void keep_announced(struct store_directory *d, char *value)
{
    pthread_mutex_lock(&d->lock);
    free(d->announced);
    d->announced = value;
    pthread_mutex_unlock(&d->lock);
}

static bool same_engine(const char *mine, const struct tei_bytes *theirs, const char *name)
{
    struct tei_bytes own = {.data = (char *)mine, .len = strlen(mine)};
    struct tei_hostport here, there;

    return tei_rpc_meta_decode(&own, name, &here) || tei_rpc_meta_decode(theirs, name, &there) ||
           (here.port == there.port && strcmp(here.host, there.host) == 0);
}

static char *announced_text(struct store_directory *d)
{
    char *text;

    pthread_mutex_lock(&d->lock);
    text = d->announced ? strdup(d->announced) : NULL;
    pthread_mutex_unlock(&d->lock);
    return text;
}

/*
 * Whether the server still names us: TE_ERR_NOT_FOUND, or TE_ERR_EXISTS for another engine of our
 * name. Before announce() there is nothing to ask.
 */
static int check_ours(struct store_directory *d, const char *name)
{
    char *mine = announced_text(d);
    struct tei_bytes value = {0};
    int rc = mine ? look_for_rpc(d, name, &value) : 0;

    if (value.data && !same_engine(mine, &value, name))
        rc = tei_err_keep(TE_ERR_EXISTS, "another engine has taken the name");
    tei_bytes_fini(&value);
    free(mine);
    return rc;
}

/*
 * Whether an engine answers there; a name that would have to be looked up counts as one that does.
 * Quiet: that a dead engine does not answer is no news.
 */
static bool answers(const struct tei_hostport *where)
{
    struct pollfd p = {.events = POLLOUT};
    struct tei_addr a;
    bool yes;

    if (!tei_resolve_numeric(where->host, where->port, &a))
        return true;
    p.fd = tei_connect_start(&a);
    if (p.fd < 0)
        return false;
    yes = poll(&p, 1, PROBE_MS) == 1 && tei_connect_result(p.fd) == 0;
    tei_fd_close(p.fd);
    return yes;
}

/*
 * Two engines of one name cannot both be found; an engine that died has left its name behind. Which
 * it is shows from whether the other one answers.
 */
static void tell_predecessor(const char *name, const struct tei_hostport *there)
{
    if (answers(there))
        TEI_WARN("name %s is that of an engine at %s port %u, which is not found any more from now "
                 "on; give each engine a name of its own",
                 name, there->host, (unsigned)there->port);
    else
        TEI_INFO("name %s was that of an engine at %s port %u, which does not answer", name,
                 there->host, (unsigned)there->port);
}

/* An error only if the server cannot be asked. */
static int look_for_predecessor(struct store_directory *d, const char *name, const char *mine)
{
    struct tei_bytes value = {0};
    struct tei_hostport there;
    int rc = look_for_rpc(d, name, &value);

    if (!rc && !same_engine(mine, &value, name) && tei_rpc_meta_decode(&value, name, &there) == 0)
        tell_predecessor(name, &there);
    tei_bytes_fini(&value);
    return rc == TE_ERR_NOT_FOUND ? 0 : rc;
}

/* Who announces itself for the first time takes the name; who does it again must not take it back. */
static int store_announce(struct tei_directory *dir, const char *name,
                          const struct tei_hostport *addr)
{
    struct store_directory *d = of(dir);
    char *value = rpc_meta_encode(addr), *before = announced_text(d);
    int rc;

    if (!value)
        rc = no_memory(name);
    else if (before)
        rc = check_ours(d, name);
    else
        rc = look_for_predecessor(d, name, value);
    free(before);
    if (!rc || rc == TE_ERR_NOT_FOUND)
        rc = put_key(d, name, rpc_key(d, name), value, strlen(value));
    if (rc)
        free(value);
    else
        keep_announced(d, value);
    return rc;
}

/* ---- the descriptor */

static int store_publish(struct tei_directory *dir, const char *name, const char *text, size_t len)
{
    struct store_directory *d = of(dir);
    int rc = check_ours(d, name);

    if (!rc || rc == TE_ERR_NOT_FOUND)
        rc = put_key(d, name, segment_key(d, name), text, len);
    if (!rc)
        atomic_store_explicit(&d->published, true, memory_order_relaxed);
    return rc;
}

/*
 * A server that cannot be asked is not tried again: this is the way out, and each try may take its
 * whole time.
 */
static int store_withdraw(struct tei_directory *dir, const char *name)
{
    struct store_directory *d = of(dir);
    int rc = check_ours(d, name);

    if (rc == TE_ERR_EXISTS) {
        TEI_WARN("another engine has taken the name %s; its keys stay", name);
        return 0;
    }
    if (!rc)
        rc = delete_key(d, name, rpc_key(d, name));
    if (!rc || rc == TE_ERR_NOT_FOUND)
        rc = delete_key(d, name, segment_key(d, name));
    return rc;
}

/* A store that cannot tell its keys apart is asked first whether they still are ours. */
static int keep_keys(struct store_directory *d, const char *name, const char *const *keys, size_t n)
{
    bool owns = d->store->ops->owns && d->directory.conf->metadata_ttl_s > 0;
    int rc = owns ? 0 : check_ours(d, name);

    if (!rc && (owns || !d->store->ops->owns))
        rc = d->store->ops->keep(d->store, keys, n, d->directory.conf->metadata_ttl_s,
                                 deadline_of(d));
    if (rc != TE_ERR_NOT_FOUND || !owns)
        return rc;
    rc = check_ours(d, name);
    return rc ? rc : TE_ERR_NOT_FOUND;
}

static int store_keep(struct tei_directory *dir, const char *name)
{
    struct store_directory *d = of(dir);
    char *keys[] = {rpc_key(d, name), segment_key(d, name)};
    size_t n = atomic_load_explicit(&d->published, memory_order_relaxed) ? 2 : 1;
    int rc =
        keys[0] && keys[1] ? keep_keys(d, name, (const char *const *)keys, n) : no_memory(name);

    free(keys[0]);
    free(keys[1]);
    return rc;
}

static bool is_away(int rc)
{
    return rc == TE_ERR_METADATA || rc == TE_ERR_TIMEOUT;
}

/* The descriptor that an engine gives of itself, if it is of that name. */
static int fetch_named(struct store_directory *d, const char *name,
                       const struct tei_hostport *where, struct tei_segment **out)
{
    struct tei_segment *s;
    int rc = tei_directory_fetch(where, d->directory.conf, &s);

    if (rc)
        return rc;
    if (strcmp(s->name, name)) {
        rc = TEI_FAIL(TE_ERR_METADATA, "%s port %u answers as segment %s, not %s", where->host,
                      (unsigned)where->port, s->name, name);
        tei_segment_put(s);
        return rc;
    }
    *out = s;
    return 0;
}

/*
 * Asks the engine itself. It tells its state of this moment, and the server is spared; restarts
 * change its port. A server that is away, or has lost its keys, need not be in the way: the engine
 * may be where it was.
 */
static int lookup_engine(struct store_directory *d, const struct tei_segment *old,
                         struct tei_segment **out, struct tei_hostport *where, bool *away)
{
    struct tei_hostport addr;
    int rc = store_rpc_addr(&d->directory, old->name, true, &addr);

    *away = is_away(rc);
    if ((*away || rc == TE_ERR_NOT_FOUND) && where->port) {
        addr = *where;
        rc = 0;
    }
    if (!rc)
        rc = fetch_named(d, old->name, &addr, out);
    if (!rc)
        *where = addr;
    return rc;
}

/*
 * Where the engine of a descriptor answers. Files have none, and a segment without buffers may have
 * been registered before its engine is up: then it answers nowhere, which is "" and port 0.
 */
static int find_engine(struct store_directory *d, const struct tei_segment *s,
                       struct tei_hostport *where)
{
    struct tei_bytes value;
    int rc;

    *where = (struct tei_hostport){0};
    if (s->files)
        return 0;
    if (s->n_listed)
        return store_rpc_addr(&d->directory, s->name, true, where);
    rc = look_for_rpc(d, s->name, &value);
    if (rc)
        return rc == TE_ERR_NOT_FOUND ? 0 : rc;
    rc = tei_rpc_meta_decode(&value, s->name, where);
    if (!rc)
        rc = tei_directory_expect(d->directory.conf, s->name, where);
    tei_bytes_fini(&value);
    return rc;
}

/* The decoder tells what is wrong; this, where. */
static int decode_segment(struct store_directory *d, const char *name, const struct tei_bytes *b,
                          int64_t deadline_ns, struct tei_segment **out)
{
    struct tei_segment_limits limits = tei_directory_limits(d->directory.conf, deadline_ns, 0, 0);
    int rc = tei_segment_decode(b->data, b->len, &limits, out);
    char *key = rc ? segment_key(d, name) : NULL;
    char why[1024];

    if (key) {
        snprintf(why, sizeof why, "key %.400s: %.500s", key, te_errmsg());
        tei_err_keep(rc, why);
    }
    free(key);
    return rc;
}

/* Whether an engine is announced under the name: 0, TE_ERR_NOT_FOUND, or an error of the server. */
static int look_for_engine(struct store_directory *d, const char *name)
{
    struct tei_bytes value;
    int rc = look_for_rpc(d, name, &value);

    if (!rc)
        tei_bytes_fini(&value);
    return rc;
}

/*
 * The record of files of a bare name, for which there is no key `ram`. An engine that is announced may
 * well live: whoever removes its key must not get files in its place.
 */
static int get_files(struct store_directory *d, const char *name, const char *ram,
                     struct tei_bytes *out, int64_t *revision)
{
    char full[TEI_HOSTPORT_MAX + sizeof TEI_KEYS_FILES], *key = NULL;
    int rc = look_for_engine(d, name);

    if (!rc)
        return TEI_FAIL(
            TE_ERR_NOT_FOUND,
            "the metadata server has no key %s, though an engine is announced as %s: it "
            "has not published yet, or its key was removed; files of that name are "
            "opened as " TEI_KEYS_FILES "%s",
            ram, name, name);
    if (rc == TE_ERR_NOT_FOUND &&
        (size_t)snprintf(full, sizeof full, TEI_KEYS_FILES "%s", name) < sizeof full) {
        key = segment_key(d, full);
        rc = look_for(d, name, key, out, revision);
    }
    if (rc == TE_ERR_NOT_FOUND)
        rc = TEI_FAIL(rc,
                      "the metadata server has no key %s: segment %s " NO_SEGMENT
                      "; nor is there one of files, key %s",
                      ram, name, key ? key : "(too long)");
    free(key);
    return rc;
}

static bool lists_cheaply(struct tei_store *s)
{
    return s->ops->lists_cheaply && s->ops->lists_cheaply(s);
}

/*
 * The key of a segment that is not there. Whoever opens it for the first time is told of names near to
 * it, not more often than the server can bear from one who asks all the time.
 */
static int fail_absent(struct store_directory *d, const char *name, const char *key, bool first)
{
    int64_t now = tei_now_ns();
    bool may_list = first && atomic_load_explicit(&d->near_ns, memory_order_relaxed) <= now &&
                    lists_cheaply(d->store);
    bool bare = !strchr(name, '/');
    char near[TEI_DIRECTORY_NEAR_MAX];

    if (may_list)
        atomic_store_explicit(&d->near_ns, now + NEAR_NS, memory_order_relaxed);
    tei_directory_near(d->store, d->directory.conf, d->own ? d->own : "", name, may_list, near);
    return TEI_FAIL(TE_ERR_NOT_FOUND,
                    "the metadata server has no key %s: segment %s " NO_SEGMENT "%s%s%s", key, name,
                    bare ? "; files of that name are opened as " TEI_KEYS_FILES : "",
                    bare ? name : "", near);
}

/* The record of a name. A bare one is an engine's or, which *files tells, that of files. */
static int get_record(struct store_directory *d, const char *name, bool first,
                      struct tei_bytes *out, int64_t *revision, bool *files)
{
    bool may_be_files =
        !strchr(name, '/') && atomic_load_explicit(&d->directory.bare_files, memory_order_relaxed);
    char *key = segment_key(d, name);
    int rc = look_for(d, name, key, out, revision);

    if (rc == TE_ERR_NOT_FOUND && may_be_files) {
        *files = true;
        rc = get_files(d, name, key, out, revision);
    } else if (rc == TE_ERR_NOT_FOUND) {
        rc = fail_absent(d, name, key, first);
    }
    free(key);
    return rc;
}

static int get_segment(struct store_directory *d, const char *name, bool first,
                       struct tei_segment **out, int64_t *revision)
{
    const int64_t deadline_ns = deadline_of(d);
    bool files = tei_keys_is_files(name);
    struct tei_bytes value;
    int rc = get_record(d, name, first, &value, revision, &files);

    if (rc)
        return rc;
    rc = decode_segment(d, name, &value, deadline_ns, out);
    tei_bytes_fini(&value);
    if (!rc && files && !(*out)->files && !strchr(name, '/')) {
        tei_segment_put(*out);
        rc = TEI_FAIL(
            TE_ERR_METADATA,
            "segment '%s': no engine is called so, and the record nvmeof/%s is not of files", name,
            name);
    }
    return rc ? rc : tei_directory_check(name, files, out);
}

/* Whether whatever answers at that host proves nothing, as TE_AUTH_CLASSIC has it. */
static bool is_classic(const struct tei_conf *conf, const struct tei_hostport *where)
{
    struct tei_addr addrs[CLASSIC_ADDRS];
    int n = tei_auth_has_classic(conf->identity)
                ? tei_resolve(where->host, where->port, addrs, CLASSIC_ADDRS)
                : 0;
    bool all = n > 0;

    for (int i = 0; all && i < n; i++)
        all = tei_auth_is_classic(conf->identity, &addrs[i]);
    return all;
}

/*
 * Where engines prove who they are by certificates: whether the record is of the name that was asked for, by which
 * its engine is known from now on.
 */
static int check_record(const char *name, const struct tei_segment *s)
{
    const char *bare = strncmp(name, "ram/", 4) == 0 ? name + 4 : name;

    return s->files || strcmp(bare, s->name) == 0
               ? 0
               : TEI_FAIL(TE_ERR_METADATA,
                          "the record of segment %s is of '%s': with TE_AUTH=mtls it must be of "
                          "that name",
                          name, s->name);
}

/*
 * There its descriptor is not taken from the store, which proves nothing: the engine is asked for it, and its ticket
 * comes along.
 */
static int ask_itself(struct store_directory *d, struct tei_segment **s,
                      const struct tei_hostport *where)
{
    const struct tei_conf *conf = d->directory.conf;
    struct tei_segment *own;
    int rc;

    if ((*s)->files || !where->port || is_classic(conf, where))
        return 0;
    rc = fetch_named(d, (*s)->name, where, &own);
    if (rc)
        return rc;
    tei_segment_put(*s);
    *s = own;
    return 0;
}

static int lookup_store(struct store_directory *d, const char *name, bool first,
                        struct tei_segment **out, struct tei_hostport *where, int64_t *revision)
{
    const bool proves = tei_auth_needs_ticket(d->directory.conf->identity);
    struct tei_segment *s;
    int rc = get_segment(d, name, first, &s, revision);

    if (rc)
        return rc;
    rc = proves ? check_record(name, s) : 0;
    if (!rc)
        rc = find_engine(d, s, where);
    if (!rc && proves)
        rc = ask_itself(d, &s, where);
    if (rc) {
        tei_segment_put(s);
        return rc;
    }
    *out = s;
    return 0;
}

static int store_lookup(struct tei_directory *dir, const char *name, const struct tei_segment *old,
                        struct tei_segment **out, struct tei_hostport *where, int64_t *revision)
{
    struct store_directory *d = of(dir);

    if (revision)
        *revision = 0;
    if (old && old->incarnation) {
        bool away;
        int rc = lookup_engine(d, old, out, where, &away);

        if (!rc || away)
            return rc;
    }
    return lookup_store(d, name, !old, out, where, revision);
}

/* ---- changes */

static int store_listen(struct tei_directory *dir, void (*changed)(void *arg, const char *name),
                        void *arg)
{
    struct store_directory *d = of(dir);

    return d->store->ops->watch ? tei_follower_open(d->store, changed, arg, &d->follower) : 0;
}

static void store_follow(struct tei_directory *dir, const char *name, int64_t revision)
{
    struct store_directory *d = of(dir);

    if (d->follower)
        tei_follower_add(d->follower, name, segment_key(d, name), revision);
}

static void store_forget(struct tei_directory *dir, const char *name)
{
    struct store_directory *d = of(dir);

    if (d->follower)
        tei_follower_drop(d->follower, name);
}

static void store_unlisten(struct tei_directory *dir)
{
    struct store_directory *d = of(dir);

    tei_follower_close(d->follower);
    d->follower = NULL;
}

/* ---- names */

static int store_own_name(struct tei_directory *dir, const char *wanted,
                          const struct tei_hostport *addr, char *out, size_t n)
{
    char host[TEI_HOST_MAX] = "localhost";

    (void)addr;
    if (!wanted || !*wanted) {
        gethostname(host, sizeof host - 1);
        wanted = host;
    }
    if (strchr(wanted, '/'))
        return TEI_FAIL(TE_ERR_INVALID, "local_server_name '%.200s' holds a '/'", wanted);
    if ((size_t)snprintf(out, n, "%s", wanted) >= n)
        return TEI_FAIL(TE_ERR_INVALID, "local_server_name '%.200s' is longer than %zu bytes",
                        wanted, n - 1);
    free(of(dir)->own);
    of(dir)->own = strdup(wanted);
    return of(dir)->own ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for a name");
}

static bool store_route_hint(struct tei_directory *dir, char *host, size_t n)
{
    const struct store_directory *d = of(dir);

    return *d->host && (size_t)snprintf(host, n, "%s", d->host) < n;
}

/*
 * The host of "scheme://user:password@host:port/path", or of the first in a list of them; "" if it
 * cannot be told.
 */
static void read_host(const char *conn, char *out, size_t n)
{
    const char *scheme = strstr(conn, "://"), *start = scheme ? scheme + 3 : conn;
    /* A login may hold anything; only a URL may have an '@' behind it. */
    size_t n_login = strncasecmp(conn, "http", 4) == 0 ? strcspn(start, "/?#") : strlen(start);
    const char *at = memrchr(start, '@', n_login);
    char text[TEI_HOSTPORT_MAX];
    struct tei_hostport hp;
    size_t len;

    if (at)
        start = at + 1;
    len = strcspn(start, "/?#,; ");
    *out = '\0';
    if (len && len < sizeof text) {
        memcpy(text, start, len);
        text[len] = '\0';
        if (!tei_hostport_read(text, 0, &hp))
            snprintf(out, n, "%s", hp.host);
    }
}

/* ---- open and close */

static void store_close(struct tei_directory *dir)
{
    struct store_directory *d = of(dir);

    store_unlisten(dir);
    tei_store_close(d->store);
    pthread_mutex_destroy(&d->lock);
    free(d->own);
    free(d->announced);
    free(d);
}

static const struct tei_directory_ops store_ops = {
    .own_name = store_own_name,
    .route_hint = store_route_hint,
    .announce = store_announce,
    .publish = store_publish,
    .withdraw = store_withdraw,
    .keep = store_keep,
    .rpc_addr = store_rpc_addr,
    .lookup = store_lookup,
    .listen = store_listen,
    .follow = store_follow,
    .forget = store_forget,
    .unlisten = store_unlisten,
    .close = store_close,
    .stores = true,
};

int tei_directory_open_store(const char *conn, const struct tei_conf *conf,
                             struct tei_directory **out)
{
    struct store_directory *d = calloc(1, sizeof *d);
    int rc;

    if (!d)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a directory");
    d->directory.ops = &store_ops;
    d->directory.conf = conf;
    rc = tei_store_open(conn, conf, &d->store);
    if (rc) {
        free(d);
        return rc;
    }
    read_host(conn, d->host, sizeof d->host);
    pthread_mutex_init(&d->lock, NULL);
    *out = &d->directory;
    return 0;
}
