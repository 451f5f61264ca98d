/* SPDX-License-Identifier: Apache-2.0 */
/* Whole engines with the example transport, which they find by themselves as they would any other. */
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

static void engines_move_bytes(void **state)
{
    struct pair *p = *state;
    te_request r = {.opcode = TE_READ,
                    .source = p->am,
                    .target = p->seg,
                    .target_offset = (uintptr_t)p->bm,
                    .length = PAIR_SIZE};
    char text[4096];

    for (size_t i = 0; i < PAIR_SIZE; i++)
        p->bm[i] = (unsigned char)(i * 7 + i / 251);
    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, PAIR_SIZE).state, TE_COMPLETED);
    assert_memory_equal(p->am, p->bm, PAIR_SIZE);
    memset(p->am, 1, PAIR_SIZE);
    assert_int_equal(transfer(p->a, TE_WRITE, p->am, p->seg, p->bm, PAIR_SIZE).state, TE_COMPLETED);
    assert_memory_equal(p->am, p->bm, PAIR_SIZE);
    assert_int_equal(te_explain(p->a, &r, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "transport example: score 40, taken"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(engines_move_bytes, pair_setup, pair_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
