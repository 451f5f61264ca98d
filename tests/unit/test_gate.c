/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel */
/* Requests that wait do not keep older views: a transport that is opened anew waits for these. */
#include "test.h"

#include "core/core.h"
#include "core/view.h"
#include "pair.h"
#include "patience.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { REQUESTS = 200 }; /* more views than are exchanged at a time */

static size_t views_of_tcp(te_engine *e)
{
    return atomic_load(&e->transports.views[tei_transports_find(&e->transports, "tcp")->index]);
}

static void older_views_go(void **state)
{
    struct pair *p = *state;
    te_stream ready = {.size = sizeof(ready), .fd = eventfd(0, EFD_CLOEXEC)};
    te_submit_opts opts = {.size = sizeof(opts), .after = &ready};
    te_request r[REQUESTS];
    size_t before = views_of_tcp(p->a);
    struct te_status st;
    te_batch b;

    for (size_t i = 0; i < REQUESTS; i++)
        r[i] = (te_request){TE_WRITE, p->am + i, p->seg, (uintptr_t)p->bm + i, 1};
    memset(p->am, 7, REQUESTS);
    assert_int_equal(te_batch_alloc(p->a, REQUESTS, &b), 0);
    assert_int_equal(te_submit(p->a, b, r, REQUESTS, &opts), 0);
    assert_int_equal(te_refresh(p->a, p->bname), 0);
    assert_int_equal(tei_peer_rebuild(&p->a->peers), 0);
    WAIT_FOR(views_of_tcp(p->a) > before);
    tei_gates_renew(p->a);
    assert_int_equal(views_of_tcp(p->a), before);
    assert_int_equal(eventfd_write(ready.fd, 1), 0);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_status(p->a, b, &st), 0);
    assert_int_equal(st.state, TE_COMPLETED);
    assert_memory_equal(p->am, p->bm, REQUESTS);
    assert_int_equal(te_batch_free(p->a, b), 0);
    close(ready.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(older_views_go, pair_setup_tcp, pair_teardown)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
