/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conformance.h - what every transport must do, whatever it is made of. A transport's test file
 * names itself:
 *
 *     static const struct conformance fixture = {.transport = "tcp"};
 *     CONFORMANCE_REMOTE(fixture)
 *     const struct CMUnitTest tests[] = {CONFORMANCE_REMOTE_TESTS, cmocka_unit_test(mine)};
 *
 * The transport runs in fake hosts (tests/support/fake_host.h). A REMOTE one is tested with two
 * instances in this process, and with a peer in a process of its own that can be frozen and killed.
 *
 * What is posted once the peer is gone ends TE_ERR_PEER: no connection could be made, and nothing was
 * sent. TE_ERR_LINK may come first, of works that found a connection broken; TE_ERR_STALE is right where
 * somebody else answers in the peer's place.
 *
 * Either side's memory may be of a device, as far as the transport takes it there. What is said of
 * HOST memory is checked all the same.
 */
#ifndef TEST_CONFORMANCE_H
#define TEST_CONFORMANCE_H

#include "fake_host.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <sys/types.h>

#define PAIR_BYTES ((size_t)32 << 20)
#define PIECE      ((size_t)64 << 10) /* where a transport that splits requests is to split */

enum pair_side { INITIATOR, TARGET };

/*
 * What it points to is there, and the same, from the beginning of the process on: the target's may
 * have been forked then.
 */
struct conformance {
    const char *transport;
    void (*configure)(struct tei_conf *conf); /* may be NULL */
    bool mute; /* a refusal cannot always be told from a lost connection */
    /* of the initiator's and the target's host, see struct fake_host */
    const char *topology[2];
    /* For a transport to files: a folder in which one is made, which stands for the target. */
    const char *folder;
    /* What memory each side has, and on which device. */
    enum tei_mem_kind kind[2];
    int device[2];
    bool fabric; /* memory of a device is of the sort that TEI_GPU_FABRIC handles are made of */
};

/*
 * An initiator `a` and a target `b`; for a transport that is local only they are the same, and one to
 * files has no `b`: `bm` is the file, mapped.
 */
struct pair {
    const struct conformance *with;
    struct fake_host ha, hb;
    struct tei_transport *a, *b;
    struct tei_attach *attach; /* b, as seen by a */
    char *am, *bm;             /* PAIR_BYTES each, registered */
    struct tei_region *ar, *br;
    pid_t child;     /* b runs there: hb and b are not used */
    int orders;      /* -1; or the child's memory is its own, at bm, and this is how to reach it */
    char file[4096]; /* its path */
};

struct pair *pair_open(const struct conformance *with);
/*
 * The same with the target in a process of its own. No thread may run in this process yet, unless a
 * side has memory of a device.
 */
struct pair *pair_fork(const struct conformance *with);
/*
 * To be called by a test in which a side has memory of a device, before it touches a driver itself or
 * has threads; pair_open() and pair_fork() do so, too.
 */
void pair_prepare(void);
void pair_close(struct pair *p);
/* Kills and forgets it. */
void pair_end_child(struct pair *p);
/* `a` sees the regions that `b` has now. Not after pair_fork(). */
void pair_attach_anew(struct pair *p);

/* Fills with bytes that differ from place to place, and for each seed. */
void fill_pattern(char *p, size_t n, uint32_t seed);

/*
 * The memory of a side, `at` bytes from its beginning, wherever it is. A target in a process of its
 * own that is stopped has HOST memory on both sides, or must be woken first.
 */
void pair_put(const struct pair *p, enum pair_side side, size_t at, const void *from, size_t n);
void pair_get(const struct pair *p, enum pair_side side, size_t at, void *to, size_t n);
void pair_fill(const struct pair *p, enum pair_side side, size_t at, size_t n, uint32_t seed);
void pair_set(const struct pair *p, enum pair_side side, size_t at, char byte, size_t n);
void pair_expect(const struct pair *p, enum pair_side side, size_t at, const void *bytes, size_t n);
/* Whether these bytes of p's initiator are those of q's target. */
bool pair_same(const struct pair *p, size_t at_a, const struct pair *q, size_t at_b, size_t n);

/* More memory like that of a side: zeroed, not registered. */
char *pair_map(const struct conformance *with, enum pair_side side, size_t n);
void pair_unmap(const struct conformance *with, enum pair_side side, char *p, size_t n);
/* Between any memory of this process. */
void pair_copy(const struct conformance *with, void *to, const void *from, size_t n);

void conformance_sizes(const struct conformance *with);
void conformance_random_volleys(const struct conformance *with);
void conformance_many_threads(const struct conformance *with);
void conformance_more_work_than_lanes(const struct conformance *with);
void conformance_post_after_close(const struct conformance *with);
void conformance_close_in_flight(const struct conformance *with);
void conformance_leaves_nothing(const struct conformance *with);
void conformance_idle_sleeps(const struct conformance *with);
void conformance_warm(const struct conformance *with);
void conformance_warm_ends(const struct conformance *with);
void conformance_warm_together(const struct conformance *with);
void conformance_leases(const struct conformance *with);
void conformance_lease_ends(const struct conformance *with);

void conformance_two_peers(const struct conformance *with);
void conformance_other_process(const struct conformance *with);
void conformance_peer_dies(const struct conformance *with);
void conformance_peer_gone(const struct conformance *with);
void conformance_cancel_frozen(const struct conformance *with);
void conformance_deadline_frozen(const struct conformance *with);
void conformance_close_frozen(const struct conformance *with);
void conformance_region_removed(const struct conformance *with);
void conformance_stale(const struct conformance *with);
void conformance_warm_dead(const struct conformance *with);
void conformance_warm_frozen(const struct conformance *with);

#define CONFORMANCE_CASE(fixture, name) \
    static void name(void **state)      \
    {                                   \
        (void)state;                    \
        conformance_##name(&(fixture)); \
    }

#define CONFORMANCE_COMMON(fixture)                 \
    CONFORMANCE_CASE(fixture, sizes)                \
    CONFORMANCE_CASE(fixture, random_volleys)       \
    CONFORMANCE_CASE(fixture, many_threads)         \
    CONFORMANCE_CASE(fixture, more_work_than_lanes) \
    CONFORMANCE_CASE(fixture, post_after_close)     \
    CONFORMANCE_CASE(fixture, close_in_flight)      \
    CONFORMANCE_CASE(fixture, leaves_nothing)       \
    CONFORMANCE_CASE(fixture, idle_sleeps)          \
    CONFORMANCE_CASE(fixture, warm)                 \
    CONFORMANCE_CASE(fixture, warm_ends)            \
    CONFORMANCE_CASE(fixture, warm_together)        \
    CONFORMANCE_CASE(fixture, leases)               \
    CONFORMANCE_CASE(fixture, lease_ends)

/* Where the initiator moves the bytes, so that a peer which is frozen holds up nothing. */
#define CONFORMANCE_ONE_SIDED(fixture)        \
    CONFORMANCE_COMMON(fixture)               \
    CONFORMANCE_CASE(fixture, two_peers)      \
    CONFORMANCE_CASE(fixture, other_process)  \
    CONFORMANCE_CASE(fixture, peer_dies)      \
    CONFORMANCE_CASE(fixture, peer_gone)      \
    CONFORMANCE_CASE(fixture, region_removed) \
    CONFORMANCE_CASE(fixture, stale)          \
    CONFORMANCE_CASE(fixture, warm_dead)      \
    CONFORMANCE_CASE(fixture, warm_frozen)

#define CONFORMANCE_REMOTE(fixture)            \
    CONFORMANCE_ONE_SIDED(fixture)             \
    CONFORMANCE_CASE(fixture, cancel_frozen)   \
    CONFORMANCE_CASE(fixture, deadline_frozen) \
    CONFORMANCE_CASE(fixture, close_frozen)

#define CONFORMANCE_COMMON_TESTS                                                               \
    cmocka_unit_test(sizes), cmocka_unit_test(random_volleys), cmocka_unit_test(many_threads), \
        cmocka_unit_test(more_work_than_lanes), cmocka_unit_test(post_after_close),            \
        cmocka_unit_test(close_in_flight), cmocka_unit_test(leaves_nothing),                   \
        cmocka_unit_test(idle_sleeps), cmocka_unit_test(warm), cmocka_unit_test(warm_ends),    \
        cmocka_unit_test(warm_together), cmocka_unit_test(leases), cmocka_unit_test(lease_ends)

#define CONFORMANCE_ONE_SIDED_TESTS                                                             \
    CONFORMANCE_COMMON_TESTS, cmocka_unit_test(two_peers), cmocka_unit_test(other_process),     \
        cmocka_unit_test(peer_dies), cmocka_unit_test(peer_gone),                               \
        cmocka_unit_test(region_removed), cmocka_unit_test(stale), cmocka_unit_test(warm_dead), \
        cmocka_unit_test(warm_frozen)

#define CONFORMANCE_REMOTE_TESTS                                  \
    CONFORMANCE_ONE_SIDED_TESTS, cmocka_unit_test(cancel_frozen), \
        cmocka_unit_test(deadline_frozen), cmocka_unit_test(close_frozen)

#endif
