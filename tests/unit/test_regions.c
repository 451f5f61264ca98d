/* SPDX-License-Identifier: Apache-2.0 */
/* The map of registered memory, without an engine. */

#include "core/region.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define AT(n) ((uintptr_t)(n) << 20) /* nothing looks into the memory */

struct world {
    struct regions map;
    _Atomic uint64_t version;
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    tei_regions_init(&w->map, &w->version);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    tei_regions_fini(&w->map);
    free(w);
    return 0;
}

static struct tei_region *put(struct world *w, uintptr_t addr, size_t length, unsigned access)
{
    struct tei_region *r = calloc(1, sizeof(*r));

    r->addr = addr;
    r->length = length;
    r->access = access;
    strcpy(r->location, "cpu:0");
    assert_int_equal(tei_region_check_free(&w->map, r), 0);
    assert_int_equal(tei_region_insert(&w->map, r), 0);
    return r;
}

static void a_region_is_held_by_any_range_inside(void **state)
{
    struct world *w = *state;
    struct tei_region *r = put(w, AT(1), 4096, TE_LOCAL_ONLY);
    uint64_t part;

    assert_ptr_equal(tei_region_hold_local(&w->map, AT(1) + 4000, 96), r);
    assert_null(tei_region_hold_local(&w->map, AT(1) + 4000, 97));
    assert_ptr_equal(tei_region_hold_part(&w->map, AT(1) + 4000, 97, &part), r);
    assert_int_equal(part, 96);
    assert_int_equal(atomic_load(&r->local_users), 2);
    tei_region_release_local(r, 2);
    assert_int_equal(atomic_load(&r->local_users), 0);
}

static void a_peer_needs_the_right(void **state)
{
    struct world *w = *state;
    struct tei_region *r = put(w, AT(1), 4096, TE_REMOTE_READ), *got = NULL;

    assert_int_equal(tei_region_hold(&w->map, AT(1), 1, TE_REMOTE_WRITE, NULL, &got),
                     TE_ERR_ACCESS);
    assert_int_equal(tei_region_hold(&w->map, AT(2), 1, TE_REMOTE_READ, NULL, &got),
                     TE_ERR_NOT_REGISTERED);
    assert_null(got);
    assert_int_equal(tei_region_hold(&w->map, AT(1), 4096, TE_REMOTE_READ, NULL, &got), 0);
    assert_ptr_equal(got, r);
    tei_region_release(got);
    assert_int_equal(atomic_load(&r->remote_users), 0);
}

static void an_overlap_is_refused(void **state)
{
    struct world *w = *state;
    struct tei_region over = {.addr = AT(1) + 4095, .length = 2}, beside = over;

    put(w, AT(1), 4096, TE_LOCAL_ONLY);
    beside.addr++;
    assert_int_equal(tei_region_check_free(&w->map, &over), TE_ERR_OVERLAP);
    assert_int_equal(tei_region_check_free(&w->map, &beside), 0);
}

static void one_that_is_hidden_is_not_found_and_comes_back(void **state)
{
    struct world *w = *state;
    struct tei_region *r = put(w, AT(1), 4096, TE_LOCAL_ONLY), *out = NULL;

    assert_ptr_equal(tei_region_hold_local(&w->map, AT(1), 1), r);
    assert_int_equal(tei_region_hide(&w->map, (void *)AT(1), &out), TE_ERR_BUSY);
    tei_region_release_local(r, 1);
    assert_int_equal(tei_region_hide(&w->map, (void *)(AT(1) + 1), &out), TE_ERR_NOT_REGISTERED);
    assert_int_equal(tei_region_hide(&w->map, (void *)AT(1), &out), 0);
    assert_ptr_equal(out, r);
    assert_null(tei_region_hold_local(&w->map, AT(1), 1));
    assert_int_equal(atomic_load(&w->map.n), 0);
    tei_region_show_again(&w->map, r);
    assert_ptr_equal(tei_region_hold_local(&w->map, AT(1), 1), r);
    tei_region_release_local(r, 1);
    assert_int_equal(tei_region_hide(&w->map, (void *)AT(1), &out), 0);
    tei_region_erase(&w->map, r);
    assert_false(tei_region_is_here(AT(1), 4096));
    assert_int_equal(w->map.unregistered, 2);
    assert_int_equal(atomic_load(&w->version), 4);
}

/* All that are there, or none; in whatever order they were given. */
static void many_are_hidden_at_once(void **state)
{
    te_buffer bufs[] = {{(void *)AT(5), 1}, {(void *)AT(3), 1}, {(void *)AT(9), 1}};
    struct world *w = *state;
    struct tei_region *one = put(w, AT(3), 4096, TE_REMOTE_READ), *r;
    struct tei_published *list;
    struct tei_link *link, *tmp;
    struct tei_list hidden;
    uint64_t version;
    size_t n;

    put(w, AT(4), 4096, TE_REMOTE_READ);
    put(w, AT(5), 4096, TE_REMOTE_READ);
    tei_list_init(&hidden);
    assert_ptr_equal(tei_region_hold_local(&w->map, AT(3), 1), one);
    assert_int_equal(tei_region_hide_all(&w->map, bufs, 3, &hidden), TE_ERR_BUSY);
    assert_true(tei_list_empty(&hidden));
    assert_int_equal(atomic_load(&w->map.n), 3);
    tei_region_release_local(one, 1);
    assert_int_equal(tei_region_hide_all(&w->map, bufs, 3, &hidden), 0);
    assert_int_equal(atomic_load(&w->map.n), 1);
    assert_null(tei_region_hold_local(&w->map, AT(5), 1));
    TEI_LIST_EACH(&hidden, link, tmp) {
        r = tei_container_of(link, struct tei_region, link);
        tei_list_del(link);
        tei_region_show_again(&w->map, r);
    }
    assert_int_equal(tei_region_list(&w->map, NULL, 4096, &list, &n, &version), 0);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(list[i].addr, AT(3 + i));
    free(list);
}

static void the_list_is_by_address_and_in_parts(void **state)
{
    struct world *w = *state;
    struct tei_published *list;
    uint64_t version;
    size_t n;

    put(w, AT(3), 1, TE_REMOTE_READ);
    put(w, AT(2), 1, TE_LOCAL_ONLY);
    put(w, AT(1), 5000, TE_REMOTE_RW);
    assert_int_equal(tei_region_list(&w->map, NULL, 4096, &list, &n, &version), 0);
    assert_int_equal(n, 3);
    assert_int_equal(version, 3);
    assert_int_equal(list[0].addr, AT(1));
    assert_int_equal(list[0].length, 4096);
    assert_int_equal(list[1].addr, AT(1) + 4096);
    assert_int_equal(list[1].length, 904);
    assert_int_equal(list[2].addr, AT(3));
    free(list);
    assert_int_equal(tei_region_buffers(&w->map, NULL, 0), 2);
    assert_int_equal(atomic_load(&w->map.bytes), 5002);
}

static void each_map_of_the_process_is_looked_at(void **state)
{
    struct world *w = *state, other = {0};

    tei_regions_init(&other.map, &other.version);
    put(&other, AT(7), 4096, TE_LOCAL_ONLY);
    assert_true(tei_region_is_here(AT(7) - 1, 2));
    assert_null(tei_region_hold_local(&w->map, AT(7), 1));
    tei_regions_fini(&other.map);
    assert_false(tei_region_is_here(AT(7), 4096));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_region_is_held_by_any_range_inside),
        CASE(a_peer_needs_the_right),
        CASE(an_overlap_is_refused),
        CASE(one_that_is_hidden_is_not_found_and_comes_back),
        CASE(many_are_hidden_at_once),
        CASE(the_list_is_by_address_and_in_parts),
        CASE(each_map_of_the_process_is_looked_at),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
