/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_redis.c - the metadata server that is a redis: GET, SET, DEL, EXPIRE, EXISTS and SCAN.
 *
 * hiredis makes the bytes of the commands and reads those of the replies. The sockets are ours, for
 * the deadline: a timeout of hiredis is one for each read, and a server that drips never meets it.
 *
 * A call has a connection for itself, so a slow one holds up no other. After a good reply the
 * connection is kept for the next call; after anything else it is closed, or a late reply would be
 * taken for that of the next call. Whether the server has closed a connection that was kept shows
 * only when it is used: such a call is made once more, on a new one. That is safe, for each command
 * here may be made twice.
 *
 * A reply has as many bytes as a value of TE_METADATA_MAX_VALUE and little more. An array is made with
 * room for as many elements as it announces, so these are bounded, too, before that.
 *
 * A key that is absent sets the text of the error but logs nothing: whether that is bad news is for
 * the directory to say.
 */
#include "meta/meta.h"

#include "base/err.h"
#include "base/hex.h"
#include "base/os.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PORT 6379
#define DB_MAX       255
#define IDLE_MAX     4
#define READ_BYTES   ((size_t)16 << 10)
#define REPLY_EXTRA  ((size_t)4 << 10) /* what is around a value */
#define ELEMENTS_MAX 65536u            /* in all arrays of a call; a step of SCAN has some 1000 */
#define KEPT_MAX     ((size_t)4 << 20)
#define VALUE_LARGE  ((size_t)1 << 20) /* the size may be why a connection was lost */
#define WHAT_MAX     512
#define SCAN_COUNT   "1000"
#define CURSOR_MAX   24

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

struct conn {
    int fd;
    redisReader *reader;
    void *(*create_array)(const redisReadTask *task, element_count n); /* hiredis's own */
    /* in this call */
    size_t got;      /* bytes */
    size_t elements; /* of arrays */
    bool too_large;  /* they are more than ELEMENTS_MAX */
};

struct redis_store {
    struct tei_store store;
    struct tei_hostport server;
    char *username, *password; /* NULL: none */
    int db;
    char shown[TEI_HOSTPORT_MAX + 16]; /* the URL without credentials, for messages */
    /* of replies: hiredis's own, but that of arrays; set by the first connection */
    redisReplyObjectFunctions makers;
    pthread_mutex_t lock;
    struct conn idle[IDLE_MAX]; /* under the lock, as n_idle */
    size_t n_idle;
};

/* Commands that are sent together, and their replies. */
struct call {
    struct redis_store *r;
    const char *verb, *key; /* for messages; key may be NULL */
    int64_t deadline_ns;
    unsigned types;     /* of the replies that are in order: bits of type_bit() */
    size_t value_len;   /* of a value to be stored */
    char *text;         /* the commands as they are sent */
    size_t len, n;      /* of the text; how many commands */
    redisReply **reply; /* one for each */
};

static struct redis_store *of(struct tei_store *s)
{
    return tei_container_of(s, struct redis_store, store);
}

static unsigned type_bit(int type)
{
    return type > 0 && type < 32 ? 1u << type : 0;
}

/* ---- connections */

static void close_conn(struct conn *c)
{
    redisReaderFree(c->reader);
    tei_fd_close(c->fd);
}

static bool take_idle(struct redis_store *r, struct conn *c)
{
    bool have;

    pthread_mutex_lock(&r->lock);
    have = r->n_idle > 0;
    if (have)
        *c = r->idle[--r->n_idle];
    pthread_mutex_unlock(&r->lock);
    return have;
}

static void give_idle(struct redis_store *r, struct conn *c)
{
    bool kept;

    pthread_mutex_lock(&r->lock);
    /* A reader keeps the memory of a large reply. */
    kept = r->n_idle < IDLE_MAX && c->got <= KEPT_MAX;
    if (kept)
        r->idle[r->n_idle++] = *c;
    pthread_mutex_unlock(&r->lock);
    if (!kept)
        close_conn(c);
}

static void close_idle(struct redis_store *r)
{
    struct conn c;

    while (take_idle(r, &c))
        close_conn(&c);
}

/* ---- what goes over a connection; these set no text */

/* Adds a command. `len` may be NULL: all arguments are strings. False when memory is out. */
static bool add_command(struct call *q, int argc, const char **argv, const size_t *len)
{
    char *command, *text;
    long long n = redisFormatCommandArgv(&command, argc, argv, len);

    if (n < 0)
        return false;
    text = realloc(q->text, q->len + (size_t)n);
    if (text) {
        memcpy(text + q->len, command, (size_t)n);
        q->text = text;
        q->len += (size_t)n;
        q->n++;
    }
    redisFreeCommand(command);
    return text;
}

static void free_replies(const struct call *q)
{
    for (size_t i = 0; i < q->n; i++) {
        freeReplyObject(q->reply[i]);
        q->reply[i] = NULL;
    }
}

static void call_fini(struct call *q)
{
    free_replies(q);
    free(q->text);
}

/* In the place of hiredis's createArray. */
static void *create_bounded(const redisReadTask *task, element_count n)
{
    struct conn *c = task->privdata;

    c->too_large = (size_t)n > ELEMENTS_MAX - c->elements;
    if (c->too_large)
        return NULL;
    c->elements += (size_t)n;
    return c->create_array(task, n);
}

static void bound_arrays(struct redis_store *r, struct conn *c)
{
    c->create_array = c->reader->fn->createArray;
    pthread_mutex_lock(&r->lock);
    if (!r->makers.createArray) {
        r->makers = *c->reader->fn;
        r->makers.createArray = create_bounded;
    }
    pthread_mutex_unlock(&r->lock);
    c->reader->fn = &r->makers;
}

/* The deadline is asked each time: a server that never ceases to send would get past poll. */
static int read_some(struct conn *c, size_t max, int64_t deadline_ns)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    char buf[READ_BYTES];
    ssize_t n;

    if (tei_left_ms(deadline_ns) == 0 || poll(&p, 1, tei_left_ms(deadline_ns)) == 0)
        return TE_ERR_TIMEOUT;
    n = recv(c->fd, buf, sizeof buf, 0);
    if (n == 0)
        errno = 0;
    if (n <= 0)
        return errno == EAGAIN || errno == EINTR ? 0 : TE_ERR_LINK;
    c->got += (size_t)n;
    if (c->got > max)
        return TE_ERR_TOO_LARGE;
    return redisReaderFeed(c->reader, buf, (size_t)n) == REDIS_OK ? 0 : TE_ERR_MEMORY;
}

static int read_reply(struct conn *c, const struct call *q, redisReply **out)
{
    size_t max = q->r->store.conf->metadata_max_value + REPLY_EXTRA;
    void *reply = NULL;
    int rc = 0;

    while (!rc) {
        if (redisReaderGetReply(c->reader, &reply) != REDIS_OK) {
            if (c->too_large)
                return TE_ERR_TOO_LARGE;
            return c->reader->err == REDIS_ERR_OOM ? TE_ERR_MEMORY : TE_ERR_PROTOCOL;
        }
        if (reply) {
            *out = reply;
            return 0;
        }
        rc = read_some(c, max, q->deadline_ns);
    }
    return rc;
}

/*
 * Sends the commands and reads their replies, up to the first that is an error. A server that
 * refuses a command may say so and hang up before it has read all of it; that reply is worth more
 * than the error of the write. It has come by then, and no other will.
 */
static int exchange(struct conn *c, const struct call *q)
{
    int sent = tei_write_full(c->fd, q->text, q->len, q->deadline_ns), error = errno;
    int rc = sent == TE_ERR_LINK ? 0 : sent;

    if (sent == TE_ERR_LINK)
        shutdown(c->fd, SHUT_RD);
    c->got = c->elements = 0;
    c->reader->privdata = c;
    for (size_t i = 0; i < q->n && !rc; i++) {
        rc = read_reply(c, q, &q->reply[i]);
        if (!rc && q->reply[i]->type == REDIS_REPLY_ERROR)
            return 0;
    }
    if (sent != TE_ERR_LINK || (rc && rc != TE_ERR_LINK))
        return rc;
    errno = error;
    return sent;
}

/* ---- errors */

/* "GET redis://host:port, key k"; returns buf. */
static const char *what(const struct call *q, char buf[WHAT_MAX])
{
    snprintf(buf, WHAT_MAX, "%s %s%s%.200s", q->verb, q->r->shown, q->key ? ", key " : "",
             q->key ? q->key : "");
    return buf;
}

static int no_memory(const struct call *q)
{
    char buf[WHAT_MAX];

    return TEI_FAIL(TE_ERR_MEMORY, "%s: no memory for the command or its reply", what(q, buf));
}

static int fail_timeout(const struct call *q)
{
    char buf[WHAT_MAX];

    return TEI_FAIL(TE_ERR_TIMEOUT,
                    "%s: no reply in time; is the metadata server up? (TE_METADATA_TIMEOUT_MS)",
                    what(q, buf));
}

/* The connection was lost; errno says how. */
static int fail_lost(const struct call *q)
{
    const char *how = errno ? tei_errno_text(errno) : "the server closed the connection";
    char buf[WHAT_MAX];

    if (q->value_len > VALUE_LARGE)
        return TEI_FAIL(TE_ERR_METADATA,
                        "%s: %s while it was given a value of %zu bytes; is the metadata server "
                        "up, and its proto-max-bulk-len that large?",
                        what(q, buf), how, q->value_len);
    return TEI_FAIL(TE_ERR_METADATA, "%s: %s; is the metadata server up, and a redis without TLS?",
                    what(q, buf), how);
}

static int fail_exchange(const struct call *q, int rc, const struct conn *c)
{
    char buf[WHAT_MAX];

    switch (rc) {
    case TE_ERR_TIMEOUT:
        return fail_timeout(q);
    case TE_ERR_LINK:
        return fail_lost(q);
    case TE_ERR_TOO_LARGE:
        if (c->too_large)
            return TEI_FAIL(rc,
                            "%s: the reply has arrays of more than %u elements; is it a redis "
                            "server?",
                            what(q, buf), ELEMENTS_MAX);
        return TEI_FAIL(rc, "%s: " TEI_STORE_TOO_LARGE, what(q, buf),
                        q->r->store.conf->metadata_max_value);
    case TE_ERR_PROTOCOL:
        return TEI_FAIL(TE_ERR_METADATA, "%s: %s; is it a redis server, without TLS?", what(q, buf),
                        c->reader->errstr);
    default:
        return no_memory(q);
    }
}

/* How replies begin that are errors, and what to do about them. The first that fits counts. */
static const struct {
    const char *begins;
    int code;
    const char *remedy;
} remedies[] = {
    {"NOAUTH", TE_ERR_METADATA,
     "set MC_REDIS_PASSWORD, and MC_REDIS_USERNAME for a user of an ACL"},
    {"WRONGPASS", TE_ERR_METADATA, "check MC_REDIS_PASSWORD and MC_REDIS_USERNAME, or the URL"},
    {"ERR invalid password", TE_ERR_METADATA,
     "check MC_REDIS_PASSWORD and MC_REDIS_USERNAME, or the URL"},
    {"ERR AUTH ", TE_ERR_METADATA,
     "the server asks for no password: leave out MC_REDIS_PASSWORD and that of the URL"},
    {"ERR Client sent AUTH", TE_ERR_METADATA,
     "the server asks for no password: leave out MC_REDIS_PASSWORD and that of the URL"},
    {"ERR wrong number of arguments for 'auth'", TE_ERR_METADATA,
     "users came with redis 6: leave out MC_REDIS_USERNAME and that of the URL"},
    {"NOPERM", TE_ERR_METADATA,
     "let the ACL of MC_REDIS_USERNAME allow GET, SET, DEL, EXPIRE, EXISTS, SCAN and SELECT on "
     "these keys"},
    {"ERR DB index is out of range", TE_ERR_METADATA,
     "choose a smaller MC_REDIS_DB_INDEX, or raise 'databases' of the server"},
    {"ERR invalid DB index", TE_ERR_METADATA, "choose another MC_REDIS_DB_INDEX"},
    {"ERR SELECT is not allowed in cluster mode", TE_ERR_METADATA,
     "redis cluster mode is not supported: use a single primary"},
    {"READONLY", TE_ERR_METADATA, "this server is a replica: name its primary"},
    {"OOM", TE_ERR_METADATA, "raise the server's maxmemory, or let it evict other keys"},
    {"MOVED", TE_ERR_METADATA,
     "redis cluster mode, where the node that owns the key must be asked, is not supported: use a "
     "single primary"},
    {"ASK ", TE_ERR_METADATA, "redis cluster mode is not supported: use a single primary"},
    {"CLUSTERDOWN", TE_ERR_METADATA, "redis cluster mode is not supported: use a single primary"},
    {"LOADING", TE_ERR_METADATA, "the server is loading its data: try again when it has"},
    {"MASTERDOWN", TE_ERR_METADATA, "this server is a replica that lost its primary: name that"},
    {"MISCONF", TE_ERR_METADATA, "the server cannot write its data to disk: see its log"},
    {"WRONGTYPE", TE_ERR_METADATA,
     "another program uses this key: choose another MC_REDIS_DB_INDEX or MC_METADATA_CLUSTER_ID"},
    {"DENIED", TE_ERR_METADATA, "give the server a password, or switch protected-mode off"},
    {"ERR max number of clients", TE_ERR_METADATA, "raise the server's maxclients"},
    {"ERR Protocol error: invalid bulk length", TE_ERR_TOO_LARGE,
     "raise the server's proto-max-bulk-len, or register fewer, larger regions"},
    {"ERR string exceeds maximum allowed size", TE_ERR_TOO_LARGE,
     "raise the server's proto-max-bulk-len, or register fewer, larger regions"},
};

/*
 * Texts that are not of the table are not shown for AUTH: a server that does not know the command
 * repeats its arguments.
 */
static int fail_reply(const struct call *q, const redisReply *e)
{
    char buf[WHAT_MAX];

    for (size_t i = 0; i < TEI_ARRAY_LEN(remedies); i++)
        if (strncmp(e->str, remedies[i].begins, strlen(remedies[i].begins)) == 0)
            return TEI_FAIL(remedies[i].code, "%s: the server says '%.160s'; %s", what(q, buf),
                            e->str, remedies[i].remedy);
    if (strcmp(q->verb, "AUTH") == 0)
        return TEI_FAIL(TE_ERR_METADATA,
                        "%s: the server takes no login; see MC_REDIS_PASSWORD, MC_REDIS_USERNAME "
                        "and the log of the server",
                        what(q, buf));
    return TEI_FAIL(TE_ERR_METADATA, "%s: the server says '%.300s'; see its log", what(q, buf),
                    e->str);
}

/* Of a reply that is no error but not what was asked for; so is one that nothing was asked for. */
static int fail_odd(const struct call *q)
{
    char buf[WHAT_MAX];

    return TEI_FAIL(TE_ERR_METADATA,
                    "%s: the reply is not of the kind that this command has; is "
                    "it a redis server?",
                    what(q, buf));
}

/* Tells that a key is absent; not logged. */
static int tell_absent(const struct call *q)
{
    char buf[WHAT_MAX], line[WHAT_MAX + 64];

    snprintf(line, sizeof line, "%s: the server has no such key", what(q, buf));
    TEI_DEBUG("%s", line);
    return tei_err_keep(TE_ERR_NOT_FOUND, line);
}

/* ---- calls */

/* What the end of exchange() means to the caller. */
static int judge(const struct call *q, const struct conn *c, int rc)
{
    if (rc)
        return fail_exchange(q, rc, c);
    for (size_t i = 0; i < q->n && q->reply[i]; i++) {
        if (q->reply[i]->type == REDIS_REPLY_ERROR)
            return fail_reply(q, q->reply[i]);
        if (!(type_bit(q->reply[i]->type) & q->types))
            return fail_odd(q);
    }
    return c->reader->pos < c->reader->len ? fail_odd(q) : 0;
}

/* One command of the login. */
static int ask_on(struct redis_store *r, struct conn *c, int argc, const char **argv,
                  int64_t deadline_ns)
{
    redisReply *reply = NULL;
    struct call q = {.r = r,
                     .verb = argv[0],
                     .deadline_ns = deadline_ns,
                     .types = type_bit(REDIS_REPLY_STATUS),
                     .reply = &reply};
    int rc = add_command(&q, argc, argv, NULL) ? judge(&q, c, exchange(c, &q)) : no_memory(&q);

    call_fini(&q);
    return rc;
}

static int log_in(struct redis_store *r, struct conn *c, int64_t deadline_ns)
{
    const char *as_user[] = {"AUTH", r->username, r->password};
    const char *as_default[] = {"AUTH", r->password};
    const char *select[] = {"SELECT", NULL};
    char db[16];
    int rc = 0;

    if (r->password && r->username)
        rc = ask_on(r, c, 3, as_user, deadline_ns);
    else if (r->password)
        rc = ask_on(r, c, 2, as_default, deadline_ns);
    if (rc || r->db == 0)
        return rc;
    snprintf(db, sizeof db, "%d", r->db);
    select[1] = db;
    return ask_on(r, c, 2, select, deadline_ns);
}

/* tei_connect() has logged what was wrong, so here it only gets its meaning. */
static int fail_connect(const struct call *q, int rc)
{
    char buf[WHAT_MAX], line[2 * WHAT_MAX];

    if (rc == TE_ERR_TIMEOUT)
        return fail_timeout(q);
    if (rc == TE_ERR_MEMORY)
        return no_memory(q);
    snprintf(line, sizeof line, "%s: %.400s; is the metadata server up?", what(q, buf),
             te_errmsg());
    return tei_err_keep(TE_ERR_METADATA, line);
}

static int open_conn(const struct call *q, struct conn *c)
{
    int fd = tei_connect(q->r->server.host, q->r->server.port, NULL, q->deadline_ns), rc;

    if (fd < 0)
        return fail_connect(q, fd);
    *c = (struct conn){.fd = fd, .reader = redisReaderCreate()};
    if (c->reader)
        bound_arrays(q->r, c);
    rc = c->reader ? log_in(q->r, c, q->deadline_ns) : no_memory(q);
    if (!rc)
        return 0;
    if (c->reader)
        redisReaderFree(c->reader);
    tei_fd_close(fd);
    return rc;
}

/* What was wrong with one connection is likely to be so with those that were kept. */
static int finish(const struct call *q, struct conn *c, int rc)
{
    rc = judge(q, c, rc);
    if (!rc) {
        give_idle(q->r, c);
        return 0;
    }
    close_conn(c);
    close_idle(q->r);
    return rc;
}

static int run(const struct call *q)
{
    struct conn c;
    int rc;

    if (tei_left_ms(q->deadline_ns) == 0)
        return fail_timeout(q);
    if (take_idle(q->r, &c)) {
        rc = exchange(&c, q);
        if (rc != TE_ERR_LINK)
            return finish(q, &c, rc);
        free_replies(q);
        close_conn(&c);
        close_idle(q->r);
    }
    rc = open_conn(q, &c);
    return rc ? rc : finish(q, &c, exchange(&c, q));
}

static int run_command(struct call *q, int argc, const char **argv, const size_t *len)
{
    return add_command(q, argc, argv, len) ? run(q) : no_memory(q);
}

/* ---- the operations */

static int copy_value(const struct call *q, const redisReply *reply, struct tei_bytes *out)
{
    char *data = malloc(reply->len + 1);

    if (!data)
        return no_memory(q);
    memcpy(data, reply->str, reply->len);
    data[reply->len] = '\0';
    *out = (struct tei_bytes){.data = data, .len = reply->len};
    return 0;
}

static int redis_get(struct tei_store *s, const char *key, int64_t deadline_ns,
                     struct tei_bytes *out, int64_t *revision)
{
    const char *argv[] = {"GET", key};
    redisReply *reply = NULL;
    struct call q = {.r = of(s),
                     .verb = "GET",
                     .key = key,
                     .deadline_ns = deadline_ns,
                     .types = type_bit(REDIS_REPLY_STRING) | type_bit(REDIS_REPLY_NIL),
                     .reply = &reply};
    int rc = run_command(&q, 2, argv, NULL);

    if (revision)
        *revision = 0;
    if (!rc)
        rc = reply->type == REDIS_REPLY_NIL ? tell_absent(&q) : copy_value(&q, reply, out);
    call_fini(&q);
    return rc;
}

static int redis_put(struct tei_store *s, const char *key, const char *value, size_t len, int ttl_s,
                     int64_t deadline_ns)
{
    char ttl[16];
    const char *argv[] = {"SET", key, value, "EX", ttl};
    const size_t lens[] = {3, strlen(key), len, 2, (size_t)snprintf(ttl, sizeof ttl, "%d", ttl_s)};
    redisReply *reply = NULL;
    struct call q = {.r = of(s),
                     .verb = "SET",
                     .key = key,
                     .deadline_ns = deadline_ns,
                     .types = type_bit(REDIS_REPLY_STATUS),
                     .value_len = len,
                     .reply = &reply};
    int rc = tei_store_check_size(s, key, len);

    if (!rc)
        rc = run_command(&q, ttl_s > 0 ? 5 : 3, argv, lens);
    call_fini(&q);
    return rc;
}

static int redis_del(struct tei_store *s, const char *key, int64_t deadline_ns)
{
    const char *argv[] = {"DEL", key};
    redisReply *reply = NULL;
    struct call q = {.r = of(s),
                     .verb = "DEL",
                     .key = key,
                     .deadline_ns = deadline_ns,
                     .types = type_bit(REDIS_REPLY_INTEGER),
                     .reply = &reply};
    int rc = run_command(&q, 2, argv, NULL);

    call_fini(&q);
    return rc;
}

/* EXPIRE of each key, or EXISTS where none expires: 0 says that the key is gone. */
static bool add_keep(struct call *q, const char *key, int ttl_s)
{
    char ttl[16];
    const char *argv[] = {q->verb, key, ttl};

    snprintf(ttl, sizeof ttl, "%d", ttl_s);
    return add_command(q, ttl_s > 0 ? 3 : 2, argv, NULL);
}

static int redis_keep(struct tei_store *s, const char *const *keys, size_t n, int ttl_s,
                      int64_t deadline_ns)
{
    struct call q = {.r = of(s),
                     .verb = ttl_s > 0 ? "EXPIRE" : "EXISTS",
                     .deadline_ns = deadline_ns,
                     .types = type_bit(REDIS_REPLY_INTEGER)};
    bool added = true;
    int rc;

    if (n == 0)
        return 0;
    q.reply = calloc(n, sizeof *q.reply);
    if (!q.reply)
        return no_memory(&q);
    for (size_t i = 0; i < n && added; i++)
        added = add_keep(&q, keys[i], ttl_s);
    rc = added ? run(&q) : no_memory(&q);
    for (size_t i = 0; i < n && !rc; i++) {
        q.key = keys[i];
        if (q.reply[i]->integer == 0)
            rc = tell_absent(&q);
    }
    call_fini(&q);
    free(q.reply);
    return rc;
}

/* ---- the list */

/* The pattern of SCAN for what begins with `prefix`; NULL when memory is out. */
static char *pattern_of(const char *prefix)
{
    char *pattern = malloc(2 * strlen(prefix) + 2), *p = pattern;

    if (!pattern)
        return NULL;
    for (; *prefix; prefix++) {
        if (strchr("*?[]\\", *prefix))
            *p++ = '\\';
        *p++ = *prefix;
    }
    memcpy(p, "*", 2);
    return pattern;
}

/* The cursor for the next step, and an array of keys. */
static bool is_step(const redisReply *reply)
{
    const redisReply *keys;

    if (reply->elements != 2 || reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[0]->len >= CURSOR_MAX || reply->element[1]->type != REDIS_REPLY_ARRAY)
        return false;
    keys = reply->element[1];
    for (size_t i = 0; i < keys->elements; i++)
        if (keys->element[i]->type != REDIS_REPLY_STRING)
            return false;
    return true;
}

/* A key with a NUL in it is none of ours and has no name here. */
static int each_key(const redisReply *keys, int (*each)(void *arg, const char *key), void *arg)
{
    int rc = 0;

    for (size_t i = 0; i < keys->elements && !rc; i++)
        if (strlen(keys->element[i]->str) == keys->element[i]->len)
            rc = each(arg, keys->element[i]->str);
    return rc;
}

/* One SCAN; moves the cursor on. */
static int list_step(struct redis_store *r, const char *pattern, char cursor[CURSOR_MAX],
                     int64_t deadline_ns, int (*each)(void *arg, const char *key), void *arg)
{
    const char *argv[] = {"SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT};
    redisReply *reply = NULL;
    struct call q = {.r = r,
                     .verb = "SCAN",
                     .key = pattern,
                     .deadline_ns = deadline_ns,
                     .types = type_bit(REDIS_REPLY_ARRAY),
                     .reply = &reply};
    int rc = run_command(&q, (int)TEI_ARRAY_LEN(argv), argv, NULL);

    if (!rc && !is_step(reply))
        rc = fail_odd(&q);
    if (!rc) {
        snprintf(cursor, CURSOR_MAX, "%s", reply->element[0]->str);
        rc = each_key(reply->element[1], each, arg);
    }
    call_fini(&q);
    return rc;
}

/*
 * A key may be handed out twice: SCAN repeats some while the server resizes its table. Bounded by
 * the deadline, as each step is.
 */
static int redis_list(struct tei_store *s, const char *prefix, int64_t deadline_ns,
                      int (*each)(void *arg, const char *key), void *arg)
{
    char *pattern = pattern_of(prefix), cursor[CURSOR_MAX] = "0";
    int rc;

    if (!pattern)
        return TEI_FAIL(TE_ERR_MEMORY, "SCAN %s: no memory for the pattern", of(s)->shown);
    do {
        rc = list_step(of(s), pattern, cursor, deadline_ns, each, arg);
    } while (!rc && strcmp(cursor, "0") != 0);
    free(pattern);
    return rc;
}

/* ---- the connection string: redis://[user[:password]@]host[:port][/db] */

/* What is before the last '@' may hold a password. */
static int refuse(const char *url, const char *why)
{
    const char *at = strrchr(url, '@'), *scheme = strstr(url, "://");

    return TEI_FAIL(TE_ERR_INVALID,
                    "metadata 'redis://%.80s': %s; it has the form "
                    "redis://user:password@host:6379/0, where all but the host may be left out",
                    at ? at + 1 : scheme + 3, why);
}

/* %XX decoded; false if that is malformed. `out` may be `from`. */
static bool decode(const char *from, char *out)
{
    for (; *from; from++, out++) {
        uint8_t byte;

        *out = *from;
        if (*from != '%')
            continue;
        if (!tei_hex_read(from + 1, &byte, 1) || byte == 0)
            return false;
        *out = (char)byte;
        from += 2;
    }
    *out = '\0';
    return true;
}

/* A copy of `text`, or of `other` when it is empty; NULL for two empty ones. False: no memory. */
static bool keep_text(const char *text, const char *other, char **out)
{
    text = *text ? text : other;
    if (!*text)
        return true;
    *out = strdup(text);
    return *out;
}

/* "user:password", n bytes of it; what it does not have is taken from the options. */
static int read_login(struct redis_store *r, const char *url, const char *login, size_t n,
                      const struct tei_conf *conf)
{
    char *user = strndup(login, n), *password = user ? strchr(user, ':') : NULL;
    int rc = 0;

    if (password)
        *password++ = '\0';
    if (!user || !decode(user, user) || (password && !decode(password, password)))
        rc = user ? refuse(url, "a '%' in the user or password must be written %25")
                  : TEI_FAIL(TE_ERR_MEMORY, "no memory for a metadata store");
    else if (!keep_text(user, conf->redis_username, &r->username) ||
             !keep_text(password ? password : "", conf->redis_password, &r->password))
        rc = TEI_FAIL(TE_ERR_MEMORY, "no memory for a metadata store");
    else if (r->username && !r->password)
        TEI_WARN("the user of the redis server is not logged in without a password "
                 "(MC_REDIS_PASSWORD)");
    free(user);
    return rc;
}

static int read_server(struct redis_store *r, const char *url, const char *server, size_t n)
{
    char text[TEI_HOSTPORT_MAX];
    const char *why;

    if (n == 0 || n >= sizeof text)
        return refuse(url, n ? "the host is too long" : "there is no host");
    memcpy(text, server, n);
    text[n] = '\0';
    if (strpbrk(text, ",;"))
        return refuse(url, "only one server may be named");
    why = tei_hostport_read(text, DEFAULT_PORT, &r->server);
    if (why)
        return refuse(url, why);
    if (!r->server.host[0])
        return refuse(url, "there is no host");
    return r->server.port ? 0 : refuse(url, "the port is 0, must be 1 to 65535");
}

/* What follows the server: nothing, "/" or "/db". */
static int read_db(struct redis_store *r, const char *url, const char *tail,
                   const struct tei_conf *conf)
{
    char *end;
    unsigned long db;

    r->db = conf->redis_db_index;
    if (strcmp(tail, "") == 0 || strcmp(tail, "/") == 0)
        return 0;
    if (*tail != '/')
        return refuse(url, "'?' and '#' mean nothing here");
    db = strtoul(tail + 1, &end, 10);
    if (tail[1] < '0' || tail[1] > '9' || *end || db > DB_MAX)
        return refuse(url, "behind the '/' must be the number of a database, 0 to 255");
    r->db = (int)db;
    return 0;
}

static int read_url(struct redis_store *r, const char *url, const struct tei_conf *conf)
{
    const char *start = strstr(url, "://") + 3, *tail = start + strcspn(start, "/?#");
    const char *at = memrchr(start, '@', (size_t)(tail - start)), *server = at ? at + 1 : start;
    int rc;

    if (strchr(tail, '@'))
        return refuse(url, "a '/', '?' or '#' in the user or password must be written %2F, %3F or "
                           "%23");
    rc = read_server(r, url, server, (size_t)(tail - server));
    if (!rc)
        rc = read_db(r, url, tail, conf);
    if (!rc)
        rc = read_login(r, url, start, at ? (size_t)(at - start) : 0, conf);
    return rc;
}

/* ---- open and close */

static void redis_close(struct tei_store *s)
{
    struct redis_store *r = of(s);

    close_idle(r);
    pthread_mutex_destroy(&r->lock);
    free(r->username);
    free(r->password);
}

static int redis_open(struct tei_store *s, const char *url, const struct tei_conf *conf)
{
    struct redis_store *r = of(s);
    char where[TEI_HOSTPORT_MAX];
    int rc;

    pthread_mutex_init(&r->lock, NULL);
    rc = read_url(r, url, conf);
    if (rc) {
        redis_close(s);
        return rc;
    }
    tei_hostport_format(r->server.host, r->server.port, where, sizeof where);
    snprintf(r->shown, sizeof r->shown, "redis://%s/%d", where, r->db);
    return 0;
}

const struct tei_store_ops tei_store_redis_ops = {
    .scheme = "redis",
    .size = sizeof(struct redis_store),
    .open = redis_open,
    .get = redis_get,
    .put = redis_put,
    .del = redis_del,
    .keep = redis_keep,
    .list = redis_list,
    .close = redis_close,
};
