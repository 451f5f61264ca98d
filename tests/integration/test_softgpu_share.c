/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel timeout=60 */
/*
 * softgpu between processes: memory by IPC handle, by descriptor and by fabric handle, and what
 * becomes of it when its owner frees it or is killed; commands by file. The other process is this
 * program, run anew with the word "serve": it does what it is told over a socket.
 */
#include "fabric/softgpu/softcuda.h"
#include "fabric/softgpu/softgpu.h"
#include "child_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_CONTEXT = 201 };
enum { PEER_UNSUPPORTED = 217, NOT_SUPPORTED = 801 };
enum { GRAIN = 2 << 20, BYTES = 5001 };
enum { TYPE_FD = 1, TYPE_FABRIC = 8 };

enum what {
    DO_INIT,
    DO_ALLOC,
    DO_FREE,
    DO_OPEN,
    DO_CLOSE,
    DO_READ,
    DO_WRITE,
    DO_CREATE,
    DO_IMPORT,
    DO_UUID
};

struct request {
    enum what what;
    int type; /* of a handle */
    CUdeviceptr at;
    size_t n;
    uint64_t seed; /* of the bytes to write, or to find */
    char handle[64];
};

struct reply {
    int rc;
    CUdeviceptr at;
    char handle[64];
};

/* ---- the same in both processes */

static CUdeviceptr addr_of(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

static int write_bytes(CUdeviceptr at, size_t n, uint64_t seed)
{
    unsigned char *v = malloc(n);
    int rc;

    fill(v, n, seed);
    rc = cuMemcpy(at, addr_of(v), n);
    free(v);
    return rc;
}

/* 0, a code, or -1: other bytes are there. */
static int find_bytes(CUdeviceptr at, size_t n, uint64_t seed)
{
    unsigned char *v = calloc(1, n);
    int rc = cuMemcpy(addr_of(v), at, n);

    if (rc == 0 && first_difference(v, n, seed) != n)
        rc = -1;
    free(v);
    return rc;
}

static int init(int device)
{
    CUcontext c;
    int rc = cuInit(0);

    if (rc == 0)
        rc = cuDevicePrimaryCtxRetain(&c, device);
    return rc ? rc : cuCtxPushCurrent_v2(c);
}

static int map(CUmemGenericAllocationHandle h, size_t n, CUdeviceptr *out)
{
    const CUmemAccessDesc access = {{1, 0}, 3};
    int rc = cuMemAddressReserve(out, n, 0, 0, 0);

    if (rc == 0)
        rc = cuMemMap(*out, n, 0, h, 0);
    return rc ? rc : cuMemSetAccess(*out, n, &access, 1);
}

static int import(int type, const char handle[64], int fd, CUdeviceptr *out)
{
    CUmemGenericAllocationHandle h;
    char bytes[64];
    int rc;

    memcpy(bytes, handle, sizeof(bytes));
    rc = cuMemImportFromShareableHandle(&h, type == TYPE_FD ? (void *)(intptr_t)fd : (void *)bytes,
                                        type);
    if (rc)
        return rc;
    rc = map(h, GRAIN, out);
    cuMemRelease(h);
    return rc;
}

/* ---- the other process */

static int serve_one(const struct request *q, int fd, struct reply *out)
{
    CUmemAllocationProp p = {.type = 1, .requestedHandleTypes = q->type, .location = {1, 0}};
    static CUmemGenericAllocationHandle h;
    CUipcMemHandle handle;
    int rc;

    memcpy(&handle, q->handle, sizeof(handle));
    switch (q->what) {
    case DO_INIT:
        return init((int)q->at);
    case DO_ALLOC:
        rc = cuMemAlloc_v2(&out->at, q->n);
        return rc ? rc : cuIpcGetMemHandle((CUipcMemHandle *)(void *)out->handle, out->at);
    case DO_FREE:
        return cuMemFree_v2(q->at);
    case DO_OPEN:
        return cuIpcOpenMemHandle_v2(&out->at, handle, 1);
    case DO_CLOSE:
        return cuIpcCloseMemHandle(q->at);
    case DO_READ:
        return find_bytes(q->at, q->n, q->seed);
    case DO_WRITE:
        return write_bytes(q->at, q->n, q->seed);
    case DO_CREATE:
        rc = cuMemCreate(&h, q->n, &p, 0);
        if (rc == 0)
            rc = map(h, q->n, &out->at);
        return rc ? rc : cuMemExportToShareableHandle(out->handle, h, q->type, 0);
    case DO_IMPORT:
        return import(q->type, q->handle, fd, &out->at);
    default:
        return cuDeviceGetUuid_v2((CUuuid *)(void *)out->handle, (int)q->at);
    }
}

/* A message of which a descriptor may be part. */
static bool receive(int sock, void *data, size_t n, int *fd)
{
    char room[CMSG_SPACE(sizeof(int))] = "";
    struct iovec v = {data, n};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    struct cmsghdr *c;

    *fd = -1;
    if (recvmsg(sock, &m, 0) != (ssize_t)n)
        return false;
    c = CMSG_FIRSTHDR(&m);
    if (c)
        memcpy(fd, CMSG_DATA(c), sizeof(*fd));
    return true;
}

static bool give(int sock, const void *data, size_t n, int fd)
{
    char room[CMSG_SPACE(sizeof(int))] = "";
    struct iovec v = {(void *)(uintptr_t)data, n};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

    if (fd >= 0) {
        m.msg_control = room;
        m.msg_controllen = sizeof(room);
        *CMSG_FIRSTHDR(&m) = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof(fd));
    }
    return sendmsg(sock, &m, MSG_NOSIGNAL) == (ssize_t)n;
}

static int serve(void)
{
    struct request q;
    int fd;

    while (receive(0, &q, sizeof(q), &fd)) {
        struct reply r = {0};
        int pass = -1;

        r.rc = serve_one(&q, fd, &r);
        if (q.what == DO_CREATE && q.type == TYPE_FD)
            memcpy(&pass, r.handle, sizeof(pass));
        give(0, &r, sizeof(r), pass);
        if (fd >= 0)
            close(fd);
        if (pass >= 0)
            close(pass);
    }
    return 0;
}

/* ---- this process */

struct other {
    pid_t pid;
    int sock;
};

/* `env`: "NAME=VALUE" more, or NULL. */
static struct other start(const char *env)
{
    struct other o;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    o.sock = pair[0];
    o.pid = fork();
    if (o.pid == 0) {
        if (env)
            putenv((char *)(uintptr_t)env);
        dup2(pair[1], 0);
        execl("/proc/self/exe", "test_softgpu_share", "serve", NULL);
        _exit(127);
    }
    assert_true(o.pid > 0);
    close(pair[1]);
    return o;
}

static void stop(struct other *o)
{
    int status;

    close(o->sock);
    assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
    assert_int_equal(status, 0);
}

static void stop_hard(struct other *o)
{
    kill(o->pid, SIGKILL);
    assert_int_equal(waitpid(o->pid, NULL, 0), o->pid);
    close(o->sock);
}

static struct reply ask_with(const struct other *o, const struct request *q, int fd, int *got)
{
    struct reply r;

    assert_true(give(o->sock, q, sizeof(*q), fd));
    assert_true(receive(o->sock, &r, sizeof(r), got));
    return r;
}

static struct reply ask(const struct other *o, struct request q)
{
    int fd;
    struct reply r = ask_with(o, &q, -1, &fd);

    assert_int_equal(fd, -1);
    return r;
}

static struct other start_on(const char *env, int device)
{
    struct other o = start(env);

    assert_int_equal(ask(&o, (struct request){DO_INIT, .at = (CUdeviceptr)device}).rc, 0);
    return o;
}

static struct request with(enum what what, const void *handle)
{
    struct request q = {.what = what};

    memcpy(q.handle, handle, sizeof(q.handle));
    return q;
}

static int begin(void **state)
{
    (void)state;
    return init(0);
}

static int end(void **state)
{
    (void)state;
    cuCtxPopCurrent_v2(NULL);
    return cuDevicePrimaryCtxRelease_v2(0);
}

/* Opened twice, which is one mapping; written by one side and read by the other. */
static void ipc(void **state)
{
    struct other o = start_on(NULL, 1);
    CUdeviceptr first, mine, base;
    CUipcMemHandle handle;
    struct reply r;
    size_t size;
    int mem_type = 0;

    (void)state;
    assert_int_equal(cuMemAlloc_v2(&first, 100), 0);
    assert_int_equal(cuMemAlloc_v2(&mine, BYTES), 0);
    assert_int_equal(cuIpcGetMemHandle(&handle, mine + 4), 0);
    assert_int_equal(cuIpcOpenMemHandle_v2(&base, handle, 1), INVALID_CONTEXT); /* our own */
    assert_int_equal(write_bytes(mine, BYTES, 7), 0);
    r = ask(&o, with(DO_OPEN, &handle));
    assert_int_equal(r.rc, 0);
    assert_int_equal(ask(&o, (struct request){DO_READ, .at = r.at, .n = BYTES, .seed = 7}).rc, 0);
    assert_int_equal(ask(&o, (struct request){DO_WRITE, .at = r.at, .n = BYTES, .seed = 8}).rc, 0);
    assert_int_equal(find_bytes(mine, BYTES, 8), 0);
    assert_int_equal(ask(&o, (struct request){DO_READ, .at = r.at - 256, .n = 1}).rc,
                     INVALID_VALUE); /* `first` did not come along */
    assert_int_equal(ask(&o, with(DO_OPEN, &handle)).at, r.at);
    assert_int_equal(ask(&o, (struct request){DO_CLOSE, .at = r.at}).rc, 0);
    assert_int_equal(ask(&o, (struct request){DO_READ, .at = r.at, .n = BYTES, .seed = 8}).rc, 0);
    assert_int_equal(ask(&o, (struct request){DO_CLOSE, .at = r.at}).rc, 0);
    assert_int_equal(ask(&o, (struct request){DO_CLOSE, .at = r.at}).rc, INVALID_VALUE);

    r = ask(&o, (struct request){DO_ALLOC, .n = 3 * GRAIN - 5});
    memcpy(&handle, r.handle, sizeof(handle));
    assert_int_equal(cuIpcOpenMemHandle_v2(&base, handle, 0), INVALID_VALUE);
    assert_int_equal(cuIpcOpenMemHandle_v2(&base, handle, 1), 0);
    assert_int_equal(cuPointerGetAttribute(&mem_type, 2, base), 0);
    assert_int_equal(mem_type, 2);
    assert_int_equal(cuPointerGetAttribute(&mem_type, 9, base), 0);
    assert_int_equal(mem_type, 1); /* the other's device */
    assert_int_equal(cuMemGetAddressRange_v2(&first, &size, base + 3), 0);
    assert_int_equal(first, base);
    assert_int_equal(cuIpcGetMemHandle(&handle, base), INVALID_VALUE);
    assert_int_equal(cuMemFree_v2(base), INVALID_VALUE);
    assert_int_equal(write_bytes(base + GRAIN, BYTES, 9), 0);
    assert_int_equal(
        ask(&o, (struct request){DO_READ, .at = r.at + GRAIN, .n = BYTES, .seed = 9}).rc, 0);
    assert_int_equal(softgpu_live(SOFTGPU_CUDA, "ipc"), 1);
    assert_int_equal(cuIpcCloseMemHandle(base), 0);
    assert_int_equal(softgpu_live(SOFTGPU_CUDA, "ipc"), 0);
    stop(&o);
}

static void freed_by_its_owner(void **state)
{
    struct other o = start_on(NULL, 0);
    struct reply r = ask(&o, (struct request){DO_ALLOC, .n = BYTES}), again;
    CUipcMemHandle handle;
    CUdeviceptr p, q;

    (void)state;
    memcpy(&handle, r.handle, sizeof(handle));
    assert_int_equal(cuIpcOpenMemHandle_v2(&p, handle, 1), 0);
    assert_int_equal(write_bytes(p, BYTES, 1), 0);
    assert_int_equal(ask(&o, (struct request){DO_FREE, .at = r.at}).rc, 0);
    assert_int_equal(find_bytes(p, BYTES, 1), 0);
    assert_int_equal(cuIpcOpenMemHandle_v2(&q, handle, 1), INVALID_VALUE);
    again = ask(&o, (struct request){DO_ALLOC, .n = BYTES});
    assert_memory_not_equal(again.handle, r.handle, 64);
    assert_int_equal(cuIpcOpenMemHandle_v2(&q, handle, 1), INVALID_VALUE);
    assert_int_equal(cuIpcCloseMemHandle(p), 0);
    stop(&o);
}

static void killed_owner(void **state)
{
    struct other o = start_on(NULL, 0);
    struct reply r = ask(&o, (struct request){DO_ALLOC, .n = GRAIN});
    CUipcMemHandle handle;
    CUdeviceptr p, q;

    (void)state;
    memcpy(&handle, r.handle, sizeof(handle));
    assert_int_equal(cuIpcOpenMemHandle_v2(&p, handle, 1), 0);
    assert_int_equal(ask(&o, (struct request){DO_WRITE, .at = r.at, .n = BYTES, .seed = 2}).rc, 0);
    stop_hard(&o);
    assert_int_equal(find_bytes(p, BYTES, 2), 0);
    assert_int_equal(write_bytes(p, BYTES, 3), 0);
    assert_int_equal(cuIpcOpenMemHandle_v2(&q, handle, 1), INVALID_VALUE);
    assert_int_equal(cuIpcCloseMemHandle(p), 0);
}

static void garbage(void **state)
{
    CUipcMemHandle handle;
    CUdeviceptr p;

    (void)state;
    for (unsigned seed = 0; seed < 100; seed++) {
        fill(&handle, sizeof(handle), seed);
        assert_int_equal(cuIpcOpenMemHandle_v2(&p, handle, 1), INVALID_VALUE);
    }
    assert_int_equal(cuMemAlloc_v2(&p, 1), 0);
    assert_int_equal(cuIpcGetMemHandle(&handle, p), 0);
    for (int i = 0; i < 64; i++) {
        CUipcMemHandle bad = handle;

        bad.reserved[i] ^= 1;
        assert_int_equal(cuIpcOpenMemHandle_v2(&p, bad, 1), INVALID_VALUE);
    }
    assert_int_equal(import(TYPE_FD, handle.reserved, 0, &p), INVALID_VALUE);
    assert_int_equal(import(TYPE_FABRIC, handle.reserved, 0, &p), INVALID_VALUE);
}

static void other_host(void **state)
{
    struct other o = start_on("SOFTGPU_HOST=elsewhere", 0);
    struct reply r = ask(&o, (struct request){DO_ALLOC, .n = 100});
    CUipcMemHandle handle;
    CUdeviceptr p;
    CUuuid uuid;

    (void)state;
    memcpy(&handle, r.handle, sizeof(handle));
    assert_int_equal(cuIpcOpenMemHandle_v2(&p, handle, 1), INVALID_VALUE);
    assert_int_equal(cuDeviceGetUuid_v2(&uuid, 0), 0);
    assert_memory_not_equal(ask(&o, (struct request){.what = DO_UUID}).handle, &uuid, sizeof(uuid));
    stop(&o);
}

/* Devices are found again by their number of the machine, whatever a process calls them. */
static void visible_devices(void **state)
{
    struct other o = start_on("CUDA_VISIBLE_DEVICES=1", 0);
    struct reply r = ask(&o, (struct request){DO_ALLOC, .n = 100});
    CUipcMemHandle handle;
    CUdeviceptr p;
    CUuuid uuid;
    int ordinal;

    (void)state;
    assert_int_equal(cuDeviceGetUuid_v2(&uuid, 1), 0);
    assert_memory_equal(ask(&o, (struct request){.what = DO_UUID}).handle, &uuid, sizeof(uuid));
    memcpy(&handle, r.handle, sizeof(handle));
    assert_int_equal(cuIpcOpenMemHandle_v2(&p, handle, 1), 0);
    assert_int_equal(cuPointerGetAttribute(&ordinal, 9, p), 0);
    assert_int_equal(ordinal, 1);
    assert_int_equal(cuIpcCloseMemHandle(p), 0);
    stop(&o);
}

static void no_peers(void **state)
{
    struct other o = start_on("SOFTGPU_PEER=0", 1);
    CUipcMemHandle handle;
    CUdeviceptr p;

    (void)state;
    assert_int_equal(cuMemAlloc_v2(&p, 1), 0);
    assert_int_equal(cuIpcGetMemHandle(&handle, p), 0);
    assert_int_equal(ask(&o, with(DO_OPEN, &handle)).rc, PEER_UNSUPPORTED);
    stop(&o);
}

static void by_descriptor(void **state)
{
    struct other o = start_on(NULL, 0);
    struct request q = {DO_CREATE, .type = TYPE_FD, .n = GRAIN};
    CUdeviceptr p;
    struct reply r;
    int fd;

    (void)state;
    r = ask_with(&o, &q, -1, &fd);
    assert_int_equal(r.rc, 0);
    assert_true(fd >= 0);
    assert_int_equal(import(TYPE_FD, r.handle, fd, &p), 0);
    close(fd);
    assert_int_equal(write_bytes(p + 77, BYTES, 4), 0);
    assert_int_equal(ask(&o, (struct request){DO_READ, .at = r.at + 77, .n = BYTES, .seed = 4}).rc,
                     0);
    assert_int_equal(ask(&o, (struct request){DO_WRITE, .at = r.at, .n = BYTES, .seed = 5}).rc, 0);
    stop_hard(&o);
    assert_int_equal(find_bytes(p, BYTES, 5), 0);
    assert_int_equal(cuMemUnmap(p, GRAIN), 0);
    assert_int_equal(cuMemAddressFree(p, GRAIN), 0);
}

static void by_fabric_handle(void **state)
{
    struct other o = start_on("SOFTGPU_HOST=elsewhere", 0);
    struct reply r = ask(&o, (struct request){DO_CREATE, .type = TYPE_FABRIC, .n = GRAIN});
    CUdeviceptr p;

    (void)state;
    assert_int_equal(r.rc, 0);
    assert_int_equal(import(TYPE_FABRIC, r.handle, -1, &p), 0);
    assert_int_equal(write_bytes(p, BYTES, 6), 0);
    assert_int_equal(ask(&o, (struct request){DO_READ, .at = r.at, .n = BYTES, .seed = 6}).rc, 0);
    assert_int_equal(cuMemUnmap(p, GRAIN), 0);
    assert_int_equal(cuMemAddressFree(p, GRAIN), 0);
    stop_hard(&o);
    assert_int_equal(import(TYPE_FABRIC, r.handle, -1, &p), INVALID_VALUE);

    o = start_on("SOFTGPU_FABRIC_ID=another", 0);
    r = ask(&o, (struct request){DO_CREATE, .type = TYPE_FABRIC, .n = GRAIN});
    assert_int_equal(r.rc, 0);
    assert_int_equal(import(TYPE_FABRIC, r.handle, -1, &p), INVALID_VALUE);
    stop(&o);

    o = start_on("SOFTGPU_FABRIC=0", 0);
    assert_int_equal(ask(&o, (struct request){DO_CREATE, .type = TYPE_FABRIC, .n = GRAIN}).rc,
                     NOT_SUPPORTED);
    stop(&o);
}

static void told_from_outside(void **state)
{
    char path[] = "/tmp/softgpu-control-XXXXXX", env[64];
    int fd = mkstemp(path);
    struct other o;

    (void)state;
    o = start("SOFTGPU_FAULTS=fail init error=803");
    assert_int_equal(ask(&o, (struct request){.what = DO_INIT}).rc, 803);
    assert_int_equal(ask(&o, (struct request){.what = DO_INIT}).rc, 0);
    stop(&o);
    o = start("SOFTGPU_DEVICES=0");
    assert_int_equal(ask(&o, (struct request){.what = DO_INIT}).rc, NO_DEVICE);
    stop(&o);

    assert_true(fd >= 0);
    snprintf(env, sizeof(env), "SOFTGPU_CONTROL=%s", path);
    o = start_on(env, 0);
    assert_int_equal(ask(&o, (struct request){DO_ALLOC, .n = 1}).rc, 0);
    assert_int_equal(pwrite(fd, "fail alloc\n", 11, 0), 11);
    assert_int_equal(ask(&o, (struct request){DO_ALLOC, .n = 1}).rc, OUT_OF_MEMORY);
    assert_int_equal(ask(&o, (struct request){DO_ALLOC, .n = 1}).rc, 0);
    stop(&o);
    close(fd);
    unlink(path);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(ipc),
        TEST(freed_by_its_owner),
        TEST(killed_owner),
        TEST(garbage),
        TEST(other_host),
        TEST(visible_devices),
        TEST(no_peers),
        TEST(by_descriptor),
        TEST(by_fabric_handle),
        TEST(told_from_outside),
    };

    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        return serve();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
