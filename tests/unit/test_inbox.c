/* SPDX-License-Identifier: Apache-2.0 */
/* Who may have how many messages in the inbox, without an engine. */

#include "base/source.h"
#include "core/inbox.h"
#include "meta/meta.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define ALL  ((size_t)65536)
#define HALF (ALL / 2)

static const te_message hello = {.name = "n", .name_len = 1, .msg = "m", .msg_len = 1};

static int set_up(void **state)
{
    struct inbox *b = calloc(1, sizeof(*b));

    tei_inbox_init(b);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct inbox *b = *state;

    tei_inbox_fini(b);
    free(b);
    return 0;
}

/* How many it takes of `n` from the sender whose address ends so; 0: of this engine itself. */
static size_t send_some(struct inbox *b, uint8_t last, size_t n)
{
    uint8_t key[16] = {[15] = last};
    te_message m;

    for (size_t i = 0; i < n; i++) {
        assert_int_equal(tei_message_copy(&hello, &m), 0);
        if (tei_inbox_add(b, last ? key : NULL, &m) == TE_ERR_REJECTED)
            return i;
    }
    return n;
}

static void a_sender_alone_gets_half(void **state)
{
    struct inbox *b = *state;

    assert_int_equal(send_some(b, 1, ALL), HALF);
    assert_int_equal(b->n, HALF);
    assert_int_equal(atomic_load(&b->received), HALF);
}

static void another_sender_finds_room(void **state)
{
    struct inbox *b = *state;

    send_some(b, 1, ALL);
    assert_int_equal(send_some(b, 2, ALL), HALF / 2);
    assert_int_equal(send_some(b, 3, 1), 1);
}

static void the_engine_itself_may_fill_it(void **state)
{
    struct inbox *b = *state;

    assert_int_equal(send_some(b, 0, ALL + 1), ALL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_sender_alone_gets_half),
        CASE(another_sender_finds_room),
        CASE(the_engine_itself_may_fill_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
