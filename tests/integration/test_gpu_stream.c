/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=120 */
/*
 * te_submit_opts.after and .then by streams of devices: what a stream computes is sent when it is done, and what is
 * computed next waits until it has come. The stream's work is held up by a word of pinned memory that the test
 * writes, so that a request that is begun too early moves other bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "draw.h"
#include "gpu_rig.h"
#include "patience.h"

#include "plat/plat.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define N     ((size_t)1 << 20)
#define PAGE  4096
#define STUCK UINT32_MAX / 2 /* later than all values that the word has */

/* The calls of CUDA and HIP that the tests make, and a stream. */
struct device {
    const char *location;
    int (*stream_sync)(void *stream);
    int (*stream_query)(void *stream);
    int (*stream_destroy)(void *stream);
    int (*unpin)(void *addr);
    int (*cu_wait)(void *stream, unsigned long long word, unsigned value, unsigned flags);
    int (*hip_wait)(void *stream, void *word, unsigned value, unsigned flags, unsigned mask);
    int (*cu_set)(unsigned long long to, unsigned char byte, size_t n, void *stream);
    int (*hip_set)(void *to, int byte, size_t n, void *stream);
    int (*cu_copy)(unsigned long long to, unsigned long long from, size_t n, void *stream);
    int (*hip_copy)(void *to, const void *from, size_t n, int kind, void *stream);
    void *stream;
    _Atomic uint32_t *word;
    uint32_t value; /* of the word that comes next */
    te_engine *a, *b;
    te_segment seg;
    char *dev;           /* of a, on the device */
    void *aside;         /* as much there, that the engine does not move */
    unsigned char *far;  /* of b, host memory, and the segment's */
    unsigned char *host; /* of a */
};

#define FIND(to, name)                         \
    do {                                       \
        void *at_ = dlsym(RTLD_DEFAULT, name); \
        assert_non_null(at_);                  \
        memcpy(&(to), &at_, sizeof(to));       \
    } while (0)

static void find_cuda(struct device *d)
{
    int (*find)(int *out, int ordinal), (*retain)(void **out, int device), (*push)(void *context);
    int (*create)(void **out, unsigned flags), (*pin)(void *addr, size_t n, unsigned flags), number;
    void *context;

    FIND(find, "cuDeviceGet");
    FIND(retain, "cuDevicePrimaryCtxRetain");
    FIND(push, "cuCtxPushCurrent_v2");
    FIND(create, "cuStreamCreate");
    FIND(pin, "cuMemHostRegister_v2");
    FIND(d->unpin, "cuMemHostUnregister");
    FIND(d->stream_sync, "cuStreamSynchronize");
    FIND(d->stream_query, "cuStreamQuery");
    FIND(d->stream_destroy, "cuStreamDestroy_v2");
    FIND(d->cu_wait, "cuStreamWaitValue32_v2");
    FIND(d->cu_set, "cuMemsetD8Async");
    FIND(d->cu_copy, "cuMemcpyAsync");
    assert_int_equal(find(&number, 0), 0);
    assert_int_equal(retain(&context, number), 0);
    assert_int_equal(push(context), 0);
    assert_int_equal(create(&d->stream, 1), 0);
    assert_int_equal(pin((void *)d->word, PAGE, 1), 0);
}

static void find_hip(struct device *d)
{
    int (*set)(int device), (*create)(void **out, unsigned flags);
    int (*pin)(void *addr, size_t n, unsigned flags);

    FIND(set, "hipSetDevice");
    FIND(create, "hipStreamCreateWithFlags");
    FIND(pin, "hipHostRegister");
    FIND(d->unpin, "hipHostUnregister");
    FIND(d->stream_sync, "hipStreamSynchronize");
    FIND(d->stream_query, "hipStreamQuery");
    FIND(d->stream_destroy, "hipStreamDestroy");
    FIND(d->hip_wait, "hipStreamWaitValue32");
    FIND(d->hip_set, "hipMemsetAsync");
    FIND(d->hip_copy, "hipMemcpyAsync");
    assert_int_equal(set(0), 0);
    assert_int_equal(create(&d->stream, 1), 0);
    assert_int_equal(pin((void *)d->word, PAGE, 1), 0);
}

static void *memory(te_engine *e, const char *location)
{
    void *p;

    if (te_alloc(e, N, location, &p))
        fail_msg("%s", te_errmsg());
    assert_int_equal(te_register(e, p, N, NULL, TE_REMOTE_RW), 0);
    return p;
}

/* Skips the test where there is no such device. */
static void bring_up(struct device *d, const char *location, const char *option)
{
    char name[300];
    void *p;

    *d = (struct device){.location = location, .value = 1};
    d->a = make_engine(option);
    d->b = make_engine(option);
    if (te_alloc(d->a, N, location, &p)) {
        te_engine_destroy(d->a);
        te_engine_destroy(d->b);
        skip();
    }
    assert_int_equal(te_free(d->a, p), 0);
    d->word = aligned_alloc(PAGE, PAGE);
    assert_non_null(d->word);
    atomic_store(d->word, 0);
    if (location[0] == 'c')
        find_cuda(d);
    else
        find_hip(d);
    d->dev = memory(d->a, location);
    assert_int_equal(te_alloc(d->a, N, location, &d->aside), 0);
    d->host = memory(d->a, NULL);
    d->far = memory(d->b, NULL);
    assert_int_equal(te_engine_name(d->b, name, sizeof(name)), 0);
    assert_int_equal(te_open(d->a, name, &d->seg), 0);
}

static void take_down(struct device *d)
{
    atomic_store(d->word, STUCK);
    assert_int_equal(d->stream_sync(d->stream), 0);
    assert_int_equal(d->stream_destroy(d->stream), 0);
    assert_int_equal(d->unpin((void *)d->word), 0);
    free((void *)d->word);
    if (d->a)
        te_engine_destroy(d->a);
    te_engine_destroy(d->b);
}

/* What the stream has to do next waits until let_go(). */
static void hold_stream(struct device *d)
{
    uint32_t value = d->value++;

    if (d->cu_wait)
        assert_int_equal(d->cu_wait(d->stream, (uintptr_t)d->word, value, 0), 0);
    else
        assert_int_equal(d->hip_wait(d->stream, (void *)d->word, value, 0, UINT32_MAX), 0);
}

static void let_go(struct device *d)
{
    atomic_store(d->word, d->value - 1);
}

static void fill(struct device *d, int byte, size_t n)
{
    if (d->cu_set)
        assert_int_equal(d->cu_set((uintptr_t)d->dev, (unsigned char)byte, n, d->stream), 0);
    else
        assert_int_equal(d->hip_set(d->dev, byte, n, d->stream), 0);
}

/* Not to the host: a copy to memory that is not pinned returns only when the stream has got there. */
static void copy_aside(struct device *d)
{
    if (d->cu_copy)
        assert_int_equal(d->cu_copy((uintptr_t)d->aside, (uintptr_t)d->dev, N, d->stream), 0);
    else
        assert_int_equal(d->hip_copy(d->aside, d->dev, N, 4, d->stream), 0);
}

static bool is_all(const unsigned char *p, int byte, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != byte)
            return false;
    return true;
}

static te_stream stream_of(const struct device *d)
{
    return (te_stream){.size = sizeof(te_stream), .location = d->location, .stream = d->stream};
}

static te_batch submit(const struct device *d, int opcode, void *near, size_t n,
                       const te_submit_opts *opts)
{
    te_request r = {.opcode = opcode,
                    .source = near,
                    .target = d->seg,
                    .target_offset = (uintptr_t)d->far,
                    .length = n};
    te_batch b;

    assert_int_equal(te_batch_alloc(d->a, 1, &b), 0);
    if (te_submit(d->a, b, &r, 1, opts))
        fail_msg("%s", te_errmsg());
    return b;
}

static int state_of(const struct device *d, te_batch b)
{
    struct te_status st;

    assert_int_equal(te_status(d->a, b, 0, &st), 0);
    return st.state;
}

static void ends(const struct device *d, te_batch b, int state)
{
    char why[512];

    assert_int_equal(te_wait(d->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_status_msg(d->a, b, 0, why, sizeof(why)), 0);
    if (state_of(d, b) != state)
        fail_msg("state %d: %s", state_of(d, b), why);
    assert_int_equal(te_batch_free(d->a, b), 0);
}

/* ------------------------------------------------------------------------------------------ order */

/* What the stream writes is sent, neither what was there before nor what it writes next. */
static void layer_by_layer(struct device *d)
{
    te_stream s = stream_of(d);
    te_submit_opts opts = {.size = sizeof(opts), .after = &s, .then = &s};

    fill(d, 255, N);
    for (int layer = 1; layer < 24; layer++) {
        size_t n = 1 + draw(N);
        te_batch b;

        memset(d->far, 254, N);
        hold_stream(d);
        fill(d, layer, n);
        b = submit(d, TE_WRITE, d->dev, n, &opts);
        fill(d, 253, N);
        assert_int_equal(state_of(d, b), TE_PENDING);
        assert_true(is_all(d->far, 254, N));
        let_go(d);
        ends(d, b, TE_COMPLETED);
        assert_true(is_all(d->far, layer, n));
        assert_true(is_all(d->far + n, 254, N - n));
        assert_int_equal(d->stream_sync(d->stream), 0);
    }
}

/* What comes is there when the stream goes on, which it does not before; host memory is the same. */
static void stream_waits(struct device *d)
{
    te_stream s = stream_of(d), ready = {.size = sizeof(ready), .fd = eventfd(0, EFD_CLOEXEC)};
    te_submit_opts opts = {.size = sizeof(opts), .after = &ready, .then = &s};

    for (int round = 1; round < 16; round++) {
        te_batch b, c;

        fill(d, 0, N);
        assert_int_equal(d->stream_sync(d->stream), 0);
        memset(d->far, round, N);
        memset(d->host, 0, N);
        b = submit(d, TE_READ, d->dev, N, &opts);
        copy_aside(d);
        c = submit(d, TE_READ, d->dev, N, NULL);
        ends(d, c, TE_COMPLETED);
        assert_int_equal(d->stream_query(d->stream), 600);
        memset(d->far, 100 + round, N);
        assert_int_equal(eventfd_write(ready.fd, 1), 0);
        assert_int_equal(d->stream_sync(d->stream), 0);
        assert_int_equal(tei_mem_copy(d->host, d->aside, N), 0);
        assert_true(is_all(d->host, 100 + round, N));
        ends(d, b, TE_COMPLETED);
        assert_int_equal(eventfd_read(ready.fd, &(eventfd_t){0}), 0);
    }
    close(ready.fd);
}

/* Nothing that was submitted to the stream: nothing waits. */
static void idle_stream(struct device *d)
{
    te_stream s = stream_of(d);
    te_submit_opts opts = {.size = sizeof(opts), .after = &s};

    assert_int_equal(d->stream_sync(d->stream), 0);
    memset(d->host, 7, N);
    ends(d, submit(d, TE_WRITE, d->host, N, &opts), TE_COMPLETED);
    assert_true(is_all(d->far, 7, N));
}

/* ------------------------------------------------------------------------------------- other ends */

/* The stream never gets there; whoever waits for the requests goes on. */
static void deadline_and_cancel(struct device *d)
{
    te_stream s = stream_of(d), over = {.size = sizeof(over), .fd = eventfd(0, EFD_CLOEXEC)};
    te_submit_opts late = {.size = sizeof(late), .deadline_ms = 20, .after = &s, .then = &over},
                   opts = {.size = sizeof(opts), .after = &s, .then = &over};
    te_batch b, c;
    eventfd_t n;

    memset(d->far, 1, N);
    hold_stream(d);
    b = submit(d, TE_WRITE, d->host, N, &late);
    c = submit(d, TE_WRITE, d->host, N, &opts);
    ends(d, b, TE_TIMEOUT);
    assert_int_equal(eventfd_read(over.fd, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(te_unregister(d->a, d->host), TE_ERR_BUSY);
    assert_int_equal(te_cancel(d->a, c), 0);
    ends(d, c, TE_CANCELED);
    assert_int_equal(eventfd_read(over.fd, &n), 0);
    assert_int_equal(n, 1);
    let_go(d);
    assert_int_equal(d->stream_sync(d->stream), 0);
    assert_true(is_all(d->far, 1, N));
    close(over.fd);
}

/* A request that fails lets the stream go on, and so does a call that is refused. */
static void failure_goes_on(struct device *d)
{
    te_stream s = stream_of(d), ready = {.size = sizeof(ready), .fd = eventfd(0, EFD_CLOEXEC)};
    te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = 20, .after = &ready, .then = &s};
    te_request outside = {TE_WRITE, d->host + N, d->seg, (uintptr_t)d->far, N};
    te_batch b = submit(d, TE_READ, d->host, N, &opts);

    assert_int_equal(d->stream_sync(d->stream), 0);
    assert_int_equal(state_of(d, b), TE_TIMEOUT);
    ends(d, b, TE_TIMEOUT);
    assert_int_equal(te_batch_alloc(d->a, 1, &b), 0);
    assert_int_equal(te_submit(d->a, b, &outside, 1, &opts), TE_ERR_NOT_REGISTERED);
    assert_int_equal(te_batch_free(d->a, b), 0);
    assert_int_equal(d->stream_sync(d->stream), 0);
    close(ready.fd);
}

static void *destroy(void *engine)
{
    te_engine_destroy(engine);
    return NULL;
}

/* Its requests end while the stream stands still; the engine may then have memory that the driver has to wait for. */
static void destroyed(struct device *d)
{
    te_stream s = stream_of(d), over = {.size = sizeof(over), .fd = eventfd(0, EFD_CLOEXEC)};
    te_submit_opts opts = {.size = sizeof(opts), .after = &s, .then = &over};
    eventfd_t n = 0, sum = 0;
    pthread_t thread;

    hold_stream(d);
    (void)submit(d, TE_WRITE, d->host, N, &opts);
    (void)submit(d, TE_WRITE, d->host, N, &opts);
    assert_int_equal(pthread_create(&thread, NULL, destroy, d->a), 0);
    for (; sum < 2; sum += n)
        assert_int_equal(eventfd_read(over.fd, &n), 0);
    assert_int_equal(sum, 2);
    let_go(d);
    assert_int_equal(pthread_join(thread, NULL), 0);
    d->a = NULL;
    close(over.fd);
}

/* -------------------------------------------------------------------------------------- refused */

static void is_refused(const struct device *d, const te_stream *after, const te_stream *then,
                       int error, const char *says)
{
    te_submit_opts opts = {.size = sizeof(opts), .after = after, .then = then};
    te_request r = {TE_WRITE, d->host, d->seg, (uintptr_t)d->far, N};
    te_batch b;

    assert_int_equal(te_batch_alloc(d->a, 1, &b), 0);
    assert_int_equal(te_submit(d->a, b, &r, 1, &opts), error);
    if (!strstr(te_errmsg(), says))
        fail_msg("%s", te_errmsg());
    assert_int_equal(te_batch_free(d->a, b), 0);
}

static void refused(struct device *d)
{
    te_stream host = stream_of(d), other = host, large = host, npu = host, wrong = host;

    host.location = "cpu:0";
    other.location = d->location[0] == 'c' ? "cuda:63" : "hip:63";
    large.location = d->location[0] == 'c' ? "cuda:4294967296" : "hip:4294967296";
    npu.location = "npu:0";
    wrong.stream = d;
    is_refused(d, &host, NULL, TE_ERR_UNSUPPORTED, "no device that has streams");
    is_refused(d, NULL, &host, TE_ERR_UNSUPPORTED, "no device that has streams");
    is_refused(d, &other, NULL, TE_ERR_NO_DEVICE, "there is no");
    is_refused(d, NULL, &other, TE_ERR_NO_DEVICE, "there is no");
    is_refused(d, &large, NULL, TE_ERR_INVALID, large.location);
    is_refused(d, NULL, &large, TE_ERR_INVALID, large.location);
    if (!soft_control("clear"))
        return; /* a driver may follow a pointer that is wrong */
    is_refused(d, &wrong, NULL, TE_ERR_CONTEXT, "stream");
    is_refused(d, NULL, &wrong, TE_ERR_CONTEXT, "stream");
    is_refused(d, NULL, &npu, TE_ERR_UNSUPPORTED, "cannot wait for the host");
}

/* Work of the stream that fails ends what waits for it; the device does nothing any more afterwards. */
static void work_fails(struct device *d)
{
    te_stream s = stream_of(d);
    te_submit_opts opts = {.size = sizeof(opts), .after = &s};
    te_batch b;
    char why[512];

    if (!soft_control(d->location[0] == 'c' ? "fail copy async=1 kind=cuda"
                                            : "fail copy async=1 kind=hip"))
        return;
    hold_stream(d);
    fill(d, 1, N);
    b = submit(d, TE_WRITE, d->host, N, &opts);
    let_go(d);
    assert_int_equal(te_wait(d->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_status_msg(d->a, b, 0, why, sizeof(why)), 0);
    assert_non_null(strstr(why, "work of a stream"));
    ends(d, b, TE_FAILED);
}

static void in_order(const char *location, const char *option)
{
    struct device d;

    bring_up(&d, location, option);
    layer_by_layer(&d);
    stream_waits(&d);
    idle_stream(&d);
    deadline_and_cancel(&d);
    failure_goes_on(&d);
    refused(&d);
    destroyed(&d);
    take_down(&d);
}

static void cuda_host(void **state)
{
    (void)state;
    in_order("cuda:0", NULL);
}

static void cuda_tcp(void **state)
{
    (void)state;
    in_order("cuda:0", "TE_HOST_PATH=0");
}

static void hip_host(void **state)
{
    (void)state;
    in_order("hip:0", NULL);
}

static void hip_tcp(void **state)
{
    (void)state;
    in_order("hip:0", "TE_HOST_PATH=0");
}

/* The last: what the device was is over. */
static void failing(void **state)
{
    struct device d;

    (void)state;
    bring_up(&d, "cuda:0", NULL);
    work_fails(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cuda_host), cmocka_unit_test(cuda_tcp),
                                       cmocka_unit_test(hip_host), cmocka_unit_test(hip_tcp),
                                       cmocka_unit_test(failing)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
