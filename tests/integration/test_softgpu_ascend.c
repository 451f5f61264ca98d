/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=60 */
/* softgpu's AscendCL in one process: contexts, memory that the host cannot touch, and what a key is made of. */
#include "fabric/softgpu/softascend.h"
#include "fabric/softgpu/softgpu.h"
#include "touch.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { INVALID = 107000, CONTEXT_NULL = 107002, UNALIGNED = 200003, UNINITIALIZE = 100001 };
enum { REPEAT_INITIALIZE = 100002, NO_PID_CHECK = 1, KEY = 65, PAGE = 2 << 20 };

static void *allocate(size_t n)
{
    void *p = NULL;

    assert_int_equal(aclrtMalloc(&p, n, 0), 0);
    assert_non_null(p);
    return p;
}

static void before_init(void **state)
{
    uint32_t n;

    (void)state;
    assert_int_equal(aclrtGetDeviceCount(&n), UNINITIALIZE);
    assert_int_equal(aclrtSetDevice(0), UNINITIALIZE);
    assert_int_equal(aclInit(NULL), 0);
    assert_int_equal(aclInit(NULL), REPEAT_INITIALIZE);
}

/* Until the thread chooses a device. */
static void *ask_without_context(void *out)
{
    aclrtPtrAttributes a;
    aclrtContext c;
    aclrtStream s;
    aclError *codes = out;
    void *p;

    codes[0] = aclrtMalloc(&p, PAGE, 0);
    codes[1] = aclrtCreateStreamWithConfig(&s, 0, 0);
    codes[2] = aclrtPointerGetAttributes(out, &a);
    codes[3] = aclrtGetCurrentContext(&c);
    return NULL;
}

static void no_context(void **state)
{
    aclError codes[4] = {0};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, ask_without_context, codes), 0);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        assert_int_equal(codes[i], CONTEXT_NULL);
}

static void host_faults(void **state)
{
    char *small, *big;

    (void)state;
    assert_int_equal(aclrtSetDevice(0), 0);
    small = allocate(5000);
    big = allocate(3 * PAGE);
    assert_int_equal(touch(small, false), SIGSEGV);
    assert_int_equal(touch(small, true), SIGSEGV);
    assert_int_equal(touch(big + 3 * PAGE - 1, true), SIGSEGV);
    assert_int_equal(touch(softgpu_alias(big + 7), true), 0);
    assert_int_equal(aclrtFree(small), 0);
    assert_int_equal(aclrtFree(big), 0);
}

/* Of whole pages alone, of all that was allocated, and without a list of processes. */
static void keys(void **state)
{
    char key[KEY] = "";
    char *page = allocate(2 * PAGE), *small[2] = {allocate(4096), allocate(4096)};
    void *base;
    size_t n;

    (void)state;
    assert_int_equal(aclrtIpcMemGetExportKey(page, 2 * PAGE, key, KEY, NO_PID_CHECK), 0);
    assert_true(strlen(key) > 0 && strlen(key) < KEY);
    assert_int_equal(aclrtIpcMemGetExportKey(page, 2 * PAGE, key, KEY - 1, NO_PID_CHECK), INVALID);
    assert_int_equal(aclrtIpcMemGetExportKey(page, PAGE, key, KEY, NO_PID_CHECK), INVALID);
    assert_int_equal(aclrtIpcMemGetExportKey(page, 2 * PAGE, key, KEY, 0), INVALID);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(aclrtMemGetAddressRange(small[i], &base, &n), 0);
        assert_int_equal(aclrtIpcMemGetExportKey(base, n, key, KEY, NO_PID_CHECK), UNALIGNED);
        assert_int_equal(aclrtFree(small[i]), 0);
    }
    assert_int_equal(aclrtFree(page), 0);
    assert_int_equal(softgpu_live(SOFTGPU_ASCEND, "allocs"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_init),
        cmocka_unit_test(no_context),
        cmocka_unit_test(host_faults),
        cmocka_unit_test(keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
