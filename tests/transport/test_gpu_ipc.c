/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=600 */
/* Device memory of peers by handles: nvlink_intra, nvlink and hip. */
#include "conformance.h"

#include "base/os.h"
#include "fabric/softgpu/softgpu.h"
#include "plat/plat.h"
#include "transport/gpuipc/gpuipc.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Half of the cells, since all take minutes: the other half where a sanitizer looks. */
#if defined(__SANITIZE_THREAD__)
#define FIRST 1
#define STEP  4
#elif defined(__SANITIZE_ADDRESS__)
#define FIRST 1
#define STEP  2
#else
#define FIRST 0
#define STEP  2
#endif

/* The cell that the cases below are run for. */
static struct conformance cell;
CONFORMANCE_ONE_SIDED(cell)

static void use_nvlink_ipc(struct tei_conf *c)
{
    c->use_nvlink_ipc = true;
}

static void use_shareable(struct tei_conf *c)
{
    c->use_hip_ipc = false;
}

static unsigned score_of(struct pair *p, const struct tei_attach *a, const void *remote, size_t n)
{
    te_request r = {.opcode = TE_READ, .target_offset = (uintptr_t)remote, .length = n};

    return p->a->ops.score(p->a, a, &r);
}

static void check_why_not(struct pair *p, const void *remote, const char *reason)
{
    te_request r = {.opcode = TE_READ, .target_offset = (uintptr_t)remote, .length = 10};
    char why[512];

    p->a->ops.why_not(p->a, p->attach, &r, why, sizeof why);
    if (!strstr(why, reason))
        fail_msg("'%s' does not say '%s'", why, reason);
}

static struct gpuipc *instance_of(struct pair *p)
{
    return tei_gpuipc_of(p->a);
}

static size_t count_mapped(struct pair *p)
{
    struct gpuipc *g = instance_of(p);
    size_t n;

    pthread_mutex_lock(&g->lock);
    n = g->n_mapped;
    pthread_mutex_unlock(&g->lock);
    return n;
}

/* Waits for what the job brings about. */
static bool comes_to_map(struct pair *p, size_t want)
{
    for (int i = 0; i < PATIENCE_MS / 5 && count_mapped(p) != want; i++)
        usleep(5000);
    return count_mapped(p) == want;
}

typedef int (*softgpu_control_fn)(const char *commands);

/* NULL on a real driver. */
static softgpu_control_fn find_control(void)
{
    softgpu_control_fn fn;
    void *at = dlsym(RTLD_DEFAULT, "softgpu_control");

    memcpy(&fn, &at, sizeof fn);
    return fn;
}

static void check_both_ways(struct pair *p, size_t at_a, char *remote, size_t at_b, size_t n)
{
    char *bytes = malloc(n);

    assert_non_null(bytes);
    fill_pattern(bytes, n, (uint32_t)n);
    pair_put(p, INITIATOR, at_a, bytes, n);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am + at_a, remote + at_b, n), 0);
    pair_set(p, INITIATOR, at_a, 0x11, n);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am + at_a, remote + at_b, n), 0);
    pair_expect(p, INITIATOR, at_a, bytes, n);
    free(bytes);
}

/* -------------------------------------------------------------------------------- in each cell */

/* In one process nothing is mapped; in two, each allocation once and when it is first used. */
static void maps_when_first_used(void **state)
{
    struct pair *p = pair_open(&cell);

    (void)state;
    check_both_ways(p, 5, p->bm, 77, 1000003);
    assert_int_equal(count_mapped(p), 0);
    pair_close(p);

    p = pair_fork(&cell);
    assert_int_equal(count_mapped(p), 0);
    assert_true(score_of(p, p->attach, p->bm, PAIR_BYTES) > 50);
    assert_int_equal(count_mapped(p), 0);
    check_both_ways(p, 5, p->bm, 77, 1000003);
    assert_int_equal(count_mapped(p), 1);
    check_both_ways(p, 900, p->bm, 1, 31);
    assert_int_equal(count_mapped(p), 1);
    p->a->ops.peer_gone(p->a, p->attach);
    assert_true(comes_to_map(p, 0));
    check_both_ways(p, 900, p->bm, 1, 31);
    fake_detach(p->a, p->attach);
    p->attach = NULL;
    assert_true(comes_to_map(p, 0));
    pair_close(p);
}

static void what_is_beyond_is_not_taken(void **state)
{
    struct pair *p = pair_open(&cell);

    (void)state;
    assert_int_equal(score_of(p, NULL, p->bm, 1), 0);
    assert_int_equal(score_of(p, p->attach, p->bm - 1, 2), 0);
    assert_int_equal(score_of(p, p->attach, (void *)16, 1), 0);
    assert_int_equal(score_of(p, p->attach, p->bm, SIZE_MAX), 0);
    assert_int_equal(score_of(p, p->attach, (void *)UINTPTR_MAX, 1), 0);
    assert_true(score_of(p, p->attach, p->bm + PAIR_BYTES - 1, 1) > 50);
    check_why_not(p, (void *)16, "not within");
    pair_close(p);
}

/* Several regions in one allocation; the first of them does not begin where it does. */
static void regions_in_the_middle(void **state)
{
    enum { N = 4 << 20 };
    struct pair *p = pair_open(&cell);
    char *mem = pair_map(&cell, TARGET, N);
    struct tei_region *r = fake_region_add(&p->hb, p->b, mem + 4099, 1000001, TE_REMOTE_RW);
    struct tei_region *s = fake_region_add(&p->hb, p->b, mem + (2 << 20), 1 << 20, TE_REMOTE_RW);

    (void)state;
    pair_attach_anew(p);
    check_both_ways(p, 3, mem, 4099, 1000001);
    check_both_ways(p, 3, mem, (2 << 20) + 1, (1 << 20) - 1);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, mem + 4098, 2), TE_ERR_STALE);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, mem + (3 << 20), 1),
                     TE_ERR_STALE);
    /* One goes: what was read before of the allocation is old, and the other stays in reach. */
    fake_region_del(&p->hb, p->b, r);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, mem + 4099, 100), TE_ERR_STALE);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, mem + (2 << 20), 100),
                     TE_ERR_STALE);
    pair_attach_anew(p);
    check_both_ways(p, 3, mem, (2 << 20) + 1, (1 << 20) - 1);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, mem + 4099, 100), TE_ERR_STALE);
    fake_region_del(&p->hb, p->b, s);
    pair_unmap(&cell, TARGET, mem, N);
    pair_close(p);
}

/* Peers reach what could not be shared, too, as another region shares the allocation: it is cut off like any other. */
static void not_shared_beside_a_region_that_is(void **state)
{
    enum { N = 2 << 20, HALF = 1 << 20 };
    softgpu_control_fn control = find_control();
    const struct gpuipc_share *share;
    struct tei_region *s, *r;
    struct gpuipc_table *t;
    struct gpuipc_row *row;
    uint32_t slot, generation;
    struct pair *p;
    unsigned side;
    char *mem;

    (void)state;
    if (!control)
        skip();
    p = pair_open(&cell);
    t = tei_gpuipc_of(p->b)->table;
    row = tei_gpuipc_row_take(t->page);
    assert_non_null(row);
    mem = pair_map(&cell, TARGET, N);
    s = fake_region_add(&p->hb, p->b, mem, HALF, TE_REMOTE_RW);
    share = s->keys[p->b->index];
    slot = share->v[0]->entry.slot;
    assert_int_equal(control(cell.fabric ? "fail export" : "fail ipc_get"), 0);
    r = fake_region_add(&p->hb, p->b, mem + HALF, HALF, TE_REMOTE_RW);
    assert_int_equal(control("clear"), 0);
    assert_null(r->keys[p->b->index]);
    generation = t->generation[slot];
    assert_true(tei_gpuipc_enter(t->page, row, slot, generation, &side));
    assert_int_equal(p->b->ops.region_del(p->b, r), TE_ERR_BUSY);
    tei_gpuipc_leave(row, side);
    fake_region_del(&p->hb, p->b, r);
    assert_false(tei_gpuipc_enter(t->page, row, slot, generation, &side));
    tei_gpuipc_row_give(row);
    fake_region_del(&p->hb, p->b, s);
    pair_unmap(&cell, TARGET, mem, N);
    pair_close(p);
}

/* Other memory at the same place is not taken for the old one. */
static void freed_and_allocated_anew(void **state)
{
    enum { N = 3 << 20 };
    struct pair *p = pair_open(&cell);

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        char *mem = pair_map(&cell, TARGET, N);
        struct tei_region *r = fake_region_add(&p->hb, p->b, mem, N, TE_REMOTE_RW);

        pair_attach_anew(p);
        check_both_ways(p, i, mem, i, N - i);
        fake_region_del(&p->hb, p->b, r);
        assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, mem, 9), TE_ERR_STALE);
        pair_unmap(&cell, TARGET, mem, N);
    }
    pair_close(p);
}

/*
 * What is longer than a piece comes over whole, and stops between two when it is canceled, or when
 * the memory goes, which does not wait for the rest.
 */
static void longer_than_a_piece(void **state)
{
    size_t n = GPUIPC_PIECE + 12347;
    struct pair *p = pair_open(&cell);
    char *far = pair_map(&cell, TARGET, n), *near = pair_map(&cell, INITIATOR, n);
    struct tei_region *r = fake_region_add(&p->hb, p->b, far, n, TE_REMOTE_RW);
    struct tei_region *l = fake_region_add(&p->ha, p->a, near, n, TE_LOCAL_ONLY);
    size_t tail = n - GPUIPC_PIECE + 1000;
    struct fake_task tasks[3];
    char *bytes = malloc(2 * tail);
    struct tei_list list;
    int rc;

    (void)state;
    assert_non_null(bytes);
    pair_attach_anew(p);
    fill_pattern(bytes, tail, 5);
    assert_int_equal(tei_mem_copy(near + n - tail, bytes, tail), 0);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, near, far, n), 0);
    memset(bytes, 0, tail);
    assert_int_equal(tei_mem_copy(near + n - tail, bytes, tail), 0);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, near, far, n), 0);
    assert_int_equal(tei_mem_copy(bytes + tail, near + n - tail, tail), 0);
    fill_pattern(bytes, tail, 5);
    assert_memory_equal(bytes, bytes + tail, tail);
    tei_list_init(&list);
    for (size_t i = 0; i < 3; i++)
        fake_work(&list, p->a, p->attach, &tasks[i], TE_READ, near, far, n)->owner = &tasks[i];
    p->a->ops.post(p->a, &list);
    p->a->ops.cancel(p->a, &tasks[1]);
    /* A piece may take longer than it waits. */
    WAIT_FOR((rc = p->b->ops.region_del(p->b, r)) != TE_ERR_BUSY);
    assert_int_equal(rc, 0);
    assert_true(fake_wait(&p->ha, NULL, tasks, 3, PATIENCE_MS));
    for (size_t i = 0; i < 3; i++)
        assert_true(tasks[i].error == 0 || tasks[i].error == TE_ERR_STALE ||
                    (i == 1 && tasks[i].error == TE_ERR_CANCELED));
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, near, far, n), TE_ERR_STALE);
    fake_region_del(&p->hb, p->b, r);
    fake_region_del(&p->ha, p->a, l);
    pair_unmap(&cell, TARGET, far, n);
    pair_unmap(&cell, INITIATOR, near, n);
    free(bytes);
    pair_close(p);
}

/* The engine goes while a peer is inside: all are cut off, and that one is waited for once. */
static void closed_with_a_peer_inside(void **state)
{
    enum { N = 3 };
    struct pair *p = pair_open(&cell);
    struct gpuipc_table *t = tei_gpuipc_of(p->b)->table;
    struct gpuipc_row *row = tei_gpuipc_row_take(t->page);
    struct tei_region *r[N];
    char *mem[N];
    unsigned side;
    uint32_t phase;

    (void)state;
    assert_non_null(row);
    for (size_t i = 0; i < N; i++) {
        mem[i] = pair_map(&cell, TARGET, 1 << 20);
        r[i] = fake_region_add(&p->hb, p->b, mem[i], 1 << 20, TE_REMOTE_RW);
    }
    assert_true(tei_gpuipc_enter(t->page, row, 0, t->generation[0], &side));
    assert_int_equal(p->b->ops.region_del(p->b, r[0]), TE_ERR_BUSY);
    p->b->ops.close(p->b);
    assert_true(tei_gpuipc_enter(t->page, row, 0, t->generation[0], &side));
    fake_region_del(&p->hb, p->b, r[0]);
    phase = t->phase;
    for (uint32_t i = 0; i < t->n_used; i++)
        assert_false(tei_gpuipc_enter(t->page, row, i, t->generation[i] - 1, &side));
    for (size_t i = 1; i < N; i++)
        fake_region_del(&p->hb, p->b, r[i]);
    assert_int_equal(t->phase, phase);
    tei_gpuipc_row_give(row);
    for (size_t i = 0; i < N; i++)
        pair_unmap(&cell, TARGET, mem[i], 1 << 20);
    pair_close(p);
}

/* -------------------------------------------------------------------------------- descriptors */

static json_t *describe(struct tei_transport *t)
{
    char *text = fake_describe(t);
    json_t *j = json_loads(text, 0, NULL);

    assert_non_null(j);
    free(text);
    return j;
}

static json_t *keys_in(json_t *root)
{
    return json_object_get(json_object_get(json_object_get(root, "te"), "gpu"), cell.transport);
}

static int attach_to(struct pair *p, const json_t *root, struct tei_attach **out)
{
    char *text = json_dumps(root, 0);
    struct tei_segment *s;
    int rc;

    assert_int_equal(tei_segment_decode(text, strlen(text), &tei_segment_unlimited, &s), 0);
    rc = fake_attach_segment(p->a, s, out);
    tei_segment_put(s);
    free(text);
    return rc;
}

static struct tei_attach *attached_to(struct pair *p, const json_t *root)
{
    struct tei_attach *a = NULL;

    if (attach_to(p, root, &a))
        fail_msg("%s", te_errmsg());
    return a;
}

static void check_refused(struct pair *p, const json_t *root, const char *reason)
{
    struct tei_attach *a = NULL;

    assert_int_equal(attach_to(p, root, &a), TE_ERR_UNSUPPORTED);
    if (!strstr(te_errmsg(), reason))
        fail_msg("'%s' does not say '%s'", te_errmsg(), reason);
}

/* As if this process had published keys with such a nonce. */
static void set_place(json_t *keys, const uint8_t nonce[TEI_HERE_NONCE])
{
    char text[2 * TEI_HERE_NONCE + 1];
    struct tei_here here;

    tei_gpuipc_hex(nonce, TEI_HERE_NONCE, text);
    tei_here(nonce, &here);
    json_object_set_new(keys, "nonce", json_string(text));
    json_object_set_new(keys, "host", json_string(here.host));
    json_object_set_new(keys, "machine", json_string(here.machine));
    json_object_set_new(keys, "pid_ns", json_string(here.pid_ns));
    json_object_set_new(keys, "process", json_string(here.process));
}

/* A descriptor does not say which device it is, and the initiator finds it. */
static void finds_the_device(void **state)
{
    struct pair *p = pair_open(&cell);
    json_t *root = describe(p->b), *list = json_object_get(keys_in(root), "memory");
    struct tei_attach *a = attached_to(p, root);
    const struct gpuipc_attach *known = (const struct gpuipc_attach *)a;
    char text[2 * GPUIPC_UUID + 1];
    uint8_t uuid[GPUIPC_UUID];

    (void)state;
    assert_int_equal(tei_gpu_uuid(cell.kind[TARGET], cell.device[TARGET], uuid), 0);
    tei_gpuipc_hex(uuid, sizeof uuid, text);
    assert_true(known->n > 0);
    assert_int_equal(json_array_size(list), known->n);
    for (size_t i = 0; i < known->n; i++) {
        const char *told = json_string_value(json_array_get(json_array_get(list, i), 5));

        assert_non_null(told);
        assert_string_not_equal(told, text);
        assert_int_equal(known->v[i].memory->device, cell.device[TARGET]);
    }
    fake_detach(p->a, a);
    json_decref(root);
    pair_close(p);
}

static void reasons(void **state)
{
    static const uint8_t other[TEI_HERE_NONCE] = {1, 2, 3};
    struct pair *p = pair_open(&cell);
    json_t *root = describe(p->b), *keys = keys_in(root);
    bool ipc = strcmp(json_string_value(json_object_get(keys, "sort")), "ipc") == 0;

    (void)state;
    set_place(keys, other);
    if (ipc) {
        check_refused(p, root, "not the one");
        json_object_set_new(keys, "fd", json_integer(INT32_MAX));
        check_refused(p, root, "cannot be opened");
        json_object_set_new(keys, "process", json_string("00112233445566778899aabbccddeeff"));
        check_refused(p, root, "no process");
        json_object_set_new(keys, "host", json_string("00112233445566778899aabbccddeeff"));
        check_refused(p, root, "another host");
    }
    json_object_set_new(keys, "memory", json_string("none"));
    check_refused(p, root, "malformed");
    json_object_set_new(keys, "v", json_integer(3));
    check_refused(p, root, "version");
    json_object_set_new(root, "protocol", json_string("tcp"));
    json_object_del(root, "te");
    check_refused(p, root, "shares no memory");
    json_decref(root);
    pair_close(p);
}

/* This process knows its own memory better than a descriptor. */
static void nobody_names_memory_of_this_process(void **state)
{
    struct pair *p = pair_open(&cell);
    json_t *root = describe(p->b), *entry;
    struct tei_attach *a = NULL, *was = p->attach;

    (void)state;
    entry = json_array_get(json_object_get(keys_in(root), "memory"), 0);
    assert_int_equal(json_integer_value(json_array_get(entry, 0)), (uintptr_t)p->bm);
    json_array_set_new(entry, 0, json_integer((json_int_t)(uintptr_t)p->bm - 4096));
    a = attached_to(p, root);
    assert_int_equal(fake_transfer(p->a, a, TE_READ, p->am, p->bm, 10), TE_ERR_STALE);
    fake_detach(p->a, a);
    p->attach = was;
    json_decref(root);
    pair_close(p);
}

/* Nor are its rights and ranges what somebody writes, nor is another life's descriptor taken. */
static void rights_in_this_process(void **state)
{
    enum { N = 1 << 20 };
    struct pair *p = pair_open(&cell);
    char *mem = pair_map(&cell, TARGET, N);
    struct tei_region *r = fake_region_add(&p->hb, p->b, mem + 4096, 4096, TE_REMOTE_READ);
    struct tei_attach *a = NULL;
    json_t *root = describe(p->b), *te = json_object_get(root, "te"), *b;
    size_t i;

    (void)state;
    json_object_del(te, "rights");
    json_array_foreach(json_object_get(root, "buffers"), i, b)
        if (json_integer_value(json_object_get(b, "addr")) == (json_int_t)(uintptr_t)mem + 4096) {
            json_object_set_new(b, "addr", json_integer((json_int_t)(uintptr_t)mem));
            json_object_set_new(b, "length", json_integer(N));
        }
    a = attached_to(p, root);
    assert_int_equal(fake_transfer(p->a, a, TE_READ, p->am, mem + 4096, 4096), 0);
    assert_int_equal(fake_transfer(p->a, a, TE_READ, p->am, mem + 4096, 4097), TE_ERR_STALE);
    assert_int_equal(fake_transfer(p->a, a, TE_READ, p->am, mem + 4095, 2), TE_ERR_STALE);
    assert_int_equal(fake_transfer(p->a, a, TE_WRITE, p->am, mem + 4096, 1), TE_ERR_STALE);
    fake_detach(p->a, a);
    json_object_set_new(te, "incarnation", json_string("00000000000000aa"));
    check_refused(p, root, "not that one's");
    json_decref(root);
    fake_region_del(&p->hb, p->b, r);
    pair_unmap(&cell, TARGET, mem, N);
    pair_close(p);
}

/* q's descriptor as an engine of another make on p's host would write it. */
static json_t *describe_as_other(struct pair *p, struct pair *q)
{
    const struct gpuipc_attach *a = (const struct gpuipc_attach *)q->attach;
    char handle[2 * TEI_GPU_HANDLE + 1], name[80];
    json_t *root;

    tei_gpuipc_hex(a->v[0].memory->entry.handle, TEI_GPU_HANDLE, handle);
    snprintf(name, sizeof name, "%s:%d", p->ha.name, (int)q->child % 65535 + 1); /* a port */
    for (char *c = name; *c; c++)
        *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 32) : *c;
    root =
        json_pack("{s:s, s:s, s:[{s:s, s:I, s:I, s:s}]}", "name", name, "protocol", cell.transport,
                  "buffers", "name", "cuda:0", "addr", (json_int_t)(uintptr_t)q->bm, "length",
                  (json_int_t)PAIR_BYTES, "shm_name", handle);
    assert_non_null(root);
    return root;
}

static void buffers_of_another_make(void **state)
{
    struct pair *p = pair_fork(&cell);
    struct tei_attach *a = NULL, *was = p->attach;
    json_t *root = describe_as_other(p, p);

    (void)state;
    a = attached_to(p, root);
    p->attach = a;
    check_both_ways(p, 7, p->bm, 1234567, 1000001);
    fake_detach(p->a, a);
    p->attach = was;
    if (instance_of(p)->sort == TEI_GPU_IPC) {
        json_object_set_new(root, "name", json_string("another.host:1"));
        check_refused(p, root, "another host");
    }
    json_decref(root);
    pair_close(p);
}

static void shm_name_of_whole_allocations_only(void **state)
{
    struct pair *p = pair_open(&cell);
    char *mem = pair_map(&cell, TARGET, 1 << 20), host[4096];
    struct tei_region *r = fake_region_add(&p->hb, p->b, mem + 4096, 4096, TE_REMOTE_RW);
    struct tei_region *h = fake_region_add(&p->hb, p->b, host, sizeof host, TE_REMOTE_RW);
    struct tei_region *o = fake_region_add(&p->hb, p->b, mem, 4096, TE_REMOTE_READ);
    json_t *root = describe(p->b), *b;
    size_t i, n = 0;

    (void)state;
    json_array_foreach(json_object_get(root, "buffers"), i, b) {
        const char *handle = json_string_value(json_object_get(b, "shm_name"));
        bool whole = json_integer_value(json_object_get(b, "addr")) == (json_int_t)(uintptr_t)p->bm;

        assert_non_null(handle);
        assert_int_equal(strlen(handle), whole ? 2 * TEI_GPU_HANDLE : 0);
        assert_int_equal(strspn(handle, "0123456789ABCDEF"), strlen(handle));
        n += whole;
    }
    assert_int_equal(i, 4);
    assert_int_equal(n, 1);
    assert_int_equal(json_array_size(json_object_get(keys_in(root), "memory")), 2);
    json_decref(root);
    fake_region_del(&p->hb, p->b, r);
    fake_region_del(&p->hb, p->b, h);
    fake_region_del(&p->hb, p->b, o);
    pair_unmap(&cell, TARGET, mem, 1 << 20);
    pair_close(p);
}

/* ------------------------------------------------------------------------------------ refusals */

/* The driver's word is told, and the next transport carries it. */
static void refused_by_the_driver(void **state)
{
    softgpu_control_fn control = find_control();
    struct pair *p;

    (void)state;
    if (!control)
        skip();
    p = pair_fork(&cell);
    assert_int_equal(control(cell.fabric ? "fail import" : "fail ipc_open"), 0);
    assert_true(score_of(p, p->attach, p->bm, 100) > 50);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100), TE_ERR_PEER);
    assert_int_equal(control("clear"), 0);
    assert_int_equal(score_of(p, p->attach, p->bm, 100), 0);
    check_why_not(p, p->bm, "does not map");
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100), TE_ERR_PEER);
    assert_int_equal(count_mapped(p), 0);
    pair_close(p);
    p = pair_fork(&cell);
    check_both_ways(p, 1, p->bm, 2, 100000);
    pair_close(p);
}

/* Work that waits for its memory is canceled, and is not begun when the transport is closed. */
static void ends_what_waits(void **state)
{
    enum { N = 60 };
    struct pair *p = pair_fork(&cell);
    struct fake_task tasks[N];
    struct tei_list list;
    int mine = 0, other = 0;

    (void)state;
    tei_list_init(&list);
    for (size_t i = 0; i < N; i++)
        fake_work(&list, p->a, p->attach, &tasks[i], TE_READ, p->am, p->bm, PAIR_BYTES)->owner =
            i % 2 ? &mine : &other;
    p->a->ops.post(p->a, &list);
    p->a->ops.cancel(p->a, &mine);
    for (size_t i = 1; i < N; i += 2) {
        assert_true(fake_wait(&p->ha, NULL, &tasks[i], 1, PATIENCE_MS));
        assert_true(tasks[i].error == TE_ERR_CANCELED || tasks[i].error == 0);
    }
    assert_int_equal(tasks[N - 1].error, TE_ERR_CANCELED);
    p->a->ops.close(p->a);
    (p->a->ops.stop)(p->a); /* cmocka 2 has a macro of the name */
    for (size_t i = 0; i < N; i++)
        assert_true(tasks[i].done && (!tasks[i].error || tasks[i].error == TE_ERR_CANCELED));
    pair_close(p);
}

/*
 * The device stalls: what is held back ends without progress, and what the device has does when that is
 * let go.
 */
static void ends_without_progress(void **state)
{
    enum { N = GPUIPC_WINDOW / PAIR_BYTES + 2 };
    softgpu_control_fn control = find_control();
    struct fake_task tasks[N];
    struct tei_list list;
    struct pair *p;

    (void)state;
    if (!control)
        skip();
    p = pair_open(&cell);
    assert_int_equal(control("stall"), 0);
    pthread_mutex_lock(&instance_of(p)->lock);
    instance_of(p)->ledger.patience_ns = 50 * TEI_NS_PER_MS;
    pthread_mutex_unlock(&instance_of(p)->lock);
    tei_list_init(&list);
    for (size_t i = 0; i < N; i++)
        fake_work(&list, p->a, p->attach, &tasks[i], TE_READ, p->am, p->bm, PAIR_BYTES);
    p->a->ops.post(p->a, &list);
    assert_true(fake_wait(&p->ha, NULL, &tasks[N - 1], 1, PATIENCE_MS));
    assert_int_equal(tasks[N - 1].error, TE_ERR_TIMEOUT);
    assert_false(fake_wait(&p->ha, NULL, tasks, 1, 0));
    assert_int_equal(control("clear"), 0);
    assert_true(fake_wait(&p->ha, NULL, tasks, N, PATIENCE_MS));
    assert_int_equal(tasks[0].error, TE_ERR_TIMEOUT);
    pair_close(p);
}

/* The driver does not answer: what waits for it to map memory is late, and later work finds it mapped. */
static void ends_while_it_is_mapped(void **state)
{
    struct pair *p = pair_fork(&cell);
    struct gpuipc *g = instance_of(p);
    struct fake_task task;
    struct tei_list list;

    (void)state;
    pthread_mutex_lock(&g->lock);
    g->job_is_out = true; /* so none starts */
    g->unmapped.patience_ns = 50 * TEI_NS_PER_MS;
    pthread_mutex_unlock(&g->lock);
    tei_list_init(&list);
    fake_work(&list, p->a, p->attach, &task, TE_READ, p->am, p->bm, PAIR_BYTES);
    p->a->ops.post(p->a, &list);
    assert_true(fake_wait(&p->ha, NULL, &task, 1, PATIENCE_MS));
    assert_int_equal(task.error, TE_ERR_TIMEOUT);
    pthread_mutex_lock(&g->lock);
    g->job_is_out = false;
    g->unmapped.patience_ns = TEI_NEVER;
    pthread_mutex_unlock(&g->lock);
    check_both_ways(p, 1, p->bm, 2, 100000);
    pair_close(p);
}

/* ------------------------------------------------------------------------------- many mappings */

#define MANY 5

/* One that may have three mappings, and the peers of five others. */
struct crowd {
    struct pair *p, *q[MANY];
    struct tei_attach *a[MANY]; /* of p, to the targets of q */
};

static void gather(struct crowd *c, int mappings)
{
    c->p = pair_fork(&cell);
    c->p->ha.conf.gpu_mappings = mappings;
    for (size_t i = 0; i < MANY; i++) {
        json_t *root;

        c->q[i] = pair_fork(&cell);
        pair_fill(c->q[i], TARGET, 0, PAIR_BYTES, (uint32_t)i + 1);
        root = describe_as_other(c->p, c->q[i]);
        c->a[i] = attached_to(c->p, root);
        json_decref(root);
    }
}

static void disperse(struct crowd *c)
{
    for (size_t i = 0; i < MANY; i++) {
        fake_detach(c->p->a, c->a[i]);
        pair_close(c->q[i]);
    }
    assert_true(comes_to_map(c->p, 0));
    pair_close(c->p);
}

/* The one unused for longest goes, and comes again. */
static void the_oldest_mapping_goes(void **state)
{
    struct gpuipc_memory *first;
    struct crowd c;

    (void)state;
    gather(&c, 3);
    first = ((struct gpuipc_attach *)c.a[0])->v[0].memory;
    for (size_t i = 0; i < 3 * MANY; i++) {
        size_t k = i % MANY, at = 4097 * i;

        assert_int_equal(fake_transfer(c.p->a, c.a[k], TE_READ, c.p->am, c.q[k]->bm + at, 300000),
                         0);
        assert_true(pair_same(c.p, 0, c.q[k], at, 300000));
        assert_int_equal(count_mapped(c.p), i < 3 ? i + 1 : 3);
        if (i == 2)
            assert_int_equal(first->state, GPUIPC_MAPPED);
        if (i == 3)
            assert_int_equal(first->state, GPUIPC_UNMAPPED);
    }
    disperse(&c);
}

/* What is used is never unmapped, so there may be more for a time. */
static void mappings_in_use_stay(void **state)
{
    enum { EACH = 20, N = EACH * MANY, BYTES = 1000003 };
    struct fake_task tasks[N];
    struct tei_list list;
    struct crowd c;

    (void)state;
    gather(&c, 1);
    for (int round = 0; round < 3; round++) {
        tei_list_init(&list);
        for (size_t i = 0; i < N; i++)
            fake_work(&list, c.p->a, c.a[i % MANY], &tasks[i], TE_READ, c.p->am + i % MANY * BYTES,
                      c.q[i % MANY]->bm + 17, BYTES);
        c.p->a->ops.post(c.p->a, &list);
        assert_true(fake_wait(&c.p->ha, NULL, tasks, N, PATIENCE_MS));
        for (size_t i = 0; i < N; i++)
            assert_int_equal(tasks[i].error, 0);
        for (size_t i = 0; i < MANY; i++)
            assert_true(pair_same(c.p, i * BYTES, c.q[i], 17, BYTES));
        assert_true(comes_to_map(c.p, 1));
    }
    disperse(&c);
}

/* ------------------------------------------------------------------------------- of its own */

/* Memory that has no handle of the sort is of use on the initiator's side, and nobody else's. */
static void memory_without_handles(void **state)
{
    struct conformance with = cell;
    struct pair *p;

    (void)state;
    with.fabric = false;
    p = pair_open(&with);
    assert_int_equal(score_of(p, p->attach, p->bm, 10), 0);
    assert_null(p->br->keys[p->b->index]);
    assert_true(p->br->direct & 1u << p->b->index);
    pair_close(p);
}

static void some_can_be_disabled(void **state)
{
    static const char *const names[][2] = {
        {"hip", "MC_DISABLE_HIP"}, {"musa", "MC_DISABLE_MUSA"}, {"maca", "MC_DISABLE_MACA"}};
    struct fake_host h;
    char why[256];

    (void)state;
    fake_host_init(&h);
    h.conf.disable_hip = h.conf.disable_musa = h.conf.disable_maca = true;
    for (size_t i = 0; i < TEI_ARRAY_LEN(names); i++) {
        why[0] = '\0';
        assert_false(tei_transport_find(names[i][0])->probe(&h.conf, why, sizeof why));
        assert_non_null(strstr(why, names[i][1]));
    }
    fake_host_fini(&h);
}

/* ----------------------------------------------------------------------------------------- all */

static const struct conformance cells[] = {
    {.transport = "nvlink_intra", .kind = {TEI_MEM_HOST, TEI_MEM_CUDA}, .device = {-1, 0}},
    {.transport = "nvlink_intra", .kind = {TEI_MEM_CUDA, TEI_MEM_CUDA}, .device = {0, 1}},
    {.transport = "nvlink",
     .kind = {TEI_MEM_HOST, TEI_MEM_CUDA},
     .device = {-1, 1},
     .fabric = true},
    {.transport = "nvlink", .kind = {TEI_MEM_CUDA, TEI_MEM_CUDA}, .device = {0, 0}, .fabric = true},
    {.transport = "nvlink",
     .kind = {TEI_MEM_CUDA, TEI_MEM_CUDA},
     .device = {1, 0},
     .configure = use_nvlink_ipc},
    {.transport = "hip", .kind = {TEI_MEM_HOST, TEI_MEM_HIP}, .device = {-1, 0}},
    {.transport = "hip", .kind = {TEI_MEM_HIP, TEI_MEM_HIP}, .device = {0, 1}},
    {.transport = "hip",
     .kind = {TEI_MEM_HIP, TEI_MEM_HIP},
     .device = {0, 0},
     .configure = use_shareable,
     .fabric = true},
    {.transport = "ascend", .kind = {TEI_MEM_HOST, TEI_MEM_ASCEND}, .device = {-1, 0}},
    {.transport = "ascend", .kind = {TEI_MEM_ASCEND, TEI_MEM_ASCEND}, .device = {0, 1}},
    {.transport = "musa", .kind = {TEI_MEM_MUSA, TEI_MEM_MUSA}, .device = {0, 1}},
    {.transport = "maca", .kind = {TEI_MEM_MACA, TEI_MEM_MACA}, .device = {0, 1}},
    {.transport = "supa", .kind = {TEI_MEM_HOST, TEI_MEM_SUPA}, .device = {-1, 0}},
};

static bool has_device(const struct conformance *with, enum pair_side side)
{
    enum tei_mem_kind kind = with->kind[side];

    if (kind == TEI_MEM_HOST)
        return true;
    return tei_gpu_open(kind) == 0 && with->device[side] < tei_gpu_count(kind) &&
           (!with->fabric || tei_gpu_has_fabric(kind, with->device[side]));
}

static int run_cell(const struct conformance *with)
{
    const struct CMUnitTest tests[] = {CONFORMANCE_ONE_SIDED_TESTS,
                                       cmocka_unit_test(maps_when_first_used),
                                       cmocka_unit_test(what_is_beyond_is_not_taken),
                                       cmocka_unit_test(regions_in_the_middle),
                                       cmocka_unit_test(not_shared_beside_a_region_that_is),
                                       cmocka_unit_test(freed_and_allocated_anew),
                                       cmocka_unit_test(longer_than_a_piece),
                                       cmocka_unit_test(closed_with_a_peer_inside),
                                       cmocka_unit_test(finds_the_device),
                                       cmocka_unit_test(reasons),
                                       cmocka_unit_test(nobody_names_memory_of_this_process),
                                       cmocka_unit_test(rights_in_this_process),
                                       cmocka_unit_test(buffers_of_another_make),
                                       cmocka_unit_test(shm_name_of_whole_allocations_only),
                                       cmocka_unit_test(refused_by_the_driver),
                                       cmocka_unit_test(ends_what_waits),
                                       cmocka_unit_test(ends_without_progress),
                                       cmocka_unit_test(ends_while_it_is_mapped),
                                       cmocka_unit_test(the_oldest_mapping_goes),
                                       cmocka_unit_test(mappings_in_use_stay)};
    const struct CMUnitTest fabric[] = {cmocka_unit_test(memory_without_handles)};
    char name[100];
    int rc;

    cell = *with;
    snprintf(name, sizeof name, "%s%s: kind %d device %d and kind %d device %d", cell.transport,
             cell.fabric ? " by the fabric" : "", (int)cell.kind[0], cell.device[0],
             (int)cell.kind[1], cell.device[1]);
    rc = cmocka_run_group_tests_name(name, tests, NULL, NULL);
    if (cell.fabric)
        rc |= cmocka_run_group_tests(fabric, NULL, NULL);
    return rc;
}

int main(void)
{
    const struct CMUnitTest own[] = {cmocka_unit_test(some_can_be_disabled)};
    int rc = 0, n = 0;

    pair_prepare();
    for (size_t i = FIRST; i < TEI_ARRAY_LEN(cells); i += STEP) {
        if (!has_device(&cells[i], INITIATOR) || !has_device(&cells[i], TARGET))
            continue;
        rc |= run_cell(&cells[i]);
        n++;
    }
    if (n == 0) {
        puts("no driver of a device, or no device");
        return 77;
    }
    return rc | cmocka_run_group_tests(own, NULL, NULL);
}
