/* SPDX-License-Identifier: Apache-2.0 */
/* conformance_lease.c - keys of leases: TEI_CAP_LEASES and op lease_del(). Without them a transport gets no keys. */
#include "conformance.h"

#include "base/os.h"

#include <stdlib.h>
#include <string.h>

#define AT \
    ((size_t)40960) /* of the target's memory: what the lease is of, and as much more is not */
#define BYTES ((size_t)1 << 20)

struct world {
    struct pair *pair;
    struct tei_region *region; /* the target's, which lets nobody do anything */
    te_lease_key key;
};

static int ends(const struct world *w, int opcode, size_t at, size_t n, const te_lease_key *key);

/* False where it has no leases, or none that it can show a key of to this target: then nothing is done by any. */
static bool begin(const struct conformance *with, struct world *w, unsigned access)
{
    struct pair *p = w->pair = pair_open(with);

    if (!(p->a->ops.caps & TEI_CAP_LEASES)) {
        assert_null(p->a->ops.lease_del);
        pair_close(p);
        return false;
    }
    fake_region_del(&p->hb, p->b, p->br);
    p->br = fake_region_add(&p->hb, p->b, p->bm, PAIR_BYTES, 0);
    w->region = p->br;
    w->key = fake_lease(&p->hb, p->br, p->bm + AT, BYTES, access);
    pair_set(p, TARGET, AT, 'x', 1);
    pair_set(p, INITIATOR, 0, 'y', 1);
    if (ends(w, TE_WRITE, AT, 1, &w->key) == TE_ERR_UNSUPPORTED) {
        pair_expect(p, TARGET, AT, "x", 1);
        pair_close(p);
        return false;
    }
    return true;
}

static void post(const struct world *w, struct fake_task *task, int opcode, size_t at, size_t n,
                 const te_lease_key *key)
{
    struct pair *p = w->pair;
    struct tei_list list;

    memset(task, 0, sizeof *task);
    tei_list_init(&list);
    fake_work(&list, p->a, p->attach, task, opcode, p->am, p->bm + at, n)->key = key;
    p->a->ops.post(p->a, &list);
}

/* How a request with that key ends. */
static int ends(const struct world *w, int opcode, size_t at, size_t n, const te_lease_key *key)
{
    struct fake_task task;

    post(w, &task, opcode, at, n, key);
    assert_true(fake_wait(&w->pair->ha, w->pair->a, &task, 1, PATIENCE_MS));
    if (task.error)
        assert_non_null(task.why);
    return task.error;
}

static unsigned holds(const struct world *w)
{
    return fake_lease_holds(&w->pair->hb);
}

void conformance_leases(const struct conformance *with)
{
    struct world w;
    te_lease_key other;
    struct pair *p;

    if (!begin(with, &w, TE_REMOTE_WRITE))
        return;
    p = w.pair;
    other = w.key;
    other.bytes[23] ^= 1;
    pair_set(p, TARGET, 0, 'x', AT + 2 * BYTES);
    pair_fill(p, INITIATOR, 0, BYTES, 3);
    assert_int_equal(ends(&w, TE_WRITE, AT, 100, NULL), TE_ERR_STALE);
    assert_int_equal(ends(&w, TE_WRITE, AT, 100, &other), TE_ERR_ACCESS);
    assert_int_equal(ends(&w, TE_READ, AT, 100, &w.key), TE_ERR_ACCESS);
    assert_int_equal(ends(&w, TE_WRITE, AT - 1, 100, &w.key), TE_ERR_ACCESS);
    assert_int_equal(ends(&w, TE_WRITE, AT + 1, BYTES, &w.key), TE_ERR_ACCESS);
    assert_int_equal(ends(&w, TE_WRITE, AT + BYTES, 1, &w.key), TE_ERR_ACCESS);
    fake_lease_over(&p->hb, TE_ERR_TIMEOUT);
    assert_int_equal(ends(&w, TE_WRITE, AT, 100, &w.key), TE_ERR_ACCESS);
    fake_lease_over(&p->hb, 0);
    {
        char *untouched = malloc(BYTES);

        assert_non_null(untouched);
        memset(untouched, 'x', BYTES);
        pair_expect(p, TARGET, AT, untouched, BYTES);
        assert_int_equal(ends(&w, TE_WRITE, AT, BYTES, &w.key), 0);
        pair_expect(p, TARGET, AT + BYTES, untouched, BYTES);
        pair_expect(p, TARGET, 0, untouched, AT);
        pair_get(p, INITIATOR, 0, untouched, BYTES);
        pair_expect(p, TARGET, AT, untouched, BYTES);
        free(untouched);
    }
    assert_int_equal(holds(&w), 0);
    pair_close(p);
}

/* As te_revoke() does, with requests inside; what comes later changes nothing. */
static bool revoked_inside(const struct world *w, const char *zeros)
{
    struct pair *p = w->pair;
    struct fake_task tasks[8];
    const size_t part = BYTES / TEI_ARRAY_LEN(tasks);
    unsigned inside;

    /* Each of its own bytes: copies of devices have no order. */
    for (size_t i = 0; i < TEI_ARRAY_LEN(tasks); i++)
        post(w, &tasks[i], TE_WRITE, AT + i * part, part, &w->key);
    for (int i = 0; i < 100000 && !(inside = holds(w)); i++) {}
    inside = fake_lease_over(&p->hb, TE_ERR_NOT_FOUND);
    p->b->ops.lease_del(p->b, &p->hb.lease);
    assert_int_equal(holds(w), 0);
    pair_set(p, TARGET, AT, 0, BYTES);
    assert_true(fake_wait(&p->ha, p->a, tasks, TEI_ARRAY_LEN(tasks), PATIENCE_MS));
    pair_expect(p, TARGET, AT, zeros, BYTES);
    for (size_t i = 0; i < TEI_ARRAY_LEN(tasks); i++)
        assert_true(tasks[i].error == 0 || tasks[i].error == TE_ERR_ACCESS);
    fake_lease_over(&p->hb, 0);
    return inside > 0;
}

void conformance_lease_ends(const struct conformance *with)
{
    char *zeros;
    struct world w;
    int caught = 0;

    if (!begin(with, &w, TE_REMOTE_RW))
        return;
    zeros = calloc(1, BYTES);
    assert_non_null(zeros);
    pair_fill(w.pair, INITIATOR, 0, BYTES, 5);
    WAIT_FOR((caught += revoked_inside(&w, zeros)) >= 5);
    free(zeros);
    pair_close(w.pair);
}
