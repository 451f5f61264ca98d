/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that runs copies of devices: every flow, errors, cancel, deadlines, close. */
/* te-test: timeout=60 */
#include "base/os.h"
#include "patience.h"
#include "transport/mover.h"
#include "test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AREA   ((size_t)12 << 20)
#define JOBS   4096
#define PLACES 3 /* the host, and up to two devices of a kind */

/* ------------------------------------------------------------------------------------------- rig */

struct job {
    struct tei_move move;
    _Atomic uint64_t moved;
    unsigned ended; /* times */
    unsigned rank;  /* how many had ended before */
};

struct rig {
    struct tei_mover *mover;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    struct job *jobs; /* JOBS */
    unsigned n, ended;
    bool counts_failed; /* nothing is cancelled, so that the mover's thread alone sets errors */
    unsigned failed;    /* how many have an error, those that are still with the device, too */
};

static void on_ended(void *arg, struct tei_list *moves)
{
    struct rig *r = arg;
    struct tei_link *link;

    pthread_mutex_lock(&r->lock);
    while ((link = tei_list_pop(moves))) {
        struct job *j = tei_container_of(tei_move_of(link), struct job, move);

        j->ended++;
        j->rank = r->ended++;
    }
    r->failed = 0;
    for (unsigned i = 0; r->counts_failed && i < r->n; i++)
        r->failed += r->jobs[i].move.entry.base.error != 0;
    pthread_cond_broadcast(&r->cond);
    pthread_mutex_unlock(&r->lock);
}

static void rig_open_for(struct rig *r, int64_t no_progress_ms)
{
    struct tei_conf conf = {.transfer_timeout_ms = no_progress_ms, .gpu_kernel = true};

    *r = (struct rig){0};
    pthread_mutex_init(&r->lock, NULL);
    tei_cond_init(&r->cond);
    r->jobs = calloc(JOBS, sizeof(*r->jobs));
    assert_non_null(r->jobs);
    assert_int_equal(tei_mover_start("te/test", &conf, on_ended, r, &r->mover), 0);
}

static void rig_open(struct rig *r)
{
    rig_open_for(r, 0);
}

/* Ends the mover; every job has ended exactly once. */
static void rig_close(struct rig *r)
{
    tei_mover_destroy(r->mover);
    for (unsigned i = 0; i < r->n; i++)
        assert_int_equal(r->jobs[i].ended, 1);
    free(r->jobs);
    pthread_cond_destroy(&r->cond);
    pthread_mutex_destroy(&r->lock);
}

/* Whether so many have ended, waiting for it. */
static bool wait_ended(struct rig *r, unsigned n)
{
    int64_t until = tei_now_ns() + PATIENCE_NS;
    bool in_time = true;

    pthread_mutex_lock(&r->lock);
    while (r->ended < n && in_time)
        in_time = tei_cond_wait_until(&r->cond, &r->lock, until);
    in_time = r->ended >= n;
    pthread_mutex_unlock(&r->lock);
    return in_time;
}

/* Memory of a device or of the host, and what is to be in it. */
struct place {
    enum tei_mem_kind kind;
    int device;
    char *source, *target; /* AREA each */
    char *has, *wants;     /* copies in host memory */
};

static char *get_memory(enum tei_mem_kind kind, int device)
{
    void *p = NULL;

    if (kind == TEI_MEM_HOST)
        p = malloc(AREA);
    else
        assert_int_equal(tei_gpu_alloc(kind, device, AREA, false, &p), 0);
    assert_non_null(p);
    return p;
}

static void put_memory(enum tei_mem_kind kind, void *p)
{
    if (kind == TEI_MEM_HOST)
        free(p);
    else
        tei_gpu_free(kind, p);
}

static void place_open(struct place *p, enum tei_mem_kind kind, int device)
{
    p->kind = kind;
    p->device = device;
    p->source = get_memory(kind, device);
    p->target = get_memory(kind, device);
    p->has = malloc(AREA);
    p->wants = malloc(AREA);
    assert_true(p->has && p->wants);
    tei_random(p->has, AREA);
    memset(p->wants, 0x5a, AREA);
    assert_int_equal(tei_mem_copy(p->source, p->has, AREA), 0);
    assert_int_equal(tei_mem_copy(p->target, p->wants, AREA), 0);
}

static void place_check(const struct place *p)
{
    char *is = malloc(AREA);

    assert_non_null(is);
    assert_int_equal(tei_mem_copy(is, p->target, AREA), 0);
    assert_true(memcmp(is, p->wants, AREA) == 0);
    free(is);
}

static void place_close(struct place *p)
{
    put_memory(p->kind, p->source);
    put_memory(p->kind, p->target);
    free(p->has);
    free(p->wants);
}

/* The host and the devices of a kind; how many. 0: there is no such device. */
static unsigned places_open(struct place v[PLACES], enum tei_mem_kind kind)
{
    int devices = tei_gpu_open(kind) ? 0 : tei_gpu_count(kind);
    unsigned n = 1 + (unsigned)(devices < PLACES - 1 ? devices : PLACES - 1);

    if (devices <= 0) {
        print_message("there is no device of kind %d here\n", (int)kind);
        return 0;
    }
    place_open(&v[0], TEI_MEM_HOST, -1);
    for (unsigned i = 1; i < n; i++)
        place_open(&v[i], kind, (int)i - 1);
    return n;
}

static void places_close(struct place *v, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        place_close(&v[i]);
}

/* A move of n bytes; not of the host alone. */
static struct job *add_move(struct rig *r, struct tei_list *list, const struct place *to, size_t at,
                            const struct place *from, size_t from_at, size_t n)
{
    struct job *j = &r->jobs[r->n++];
    const struct place *by = from->kind == TEI_MEM_HOST ? to : from;

    assert_true(r->n <= JOBS && by->kind != TEI_MEM_HOST);
    j->move = (struct tei_move){.entry.base = {.moved = &j->moved,
                                               .local = from->source + from_at,
                                               .remote = (uintptr_t)(to->target + at),
                                               .length = n,
                                               .deadline_ns = TEI_NEVER,
                                               .opcode = TE_WRITE},
                                .kind = by->kind,
                                .device = by->device,
                                .flow = from->kind == TEI_MEM_HOST ? TEI_TO_DEVICE
                                        : to->kind == TEI_MEM_HOST ? TEI_FROM_DEVICE
                                                                   : TEI_WITHIN};
    if (r->n % 2) { /* the same copy, named from the other side */
        j->move.entry.base.local = to->target + at;
        j->move.entry.base.remote = (uintptr_t)(from->source + from_at);
        j->move.entry.base.opcode = TE_READ;
    }
    tei_list_push_back(list, &j->move.entry.base.link);
    return j;
}

/* The same, and what it is to do. */
static struct job *add_good(struct rig *r, struct tei_list *list, const struct place *to, size_t at,
                            const struct place *from, size_t from_at, size_t n)
{
    memcpy(to->wants + at, from->has + from_at, n);
    return add_move(r, list, to, at, from, from_at, n);
}

static void all_went_well(const struct rig *r)
{
    for (unsigned i = 0; i < r->n; i++) {
        assert_int_equal(r->jobs[i].move.entry.base.error, 0);
        assert_int_equal(r->jobs[i].moved, r->jobs[i].move.entry.base.length);
    }
}

/* ------------------------------------------------------------------------------- what goes well */

/* A length of any order of magnitude up to `most`. */
static size_t some_length(size_t most)
{
    size_t n = (size_t)(tei_random_u64() >> (40 + tei_random_u64() % 24)) + 1;

    return tei_min(n, most);
}

/* Cuts all targets into pieces of random lengths, each from somewhere. */
static void post_random(struct rig *r, const struct place *v, unsigned n)
{
    struct tei_list list;

    tei_list_init(&list);
    for (unsigned t = 0; t < n; t++) {
        for (size_t at = 0, len; at < AREA && r->n < JOBS; at += len) {
            unsigned f =
                t ? (unsigned)(tei_random_u64() % n) : 1 + (unsigned)(tei_random_u64() % (n - 1));

            len = some_length(AREA - at);
            add_good(r, &list, &v[t], at, &v[f], tei_random_u64() % (AREA - len + 1), len);
            if (tei_random_u64() % 16 == 0)
                tei_mover_post(r->mover, &list);
        }
    }
    tei_mover_post(r->mover, &list);
}

static void move_everywhere(enum tei_mem_kind kind)
{
    struct place v[PLACES];
    struct rig r;
    unsigned n = places_open(v, kind);

    if (!n)
        return;
    rig_open(&r);
    post_random(&r, v, n);
    assert_true(wait_ended(&r, r.n));
    all_went_well(&r);
    for (unsigned i = 0; i < n; i++)
        place_check(&v[i]);
    rig_close(&r);
    places_close(v, n);
}

TEST(every_flow_of_cuda)
{
    move_everywhere(TEI_MEM_CUDA);
}

TEST(every_flow_of_hip)
{
    move_everywhere(TEI_MEM_HIP);
}

TEST(every_flow_of_npu)
{
    move_everywhere(TEI_MEM_ASCEND);
}

TEST(every_flow_of_musa)
{
    move_everywhere(TEI_MEM_MUSA);
}

/* Far more than go in one call, or are under way at a time. */
TEST(many_small_ones)
{
    struct place v[PLACES];
    struct rig r;
    struct tei_list list;
    unsigned n = places_open(v, TEI_MEM_CUDA);
    size_t each = AREA / JOBS;

    if (!n)
        return;
    rig_open(&r);
    tei_list_init(&list);
    for (unsigned i = 0; i < JOBS; i++)
        add_good(&r, &list, &v[i % 2], i * each, &v[!(i % 2)], (JOBS - 1 - i) * each, each - 1);
    tei_mover_post(r.mover, &list);
    assert_true(tei_list_empty(&list));
    assert_true(wait_ended(&r, r.n));
    all_went_well(&r);
    place_check(&v[0]);
    place_check(&v[1]);
    rig_close(&r);
    places_close(v, n);
}

TEST(a_short_one_passes_a_long_one)
{
    struct place v[PLACES];
    struct rig r;
    struct tei_list list;
    struct job *longer, *shorter;
    unsigned n = places_open(v, TEI_MEM_CUDA);

    if (!n)
        return;
    rig_open(&r);
    tei_list_init(&list);
    longer = add_good(&r, &list, &v[1], 100, &v[0], 7, AREA - 100);
    shorter = add_good(&r, &list, &v[1], 1, &v[0], 3, 99);
    tei_mover_post(r.mover, &list);
    assert_true(wait_ended(&r, 2));
    all_went_well(&r);
    assert_true(shorter->rank < longer->rank);
    place_check(&v[1]);
    rig_close(&r);
    places_close(v, n);
}

struct poster {
    struct rig *r;
    struct job *jobs;
    unsigned n;
};

static void *post_some(void *arg)
{
    struct poster *p = arg;
    struct tei_list list;

    tei_list_init(&list);
    for (unsigned i = 0; i < p->n; i++) {
        tei_list_push_back(&list, &p->jobs[i].move.entry.base.link);
        if (i % 5 == 0)
            tei_mover_post(p->r->mover, &list);
    }
    tei_mover_post(p->r->mover, &list);
    return NULL;
}

TEST(two_threads_post)
{
    struct place v[PLACES];
    struct rig r;
    struct tei_list list;
    struct poster posters[2];
    pthread_t threads[2];
    unsigned n = places_open(v, TEI_MEM_CUDA);
    size_t each = AREA / 512;

    if (!n)
        return;
    rig_open(&r);
    tei_list_init(&list);
    for (unsigned i = 0; i < 512; i++) {
        add_good(&r, &list, &v[i < 256], i * each, &v[i >= 256], i * each + 1, each - 1);
        tei_list_pop(&list);
    }
    for (unsigned i = 0; i < 2; i++) {
        posters[i] = (struct poster){.r = &r, .jobs = &r.jobs[i * 256], .n = 256};
        assert_int_equal(pthread_create(&threads[i], NULL, post_some, &posters[i]), 0);
    }
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_true(wait_ended(&r, r.n));
    all_went_well(&r);
    place_check(&v[0]);
    place_check(&v[1]);
    rig_close(&r);
    places_close(v, n);
}

/* ------------------------------------------------------------------------------- what does not */

TEST(no_such_device)
{
    struct place v[PLACES];
    struct rig r;
    struct tei_list list;
    struct job *bad;
    unsigned n = places_open(v, TEI_MEM_CUDA);

    if (!n)
        return;
    rig_open(&r);
    tei_list_init(&list);
    for (unsigned round = 0; round < 2; round++) {
        bad = add_move(&r, &list, &v[1], 0, &v[0], 0, 1000);
        bad->move.device = 63;
        add_good(&r, &list, &v[1], 1000 * (round + 1), &v[0], 5, 1000);
        tei_mover_post(r.mover, &list);
        assert_true(wait_ended(&r, r.n));
        assert_int_not_equal(bad->move.entry.base.error, 0);
        assert_non_null(bad->move.entry.base.why);
        assert_int_equal(bad->moved, 0);
        assert_int_equal(r.jobs[r.n - 1].move.entry.base.error, 0);
    }
    place_check(&v[1]);
    rig_close(&r);
    places_close(v, n);
}

TEST(what_is_late_never_begins)
{
    struct place v[PLACES];
    struct rig r;
    struct tei_list list;
    struct job *late;
    unsigned n = places_open(v, TEI_MEM_CUDA);

    if (!n)
        return;
    rig_open(&r);
    tei_list_init(&list);
    late = add_move(&r, &list, &v[1], 0, &v[0], 0, AREA / 2);
    late->move.entry.base.deadline_ns = 1;
    add_good(&r, &list, &v[1], AREA / 2, &v[0], 5, 1000)->move.entry.base.deadline_ns =
        tei_deadline_ns(60000);
    tei_mover_post(r.mover, &list);
    assert_true(wait_ended(&r, 2));
    assert_int_equal(late->move.entry.base.error, TE_ERR_TIMEOUT);
    assert_int_equal(late->moved, 0);
    assert_int_equal(r.jobs[1].move.entry.base.error, 0);
    place_check(&v[1]);
    rig_close(&r);
    places_close(v, n);
}

/* Only moves of the whole area, which nobody looks at afterwards. */
static void flood(struct rig *r, const struct place *v, unsigned n, const void *owner)
{
    struct tei_list list;

    tei_list_init(&list);
    for (unsigned i = 0; i < n; i++)
        add_move(r, &list, &v[i % 2], 0, &v[!(i % 2)], 0, AREA)->move.entry.base.owner = owner;
    tei_mover_post(r->mover, &list);
}

TEST(cancel_names_an_owner)
{
    struct place v[PLACES];
    struct rig r;
    unsigned n = places_open(v, TEI_MEM_CUDA), canceled = 0;
    int mine = 0, other = 0;

    if (!n)
        return;
    rig_open(&r);
    flood(&r, v, 100, &mine);
    flood(&r, v, 4, &other);
    tei_mover_cancel(r.mover, &mine);
    assert_true(wait_ended(&r, r.n));
    for (unsigned i = 0; i < 100; i++) {
        canceled += r.jobs[i].move.entry.base.error == TE_ERR_CANCELED;
        assert_true(r.jobs[i].move.entry.base.error == TE_ERR_CANCELED || r.jobs[i].moved == AREA);
    }
    assert_true(canceled >= 80);
    for (unsigned i = 100; i < 104; i++)
        assert_int_equal(r.jobs[i].move.entry.base.error, 0);
    rig_close(&r);
    places_close(v, n);
}

TEST(close_with_work_under_way)
{
    struct place v[PLACES];
    struct rig r;
    struct tei_list list;
    unsigned n = places_open(v, TEI_MEM_CUDA);
    struct job *after;

    if (!n)
        return;
    rig_open(&r);
    flood(&r, v, 50, NULL);
    assert_true(wait_ended(&r, 1));
    tei_mover_close(r.mover);
    tei_mover_close(r.mover);
    tei_list_init(&list);
    after = add_move(&r, &list, &v[1], 0, &v[0], 0, 1);
    tei_mover_post(r.mover, &list);
    assert_true(wait_ended(&r, r.n));
    assert_int_equal(after->move.entry.base.error, TE_ERR_CANCELED);
    for (unsigned i = 0; i < r.n; i++)
        assert_true(r.jobs[i].move.entry.base.error == 0 ||
                    r.jobs[i].move.entry.base.error == TE_ERR_CANCELED);
    rig_close(&r);
    places_close(v, n);
}

/* destroy() waits for what the device does, and for nothing else. */
TEST(destroy_with_work_under_way)
{
    struct place v[PLACES];
    struct rig r;
    unsigned n = places_open(v, TEI_MEM_CUDA);

    if (!n)
        return;
    rig_open(&r);
    flood(&r, v, 50, NULL);
    rig_close(&r);
    tei_mover_destroy(NULL);
    places_close(v, n);
}

/* -------------------------------------------------------------------- what a stand-in can be told */

/* Tells the stand-in of a driver what to do wrong; false if the driver is real. */
static bool command(const char *text)
{
    bool (*plays)(int kind) = (bool (*)(int))dlsym(RTLD_DEFAULT, "softgpu_plays");
    int (*control)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "softgpu_control");

    if (!plays || !control || !plays(0)) {
        print_message("left out: the driver cannot be told \"%s\"\n", text);
        return false;
    }
    assert_int_equal(control(text), 0);
    return true;
}

/* Copies that the stand-in was asked for. */
static long count_copies(void)
{
    long (*calls)(int, const char *) =
        (long (*)(int, const char *))dlsym(RTLD_DEFAULT, "softgpu_calls");

    assert_non_null(calls);
    return calls(0, "copy");
}

static unsigned ended_of(struct rig *r)
{
    unsigned ended;

    pthread_mutex_lock(&r->lock);
    ended = r->ended;
    pthread_mutex_unlock(&r->lock);
    return ended;
}

static unsigned failed_of(struct rig *r)
{
    unsigned failed;

    pthread_mutex_lock(&r->lock);
    failed = r->failed;
    pthread_mutex_unlock(&r->lock);
    return failed;
}

/*
 * Posts the flood while nothing gets on, and waits until some of it is with the device; false if all
 * has ended before that, as it does on a machine that is slower than its time limit.
 */
static bool flood_and_stall(struct rig *r, const struct place *v, unsigned n, const void *owner,
                            int64_t deadline_ns)
{
    long before = count_copies();
    struct tei_list list;

    tei_list_init(&list);
    for (unsigned i = 0; i < n; i++) {
        struct job *j = add_move(r, &list, &v[1], 0, &v[0], 0, AREA);

        j->move.entry.base.owner = owner;
        j->move.entry.base.deadline_ns = deadline_ns;
    }
    tei_mover_post(r->mover, &list);
    WAIT_FOR(count_copies() != before || ended_of(r) == r->n);
    return count_copies() != before;
}

/*
 * What is with the device stays there until it is let go; the rest ends at once. What came to the device later
 * is late later.
 */
static void check_stalled(struct rig *r, unsigned first, unsigned n, int error)
{
    assert_true(wait_ended(r, n - 8));
    if (r->counts_failed)
        WAIT_FOR(failed_of(r) == n);
    assert_true(ended_of(r) < n);
    assert_true(command("release"));
    assert_true(wait_ended(r, first + n));
    for (unsigned i = first; i < first + n; i++) {
        assert_int_equal(r->jobs[i].move.entry.base.error, error);
        assert_true(r->jobs[i].moved < AREA);
    }
}

TEST(cancel_while_the_device_stalls)
{
    struct place v[PLACES];
    struct rig r;
    unsigned n = places_open(v, TEI_MEM_CUDA);
    int mine = 0;

    if (n && command("stall kind=cuda")) {
        rig_open(&r);
        assert_true(flood_and_stall(&r, v, 30, &mine, TEI_NEVER));
        tei_mover_cancel(r.mover, &mine);
        tei_mover_cancel(r.mover, &mine);
        check_stalled(&r, 0, 30, TE_ERR_CANCELED);
        rig_close(&r);
    }
    places_close(v, n);
}

TEST(deadlines_while_the_device_stalls)
{
    struct place v[PLACES];
    struct rig r;
    unsigned n = places_open(v, TEI_MEM_CUDA);
    bool stalled = false;

    for (int64_t ms = 500; n && !stalled && ms < PATIENCE_MS && command("stall kind=cuda");
         ms *= 4) {
        rig_open(&r);
        r.counts_failed = true;
        stalled = flood_and_stall(&r, v, 30, NULL, tei_deadline_ns(ms));
        if (stalled)
            check_stalled(&r, 0, 30, TE_ERR_TIMEOUT);
        rig_close(&r);
    }
    places_close(v, n);
}

/* Without any deadline; what waits in the queue and what is with the device have both made none. */
TEST(no_progress_while_the_device_stalls)
{
    struct place v[PLACES];
    struct rig r;
    unsigned n = places_open(v, TEI_MEM_CUDA);
    bool stalled = false;

    for (int64_t ms = 50; n && !stalled && ms < PATIENCE_MS && command("stall kind=cuda");
         ms *= 4) {
        rig_open_for(&r, ms);
        r.counts_failed = true;
        stalled = flood_and_stall(&r, v, 30, NULL, TEI_NEVER);
        if (stalled)
            check_stalled(&r, 0, 30, TE_ERR_TIMEOUT);
        rig_close(&r);
    }
    places_close(v, n);
}

/* The other device, and the other flow, go on. */
TEST(a_stall_is_of_one_device)
{
    struct place v[PLACES];
    struct rig r;
    struct tei_list list;
    unsigned n = places_open(v, TEI_MEM_CUDA);

    if (n == PLACES && command("stall kind=cuda device=0")) {
        rig_open(&r);
        tei_list_init(&list);
        add_good(&r, &list, &v[1], 0, &v[0], 0, AREA);
        add_good(&r, &list, &v[2], 0, &v[0], 0, AREA);
        tei_mover_post(r.mover, &list);
        assert_true(wait_ended(&r, 1));
        assert_int_equal(r.jobs[0].ended, 0);
        assert_int_equal(r.jobs[1].move.entry.base.error, 0);
        assert_true(command("release"));
        assert_true(wait_ended(&r, 2));
        place_check(&v[1]);
        place_check(&v[2]);
        rig_close(&r);
    }
    places_close(v, n);
}

static void post_small(struct rig *r, const struct place *v, unsigned n)
{
    struct tei_list list;

    tei_list_init(&list);
    for (unsigned i = 0; i < n; i++)
        add_good(r, &list, &v[1], i * 1000, &v[0], i * 1001, 999);
    tei_mover_post(r->mover, &list);
}

/* Nobody pays for a failure that another copy is to blame for. */
TEST(a_failure_among_many_is_tried_again)
{
    static const char *const failures[] = {
        "fail copy nth=3 kind=cuda",
        "fail record nth=2 kind=cuda",
    };
    struct place v[PLACES];
    struct rig r;
    unsigned n = places_open(v, TEI_MEM_CUDA);

    for (unsigned i = 0; n && i < TEI_ARRAY_LEN(failures) && command(failures[i]); i++) {
        long before = count_copies();

        rig_open(&r);
        post_small(&r, v, 1000);
        assert_true(wait_ended(&r, r.n));
        assert_true(count_copies() - before > 100);
        all_went_well(&r);
        place_check(&v[1]);
        rig_close(&r);
        command("clear");
    }
    places_close(v, n);
}

/* The third call is refused, and then the first copy of it that is tried alone. */
TEST(one_bad_copy_among_many)
{
    struct place v[PLACES];
    struct rig r;
    unsigned n = places_open(v, TEI_MEM_CUDA), bad = 0;

    if (n && command("fail copy nth=3 count=2 kind=cuda")) {
        rig_open(&r);
        post_small(&r, v, 1000);
        assert_true(wait_ended(&r, r.n));
        for (unsigned i = 0; i < r.n; i++) {
            if (!r.jobs[i].move.entry.base.error)
                continue;
            assert_int_equal(r.jobs[i].move.entry.base.error, TE_ERR_CONTEXT);
            memset(v[1].wants + i * 1000, 0x5a, 999);
            bad++;
        }
        assert_int_equal(bad, 1);
        place_check(&v[1]);
        rig_close(&r);
        command("clear");
    }
    places_close(v, n);
}

TEST(what_fails_alone_has_failed)
{
    struct place v[PLACES];
    struct rig r;
    struct tei_list list;
    unsigned n = places_open(v, TEI_MEM_CUDA);

    if (n && command("fail copy nth=2 kind=cuda")) {
        rig_open(&r);
        tei_list_init(&list);
        add_move(&r, &list, &v[1], 0, &v[0], 0, AREA);
        tei_mover_post(r.mover, &list);
        assert_true(wait_ended(&r, 1));
        assert_int_equal(r.jobs[0].move.entry.base.error, TE_ERR_CONTEXT);
        assert_non_null(r.jobs[0].move.entry.base.why);
        assert_true(r.jobs[0].moved < AREA);
        add_good(&r, &list, &v[1], 0, &v[0], 0, AREA);
        tei_mover_post(r.mover, &list);
        assert_true(wait_ended(&r, 2));
        assert_int_equal(r.jobs[1].move.entry.base.error, 0);
        place_check(&v[1]);
        rig_close(&r);
        command("clear");
    }
    places_close(v, n);
}

/* The device does nothing any more; later it does again. */
TEST(all_fails_with_the_device)
{
    static const char *const failures[] = {
        "fail copy count=100000 kind=cuda",
        "fail copy count=100000 kind=cuda; fail stream nth=2 count=100000 kind=cuda",
        "fail stream count=100000 kind=cuda",
    };
    struct place v[PLACES];
    struct rig r;
    unsigned n = places_open(v, TEI_MEM_CUDA);

    for (unsigned i = 0; n && i < TEI_ARRAY_LEN(failures) && command(failures[i]); i++) {
        rig_open(&r);
        post_small(&r, v, 300);
        assert_true(wait_ended(&r, r.n));
        for (unsigned k = 0; k < r.n; k++) {
            assert_int_equal(r.jobs[k].move.entry.base.error, TE_ERR_CONTEXT);
            assert_non_null(r.jobs[k].move.entry.base.why);
        }
        command("clear");
        post_small(&r, v, 300);
        assert_true(wait_ended(&r, r.n));
        assert_int_equal(r.jobs[r.n - 1].move.entry.base.error, 0);
        place_check(&v[1]);
        rig_close(&r);
    }
    places_close(v, n);
}

/* From a copy that the device itself fails on nothing is well with it again, until the process ends. */
TEST(a_device_is_lost)
{
    struct place v[PLACES];
    struct rig r;
    struct tei_list list;
    unsigned n = places_open(v, TEI_MEM_CUDA), bad = 0;

    if (n == PLACES && command("fail copy nth=3 async=1 kind=cuda")) {
        rig_open(&r);
        post_small(&r, v, 1000);
        assert_true(wait_ended(&r, r.n));
        for (unsigned i = 0; i < r.n; i++) {
            bad += r.jobs[i].move.entry.base.error == TE_ERR_CONTEXT;
            assert_true(!r.jobs[i].move.entry.base.error ||
                        r.jobs[i].move.entry.base.error == TE_ERR_CONTEXT);
        }
        assert_true(bad >= 1000 - 2 * 128);
        tei_list_init(&list);
        add_move(&r, &list, &v[0], 0, &v[1], 0, 1000);
        add_good(&r, &list, &v[2], 0, &v[0], 0, AREA);
        tei_mover_post(r.mover, &list);
        assert_true(wait_ended(&r, r.n));
        assert_int_equal(r.jobs[1000].move.entry.base.error, TE_ERR_CONTEXT);
        assert_int_equal(r.jobs[1001].move.entry.base.error, 0);
        place_check(&v[2]);
        rig_close(&r);
        command("clear");
    }
    places_close(v, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flow_of_cuda),
        cmocka_unit_test(every_flow_of_hip),
        cmocka_unit_test(every_flow_of_npu),
        cmocka_unit_test(every_flow_of_musa),
        cmocka_unit_test(many_small_ones),
        cmocka_unit_test(a_short_one_passes_a_long_one),
        cmocka_unit_test(two_threads_post),
        cmocka_unit_test(no_such_device),
        cmocka_unit_test(what_is_late_never_begins),
        cmocka_unit_test(cancel_names_an_owner),
        cmocka_unit_test(close_with_work_under_way),
        cmocka_unit_test(destroy_with_work_under_way),
        cmocka_unit_test(cancel_while_the_device_stalls),
        cmocka_unit_test(deadlines_while_the_device_stalls),
        cmocka_unit_test(no_progress_while_the_device_stalls),
        cmocka_unit_test(a_stall_is_of_one_device),
        cmocka_unit_test(a_failure_among_many_is_tried_again),
        cmocka_unit_test(one_bad_copy_among_many),
        cmocka_unit_test(what_fails_alone_has_failed),
        cmocka_unit_test(all_fails_with_the_device),
        cmocka_unit_test(a_device_is_lost), /* the last one with it */
    };

    if (tei_gpu_open(TEI_MEM_CUDA) && tei_gpu_open(TEI_MEM_HIP)) {
        puts("there is no driver of a device");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
