/* SPDX-License-Identifier: Apache-2.0 */
#include "base/here.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint8_t one[TEI_HERE_NONCE] = {1}, two[TEI_HERE_NONCE] = {2};

TEST(the_same_here)
{
    struct tei_here a = {0}, b = {0}; /* of a place that is not known the rest is left alone */

    tei_here(one, &a);
    tei_here(one, &b);
    assert_string_not_equal(a.host, "");
    assert_string_not_equal(a.pid_ns, "");
    assert_string_not_equal(a.net_ns, "");
    assert_string_not_equal(a.process, "");
    assert_null(tei_here_differs(&a, &b));
    assert_memory_equal(&a, &b, sizeof(a));
}

/* Nothing that two engines publish shows that they are at one place. */
TEST(another_text_with_another_nonce)
{
    struct tei_here a, b;

    tei_here(one, &a);
    tei_here(two, &b);
    assert_string_not_equal(a.host, b.host);
    assert_string_not_equal(a.pid_ns, b.pid_ns);
    assert_string_not_equal(a.net_ns, b.net_ns);
    assert_string_not_equal(a.process, b.process);
    assert_string_not_equal(a.pid_ns, a.net_ns);
}

TEST(what_differs)
{
    struct tei_here a, b;

    tei_here(one, &a);
    tei_here(two, &b);
    assert_string_equal(tei_here_differs(&a, &b), "on another host");
    memcpy(b.host, a.host, sizeof(a.host));
    b.machine[0] = '\0'; /* unknown is no difference */
    assert_string_equal(tei_here_differs(&a, &b), "in another network namespace");
    memcpy(b.net_ns, a.net_ns, sizeof(a.net_ns));
    assert_string_equal(tei_here_differs(&a, &b), "in another pid namespace");
    b.pid_ns[0] = '\0';
    assert_null(tei_here_differs(&a, &b));
}

TEST(a_process)
{
    struct tei_here a;
    char text[TEI_HERE_TEXT + 1];

    tei_here(one, &a);
    tei_here_process(one, getpid(), text);
    assert_string_equal(text, a.process);
    tei_here_process(one, getpid() + 1, text);
    assert_string_not_equal(text, a.process);
}

TEST(a_device)
{
    static const uint8_t uuid[TEI_HERE_DEVICE] = {9, 8, 7}, other[TEI_HERE_DEVICE] = {9, 8, 6};
    uint8_t a[TEI_HERE_DEVICE], b[TEI_HERE_DEVICE];

    tei_here_device(one, uuid, a);
    memcpy(b, uuid, sizeof(b));
    tei_here_device(one, b, b);
    assert_memory_equal(a, b, sizeof(a));
    assert_memory_not_equal(a, uuid, sizeof(a));
    tei_here_device(two, uuid, b);
    assert_memory_not_equal(a, b, sizeof(a));
    tei_here_device(one, other, b);
    assert_memory_not_equal(a, b, sizeof(a));
}

/* A child is found by what it would tell of itself, and is not once it has gone. */
TEST(finding_a_process)
{
    char text[TEI_HERE_TEXT + 1];
    pid_t child = fork();

    if (child == 0)
        for (;;)
            pause();
    assert_true(child > 0);
    tei_here_process(one, child, text);
    assert_int_equal(tei_here_find_process(one, text), child);
    assert_int_equal(tei_here_find_process(two, text), 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(tei_here_find_process(one, text), 0);
    assert_int_equal(tei_here_find_process(one, ""), 0);
}

/* The life of a process: its number alone does not make it. */
TEST(finding_a_life)
{
    uint8_t life[TEI_HERE_LIFE], other[TEI_HERE_LIFE];
    pid_t child = fork();

    if (child == 0)
        for (;;)
            pause();
    assert_true(child > 0);
    assert_true(tei_here_life(one, child, life));
    assert_true(tei_here_life(one, getpid(), other));
    assert_memory_not_equal(life, other, sizeof(life));
    assert_int_equal(tei_here_find_life(one, life), child);
    assert_int_equal(tei_here_find_life(one, other), getpid());
    assert_int_equal(tei_here_find_life(two, life), 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(tei_here_find_life(one, life), 0);
    assert_false(tei_here_life(one, child, other));
    assert_false(tei_here_life(one, 0, other));
}

TEST(texts_from_outside)
{
    assert_true(tei_here_is_text(""));
    assert_true(tei_here_is_text("0123456789abcdef0123456789abcdef"));
    assert_false(tei_here_is_text("0123456789abcdef0123456789abcde"));
    assert_false(tei_here_is_text("0123456789abcdef0123456789abcdefa"));
    assert_false(tei_here_is_text("0123456789ABCDEF0123456789abcdef"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_here),  cmocka_unit_test(another_text_with_another_nonce),
        cmocka_unit_test(what_differs),   cmocka_unit_test(a_process),
        cmocka_unit_test(a_device),       cmocka_unit_test(finding_a_process),
        cmocka_unit_test(finding_a_life), cmocka_unit_test(texts_from_outside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
