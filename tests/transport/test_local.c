/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance.h"

#include "base/os.h"

#include <string.h>

static const struct conformance fixture = {.transport = "local"};
CONFORMANCE_COMMON(fixture)

static void source_and_target_may_overlap(void **state)
{
    struct pair *p = pair_open(&fixture);
    char before[5000];

    (void)state;
    fill_pattern(p->am, sizeof before, 1);
    memcpy(before, p->am, sizeof before);
    assert_int_equal(fake_transfer(p->a, NULL, TE_WRITE, p->am, p->am + 100, sizeof before), 0);
    assert_memory_equal(p->am + 100, before, sizeof before);
    assert_int_equal(fake_transfer(p->a, NULL, TE_READ, p->am, p->am + 100, sizeof before), 0);
    assert_memory_equal(p->am, before, sizeof before);
    pair_close(p);
}

static void long_copies_end_at_cancel_and_deadline(void **state)
{
    struct pair *p = pair_open(&fixture);
    struct fake_task tasks[65];
    struct tei_list list;
    int me = 0, canceled = 0;

    (void)state;
    tei_list_init(&list);
    for (int i = 0; i < 64; i++)
        fake_work(&list, p->a, NULL, &tasks[i], TE_READ, p->am, p->bm, PAIR_BYTES)->owner = &me;
    fake_work(&list, p->a, NULL, &tasks[64], TE_READ, p->am, p->bm, PAIR_BYTES)->deadline_ns = 1;
    p->a->ops.post(p->a, &list);
    p->a->ops.cancel(p->a, &me);
    assert_true(fake_wait(&p->ha, NULL, tasks, 65, PATIENCE_MS));
    for (int i = 0; i < 64; i++)
        canceled += tasks[i].error == TE_ERR_CANCELED;
    assert_true(canceled >= 60);
    assert_int_equal(tasks[64].error, TE_ERR_TIMEOUT);
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFORMANCE_COMMON_TESTS,
        cmocka_unit_test(source_and_target_may_overlap),
        cmocka_unit_test(long_copies_end_at_cancel_and_deadline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
