/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.c - the device, the pages of it that the kernels of machines keep, and what one read or write does.
 *
 * Direct I/O reads and writes the device, in the middle of which others run; pages that are newer are written
 * back before that, and those that it makes old are let go of. All else goes by pages: one that a kernel keeps
 * is not read again, whatever another machine has written to the device since. Who writes a part of a
 * page that is not kept has it read first. A page that could not be written back counts as written, and
 * each descriptor is told once.
 *
 * The length of a file is the same for all machines at once. One that becomes shorter loses what is beyond its end,
 * on the device and in all pages, also of what is under way: a read ends there, a write makes the file longer again.
 */
#include "disk.h"

#include "machine.h"
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE    UINT64_C(4096)
#define NODES   8
#define PIECE   UINT64_C(16384) /* bytes of the device between two steps */
#define FULL_NS (2 * SIM_S)

struct page {
    unsigned char *bytes; /* NULL: it is not kept */
    bool dirty;
};

struct sim_node {
    char path[64];
    uint64_t length, most, pages; /* most: the longest it has ever been */
    unsigned char *device;
    bool *allocated; /* each page of it */
    struct page *kept[SIM_HOSTS];
    unsigned lost; /* write-backs that failed */
};

struct sim_disk sim_disk;
static struct sim_node nodes[NODES];
static int n_nodes;
static unsigned lives[SIM_LIMIT];
static int64_t full_until;

/* ------------------------------------------------------------------------------------------ files */

static void *pages(uint64_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        sim_fail("out of memory");
    return p;
}

struct sim_node *sim_disk_make(const char *name, uint64_t length, uint64_t room)
{
    struct sim_node *n = &nodes[n_nodes++];

    if (n_nodes > NODES)
        sim_fail("more than %d files", NODES);
    strcpy(stpcpy(n->path, SIM_DISK "/"), name);
    n->length = n->most = length;
    n->pages = (room + PAGE - 1) / PAGE;
    n->device = pages(n->pages * PAGE);
    n->allocated = sim_new(n->pages);
    for (uint64_t i = 0; i < n->pages; i++)
        n->allocated[i] = sim_one_in(2);
    return n;
}

struct sim_node *sim_disk_find(const char *path)
{
    for (int i = 0; i < n_nodes; i++)
        if (strcmp(nodes[i].path, path) == 0)
            return &nodes[i];
    return NULL;
}

uint64_t sim_disk_length(const struct sim_node *n)
{
    return n->length;
}

uint64_t sim_disk_number(const struct sim_node *n)
{
    return (uint64_t)(n - nodes) + 1;
}

unsigned sim_disk_lost(const struct sim_node *n)
{
    return n->lost;
}

/* ------------------------------------------------------------------------------------------ pages */

static int machine(int host)
{
    for (int h = 1; h < host && !sim_disk.is_shared; h++)
        if (sim_is_same_machine(h, host))
            return h;
    return sim_disk.is_shared ? 0 : host;
}

static struct page *page_of(struct sim_node *n, int host, uint64_t i)
{
    struct page **kept = &n->kept[machine(host)];

    if (!*kept)
        *kept = sim_new(n->pages * sizeof(**kept));
    return &(*kept)[i];
}

/* False if it could not be; where writes are over once they are in a page all can be. */
static bool write_back(struct sim_node *n, int host, uint64_t i)
{
    struct page *p = page_of(n, host, i);
    bool fails = p->dirty && !sim_disk.is_shared && sim_one_in(sim_disk.error_in);

    if (p->dirty && !fails)
        memcpy(n->device + i * PAGE, p->bytes, PAGE);
    n->lost += fails;
    p->dirty = false;
    return !fails;
}

static bool write_back_all(struct sim_node *n, int host, uint64_t at, uint64_t length)
{
    bool well = true;

    for (uint64_t i = at / PAGE; i < n->pages && i * PAGE < at + length; i++)
        well = write_back(n, host, i) && well;
    return well;
}

static void let_go(struct sim_node *n, int host, uint64_t at, uint64_t length)
{
    for (uint64_t i = at / PAGE; i < n->pages && i * PAGE < at + length; i++) {
        struct page *p = page_of(n, host, i);

        if (p->dirty)
            continue;
        free(p->bytes);
        p->bytes = NULL;
    }
}

static unsigned char *keep(struct sim_node *n, int host, uint64_t i)
{
    struct page *p = page_of(n, host, i);

    if (!p->bytes) {
        p->bytes = sim_new(PAGE);
        memcpy(p->bytes, n->device + i * PAGE, PAGE);
    }
    return p->bytes;
}

unsigned char sim_disk_byte(const struct sim_node *n, uint64_t at)
{
    const struct page *kept = n->kept[0];
    const struct page *p = kept ? &kept[at / PAGE] : NULL;

    return sim_disk.is_shared && p && p->bytes ? p->bytes[at % PAGE] : n->device[at];
}

/* From there on nothing is left of a page. */
static void clear_page(struct sim_node *n, uint64_t i, uint64_t from)
{
    memset(n->device + i * PAGE + from, 0, PAGE - from);
    if (!from)
        n->allocated[i] = false;
    for (int m = 0; m < SIM_HOSTS; m++) {
        struct page *p = n->kept[m] ? &n->kept[m][i] : NULL;

        if (p && p->bytes && from) {
            memset(p->bytes + from, 0, PAGE - from);
        } else if (p) {
            free(p->bytes);
            *p = (struct page){NULL, false};
        }
    }
}

void sim_disk_resize(struct sim_node *n, uint64_t length)
{
    sim_trace("%s has %llu bytes, and had %llu", n->path, (unsigned long long)length,
              (unsigned long long)n->length);
    for (uint64_t at = length; at < n->length; at = (at / PAGE + 1) * PAGE)
        clear_page(n, at / PAGE, at % PAGE);
    n->length = length;
    n->most = n->most > length ? n->most : length;
}

/* Its kernel lives on, and writes back what it keeps. */
void sim_disk_end(int host)
{
    lives[host]++;
    for (int i = 0; i < n_nodes; i++)
        write_back_all(&nodes[i], host, 0, nodes[i].pages * PAGE);
}

/* ------------------------------------------------------------------------------------ one request */

void sim_io_begin(struct sim_io *io, enum sim_io_kind kind, struct sim_disk_file *f, char *memory,
                  uint64_t length, uint64_t at)
{
    *io = (struct sim_io){.kind = kind,
                          .node = f->node,
                          .lost = &f->lost,
                          .direct = f->direct,
                          .host = sim_host(),
                          .life = lives[sim_host()],
                          .memory = memory,
                          .at = at,
                          .length = length};
}

bool sim_io_is_dead(const struct sim_io *io)
{
    return io->life != lives[io->host];
}

static int64_t over(struct sim_io *io, int64_t result)
{
    io->result = result;
    return -1;
}

/* Of a write while the disc is full: up to the first page that has no place yet. */
static uint64_t room(struct sim_node *n, uint64_t at, uint64_t length)
{
    for (uint64_t i = at / PAGE; i < n->pages && i * PAGE < at + length; i++) {
        if (!n->allocated[i] && sim_now() < full_until)
            return i * PAGE > at ? i * PAGE - at : 0;
        n->allocated[i] = true;
    }
    return length;
}

static bool is_misaligned(const struct sim_io *io)
{
    uintptr_t memory = (uintptr_t)io->memory;

    return io->at % sim_disk.align || io->length % sim_disk.align || memory % sim_disk.memory ||
           (sim_disk.refuses && memory % sim_disk.refuses);
}

/* Now and then; of direct I/O whole blocks. */
static uint64_t shorten(const struct sim_io *io, uint64_t limit)
{
    uint64_t block = io->direct ? sim_disk.align : 1;

    if (limit <= block || !sim_one_in(sim_disk.short_in))
        return limit;
    return block * (1 + sim_below((limit - 1) / block));
}

/* How much of so much from there on is within the file. */
static uint64_t within(const struct sim_node *n, uint64_t at, uint64_t length)
{
    uint64_t left = at < n->length ? n->length - at : 0;

    return length < left ? length : left;
}

/* Up to where it goes, which is all of it but for the end of the file that is read, or a negative errno. */
static int64_t find_limit(struct sim_io *io)
{
    struct sim_node *n = io->node;
    uint64_t limit = within(n, io->at, io->length);

    if (io->direct && is_misaligned(io))
        return -EINVAL;
    if (sim_one_in(sim_disk.again_in))
        return sim_one_in(2) ? -EAGAIN : -EINTR;
    if (sim_one_in(sim_disk.error_in))
        return -EIO;
    if (io->kind == SIM_IO_WRITE) {
        full_until =
            sim_one_in(sim_disk.full_in) ? sim_now() + (int64_t)sim_below(FULL_NS) : full_until;
        if (io->at + io->length > n->most)
            sim_fail("a write to %s goes beyond where it has ever ended", n->path);
        limit = room(n, io->at, io->length);
        if (!limit)
            return sim_one_in(4) ? -EDQUOT : -ENOSPC;
    }
    return (int64_t)shorten(io, limit);
}

/* What a device takes until it begins. */
static int64_t latency(void)
{
    if (sim_one_in(sim_disk.stall_in))
        return sim_one_in(8) ? (int64_t)sim_below(25 * SIM_S) : (int64_t)sim_below(2 * SIM_S);
    return (int64_t)(10000 << sim_below(8));
}

static int64_t begin(struct sim_io *io)
{
    int64_t limit = 0;

    io->begun = true;
    if (io->kind == SIM_IO_READ || io->kind == SIM_IO_WRITE)
        limit = find_limit(io);
    if (limit < 0)
        return over(io, limit);
    io->limit = (uint64_t)limit;
    return latency();
}

/* The pages of the machine, before and after it has to do with the device itself. */
static bool make_way(struct sim_io *io)
{
    if (!io->direct)
        return true;
    if (!write_back_all(io->node, io->host, io->at, io->limit))
        return false;
    if (io->kind == SIM_IO_WRITE)
        let_go(io->node, io->host, io->at, io->limit);
    return true;
}

static void move(const struct sim_io *io, uint64_t n)
{
    for (uint64_t done = io->done, end = io->done + n, part; done < end; done += part) {
        uint64_t at = io->at + done, page = at / PAGE;
        unsigned char *there =
            io->direct ? io->node->device + page * PAGE : keep(io->node, io->host, page);

        part = PAGE - at % PAGE < end - done ? PAGE - at % PAGE : end - done;
        if (io->kind == SIM_IO_READ) {
            memmove(io->memory + done, there + at % PAGE, part);
        } else {
            memmove(there + at % PAGE, io->memory + done, part);
            if (!io->direct)
                page_of(io->node, io->host, page)->dirty = true;
        }
    }
}

/* False if the descriptor is told of a page that was lost, whoever has written it. */
static bool tell(struct sim_io *io)
{
    bool well = *io->lost == io->node->lost;

    *io->lost = io->node->lost;
    return well;
}

static int64_t sync_back(struct sim_io *io)
{
    /* SYNC_FILE_RANGE_WAIT_BEFORE tells before anything is written. */
    if (io->kind == SIM_IO_SYNC && !tell(io))
        return over(io, -EIO);
    write_back_all(io->node, io->host, io->at, io->length);
    return over(io, tell(io) ? (int64_t)io->done : -EIO);
}

/* Of the next step; none is left where a file that is read has become shorter. */
static uint64_t piece(const struct sim_io *io)
{
    uint64_t n = io->limit - io->done < PIECE ? io->limit - io->done : PIECE;

    return io->kind == SIM_IO_READ ? within(io->node, io->at + io->done, n) : n;
}

static void make_longer(struct sim_io *io)
{
    uint64_t end = io->at + io->done;

    if (io->kind == SIM_IO_WRITE && end > io->node->length)
        io->node->length = end;
}

static int64_t go_on(struct sim_io *io)
{
    uint64_t n;

    if (io->done == 0 && !make_way(io))
        return over(io, -EIO);
    n = piece(io);
    if (n) {
        move(io, n);
        io->done += n;
        make_longer(io);
        return (int64_t)(n * (1 + sim_below(8)));
    }
    if (io->kind == SIM_IO_WRITE && io->direct)
        let_go(io->node, io->host, io->at, io->limit);
    return io->syncs && !io->direct ? sync_back(io) : over(io, (int64_t)io->done);
}

/* A page that is newer may be written back at once, or is kept. */
static int64_t drop(struct sim_io *io)
{
    if (sim_one_in(2))
        write_back_all(io->node, io->host, io->at, io->length);
    let_go(io->node, io->host, io->at, io->length);
    return over(io, 0);
}

int64_t sim_io_step(struct sim_io *io)
{
    if (!io->begun)
        return begin(io);
    if (io->kind == SIM_IO_DROP)
        return drop(io);
    return io->kind == SIM_IO_SYNC ? sync_back(io) : go_on(io);
}
