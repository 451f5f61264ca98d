/* SPDX-License-Identifier: Apache-2.0 */
/* gpuipc_page.c - entering, leaving, and waiting for those inside. Read gpuipc_page.h first. */
#include "transport/gpuipc/gpuipc_page.h"

#include "base/err.h"
#include "base/os.h"
#include "base/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 1000
#define NAP_NS      (50 * 1000)

/* ----------------------------------------------------------------------------------- processes */

enum life { ALIVE, GONE, UNKNOWN };

/* The pid, and when the process began above it: the same as long as it lives. */
static uint64_t name_from(uint32_t pid, const struct tei_process *s)
{
    return (uint64_t)(uint32_t)s->began << 32 | pid;
}

/* Of this process; 0: it cannot be found out at the moment. */
static uint64_t own_name(void)
{
    uint32_t pid = (uint32_t)getpid();
    struct tei_process s;

    return tei_process_look((pid_t)pid, &s) ? name_from(pid, &s) : 0;
}

/*
 * A zombie touches nothing any more, unless it is but the first thread of a process, which has
 * ended before the others.
 */
static enum life life_of(uint64_t who)
{
    uint32_t pid = (uint32_t)who;
    struct tei_process s;

    if (pid == 0 || pid > INT32_MAX)
        return GONE;
    if (!tei_process_look((pid_t)pid, &s))
        return kill((pid_t)pid, 0) != 0 && errno == ESRCH ? GONE : UNKNOWN;
    if (name_from(pid, &s) != who)
        return GONE;
    return (s.state == 'Z' || s.state == 'X') && s.threads <= 1 ? GONE : ALIVE;
}

/*
 * Whether the one that has taken the row is known to be gone; if so, the row is free again. Who
 * clears it holds it meanwhile, or a new one might take it in between.
 */
static bool reap(struct gpuipc_row *row)
{
    uint64_t who = atomic_load(&row->who), own;

    if (who == 0 || life_of(who) != GONE)
        return false;
    own = own_name();
    if (!own || !atomic_compare_exchange_strong(&row->who, &who, own))
        return false;
    atomic_store(&row->busy[0], 0);
    atomic_store(&row->busy[1], 0);
    atomic_store(&row->who, 0);
    return true;
}

/* --------------------------------------------------------------------------------------- owner */

struct gpuipc_page *tei_gpuipc_page_make(const uint8_t nonce[GPUIPC_NONCE], int *fd)
{
    struct gpuipc_page *p;

    *fd = tei_pages_make("te_gpu", sizeof(*p));
    p = *fd < 0 ? NULL : tei_pages_map(*fd, sizeof(*p), true);
    if (!p)
        return NULL;
    p->magic = GPUIPC_MAGIC;
    p->version = GPUIPC_PAGE_VERSION;
    p->n_rows = GPUIPC_ROWS;
    p->n_slots = GPUIPC_SLOTS;
    p->pid_ns = tei_file_inode("/proc/self/ns/pid");
    memcpy(p->nonce, nonce, GPUIPC_NONCE);
    return p;
}

void tei_gpuipc_page_unmap(struct gpuipc_page *p)
{
    if (p)
        munmap(p, sizeof(*p));
}

/* The first row that is busy on this side. */
static struct gpuipc_row *find_busy(struct gpuipc_page *p, unsigned side)
{
    for (size_t i = 0; i < GPUIPC_ROWS; i++)
        if (atomic_load(&p->rows[i].busy[side]) != 0)
            return &p->rows[i];
    return NULL;
}

static int wait_for_side(struct gpuipc_page *p, unsigned side, int64_t deadline_ns)
{
    struct timespec nap = {.tv_nsec = NAP_NS};
    struct gpuipc_row *row;

    while ((row = find_busy(p, side))) {
        if (reap(row))
            continue;
        if (tei_now_ns() >= deadline_ns)
            return TEI_FAIL(TE_ERR_BUSY,
                            "process %u has been copying from or to the memory for %d ms; it must "
                            "go on or end first",
                            (uint32_t)atomic_load(&row->who), PATIENCE_MS);
        nanosleep(&nap, NULL);
    }
    return 0;
}

int tei_gpuipc_page_drain(struct gpuipc_page *p, uint32_t *phase)
{
    int64_t deadline_ns = tei_deadline_ns(PATIENCE_MS);
    int rc = 0;

    for (int i = 0; !rc && i < 2; i++) {
        unsigned side = (*phase)++ & 1;

        atomic_store(&p->phase, *phase);
        rc = wait_for_side(p, side, deadline_ns);
    }
    return rc;
}

/* ----------------------------------------------------------------------------------- initiator */

static bool is_page(const struct gpuipc_page *p, const struct gpuipc_keys *k)
{
    return p->magic == GPUIPC_MAGIC && p->version == GPUIPC_PAGE_VERSION &&
           p->n_rows == GPUIPC_ROWS && p->n_slots == GPUIPC_SLOTS &&
           p->pid_ns == tei_file_inode("/proc/self/ns/pid") &&
           memcmp(p->nonce, k->nonce, GPUIPC_NONCE) == 0;
}

/*
 * Opens the memfd of another process for both directions; -1 with errno. It is looked at before it
 * is opened for that: to open a device or a pipe may do something.
 */
static int open_memfd(const char *path)
{
    int fd = -1, kept, look = open(path, O_PATH | O_CLOEXEC);
    struct statfs fs;
    struct stat st;
    char own[40];

    if (look < 0)
        return -1;
    if (fstat(look, &st) == 0 && fstatfs(look, &fs) == 0) {
        errno = EINVAL;
        if (S_ISREG(st.st_mode) && st.st_uid == geteuid() && fs.f_type == TMPFS_MAGIC) {
            snprintf(own, sizeof(own), "/proc/self/fd/%d", look);
            fd = open(own, O_RDWR | O_CLOEXEC);
        }
    }
    kept = errno;
    close(look);
    errno = kept;
    return fd;
}

struct gpuipc_page *tei_gpuipc_page_find(const struct gpuipc_keys *k, pid_t pid, char *why,
                                         size_t n)
{
    struct gpuipc_page *p = NULL;
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%llu", (int)pid, (unsigned long long)k->fd);
    fd = open_memfd(path);
    if (fd >= 0 && tei_pages_are_sealed(fd, sizeof(*p)))
        p = tei_pages_map(fd, sizeof(*p), true);
    if (!p)
        snprintf(why, n,
                 "%s of its process cannot be opened: %s; it must run as the same user, in the "
                 "same pid namespace",
                 path, tei_errno_text(errno));
    if (fd >= 0)
        close(fd);
    if (p && !is_page(p, k)) {
        snprintf(why, n,
                 "process %d is not the one that published the descriptor, or is in another pid "
                 "namespace",
                 (int)pid);
        tei_gpuipc_page_unmap(p);
        p = NULL;
    }
    return p;
}

/* A row that nobody has; when `reaping`, also one whose owner is gone, which takes a look at /proc. */
static struct gpuipc_row *take_row(struct gpuipc_page *p, uint64_t own, bool reaping)
{
    for (size_t i = 0; i < GPUIPC_ROWS; i++) {
        struct gpuipc_row *row = &p->rows[i];
        uint64_t none = 0;

        if (atomic_load(&row->who) != 0 && !(reaping && reap(row)))
            continue;
        if (atomic_compare_exchange_strong(&row->who, &none, own))
            return row;
    }
    return NULL;
}

struct gpuipc_row *tei_gpuipc_row_take(struct gpuipc_page *p)
{
    uint64_t own = own_name();
    struct gpuipc_row *row = own ? take_row(p, own, false) : NULL;

    return row || !own ? row : take_row(p, own, true);
}

void tei_gpuipc_row_give(struct gpuipc_row *row)
{
    atomic_store(&row->who, 0);
}

bool tei_gpuipc_enter(struct gpuipc_page *p, struct gpuipc_row *row, uint32_t slot,
                      uint32_t generation, unsigned *side)
{
    if (slot >= GPUIPC_SLOTS)
        return false;
    *side = atomic_load(&p->phase) & 1;
    atomic_fetch_add(&row->busy[*side], 1);
    if (atomic_load(&p->generation[slot]) == generation)
        return true;
    tei_gpuipc_leave(row, *side);
    return false;
}

void tei_gpuipc_leave(struct gpuipc_row *row, unsigned side)
{
    /* Release: partner of the owner's load, after which it may use the memory for something else. */
    atomic_fetch_sub_explicit(&row->busy[side], 1, memory_order_release);
}
