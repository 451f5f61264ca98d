/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/* Memory of devices for some peers only: no handle of an allocation that any of it lies in is told. */
#include "conformance.h"

#include "plat/plat.h"
#include "transport/gpuipc/gpuipc.h"

#include <stdio.h>
#include <string.h>

enum { N = 4 << 20, MIB = 1 << 20 };

static const struct conformance cells[] = {
    {.transport = "nvlink_intra", .kind = {TEI_MEM_HOST, TEI_MEM_CUDA}, .device = {-1, 0}},
    {.transport = "nvlink",
     .kind = {TEI_MEM_HOST, TEI_MEM_CUDA},
     .device = {-1, 0},
     .fabric = true},
    {.transport = "hip", .kind = {TEI_MEM_HOST, TEI_MEM_HIP}, .device = {-1, 0}},
};
static const struct conformance *cell;

static unsigned score_of(const struct pair *p, const void *remote, size_t n)
{
    te_request r = {.opcode = TE_READ, .target_offset = (uintptr_t)remote, .length = n};

    return p->a->ops.score(p->a, p->attach, &r);
}

static int write_to(const struct pair *p, void *remote, size_t n)
{
    return fake_transfer(p->a, p->attach, TE_WRITE, p->am, remote, n);
}

static struct tei_region *hide(struct pair *p, char *mem, size_t n)
{
    return fake_region_for_others(&p->hb, p->b, mem, n, TE_REMOTE_RW);
}

/* Beside what was shared before: who has the handle leaves it, and is not told of it again. */
static void beside_what_is_shared(void **state)
{
    struct pair *p = pair_open(cell);
    char *mem = pair_map(cell, TARGET, N);
    struct tei_region *shared = fake_region_add(&p->hb, p->b, mem, MIB, TE_REMOTE_RW);
    struct tei_region *hidden, *later;

    (void)state;
    pair_attach_anew(p);
    assert_true(score_of(p, mem, MIB) > 50);
    assert_int_equal(write_to(p, mem, MIB), 0);
    hidden = hide(p, mem + 2 * MIB, MIB);
    assert_int_equal(write_to(p, mem, MIB), TE_ERR_STALE);
    pair_attach_anew(p);
    assert_int_equal(score_of(p, mem, MIB), 0);
    assert_int_equal(score_of(p, mem + 2 * MIB, 1), 0);
    assert_true(score_of(p, p->bm, PAIR_BYTES) > 50);
    assert_int_equal(write_to(p, p->bm, MIB), 0);
    later = fake_region_add(&p->hb, p->b, mem + MIB, MIB, TE_REMOTE_RW);
    pair_attach_anew(p);
    assert_int_equal(score_of(p, mem + MIB, MIB), 0);

    fake_region_del(&p->hb, p->b, hidden);
    pair_attach_anew(p);
    assert_true(score_of(p, mem, MIB) > 50);
    assert_int_equal(write_to(p, mem, MIB), 0);
    assert_int_equal(write_to(p, mem + MIB, MIB), 0);
    assert_int_equal(write_to(p, mem + 2 * MIB, 1), TE_ERR_STALE);
    fake_region_del(&p->hb, p->b, later);
    fake_region_del(&p->hb, p->b, shared);
    pair_unmap(cell, TARGET, mem, N);
    pair_close(p);
}

/* Two of them: the allocation is told of when the last one is gone. */
static void the_last_one(void **state)
{
    struct pair *p = pair_open(cell);
    char *mem = pair_map(cell, TARGET, N);
    struct tei_region *one = hide(p, mem, MIB), *other = hide(p, mem + N - 1, 1), *shared;

    (void)state;
    shared = fake_region_add(&p->hb, p->b, mem + MIB, MIB, TE_REMOTE_RW);
    fake_region_del(&p->hb, p->b, one);
    pair_attach_anew(p);
    assert_int_equal(score_of(p, mem + MIB, MIB), 0);
    fake_region_del(&p->hb, p->b, other);
    pair_attach_anew(p);
    assert_true(score_of(p, mem + MIB, MIB) > 50);
    fake_region_del(&p->hb, p->b, shared);
    pair_unmap(cell, TARGET, mem, N);
    pair_close(p);
}

static bool has_device(const struct conformance *with)
{
    enum tei_mem_kind kind = with->kind[TARGET];

    return tei_gpu_open(kind) == 0 && with->device[TARGET] < tei_gpu_count(kind) &&
           (!with->fabric || tei_gpu_has_fabric(kind, with->device[TARGET]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(beside_what_is_shared),
                                       cmocka_unit_test(the_last_one)};
    int rc = 0, n = 0;

    pair_prepare();
    for (size_t i = 0; i < TEI_ARRAY_LEN(cells); i++) {
        cell = &cells[i];
        if (!has_device(cell))
            continue;
        rc |= cmocka_run_group_tests_name(cell->transport, tests, NULL, NULL);
        n++;
    }
    if (n == 0) {
        puts("no driver of a device, or no device");
        return 77;
    }
    return rc;
}
