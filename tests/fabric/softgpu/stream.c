/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c - streams, each a thread that carries out what was submitted, in order and a little late;
 * events; copies.
 *
 * Where the two sides of a copy lie is found when it is submitted, and the bytes are read when its
 * turn comes, also those of pageable memory, which a real driver may have read by then: what is
 * written into the source meanwhile is seen. An op stays at the head of its queue while it is carried
 * out, without the lock, so a queue with an op in it is a stream at work. Ops have a number, from one
 * count for all streams: who wants memory back waits until no op is left that was there before.
 *
 * When an op fails late, its context is dead: whatever is behind it does nothing, events end, and
 * every call gives the code.
 */
#include "fabric/softgpu/core.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct piece {
    char *to;
    const char *from;
    char *own; /* what was read at once, if it was */
    size_t n;
};

enum op_what { OP_COPY, OP_FILL, OP_RECORD, OP_WAIT, OP_VALUE, OP_CALL };

struct op {
    struct op *next;
    uint64_t number;
    enum op_what what;
    int fails; /* with this code, when it is carried out */
    uint8_t byte;
    uint32_t value;
    _Atomic uint32_t *word;
    struct sg_event *event;
    uint64_t mark; /* of the event */
    void (*call)(void *arg);
    void *arg;
    size_t n;
    struct piece v[];
};

struct sg_stream {
    struct sg_stream *next;
    struct sg_context *context;
    uint64_t life, random;
    bool blocking, closing, ended;
    struct op *first, *last;
    pthread_cond_t wake;
};

struct sg_event {
    struct sg_event *next;
    struct sg_context *context;
    uint64_t life, recorded, completed;
    unsigned refs; /* its owner and ops */
};

/* ----------------------------------------------------------------------------------- carry out */

static void put_event(struct sg_event *e)
{
    if (--e->refs == 0)
        free(e);
}

static void free_op(struct op *op)
{
    for (size_t i = 0; i < op->n; i++)
        free(op->v[i].own);
    if (op->event)
        put_event(op->event);
    free(op);
}

static void sleep_a_little(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    if (SG->settings.delay_us)
        usleep((useconds_t)(*random % (SG->settings.delay_us + 1)));
}

static void copy_bytes(void *to, const void *from, size_t n)
{
    const struct softgpu_world *world = &softgpu_world;

    if (world)
        world->copy(to, from, n);
    else
        memmove(to, from, n);
}

/* Without the lock. */
static void move_bytes(const struct op *op)
{
    for (size_t i = 0; i < op->n; i++)
        if (op->what == OP_FILL)
            memset(op->v[i].to, op->byte, op->v[i].n);
        else
            copy_bytes(op->v[i].to, op->v[i].from, op->v[i].n);
}

static bool is_over(const struct sg_context *c, uint64_t life)
{
    return !c->active || c->life != life || c->dead;
}

/* As devices do, it looks again and again. */
static void wait_value(const struct sg_context *c, uint64_t life, const struct op *op)
{
    while ((int32_t)(atomic_load(op->word) - op->value) < 0 && !is_over(c, life)) {
        pthread_mutex_unlock(&SG->lock);
        usleep(50);
        pthread_mutex_lock(&SG->lock);
    }
}

/* Drops the lock while bytes move, and for a function of the host. */
static void carry_out(struct sg_context *c, uint64_t life, const struct op *op, uint64_t *random)
{
    sg_stalled(c->kind, c->device);
    if (op->what == OP_WAIT)
        while (op->event->completed < op->mark && !is_over(c, life))
            pthread_cond_wait(&SG->changed, &SG->lock);
    if (op->what == OP_VALUE)
        wait_value(c, life, op);
    if (op->what == OP_RECORD && op->event->completed < op->mark)
        op->event->completed = op->mark;
    if (op->what == OP_RECORD || op->what == OP_WAIT || op->what == OP_VALUE || is_over(c, life))
        return;
    if (op->fails) {
        c->dead = op->fails;
        return;
    }
    pthread_mutex_unlock(&SG->lock);
    sleep_a_little(random);
    if (op->what == OP_CALL)
        op->call(op->arg);
    else
        move_bytes(op);
    pthread_mutex_lock(&SG->lock);
}

static void *work(void *arg)
{
    struct sg_stream *s = arg;

    pthread_setname_np(pthread_self(), "softgpu");
    pthread_mutex_lock(&SG->lock);
    for (;;) {
        struct op *op;

        while (!s->first && !s->closing)
            pthread_cond_wait(&s->wake, &SG->lock);
        op = s->first;
        if (!op)
            break;
        carry_out(s->context, s->life, op, &s->random);
        s->first = op->next;
        free_op(op);
        pthread_cond_broadcast(&SG->changed);
    }
    s->ended = true; /* and gone, for whoever destroys it */
    pthread_cond_broadcast(&SG->changed);
    pthread_mutex_unlock(&SG->lock);
    return NULL;
}

static bool busy(enum softgpu_kind kind, int device, bool blocking_only, uint64_t last)
{
    for (const struct sg_stream *s = SG->streams[kind]; s; s = s->next)
        if (s->first && s->first->number <= last && (s->blocking || !blocking_only) &&
            (device < 0 || s->context->device == device))
            return true;
    return false;
}

void sg_quiesce(enum softgpu_kind kind, int device, bool blocking_only)
{
    uint64_t last = SG->last_op;

    while (busy(kind, device, blocking_only, last))
        pthread_cond_wait(&SG->changed, &SG->lock);
}

/* For NULL, the legacy stream: waits its turn and carries it out here. Takes over the op. */
static int submit(struct sg_context *c, struct sg_stream *s, struct op *op)
{
    op->number = ++SG->last_op;
    if (s) {
        if (s->first)
            s->last->next = op;
        else
            s->first = op;
        s->last = op;
        pthread_cond_signal(&s->wake);
        return SG_OK;
    }
    sg_quiesce(c->kind, c->device, true);
    carry_out(c, c->life, op, &(uint64_t){op->number * 0x9e3779b97f4a7c15u});
    free_op(op);
    pthread_cond_broadcast(&SG->changed);
    return c->dead;
}

static struct op *new_op(size_t n)
{
    struct op *op = calloc(1, sizeof(*op) + n * sizeof(op->v[0]));

    if (op)
        op->n = n;
    return op;
}

/* ------------------------------------------------------------------------------------- streams */

static struct sg_stream **find_stream(enum softgpu_kind kind, const struct sg_stream *s)
{
    struct sg_stream **at = &SG->streams[kind];

    while (*at && *at != s)
        at = &(*at)->next;
    return at;
}

static int start(struct sg_stream *s)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    rc = pthread_create(&thread, &attr, work, s);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc ? SG_OPERATING_SYSTEM : SG_OK;
}

int sg_stream_create(struct sg_context *c, bool blocking, struct sg_stream **out)
{
    struct sg_stream *s;
    int rc = sg_fault(c->kind, SG_AT_stream, SG_OUT_OF_MEMORY, NULL);

    if (rc)
        return rc;
    s = calloc(1, sizeof(*s));
    if (!s)
        return SG_OUT_OF_MEMORY;
    *s = (struct sg_stream){.context = c, .life = c->life, .blocking = blocking};
    s->random = sg_random();
    pthread_cond_init(&s->wake, NULL);
    rc = start(s);
    if (rc) {
        pthread_cond_destroy(&s->wake);
        free(s);
        return rc;
    }
    s->next = SG->streams[c->kind];
    SG->streams[c->kind] = s;
    *out = s;
    return SG_OK;
}

int sg_stream_destroy(enum softgpu_kind kind, struct sg_stream *s)
{
    int rc;

    if (!*find_stream(kind, s) || s->closing)
        return SG_INVALID_HANDLE;
    s->closing = true;
    pthread_cond_signal(&s->wake);
    while (!s->ended)
        pthread_cond_wait(&SG->changed, &SG->lock);
    *find_stream(kind, s) = s->next;
    rc = s->context->life == s->life ? s->context->dead : SG_OK;
    pthread_cond_destroy(&s->wake);
    free(s);
    return rc;
}

/* Whether this one can be used from `c`. */
static int check_stream(const struct sg_context *c, const struct sg_stream *s)
{
    if (!s)
        return SG_OK;
    if (!*find_stream(c->kind, s) || s->closing || s->context != c)
        return SG_INVALID_HANDLE;
    return s->life == c->life ? SG_OK : SG_CONTEXT_IS_DESTROYED;
}

int sg_stream_sync(struct sg_context *c, struct sg_stream *s)
{
    uint64_t last = SG->last_op;
    int rc = check_stream(c, s);

    if (!rc)
        rc = sg_captured(c->kind);
    if (rc)
        return rc;
    if (!s)
        sg_quiesce(c->kind, c->device, true);
    while (s && *find_stream(c->kind, s) && s->first && s->first->number <= last)
        pthread_cond_wait(&SG->changed, &SG->lock);
    return c->dead;
}

int sg_stream_query(struct sg_context *c, struct sg_stream *s)
{
    int rc = check_stream(c, s);

    if (rc)
        return rc;
    rc = sg_fault(c->kind, SG_AT_query, SG_LAUNCH_FAILED, NULL);
    if (rc)
        return rc;
    if (s)
        return s->first ? SG_NOT_READY : SG_OK;
    return busy(c->kind, c->device, true, SG->last_op) ? SG_NOT_READY : SG_OK;
}

long sg_stream_live(enum softgpu_kind kind)
{
    long n = 0;

    for (const struct sg_stream *s = SG->streams[kind]; s; s = s->next)
        n++;
    return n;
}

/* -------------------------------------------------------------------------------------- events */

static struct sg_event **find_event(enum softgpu_kind kind, const struct sg_event *e)
{
    struct sg_event **at = &SG->events[kind];

    while (*at && *at != e)
        at = &(*at)->next;
    return at;
}

int sg_event_create(struct sg_context *c, struct sg_event **out)
{
    struct sg_event *e;
    int rc = sg_fault(c->kind, SG_AT_event, SG_OUT_OF_MEMORY, NULL);

    if (rc)
        return rc;
    e = calloc(1, sizeof(*e));
    if (!e)
        return SG_OUT_OF_MEMORY;
    *e = (struct sg_event){.next = SG->events[c->kind], .context = c, .life = c->life, .refs = 1};
    SG->events[c->kind] = e;
    *out = e;
    return SG_OK;
}

int sg_event_destroy(enum softgpu_kind kind, struct sg_event *e)
{
    struct sg_event **at = find_event(kind, e);
    int rc;

    if (!e || !*at)
        return SG_INVALID_HANDLE;
    rc = e->context->life == e->life ? e->context->dead : SG_OK;
    *at = e->next;
    put_event(e);
    return rc;
}

static int check_event(enum softgpu_kind kind, const struct sg_event *e)
{
    if (!e || !*find_event(kind, e))
        return SG_INVALID_HANDLE;
    if (!e->context->active || e->life != e->context->life)
        return SG_CONTEXT_IS_DESTROYED;
    return e->context->dead;
}

static int submit_event(struct sg_context *c, struct sg_stream *s, struct sg_event *e,
                        enum op_what what)
{
    struct op *op = new_op(0);

    if (!op)
        return SG_OUT_OF_MEMORY;
    op->what = what;
    op->event = e;
    op->mark = e->recorded;
    e->refs++;
    return submit(c, s, op);
}

int sg_event_record(struct sg_context *c, struct sg_event *e, struct sg_stream *s)
{
    int rc = check_event(c->kind, e);

    if (rc == SG_OK)
        rc = check_stream(c, s);
    if (rc == SG_OK && e->context != c)
        rc = SG_INVALID_HANDLE;
    if (rc == SG_OK)
        rc = sg_fault(c->kind, SG_AT_record, SG_LAUNCH_FAILED, NULL);
    if (rc)
        return rc;
    e->recorded++;
    return submit_event(c, s, e, OP_RECORD);
}

int sg_stream_wait(struct sg_context *c, struct sg_stream *s, struct sg_event *e)
{
    int rc = check_event(c->kind, e);

    if (rc == SG_OK)
        rc = check_stream(c, s);
    return rc ? rc : submit_event(c, s, e, OP_WAIT);
}

int sg_stream_value(struct sg_context *c, struct sg_stream *s, uintptr_t word, uint32_t value)
{
    const struct sg_range *r = sg_find(c->kind, word);
    int rc = check_stream(c, s);
    struct op *op;

    if (rc)
        return rc;
    if (!r || r->sort != SG_PINNED || word % sizeof(value))
        return SG_INVALID_VALUE;
    op = new_op(0);
    if (!op)
        return SG_OUT_OF_MEMORY;
    op->what = OP_VALUE;
    op->word = (_Atomic uint32_t *)word;
    op->value = value;
    return submit(c, s, op);
}

int sg_stream_call(struct sg_context *c, struct sg_stream *s, void (*call)(void *arg), void *arg)
{
    int rc = check_stream(c, s);
    struct op *op = rc ? NULL : new_op(0);

    if (!op)
        return rc ? rc : SG_OUT_OF_MEMORY;
    op->what = OP_CALL;
    op->call = call;
    op->arg = arg;
    return submit(c, s, op);
}

int sg_event_query(enum softgpu_kind kind, struct sg_event *e)
{
    int rc = check_event(kind, e);

    if (rc == SG_OK)
        rc = sg_fault(kind, SG_AT_query, SG_LAUNCH_FAILED, NULL);
    if (rc == SG_OK && e->completed < e->recorded)
        rc = SG_NOT_READY;
    return rc;
}

int sg_event_sync(enum softgpu_kind kind, struct sg_event *e)
{
    int rc = check_event(kind, e);
    uint64_t mark;

    if (rc == SG_OK)
        rc = sg_fault(kind, SG_AT_query, SG_LAUNCH_FAILED, NULL);
    if (rc)
        return rc;
    mark = e->recorded;
    e->refs++;
    while (e->completed < mark && !is_over(e->context, e->life))
        pthread_cond_wait(&SG->changed, &SG->lock);
    rc = e->context->dead;
    put_event(e);
    return rc;
}

long sg_event_live(enum softgpu_kind kind)
{
    long n = 0;

    for (const struct sg_event *e = SG->events[kind]; e; e = e->next)
        n++;
    return n;
}

/* -------------------------------------------------------------------------------------- copies */

static bool allowed(const struct sg_context *c, const struct sg_range *r, bool write)
{
    unsigned bit = 1u << c->device;

    return r->sort != SG_MAPPED || ((write ? r->can_write : r->can_read) & bit);
}

/* Memory that a driver does not know; but what softgpu plays is never touched by the wrong one. */
static int host_side(const struct sg_context *c, uintptr_t addr, size_t n, char **out)
{
    const struct sg_range *r = sg_find_from(c->kind, addr);

    if (r && r->addr < addr + n)
        return SG_INVALID_VALUE;
    for (int kind = 0; kind < SOFTGPU_KINDS; kind++) {
        r = sg_find_from((enum softgpu_kind)kind, addr);
        if (kind != (int)c->kind && r && r->addr < addr + n && r->sort != SG_PINNED &&
            r->sort != SG_MANAGED)
            return SG_INVALID_VALUE;
    }
    if (!sg_host_mapped(addr, n)) {
        fprintf(stderr, "softgpu: a copy touches %zu bytes at 0x%zx, where there is no memory\n", n,
                (size_t)addr);
        raise(SIGSEGV); /* which is what a driver's own copy to its staging memory meets */
    }
    *out = (char *)addr;
    return SG_OK;
}

/* Where the bytes of one side are reached; they must lie in one allocation, or mappings in a row. */
static int side(const struct sg_context *c, uintptr_t addr, size_t n, bool write, char **out)
{
    const struct sg_range *r = sg_find_any(c->kind, addr), *next = r;

    if (addr + n < addr)
        return SG_INVALID_VALUE;
    if (!r)
        return host_side(c, addr, n, out);
    if (r->sort < SG_MEMORY)
        return SG_INVALID_VALUE;
    *out = r->alias + (addr - r->addr);
    while (next->addr + next->size < addr + n) {
        if (!allowed(c, next, write))
            return SG_INVALID_VALUE;
        next = sg_find(c->kind, next->addr + next->size);
        if (!next || r->sort != SG_MAPPED || next->sort != SG_MAPPED || next->space != r->space)
            return SG_INVALID_VALUE;
    }
    return allowed(c, next, write) ? SG_OK : SG_INVALID_VALUE;
}

static int prepare(const struct sg_context *c, const struct sg_copy *from, struct piece *p)
{
    char *source = NULL;
    int rc = side(c, from->to, from->n, true, &p->to);

    if (rc == SG_OK)
        rc = side(c, from->from, from->n, false, &source);
    if (rc)
        return rc;
    p->from = source;
    p->n = from->n;
    if (!from->now)
        return SG_OK;
    p->own = malloc(from->n);
    if (!p->own)
        return SG_OUT_OF_MEMORY;
    memcpy(p->own, source, from->n);
    p->from = p->own;
    return SG_OK;
}

static void shuffle(struct piece *v, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)(sg_random() % i);
        struct piece p = v[j];

        v[j] = v[i - 1];
        v[i - 1] = p;
    }
}

/* Whether this op is to fail, now (the code) or later. */
static int strike(const struct sg_context *c, struct op *op)
{
    bool late = false;
    int rc = sg_fault(c->kind, SG_AT_copy, SG_LAUNCH_FAILED, &late);

    if (rc == SG_OK || !late)
        return rc;
    op->fails = rc;
    return SG_OK;
}

int sg_copy(struct sg_context *c, struct sg_stream *s, const struct sg_copy *v, size_t n,
            bool any_order, size_t *bad)
{
    struct op *op;
    int rc = check_stream(c, s);

    if (rc)
        return rc;
    op = new_op(n);
    if (!op)
        return SG_OUT_OF_MEMORY;
    op->what = OP_COPY;
    rc = strike(c, op);
    for (size_t i = 0; i < n && rc == SG_OK; i++) {
        if (v[i].n)
            rc = prepare(c, &v[i], &op->v[i]);
        if (rc && bad)
            *bad = i;
    }
    if (rc) {
        free_op(op);
        return rc;
    }
    if (any_order)
        shuffle(op->v, n);
    return submit(c, s, op);
}

int sg_fill(struct sg_context *c, struct sg_stream *s, uintptr_t to, uint8_t byte, size_t n)
{
    const struct sg_range *r = sg_find(c->kind, to);
    struct op *op;
    int rc = check_stream(c, s);

    if (rc)
        return rc;
    if (!r)
        return SG_INVALID_VALUE;
    op = new_op(1);
    if (!op)
        return SG_OUT_OF_MEMORY;
    op->what = OP_FILL;
    op->byte = byte;
    rc = strike(c, op);
    op->v[0].n = n;
    if (rc == SG_OK && n)
        rc = side(c, to, n, true, &op->v[0].to);
    if (rc) {
        free_op(op);
        return rc;
    }
    return submit(c, s, op);
}
