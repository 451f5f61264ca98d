/* SPDX-License-Identifier: Apache-2.0 */
#include "base/queue.h"
#include "test.h"

#include <pthread.h>
#include <stdlib.h>

struct item {
    int n;
    struct tei_link link;
};

static int number_of(struct tei_link *l)
{
    return l ? tei_container_of(l, struct item, link)->n : -1;
}

TEST(a_list_keeps_order)
{
    struct item a = {.n = 1}, b = {.n = 2}, c = {.n = 3};
    struct tei_list l;

    tei_list_init(&l);
    assert_true(tei_list_empty(&l));
    assert_null(tei_list_first(&l));
    assert_null(tei_list_pop(&l));
    tei_list_push_back(&l, &b.link);
    tei_list_push_back(&l, &c.link);
    tei_list_push_front(&l, &a.link);
    assert_int_equal(number_of(tei_list_first(&l)), 1);
    assert_int_equal(number_of(tei_list_next(&l, &a.link)), 2);
    assert_int_equal(number_of(tei_list_next(&l, &c.link)), -1);
    assert_true(tei_link_is_in(&b.link));
    tei_list_del(&b.link);
    assert_false(tei_link_is_in(&b.link));
    assert_int_equal(number_of(tei_list_pop(&l)), 1);
    assert_int_equal(number_of(tei_list_pop(&l)), 3);
    assert_true(tei_list_empty(&l));
}

TEST(splice_moves_all)
{
    struct item i[4] = {{.n = 0}, {.n = 1}, {.n = 2}, {.n = 3}};
    struct tei_list to, from;

    tei_list_init(&to);
    tei_list_init(&from);
    tei_list_splice(&to, &from);
    assert_true(tei_list_empty(&to));
    tei_list_push_back(&from, &i[0].link);
    tei_list_push_back(&from, &i[1].link);
    tei_list_splice(&to, &from);
    assert_true(tei_list_empty(&from));
    tei_list_push_back(&from, &i[2].link);
    tei_list_push_back(&from, &i[3].link);
    tei_list_splice(&to, &from);
    for (int n = 0; n < 4; n++)
        assert_int_equal(number_of(tei_list_pop(&to)), n);
    assert_true(tei_list_empty(&to));
}

static void splice_moves_a_part(void **state)
{
    for (int cut = 0; cut <= 4; cut++) {
        struct item i[5] = {{.n = 0}, {.n = 1}, {.n = 2}, {.n = 3}, {.n = 4}};
        struct tei_list to, from;

        (void)state;
        tei_list_init(&to);
        tei_list_init(&from);
        tei_list_push_back(&to, &i[0].link);
        for (int n = 1; n < 5; n++)
            tei_list_push_back(&from, &i[n].link);
        tei_list_splice_until(&to, &from, cut < 4 ? &i[cut + 1].link : NULL);
        for (int n = 0; n < 5; n++)
            assert_int_equal(number_of(tei_list_pop(n <= cut ? &to : &from)), n);
        assert_true(tei_list_empty(&to));
        assert_true(tei_list_empty(&from));
    }
}

TEST(the_walk_minds_removal)
{
    struct item i[6];
    struct tei_link *n, *tmp;
    struct tei_list l;
    int sum = 0;

    tei_list_init(&l);
    for (int k = 0; k < 6; k++) {
        i[k] = (struct item){.n = k};
        tei_list_push_back(&l, &i[k].link);
    }
    TEI_LIST_EACH(&l, n, tmp)
        if (number_of(n) % 2 == 0)
            tei_list_del(n);
    TEI_LIST_EACH(&l, n, tmp)
        sum = sum * 10 + number_of(n);
    assert_int_equal(sum, 135);
}

struct message {
    struct tei_mpsc_link link;
    int from, n;
};

TEST(the_taker_gets_push_order)
{
    struct message m[3] = {{.n = 0}, {.n = 1}, {.n = 2}};
    struct tei_mpsc q = {NULL};
    struct tei_mpsc_link *l;

    assert_null(tei_mpsc_take(&q));
    assert_true(tei_mpsc_push(&q, &m[0].link));
    assert_false(tei_mpsc_push(&q, &m[1].link));
    assert_false(tei_mpsc_push(&q, &m[2].link));
    l = tei_mpsc_take(&q);
    for (int n = 0; n < 3; n++, l = l->next)
        assert_int_equal(tei_container_of(l, struct message, link)->n, n);
    assert_null(l);
    assert_true(tei_mpsc_push(&q, &m[0].link));
    assert_ptr_equal(tei_mpsc_take(&q), &m[0].link);
}

#define PUSHERS 4
#define EACH    20000

struct pusher {
    struct tei_mpsc *q;
    _Atomic int *empties;
    int self;
};

static void *push_many(void *arg)
{
    struct pusher *p = arg;

    for (int n = 0; n < EACH; n++) {
        struct message *m = malloc(sizeof *m);

        if (!m)
            abort();
        m->from = p->self;
        m->n = n;
        if (tei_mpsc_push(p->q, &m->link))
            atomic_fetch_add(p->empties, 1);
    }
    return NULL;
}

TEST(many_push_and_one_takes)
{
    int next[PUSHERS] = {0}, got = 0, takes = 0;
    struct pusher p[PUSHERS];
    pthread_t t[PUSHERS];
    struct tei_mpsc q = {NULL};
    _Atomic int empties = 0;

    for (int i = 0; i < PUSHERS; i++) {
        p[i] = (struct pusher){&q, &empties, i};
        assert_int_equal(pthread_create(&t[i], NULL, push_many, &p[i]), 0);
    }
    while (got < PUSHERS * EACH) {
        struct tei_mpsc_link *l = tei_mpsc_take(&q);

        takes += l != NULL;
        while (l) {
            struct message *m = tei_container_of(l, struct message, link);

            l = l->next;
            assert_int_equal(m->n, next[m->from]++);
            got++;
            free(m);
        }
    }
    for (int i = 0; i < PUSHERS; i++)
        pthread_join(t[i], NULL);
    assert_null(tei_mpsc_take(&q));
    /* Each batch that was taken was announced by exactly one push. */
    assert_int_equal(empties, takes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_keeps_order),        cmocka_unit_test(splice_moves_all),
        cmocka_unit_test(splice_moves_a_part),       cmocka_unit_test(the_walk_minds_removal),
        cmocka_unit_test(the_taker_gets_push_order), cmocka_unit_test(many_push_and_one_takes),
    };

    return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
