/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=240 */
/* te_lease.h: memory that is reached by the key of a lease, and by nothing else, until the lease is revoked. */
#include "child_engine.h"
#include "draw.h"
#include "metric.h"
#include "pair.h"
#include "patience.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#define SIZE ((size_t)4 << 20) /* of the memory of b that no descriptor tells of */

struct world {
    struct pair *pair;
    te_engine *a, *b;
    te_segment seg;
    unsigned char *own, *leased; /* of a, of b */
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    void *pair = NULL;

    if (!w || pair_setup(&pair))
        return -1;
    w->pair = pair;
    w->a = w->pair->a;
    w->b = w->pair->b;
    w->seg = w->pair->seg;
    w->own = w->pair->am;
    w->leased = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *state = w;
    return te_register(w->b, w->leased, SIZE, "cpu:0", TE_LOCAL_ONLY);
}

static int teardown(void **state)
{
    struct world *w = *state;
    void *pair = w->pair;
    int rc;

    (void)te_unregister(w->b, w->leased);
    rc = pair_teardown(&pair);
    munmap(w->leased, SIZE);
    free(w);
    return rc;
}

static te_lease grant(const struct world *w, size_t at, size_t n, unsigned access,
                      te_lease_key *key)
{
    te_lease lease = 0;

    if (te_lease_grant(w->b, w->leased + at, n, access, 0, &lease, key))
        fail_msg("%s", te_errmsg());
    return lease;
}

static te_request request(const struct world *w, int opcode, size_t own, size_t at, size_t n)
{
    return (te_request){.opcode = opcode,
                        .source = w->own + own,
                        .target = w->seg,
                        .target_offset = (uintptr_t)(w->leased + at),
                        .length = n};
}

static te_batch submit(const struct world *w, const te_request *reqs, size_t n,
                       const te_lease_key *key)
{
    const te_submit_opts opts = {.size = sizeof(opts), .lease = key};
    te_batch b;

    assert_int_equal(te_batch_alloc(w->a, n, &b), 0);
    if (te_submit(w->a, b, reqs, n, &opts))
        fail_msg("%s", te_errmsg());
    return b;
}

/* How task i of a batch that has ended has ended; `text`: what must be said of it, NULL: it is COMPLETED. */
static void is_so(const struct world *w, te_batch b, size_t i, int error, const char *text)
{
    struct te_status st;
    char msg[640] = "";

    assert_int_equal(te_status(w->a, b, i, &st), 0);
    (void)te_status_msg(w->a, b, i, msg, sizeof(msg));
    if (st.error != error || (text && !strstr(msg, text)))
        fail_msg("request %zu: state %d, error %d, '%s'; wanted error %d, '%s'", i, st.state,
                 st.error, msg, error, text ? text : "");
    if (error == TE_ERR_ACCESS)
        assert_int_equal(st.state, TE_INVALID);
}

static void end(const struct world *w, te_batch b)
{
    assert_int_equal(te_wait(w->a, b, PATIENCE_MS), 0);
}

/* One request by a key, and how it ends. */
static void does(const struct world *w, int opcode, size_t at, size_t n, const te_lease_key *key,
                 int error, const char *text)
{
    te_request r = request(w, opcode, 0, at, n);
    te_batch b = submit(w, &r, 1, key);

    end(w, b);
    is_so(w, b, 0, error, text);
    assert_int_equal(te_batch_free(w->a, b), 0);
}

/* ------------------------------------------------------------------------------------------- rights */

static void moves(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < 40; i++) {
        size_t n = 1 + draw(i % 4 ? 70000 : 3000000), at = draw(SIZE - n);
        te_lease_key key;
        te_lease lease = grant(w, at, n, TE_REMOTE_RW, &key);

        fill(w->own, n, (unsigned)i);
        memset(w->leased, 0xee, SIZE);
        does(w, TE_WRITE, at, n, &key, 0, NULL);
        assert_int_equal(first_difference(w->leased + at, n, (unsigned)i), n);
        assert_true(at == 0 || w->leased[at - 1] == 0xee);
        assert_true(at + n == SIZE || w->leased[at + n] == 0xee);
        memset(w->own, 0, n);
        does(w, TE_READ, at, n, &key, 0, NULL);
        assert_int_equal(first_difference(w->own, n, (unsigned)i), n);
        assert_int_equal(te_revoke(w->b, lease), 0);
    }
}

static void nothing_without(void **state)
{
    struct world *w = *state;
    te_lease_key key, other;
    te_lease lease = grant(w, 4096, 8192, TE_REMOTE_RW, &key);
    te_request r = request(w, TE_WRITE, 0, 4096, 100);
    te_batch b = submit(w, &r, 1, NULL);
    char text[65536];

    memset(w->leased, 0xee, SIZE);
    end(w, b);
    is_so(w, b, 0, TE_ERR_STALE, "");
    assert_int_equal(te_batch_free(w->a, b), 0);
    for (size_t bit = 0; bit < 8 * sizeof(key.bytes); bit += 5) {
        other = key;
        other.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        does(w, TE_WRITE, 4096, 100, &other, TE_ERR_ACCESS, "no lease with this key");
    }
    assert_int_equal(w->leased[4096], 0xee);
    /* No descriptor tells of the memory. */
    assert_int_equal(te_segment_json(w->a, w->seg, text, sizeof(text)), 0);
    {
        char addr[32];

        snprintf(addr, sizeof(addr), "%llu", (unsigned long long)(uintptr_t)w->leased);
        assert_null(strstr(text, addr));
    }
    does(w, TE_WRITE, 4096, 100, &key, 0, NULL);
    assert_int_equal(te_revoke(w->b, lease), 0);
}

static void allows_no_more(void **state)
{
    struct world *w = *state;
    te_lease_key in, out;
    te_lease leases[] = {grant(w, 4096, 8192, TE_REMOTE_WRITE, &in),
                         grant(w, 0, 4096, TE_REMOTE_READ, &out)};
    te_request r[] = {request(w, TE_WRITE, 0, 4096, 4096),    request(w, TE_WRITE, 0, 4095, 2),
                      request(w, TE_WRITE, 0, 8192, 4096),    request(w, TE_WRITE, 0, 8192, 4097),
                      request(w, TE_READ, 0, 4096, 1),        request(w, TE_WRITE, 0, 0, 1),
                      request(w, TE_WRITE, 0, SIZE + 100, 1), request(w, TE_WRITE, 0, 12287, 1)};
    const bool good[] = {true, false, true, false, false, false, false, true};
    te_batch b;

    b = submit(w, r, sizeof(r) / sizeof(r[0]), &in);
    end(w, b);
    for (size_t i = 0; i < sizeof(r) / sizeof(r[0]); i++)
        is_so(w, b, i, good[i] ? 0 : TE_ERR_ACCESS, good[i] ? NULL : "the lease does not");
    assert_int_equal(te_batch_free(w->a, b), 0);
    does(w, TE_READ, 0, 4096, &out, 0, NULL);
    does(w, TE_WRITE, 0, 4096, &out, TE_ERR_ACCESS, "the lease does not");
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(te_revoke(w->b, leases[i]), 0);
}

/* Memory that all may read: the lease lets one write. */
static void beside_rights_of_all(void **state)
{
    struct world *w = *state;
    te_lease_key key;
    te_lease lease;

    assert_int_equal(te_unregister(w->b, w->leased), 0);
    assert_int_equal(te_register(w->b, w->leased, SIZE, "cpu:0", TE_REMOTE_READ), 0);
    assert_int_equal(te_refresh(w->a, w->pair->bname), 0);
    lease = grant(w, 100, 1000, TE_REMOTE_WRITE, &key);
    does(w, TE_READ, 0, 5000, NULL, 0, NULL);
    does(w, TE_WRITE, 100, 1000, NULL, TE_ERR_ACCESS, NULL);
    does(w, TE_WRITE, 100, 1000, &key, 0, NULL);
    does(w, TE_READ, 100, 1000, &key, TE_ERR_ACCESS, "not allow this direction");
    assert_int_equal(te_revoke(w->b, lease), 0);
}

static void bad_arguments(void **state)
{
    struct world *w = *state;
    te_lease_key key;
    te_lease lease;

    assert_int_equal(te_lease_grant(w->b, w->leased, 0, TE_REMOTE_RW, 0, &lease, &key),
                     TE_ERR_INVALID);
    assert_int_equal(te_lease_grant(w->b, w->leased, 1, 0, 0, &lease, &key), TE_ERR_INVALID);
    assert_int_equal(te_lease_grant(w->b, w->leased, 1, 4, 0, &lease, &key), TE_ERR_INVALID);
    assert_int_equal(te_lease_grant(w->b, w->leased, 1, 1, -1, &lease, &key), TE_ERR_INVALID);
    assert_int_equal(te_lease_grant(w->b, w->leased, 1, 1, 0, NULL, &key), TE_ERR_INVALID);
    assert_int_equal(te_lease_grant(w->b, w->leased, 1, 1, 0, &lease, NULL), TE_ERR_INVALID);
    assert_int_equal(te_lease_grant(w->b, w->leased, SIZE + 1, 1, 0, &lease, &key),
                     TE_ERR_NOT_REGISTERED);
    assert_int_equal(te_lease_grant(w->b, &lease, 1, 1, 0, &lease, &key), TE_ERR_NOT_REGISTERED);
    assert_int_equal(te_lease_grant(NULL, w->leased, 1, 1, 0, &lease, &key), TE_ERR_INVALID);
    assert_int_equal(te_revoke(w->b, 0), TE_ERR_NOT_FOUND);
    assert_int_equal(te_revoke(w->b, UINT64_MAX), TE_ERR_NOT_FOUND);
    lease = grant(w, 0, 1, TE_REMOTE_READ, &key);
    assert_int_equal(te_revoke(w->a, lease), TE_ERR_NOT_FOUND);
    assert_int_equal(te_revoke(w->b, lease), 0);
    assert_int_equal(te_revoke(w->b, lease), TE_ERR_NOT_FOUND);
}

/* ----------------------------------------------------------------------------------------- the end */

static void is_revoked(void **state)
{
    struct world *w = *state;
    te_lease_key key, next;
    te_lease lease = grant(w, 0, 4096, TE_REMOTE_RW, &key), other;

    does(w, TE_WRITE, 0, 4096, &key, 0, NULL);
    assert_int_equal(te_revoke(w->b, lease), 0);
    does(w, TE_WRITE, 0, 4096, &key, TE_ERR_ACCESS, "it was revoked");
    /* The next one of the same memory has another key. */
    other = grant(w, 0, 4096, TE_REMOTE_RW, &next);
    assert_memory_not_equal(&key, &next, sizeof(key));
    does(w, TE_WRITE, 0, 4096, &key, TE_ERR_ACCESS, "it was revoked");
    does(w, TE_WRITE, 0, 4096, &next, 0, NULL);
    assert_int_equal(te_revoke(w->b, other), 0);
}

static void is_over_with_its_time(void **state)
{
    struct world *w = *state;
    te_lease_key key;
    te_lease lease;
    te_request r = request(w, TE_READ, 0, 0, 64);
    struct te_status st;

    assert_int_equal(te_lease_grant(w->b, w->leased, 64, TE_REMOTE_READ, 1, &lease, &key), 0);
    for (long i = 0; i < 1000000; i++) { /* until a millisecond is over */
        te_batch b = submit(w, &r, 1, &key);

        end(w, b);
        assert_int_equal(te_status(w->a, b, 0, &st), 0);
        if (st.error)
            is_so(w, b, 0, TE_ERR_ACCESS, "the time of the lease is over");
        assert_int_equal(te_batch_free(w->a, b), 0);
        if (st.error)
            break;
    }
    assert_int_equal(st.error, TE_ERR_ACCESS);
    assert_int_equal(te_revoke(w->b, lease), 0);
    does(w, TE_READ, 0, 64, &key, TE_ERR_ACCESS, "it was revoked");
}

/* It is of the region as it was registered, and of none that comes to the same place. */
static void ends_with_its_region(void **state)
{
    struct world *w = *state;
    te_lease_key key;
    te_lease lease = grant(w, 0, 4096, TE_REMOTE_RW, &key);

    assert_int_equal(te_unregister(w->b, w->leased), 0);
    does(w, TE_WRITE, 0, 4096, &key, TE_ERR_ACCESS, "its memory unregistered");
    assert_int_equal(te_register(w->b, w->leased, SIZE, "cpu:0", TE_REMOTE_RW), 0);
    memset(w->leased, 0xee, SIZE);
    does(w, TE_WRITE, 0, 4096, &key, TE_ERR_ACCESS, "its memory unregistered");
    assert_int_equal(w->leased[0], 0xee);
    assert_int_equal(te_revoke(w->b, lease), 0);
}

static void is_of_one_engine(void **state)
{
    struct world *w = *state;
    te_engine *third = pair_third(NULL, NULL);
    te_lease_key key;
    te_lease lease;

    assert_int_equal(te_register(third, w->leased, SIZE, "cpu:0", TE_REMOTE_RW), 0);
    assert_int_equal(te_lease_grant(third, w->leased, SIZE, TE_REMOTE_RW, 0, &lease, &key), 0);
    does(w, TE_WRITE, 0, 1, &key, TE_ERR_ACCESS, "the key is of another engine");
    te_engine_destroy(third); /* with a lease left */
}

/* ------------------------------------------------------------------------------- no later byte lands */

enum { WRITES = 61, PIECE = 60000 }; /* so that a frame could have some of both */

/*
 * WRITEs are under way when the lease is revoked, and the memory belongs to something else at once. Beside them are
 * WRITEs by another lease, on the same connections, of which none may fail.
 */
static void revoke_under_way(struct world *w, int round, size_t *refused)
{
    const size_t half = SIZE / 2;
    te_request r[WRITES], other[WRITES];
    te_lease_key key, stays;
    te_lease lease = grant(w, 0, half, TE_REMOTE_WRITE, &key),
             bystander = grant(w, half, half, TE_REMOTE_WRITE, &stays);
    struct te_status st;
    te_batch b, c;

    fill(w->own, WRITES * PIECE, (unsigned)round);
    for (size_t i = 0; i < WRITES; i++) {
        r[i] = request(w, TE_WRITE, i * PIECE, i * (half / WRITES), half / WRITES);
        other[i] = request(w, TE_WRITE, i * PIECE, half + i * (half / WRITES), half / WRITES);
    }
    b = submit(w, r, WRITES, &key);
    c = submit(w, other, WRITES, &stays);
    for (int i = 0; i < round % 7; i++) /* so that not all are at the beginning */
        (void)te_batch_status(w->a, b, &st);
    assert_int_equal(te_revoke(w->b, lease), 0);
    fill(w->leased, half, 77);
    end(w, b);
    end(w, c);
    assert_int_equal(first_difference(w->leased, half, 77), half);
    for (size_t i = 0; i < WRITES; i++) {
        assert_int_equal(te_status(w->a, b, i, &st), 0);
        if (st.error)
            is_so(w, b, i, TE_ERR_ACCESS, "it was revoked");
        *refused += st.error != 0;
        is_so(w, c, i, 0, NULL);
    }
    assert_int_equal(te_batch_free(w->a, b), 0);
    assert_int_equal(te_batch_free(w->a, c), 0);
    assert_int_equal(te_revoke(w->b, bystander), 0);
}

static void nothing_lands_later(void **state)
{
    size_t refused = 0;

    for (int round = 0; round < 150 || (!refused && round < 10000); round++)
        revoke_under_way(*state, round, &refused);
    assert_true(refused > 0);
}

/* --------------------------------------------------------------------------------------- other ways in */

static void by_prepared_lists(void **state)
{
    struct world *w = *state;
    te_lease_key key;
    te_lease lease = grant(w, 0, SIZE, TE_REMOTE_RW, &key);
    const te_submit_opts opts = {.size = sizeof(opts), .lease = &key};
    void *local[] = {w->own, w->own + 50000};
    const uint64_t remote[] = {(uintptr_t)w->leased, (uintptr_t)w->leased + 99999};
    const size_t length[] = {50000, 7};
    te_prep prep;
    te_batch b;

    fill(w->own, 50007, 5);
    assert_int_equal(te_prep_create(w->a, w->seg, local, remote, length, 2, &prep), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(te_batch_alloc(w->a, 2, &b), 0);
        assert_int_equal(te_prep_submit(w->a, b, prep, TE_WRITE, NULL, 2, &opts), 0);
        end(w, b);
        is_so(w, b, 0, 0, NULL);
        is_so(w, b, 1, 0, NULL);
        assert_int_equal(te_batch_free(w->a, b), 0);
    }
    assert_memory_equal(w->leased, w->own, 50000);
    assert_memory_equal(w->leased + 99999, w->own + 50000, 7);
    assert_int_equal(te_revoke(w->b, lease), 0);
    assert_int_equal(te_batch_alloc(w->a, 2, &b), 0);
    assert_int_equal(te_prep_submit(w->a, b, prep, TE_WRITE, NULL, 2, &opts), 0);
    end(w, b);
    is_so(w, b, 0, TE_ERR_ACCESS, "it was revoked");
    is_so(w, b, 1, TE_ERR_ACCESS, "it was revoked");
    assert_int_equal(te_batch_free(w->a, b), 0);
    assert_int_equal(te_prep_destroy(w->a, prep), 0);
}

enum { PAGES = 300, PAGE = 4096 };

static void by_pages(void **state)
{
    struct world *w = *state;
    te_lease_key key;
    te_lease lease = grant(w, 0, SIZE, TE_REMOTE_RW, &key);
    const te_submit_opts opts = {.size = sizeof(opts), .lease = &key};
    uint32_t local[PAGES], remote[PAGES];
    te_pages p = {.size = sizeof(p),
                  .opcode = TE_WRITE,
                  .target = w->seg,
                  .length = PAGE,
                  .n = PAGES,
                  .index_bits = 32,
                  .local = {(uintptr_t)w->own, PAGES, PAGE, 0, 0, local},
                  .remote = {(uintptr_t)w->leased, SIZE / PAGE, PAGE, 0, 0, remote}};
    te_batch b;

    for (uint32_t i = 0; i < PAGES; i++) {
        local[i] = i;
        remote[i] = (i * 7 + 3) % (SIZE / PAGE);
    }
    fill(w->own, (size_t)PAGES * PAGE, 9);
    for (int revoked = 0; revoked < 2; revoked++) {
        assert_int_equal(te_batch_alloc(w->a, 1, &b), 0);
        if (te_submit_pages(w->a, b, &p, &opts))
            fail_msg("%s", te_errmsg());
        end(w, b);
        is_so(w, b, 0, revoked ? TE_ERR_ACCESS : 0, revoked ? "it was revoked" : NULL);
        assert_int_equal(te_batch_free(w->a, b), 0);
        for (uint32_t i = 0; i < PAGES; i++)
            assert_memory_equal(w->leased + (size_t)remote[i] * PAGE, w->own + (size_t)i * PAGE,
                                PAGE);
        if (!revoked)
            assert_int_equal(te_revoke(w->b, lease), 0);
    }
}

/* Only "tcp" shows keys, and only in its native framing. */
static void by_nothing_that_shows_none(void **state)
{
    struct world *w = *state;
    te_lease_key key;
    te_lease lease = grant(w, 0, 4096, TE_REMOTE_RW, &key);
    const te_paths host = {.size = sizeof(host), .require = "host"};
    const te_submit_opts opts = {.size = sizeof(opts), .lease = &key, .paths = &host};
    te_request r = request(w, TE_WRITE, 0, 0, 100);
    te_engine *old = pair_third("TE_TCP_NATIVE", "0");
    struct world by_old = *w;
    te_batch b;

    assert_int_equal(te_batch_alloc(w->a, 1, &b), 0);
    assert_int_equal(te_submit(w->a, b, &r, 1, &opts), TE_ERR_UNSUPPORTED);
    assert_non_null(strstr(te_errmsg(), "lease"));
    assert_int_equal(te_batch_free(w->a, b), 0);
    assert_int_equal(te_register(old, w->own, PAIR_SIZE, "cpu:0", TE_LOCAL_ONLY), 0);
    assert_int_equal(te_open(old, w->pair->bname, &by_old.seg), 0);
    by_old.a = old;
    memset(w->leased, 0xee, SIZE);
    does(&by_old, TE_WRITE, 0, 4096, &key, TE_ERR_UNSUPPORTED, "nobody would look at the key");
    assert_int_equal(w->leased[0], 0xee);
    te_engine_destroy(old);
    assert_int_equal(te_revoke(w->b, lease), 0);
}

/* An engine has no lease of its own memory, by whatever name it asks for it. */
static void not_to_itself(void **state)
{
    struct world *w = *state;
    te_lease_key key;
    te_lease lease = grant(w, 0, 4096, TE_REMOTE_RW, &key);
    const te_submit_opts opts = {.size = sizeof(opts), .lease = &key};
    te_segment own = -1;
    te_batch b;

    assert_int_equal(te_open(w->b, w->pair->bname, &own), 0);
    assert_int_equal(te_batch_alloc(w->b, 2, &b), 0);
    for (int i = 0; i < 2; i++) {
        te_request r = {.opcode = TE_WRITE,
                        .source = w->pair->bm,
                        .target = i ? own : TE_LOCAL_SEGMENT,
                        .target_offset = (uintptr_t)w->leased,
                        .length = 4096};

        assert_int_equal(te_submit(w->b, b, &r, 1, &opts), TE_ERR_UNSUPPORTED);
        assert_non_null(strstr(te_errmsg(), "shows the key of its lease"));
    }
    assert_int_equal(te_batch_free(w->b, b), 0);
    assert_int_equal(te_revoke(w->b, lease), 0);
}

/* Zeros are no key, and do not stand for none either: all may write there. */
static void not_by_zeros(void **state)
{
    struct world *w = *state;
    const te_lease_key zeros = {{0}};
    const te_submit_opts opts = {.size = sizeof(opts), .lease = &zeros};
    te_request r = request(w, TE_WRITE, 0, 0, 100);
    te_batch b;

    r.target_offset = (uintptr_t)w->pair->bm;
    assert_int_equal(te_batch_alloc(w->a, 1, &b), 0);
    assert_int_equal(te_submit(w->a, b, &r, 1, &opts), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "all zeros"));
    assert_int_equal(te_batch_free(w->a, b), 0);
}

struct revoker {
    struct world *w;
    te_lease lease;
    pthread_barrier_t *begin;
};

/* Whoever is told that the lease is gone may use the memory, also if another thread has ended it. */
static void *revoker_main(void *arg)
{
    const struct revoker *r = arg;
    int rc;

    pthread_barrier_wait(r->begin);
    rc = te_revoke(r->w->b, r->lease);
    if (rc == TE_ERR_NOT_FOUND)
        fill(r->w->leased, SIZE, 77);
    return (void *)(intptr_t)rc;
}

static void by_two_at_a_time(void **state)
{
    struct world *w = *state;

    for (int round = 0; round < 100; round++) {
        te_request r = request(w, TE_WRITE, 0, 0, SIZE);
        te_lease_key key;
        pthread_barrier_t begin;
        struct revoker x = {w, grant(w, 0, SIZE, TE_REMOTE_RW, &key), &begin};
        te_batch b = submit(w, &r, 1, &key);
        pthread_t threads[2];
        intptr_t sum = 0;

        pthread_barrier_init(&begin, NULL, 2);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, revoker_main, &x), 0);
        for (int i = 0; i < 2; i++) {
            void *rc;

            pthread_join(threads[i], &rc);
            sum += (intptr_t)rc;
        }
        assert_int_equal(sum, TE_ERR_NOT_FOUND);
        end(w, b);
        assert_int_equal(first_difference(w->leased, SIZE, 77), SIZE);
        assert_int_equal(te_batch_free(w->a, b), 0);
        pthread_barrier_destroy(&begin);
    }
}

/* The next engine of the name looks at keys, and the descriptor that is known is of one that did not. */
static void after_a_restart(void **state)
{
    struct world *w = *state;
    te_lease_key key;
    te_lease lease;
    te_options o;

    te_engine_destroy(w->b);
    loopback_options(&o);
    o.local_server_name = w->pair->bname;
    assert_int_equal(te_option_set(&o, "TE_TCP_NATIVE", "0"), 0);
    assert_int_equal(te_engine_create(&o, &w->b), 0);
    assert_int_equal(te_refresh(w->a, w->pair->bname), 0);
    te_engine_destroy(w->b);
    assert_int_equal(te_option_set(&o, "TE_TCP_NATIVE", "1"), 0);
    assert_int_equal(te_engine_create(&o, &w->b), 0);
    te_options_fini(&o);
    w->pair->b = w->b;
    assert_int_equal(te_register(w->b, w->leased, SIZE, "cpu:0", TE_LOCAL_ONLY), 0);
    lease = grant(w, 0, 4096, TE_REMOTE_RW, &key);
    does(w, TE_WRITE, 0, 4096, &key, 0, NULL);
    assert_int_equal(te_revoke(w->b, lease), 0);
}

static void many(void **state)
{
    enum { MANY = 100000 };
    struct world *w = *state;
    te_lease *leases = calloc(MANY, sizeof(*leases));
    te_lease_key *keys = calloc(MANY, sizeof(*keys));

    assert_true(leases && keys);
    for (size_t i = 0; i < MANY; i++)
        leases[i] = grant(w, i % SIZE, 1, TE_REMOTE_READ, &keys[i]);
    for (size_t i = 0; i < MANY; i += MANY / 50)
        does(w, TE_READ, i % SIZE, 1, &keys[i], 0, NULL);
    for (size_t i = 0; i < MANY; i += 2)
        assert_int_equal(te_revoke(w->b, leases[i]), 0);
    assert_int_equal(metric_of(w->b, "leases"), MANY / 2);
    assert_int_equal(metric_of(w->b, "leases_granted_total"), MANY);
    for (size_t i = 0; i < MANY; i += MANY / 50) {
        does(w, TE_READ, i % SIZE, 1, &keys[i], TE_ERR_ACCESS, "it was revoked");
        does(w, TE_READ, (i + 1) % SIZE, 1, &keys[i + 1], 0, NULL);
    }
    free(leases);
    free(keys);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(moves),
        CASE(nothing_without),
        CASE(allows_no_more),
        CASE(beside_rights_of_all),
        CASE(bad_arguments),
        CASE(is_revoked),
        CASE(is_over_with_its_time),
        CASE(ends_with_its_region),
        CASE(is_of_one_engine),
        CASE(nothing_lands_later),
        CASE(by_prepared_lists),
        CASE(by_pages),
        CASE(by_nothing_that_shows_none),
        CASE(not_to_itself),
        CASE(not_by_zeros),
        CASE(by_two_at_a_time),
        CASE(after_a_restart),
        CASE(many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
