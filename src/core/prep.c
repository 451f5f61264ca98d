/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prep.c - prepared lists: requests that are looked up once and submitted often.
 *
 * A list is two arrays. `items` is what the caller gave, for good. A finding, made by resolve(),
 * says for each item which region its source lies in and which of the view's transports carries a
 * READ and a WRITE of it in one piece. A finding is immutable and counted, as a view is; a submit
 * takes the current one along, so threads share a list without waiting for each other.
 *
 * An idle list holds nothing: its regions can be unregistered, its segment closed, transports
 * uninstalled. So a finding may be of the past, and its pointers may be wild. Two numbers tell:
 *
 *   unregistered  the engine's count of regions that are gone. As long as it has not changed, which
 *                 the submit sees with regions.lock held, every region of the finding is there.
 *   serial        of the view it was made with. `via` is an index into that view alone.
 *
 * What a finding does not know, or knows no more, is looked up as for a plain request. A new finding
 * is therefore only a matter of speed, and made when it is worth it: once as many requests have met
 * one of the past as a quarter of the list has, or a few requests of a long list would wait for all
 * of it each time that anything is unregistered. A submit never makes more than one.
 */
#include "core/prep.h"
#include "core/core.h"
#include "core/route.h"
#include "core/submit.h"

#include <stdlib.h>
#include <string.h>

#define VIA_UNKNOWN UINT8_MAX /* to be routed, and perhaps cut, as a plain request */
#define STRIDE      64        /* tasks claimed at a time with regions.lock held */

_Static_assert(TEI_TRANSPORTS_MAX < VIA_UNKNOWN, "an index of a via must fit its byte");

struct item {
    char *local;
    uint64_t remote;
    uint64_t length;
};

struct found {
    struct tei_region *region; /* NULL: none when it was looked for */
    uint8_t via[2];            /* by opcode */
};

struct finding {
    _Atomic uint32_t refs;
    uint64_t unregistered, serial;
    struct found of[];
};

struct prep {
    te_engine *engine;
    te_segment target;
    size_t n;
    pthread_mutex_t lock; /* of these two */
    struct finding *now;
    size_t missed; /* requests since `now` is known to be of the past */
    struct item items[];
};

/* --------------------------------------------------------------------------------------- findings */

static void put_finding(struct finding *f)
{
    if (f && atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) == 1)
        free(f);
}

static te_request request_of(const struct prep *p, size_t k, int opcode)
{
    const struct item *m = &p->items[k];

    return (te_request){.opcode = opcode,
                        .source = m->local,
                        .target = p->target,
                        .target_offset = m->remote,
                        .length = m->length};
}

static uint8_t find_via(const struct prep *p, struct view *v, size_t k, int opcode,
                        const struct tei_buffer *b)
{
    unsigned access = opcode == TE_READ ? TE_REMOTE_READ : TE_REMOTE_WRITE;
    te_request r = request_of(p, k, opcode);
    struct route route;

    if (!b || (b->access & access) != access)
        return VIA_UNKNOWN;
    route = tei_route(v, &r, NULL);
    return route.via && route.lasts ? (uint8_t)(route.via - v->via) : VIA_UNKNOWN;
}

static void find_vias(const struct prep *p, struct view *v, struct finding *f)
{
    const struct tei_buffer *b = NULL;

    for (size_t k = 0; k < p->n; k++) {
        const struct item *m = &p->items[k];

        if (!v->seg)
            b = NULL;
        else if (!b || !tei_buffer_holds(b, m->remote, m->length))
            b = tei_segment_find(v->seg, m->remote, m->length);
        f->of[k].via[TE_READ] = find_via(p, v, k, TE_READ, b);
        f->of[k].via[TE_WRITE] = find_via(p, v, k, TE_WRITE, b);
    }
}

/* regions.lock is held, shared; readers do not wait for each other, so for a long list too. */
static void find_regions(const struct prep *p, struct finding *f)
{
    struct tei_region *r = NULL;

    for (size_t k = 0; k < p->n; k++) {
        const struct item *m = &p->items[k];

        if (!r || !tei_region_contains(r, (uintptr_t)m->local, m->length))
            r = m->length ? tei_region_at(&p->engine->regions, (uintptr_t)m->local, m->length)
                          : NULL;
        f->of[k].region = r;
    }
}

/* NULL when memory is out, which makes a submit slower, not wrong. */
static struct finding *resolve(const struct prep *p, struct view *v)
{
    struct finding *f = malloc(sizeof(*f) + p->n * sizeof(f->of[0]));

    if (!f)
        return NULL;
    atomic_init(&f->refs, 1);
    f->serial = v->serial;
    pthread_rwlock_rdlock(&p->engine->regions.lock);
    f->unregistered = p->engine->regions.unregistered;
    find_regions(p, f);
    pthread_rwlock_unlock(&p->engine->regions.lock);
    find_vias(p, v, f);
    return f;
}

static bool is_past(const struct prep *p, const struct finding *f, const struct view *v)
{
    bool past;

    if (f->serial != v->serial)
        return true;
    pthread_rwlock_rdlock(&p->engine->regions.lock);
    past = f->unregistered != p->engine->regions.unregistered;
    pthread_rwlock_unlock(&p->engine->regions.lock);
    return past;
}

/* The finding to submit `n` requests by, referenced. NULL: there is no memory for one. */
static struct finding *take_finding(struct prep *p, struct view *v, size_t n)
{
    struct finding *f;

    pthread_mutex_lock(&p->lock);
    if (!p->now || is_past(p, p->now, v))
        p->missed += n;
    if (p->missed > p->n / 4) {
        put_finding(p->now);
        p->now = resolve(p, v);
        p->missed = 0;
    }
    f = p->now;
    if (f)
        atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&p->lock);
    return f;
}

/* ---------------------------------------------------------------------------------------- create */

static int check_items(void *const *local, const uint64_t *remote, const size_t *length, size_t n)
{
    int rc = 0;

    for (size_t i = 0; !rc && i < n; i++) {
        te_request r = {
            .opcode = TE_READ, .source = local[i], .target_offset = remote[i], .length = length[i]};

        rc = tei_request_check(&r, i);
    }
    return rc;
}

static int check_regions(const struct prep *p)
{
    char why[256];

    for (size_t i = 0; i < p->n; i++) {
        const struct item *x = &p->items[i];

        if (!p->now->of[i].region && x->length)
            return TEI_FAIL(TE_ERR_NOT_REGISTERED, "item %zu: %p + %llu %s", i, (void *)x->local,
                            (unsigned long long)x->length,
                            tei_region_why_not(&p->engine->regions, (uintptr_t)x->local, x->length,
                                               why, sizeof(why)));
    }
    return 0;
}

static void free_prep(struct prep *p)
{
    put_finding(p->now);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static struct prep *make_prep(te_engine *e, te_segment target, void *const *local,
                              const uint64_t *remote, const size_t *length, size_t n)
{
    struct prep *p = malloc(sizeof(*p) + n * sizeof(p->items[0]));

    if (!p)
        return NULL;
    *p = (struct prep){.engine = e, .target = target, .n = n};
    pthread_mutex_init(&p->lock, NULL);
    for (size_t i = 0; i < n; i++)
        p->items[i] = (struct item){.local = local[i], .remote = remote[i], .length = length[i]};
    return p;
}

static int create(te_engine *e, struct prep *p, te_prep *out)
{
    struct view *v = tei_view_get(&e->peers, p->target);
    int rc;

    if (!v)
        return TEI_FAIL(TE_ERR_NOT_FOUND,
                        "segment %d is not open in this engine; te_open() gives its id",
                        (int)p->target);
    p->now = resolve(p, v);
    tei_view_put(v, 1);
    if (!p->now)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a prepared list of %zu", p->n);
    rc = check_regions(p);
    if (rc)
        return rc;
    rc = tei_handles_add(&e->preps, p, out);
    if (rc == TE_ERR_TOO_MANY)
        return TEI_FAIL(rc, "too many prepared lists; free some with te_prep_destroy()");
    return rc ? TEI_FAIL(rc, "no memory for a prepared list of %zu", p->n) : 0;
}

int te_prep_create(te_engine *e, te_segment target, void *const *local, const uint64_t *remote,
                   const size_t *length, size_t n, te_prep *out)
{
    struct prep *p;
    int rc = tei_engine_check(e);

    if (!rc && (!out || (n && (!local || !remote || !length))))
        rc = TEI_FAIL(TE_ERR_INVALID, "an array or the place for the id is NULL");
    if (!rc && n > TEI_BATCH_MAX)
        rc =
            TEI_FAIL(TE_ERR_INVALID, "a prepared list of %zu is longer than %zu", n, TEI_BATCH_MAX);
    if (!rc)
        rc = check_items(local, remote, length, n);
    if (rc)
        return rc;
    p = make_prep(e, target, local, remote, length, n);
    if (!p)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a prepared list of %zu", n);
    rc = create(e, p, out);
    if (rc)
        free_prep(p);
    return rc;
}

static int pin(struct tei_handles *s, te_prep id, struct prep **out)
{
    *out = tei_handles_pin(s, id);
    if (*out)
        return 0;
    return TEI_FAIL(TE_ERR_NOT_FOUND, "prepared list %llu does not exist", (unsigned long long)id);
}

int te_prep_destroy(te_engine *e, te_prep id)
{
    struct prep *p;
    int rc = tei_engine_check(e);

    if (rc)
        return rc;
    rc = pin(&e->preps, id, &p);
    if (rc)
        return rc;
    if (!tei_handles_del(&e->preps, id, 1)) {
        tei_handles_unpin(&e->preps, id);
        return TEI_FAIL(TE_ERR_BUSY, "another thread is in a call with prepared list %llu",
                        (unsigned long long)id);
    }
    free_prep(p);
    return 0;
}

static void free_one(void *object, void *arg)
{
    (void)arg;
    free_prep(object);
}

void tei_preps_fini(struct tei_handles *preps)
{
    tei_handles_each(preps, free_one, NULL);
    tei_handles_fini(preps);
}

/* ---------------------------------------------------------------------------------------- submit */

/* One te_prep_submit(). */
struct use {
    const struct prep *prep;
    const struct finding *found; /* may be NULL */
    struct view *view;
    const uint32_t *index; /* NULL: the first ones */
    int opcode;
    bool viable; /* the finding is of this view, and so its vias are */
};

static size_t item_of(const struct use *u, size_t i)
{
    return u->index ? u->index[i] : i;
}

/*
 * Claims the tasks of requests `from` up to `to`; returns the first that could not be, and why in
 * *rc. The view is held for all already.
 */
static size_t claim(struct plan *p, struct task *tasks, const struct use *u, size_t from, size_t to,
                    int *rc)
{
    const struct prep *prep = u->prep;
    size_t i = from;
    bool there;

    pthread_rwlock_rdlock(&p->engine->regions.lock);
    there = u->found && u->found->unregistered == p->engine->regions.unregistered;
    for (; i < to; i++) {
        size_t k = item_of(u, i);
        struct tei_region *r;

        if (k >= prep->n) {
            *rc = TE_ERR_INVALID;
            break;
        }
        r = there ? u->found->of[k].region : NULL;
        if (!r && prep->items[k].length)
            r = tei_region_at(&p->engine->regions, (uintptr_t)prep->items[k].local,
                              prep->items[k].length);
        if (!r && prep->items[k].length) {
            *rc = TE_ERR_NOT_REGISTERED;
            break;
        }
        tei_plan_claim(p, &tasks[i], u->view, r);
        tasks[i].req = request_of(prep, k, u->opcode);
        if (r)
            tei_plan_hold(p, r);
    }
    tei_plan_count(p);
    pthread_rwlock_unlock(&p->engine->regions.lock);
    return i;
}

static int fail_claim(const struct use *u, size_t i, int rc)
{
    size_t k = item_of(u, i);

    if (rc == TE_ERR_INVALID)
        return TEI_FAIL(rc, "request %zu: the prepared list has no item %zu, only %zu items", i, k,
                        u->prep->n);
    return TEI_FAIL(rc,
                    "request %zu: item %zu, %p + %llu, is not inside one registered region any "
                    "more; te_register() it again",
                    i, k, (void *)u->prep->items[k].local,
                    (unsigned long long)u->prep->items[k].length);
}

/* Requests with rules of their own are looked up one by one. */
static const struct via *known_via(const struct plan *p, const struct use *u, size_t i,
                                   const te_request *r)
{
    uint8_t at = u->viable ? u->found->of[item_of(u, i)].via[u->opcode] : VIA_UNKNOWN;

    return at == VIA_UNKNOWN || p->ruled || tei_route_holder(u->view, r) ? NULL : &u->view->via[at];
}

static int fill_prepared(struct plan *p, struct task *tasks, size_t n, const void *arg)
{
    const struct use *u = arg;
    size_t claimed = 0;
    int rc = 0;

    tei_view_hold(u->view, n);
    for (size_t i = 0; !rc && i < n; i = claimed) {
        int bad = 0;

        claimed = claim(p, tasks, u, i, tei_min(n, i + STRIDE), &bad);
        for (size_t k = i; !rc && k < claimed; k++)
            rc = tei_plan_task(p, &tasks[k], k, known_via(p, u, k, &tasks[k].req));
        if (!rc && bad)
            rc = fail_claim(u, claimed, bad);
    }
    for (size_t i = 0; rc && i < claimed; i++)
        tei_plan_release(&tasks[i]);
    if (n > claimed)
        tei_view_put(u->view, n - claimed);
    return rc;
}

static int submit(struct prep *p, te_batch b, int opcode, const uint32_t *index, size_t n,
                  const te_submit_opts *opts)
{
    struct use u = {.prep = p, .index = index, .opcode = opcode};
    struct finding *f;
    int rc;

    u.view = tei_view_get(&p->engine->peers, p->target);
    if (!u.view)
        return TEI_FAIL(TE_ERR_NOT_FOUND,
                        "segment %d, which the prepared list is for, is not open any more",
                        (int)p->target);
    f = take_finding(p, u.view, n);
    u.found = f;
    u.viable = f && f->serial == u.view->serial;
    rc = tei_submit(p->engine, b, n, opts, fill_prepared, &u);
    put_finding(f);
    tei_view_put(u.view, 1);
    return rc;
}

int te_prep_submit(te_engine *e, te_batch b, te_prep id, int opcode, const uint32_t *index,
                   size_t n, const te_submit_opts *opts)
{
    struct prep *p;
    int rc = tei_engine_check(e);

    if (!rc && opcode != TE_READ && opcode != TE_WRITE)
        rc = TEI_FAIL(TE_ERR_INVALID, "opcode %d is neither TE_READ nor TE_WRITE", opcode);
    if (rc)
        return rc;
    rc = pin(&e->preps, id, &p);
    if (rc)
        return rc;
    rc = submit(p, b, opcode, index, n, opts);
    tei_handles_unpin(&e->preps, id);
    return rc;
}
