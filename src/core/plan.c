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
#include "core/lease.h"
#include "core/page_list.h"
#include "core/path.h"
#include "core/route.h"
#include "core/slow.h"
#include "core/trace.h"

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
    p->paged = NULL;
    p->staged = false;
    p->ruled = false;
    p->again = false;
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

/* One piece of work: the part of the range `r` from `done` on that lies in one remote buffer. */
static int cut_one(struct plan *p, struct task *t, const te_request *r, const struct via *via,
                   uint64_t done, uint64_t part, struct tei_region *target)
{
    struct tei_transport *carrier =
        tei_transports_carrier(&p->engine->transports, t->region, target, via->transport);
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
    w->story = tei_slow_story(t);
    w->taken_ns = t->sample ? tei_metrics_taken(t) : NULL;
    w->trace = tei_trace_of(t);
    w->key = tei_lease_key_of(t);
    w->local = (char *)r->source + done;
    w->remote = r->target_offset + done;
    w->length = part;
    w->deadline_ns = t->deadline_ns;
    w->opcode = r->opcode;
    w->nic = 0;
    w->changes = 0;
    w->sink = NULL;
    w->error = 0;
    w->sys_errno = 0;
    w->why = NULL;
    p->staged |= carrier != via->transport;
    tei_list_push_back(&p->lists[carrier->index], &w->link);
    if (!t->link.prev)
        t->link.prev = &w->link;
    TEI_PROBE4(route, t, carrier->ops.name, w->opcode, part);
    return 0;
}

/* Gives back the last piece on a list. */
static void uncut_last(struct plan *p, size_t index)
{
    struct tei_link *l = p->lists[index].head.prev;
    struct tei_work *w = tei_container_of(l, struct tei_work, link);

    tei_list_del(l);
    if (w->target_region)
        tei_region_release_local(w->target_region, 1);
    tei_pool_put(&p->engine->transports.works[index], w);
}

/* The next piece's end: in this engine's own regions or in the descriptor's buffers. */
static int next_part(struct plan *p, const struct view *v, const te_request *r, uint64_t done,
                     uint64_t *part, struct tei_region **target)
{
    uint64_t at = r->target_offset + done, left = r->length - done;
    size_t index;

    *target = NULL;
    if (v->seg)
        return tei_segment_cover(v->seg, at, left, &index, part) ? 0 : TE_ERR_STALE;
    *target = tei_region_hold_part(&p->engine->regions, at, left, part);
    return *target ? 0 : TE_ERR_NOT_REGISTERED;
}

/* The buffer that holds the whole range; NULL if more must be looked at. */
static const struct tei_buffer *find_buffer(struct plan *p, const struct tei_segment *seg,
                                            const te_request *r)
{
    const struct tei_buffer *b = p->buffer;

    if (p->segment == seg && tei_buffer_holds(b, r->target_offset, r->length))
        return b;
    b = tei_segment_find(seg, r->target_offset, r->length);
    if (b) {
        p->segment = seg;
        p->buffer = b;
    }
    return b;
}

static unsigned access_of(const te_request *r)
{
    return r->opcode == TE_READ ? TE_REMOTE_READ : TE_REMOTE_WRITE;
}

bool tei_plan_is_whole(struct plan *p, const struct view *v, const te_request *r)
{
    unsigned access = access_of(r);
    const struct tei_buffer *b = v->seg ? find_buffer(p, v->seg, r) : NULL;

    return b && (b->access & access) == access;
}

/* What has been cut of a task, also before an error. */
struct cut {
    uint32_t pieces, room; /* how many there are, and may be */
    uint64_t done;         /* bytes of the last range; less than its length: no room is left */
    const struct via *via; /* that carries it */
};

static int cut_parts(struct plan *p, struct task *t, const te_request *r, const struct via *via,
                     struct cut *c)
{
    uint64_t part;

    for (c->done = 0; c->done < r->length && c->pieces < c->room; c->done += part) {
        struct tei_region *target;
        int rc = next_part(p, t->view, r, c->done, &part, &target);

        if (!rc)
            rc = cut_one(p, t, r, via, c->done, part, target);
        if (rc)
            return rc;
        c->pieces++;
    }
    return 0;
}

static TEI_COLD int why_unrouted(const struct view *v, const struct route *route)
{
    if (v->over)
        return TE_ERR_STALE;
    return route->held ? TE_ERR_BUSY : TE_ERR_UNSUPPORTED;
}

/* What is shown a key is for the target alone to know; its descriptor need not have it. */
static bool is_whole(struct plan *p, const struct task *t, const te_request *r)
{
    return (t->view->seg && tei_lease_key_of(t)) || tei_plan_is_whole(p, t->view, r);
}

/* Cuts a range of a task into work. `via` carries it in one piece; NULL: what does is to be found. */
static int cut_range(struct plan *p, struct task *t, const te_request *r, const struct via *via,
                     struct cut *c)
{
    bool whole = via || is_whole(p, t, r);
    struct route route;
    int rc = 0;

    if (t->view->seg && !whole)
        rc = tei_segment_allows(t->view->seg, r->target_offset, r->length, access_of(r));
    if (rc)
        return rc;
    if (!via) {
        route = tei_route(t->view, r, tei_rules_of(t));
        via = route.via;
        if (!via)
            return why_unrouted(t->view, &route);
    }
    c->via = via;
    if (!whole)
        return cut_parts(p, t, r, via, c);
    rc = cut_one(p, t, r, via, 0, r->length, NULL);
    c->pieces += rc == 0;
    c->done = r->length;
    return rc;
}

/* What te_path() tells from now on. */
static void note_carrier(const struct plan *p, struct task *t, const struct via *via)
{
    tei_path_by(t, tei_path_carrier(via->transport, p->staged), p->again);
}

static int cut_task(struct plan *p, struct task *t, const struct via *via)
{
    struct cut c = {.room = UINT32_MAX};
    int rc;

    p->staged = false;
    rc = cut_range(p, t, &t->req, via, &c);
    if (rc) {
        tei_plan_uncut(p, t);
        return rc;
    }
    note_carrier(p, t, c.via);
    atomic_store_explicit(&t->left, c.pieces, memory_order_relaxed);
    return 0;
}

/* ----------------------------------------------------------------------------------------- pages */

static te_request page_request(const struct task *t, uint64_t local, uint64_t remote,
                               uint64_t length)
{
    return (te_request){.opcode = t->req.opcode,
                        .source = (void *)(uintptr_t)local,
                        .target = t->req.target,
                        .target_offset = remote,
                        .length = length};
}

/* The one way for all pages, where they are in one buffer; NULL: each is to be looked up. */
static const struct via *find_via(struct plan *p, const struct task *t)
{
    const struct page_list *l = tei_page_list_of(t);
    te_request all = page_request(t, l->local.base, l->remote.base, l->remote.extent);
    struct route route;

    if (!is_whole(p, t, &all))
        return NULL;
    route = tei_route(t->view, &all, tei_rules_of(t));
    return route.lasts ? route.via : NULL;
}

int tei_plan_cut_window(struct plan *p, struct task *t, uint32_t room)
{
    struct page_list *l = tei_page_list_of(t);
    const struct via *via = find_via(p, t);
    struct cut c = {.room = room};
    size_t steps = TEI_PAGES_STEPS;
    int rc = 0;

    /* What an earlier window has told stays. */
    p->staged =
        !p->again && (atomic_load_explicit(&t->path, memory_order_relaxed) & TEI_PATH_STAGED) != 0;
    while (!rc && c.pieces < room && steps && !tei_page_list_at_end(l)) {
        struct page_run r = tei_page_list_take(l, &steps);
        te_request one = page_request(t, r.local, r.remote, r.length);

        rc = cut_range(p, t, &one, via, &c);
        if (!rc)
            tei_page_list_keep(l, &r, c.done);
        l->bad = r;
    }
    if (!rc && c.pieces)
        note_carrier(p, t, c.via);
    l->cut = c.pieces;
    /* Before they are posted, and so before any of them is back. */
    pthread_mutex_lock(&l->lock);
    l->out += c.pieces;
    pthread_mutex_unlock(&l->lock);
    return rc;
}

static int cut_pages(struct plan *p, struct task *t)
{
    struct page_list *l = tei_page_list_of(t);
    int rc;

    tei_page_list_rewind(l);
    l->out = 0;
    l->ended = false;
    p->expect = tei_max(p->expect, tei_min(l->n, TEI_PAGES_OUT));
    rc = tei_plan_cut_window(p, t, TEI_PAGES_OUT);
    if (rc) {
        tei_plan_uncut(p, t);
        return rc;
    }
    l->feeding = true;
    l->next = p->paged;
    p->paged = l;
    return 0;
}

int tei_plan_cut(struct plan *p, struct task *t)
{
    return t->paged ? cut_pages(p, t) : cut_task(p, t, NULL);
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

void tei_plan_uncut(struct plan *p, const struct task *t)
{
    uint32_t left = p->used;
    size_t i;

    while (next_used(&left, &i))
        while (!tei_list_empty(&p->lists[i]) &&
               tei_container_of(p->lists[i].head.prev, struct tei_work, link)->task == t)
            uncut_last(p, i);
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
    while (next_used(&left, &i))
        while (!tei_list_empty(&p->lists[i]))
            uncut_last(p, i);
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

static int fail_unregistered(const struct task *t, size_t i)
{
    char page[160];

    if (t->paged)
        return TEI_FAIL(TE_ERR_NOT_REGISTERED, "%s, is not registered in this engine",
                        tei_page_list_where(t, page, sizeof(page)));
    return TEI_FAIL(TE_ERR_NOT_REGISTERED,
                    "request %zu: target 0x%llx + %llu is not registered in this engine", i,
                    (unsigned long long)t->req.target_offset, (unsigned long long)t->req.length);
}

bool tei_plan_is_ruled(const struct task *t)
{
    return t->view->peer->rules || tei_rules_of(t);
}

/* Why no path that is allowed leads to what a task moves; of pages to those that were looked at last. */
static void tell_refusal(const struct task *t, char *buf, size_t n)
{
    const struct page_list *l = t->paged ? tei_page_list_of(t) : NULL;
    te_request r = l ? page_request(t, l->bad.local, l->bad.remote, l->bad.length) : t->req;
    char page[160] = "";

    if (l)
        tei_page_list_where(t, page, sizeof(page));
    int used = snprintf(buf, n, "%s%s", page, l ? ": " : "");
    tei_route_refusal(t->view, &r, tei_rules_of(t), buf + used, n - (size_t)used);
}

const char *tei_plan_why_unreached(const struct task *t)
{
    char text[1024];

    if (!tei_plan_is_ruled(t))
        return "no installed transport reaches its engine";
    tell_refusal(t, text, sizeof(text));
    return tei_batch_note(t->batch, text);
}

/* What a program has ruled out, it is told of; else te_explain() says more. */
static int fail_unreached(const struct task *t, size_t i, int rc)
{
    const struct tei_segment *s = t->view->seg;
    char why[1024];

    if (tei_plan_is_ruled(t)) {
        tell_refusal(t, why, sizeof(why));
        return TEI_FAIL(rc, "request %zu: no path to segment '%s' that %s: %s", i,
                        t->view->peer->name,
                        tei_lease_key_of(t) ? "shows the key of its lease and te_paths allows"
                                            : "te_paths allows",
                        why);
    }
    return TEI_FAIL(rc,
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
        rc = via ? cut_task(p, t, via) : tei_plan_cut(p, t);
    if ((rc == TE_ERR_STALE || rc == TE_ERR_ACCESS) && t->view->seg) {
        atomic_store_explicit(&t->state, TE_PENDING, memory_order_relaxed);
        tei_list_push_back(&p->unposted, &t->link);
        return 0;
    }
    if (!rc)
        return 0;
    if (rc == TE_ERR_NOT_REGISTERED)
        fail_unregistered(t, i);
    else if (rc == TE_ERR_UNSUPPORTED || rc == TE_ERR_BUSY)
        fail_unreached(t, i, rc);
    else
        TEI_FAIL(rc, "request %zu: %s", i, te_strerror(rc));
    return rc;
}
