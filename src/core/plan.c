/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c - requests on their way to the transports: found, routed, cut, posted.
 *
 * Work comes from the pools in bulk, and waits on a list for each transport. Until it is posted all of
 * it can be given back.
 */
#include "core/plan.h"
#include "base/probe.h"
#include "core/core.h"
#include "core/route.h"

#define WORK_BULK 256 /* taken from a pool at a time */

void tei_plan_init(struct plan *p, te_engine *e, struct batch *b, size_t expect)
{
    p->used = 0;
    tei_list_init(&p->unposted);
    p->engine = e;
    p->batch = b;
    p->group = NULL;
    p->deadline_ns = TEI_NEVER;
    p->region = NULL;
    p->owed = 0;
    p->segment = NULL;
    p->expect = expect;
}

static struct tei_work *take_work(struct plan *p, struct tei_transport *t)
{
    size_t i = t->index;
    struct tei_pool_free *f;

    if (!(p->used & (1u << i))) {
        p->used |= 1u << i;
        p->spare[i] = NULL;
        p->n_spare[i] = 0;
        tei_list_init(&p->lists[i]);
    }
    p->transports[i] = t; /* between two requests another one may have got the index */
    if (!p->spare[i]) {
        p->n_spare[i] = tei_max(1, tei_min(p->expect, WORK_BULK));
        p->spare[i] = tei_pool_get_many(&p->engine->transports.works[i], p->n_spare[i]);
        if (!p->spare[i])
            return NULL;
    }
    f = p->spare[i];
    p->spare[i] = f->next;
    p->n_spare[i]--;
    return (struct tei_work *)(void *)f;
}

/* One piece of work: the part of the request from `done` on that lies in one remote buffer. */
static int cut_one(struct plan *p, struct task *t, const struct via *via, uint64_t done,
                   uint64_t part, struct tei_region *target)
{
    struct tei_transport *carrier =
        tei_transports_carrier(&p->engine->transports, t->region, via->transport);
    struct tei_work *w = take_work(p, carrier);

    if (!w) {
        if (target)
            tei_region_release_local(target, 1);
        return TE_ERR_MEMORY;
    }
    /* One by one: of a struct this large gcc makes a slow loop of the zeros. */
    w->link = (struct tei_link){0};
    w->owner = t->batch;
    w->task = t;
    w->transport = carrier;
    w->attach = via->attach;
    w->region = t->region;
    w->target_region = target;
    w->moved = &t->moved;
    w->local = (char *)t->req.source + done;
    w->remote = t->req.target_offset + done;
    w->length = part;
    w->deadline_ns = t->deadline_ns;
    w->opcode = t->req.opcode;
    w->sink = NULL;
    w->error = 0;
    w->sys_errno = 0;
    w->why = NULL;
    tei_list_push_back(&p->lists[carrier->index], &w->link);
    TEI_PROBE4(route, t, carrier->ops.name, w->opcode, part);
    return 0;
}

/* The range is known to lie in one buffer that allows it. */
static int cut_whole(struct plan *p, struct task *t, const struct via *via)
{
    atomic_store_explicit(&t->left, 1, memory_order_relaxed);
    return cut_one(p, t, via, 0, t->req.length, NULL);
}

/* Gives back the `n` pieces last cut for a transport. */
static void uncut(struct plan *p, size_t index, size_t n)
{
    while (n--) {
        struct tei_link *l = p->lists[index].head.prev;
        struct tei_work *w = tei_container_of(l, struct tei_work, link);

        tei_list_del(l);
        if (w->target_region)
            tei_region_release_local(w->target_region, 1);
        tei_pool_put(&p->engine->transports.works[index], w);
    }
}

/* The next piece's end: in this engine's own regions or in the descriptor's buffers. */
static int next_part(struct plan *p, const struct task *t, uint64_t done, uint64_t *part,
                     struct tei_region **target)
{
    uint64_t at = t->req.target_offset + done, left = t->req.length - done;
    size_t index;

    *target = NULL;
    if (t->view->seg)
        return tei_segment_cover(t->view->seg, at, left, &index, part) ? 0 : TE_ERR_STALE;
    *target = tei_region_hold_part(&p->engine->regions, at, left, part);
    return *target ? 0 : TE_ERR_NOT_REGISTERED;
}

/* The buffer that holds the whole range and allows this; NULL if more must be looked at. */
static const struct tei_buffer *find_buffer(struct plan *p, const struct task *t, unsigned access)
{
    const struct tei_segment *seg = t->view->seg;
    const struct tei_buffer *b = p->buffer;

    if (p->segment != seg || !tei_buffer_holds(b, t->req.target_offset, t->req.length)) {
        b = tei_segment_find(seg, t->req.target_offset, t->req.length);
        if (!b)
            return NULL;
        p->segment = seg;
        p->buffer = b;
    }
    return (b->access & access) == access ? b : NULL;
}

int tei_plan_cut(struct plan *p, struct task *t)
{
    unsigned access = t->req.opcode == TE_READ ? TE_REMOTE_READ : TE_REMOTE_WRITE;
    bool whole = t->view->seg && find_buffer(p, t, access);
    const struct via *via;
    uint32_t pieces = 0;
    bool lasts;
    int rc;

    if (t->view->seg && !whole) {
        rc = tei_segment_allows(t->view->seg, t->req.target_offset, t->req.length, access);
        if (rc)
            return rc;
    }
    via = tei_route(t->view, &t->req, &lasts);
    if (!via)
        return TE_ERR_UNSUPPORTED;
    if (whole)
        return cut_whole(p, t, via);
    for (uint64_t done = 0, part; done < t->req.length; done += part) {
        struct tei_region *target;

        rc = next_part(p, t, done, &part, &target);
        if (!rc)
            rc = cut_one(p, t, via, done, part, target);
        if (rc) {
            uncut(p,
                  tei_transports_carrier(&p->engine->transports, t->region, via->transport)->index,
                  pieces);
            return rc;
        }
        pieces++;
    }
    atomic_store_explicit(&t->left, pieces, memory_order_relaxed);
    return 0;
}

/* Takes the lowest bit out of `left`: its place; false if there is none. */
static bool next_used(uint32_t *left, size_t *i)
{
    if (!*left)
        return false;
    *i = (size_t)__builtin_ctz(*left);
    *left &= *left - 1;
    return true;
}

static void return_spares(struct plan *p)
{
    uint32_t left = p->used;
    size_t i;

    while (next_used(&left, &i))
        if (p->spare[i])
            tei_pool_put_many(&p->engine->transports.works[i], p->spare[i], p->n_spare[i]);
}

void tei_plan_post(struct plan *p)
{
    uint32_t left = p->used;
    size_t i;

    return_spares(p);
    while (next_used(&left, &i))
        if (!tei_list_empty(&p->lists[i])) {
            TEI_PROBE2(post, p->batch, p->transports[i]->ops.name);
            p->transports[i]->ops.post(p->transports[i], &p->lists[i]);
        }
}

void tei_plan_drop(struct plan *p)
{
    uint32_t left = p->used;
    size_t i;

    return_spares(p);
    while (next_used(&left, &i)) {
        size_t n = 0;
        struct tei_link *l, *tmp;

        TEI_LIST_EACH(&p->lists[i], l, tmp)
            n++;
        uncut(p, i, n);
    }
}

/* ---------------------------------------------------------------------------------- one request */

int tei_request_check(const te_request *r, size_t i)
{
    uint64_t end;

    if (r->opcode != TE_READ && r->opcode != TE_WRITE)
        return TEI_FAIL(TE_ERR_INVALID, "request %zu: opcode %d is neither TE_READ nor TE_WRITE", i,
                        r->opcode);
    if (!tei_add_ok(r->target_offset, r->length, &end) ||
        !tei_add_ok((uintptr_t)r->source, r->length, &end))
        return TEI_FAIL(TE_ERR_INVALID, "request %zu: length %llu wraps around the address space",
                        i, (unsigned long long)r->length);
    return 0;
}

void tei_plan_release(struct task *t)
{
    if (t->view)
        tei_view_put(t->view, 1);
    if (t->region)
        tei_region_release_local(t->region, 1);
    t->view = NULL;
    t->region = NULL;
}

static int fail_unreached(const struct task *t, size_t i)
{
    const struct tei_segment *s = t->view->seg;

    return TEI_FAIL(TE_ERR_UNSUPPORTED,
                    "request %zu: no installed transport reaches segment '%s' of protocol '%.64s'; "
                    "te_explain() says why",
                    i, s ? t->view->peer->name : "of this engine",
                    s && s->protocol ? s->protocol : "");
}

int tei_plan_task(struct plan *p, struct task *t, size_t i, const struct via *via)
{
    int rc;

    p->expect--;
    if (t->req.length == 0) {
        tei_list_push_back(&p->unposted, &t->link);
        return 0;
    }
    if (p->engine->conf.disable_metacache && t->view->seg)
        rc = TE_ERR_STALE;
    else
        rc = via ? cut_whole(p, t, via) : tei_plan_cut(p, t);
    if ((rc == TE_ERR_STALE || rc == TE_ERR_ACCESS) && t->view->seg) {
        atomic_store_explicit(&t->state, TE_PENDING, memory_order_relaxed);
        tei_list_push_back(&p->unposted, &t->link);
        return 0;
    }
    if (!rc)
        return 0;
    if (rc == TE_ERR_NOT_REGISTERED)
        TEI_FAIL(rc, "request %zu: target 0x%llx + %llu is not registered in this engine", i,
                 (unsigned long long)t->req.target_offset, (unsigned long long)t->req.length);
    else if (rc == TE_ERR_UNSUPPORTED)
        fail_unreached(t, i);
    else
        TEI_FAIL(rc, "request %zu: %s", i, te_strerror(rc));
    return rc;
}
