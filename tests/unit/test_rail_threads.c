/* SPDX-License-Identifier: Apache-2.0 */
/* Peers, each in a thread of its own, share the NICs of this host while ports go down and come up. */
#include "rail/rail.h"
#include "test.h"

#include <pthread.h>

#define NICS   4
#define ROUNDS 20000
#define DEPTH  16

static struct tei_path_nics nics;
static const struct tei_path_port ports[NICS] = {
    {"a", 10000000000, true},
    {"b", 10000000000, true},
    {"c", 10000000000, true},
    {"d", 10000000000, true},
};

struct peer {
    struct tei_paths paths;
    struct tei_path_route route;
    unsigned sent, refused;
};

/* A window of slices in turn; every hundredth fails. */
static void *run(void *arg)
{
    struct peer *p = arg;
    int rails[DEPTH];

    for (unsigned k = 0; k < DEPTH; k++)
        rails[k] = TEI_PATH_NO_RAIL;
    for (unsigned k = 0; k < ROUNDS + DEPTH; k++) {
        struct tei_path_want want = {
            .len = 65536, .now = 1000000000 + k * INT64_C(2000), .avoid = TEI_PATH_NO_RAIL};
        struct tei_path_choice choice;
        int *rail = &rails[k % DEPTH];

        if (*rail >= 0) {
            if (k % 100 == 0)
                tei_paths_failed(&p->paths, *rail, TEI_PATH_FAULT_LOCAL, want.now);
            tei_paths_done(&p->paths, *rail, want.len, want.now, k % 100 != 0);
            *rail = TEI_PATH_NO_RAIL;
        }
        if (k >= ROUNDS)
            continue;
        if (tei_paths_pick(&p->paths, &p->route, &want, &choice) != TEI_PATH_RAIL) {
            p->refused++;
            continue;
        }
        *rail = choice.rail;
        p->sent++;
        tei_paths_posted(&p->paths, *rail, want.len, want.now);
    }
    return NULL;
}

TEST(test_peers_share_nics)
{
    struct tei_path_conf conf = {.rail_pause_ns = 1000000};
    static struct peer peers[2];
    pthread_t threads[2];

    tei_path_nics_init(&nics, ports, NICS);
    for (unsigned k = 0; k < 2; k++) {
        assert_int_equal(tei_paths_init(&peers[k].paths, &conf, &nics, ports, NICS), 0);
        tei_paths_route(&peers[k].paths, NULL, NULL, NULL, NULL, &peers[k].route);
        assert_int_equal(pthread_create(&threads[k], NULL, run, &peers[k]), 0);
    }
    for (unsigned k = 0; k < 2000; k++) {
        tei_path_nic_down(&nics, k % NICS);
        tei_path_nic_up(&nics, k % NICS, 10000000000 + k);
    }
    for (unsigned k = 0; k < 2; k++)
        assert_int_equal(pthread_join(threads[k], NULL), 0);
    for (unsigned k = 0; k < 2; k++) {
        assert_int_equal(peers[k].sent + peers[k].refused, ROUNDS);
        assert_true(peers[k].sent > ROUNDS / 2);
        tei_paths_fini(&peers[k].paths);
    }
    for (unsigned i = 0; i < NICS; i++)
        assert_int_equal(atomic_load(&nics.nic[i].outstanding), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peers_share_nics),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
