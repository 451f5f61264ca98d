/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table when memory is out: at each allocation that adding makes. */
#include <stdbool.h>
#include <stdlib.h>

static long left; /* allocations until they fail */
static size_t taken;

static void *take(size_t n)
{
    void *p = left-- > 0 ? malloc(n) : NULL;

    taken += p != NULL;
    return p;
}

static void give(void *p)
{
    taken -= p != NULL;
    free(p);
}

#define uthash_malloc(n)  take(n)
#define uthash_free(p, n) give(p)
#include "base/hash.h"
#include "test.h"

struct item {
    int key;
    UT_hash_handle hh;
};

#define ITEMS 2000 /* the table grows several times */

static struct item items[ITEMS];

static bool add(struct item **head, int i)
{
    items[i].key = i;
    return TEI_HASH_ADD(*head, &items[i].key, sizeof items[i].key, &items[i]);
}

static struct item *find(struct item *head, int i)
{
    struct item *x;

    HASH_FIND_INT(head, &i, x);
    return x;
}

/* It holds the first `n` items and nothing else, in their order. */
static void check(struct item *head, int n)
{
    struct item *x, *tmp;
    int next = 0;

    assert_int_equal(HASH_COUNT(head), n);
    HASH_ITER(hh, head, x, tmp)
        assert_ptr_equal(x, &items[next++]);
    assert_int_equal(next, n);
    for (int i = 0; i < ITEMS; i++)
        assert_ptr_equal(find(head, i), i < n ? &items[i] : NULL);
}

static void clear(struct item **head)
{
    struct item *x, *tmp;

    HASH_ITER(hh, *head, x, tmp)
        HASH_DEL(*head, x);
    assert_null(*head);
    assert_int_equal(taken, 0);
}

/* Fails after `n` allocations; whether that was before all items were in. */
static bool fails_after(long n)
{
    struct item *head = NULL;
    int i = 0;

    left = n;
    while (i < ITEMS && add(&head, i))
        i++;
    check(head, i);
    if (i < ITEMS) {
        assert_false(add(&head, i)); /* the same again: nothing of the first try is left */
        check(head, i);
        left = ITEMS;
        for (int k = i; k < ITEMS; k++)
            assert_true(add(&head, k));
        check(head, ITEMS);
    }
    clear(&head);
    return i < ITEMS;
}

TEST(each_allocation_fails)
{
    long n = 0;

    while (fails_after(n))
        n++;
    assert_true(n > 4); /* table, places, and more of them */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
