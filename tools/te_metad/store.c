/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three tables. `metadata` has the values and `lifetime` the seconds of the keys that do not stay;
 * both are in the file. `expiry`, in memory, has the moments at which they end, so that keeping a
 * key alive writes nothing to the disk. The seconds are in a table of their own since a column
 * behind a large value is dear to reach, and since a file without that table is then no special
 * case.
 *
 * Every reader leaves out what has expired, so nothing hangs on when it is removed. That is done on
 * the way of other calls, at most once a second: without calls nothing grows, and an idle server
 * does not wake up.
 */
#include "te_metad/store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

#include "te_metad/disk.h"

#define FILE_NAME    "metadata.db"
#define PATH_MAX_LEN 4096
#define SWEEP_MS     1000
#define TRY_BYTES    16384 /* as much as an engine's keys, so that there is room for these, too */
#define SWEEP_KEYS   1000  /* as many as a sweep removes, so that nobody waits long for it */

/* The SQL of all that is done; ?2 of a reader is the time now. */
#define LIVES " NOT EXISTS (SELECT 1 FROM expiry WHERE key = metadata.key AND at <= ?2)"
#define DUE   " (SELECT key FROM expiry WHERE at <= ?1 ORDER BY at, key LIMIT ?2)"
#define SIZES " count(*), sum(length(key) + length(value)) FROM metadata"

enum sql {
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_START,
    SQL_SIZES,
    SQL_SIZE,
    SQL_GET,
    SQL_LIVES,
    SQL_LIST,
    SQL_PUT,
    SQL_PUT_LIFETIME,
    SQL_PUT_EXPIRY,
    SQL_DEL,
    SQL_DEL_LIFETIME,
    SQL_DEL_EXPIRY,
    SQL_KEEP,
    SQL_KEEP_LIFETIME,
    SQL_DUE,
    SQL_SWEEP,
    SQL_SWEEP_LIFETIME,
    SQL_SWEEP_EXPIRY,
    SQL_COUNT_OF,
};

static const char *const sql_texts[SQL_COUNT_OF] = {
    [SQL_BEGIN] = "BEGIN",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_START] = "INSERT INTO expiry SELECT key, ttl * 1000 + ?1 FROM lifetime",
    [SQL_SIZES] = "SELECT" SIZES,
    [SQL_SIZE] = "SELECT" SIZES " WHERE key = ?1",
    [SQL_GET] = "SELECT value FROM metadata WHERE key = ?1 AND" LIVES,
    [SQL_LIVES] = "SELECT 1 FROM metadata WHERE key = ?1 AND" LIVES,
    [SQL_LIST] = "SELECT key FROM metadata WHERE key >= ?1 AND instr(key, x'0a') = 0 AND" LIVES
                 " ORDER BY key",
    [SQL_PUT] = "INSERT OR REPLACE INTO metadata (key, value) VALUES (?1, ?2)",
    [SQL_PUT_LIFETIME] = "INSERT OR REPLACE INTO lifetime (key, ttl) VALUES (?1, ?2)",
    [SQL_PUT_EXPIRY] = "INSERT OR REPLACE INTO expiry (key, at) VALUES (?1, ?2)",
    [SQL_DEL] = "DELETE FROM metadata WHERE key = ?1",
    [SQL_DEL_LIFETIME] = "DELETE FROM lifetime WHERE key = ?1",
    [SQL_DEL_EXPIRY] = "DELETE FROM expiry WHERE key = ?1",
    [SQL_KEEP] = "UPDATE expiry SET at = ?3 WHERE key = ?1 AND at > ?2",
    [SQL_KEEP_LIFETIME] = "UPDATE lifetime SET ttl = ?2 WHERE key = ?1 AND ttl <> ?2",
    [SQL_DUE] = "SELECT" SIZES " WHERE key IN" DUE,
    [SQL_SWEEP] = "DELETE FROM metadata WHERE key IN" DUE,
    [SQL_SWEEP_LIFETIME] = "DELETE FROM lifetime WHERE key IN" DUE,
    [SQL_SWEEP_EXPIRY] = "DELETE FROM expiry WHERE key IN" DUE,
};

/* What keys and their values come to. */
struct sizes {
    uint64_t keys, bytes;
};

struct store {
    pthread_mutex_t lock; /* over all below */
    sqlite3 *db;
    sqlite3_stmt *stmts[SQL_COUNT_OF];
    struct disk disk;
    struct store_limits limits;
    struct sizes sizes;  /* of all that is there, what has expired and was not removed included */
    int64_t sweep_at_ms; /* the next sweep is not before */
    int sweep_keys;      /* as many as it removes: fewer where a full disk has no room for more */
    bool full;           /* the last failure was for want of room on the disk */
};

/*
 * The exclusive lock makes a second server on the same folder fail at once. WAL with full
 * synchronisation writes each change once and returns when it is on the disk.
 */
static const char lock_sql[] = "PRAGMA locking_mode = EXCLUSIVE";
static const char setup_sql[] =
    "PRAGMA journal_mode = WAL;"
    "PRAGMA synchronous = FULL;"
    "PRAGMA temp_store = MEMORY;"
    "BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS metadata (key BLOB PRIMARY KEY, value BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS lifetime (key BLOB PRIMARY KEY, ttl INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    /* An older te_metad, which knows no lifetimes, may have had the file meanwhile. */
    "DELETE FROM lifetime WHERE key NOT IN (SELECT key FROM metadata);"
    "COMMIT;"
    "CREATE TEMP TABLE expiry (key BLOB PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX temp.expiry_at ON expiry (at);";

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t after_s(int64_t now, unsigned ttl_s)
{
    return now + (int64_t)ttl_s * 1000;
}

/* ----------------------------------------------------------------------------------- statements */

static void fail_full(struct store *s, char why[STORE_WHY_MAX])
{
    s->full = true;
    snprintf(why, STORE_WHY_MAX,
             "the disk of --data-dir of te_metad is full: make room on it, or delete keys");
}

static void fail(struct store *s, char why[STORE_WHY_MAX])
{
    int code = sqlite3_errcode(s->db), error = sqlite3_system_errno(s->db);
    s->full = false;
    if (code == SQLITE_FULL || (code == SQLITE_IOERR && (error == ENOSPC || error == EDQUOT)))
        fail_full(s, why);
    else
        snprintf(why, STORE_WHY_MAX, "%s", sqlite3_errmsg(s->db));
}

static void bind_key(struct store *s, enum sql which, const char *key, size_t len)
{
    /* NULL would be bound as SQL's NULL. */
    sqlite3_bind_blob64(s->stmts[which], 1, len ? key : "", len, SQLITE_STATIC);
}

static void bind_number(struct store *s, enum sql which, int at, int64_t number)
{
    sqlite3_bind_int64(s->stmts[which], at, number);
}

static void reset(struct store *s, enum sql which)
{
    sqlite3_reset(s->stmts[which]);
    sqlite3_clear_bindings(s->stmts[which]);
}

/* Runs a statement that has no rows to give; `why` tells what went wrong when it is false. */
static bool run(struct store *s, enum sql which, char why[STORE_WHY_MAX])
{
    bool done = sqlite3_step(s->stmts[which]) == SQLITE_DONE;
    if (!done)
        fail(s, why);
    reset(s, which);
    return done;
}

static bool run_on_key(struct store *s, enum sql which, const char *key, size_t len,
                       char why[STORE_WHY_MAX])
{
    bind_key(s, which, key, len);
    return run(s, which, why);
}

/* Reads what keys come to; ended here. */
static bool measure(struct store *s, enum sql which, struct sizes *out, char why[STORE_WHY_MAX])
{
    bool ok = sqlite3_step(s->stmts[which]) == SQLITE_ROW;
    if (ok)
        *out = (struct sizes){.keys = (uint64_t)sqlite3_column_int64(s->stmts[which], 0),
                              .bytes = (uint64_t)sqlite3_column_int64(s->stmts[which], 1)};
    else
        fail(s, why);
    reset(s, which);
    return ok;
}

static bool measure_key(struct store *s, const char *key, size_t len, struct sizes *out,
                        char why[STORE_WHY_MAX])
{
    bind_key(s, SQL_SIZE, key, len);
    return measure(s, SQL_SIZE, out, why);
}

/* Ends what SQL_BEGIN began: all of it is done, or nothing. */
static bool end(struct store *s, bool ok, char why[STORE_WHY_MAX])
{
    char unused[STORE_WHY_MAX];
    if (ok && !disk_grow(&s->disk)) {
        fail_full(s, why);
        ok = false;
    }
    ok = ok && run(s, SQL_COMMIT, why);
    if (!sqlite3_get_autocommit(s->db))
        run(s, SQL_ROLLBACK, unused);
    return ok;
}

/* ------------------------------------------------------------------------------------- removing */

/* A change that removes something, in one transaction; *gone is what. */
struct removal {
    bool (*change)(struct store *s, struct removal *r, char why[STORE_WHY_MAX]);
    const char *key;
    size_t key_len;
    int64_t now;
    struct sizes gone;
};

/* Also on a full disk: see disk.h. */
static bool remove_keys(struct store *s, struct removal *r, char why[STORE_WHY_MAX])
{
    unsigned tries = 0;
    bool ok;
    do
        ok = end(s, run(s, SQL_BEGIN, why) && r->change(s, r, why), why);
    while (!ok && s->full && disk_make_room(&s->disk, tries++, true));
    if (tries)
        disk_settle(&s->disk);
    if (!ok || r->gone.keys == 0)
        return ok;
    s->sizes.keys -= r->gone.keys;
    s->sizes.bytes -= r->gone.bytes;
    disk_shrink(&s->disk);
    return true;
}

static bool remove_key(struct store *s, struct removal *r, char why[STORE_WHY_MAX])
{
    return measure_key(s, r->key, r->key_len, &r->gone, why) &&
           run_on_key(s, SQL_DEL, r->key, r->key_len, why) &&
           run_on_key(s, SQL_DEL_LIFETIME, r->key, r->key_len, why) &&
           run_on_key(s, SQL_DEL_EXPIRY, r->key, r->key_len, why);
}

static bool remove_due(struct store *s, struct removal *r, char why[STORE_WHY_MAX])
{
    bool ok = true;
    for (int which = SQL_DUE; ok && which <= SQL_SWEEP_EXPIRY; which++) {
        bind_number(s, (enum sql)which, 1, r->now);
        bind_number(s, (enum sql)which, 2, s->sweep_keys);
        ok = which == SQL_DUE ? measure(s, SQL_DUE, &r->gone, why) : run(s, (enum sql)which, why);
    }
    return ok;
}

/* ---------------------------------------------------------------------------------------- sweep */

/*
 * Removes expired keys, SWEEP_KEYS at most; whether there may be more. What finds no room on the disk
 * finds it for fewer.
 */
static bool sweep(struct store *s, int64_t now)
{
    struct removal r = {.change = remove_due, .now = now};
    char why[STORE_WHY_MAX];
    if (remove_keys(s, &r, why)) {
        bool more = r.gone.keys == (uint64_t)s->sweep_keys;
        s->sweep_keys = SWEEP_KEYS;
        return more;
    }
    bool again = s->full && s->sweep_keys > 1;
    s->sweep_keys = again ? s->sweep_keys / 10 : SWEEP_KEYS;
    return again;
}

/*
 * Takes the lock, with the time in *now, and sweeps if that is due. A sweep that fails is tried
 * again: nobody is served what it leaves behind, and whoever writes to a disk that is full is told.
 */
static void enter(struct store *s, int64_t *now)
{
    pthread_mutex_lock(&s->lock);
    *now = now_ms();
    if (*now >= s->sweep_at_ms && !sweep(s, *now))
        s->sweep_at_ms = *now + SWEEP_MS;
}

/* What a change that was not made means. */
static enum store_result refused(const struct store *s)
{
    return s->full ? STORE_FULL : STORE_FAILED;
}

static enum store_result leave(struct store *s, enum store_result result)
{
    pthread_mutex_unlock(&s->lock);
    return result;
}

/* ----------------------------------------------------------------------------------------- open */

static bool prepare(struct store *s)
{
    for (size_t i = 0; i < SQL_COUNT_OF; i++)
        if (sqlite3_prepare_v3(s->db, sql_texts[i], -1, SQLITE_PREPARE_PERSISTENT, &s->stmts[i],
                               NULL) != SQLITE_OK)
            return false;
    return true;
}

/* The time of what was in the folder begins anew. */
static bool set_up(struct store *s, const char *dir, char why[STORE_WHY_MAX])
{
    if (sqlite3_exec(s->db, lock_sql, NULL, NULL, NULL) != SQLITE_OK || !disk_prepare(s->db) ||
        sqlite3_exec(s->db, setup_sql, NULL, NULL, NULL) != SQLITE_OK || !prepare(s)) {
        fail(s, why);
        return false;
    }
    if (!disk_open(&s->disk, s->db, dir)) {
        snprintf(why, STORE_WHY_MAX, "out of memory");
        return false;
    }
    bind_number(s, SQL_START, 1, now_ms());
    return run(s, SQL_START, why) && measure(s, SQL_SIZES, &s->sizes, why);
}

static const char *remedy(int code)
{
    switch (code) {
    case SQLITE_BUSY:
        return "; another te_metad has this --data-dir open: stop it, or choose another folder";
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return "; it is not a sound database: move it away, or choose another --data-dir";
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return "; --data-dir must be a folder that this user may write to";
    default:
        return "";
    }
}

static const char *folder_remedy(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return "; the folder that it is to be in must exist: make that first (mkdir -p)";
    case EACCES:
    case EPERM:
    case EROFS:
        return "; this user may not write there: make the folder and give it to this user, or "
               "choose another one";
    default:
        return "";
    }
}

/* Makes the folder if need be and writes the path of the database; false with `why`. */
static bool find_file(const char *dir, char path[PATH_MAX_LEN], char why[STORE_WHY_MAX])
{
    if (snprintf(path, PATH_MAX_LEN, "%s/%s", dir, FILE_NAME) >= PATH_MAX_LEN) {
        snprintf(why, STORE_WHY_MAX, "the name of --data-dir is too long");
        return false;
    }
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        snprintf(why, STORE_WHY_MAX, "cannot make the folder '%s' of --data-dir: %s%s", dir,
                 strerror(errno), folder_remedy(errno));
        return false;
    }
    return true;
}

/* Also of a store that was opened only in part. */
static void close_db(struct store *s)
{
    for (size_t i = 0; i < SQL_COUNT_OF; i++)
        sqlite3_finalize(s->stmts[i]);
    disk_close(&s->disk);
    sqlite3_close(s->db);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static bool open_path(struct store *s, const char *dir, const char *path, char why[STORE_WHY_MAX])
{
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    char what[STORE_WHY_MAX];
    if (sqlite3_open_v2(path, &s->db, flags, NULL) != SQLITE_OK)
        fail(s, what);
    else if (set_up(s, dir, what))
        return true;
    snprintf(why, STORE_WHY_MAX, "cannot open '%.250s': %.120s%s", path, what,
             remedy(sqlite3_errcode(s->db)));
    return false;
}

struct store *store_open(const char *dir, const struct store_limits *limits,
                         char why[STORE_WHY_MAX])
{
    char path[PATH_MAX_LEN] = ":memory:";
    if (dir && !find_file(dir, path, why))
        return NULL;
    struct store *s = calloc(1, sizeof *s);
    if (!s) {
        snprintf(why, STORE_WHY_MAX, "out of memory");
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    s->limits = *limits;
    s->sweep_keys = SWEEP_KEYS;
    if (open_path(s, dir, path, why))
        return s;
    close_db(s);
    return NULL;
}

void store_close(struct store *s)
{
    int64_t now = now_ms();
    while (sweep(s, now)) /* What is left would come to life again. */
        continue;
    close_db(s);
}

/* ------------------------------------------------------------------------------------------ use */

void store_used(struct store *s, struct store_limits *used, struct store_limits *limits)
{
    pthread_mutex_lock(&s->lock);
    *used = (struct store_limits){.bytes = s->sizes.bytes, .keys = s->sizes.keys};
    *limits = s->limits;
    pthread_mutex_unlock(&s->lock);
}

static bool backup_to(struct store *s, const char *path)
{
    sqlite3_stmt *stmt;
    bool ok = sqlite3_prepare_v2(s->db, "VACUUM INTO ?1", -1, &stmt, NULL) == SQLITE_OK &&
              sqlite3_bind_text(stmt, 1, path, -1, SQLITE_STATIC) == SQLITE_OK &&
              sqlite3_step(stmt) == SQLITE_DONE;
    return sqlite3_finalize(stmt) == SQLITE_OK && ok;
}

static bool sync_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Under another name first: what bears the name is whole. */
bool store_backup(struct store *s, const char *path, char why[STORE_WHY_MAX])
{
    char other[PATH_MAX_LEN];
    if (snprintf(other, sizeof other, "%s.tmp", path) >= (int)sizeof other) {
        snprintf(why, STORE_WHY_MAX, "the name of the file is too long");
        return false;
    }
    unlink(other);
    pthread_mutex_lock(&s->lock);
    bool ok = backup_to(s, other);
    snprintf(why, STORE_WHY_MAX, "%.200s: %s", other, sqlite3_errmsg(s->db));
    pthread_mutex_unlock(&s->lock);
    if (ok && sync_file(other) && rename(other, path) == 0)
        return true;
    if (ok)
        snprintf(why, STORE_WHY_MAX, "%.200s: %s", path, strerror(errno));
    unlink(other);
    return false;
}

/* A copy of the value in the row at hand. */
static enum store_result copy_value(struct store *s, char **value, size_t *len,
                                    char why[STORE_WHY_MAX])
{
    const void *blob = sqlite3_column_blob(s->stmts[SQL_GET], 0);
    size_t n = (size_t)sqlite3_column_bytes(s->stmts[SQL_GET], 0);
    char *copy = blob || n == 0 ? malloc(n + 1) : NULL;
    if (!copy) {
        snprintf(why, STORE_WHY_MAX, "out of memory");
        return STORE_FAILED;
    }
    if (n)
        memcpy(copy, blob, n);
    *value = copy;
    *len = n;
    return STORE_OK;
}

/* Begins to read a key; ended by reset(). */
static enum store_result read_key(struct store *s, enum sql which, const char *key, size_t key_len,
                                  int64_t now, char why[STORE_WHY_MAX])
{
    bind_key(s, which, key, key_len);
    bind_number(s, which, 2, now);
    int rc = sqlite3_step(s->stmts[which]);
    if (rc == SQLITE_ROW)
        return STORE_OK;
    if (rc == SQLITE_DONE)
        return STORE_ABSENT;
    fail(s, why);
    return STORE_FAILED;
}

enum store_result store_get(struct store *s, const char *key, size_t key_len, char **value,
                            size_t *len, char why[STORE_WHY_MAX])
{
    int64_t now;
    enter(s, &now);
    enum store_result result = read_key(s, SQL_GET, key, key_len, now, why);
    if (result == STORE_OK)
        result = copy_value(s, value, len, why);
    reset(s, SQL_GET);
    return leave(s, result);
}

static bool put_number(struct store *s, enum sql which, const char *key, size_t key_len,
                       int64_t number, char why[STORE_WHY_MAX])
{
    bind_number(s, which, 2, number);
    return run_on_key(s, which, key, key_len, why);
}

struct entry {
    const char *key, *value;
    size_t key_len, len;
    unsigned ttl_s;
    int64_t now;
};

/* One try, in one transaction. */
static bool put(struct store *s, const struct entry *e, char why[STORE_WHY_MAX])
{
    sqlite3_bind_blob64(s->stmts[SQL_PUT], 2, e->len ? e->value : "", e->len, SQLITE_STATIC);
    bool ok = run(s, SQL_BEGIN, why) && run_on_key(s, SQL_PUT, e->key, e->key_len, why);
    if (ok && e->ttl_s)
        ok = put_number(s, SQL_PUT_LIFETIME, e->key, e->key_len, e->ttl_s, why) &&
             put_number(s, SQL_PUT_EXPIRY, e->key, e->key_len, after_s(e->now, e->ttl_s), why);
    else if (ok)
        ok = run_on_key(s, SQL_DEL_LIFETIME, e->key, e->key_len, why) &&
             run_on_key(s, SQL_DEL_EXPIRY, e->key, e->key_len, why);
    return end(s, ok, why);
}

static bool put_with_room(struct store *s, const struct entry *e, char why[STORE_WHY_MAX])
{
    unsigned tries = 0;
    bool ok;
    do
        ok = put(s, e, why);
    while (!ok && s->full && disk_make_room(&s->disk, tries++, false));
    if (!ok)
        disk_settle(&s->disk);
    return ok;
}

/* What all keys come to with the entry in place of `old`. */
static struct sizes sizes_with(const struct store *s, const struct entry *e,
                               const struct sizes *old)
{
    return (struct sizes){.keys = s->sizes.keys - old->keys + 1,
                          .bytes = s->sizes.bytes - old->bytes + e->key_len + e->len};
}

/* Whether the limits let the entry in; else `why` names the one that does not. */
static bool fits(const struct store *s, const struct entry *e, const struct sizes *old,
                 char why[STORE_WHY_MAX])
{
    struct sizes with = sizes_with(s, e, old);
    if (with.bytes > s->limits.bytes && with.bytes > s->sizes.bytes)
        snprintf(why, STORE_WHY_MAX,
                 "all keys and values may have %llu bytes (--max-bytes of te_metad): raise it, or "
                 "delete keys",
                 (unsigned long long)s->limits.bytes);
    else if (with.keys > s->limits.keys && with.keys > s->sizes.keys)
        snprintf(why, STORE_WHY_MAX,
                 "there may be %llu keys (--max-keys of te_metad): raise it, or delete some",
                 (unsigned long long)s->limits.keys);
    else
        return true;
    return false;
}

static enum store_result judge(struct store *s, const struct entry *e, struct sizes *old,
                               char why[STORE_WHY_MAX])
{
    if (!measure_key(s, e->key, e->key_len, old, why))
        return STORE_FAILED;
    return fits(s, e, old, why) ? STORE_OK : STORE_FULL;
}

enum store_result store_put(struct store *s, const char *key, size_t key_len, const char *value,
                            size_t len, unsigned ttl_s, char why[STORE_WHY_MAX])
{
    struct entry e = {.key = key, .value = value, .key_len = key_len, .len = len, .ttl_s = ttl_s};
    struct sizes old;
    enter(s, &e.now);
    enum store_result result = judge(s, &e, &old, why);
    if (result == STORE_FULL) { /* What has expired takes nobody's place. */
        while (sweep(s, e.now))
            continue;
        result = judge(s, &e, &old, why);
    }
    if (result == STORE_OK && !put_with_room(s, &e, why))
        result = refused(s);
    if (result == STORE_OK)
        s->sizes = sizes_with(s, &e, &old);
    return leave(s, result);
}

/* SQL_KEEP, and the new number of seconds where it is another; false when that failed. */
static bool keep(struct store *s, const char *key, size_t key_len, unsigned ttl_s, int64_t now,
                 bool *kept, char why[STORE_WHY_MAX])
{
    bind_number(s, SQL_KEEP, 3, after_s(now, ttl_s));
    bool ok = run(s, SQL_BEGIN, why) && put_number(s, SQL_KEEP, key, key_len, now, why);
    *kept = ok && sqlite3_changes(s->db) > 0;
    if (*kept)
        ok = put_number(s, SQL_KEEP_LIFETIME, key, key_len, ttl_s, why);
    return end(s, ok, why);
}

enum store_result store_keep(struct store *s, const char *key, size_t key_len, unsigned ttl_s,
                             char why[STORE_WHY_MAX])
{
    int64_t now;
    bool kept;
    enum store_result result = STORE_OK;
    enter(s, &now);
    if (!keep(s, key, key_len, ttl_s, now, &kept, why))
        return leave(s, refused(s));
    if (!kept) { /* It stays, or is not there. */
        result = read_key(s, SQL_LIVES, key, key_len, now, why);
        reset(s, SQL_LIVES);
    }
    return leave(s, result);
}

enum store_result store_del(struct store *s, const char *key, size_t key_len,
                            char why[STORE_WHY_MAX])
{
    struct removal r = {.change = remove_key, .key = key, .key_len = key_len};
    enter(s, &r.now);
    return leave(s, remove_keys(s, &r, why) ? STORE_OK : refused(s));
}

/* The empty key, which no client can name; should this process die meanwhile, it expires. */
enum store_result store_try(struct store *s, char why[STORE_WHY_MAX])
{
    static const char value[TRY_BYTES];
    struct entry e = {.key = "", .value = value, .len = sizeof value, .ttl_s = 1};
    struct removal r = {.change = remove_key, .key = ""};
    struct sizes old;
    enter(s, &e.now);
    bool ok = measure_key(s, "", 0, &old, why) && put_with_room(s, &e, why);
    if (ok) {
        s->sizes = sizes_with(s, &e, &old);
        ok = remove_keys(s, &r, why);
    }
    return leave(s, ok ? STORE_OK : refused(s));
}

/* ----------------------------------------------------------------------------------------- list */

static bool add_key(struct store_keys *keys, const void *key, size_t len, char why[STORE_WHY_MAX])
{
    size_t cap = keys->cap ? keys->cap : 4096;
    if (keys->len + len + 1 > STORE_LIST_MAX) {
        snprintf(why, STORE_WHY_MAX, "the list has more than %u bytes: ask for a longer prefix",
                 STORE_LIST_MAX);
        return false;
    }
    while (cap < keys->len + len + 1)
        cap *= 2;
    char *text = cap > keys->cap ? realloc(keys->text, cap) : keys->text;
    if (!text) {
        snprintf(why, STORE_WHY_MAX, "out of memory");
        return false;
    }
    keys->text = text;
    keys->cap = cap;
    memcpy(text + keys->len, key, len);
    text[keys->len + len] = '\n';
    keys->len += len + 1;
    keys->count++;
    return true;
}

/* What is asked for. */
struct list {
    const char *prefix;
    size_t prefix_len;
    store_shown shown;
    const void *arg;
};

/* Adds the rows of SQL_LIST, which are in order, as long as they begin with the prefix. */
static bool add_keys(struct store *s, const struct list *l, struct store_keys *keys,
                     char why[STORE_WHY_MAX])
{
    sqlite3_stmt *list = s->stmts[SQL_LIST];
    int rc;
    while ((rc = sqlite3_step(list)) == SQLITE_ROW) {
        const void *key = sqlite3_column_blob(list, 0);
        size_t len = (size_t)sqlite3_column_bytes(list, 0);
        if (len < l->prefix_len || (l->prefix_len && memcmp(key, l->prefix, l->prefix_len) != 0))
            return true;
        if (l->shown(l->arg, key, len) && !add_key(keys, key, len, why))
            return false;
    }
    if (rc != SQLITE_DONE)
        fail(s, why);
    return rc == SQLITE_DONE;
}

enum store_result store_list(struct store *s, const char *prefix, size_t prefix_len,
                             store_shown shown, const void *arg, struct store_keys *keys,
                             char why[STORE_WHY_MAX])
{
    const struct list l = {.prefix = prefix, .prefix_len = prefix_len, .shown = shown, .arg = arg};
    int64_t now;
    *keys = (struct store_keys){0};
    enter(s, &now);
    bind_key(s, SQL_LIST, prefix, prefix_len);
    bind_number(s, SQL_LIST, 2, now);
    bool ok = add_keys(s, &l, keys, why);
    reset(s, SQL_LIST);
    if (!ok)
        free(keys->text);
    return leave(s, ok ? STORE_OK : STORE_FAILED);
}
