/* SPDX-License-Identifier: Apache-2.0 */
/* Small copies within a device, by a kernel where the maker's runtime has one (plat/cuda_scatter.c). */

#include "device_kit.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define SIZE   ((size_t)4 << 20)
#define FAR    (SIZE / 2) /* sources in the first half, places for them in the second */
#define MOST   700        /* pieces: more than one kernel takes */
#define PIECE  ((size_t)1 << 20)
#define UNLIKE ((size_t)4 << 10)

/* A device with a half of random bytes, and a model of what it is to have at last. */
struct rig {
    const struct device_kit *kit;
    struct tei_gpu_queue *q;
    char *device, *model;
    struct tei_copy v[MOST + 1];
    size_t n;
};

static struct rig *rig_open(const struct device_kit *kit)
{
    struct rig *r = calloc(1, sizeof(*r));

    kit_check(r != NULL, "memory");
    r->kit = kit;
    r->model = malloc(SIZE);
    kit_random(r->model, SIZE);
    r->device = kit_device_memory(kit, 0, r->model, SIZE);
    kit_check(tei_gpu_queue_open(kit->kind, 0, &r->q) == 0, "a queue");
    tei_gpu_queue_use_kernels(r->q);
    return r;
}

static void rig_close(struct rig *r)
{
    tei_gpu_queue_close(r->q);
    tei_gpu_free(r->kit->kind, r->device);
    free(r->model);
    free(r);
}

static void add(struct rig *r, size_t to, size_t from, size_t n)
{
    r->v[r->n++] = (struct tei_copy){.to = r->device + FAR + to, .from = r->device + from, .n = n};
    memcpy(r->model + FAR + to, r->model + from, n);
}

/* The error of the copies. */
static int run(struct rig *r)
{
    uint64_t ticket;
    int rc = tei_gpu_queue_copy(r->q, r->v, r->n, &ticket);

    r->n = 0;
    return rc ? rc : tei_gpu_queue_wait(r->q, ticket);
}

static void expect_all(struct rig *r)
{
    kit_check(run(r) == 0, "the copies");
    kit_expect(r->device, r->model, SIZE);
}

/* Whether there is a kernel for this maker, and the stand-in counts how often it is launched. */
static bool counts(const struct device_kit *kit)
{
    return kit->kind == TEI_MEM_CUDA && kit_plays(kit) && kit_symbol("cuLaunchKernel");
}

static long launches(const struct device_kit *kit)
{
    long (*calls)(int, const char *) =
        (long (*)(int, const char *))(uintptr_t)kit_symbol("softgpu_calls");

    return counts(kit) ? calls(0, "launch") : 0;
}

/* Runs the copies, and expects so many kernels. */
static void expect_launches(struct rig *r, long n)
{
    long before = launches(r->kit);

    expect_all(r);
    kit_check(launches(r->kit) == before + (counts(r->kit) ? n : 0), "the number of kernels");
}

/* Every place of both sides modulo 16, beside lengths around what goes by 16 bytes. */
static void add_alignments(struct rig *r, size_t length)
{
    size_t to = 0;

    for (size_t i = 0; i < 256; i++) {
        add(r, to + i % 16, kit_below(FAR / 16 - 4096) * 16 + i / 16, length + kit_below(20));
        to += (length + 64) / 16 * 16;
    }
}

static void move_alignments(const struct device_kit *kit)
{
    static const size_t lengths[] = {1, 16, 100, 4070};
    struct rig *r = rig_open(kit);

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        add_alignments(r, lengths[i]);
        expect_launches(r, 2);
    }
    rig_close(r);
}

static void alignments(void **state)
{
    kit_open(*state);
    move_alignments(*state);
}

/* The same where a driver takes no kernel. */
static void without_kernels(void **state)
{
    static const char *const old[] = {"LD_LIBRARY_PATH=" TE_TEST_BUILD "/tests/softgpu/old", NULL};
    struct kit_child c;

    kit_open(*state);
    if (!kit_plays(*state))
        skip();
    c = kit_child_start("old", *state, old);
    kit_child_end(&c);
}

static void many(void **state)
{
    struct rig *r;
    size_t to = 0;

    kit_open(*state);
    r = rig_open(*state);
    while (r->n < MOST) {
        size_t n = kit_below(6000);

        if (to + n + 100 > FAR)
            break;
        to += kit_below(100);
        add(r, to, kit_below(FAR - n), n);
        to += n;
    }
    kit_check(r->n > 300, "enough pieces");
    expect_all(r);
    rig_close(r);
}

/* The largest that a kernel takes, and one more byte: those whose sides are not alike modulo 16 are smaller. */
static void large(void **state)
{
    struct rig *r;

    kit_open(*state);
    r = rig_open(*state);
    add(r, 3, 3, PIECE - 4);
    add(r, PIECE + 4, PIECE - 12, PIECE - 100);
    expect_launches(r, 1);
    add(r, 0, 1, UNLIKE);
    add(r, 2 * UNLIKE, 3, UNLIKE);
    expect_launches(r, 1);
    add(r, 0, 7, 100);
    add(r, 208, 0, PIECE + 1);
    expect_launches(r, 0);
    add(r, 0, 7, 100);
    add(r, 208, 9, UNLIKE + 1);
    expect_launches(r, 0);
    rig_close(r);
}

/* The driver refuses a kernel for want of something: it copies. */
static void refused_kernels(void **state)
{
    const struct device_kit *kit = *state;
    struct rig *r;

    kit_open(kit);
    if (!counts(kit))
        skip();
    r = rig_open(kit);
    kit_control(kit, "fail launch");
    for (int i = 0; i < 2; i++) {
        add(r, 0, 7, 100);
        add(r, 200, 9, 100);
        expect_launches(r, 1);
    }
    rig_close(r);
}

/* Copies from and to the host, among others. */
static void mixed_with_the_host(void **state)
{
    char *host, *back;
    struct rig *r;

    kit_open(*state);
    r = rig_open(*state);
    host = malloc(3000);
    back = calloc(1, 3000);
    kit_random(host, 3000);
    add(r, 0, 5, 1000);
    r->v[r->n++] = (struct tei_copy){.to = r->device + FAR + 2000, .from = host, .n = 3000};
    memcpy(r->model + FAR + 2000, host, 3000);
    r->v[r->n++] = (struct tei_copy){.to = back, .from = r->device + 77, .n = 3000};
    expect_launches(r, 0);
    assert_memory_equal(back, r->model + 77, 3000);
    rig_close(r);
    free(host);
    free(back);
}

static void between_devices(void **state)
{
    const struct device_kit *kit = *state;
    struct rig *r;
    char *other;

    kit_need(kit, 2);
    r = rig_open(kit);
    other = kit_device_memory(kit, 1, r->model, SIZE);
    add(r, 0, 5, 1000);
    for (size_t i = 0; i < 20; i++) {
        add(r, 2000 + 1500 * i, 31 * i, 1000);
        r->v[r->n - 1].from = other + 31 * i;
    }
    expect_all(r);
    tei_gpu_free(kit->kind, other);
    rig_close(r);
}

/* What leaves its allocation, or is in none any more, is an error, and of these copies alone. */
static void outside(void **state)
{
    const struct device_kit *kit = *state;
    char host[500] = "", *gone;
    struct rig *r;

    kit_open(kit);
    r = rig_open(kit);
    gone = kit_device_memory(kit, 0, NULL, SIZE);
    tei_gpu_free(kit->kind, gone);
    r->v[0] = (struct tei_copy){.to = r->device + FAR, .from = r->device, .n = 500};
    r->v[1] = (struct tei_copy){.to = r->device + FAR + 1000,
                                .from = gone + 1000,
                                .n = 500,
                                .to_device = true,
                                .from_device = true};
    r->n = 2;
    assert_int_equal(run(r), TE_ERR_CONTEXT);
    assert_non_null(strstr(te_errmsg(), "any more"));
    r->v[1] = (struct tei_copy){
        .to = gone, .from = r->device + 1000, .n = 500, .to_device = true, .from_device = true};
    r->n = 2;
    assert_int_equal(run(r), TE_ERR_CONTEXT);
    r->v[0] = (struct tei_copy){
        .to = r->device + FAR, .from = host, .n = 500, .to_device = true, .from_device = false};
    r->v[1] = (struct tei_copy){
        .to = gone, .from = host, .n = 500, .to_device = true, .from_device = false};
    r->n = 2;
    assert_int_equal(run(r), TE_ERR_CONTEXT);
    r->v[0] = (struct tei_copy){
        .to = host, .from = gone, .n = 500, .to_device = false, .from_device = true};
    r->n = 1;
    assert_int_equal(run(r), TE_ERR_CONTEXT);
    r->v[0] = (struct tei_copy){
        .to = r->device + FAR, .from = r->device, .n = 500, .to_device = true, .from_device = true};
    r->v[1] = (struct tei_copy){.to = r->device + SIZE - 100,
                                .from = r->device,
                                .n = 500,
                                .to_device = true,
                                .from_device = true};
    r->n = 2;
    assert_int_equal(run(r), TE_ERR_CONTEXT);
    memcpy(r->model + FAR, r->model, 500); /* it may have been done */
    r->v[0] = (struct tei_copy){.to = r->device + FAR, .from = r->device, .n = 500};
    r->n = 1;
    add(r, 3000, 5, 1000);
    expect_all(r);
    rig_close(r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        KIT_ALL(alignments),
        KIT_ALL(without_kernels),
        KIT_ALL(many),
        KIT_ALL(large),
        KIT_ALL(mixed_with_the_host),
        KIT_ALL(between_devices),
        KIT_ALL(outside),
        KIT_TEST(refused_kernels, kit_cuda),
    };
    const struct device_kit *kit;
    const char *mode;

    if (!kit_is_child(argc, argv, &mode, &kit))
        return cmocka_run_group_tests(tests, NULL, NULL);
    if (tei_gpu_open(kit->kind) != 0)
        return 77;
    kit_check(!kit_symbol("cuLaunchKernel"), "the old driver is in its place");
    move_alignments(kit);
    return 0;
}
