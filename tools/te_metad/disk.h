/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room on the disk for the database of te_metad, so that removing works when there is none left.
 *
 * A removal writes, too: the pages that it changes go to the write-ahead log, and from there, by a
 * checkpoint, to the file. It works on a full disk because of three things:
 *
 * 1. Whatever was committed can go to the file. Before a commit the file is given the blocks that it
 *    will need (disk_grow()); a checkpoint writes to these, and then the log begins again at its
 *    start, in the blocks that it has.
 * 2. A removal changes few pages: secure_delete is FAST, so those that become free are not written.
 * 3. A file of RESERVE bytes is given up for a removal that finds no room in spite of that, and made
 *    again after it. The log has no blocks after a restart, and a file system that copies on write
 *    needs new ones for each change.
 *
 * What is removed is used again by what is put next. Once a quarter of the file is unused it is given
 * back to the file system, some of it with each removal.
 *
 * Without a folder the contents are in memory, which is given back in the same way; all else does
 * nothing then. Nothing here is thread-safe, and no transaction is open but where it says so.
 */
#ifndef TE_METAD_DISK_H
#define TE_METAD_DISK_H

#include <stdbool.h>

#include <sqlite3.h>

struct disk {
    sqlite3 *db;
    char *reserve; /* path; NULL: the contents are in memory */
    bool reserved; /* the file is there */
    bool shrinks;  /* the file can */
    sqlite3_int64 page_size;
};

/* What a database is told when it is opened, and before it has a log; false with SQLite's error. */
bool disk_prepare(sqlite3 *db);

/* `dir` NULL: in memory. False when there is no memory. That there is no room is no failure. */
bool disk_open(struct disk *d, sqlite3 *db, const char *dir);
void disk_close(struct disk *d); /* the reserve stays */

/* Within a transaction that is about to be committed; false when the file cannot have the room. */
bool disk_grow(struct disk *d);

/*
 * After a change that found no room: whether it is worth trying again. `tries` counts from 0. Only a
 * removal may have the reserve.
 */
bool disk_make_room(struct disk *d, unsigned tries, bool removal);

/* After a change that found no room in the end, and one for which room was made. */
void disk_settle(struct disk *d);

/* After each removal. */
void disk_shrink(struct disk *d);

#endif
