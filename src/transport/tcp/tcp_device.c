/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_device.c - serving memory of devices, which no socket reaches: through a buffer of the host.
 *
 *   WRITE   socket -> half A    while    half B -> device
 *   READ    device -> half B    while    half A -> socket
 *
 * A session has a stage while a request of it has ranges on devices. Bytes of all these ranges, one
 * range after the other, are numbered from 0; byte k lies in the buffer at k % RING, so a half of the
 * buffer holds HALF bytes that follow each other, of one long range or of many short ones, and they are
 * copied by one call for each device. Ranges of the request in memory of the host are moved straight
 * from and to where they are.
 *
 *   at       where the socket is
 *   copied   how far copies were submitted. WRITE: up to the half in which `at` is, to the end once all
 *            is there. READ: to the end of the half after that
 *
 * A half is used again once its copies have ended, and a request is answered, and its regions let go
 * of, once all have. The worker sleeps for these, which takes as long as a device needs for one half.
 *
 * Memory is bounded: a worker has BUFFERS buffers, locked in place for the drivers that copy, and frees
 * those that nobody has used for IDLE_NS. Requests that find all of them taken share one more: they
 * leave nothing in it from one step to the next, and wait for each copy.
 *
 * A copy that fails ends the request in a way that no client takes for success. If it has broken the queue
 * it was on, that is opened anew as soon as nobody has copies there.
 */
#include "transport/tcp/tcp_device.h"

#include "plat/plat.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define HALF    ((size_t)256 << 10) /* in the cache between the socket and the copy */
#define RING    (2 * HALF)
#define BUFFERS 31
#define QUEUES  32 /* devices */
#define IDLE_NS (10 * TEI_NS_PER_S)
#define ON_HOST UINT_MAX

/* So there is always a mark: each half of a buffer has one of a queue at most. */
static_assert(2 * (BUFFERS + 1) <= TEI_GPU_MARKS, "more copies than a queue can tell apart");
static_assert(QUEUES <= 32, "queues are bits of an unsigned");

/* Copies of one device. */
struct queue {
    enum tei_mem_kind kind;
    int device;
    struct tei_gpu_queue *q; /* NULL: to be opened */
    unsigned n_out;          /* marks of stages */
    bool doubtful;           /* a copy has failed */
};

struct buffer {
    struct tei_link link;   /* in staging.spare */
    char *bytes;            /* RING */
    unsigned pinned, tried; /* kinds of drivers, in bits */
    int64_t since_ns;       /* in `spare` since */
};

struct tcp_staging {
    struct queue queues[QUEUES];
    unsigned n_queues, n_buffers;
    struct tei_list spare; /* the one used last comes first */
    struct buffer *shared; /* not among the n_buffers */
};

struct place {
    char *addr;
    uint64_t length;
    unsigned queue; /* ON_HOST: none */
};

/* A position in the payload. */
struct spot {
    unsigned place;
    uint64_t off;
    uint64_t staged; /* bytes of devices before it */
};

struct tcp_stage {
    struct tcp_worker *worker;
    bool is_read, failed;
    struct buffer *buffer;
    struct spot at, copied;
    uint64_t total;            /* bytes of devices */
    unsigned queues;           /* that are used, in bits */
    uint64_t marks[2][QUEUES]; /* tickets of the copies under way in a half, 0: none */
    unsigned n;
    struct place places[TCP_FRAME_BLOCKS];
};

void tei_tcp_stages_init(struct tei_pool *pool)
{
    tei_pool_init(pool, sizeof(struct tcp_stage));
}

/* -------------------------------------------------------------------------------------- buffers */

static struct buffer *make_buffer(void)
{
    struct buffer *b = calloc(1, sizeof *b);
    void *bytes;

    if (!b || tei_mem_alloc(RING, "*", false, &bytes)) {
        free(b);
        return NULL;
    }
    b->bytes = bytes;
    return b;
}

static void free_buffer(struct buffer *b)
{
    if (!b)
        return;
    for (unsigned kind = 0; kind < TEI_MEM_KINDS; kind++)
        if (b->pinned & TEI_MEM_BIT(kind))
            tei_gpu_unpin((enum tei_mem_kind)kind, b->bytes);
    tei_mem_free(b->bytes, RING);
    free(b);
}

/* Copies from and to memory that is not pinned are slower, and no worse. */
static void pin(struct buffer *b, enum tei_mem_kind kind)
{
    if (b->tried & TEI_MEM_BIT(kind))
        return;
    b->tried |= TEI_MEM_BIT(kind);
    if (tei_gpu_pin(kind, b->bytes, RING) == 0)
        b->pinned |= TEI_MEM_BIT(kind);
}

static struct buffer *get_buffer(struct tcp_staging *g)
{
    struct tei_link *n = tei_list_pop(&g->spare);
    struct buffer *b = NULL;

    if (n)
        return tei_container_of(n, struct buffer, link);
    if (g->n_buffers < BUFFERS)
        b = make_buffer();
    if (b) {
        g->n_buffers++;
        return b;
    }
    if (!g->shared)
        g->shared = make_buffer();
    return g->shared;
}

static void put_buffer(struct tcp_worker *w, struct buffer *b, int64_t now)
{
    if (b == w->staging->shared)
        return;
    b->since_ns = now;
    tei_list_push_front(&w->staging->spare, &b->link);
    tei_tcp_worker_arm(w, now + IDLE_NS);
}

int64_t tei_tcp_staging_tick(struct tcp_worker *w, int64_t now)
{
    int64_t next = TEI_NEVER;
    struct tei_link *n, *tmp;

    if (!w->staging)
        return TEI_NEVER;
    TEI_LIST_EACH(&w->staging->spare, n, tmp) {
        struct buffer *b = tei_container_of(n, struct buffer, link);
        int64_t at = b->since_ns + IDLE_NS;

        if (at > now) {
            next = at < next ? at : next;
            continue;
        }
        tei_list_del(n);
        w->staging->n_buffers--;
        free_buffer(b);
    }
    return next;
}

/* --------------------------------------------------------------------------------------- queues */

static int open_queue(struct queue *q)
{
    if (q->q && !(q->doubtful && q->n_out == 0))
        return 0;
    tei_gpu_queue_close(q->q);
    q->q = NULL;
    q->doubtful = false;
    return tei_gpu_open(q->kind) || tei_gpu_queue_open(q->kind, q->device, &q->q) ? -1 : 0;
}

/* The worker's for this device, in *index; false if there is none to be had. */
static bool find_queue(struct tcp_worker *w, enum tei_mem_kind kind, int device, unsigned *index)
{
    struct tcp_staging *g = w->staging;
    unsigned i = 0;

    while (i < g->n_queues && (g->queues[i].kind != kind || g->queues[i].device != device))
        i++;
    if (i == QUEUES) {
        tei_tcp_worker_note(w, TE_LOG_WARN, "tcp: memory of %d devices is served, of no more",
                            QUEUES);
        return false;
    }
    if (i == g->n_queues)
        g->queues[g->n_queues++] = (struct queue){.kind = kind, .device = device};
    *index = i;
    return open_queue(&g->queues[i]) == 0;
}

/* Waits for the copies of the half that byte `k` is in. */
static void await_half(struct tcp_stage *st, uint64_t k)
{
    struct tcp_staging *g = st->worker->staging;
    uint64_t *marks = st->marks[k / HALF % 2];

    for (unsigned i = 0; i < g->n_queues; i++) {
        struct queue *q = &g->queues[i];

        if (marks[i] == 0)
            continue;
        if (tei_gpu_queue_wait(q->q, marks[i]))
            st->failed = q->doubtful = true;
        marks[i] = 0;
        q->n_out--;
    }
}

/* --------------------------------------------------------------------------------------- copies */

/* Moves by n bytes that are all of the same place. */
static void advance(const struct tcp_stage *st, struct spot *s, uint64_t n)
{
    const struct place *p = &st->places[s->place];

    s->off += n;
    if (p->queue != ON_HOST)
        s->staged += n;
    if (s->off == p->length) {
        s->place++;
        s->off = 0;
    }
}

/* The copies for queue `i` of the bytes from *s to number `until`; how many, and *s is moved there. */
static size_t gather(const struct tcp_stage *st, struct spot *s, uint64_t until, unsigned i,
                     struct tei_copy *v)
{
    size_t n = 0;

    while (s->staged < until) {
        const struct place *p = &st->places[s->place];
        char *there = p->addr + s->off, *here = st->buffer->bytes + s->staged % RING;
        uint64_t length = p->length - s->off;

        if (p->queue != ON_HOST)
            length = tei_min(length, until - s->staged);
        if (p->queue == i)
            v[n++] = st->is_read
                         ? (struct tei_copy){.to = here,
                                             .from = there,
                                             .n = (size_t)length,
                                             .from_device = true}
                         : (struct tei_copy){
                               .to = there, .from = here, .n = (size_t)length, .to_device = true};
        advance(st, s, length);
    }
    return n;
}

/* Submits the copies up to byte number `until`, which is in the half where `copied` is, or its end. */
static void submit(struct tcp_stage *st, uint64_t until)
{
    struct tcp_staging *g = st->worker->staging;
    uint64_t *marks = st->marks[st->copied.staged / HALF % 2];
    struct tei_copy v[TCP_FRAME_BLOCKS];
    struct spot from = st->copied;

    for (unsigned i = 0; i < g->n_queues && !st->failed; i++) {
        struct queue *q = &g->queues[i];
        size_t n;

        if (!(st->queues & 1u << i))
            continue;
        st->copied = from;
        n = gather(st, &st->copied, until, i, v);
        if (n == 0)
            continue;
        if (q->q && tei_gpu_queue_copy(q->q, v, n, &marks[i]) == 0) {
            q->n_out++;
        } else {
            st->failed = true;
            q->doubtful |= q->q && tei_gpu_queue_is_broken(q->q);
        }
    }
}

static uint64_t end_of_half(uint64_t k)
{
    return (k / HALF + 1) * HALF;
}

static bool is_shared(const struct tcp_stage *st)
{
    return st->buffer == st->worker->staging->shared;
}

/* READ: has the device copy into this half, and the next. */
static void fetch(struct tcp_stage *st)
{
    uint64_t ahead = end_of_half(st->at.staged) + HALF;

    if (is_shared(st)) { /* whatever was in it */
        st->copied = st->at;
        ahead -= HALF;
    }
    ahead = tei_min(ahead, st->total);
    while (!st->failed && st->copied.staged < ahead)
        submit(st, tei_min(end_of_half(st->copied.staged), ahead));
}

/* WRITE: has the device take what is complete. */
static void deliver(struct tcp_stage *st)
{
    bool all = st->at.place == st->n || is_shared(st);
    uint64_t until = all ? st->at.staged : st->at.staged / HALF * HALF;

    if (!st->failed && st->copied.staged < until)
        submit(st, until);
    if (is_shared(st) && until > 0)
        await_half(st, until - 1);
}

/* ------------------------------------------------------------------------------------- requests */

static struct tcp_staging *staging_of(struct tcp_worker *w)
{
    if (!w->staging) {
        w->staging = calloc(1, sizeof *w->staging);
        if (w->staging)
            tei_list_init(&w->staging->spare);
    }
    return w->staging;
}

bool tei_tcp_stage_open(struct tcp_session *s, bool is_read)
{
    struct tcp_staging *g = staging_of(s->worker);
    struct tcp_stage *st = g ? tei_pool_get(&s->worker->t->stages) : NULL;

    if (!st)
        return false;
    memset(st, 0, offsetof(struct tcp_stage, places));
    st->worker = s->worker;
    st->is_read = is_read;
    st->buffer = get_buffer(g);
    if (!st->buffer) {
        tei_pool_put(&s->worker->t->stages, st);
        return false;
    }
    s->stage = st;
    return true;
}

bool tei_tcp_stage_add(struct tcp_session *s, const struct tei_region *r, uint64_t addr,
                       uint64_t length)
{
    struct tcp_stage *st = s->stage;
    struct place *p = &st->places[st->n++];

    *p = (struct place){(char *)(uintptr_t)addr, length, ON_HOST};
    if (r->kind == TEI_MEM_HOST)
        return true;
    if (!find_queue(s->worker, r->kind, r->device, &p->queue))
        return false;
    pin(st->buffer, r->kind);
    st->queues |= 1u << p->queue;
    st->total += length;
    return true;
}

/* Adds a part of the payload; one that follows the last in memory is one with it. */
static int add_part(struct iovec *iov, int n, char *from, size_t length)
{
    if (n > 0 && (char *)iov[n - 1].iov_base + iov[n - 1].iov_len == from) {
        iov[n - 1].iov_len += length;
        return n;
    }
    iov[n] = (struct iovec){from, length};
    return n + 1;
}

int tei_tcp_stage_places(struct tcp_session *s, struct iovec *iov, int room, uint64_t max)
{
    struct tcp_stage *st = s->stage;
    uint64_t end = end_of_half(st->at.staged);
    struct spot at = st->at;
    int n = 0;

    if (st->is_read)
        fetch(st);
    await_half(st, st->at.staged);
    while (!st->failed && at.place < st->n && n < room && max > 0) {
        const struct place *p = &st->places[at.place];
        uint64_t length = tei_min(p->length - at.off, max);
        char *from = p->addr + at.off;

        if (p->queue != ON_HOST) {
            length = tei_min(length, end - at.staged);
            from = st->buffer->bytes + at.staged % RING;
        }
        if (length == 0)
            break;
        n = add_part(iov, n, from, (size_t)length);
        max -= length;
        advance(st, &at, length);
    }
    return n;
}

void tei_tcp_stage_moved(struct tcp_session *s, uint64_t n)
{
    struct tcp_stage *st = s->stage;

    while (n > 0) {
        uint64_t here = tei_min(st->places[st->at.place].length - st->at.off, n);

        advance(st, &st->at, here);
        n -= here;
    }
    if (!st->is_read)
        deliver(st);
}

bool tei_tcp_stage_failed(const struct tcp_session *s)
{
    return s->stage && s->stage->failed;
}

bool tei_tcp_stage_close(struct tcp_session *s)
{
    struct tcp_stage *st = s->stage;
    bool well;

    if (!st)
        return true;
    await_half(st, 0);
    await_half(st, HALF);
    well = !st->failed;
    put_buffer(s->worker, st->buffer, s->since_ns);
    tei_pool_put(&s->worker->t->stages, st);
    s->stage = NULL;
    return well;
}

void tei_tcp_staging_fini(struct tcp_worker *w)
{
    struct tei_link *n;

    if (!w->staging)
        return;
    for (unsigned i = 0; i < w->staging->n_queues; i++)
        tei_gpu_queue_close(w->staging->queues[i].q);
    while ((n = tei_list_pop(&w->staging->spare)))
        free_buffer(tei_container_of(n, struct buffer, link));
    free_buffer(w->staging->shared);
    free(w->staging);
    w->staging = NULL;
}
