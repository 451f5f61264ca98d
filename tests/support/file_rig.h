/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_rig.h - the transport "nvmeof" in a fake host, with a folder of its own and some registered
 * memory. Every test that uses it runs over io_uring and over threads.
 */
#ifndef TEST_FILE_RIG_H
#define TEST_FILE_RIG_H

#include "fake_host.h"

#define RIG_MEMORY   ((size_t)4 << 20)
#define FILE_RIG_DIR 128

struct file_rig {
    struct fake_host host;
    struct tei_transport *t;
    char *memory; /* RIG_MEMORY bytes, registered */
    struct tei_region *region;
    char dir[FILE_RIG_DIR]; /* removed in the end */
    size_t fds, threads;    /* that there were before */
};

/* What the rigs are made with from now on: io_uring, or threads. */
void file_rig_use(bool uring);

/* Runs an array of cmocka's tests over both; how many failed. */
#define FILE_RIG_RUN(tests)                                                     \
    __extension__({                                                             \
        int failed_;                                                            \
        file_rig_use(true);                                                     \
        failed_ = cmocka_run_group_tests_name("io_uring", (tests), NULL, NULL); \
        file_rig_use(false);                                                    \
        failed_ + cmocka_run_group_tests_name("threads", (tests), NULL, NULL);  \
    })

/*
 * Makes a folder, in the test's own, which is on a disk, mostly, while /tmp may be in memory. A clone in
 * a home that is closed to others has none there that a test could use as another user: then elsewhere.
 */
void file_rig_folder(char dir[FILE_RIG_DIR]);

/* Any file may be opened, unless `configure` (may be NULL) sets other TE_FILE_PATHS. */
struct file_rig *file_rig_open(void (*configure)(struct tei_conf *conf));
/* Ends the process when a descriptor or a thread is left. */
void file_rig_close(struct file_rig *r);

/* A path in the folder; valid until 16 more have been asked for. */
const char *file_rig_path(const struct file_rig *r, const char *name);
/* Makes a file of `length` bytes, all 0, with blocks for all of it. */
void file_rig_make(const struct file_rig *r, const char *name, size_t length);
/* The bytes of a file, read by the page cache; malloc'ed. */
char *file_rig_bytes(const char *path, size_t length);

/* Attaches to a row of `n` files of `length` bytes each, by their paths. */
struct tei_attach *file_rig_attach_row(struct file_rig *r, const char *const *paths, size_t n,
                                       uint64_t length);
struct tei_attach *file_rig_attach(struct file_rig *r, const char *path, uint64_t length);

/* One request from post to end. */
struct fake_task file_rig_move(struct file_rig *r, struct tei_attach *a, int opcode, void *local,
                               uint64_t at, uint64_t length);

#endif
