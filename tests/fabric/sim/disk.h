/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.h - files of the world: a device that all hosts have mounted under SIM_DISK, and, on each machine, the
 * pages of it that its kernel keeps.
 *
 *   disk        the device, the pages, what one read or write does and how it fails
 *   disk_calls  the calls on files, as the C library names them
 *   ring        io_uring, as liburing names what it does
 *   disk_load   requests to files, and what must be true of them
 */
#ifndef SIM_DISK_H
#define SIM_DISK_H

#include "sim.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#define SIM_DISK "/sim"

/* What the device and its file system are like, and one in how many reads and writes goes wrong. */
extern struct sim_disk {
    bool is_direct;   /* takes O_DIRECT */
    bool is_shared;   /* all machines see the same pages */
    bool tells_align; /* by statx() */
    unsigned align;   /* of offset and length */
    unsigned memory;  /* its alignment */
    unsigned refuses; /* memory that is not aligned to so much, against its word; 0: none */
    int ring_error;   /* of io_uring_queue_init(), 0: there is one */
    bool has_files, has_memory, fixed_is_picky; /* what of it can be registered */
    unsigned error_in, short_in, full_in, stall_in, again_in;
} sim_disk;

struct sim_node;
struct sim_disk_file;

/* Makes a file, which can become as long as `room`; only before hosts begin. */
struct sim_node *sim_disk_make(const char *name, uint64_t length, uint64_t room);
/* As ftruncate() does: what is beyond its end is gone everywhere, and zeros when it comes again. */
void sim_disk_resize(struct sim_node *n, uint64_t length);
/* What the device has there, or, where all see the same pages, the page. */
unsigned char sim_disk_byte(const struct sim_node *n, uint64_t at);
/* A process is gone: what it had under way goes no further, and what was not written back is. */
void sim_disk_end(int host);

/* disk_calls.c, for those who have the names: whether a path is here; of a descriptor NULL if it is no file. */
bool sim_disk_has(const char *path);
int sim_disk_open(const char *path, int flags);
struct sim_disk_file *sim_disk_file_of(int fd);
int sim_disk_stat(const char *path, struct stat *out);
int sim_disk_fstat(const struct sim_disk_file *f, struct stat *out);
long sim_disk_pwritev2(const long *words);

/* One read, write, or what else is asked of a file. */
enum sim_io_kind { SIM_IO_READ, SIM_IO_WRITE, SIM_IO_DROP, SIM_IO_SYNC };

struct sim_io {
    enum sim_io_kind kind;
    struct sim_node *node;
    unsigned *lost; /* of the descriptor: write-backs that failed, of which it was told */
    bool direct, begun;
    bool syncs; /* what it writes to pages is written back before it is over */
    int host;
    unsigned life; /* of the host */
    char *memory;
    uint64_t at, length, limit, done;
    int64_t result; /* once it is over: bytes or a negative errno */
};

void sim_io_begin(struct sim_io *io, enum sim_io_kind kind, struct sim_disk_file *f, char *memory,
                  uint64_t length, uint64_t at);
/* Goes on; how long until it must again, -1: it is over. */
int64_t sim_io_step(struct sim_io *io);
/* Its process is gone: it is never over. */
bool sim_io_is_dead(const struct sim_io *io);

/* What disk_calls.c has of disk.c. */
struct sim_node *sim_disk_find(const char *path);
struct sim_disk_file {
    struct sim_file file;
    struct sim_node *node; /* NULL: a folder */
    bool direct;
    unsigned lost;
    char path[64];
};
uint64_t sim_disk_length(const struct sim_node *n);
uint64_t sim_disk_number(const struct sim_node *n);
unsigned sim_disk_lost(const struct sim_node *n);

#endif
