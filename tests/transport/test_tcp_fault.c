/* SPDX-License-Identifier: Apache-2.0 */
/* The fault transport does what its script says, and nothing without one. */
#include "conformance.h"

#include "base/os.h"

#include <stdlib.h>
#include <string.h>

static const struct conformance tcp = {.transport = "tcp"};

static struct pair *open_with(const char *script)
{
    struct pair *p;

    setenv("TE_FAULT", script, 1);
    p = pair_open(&tcp);
    unsetenv("TE_FAULT");
    fill_pattern(p->am, 10 * PIECE, 1);
    fill_pattern(p->bm, 10 * PIECE, 2);
    return p;
}

static size_t differences(const struct pair *p, size_t n)
{
    size_t different = 0;

    for (size_t i = 0; i < n; i++)
        different += p->am[i] != p->bm[i];
    return different;
}

static void nothing_without_a_script(void **state)
{
    struct pair *p = open_with("");

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 5 * PIECE), 0);
    assert_int_equal(differences(p, 5 * PIECE), 0);
    pair_close(p);
}

static void flips_one_byte(void **state)
{
    struct pair *p = open_with("flip=2");
    char before[1000];

    (void)state;
    for (int i = 1; i <= 3; i++) {
        fill_pattern(p->bm, 1000, (uint32_t)i);
        assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 1000), 0);
        assert_int_equal(differences(p, 1000), i == 2);
    }
    pair_close(p);
    p = open_with("flip=1");
    memcpy(before, p->am, sizeof before);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, 1000), 0);
    assert_int_equal(differences(p, 1000), 1);
    assert_memory_equal(p->am, before, sizeof before);
    pair_close(p);
}

static void fails_and_delays(void **state)
{
    struct pair *p = open_with("fail=2:LINK,delay_ms=60");
    int64_t start = tei_now_ns();

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 1000), 0);
    assert_true(tei_now_ns() - start >= 60 * TEI_NS_PER_MS);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 1000), TE_ERR_LINK);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 1000), 0);
    pair_close(p);
}

static void tells_early(void **state)
{
    struct pair *p = open_with("early=1");
    struct fake_task task;
    struct tei_list list;
    int me;

    (void)state;
    tei_list_init(&list);
    fake_work(&list, p->a, p->attach, &task, TE_READ, p->am, p->bm, PAIR_BYTES)->owner = &me;
    p->a->ops.post(p->a, &list);
    p->a->ops.cancel(p->a, &me);
    assert_true(fake_wait(&p->ha, NULL, &task, 1, PATIENCE_MS));
    /* Bytes that come now break the rule; how many depends on how far the transfer had got. */
    assert_true(task.error == 0 || task.error == TE_ERR_CANCELED);
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_without_a_script),
        cmocka_unit_test(flips_one_byte),
        cmocka_unit_test(fails_and_delays),
        cmocka_unit_test(tells_early),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
