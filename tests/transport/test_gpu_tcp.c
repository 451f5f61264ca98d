/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te-test: timeout=240
 *
 * What every REMOTE transport must do, with a target whose memory is of a device: all framings, CUDA's
 * devices and HIP's, and of each kind the first device and the last; of other makers a few cases.
 *
 * test_gpu_tcp [PATTERN]: only the cases that match.
 */
#include "conformance.h"
#include "plat/plat.h"

#include <stdio.h>

static void native(struct tei_conf *c)
{
    c->tcp_native = true;
}

static void with_sums(struct tei_conf *c)
{
    c->tcp_crc32c = true;
}

static void version_2(struct tei_conf *c)
{
    c->tcp_native = false;
}

static void version_1(struct tei_conf *c)
{
    c->tcp_force_v1 = true;
}

struct variant {
    const char *name;
    void (*configure)(struct tei_conf *c);
    enum tei_mem_kind kind;
    bool last, mute;
};

static const struct variant variants[] = {
    {"native, cuda, first", native, TEI_MEM_CUDA, false, false},
    {"native, hip, last", native, TEI_MEM_HIP, true, false},
    {"checksums, hip, first", with_sums, TEI_MEM_HIP, false, false},
    {"checksums, cuda, last", with_sums, TEI_MEM_CUDA, true, false},
    {"version 2, cuda, last", version_2, TEI_MEM_CUDA, true, false},
    {"version 2, hip, first", version_2, TEI_MEM_HIP, false, false},
    {"version 1, hip, last", version_1, TEI_MEM_HIP, true, true},
    {"version 1, cuda, first", version_1, TEI_MEM_CUDA, false, true},
};

/* One kind of device for each framing, since all take minutes: the other one where a sanitizer looks. */
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

/* A runtime of its own, and one that is another's under other names. */
static const struct variant other_makers[] = {
    {"native, npu, last", native, TEI_MEM_ASCEND, true, false},
    {"native, musa, first", native, TEI_MEM_MUSA, false, false},
};

static struct conformance fixture = {.transport = "tcp"};
CONFORMANCE_REMOTE(fixture)

/* Whether there is such a device. */
static bool use(const struct variant *v)
{
    if (tei_gpu_open(v->kind)) {
        printf("%s: left out: %s\n", v->name, te_errmsg());
        return false;
    }
    fixture.configure = v->configure;
    fixture.mute = v->mute;
    fixture.kind[TARGET] = v->kind;
    fixture.device[TARGET] = v->last ? tei_gpu_count(v->kind) - 1 : 0;
    return true;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {CONFORMANCE_REMOTE_TESTS};
    const struct CMUnitTest few[] = {cmocka_unit_test(sizes), cmocka_unit_test(other_process)};
    int failed = 0, run = 0;

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    pair_prepare();
    for (size_t i = FIRST; i < TEI_ARRAY_LEN(variants); i += STEP) {
        if (!use(&variants[i]))
            continue;
        failed += cmocka_run_group_tests_name(variants[i].name, tests, NULL, NULL);
        run++;
    }
    for (size_t i = 0; i < TEI_ARRAY_LEN(other_makers); i++) {
        if (!use(&other_makers[i]))
            continue;
        failed += cmocka_run_group_tests_name(other_makers[i].name, few, NULL, NULL);
        run++;
    }
    return run ? failed : 77;
}
