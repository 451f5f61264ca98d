/* SPDX-License-Identifier: Apache-2.0 */
#include "te_metad/disk.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RESERVE_NAME      "metadata.reserve"
#define RESERVE           (1 << 20)
#define CHUNK             (64 << 10) /* the file grows by so many bytes */
#define INCREMENTAL       2          /* what PRAGMA auto_vacuum says */
#define SHRINK_MIN        256        /* unused pages: less is not worth the work */
#define SHRINK_PART       4          /* of the file must be unused */
#define SHRINK_STEPS      4          /* nobody waits long for so many */
#define SHRINK_SQL        "PRAGMA incremental_vacuum(1024)" /* pages */
#define SHRINK_LITTLE_SQL "PRAGMA incremental_vacuum(64)"   /* what they write fits the reserve */

/* The number that a statement gives; 0 when it cannot be told. */
static int64_t ask(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt;
    int64_t n = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW)
        n = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return n;
}

/*
 * That the file can shrink is decided while it is empty: one of an older te_metad never does. To say
 * it of any other would be a change, which a full disk may have no room for.
 */
bool disk_prepare(sqlite3 *db)
{
    static const char empty_sql[] = "PRAGMA auto_vacuum = INCREMENTAL";
    static const char sql[] = "PRAGMA secure_delete = FAST; PRAGMA journal_size_limit = 4194304";
    if (ask(db, "PRAGMA page_count") == 0 &&
        sqlite3_exec(db, empty_sql, NULL, NULL, NULL) != SQLITE_OK)
        return false;
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

static void checkpoint(struct disk *d, int mode)
{
    sqlite3_wal_checkpoint_v2(d->db, "main", mode, NULL, NULL);
}

static void make_reserve(struct disk *d)
{
    int fd = open(d->reserve, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    d->reserved = fd >= 0 && posix_fallocate(fd, 0, RESERVE) == 0;
    if (fd >= 0)
        close(fd);
    if (!d->reserved)
        unlink(d->reserve);
}

/* What a removal used up, as soon as there is room for it. */
static void restore_reserve(struct disk *d)
{
    if (d->reserve && !d->reserved)
        make_reserve(d);
}

bool disk_open(struct disk *d, sqlite3 *db, const char *dir)
{
    int chunk = CHUNK;
    *d = (struct disk){.db = db,
                       .page_size = ask(db, "PRAGMA page_size"),
                       .shrinks = ask(db, "PRAGMA auto_vacuum") == INCREMENTAL};
    if (!dir)
        return true;
    if (asprintf(&d->reserve, "%s/" RESERVE_NAME, dir) < 0) {
        d->reserve = NULL;
        return false;
    }
    sqlite3_file_control(db, "main", SQLITE_FCNTL_CHUNK_SIZE, &chunk);
    make_reserve(d);
    return true;
}

void disk_close(struct disk *d)
{
    free(d->reserve);
    d->reserve = NULL;
}

bool disk_grow(struct disk *d)
{
    if (!d->reserve)
        return true;
    sqlite3_int64 size = ask(d->db, "PRAGMA page_count") * d->page_size;
    return sqlite3_file_control(d->db, "main", SQLITE_FCNTL_SIZE_HINT, &size) == SQLITE_OK;
}

bool disk_make_room(struct disk *d, unsigned tries, bool removal)
{
    if (!d->reserve)
        return false;
    if (tries == 0) {
        checkpoint(d, SQLITE_CHECKPOINT_PASSIVE);
        return true;
    }
    if (!removal || !d->reserved)
        return false;
    unlink(d->reserve);
    d->reserved = false;
    return true;
}

void disk_settle(struct disk *d)
{
    checkpoint(d, SQLITE_CHECKPOINT_TRUNCATE);
    restore_reserve(d);
}

static bool is_worth_shrinking(struct disk *d)
{
    int64_t unused = ask(d->db, "PRAGMA freelist_count");
    return unused >= SHRINK_MIN && unused * SHRINK_PART >= ask(d->db, "PRAGMA page_count");
}

/* The file becomes shorter when the log has gone to it. */
static bool shrink_some(struct disk *d)
{
    bool ok = sqlite3_exec(d->db, SHRINK_SQL, NULL, NULL, NULL) == SQLITE_OK;
    for (unsigned tries = 0; !ok && disk_make_room(d, tries, true); tries++)
        ok = sqlite3_exec(d->db, SHRINK_LITTLE_SQL, NULL, NULL, NULL) == SQLITE_OK;
    return ok;
}

void disk_shrink(struct disk *d)
{
    int steps = 0;
    while (d->shrinks && steps < SHRINK_STEPS && is_worth_shrinking(d) && shrink_some(d))
        steps++;
    if (steps || (d->reserve && !d->reserved))
        disk_settle(d);
}
