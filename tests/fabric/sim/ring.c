/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.c - io_uring, as liburing names what it does: the rings are memory, which liburing's header fills
 * and empties; the kernel is here. Requests end in any order, as events, whether or not a thread waits.
 */
#if __has_include(<liburing.h>)

#include <liburing.h>

#include "disk.h"
#include "machine.h"
#include "sim.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define FILES   1024
#define BUFFERS 16384
#define RINGS   256

struct kernel {
    int host;
    unsigned sq_head, cq_head, cq_tail;
    unsigned flying;
    int polled; /* a descriptor; 0: none */
    uint64_t polled_for;
    struct sim_disk_file *files[FILES];
    struct iovec *buffers;
    struct request *requests; /* under way */
};

struct request {
    struct request *next;
    struct kernel *kernel;
    struct io_uring *ring;
    uint64_t data;
    bool canceled;
    struct sim_io io;
};

static struct {
    const struct io_uring *ring;
    struct kernel *kernel;
} rings[RINGS];

static struct kernel *kernel_of(const struct io_uring *r)
{
    for (int i = 0; i < RINGS; i++)
        if (rings[i].ring == r)
            return rings[i].kernel;
    sim_fail("%p is no ring", (const void *)r);
}

/* ------------------------------------------------------------------------------------ begin and end */

static void lay(struct io_uring *r, struct kernel *k, unsigned entries)
{
    memset(r, 0, sizeof(*r));
    r->sq.khead = &k->sq_head;
    r->sq.sqes = sim_new(entries * sizeof(*r->sq.sqes));
    r->sq.ring_entries = entries;
    r->sq.ring_mask = entries - 1;
    r->cq.khead = &k->cq_head;
    r->cq.ktail = &k->cq_tail;
    r->cq.ring_entries = 2 * entries;
    r->cq.ring_mask = 2 * entries - 1;
    r->cq.cqes = sim_new(2 * entries * sizeof(*r->cq.cqes));
    r->features = IORING_FEAT_EXT_ARG;
    r->ring_fd = -1;
}

int io_uring_queue_init(unsigned entries, struct io_uring *r, unsigned flags)
{
    int i = 0;

    sim_point();
    if (sim_disk.ring_error)
        return -sim_disk.ring_error;
    if (flags && sim_one_in(4)) /* an older kernel */
        return -EINVAL;
    while (i < RINGS && rings[i].ring)
        i++;
    if (i == RINGS)
        sim_fail("more than %d rings", RINGS);
    rings[i].ring = r;
    rings[i].kernel = sim_new(sizeof(struct kernel));
    rings[i].kernel->host = sim_host();
    rings[i].kernel->buffers = sim_new(BUFFERS * sizeof(struct iovec));
    lay(r, rings[i].kernel, entries);
    return 0;
}

void io_uring_queue_exit(struct io_uring *r)
{
    struct kernel *k = kernel_of(r);

    sim_point();
    if (k->flying)
        sim_fail("a ring is taken apart with %u requests under way", k->flying);
    for (int i = 0; i < RINGS; i++)
        if (rings[i].ring == r)
            rings[i].ring = NULL;
    free(r->sq.sqes);
    free(r->cq.cqes);
    free(k->buffers);
    free(k);
}

struct io_uring_probe *io_uring_get_probe_ring(struct io_uring *r)
{
    struct io_uring_probe *p = sim_new(sizeof(*p));

    (void)r;
    p->last_op = sim_disk.has_files ? 60 : 40;
    return p;
}

void io_uring_free_probe(struct io_uring_probe *p)
{
    free(p);
}

int io_uring_ring_dontfork(struct io_uring *r)
{
    (void)r;
    return 0;
}

int io_uring_register_iowq_max_workers(struct io_uring *r, unsigned *workers)
{
    (void)r, (void)workers;
    return 0;
}

/* ---------------------------------------------------------------------------------------- the tables */

int io_uring_register_files_sparse(struct io_uring *r, unsigned n)
{
    (void)r;
    return n > FILES ? -EMFILE : 0;
}

int io_uring_register_buffers_sparse(struct io_uring *r, unsigned n)
{
    (void)r;
    return n > BUFFERS ? -EMFILE : sim_disk.has_memory ? 0 : -ENOMEM;
}

int io_uring_register_files_update(struct io_uring *r, unsigned off, const int *fds, unsigned n)
{
    struct kernel *k = kernel_of(r);

    sim_point();
    if (fds[0] >= 0 && sim_one_in(sim_file_faults))
        return -ENFILE;
    k->files[off] = fds[0] < 0 ? NULL : sim_disk_file_of(fds[0]);
    return (int)n;
}

int io_uring_register_buffers_update_tag(struct io_uring *r, unsigned off,
                                         const struct iovec *iovecs, const __u64 *tags, unsigned n)
{
    struct kernel *k = kernel_of(r);

    (void)tags;
    sim_point();
    if (iovecs[0].iov_base && sim_one_in(8))
        return -ENOMEM;
    k->buffers[off] = iovecs[0];
    return (int)n;
}

/* ------------------------------------------------------------------------------------- completions */

static void complete(struct io_uring *r, struct kernel *k, uint64_t data, int64_t result)
{
    struct io_uring_cqe *c = &r->cq.cqes[k->cq_tail & r->cq.ring_mask];

    if (k->cq_tail - k->cq_head == r->cq.ring_entries)
        sim_fail("a ring has no place for a completion");
    memset(c, 0, sizeof(*c));
    c->user_data = data;
    c->res = (int)result;
    __atomic_store_n(&k->cq_tail, k->cq_tail + 1, __ATOMIC_RELEASE);
    sim_file_wake(k->host);
}

static void take_out(struct request *q)
{
    struct request **at = &q->kernel->requests;

    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    q->kernel->flying--;
}

static void go_on(void *arg)
{
    struct request *q = arg;
    int64_t ns = q->canceled || sim_io_is_dead(&q->io) ? -1 : sim_io_step(&q->io);

    if (ns >= 0) {
        sim_at(sim_now() + ns, go_on, q);
        return;
    }
    if (!sim_io_is_dead(&q->io)) {
        take_out(q);
        complete(q->ring, q->kernel, q->data, q->canceled ? -ECANCELED : q->io.result);
    }
    free(q);
}

/* One that has not come to the device yet can be; else nobody knows. */
static void cancel(struct io_uring *r, struct kernel *k, const struct io_uring_sqe *e)
{
    struct request *q = k->requests;

    while (q && q->data != e->addr)
        q = q->next;
    if (q && !q->io.done && sim_one_in(2))
        q->canceled = true;
    complete(r, k, e->user_data, q ? -EALREADY : -ENOENT);
}

/* -------------------------------------------------------------------------------------- submissions */

static enum sim_io_kind kind_of(unsigned op)
{
    switch (op) {
    case IORING_OP_READ:
    case IORING_OP_READ_FIXED:
        return SIM_IO_READ;
    case IORING_OP_WRITE:
    case IORING_OP_WRITE_FIXED:
        return SIM_IO_WRITE;
    case IORING_OP_FADVISE:
        return SIM_IO_DROP;
    case IORING_OP_SYNC_FILE_RANGE:
        return SIM_IO_SYNC;
    default:
        sim_fail("a ring is asked for operation %u", op);
    }
}

/* Memory that is not registered, or not as the device wants it, which Linux 6.1 refuses. */
static int check_fixed(const struct kernel *k, const struct io_uring_sqe *e, bool direct)
{
    const struct iovec *v = &k->buffers[e->buf_index];
    uint64_t begin = (uint64_t)(uintptr_t)v->iov_base;

    if (e->opcode != IORING_OP_READ_FIXED && e->opcode != IORING_OP_WRITE_FIXED)
        return 0;
    if (e->addr < begin || e->addr + e->len > begin + v->iov_len)
        return EFAULT;
    return direct && sim_disk.fixed_is_picky && e->addr % 512 ? EINVAL : 0;
}

static void start(struct io_uring *r, struct kernel *k, const struct io_uring_sqe *e)
{
    struct sim_disk_file *f =
        e->flags & IOSQE_FIXED_FILE ? k->files[e->fd] : sim_disk_file_of(e->fd);
    struct request *q;
    int error;

    if (!f) {
        complete(r, k, e->user_data, -EBADF);
        return;
    }
    error = check_fixed(k, e, f->direct);
    if (error) {
        complete(r, k, e->user_data, -error);
        return;
    }
    q = sim_new(sizeof(*q));
    *q = (struct request){.next = k->requests, .kernel = k, .ring = r, .data = e->user_data};
    sim_io_begin(&q->io, kind_of(e->opcode), f, (char *)(uintptr_t)e->addr, e->len, e->off);
    q->io.syncs = e->opcode != IORING_OP_FADVISE && (e->rw_flags & RWF_DSYNC);
    k->requests = q;
    k->flying++;
    sim_at(sim_now() + (int64_t)sim_below(20) * SIM_US, go_on, q);
}

static void submit(struct io_uring *r, struct kernel *k)
{
    for (; k->sq_head != r->sq.sqe_tail; k->sq_head++) {
        const struct io_uring_sqe *e = &r->sq.sqes[k->sq_head & r->sq.ring_mask];

        if (e->opcode == IORING_OP_POLL_ADD) {
            k->polled = e->fd;
            k->polled_for = e->user_data;
        } else if (e->opcode == IORING_OP_ASYNC_CANCEL) {
            cancel(r, k, e);
        } else {
            start(r, k, e);
        }
    }
}

static void look_at_polled(struct io_uring *r, struct kernel *k)
{
    struct sim_file *f = k->polled ? sim_file_of(k->polled) : NULL;

    if (!f || !(sim_file_ready(f) & POLLIN))
        return;
    k->polled = 0;
    complete(r, k, k->polled_for, POLLIN);
}

int io_uring_submit_and_wait_timeout(struct io_uring *r, struct io_uring_cqe **out, unsigned n,
                                     struct __kernel_timespec *t, sigset_t *mask)
{
    struct kernel *k = kernel_of(r);
    int64_t until = t ? sim_now() + t->tv_sec * SIM_S + t->tv_nsec : SIM_NEVER;

    (void)n, (void)mask;
    sim_point();
    if (sim_one_in(sim_disk.again_in))
        return sim_one_in(2) ? -EAGAIN : -EINTR;
    submit(r, k);
    look_at_polled(r, k);
    while (k->cq_head == k->cq_tail) {
        if (!sim_file_wait("waits in a ring", until)) {
            *out = NULL;
            return -ETIME;
        }
        look_at_polled(r, k);
    }
    *out = &r->cq.cqes[k->cq_head & r->cq.ring_mask];
    return 0;
}

#endif
