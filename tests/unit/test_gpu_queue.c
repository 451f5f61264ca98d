/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of copies, on both drivers. */

#include "device_kit.h"
#include "patience.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE ((size_t)1 << 20)

static struct tei_gpu_queue *open_queue(const struct device_kit *kit, int device)
{
    struct tei_gpu_queue *q = NULL;

    kit_check(tei_gpu_queue_open(kit->kind, device, &q) == 0, "a queue");
    return q;
}

static void copy_one(struct tei_gpu_queue *q, void *to, const void *from, size_t n,
                     uint64_t *ticket)
{
    struct tei_copy c = {.to = to, .from = from, .n = n};

    kit_check(tei_gpu_queue_copy(q, &c, 1, ticket) == 0, "a copy");
}

/* ---------------------------------------------------------------------------------------- in bulk */

/*
 * Small pieces of host memory, here and there, go to as many places of a device, and back; some are
 * empty, and some lie next to each other. `model` is what the device must have then.
 */
static size_t scatter(struct tei_copy *v, char *device, char *host, char *model)
{
    size_t n = 0, to = 0;

    while (to < SIZE - 5000) {
        bool next = n > 0 && kit_below(4) == 0;
        size_t length = kit_below(5) == 0 ? 0 : 1 + kit_below(3000);
        size_t from = next ? (size_t)((const char *)v[n - 1].from - host) + v[n - 1].n
                           : kit_below(SIZE - 5000);

        if (from + length > SIZE)
            continue;
        to += next ? 0 : kit_below(1000);
        v[n++] = (struct tei_copy){.to = device + to, .from = host + from, .n = length};
        memcpy(model + to, host + from, length);
        to += length;
    }
    return n;
}

static void move_scattered(const struct device_kit *kit)
{
    char *host = malloc(SIZE), *model = malloc(SIZE), *back = calloc(1, SIZE);
    struct tei_copy *v = calloc(SIZE, sizeof(*v));
    struct tei_gpu_queue *q;
    char *device;
    uint64_t ticket;
    size_t n;

    kit_random(host, SIZE);
    kit_random(model, SIZE);
    device = kit_device_memory(kit, 0, model, SIZE);
    q = open_queue(kit, 0);
    n = scatter(v, device, host, model);
    kit_check(n > 300, "enough pieces");
    kit_check(tei_gpu_queue_copy(q, v, n, &ticket) == 0 && ticket == 1, "pieces");
    kit_check(tei_gpu_queue_wait(q, ticket) == 0, "the end of pieces");
    kit_expect(device, model, SIZE);
    for (size_t i = 0; i < n; i++) {
        size_t at = (size_t)((char *)v[i].to - device);

        v[i] = (struct tei_copy){.to = back + at, .from = device + at, .n = v[i].n};
    }
    kit_check(tei_gpu_queue_copy(q, v, n, &ticket) == 0 && ticket == 2, "pieces on their way back");
    kit_check(tei_gpu_queue_wait(q, ticket) == 0, "their end");
    for (size_t i = 0; i < n; i++)
        kit_check(memcmp(v[i].to, model + ((char *)v[i].to - back), v[i].n) == 0, "a piece");
    tei_gpu_queue_close(q);
    tei_gpu_free(kit->kind, device);
    free(v);
    free(back);
    free(model);
    free(host);
}

static void scattered_pieces(void **state)
{
    kit_open(*state);
    for (int i = 0; i < 3; i++)
        move_scattered(*state);
}

/* A driver before CUDA 12.8 takes one copy at a time. */
static void scattered_pieces_of_an_old_driver(void **state)
{
    static const char *const old[] = {"LD_LIBRARY_PATH=" TE_TEST_BUILD "/tests/softgpu/old", NULL};
    struct kit_child c;

    kit_open(*state);
    if (!kit_plays(*state))
        skip();
    c = kit_child_start("scattered", *state, old);
    kit_child_end(&c);
}

/* Allocations of EACH bytes of which each pair lies side by side; false: the driver gives none. */
static bool find_neighbours(const struct device_kit *kit, char *v[4], size_t each)
{
    enum { TRIES = 64 };
    char *all[TRIES];
    int found = 0;

    for (int i = 0; i < TRIES; i++) {
        all[i] = kit_device_memory(kit, 0, NULL, each);
        if (i > 0 && found < 4 && all[i - 1] && all[i - 1] + each == all[i]) {
            v[found++] = all[i - 1];
            v[found++] = all[i];
            all[i - 1] = all[i] = NULL;
        }
    }
    for (int i = 0; i < TRIES; i++)
        if (all[i])
            tei_gpu_free(kit->kind, all[i]);
    for (int i = 0; i < found && found < 4; i++)
        tei_gpu_free(kit->kind, v[i]);
    return found == 4;
}

static void copy_pair(struct tei_gpu_queue *q, char *const *to, char *const *from, size_t each,
                      uint64_t *ticket)
{
    struct tei_copy c[] = {{.to = to[0], .from = from[0], .n = each},
                           {.to = to[1], .from = from[1], .n = each}};

    assert_int_equal(tei_gpu_queue_copy(q, c, 2, ticket), 0);
}

/* Whole allocations that adjoin on both sides are copied in one call, and stay copies of their own. */
static void neighbours(void **state)
{
    enum { EACH = 256 };
    const struct device_kit *kit = *state;
    char in[2 * EACH], out[2 * EACH], *v[4];
    struct tei_gpu_queue *q;
    uint64_t ticket;

    kit_open(kit);
    if (!find_neighbours(kit, v, EACH))
        skip();
    kit_random(in, sizeof(in));
    q = open_queue(kit, 0);
    copy_pair(q, v, (char *[]){in, in + EACH}, EACH, &ticket);
    copy_pair(q, v + 2, v, EACH, &ticket);
    copy_pair(q, (char *[]){out, out + EACH}, v + 2, EACH, &ticket);
    assert_int_equal(tei_gpu_queue_wait(q, ticket), 0);
    assert_memory_equal(in, out, sizeof(in));
    tei_gpu_queue_close(q);
    for (int i = 0; i < 4; i++)
        tei_gpu_free(kit->kind, v[i]);
}

/* --------------------------------------------------------------------------------- order and marks */

/* Each copy reads what the one before it wrote; the last device is another one, where there is. */
static void one_after_another(void **state)
{
    enum { N = 30 };
    const struct device_kit *kit = *state;
    int last = kit_open(kit) - 1;
    char *in = malloc(SIZE), *out = calloc(1, SIZE);
    char *a = kit_device_memory(kit, 0, NULL, SIZE), *b = kit_device_memory(kit, last, NULL, SIZE);
    struct tei_gpu_queue *q = open_queue(kit, 0);
    uint64_t ticket = 0;

    for (int i = 0; i < N; i++) {
        kit_random(in, SIZE);
        copy_one(q, a, in, SIZE, &ticket);
        copy_one(q, b, a, SIZE, &ticket);
        copy_one(q, a, out, SIZE, &ticket); /* over it */
        copy_one(q, out, b, SIZE, &ticket);
        assert_int_equal(ticket, 4 * (i + 1));
        assert_int_equal(tei_gpu_queue_wait(q, ticket), 0);
        assert_memory_equal(in, out, SIZE);
        /* All before it have ended with it. */
        for (uint64_t t = 1; t <= ticket; t++)
            assert_int_equal(tei_gpu_queue_poll(q, t), 0);
    }
    assert_int_equal(tei_gpu_queue_poll(q, ticket + 1), TE_ERR_INVALID);
    tei_gpu_queue_close(q);
    tei_gpu_free(kit->kind, a);
    tei_gpu_free(kit->kind, b);
    free(in);
    free(out);
}

static void marks_run_out(void **state)
{
    const struct device_kit *kit = *state;
    char *data = malloc(SIZE), *device;
    struct tei_copy c;
    struct tei_gpu_queue *q;
    uint64_t ticket = 0;

    kit_open(kit);
    kit_random(data, SIZE);
    device = kit_device_memory(kit, 0, NULL, SIZE);
    q = open_queue(kit, 0);
    c = (struct tei_copy){.to = device, .from = data, .n = 7};
    for (int round = 0; round < 3; round++) {
        while (ticket % TEI_GPU_MARKS != 0 || ticket == (uint64_t)round * TEI_GPU_MARKS)
            assert_int_equal(tei_gpu_queue_copy(q, &c, 1, &ticket), 0);
        assert_int_equal(ticket, (uint64_t)(round + 1) * TEI_GPU_MARKS);
        assert_int_equal(tei_gpu_queue_copy(q, &c, 1, &ticket), TE_ERR_BUSY);
        /* What has ended still counts until somebody asks about it. */
        assert_int_equal(tei_gpu_queue_wait(q, ticket), 0);
    }
    for (int i = 0; i < TEI_GPU_MARKS; i++)
        assert_int_equal(tei_gpu_queue_copy(q, &c, 1, &ticket), 0);
    assert_int_equal(tei_gpu_queue_copy(q, &c, 1, &ticket), TE_ERR_BUSY);
    assert_int_equal(tei_gpu_queue_wait(q, ticket - TEI_GPU_MARKS + 10), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(tei_gpu_queue_copy(q, &c, 1, &ticket), 0);
    assert_int_equal(tei_gpu_queue_copy(q, &c, 1, &ticket), TE_ERR_BUSY);
    tei_gpu_queue_close(q);
    tei_gpu_free(kit->kind, device);
    free(data);
}

static void not_yet(void **state)
{
    const struct device_kit *kit = *state;
    char *data = malloc(SIZE), *device;
    struct tei_gpu_queue *q;
    uint64_t first, second;

    kit_open(kit);
    kit_random(data, SIZE);
    device = kit_device_memory(kit, 0, NULL, SIZE);
    q = open_queue(kit, 0);
    copy_one(q, device, data, SIZE, &first);
    assert_int_equal(tei_gpu_queue_wait(q, first), 0);
    kit_control(kit, "stall ms=0");
    copy_one(q, device + 1, data, SIZE - 1, &second);
    assert_int_equal(tei_gpu_queue_poll(q, first), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(tei_gpu_queue_poll(q, second), TE_ERR_BUSY);
    kit_control(kit, "release");
    WAIT_FOR(tei_gpu_queue_poll(q, second) != TE_ERR_BUSY);
    assert_int_equal(tei_gpu_queue_poll(q, second), 0);
    kit_expect(device + 1, data, SIZE - 1);
    tei_gpu_queue_close(q);
    tei_gpu_free(kit->kind, device);
    free(data);
}

/* ----------------------------------------------------------------------------------------- errors */

static void bad_arguments(void **state)
{
    const struct device_kit *kit = *state;
    int n = kit_open(kit);
    struct tei_gpu_queue *q = NULL;

    assert_int_equal(tei_gpu_queue_open(kit->kind, n, &q), TE_ERR_NO_DEVICE);
    assert_int_equal(tei_gpu_queue_open(kit->kind, -1, &q), TE_ERR_NO_DEVICE);
    assert_int_equal(tei_gpu_queue_open(TEI_MEM_HOST, 0, &q), TE_ERR_UNSUPPORTED);
    assert_int_equal(tei_gpu_queue_open(TEI_MEM_OTHER, 0, &q), TE_ERR_UNSUPPORTED);
    tei_gpu_queue_close(NULL);
    assert_null(q);
}

/* What the driver does not take is told at once, and does no harm to what else there is. */
static void refused(void **state)
{
    const struct device_kit *kit = *state;
    char *data = malloc(SIZE), *device;
    struct tei_copy v[2];
    struct tei_gpu_queue *q;
    uint64_t ticket, last;

    kit_open(kit);
    kit_random(data, SIZE);
    device = kit_device_memory(kit, 0, NULL, SIZE);
    q = open_queue(kit, 0);
    copy_one(q, device, data, SIZE, &ticket);
    kit_control(kit, "fail copy error=999");
    v[0] = (struct tei_copy){.to = device, .from = data + 9, .n = 10};
    v[1] = (struct tei_copy){.to = device + 20, .from = data, .n = 10};
    assert_int_equal(tei_gpu_queue_copy(q, v, 2, &last), TE_ERR_CONTEXT);
    assert_non_null(strstr(te_errmsg(), "refuses"));
    assert_int_equal(tei_gpu_queue_wait(q, ticket), 0);
    copy_one(q, device, data, SIZE, &last);
    assert_int_equal(last, ticket + 1);
    assert_int_equal(tei_gpu_queue_wait(q, last), 0);
    kit_expect(device, data, SIZE);
    tei_gpu_queue_close(q);
    tei_gpu_free(kit->kind, device);
    kit_control(kit, "fail stream");
    assert_int_equal(tei_gpu_queue_open(kit->kind, 0, &q), TE_ERR_CONTEXT);
    kit_control(kit, "fail event nth=5");
    assert_int_equal(tei_gpu_queue_open(kit->kind, 0, &q), TE_ERR_CONTEXT);
    kit_control(kit, "clear");
    free(data);
}

/* In a process of its own, which has no device afterwards. */
static void break_one(const struct device_kit *kit)
{
    char *data = malloc(SIZE), *device, *first_text;
    struct tei_mem_info m;
    struct tei_copy c;
    struct tei_gpu_queue *q;
    uint64_t first, bad, ticket;
    int rc;

    kit_random(data, SIZE);
    device = kit_device_memory(kit, 0, NULL, SIZE);
    q = open_queue(kit, 0);
    copy_one(q, device, data, SIZE, &first);
    kit_check(tei_gpu_queue_wait(q, first) == 0, "a good copy");
    kit_control(kit, "fail copy async=1");
    c = (struct tei_copy){.to = device, .from = data, .n = SIZE};
    /* It may have failed before its mark can be set behind it. */
    rc = tei_gpu_queue_copy(q, &c, 1, &bad);
    if (rc == 0)
        rc = tei_gpu_queue_wait(q, bad);
    kit_check(rc == TE_ERR_CONTEXT, "a bad copy");
    first_text = strdup(te_errmsg());
    kit_check(strstr(first_text, kit->name) != NULL, "the device is named");
    kit_check(tei_gpu_queue_poll(q, first) == 0, "what has ended before");
    kit_check(tei_gpu_queue_copy(q, &c, 1, &ticket) == TE_ERR_CONTEXT, "all after it is bad");
    kit_check(strcmp(first_text, te_errmsg()) == 0, "and so is the text");
    /* Nobody is to take the memory for the host's. */
    kit_check(tei_mem_inspect(device, SIZE, &m) == TE_ERR_CONTEXT, "the driver does not tell");
    kit_check(strstr(te_errmsg(), kit->kind == TEI_MEM_ASCEND ? "ACL_ERROR_DRV_FAILURE"
                                                              : "unspecified launch failure"),
              "and why");
    kit_check(tei_mem_copy(data, device, SIZE) == TE_ERR_CONTEXT, "it is not copied, either");
    tei_gpu_queue_close(q);
    free(first_text);
    free(data);
}

static void broken(void **state)
{
    struct kit_child c;

    kit_open(*state);
    if (!kit_plays(*state))
        skip();
    c = kit_child_start("broken", *state, NULL);
    kit_child_end(&c);
}

static int be_child(const char *mode, const struct device_kit *kit)
{
    if (tei_gpu_open(kit->kind) != 0)
        return 77;
    kit_check(kit->kind != TEI_MEM_CUDA || strcmp(mode, "scattered") != 0 ||
                  !kit_symbol("cuMemcpyBatchAsync"),
              "the old driver is in its place");
    if (strcmp(mode, "scattered") == 0)
        move_scattered(kit);
    else
        break_one(kit);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        KIT_ALL(scattered_pieces), KIT_ALL(scattered_pieces_of_an_old_driver),
        KIT_ALL(neighbours),       KIT_ALL(one_after_another),
        KIT_ALL(marks_run_out),    KIT_ALL(not_yet),
        KIT_ALL(bad_arguments),    KIT_ALL(refused),
        KIT_ALL(broken),
    };
    const struct device_kit *kit;
    const char *mode;

    if (kit_is_child(argc, argv, &mode, &kit))
        return be_child(mode, kit);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
