/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel */
/*
 * Memory of an NPU that shares a page with other memory, as the runtime hands it out: no key is made of it, of
 * which one line of the log tells, and it is reached all the same. What te_alloc() gives has pages to itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "child_engine.h"
#include "device_kit.h"
#include "fabric/softgpu/softascend.h"
#include "gpu_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A host with other devices has no such library: there the test is skipped, and has to be loaded for that. */
#pragma weak aclrtSetDevice
#pragma weak aclrtMalloc

#define SMALL ((size_t)40000) /* several to a page */
#define N     3               /* of which the last is te_alloc()'s */

struct offer {
    char name[300];
    uint64_t at[N];
    int warnings[N]; /* so many were there, once it was registered */
};

/* ------------------------------------------------------------------------------------- the target */

static int warnings;

static void count(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    warnings += level == TE_LOG_WARN && strstr(line, "is not shared with peers") != NULL;
}

static void serve(void)
{
    struct offer offer = {0};
    te_engine *e = NULL;
    te_options o;
    void *p = NULL;
    char end;

    loopback_options(&o);
    te_log_set_level(TE_LOG_WARN);
    te_log_set_sink(count, NULL);
    kit_check(te_engine_create(&o, &e) == 0, "an engine");
    te_options_fini(&o);
    kit_check(te_engine_name(e, offer.name, sizeof(offer.name)) == 0, "its name");
    kit_check(tei_gpu_open(TEI_MEM_ASCEND) == 0 && aclrtSetDevice(0) == 0, "a device");
    for (size_t i = 0; i < N; i++) {
        if (i < N - 1)
            kit_check(aclrtMalloc(&p, SMALL, 0) == 0, "memory of the runtime");
        else
            kit_check(te_alloc(e, SMALL, "npu:0", &p) == 0, "memory of the engine");
        kit_check(te_register(e, p, SMALL, NULL, TE_REMOTE_RW) == 0, "registered");
        offer.at[i] = (uintptr_t)p;
        offer.warnings[i] = warnings;
    }
    kit_send(1, &offer, sizeof(offer));
    (void)!read(0, &end, 1); /* serves until its parent is done */
    _exit(0);
}

/* ---------------------------------------------------------------------------------- the initiator */

static void check_moves(te_engine *e, char *local, te_segment seg, uint64_t remote, const char *by)
{
    te_request r = {.opcode = TE_READ,
                    .source = local,
                    .target = seg,
                    .target_offset = remote,
                    .length = SMALL};
    char *bytes = malloc(SMALL), text[4096], taken[64];

    assert_non_null(bytes);
    kit_random(bytes, SMALL);
    assert_int_equal(tei_mem_copy(local, bytes, SMALL), 0);
    moves(e, TE_WRITE, local, seg, remote, SMALL);
    memset(text, 0x5a, sizeof(text));
    assert_int_equal(tei_mem_copy(local, text, sizeof(text)), 0);
    moves(e, TE_READ, local, seg, remote, SMALL);
    kit_expect(local, bytes, SMALL);
    assert_int_equal(te_explain(e, &r, text, sizeof(text)), 0);
    snprintf(taken, sizeof(taken), "transport %s: score", by);
    if (!strstr(text, taken) || strncmp(strstr(strstr(text, taken), ", "), ", taken", 7) != 0)
        fail_msg("not %s: %s", by, text);
    free(bytes);
}

static void a_shared_page(void **state)
{
    static const char *const sources[] = {"cpu:0", "npu:0"};
    struct kit_child c;
    struct offer offer;
    te_engine *e = NULL;
    te_segment seg;
    te_options o;
    void *mine[2];

    (void)state;
    kit_need(&kit_npu, 1);
    if (!kit_plays(&kit_npu))
        skip(); /* what shares a page is the runtime's to say */
    c = kit_child_start("serve", &kit_npu, NULL);
    kit_receive(c.out, &offer, sizeof(offer));
    for (size_t i = 0; i < N; i++)
        assert_int_equal(offer.warnings[i], 1);
    loopback_options(&o);
    assert_int_equal(te_engine_create(&o, &e), 0);
    te_options_fini(&o);
    for (size_t i = 0; i < TEI_ARRAY_LEN(mine); i++) {
        assert_int_equal(te_alloc(e, SMALL, sources[i], &mine[i]), 0);
        assert_int_equal(te_register(e, mine[i], SMALL, NULL, TE_LOCAL_ONLY), 0);
    }
    assert_int_equal(te_open(e, offer.name, &seg), 0);
    for (size_t i = 0; i < TEI_ARRAY_LEN(mine); i++)
        for (size_t k = 0; k < N; k++)
            check_moves(e, mine[i], seg, offer.at[k], k < N - 1 ? "tcp" : "ascend");
    for (size_t i = 0; i < TEI_ARRAY_LEN(mine); i++) {
        assert_int_equal(te_unregister(e, mine[i]), 0);
        assert_int_equal(te_free(e, mine[i]), 0);
    }
    te_engine_destroy(e);
    kit_child_end(&c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_shared_page)};
    const struct device_kit *kit;
    const char *mode;

    if (kit_is_child(argc, argv, &mode, &kit))
        serve();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
