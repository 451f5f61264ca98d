/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te-test: timeout=300
 *
 * Memory of GPUs by RDMA, over simulated NICs: registered by its addresses, as with nvidia-peermem,
 * or through dma-bufs, on either side and both; and what becomes of it where a NIC takes neither.
 */
#include "conformance.h"
#include "rdma_fabric.h"

#include "base/err.h"
#include "base/os.h"
#include "fabric/softgpu/softcuda.h"
#include "fabric/softgpu/softgpu.h"
#include "plat/plat.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A host with devices of another maker has none of these: there the test is skipped, and has to be loaded for that. */
#pragma weak cuDevicePrimaryCtxRetain
#pragma weak cuDevicePrimaryCtxRelease_v2
#pragma weak cuCtxPushCurrent_v2
#pragma weak cuCtxPopCurrent_v2
#pragma weak cuMemAddressReserve
#pragma weak cuMemAddressFree
#pragma weak cuMemCreate
#pragma weak cuMemRelease
#pragma weak cuMemMap
#pragma weak cuMemUnmap
#pragma weak cuMemSetAccess

#define NICS 2

#ifdef __SANITIZE_THREAD__
#define PATIENT false /* twice all cases would take many minutes */
#else
#define PATIENT true
#endif

/* ------------------------------------------------------------------------------ what is under test */

static void any_way(struct tei_conf *c)
{
    rdma_fabric_configure(c);
}

static void by_dmabuf_alone(struct tei_conf *c)
{
    rdma_fabric_configure(c);
    c->nvidia_peermem = false;
}

static void without_dmabuf(struct tei_conf *c)
{
    rdma_fabric_configure(c);
    c->disable_hip_dmabuf = true;
}

static void relaxed(struct tei_conf *c)
{
    rdma_fabric_configure(c);
    c->relaxed_ordering = 1;
}

static const struct variant {
    const char *name;
    enum tei_mem_kind kind[2];
    void (*configure)(struct tei_conf *c);
    bool peermem, dmabuf; /* what the NICs take */
    bool all;             /* every case, not just a few */
} variants[] = {
    {"CUDA by its addresses", {TEI_MEM_CUDA, TEI_MEM_CUDA}, any_way, true, false, true},
    {"CUDA by dma-buf, no module", {TEI_MEM_CUDA, TEI_MEM_CUDA}, any_way, false, true, PATIENT},
    {"CUDA by dma-buf, as wanted",
     {TEI_MEM_CUDA, TEI_MEM_CUDA},
     by_dmabuf_alone,
     true,
     true,
     false},
    {"CUDA, relaxed ordering", {TEI_MEM_CUDA, TEI_MEM_CUDA}, relaxed, false, true, false},
    {"HIP by dma-buf", {TEI_MEM_HIP, TEI_MEM_HIP}, any_way, true, true, false},
    {"HIP by its addresses, as wanted",
     {TEI_MEM_HIP, TEI_MEM_HIP},
     without_dmabuf,
     true,
     true,
     false},
    {"HIP by its addresses, no dma-buf", {TEI_MEM_HIP, TEI_MEM_HIP}, any_way, true, false, false},
    {"host and CUDA", {TEI_MEM_HOST, TEI_MEM_CUDA}, any_way, false, true, false},
    {"CUDA and host", {TEI_MEM_CUDA, TEI_MEM_HOST}, any_way, true, false, false},
    {"CUDA and HIP", {TEI_MEM_CUDA, TEI_MEM_HIP}, any_way, true, true, false},
    {"Ascend by its addresses", {TEI_MEM_ASCEND, TEI_MEM_ASCEND}, any_way, true, false, false},
    {"Ascend and CUDA", {TEI_MEM_ASCEND, TEI_MEM_CUDA}, any_way, true, false, false},
    {"Ascend and HIP", {TEI_MEM_ASCEND, TEI_MEM_HIP}, any_way, true, false, false},
    {"host and Ascend", {TEI_MEM_HOST, TEI_MEM_ASCEND}, any_way, true, false, false},
    {"MUSA by its addresses", {TEI_MEM_MUSA, TEI_MEM_MUSA}, any_way, true, true, false},
};

static struct conformance fixture = {.transport = "rdma"};
static char topologies[2][512];
CONFORMANCE_ONE_SIDED(fixture)

/* Each location there is, and all NICs of the side. */
static void write_topology(char out[512], const char *side)
{
    static const char *const places[] = {"cpu:0", "cuda:0", "cuda:1", "hip:0", "hip:1",
                                         "npu:0", "npu:1",  "musa:0", "musa:1"};
    int used = 0;

    for (size_t i = 0; i < TEI_ARRAY_LEN(places); i++)
        used += snprintf(out + used, 512 - (size_t)used, "%s\"%s\":[[\"%s0\",\"%s1\"],[]]",
                         i ? "," : "{", places[i], side, side);
    snprintf(out + used, 512 - (size_t)used, "}");
}

static void tell_each(const char *fmt)
{
    static const char *const nics[] = {"left0", "left1", "right0", "right1"};
    char command[128];

    for (size_t i = 0; i < TEI_ARRAY_LEN(nics); i++) {
        snprintf(command, sizeof command, fmt, nics[i]);
        rdma_fabric_tell("%s", command);
    }
}

static void nics_take(bool peermem, bool dmabuf)
{
    tell_each(peermem ? "peermem %s on" : "peermem %s off");
    tell_each(dmabuf ? "allow %s reg_dmabuf_mr" : "deny %s reg_dmabuf_mr errno=95");
}

static void use(const struct variant *v)
{
    fixture.kind[INITIATOR] = v->kind[INITIATOR];
    fixture.kind[TARGET] = v->kind[TARGET];
    fixture.configure = v->configure;
    nics_take(v->peermem, v->dmabuf);
}

/* -------------------------------------------------------------------------------- how it was done */

static void the_way_is_the_right_one(void **state)
{
    const struct variant *v = *state;
    bool by_dmabuf = v->dmabuf && (!v->peermem || v->configure == by_dmabuf_alone ||
                                   (v->kind[0] == TEI_MEM_HIP && v->configure != without_dmabuf));
    struct pair *p;

    /* What is not to be used would fail. */
    tell_each(by_dmabuf ? "deny %s reg_mr errno=14" : "deny %s reg_dmabuf_mr errno=95");
    p = pair_open(&fixture);
    assert_true(p->ar->direct && p->br->direct);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 100000), 0);
    pair_close(p);
    tell_each("allow %s reg_mr");
    use(v);
}

static int run_variant(const struct variant *v)
{
    const struct CMUnitTest tests[] = {
        CONFORMANCE_ONE_SIDED_TESTS,
    };
    bool mixed = v->kind[0] != v->kind[1] || v->kind[0] == TEI_MEM_HOST;
    const struct CMUnitTest few[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(other_process),
        cmocka_unit_test(random_volleys),
        cmocka_unit_test_prestate(the_way_is_the_right_one, (void *)v),
    };

    use(v);
    if (v->all)
        return cmocka_run_group_tests_name(v->name, tests, NULL, NULL);
    if (mixed) {
        const struct CMUnitTest only[] = {few[0], few[1], few[2]};

        return cmocka_run_group_tests_name(v->name, only, NULL, NULL);
    }
    return cmocka_run_group_tests_name(v->name, few, NULL, NULL);
}

/* ------------------------------------------------------------------------ one engine, or two, by hand */

struct side {
    struct fake_host host;
    struct tei_transport *t;
    char *memory;
    size_t length;
    enum tei_mem_kind kind;
    struct tei_region *region; /* all of it, but for `into` bytes at the front */
};

static void open_side(struct side *s, bool right, enum tei_mem_kind kind, size_t length,
                      size_t into, void (*configure)(struct tei_conf *c))
{
    void *memory;

    *s = (struct side){.kind = kind, .length = length};
    fake_host_init(&s->host);
    s->host.topology = topologies[right];
    configure(&s->host.conf);
    assert_int_equal(tei_gpu_open(kind), 0);
    assert_int_equal(tei_gpu_alloc(kind, 0, length, false, &memory), 0);
    s->memory = memory;
    s->t = fake_open(&s->host, "rdma");
    s->region = fake_region_add(&s->host, s->t, s->memory + into, length - into, TE_REMOTE_RW);
}

static void close_side(struct side *s)
{
    fake_region_del(&s->host, s->t, s->region);
    fake_close(s->t);
    fake_host_fini(&s->host);
    tei_gpu_free(s->kind, s->memory);
}

static bool is_direct(const struct side *s)
{
    return s->region->direct & 1u << s->t->index;
}

/* Moves n bytes both ways and compares; `at_a`, `at_b`: from where the memories begin. */
static void check_between(struct side *a, struct side *b, struct tei_attach *attach, size_t at_a,
                          size_t at_b, size_t n)
{
    char *put = malloc(n), *got = malloc(n);

    assert_true(put && got);
    for (int opcode = TE_READ; opcode <= TE_WRITE; opcode++) {
        char *from = opcode == TE_READ ? b->memory + at_b : a->memory + at_a;
        char *to = opcode == TE_READ ? a->memory + at_a : b->memory + at_b;

        fill_pattern(put, n, (uint32_t)(n + (size_t)opcode));
        assert_int_equal(tei_mem_copy(from, put, n), 0);
        assert_int_equal(fake_transfer(a->t, attach, opcode, a->memory + at_a, b->memory + at_b, n),
                         0);
        assert_int_equal(tei_mem_copy(got, to, n), 0);
        assert_memory_equal(got, put, n);
    }
    free(put);
    free(got);
}

static size_t n_warnings; /* of memory that is staged */
static char last_warning[1024];

static void count_warnings(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    if (level != TE_LOG_WARN || !strstr(line, "host memory"))
        return;
    n_warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", line);
}

static json_t *buffer_of(struct tei_transport *t, size_t i)
{
    char *text = fake_describe(t);
    json_t *root = json_loads(text, 0, NULL), *b;

    b = json_incref(json_array_get(json_object_get(root, "buffers"), i));
    json_decref(root);
    free(text);
    return b;
}

/* Peers see by the keys that it cannot be reached, and that other memory of the same engine can. */
static void neither_way_of(enum tei_mem_kind kind)
{
    te_request r = {.opcode = TE_READ, .length = 100};
    static char here[4096];
    struct tei_region *more;
    struct tei_attach *attach;
    struct side a, b;
    char why[256];

    open_side(&a, false, kind, 1 << 20, 0, any_way);
    assert_false(is_direct(&a));
    assert_int_equal(a.t->ops.region_add(a.t, a.region), TE_ERR_UNSUPPORTED);
    assert_non_null(strstr(te_errmsg(), "by dma-buf"));
    assert_int_equal(rdma_fabric_count("left0", "mrs"), 0);
    assert_int_equal(rdma_fabric_count("left1", "mrs"), 0);

    open_side(&b, true, kind, 1 << 20, 0, any_way);
    more = fake_region_add(&b.host, b.t, here, sizeof here, TE_REMOTE_RW);
    attach = fake_attach(a.t, b.t);
    r.target_offset = (uintptr_t)b.memory + 5;
    assert_int_equal(a.t->ops.score(a.t, attach, &r), 0);
    a.t->ops.why_not(a.t, attach, &r, why, sizeof why);
    assert_non_null(strstr(why, "no keys"));
    r.target_offset = (uintptr_t)here;
    assert_true(a.t->ops.score(a.t, attach, &r) > 0);
    fake_detach(a.t, attach);
    fake_region_del(&b.host, b.t, more);
    close_side(&b);
    close_side(&a);
}

static void neither_way(void **state)
{
    (void)state;
    nics_take(false, false);
    neither_way_of(TEI_MEM_CUDA);
    neither_way_of(TEI_MEM_ASCEND);
}

static void it_is_said_once(void **state)
{
    struct fake_host h;
    struct tei_transport *t;
    struct tei_region *r[3];
    void *memory;

    (void)state;
    nics_take(false, false);
    assert_int_equal(tei_gpu_open(TEI_MEM_CUDA), 0);
    assert_int_equal(tei_gpu_alloc(TEI_MEM_CUDA, 0, 1 << 20, false, &memory), 0);
    fake_host_init(&h);
    h.topology = topologies[0];
    rdma_fabric_configure(&h.conf);
    t = fake_open(&h, "rdma");
    n_warnings = 0;
    te_log_set_level(TE_LOG_WARN);
    te_log_set_sink(count_warnings, NULL);
    for (size_t i = 0; i < 3; i++)
        r[i] = fake_region_add(&h, t, (char *)memory + i * 4096, 4096, TE_REMOTE_RW);
    te_log_set_sink(NULL, NULL);
    te_log_set_level(TE_LOG_ERROR);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(last_warning, "by its addresses"));
    assert_non_null(strstr(last_warning, "by dma-buf"));
    assert_non_null(strstr(last_warning, "nvidia-peermem"));
    for (size_t i = 0; i < 3; i++)
        fake_region_del(&h, t, r[i]);
    fake_close(t);
    fake_host_fini(&h);
    tei_gpu_free(TEI_MEM_CUDA, memory);
}

static void keys_are_0(void **state)
{
    struct side a;
    json_t *buffer;

    (void)state;
    nics_take(false, false);
    open_side(&a, false, TEI_MEM_CUDA, 1 << 20, 0, any_way);
    buffer = buffer_of(a.t, 0);
    assert_int_equal(json_array_size(json_object_get(buffer, "rkey")), NICS);
    for (size_t i = 0; i < NICS; i++)
        assert_int_equal(json_integer_value(json_array_get(json_object_get(buffer, "rkey"), i)), 0);
    json_decref(buffer);
    close_side(&a);
}

/* All NICs have a region by one way, or none has it. */
static void one_nic_refuses(void **state)
{
    struct side a;

    (void)state;
    nics_take(false, false);
    rdma_fabric_tell("peermem left0 on");
    open_side(&a, false, TEI_MEM_CUDA, 1 << 20, 0, any_way);
    assert_false(is_direct(&a));
    assert_int_equal(rdma_fabric_count("left0", "mrs"), 0);
    close_side(&a);
    tell_each("allow %s reg_dmabuf_mr");
    open_side(&a, false, TEI_MEM_CUDA, 1 << 20, 0, any_way);
    assert_true(is_direct(&a));
    assert_int_equal(rdma_fabric_count("left0", "mrs"), 1);
    assert_int_equal(rdma_fabric_count("left1", "mrs"), 1);
    close_side(&a);
    assert_int_equal(rdma_fabric_count("left0", "mrs"), 0);
}

static void in_chunks(struct tei_conf *c)
{
    rdma_fabric_configure(c);
    c->max_mr_size = 1000003;
}

/* Regions, and chunks of them, that begin and end anywhere. */
static void odd_places(void **state)
{
    static const bool peermem[] = {true, false};

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(peermem); i++) {
        struct tei_attach *attach;
        struct side a, b;

        nics_take(peermem[i], !peermem[i]);
        open_side(&a, false, TEI_MEM_CUDA, 5000011, 12345, in_chunks);
        open_side(&b, true, TEI_MEM_CUDA, 5000011, 777, any_way);
        assert_true(is_direct(&a) && is_direct(&b));
        assert_int_equal(rdma_fabric_count("left0", "mrs"), 5);
        attach = fake_attach(a.t, b.t);
        check_between(&a, &b, attach, 12345, 777, 4987654);
        check_between(&a, &b, attach, 1012347, 3000001, 1);
        check_between(&a, &b, attach, 1012340, 1000001, 1999999);
        fake_detach(a.t, attach);
        close_side(&a);
        close_side(&b);
    }
}

#define GRAIN ((size_t)2 << 20)

/* Two pieces of memory at addresses in a row, as allocators do whose segments grow. */
static CUdeviceptr map_two(void)
{
    const CUmemAllocationProp p = {.type = 1, .location = {1, 0}};
    const CUmemAccessDesc access = {{1, 0}, 3};
    CUmemGenericAllocationHandle piece;
    CUdeviceptr at;
    CUcontext c;

    assert_int_equal(cuDevicePrimaryCtxRetain(&c, 0), 0);
    assert_int_equal(cuCtxPushCurrent_v2(c), 0);
    assert_int_equal(cuMemAddressReserve(&at, 2 * GRAIN, 0, 0, 0), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(cuMemCreate(&piece, GRAIN, &p, 0), 0);
        assert_int_equal(cuMemMap(at + i * GRAIN, GRAIN, 0, piece, 0), 0);
        assert_int_equal(cuMemRelease(piece), 0);
    }
    assert_int_equal(cuMemSetAccess(at, 2 * GRAIN, &access, 1), 0);
    return at;
}

static void unmap_two(CUdeviceptr at)
{
    CUcontext c;

    assert_int_equal(cuMemUnmap(at, 2 * GRAIN), 0);
    assert_int_equal(cuMemAddressFree(at, 2 * GRAIN), 0);
    assert_int_equal(cuCtxPopCurrent_v2(&c), 0);
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), 0);
}

/* A driver that makes no dma-buf over both: then there is none, and no half of a region. */
static void several_mappings(void **state)
{
    struct tei_region *both, *one;
    struct side a;
    CUdeviceptr at;

    (void)state;
    nics_take(false, true);
    open_side(&a, false, TEI_MEM_CUDA, 1 << 20, 0, in_chunks);
    at = map_two();
    both = fake_region_add(&a.host, a.t, (void *)(uintptr_t)at, 2 * GRAIN, TE_REMOTE_RW);
    assert_int_equal(both->kind, TEI_MEM_CUDA);
    assert_false(both->direct);
    fake_region_del(&a.host, a.t, both);
    one = fake_region_add(&a.host, a.t, (void *)(uintptr_t)(at + GRAIN), GRAIN, TE_REMOTE_RW);
    assert_true(one->direct);
    fake_region_del(&a.host, a.t, one);
    close_side(&a);
    assert_int_equal(rdma_fabric_count("left0", "mrs"), 0);
    unmap_two(at);
}

/* Waits until both NICs carry; all that is moved meanwhile must arrive. */
static void check_both_carry(struct side *a, struct side *b, struct tei_attach *attach)
{
    int64_t until = tei_deadline_ns(PATIENCE_MS);
    uint64_t before[NICS] = {rdma_fabric_count("left0", "bytes"),
                             rdma_fabric_count("left1", "bytes")};

    while (rdma_fabric_count("left0", "bytes") == before[0] ||
           rdma_fabric_count("left1", "bytes") == before[1]) {
        assert_true(tei_now_ns() < until);
        check_between(a, b, attach, 0, 0, 3 << 20);
    }
}

static void a_nic_that_is_opened_anew(void **state)
{
    static const bool peermem[] = {true, false};

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(peermem); i++) {
        struct tei_attach *attach;
        struct side a, b;

        nics_take(peermem[i], !peermem[i]);
        open_side(&a, false, TEI_MEM_CUDA, 4 << 20, 0, any_way);
        open_side(&b, true, TEI_MEM_CUDA, 4 << 20, 0, any_way);
        attach = fake_attach(a.t, b.t);
        check_both_carry(&a, &b, attach);
        rdma_fabric_tell("kill left0");
        check_between(&a, &b, attach, 0, 0, 3 << 20);
        rdma_fabric_tell("revive left0");
        check_both_carry(&a, &b, attach);
        fake_detach(a.t, attach);
        close_side(&a);
        close_side(&b);
    }
}

static void count_lost(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    if (level == TE_LOG_WARN && strstr(line, "opened anew"))
        __atomic_fetch_add(&n_warnings, 1, __ATOMIC_RELAXED);
}

static void wait_for_lost(size_t n)
{
    int64_t until = tei_deadline_ns(PATIENCE_MS);

    while (__atomic_load_n(&n_warnings, __ATOMIC_RELAXED) < n) {
        assert_true(tei_now_ns() < until);
        usleep(1000);
    }
}

/*
 * A NIC is opened anew and does not take memory of a GPU again: it carries the host's as before, and
 * that by the other NIC. Once none is left its work fails, and the host's goes on.
 */
static void a_nic_that_does_not_take_it_again(void **state)
{
    static char here[1 << 20], there[1 << 20];
    struct tei_region *more_a, *more_b;
    struct tei_attach *attach;
    struct side a, b, host_a, host_b;
    int64_t until = tei_deadline_ns(PATIENCE_MS);
    uint64_t before;

    (void)state;
    nics_take(true, false);
    open_side(&a, false, TEI_MEM_CUDA, 4 << 20, 0, any_way);
    open_side(&b, true, TEI_MEM_CUDA, 4 << 20, 0, any_way);
    more_a = fake_region_add(&a.host, a.t, here, sizeof here, TE_REMOTE_RW);
    more_b = fake_region_add(&b.host, b.t, there, sizeof there, TE_REMOTE_RW);
    attach = fake_attach(a.t, b.t);
    check_both_carry(&a, &b, attach);
    n_warnings = 0;
    te_log_set_level(TE_LOG_WARN);
    te_log_set_sink(count_lost, NULL);
    rdma_fabric_tell("kill left0");
    check_between(&a, &b, attach, 0, 0, 3 << 20);
    rdma_fabric_tell("peermem left0 off");
    rdma_fabric_tell("revive left0");
    wait_for_lost(1);
    host_a = (struct side){.t = a.t, .memory = here};
    host_b = (struct side){.t = b.t, .memory = there};
    for (before = rdma_fabric_count("left0", "bytes");
         rdma_fabric_count("left0", "bytes") == before;) {
        assert_true(tei_now_ns() < until);
        check_between(&host_a, &host_b, attach, 1, 3, sizeof here - 5);
    }
    before = rdma_fabric_count("left0", "bytes");
    for (int i = 0; i < 20; i++)
        check_between(&a, &b, attach, 0, 0, 3 << 20);
    assert_int_equal(rdma_fabric_count("left0", "bytes"), before);

    rdma_fabric_tell("kill left1");
    rdma_fabric_tell("peermem left1 off");
    rdma_fabric_tell("revive left1");
    wait_for_lost(2);
    assert_int_equal(fake_transfer(a.t, attach, TE_READ, a.memory, b.memory, 100000), TE_ERR_LINK);
    check_between(&host_a, &host_b, attach, 1, 3, sizeof here - 5);
    te_log_set_sink(NULL, NULL);
    te_log_set_level(TE_LOG_ERROR);
    fake_detach(a.t, attach);
    fake_region_del(&a.host, a.t, more_a);
    fake_region_del(&b.host, b.t, more_b);
    close_side(&a);
    close_side(&b);
}

/* The target's NIC does not take it again: peers see that by its keys. */
static void a_peers_nic_that_does_not_take_it_again(void **state)
{
    struct tei_attach *attach;
    struct side a, b;

    (void)state;
    nics_take(true, false);
    open_side(&a, false, TEI_MEM_CUDA, 4 << 20, 0, any_way);
    open_side(&b, true, TEI_MEM_CUDA, 4 << 20, 0, any_way);
    n_warnings = 0;
    te_log_set_level(TE_LOG_WARN);
    te_log_set_sink(count_lost, NULL);
    rdma_fabric_tell("kill right0");
    rdma_fabric_tell("peermem right0 off");
    rdma_fabric_tell("revive right0");
    wait_for_lost(1);
    te_log_set_sink(NULL, NULL);
    te_log_set_level(TE_LOG_ERROR);
    attach = fake_attach(a.t, b.t);
    for (int i = 0; i < 20; i++)
        check_between(&a, &b, attach, 0, 0, 3 << 20);
    fake_detach(a.t, attach);
    close_side(&a);
    close_side(&b);
}

/* Before anything is made: the targets' process has what is there now. */
static void prepare(void)
{
    rdma_fabric_up(NICS, NULL);
    write_topology(topologies[0], "left");
    write_topology(topologies[1], "right");
    fixture.topology[0] = topologies[0];
    fixture.topology[1] = topologies[1];
    pair_prepare();
}

static bool is_simulated(void)
{
    void *at = dlsym(RTLD_DEFAULT, "softgpu_plays");
    bool (*plays)(enum softgpu_kind kind);

    memcpy(&plays, &at, sizeof plays);
    return at && plays(SOFTGPU_CUDA) && plays(SOFTGPU_HIP);
}

/* test_gpu_rdma [PATTERN]: only the cases that match. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_said_once),
        cmocka_unit_test(neither_way),
        cmocka_unit_test(keys_are_0),
        cmocka_unit_test(one_nic_refuses),
        cmocka_unit_test(odd_places),
        cmocka_unit_test(several_mappings),
        cmocka_unit_test(a_nic_that_is_opened_anew),
        cmocka_unit_test(a_nic_that_does_not_take_it_again),
        cmocka_unit_test(a_peers_nic_that_does_not_take_it_again),
    };
    int failed;

    if (!is_simulated()) {
        puts("a driver is real: simulated NICs do not reach memory of real GPUs");
        return 77;
    }
    prepare();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < (PATIENT ? TEI_ARRAY_LEN(variants) : 1); i++)
        failed += run_variant(&variants[i]);
    rdma_fabric_down();
    return failed;
}
