/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a GPU in a process without its driver, mostly on a host without cuFile: it is refused,
 * for the core to copy it, and files work as before.
 */
#include "file_rig.h"

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static size_t n_lines;

static void count(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    n_lines += level == TE_LOG_INFO && strstr(line, "goes through host memory");
    assert_true(level < TE_LOG_WARN);
}

static void refused(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    struct tei_region gpu = {
        .addr = 1 << 20, .length = 1 << 20, .location = "cuda:0", .kind = TEI_MEM_CUDA};
    struct tei_attach *a;

    (void)state;
    n_lines = 0;
    te_log_set_sink(count, NULL);
    te_log_set_level(TE_LOG_INFO);
    for (int i = 0; i < 3; i++)
        assert_int_equal(r->t->ops.region_add(r->t, &gpu), TE_ERR_UNSUPPORTED);
    te_log_set_level(TE_LOG_ERROR);
    te_log_set_sink(NULL, NULL);
    assert_int_equal(n_lines, 1);
    assert_null(gpu.keys[r->t->index]);
    assert_int_equal(r->t->ops.region_del(r->t, &gpu), 0);
    file_rig_make(r, "file", 1 << 20);
    a = file_rig_attach(r, file_rig_path(r, "file"), 1 << 20);
    assert_int_equal(file_rig_move(r, a, TE_WRITE, r->memory, 5, 100000).error, 0);
    fake_detach(r->t, a);
    file_rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused)};

    return FILE_RIG_RUN(tests);
}
