/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contents of te_metad: keys and values, both of any bytes, in an SQLite database. Every
 * function may be called from any thread. A change that returned STORE_OK to a store with a folder
 * is on the disk: it survives the death of the process and of the host.
 *
 * A key that was put with a ttl is gone so many seconds after the last store_put() or store_keep().
 * The ttl is on the disk, the moment at which it ends is not: a clock that runs through restarts
 * can jump. So whatever is in the folder when it is opened has its whole ttl once more.
 *
 * Keys can always be removed, also when a limit is reached or the disk is full.
 */
#ifndef TE_METAD_STORE_H
#define TE_METAD_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_WHY_MAX   512
#define STORE_VALUE_MAX (512u << 20) /* no value is larger, whatever the flags say */
#define STORE_TTL_MAX   86400u       /* seconds */
#define STORE_LIST_MAX  (64u << 20)  /* bytes of one list */

struct store;

enum store_result {
    STORE_OK,
    STORE_ABSENT, /* the key is not there, or its time is over */
    STORE_FULL,   /* a limit is reached, or the disk is full: `why` tells which, and the remedy */
    STORE_FAILED, /* `why` tells */
};

/* Of all keys together. What a folder has beyond them stays, and no more is let in. */
struct store_limits {
    uint64_t bytes; /* of keys and values */
    uint64_t keys;
};

/*
 * Opens the contents kept in folder `dir`, which is made if it is missing; NULL keeps them in
 * memory. One process at a time has a folder open. NULL, with one line in `why`, on failure.
 */
struct store *store_open(const char *dir, const struct store_limits *limits,
                         char why[STORE_WHY_MAX]);

/* No other call may be under way. */
void store_close(struct store *s);

/*
 * Writes a copy of the contents to a file, which it replaces once the copy is whole and on the disk. False, and why:
 * the file is as it was. Requests wait meanwhile.
 */
bool store_backup(struct store *s, const char *path, char why[STORE_WHY_MAX]);

/* What there is, some of it expired maybe, and what there may be. */
void store_used(struct store *s, struct store_limits *used, struct store_limits *limits);

/*
 * Whether a change can be made now: puts something that no client sees, on the disk where there is a
 * folder, and removes it. The limits do not count for it.
 */
enum store_result store_try(struct store *s, char why[STORE_WHY_MAX]);

/* On STORE_OK the caller frees *value, which is never NULL. */
enum store_result store_get(struct store *s, const char *key, size_t key_len, char **value,
                            size_t *len, char why[STORE_WHY_MAX]);

/*
 * Adds the key or replaces its value. ttl_s 0: the key stays. A value that is no longer than the one
 * before is let in whatever the limits are.
 */
enum store_result store_put(struct store *s, const char *key, size_t key_len, const char *value,
                            size_t len, unsigned ttl_s, char why[STORE_WHY_MAX]);

/* Gives a key that was put with a ttl another ttl_s from now; one that stays is left as it is. */
enum store_result store_keep(struct store *s, const char *key, size_t key_len, unsigned ttl_s,
                             char why[STORE_WHY_MAX]);

/* STORE_OK whether or not the key was there. */
enum store_result store_del(struct store *s, const char *key, size_t key_len,
                            char why[STORE_WHY_MAX]);

/* Keys in order, each followed by a newline. */
struct store_keys {
    char *text; /* NULL when there are none; no NUL at its end */
    size_t len, cap;
    uint64_t count;
};

/* Whether a key is shown. */
typedef bool (*store_shown)(const void *arg, const char *key, size_t len);

/*
 * The keys that begin with `prefix` and are shown; on STORE_OK the caller frees keys->text. Keys with
 * a newline, which only an older server has let in, are left out.
 */
enum store_result store_list(struct store *s, const char *prefix, size_t prefix_len,
                             store_shown shown, const void *arg, struct store_keys *keys,
                             char why[STORE_WHY_MAX]);

#endif
