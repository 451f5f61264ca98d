/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: timeout=120 */
/*
 * Transfers through the native API: bytes, states, batches, rights, cancel, deadline, event fd,
 * notifications.
 */
#include "child_engine.h"
#include "pair.h"
#include "patience.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* Between the beginnings of both memories. */
static te_request from_the_start(const struct pair *p, int opcode, uint64_t length)
{
    return (te_request){opcode, p->am, p->seg, (uintptr_t)p->bm, length};
}

static void sizes_both_ways(void **state)
{
    static const size_t sizes[] = {1, 7, 4095, 4096, 65535, 65537, 1048577, 4194303, 5242881};
    struct pair *p = *state;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t n = sizes[i], at = i * 13 + 1;
        struct te_status st;

        fill(p->am + at, n, 100 + i);
        st = transfer(p->a, TE_WRITE, p->am + at, p->seg, p->bm + 2 * at, n);
        assert_int_equal(st.state, TE_COMPLETED);
        assert_int_equal(st.bytes, n);
        assert_int_equal(first_difference(p->bm + 2 * at, n, 100 + i), n);
        fill(p->bm + at, n, 200 + i);
        st = transfer(p->a, TE_READ, p->am + 3 * at, p->seg, p->bm + at, n);
        assert_int_equal(st.state, TE_COMPLETED);
        assert_int_equal(first_difference(p->am + 3 * at, n, 200 + i), n);
    }
}

static void own_segment_is_a_copy(void **state)
{
    struct pair *p = *state;
    char name[300];
    te_segment self;
    struct te_status st;

    assert_int_equal(te_engine_name(p->a, name, sizeof(name)), 0);
    assert_int_equal(te_open(p->a, name, &self), 0);
    assert_int_equal(self, TE_LOCAL_SEGMENT);
    fill(p->am, 3000001, 5);
    st = transfer(p->a, TE_WRITE, p->am, TE_LOCAL_SEGMENT, p->am + 4000003, 3000001);
    assert_int_equal(st.state, TE_COMPLETED);
    assert_int_equal(first_difference(p->am + 4000003, 3000001, 5), 3000001);
    st = transfer(p->a, TE_READ, p->am, TE_LOCAL_SEGMENT, p->am + 4000003, 100);
    assert_int_equal(st.state, TE_COMPLETED);
}

static void zero_length_completes(void **state)
{
    struct pair *p = *state;
    struct te_status st = transfer(p->a, TE_READ, p->am, p->seg, p->bm, 0);

    assert_int_equal(st.state, TE_COMPLETED);
    assert_int_equal(st.bytes, 0);
}

static void target_over_adjacent_buffers(void **state)
{
    struct pair *p = *state;
    unsigned char *m = map_pages(3 << 20);
    struct te_status st;

    /*
     * Three buffers without a gap between them; the request begins in the first and ends in the
     * last.
     */
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(te_register(p->b, m + (i << 20), 1 << 20, "*", TE_REMOTE_RW), 0);
    fill(p->am, 2500000, 9);
    st = transfer(p->a, TE_WRITE, p->am, p->seg, m + 123456, 2500000);
    assert_int_equal(st.state, TE_COMPLETED);
    assert_int_equal(first_difference(m + 123456, 2500000, 9), 2500000);
    /* With the middle one gone it is refused, though the asker's descriptor still shows it. */
    assert_int_equal(te_unregister(p->b, m + (1 << 20)), 0);
    st = transfer(p->a, TE_WRITE, p->am, p->seg, m + 123456, 2500000);
    assert_int_equal(st.state, TE_INVALID);
    assert_int_equal(te_unregister(p->b, m), 0);
    assert_int_equal(te_unregister(p->b, m + (2 << 20)), 0);
    munmap(m, 3 << 20);
}

static void late_registration_is_found(void **state)
{
    struct pair *p = *state;
    unsigned char *m = map_pages(1 << 20);
    struct te_status st = transfer(p->a, TE_READ, p->am, p->seg, m, 1 << 20);

    assert_int_equal(st.state, TE_INVALID);
    assert_int_equal(st.error, TE_ERR_STALE);
    fill(m, 1 << 20, 77);
    assert_int_equal(te_register(p->b, m, 1 << 20, "*", TE_REMOTE_RW), 0);
    st = transfer(p->a, TE_READ, p->am, p->seg, m, 1 << 20);
    assert_int_equal(st.state, TE_COMPLETED);
    assert_int_equal(first_difference(p->am, 1 << 20, 77), 1 << 20);
    assert_int_equal(te_unregister(p->b, m), 0);
    munmap(m, 1 << 20);
}

static void rights_are_kept(void **state)
{
    struct pair *p = *state;
    unsigned char *m = map_pages(3 * 4096);
    struct te_status st;

    assert_int_equal(te_register(p->b, m, 4096, "*", TE_REMOTE_READ), 0);
    assert_int_equal(te_register(p->b, m + 4096, 4096, "*", TE_REMOTE_WRITE), 0);
    assert_int_equal(te_register(p->b, m + 8192, 4096, "*", TE_LOCAL_ONLY), 0);
    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, m, 4096).state, TE_COMPLETED);
    st = transfer(p->a, TE_WRITE, p->am, p->seg, m, 4096);
    assert_int_equal(st.state, TE_INVALID);
    assert_int_equal(st.error, TE_ERR_ACCESS);
    assert_int_equal(transfer(p->a, TE_WRITE, p->am, p->seg, m + 4096, 4096).state, TE_COMPLETED);
    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, m + 4096, 4096).state, TE_INVALID);
    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, m + 8192, 1).state, TE_INVALID);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(te_unregister(p->b, m + i * 4096), 0);
    munmap(m, 3 * 4096);
}

static void submit_is_all_or_nothing(void **state)
{
    struct pair *p = *state;
    te_request r[3];
    te_batch b;
    struct te_status st;

    for (size_t i = 0; i < 3; i++)
        r[i] = (te_request){.opcode = TE_WRITE,
                            .source = p->am + i * 64,
                            .target = p->seg,
                            .target_offset = (uintptr_t)p->bm + i * 64,
                            .length = 64};
    fill(p->bm, 192, 3);
    fill(p->am, 192, 4);
    assert_int_equal(te_batch_alloc(p->a, 3, &b), 0);
    r[2].source = p->bm;
    assert_int_equal(te_submit(p->a, b, r, 3, NULL), TE_ERR_NOT_REGISTERED);
    assert_non_null(strstr(te_errmsg(), "te_register"));
    r[2].source = p->am + 128;
    r[2].opcode = 7;
    assert_int_equal(te_submit(p->a, b, r, 3, NULL), TE_ERR_INVALID);
    r[2].opcode = TE_WRITE;
    r[2].target = 999;
    assert_int_equal(te_submit(p->a, b, r, 3, NULL), TE_ERR_NOT_FOUND);
    r[2].target = p->seg;
    r[2].target_offset = UINT64_MAX - 3;
    assert_int_equal(te_submit(p->a, b, r, 3, NULL), TE_ERR_INVALID);
    assert_int_equal(te_status(p->a, b, 0, &st), TE_ERR_INVALID);
    assert_int_equal(first_difference(p->bm, 192, 3), 192);
    r[2].target_offset = (uintptr_t)p->bm + 128;
    assert_int_equal(te_submit(p->a, b, r, 3, NULL), 0);
    assert_int_equal(te_submit(p->a, b, r, 1, NULL), TE_ERR_TOO_MANY);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_status(p->a, b, &st), 0);
    assert_int_equal(st.state, TE_COMPLETED);
    assert_int_equal(st.bytes, 192);
    assert_int_equal(first_difference(p->bm, 192, 4), 192);
    assert_int_equal(te_batch_free(p->a, b), 0);
}

static void dead_ids_are_safe(void **state)
{
    struct pair *p = *state;
    te_batch mine, other, bad[5];
    struct te_status st;
    te_request r = from_the_start(p, TE_READ, 8);
    char text[8];

    assert_int_equal(te_batch_alloc(p->a, 1, &mine), 0);
    assert_int_equal(te_batch_alloc(p->b, 1, &other), 0);
    assert_true(mine != 0 && mine >> 63 == 0);
    assert_int_equal(te_batch_free(p->a, mine), 0);
    bad[0] = mine;
    bad[1] = other;
    bad[2] = TE_INVALID_BATCH;
    bad[3] = 0;
    bad[4] = (uintptr_t)p->am;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(te_submit(p->a, bad[i], &r, 1, NULL), TE_ERR_NOT_FOUND);
        assert_int_equal(te_status(p->a, bad[i], 0, &st), TE_ERR_NOT_FOUND);
        assert_int_equal(te_batch_status(p->a, bad[i], &st), TE_ERR_NOT_FOUND);
        assert_int_equal(te_status_msg(p->a, bad[i], 0, text, sizeof(text)), TE_ERR_NOT_FOUND);
        assert_int_equal(te_wait(p->a, bad[i], 0), TE_ERR_NOT_FOUND);
        assert_int_equal(te_cancel(p->a, bad[i]), TE_ERR_NOT_FOUND);
        assert_int_equal(te_batch_free(p->a, bad[i]), TE_ERR_NOT_FOUND);
    }
    assert_int_equal(te_batch_free(p->b, other), 0);
}

static void unpolled_batch_can_be_freed(void **state)
{
    struct pair *p = *state;
    te_request r = from_the_start(p, TE_READ, 100000);
    te_batch b;
    int rc;

    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit(p->a, b, &r, 1, NULL), 0);
    WAIT_FOR((rc = te_batch_free(p->a, b)) != TE_ERR_BUSY);
    assert_int_equal(rc, 0);
}

static void registration_errors(void **state)
{
    struct pair *p = *state;
    unsigned char *m = map_pages(64 * 4096);
    te_buffer bufs[3] = {{m, 4096}, {m + 8192, 4096}, {m + 4096, 8192}};

    assert_int_equal(te_register(p->a, p->am + 5, 1, "*", TE_REMOTE_RW), TE_ERR_OVERLAP);
    assert_int_equal(te_register(p->a, m, 0, "*", TE_REMOTE_RW), TE_ERR_INVALID);
    assert_int_equal(te_register(p->a, m, SIZE_MAX, "*", TE_REMOTE_RW), TE_ERR_INVALID);
    assert_int_equal(te_register(p->a, m, 4096, "moon", TE_REMOTE_RW), TE_ERR_INVALID);
    assert_int_equal(te_register(p->a, m, 4096, "*", 8), TE_ERR_INVALID);
    /* The third overlaps the second: none of the three stays. */
    assert_int_equal(te_register_batch(p->a, bufs, 3, "*", TE_REMOTE_RW), TE_ERR_OVERLAP);
    assert_int_equal(te_unregister(p->a, m), TE_ERR_NOT_REGISTERED);
    assert_int_equal(te_register(p->a, m, 64 * 4096, NULL, TE_REMOTE_RW), 0);
    assert_int_equal(te_unregister(p->a, m + 1), TE_ERR_NOT_REGISTERED);
    assert_int_equal(te_unregister(p->a, m), 0);
    munmap(m, 64 * 4096);
}

static void own_memory(void **state)
{
    struct pair *p = *state;
    void *m;

    assert_int_equal(te_alloc(p->a, 100000, "*", &m), 0);
    assert_int_equal((uintptr_t)m % 4096, 0);
    assert_int_equal(te_register(p->a, m, 100000, "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_free(p->a, m), TE_ERR_BUSY);
    assert_int_equal(te_unregister(p->a, m), 0);
    assert_int_equal(te_register(p->b, (char *)m + 4096, 4096, "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_free(p->a, m), TE_ERR_BUSY); /* the other engine has a part of it */
    assert_int_equal(te_free(p->b, m), TE_ERR_NOT_FOUND);
    assert_int_equal(te_unregister(p->b, (char *)m + 4096), 0);
    assert_int_equal(te_free(p->a, (char *)m + 1), TE_ERR_NOT_FOUND);
    assert_int_equal(te_free(p->a, m), 0);
    assert_int_equal(te_free(p->a, m), TE_ERR_NOT_FOUND);
    assert_int_equal(te_alloc(p->a, 100000, "cpu:0", &m), 0);
    assert_int_equal(te_free(p->a, m), 0);
    assert_int_equal(te_alloc(p->a, 100000, "cuda:0", &m), TE_ERR_UNSUPPORTED);
    assert_int_equal(te_free(p->a, NULL), 0);
}

/* This engine's own list: what others may see of it, in address order. */
static void own_buffers(void **state)
{
    struct pair *p = *state;
    unsigned char *m = map_pages(3 * 4096);
    te_buffer buf[2] = {{0}};
    size_t total = 7;

    assert_int_equal(te_segment_buffers(p->a, TE_LOCAL_SEGMENT, buf, 2, &total), 0);
    assert_int_equal(total, 0); /* p->am is for itself alone */
    assert_int_equal(te_segment_buffers(p->b, TE_LOCAL_SEGMENT, NULL, 0, &total), 0);
    assert_int_equal(total, 1);
    assert_int_equal(te_register(p->a, m + 8192, 4096, "*", TE_REMOTE_READ), 0);
    assert_int_equal(te_register(p->a, m + 4096, 4096, "*", TE_LOCAL_ONLY), 0);
    assert_int_equal(te_register(p->a, m, 100, "*", TE_REMOTE_RW), 0);
    assert_int_equal(te_segment_buffers(p->a, TE_LOCAL_SEGMENT, buf, 1, &total), 0);
    assert_int_equal(total, 2);
    assert_ptr_equal(buf[0].addr, m);
    assert_null(buf[1].addr); /* for which there was no room */
    assert_int_equal(te_segment_buffers(p->a, TE_LOCAL_SEGMENT, buf, 2, &total), 0);
    assert_ptr_equal(buf[1].addr, m + 8192);
    assert_int_equal(buf[0].length, 100);
    assert_int_equal(buf[1].length, 4096);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(te_unregister(p->a, m + 4096 * i), 0);
    munmap(m, 3 * 4096);
}

static void segments_open_and_close(void **state)
{
    struct pair *p = *state;
    te_segment again;
    size_t total;
    te_buffer buf;
    char slashed[304];

    snprintf(slashed, sizeof(slashed), "//%s", p->bname);
    assert_int_equal(te_open(p->a, slashed, &again), 0);
    assert_int_equal(again, p->seg);
    assert_int_equal(te_segment_buffers(p->a, p->seg, &buf, 1, &total), 0);
    assert_int_equal(total, 1);
    assert_ptr_equal(buf.addr, p->bm);
    assert_int_equal(te_close(p->a, p->seg), 0);
    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 10).state, TE_COMPLETED);
    assert_int_equal(te_close(p->a, p->seg), 0);
    assert_int_equal(te_close(p->a, p->seg), TE_ERR_NOT_FOUND);
    assert_int_equal(te_open(p->a, p->bname, &again), 0);
    assert_int_not_equal(again, p->seg);
    assert_int_equal(te_open(p->a, "", &again), TE_ERR_INVALID);
    assert_int_equal(te_open(p->a, "127.0.0.1:1", &again), TE_ERR_PEER);
}

static void finish_wakes_event_fd(void **state)
{
    struct pair *p = *state;
    te_request r = from_the_start(p, TE_READ, 5 << 20);
    struct pollfd pfd = {.events = POLLIN};
    te_batch b, got[2];

    assert_int_equal(te_done(p->a, got, 2), TE_ERR_INVALID);
    pfd.fd = te_event_fd(p->a);
    assert_true(pfd.fd >= 0);
    assert_int_equal(te_event_fd(p->a), pfd.fd);
    assert_int_equal(poll(&pfd, 1, 0), 0);
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit(p->a, b, &r, 1, NULL), 0);
    assert_int_equal(poll(&pfd, 1, PATIENCE_MS), 1);
    assert_int_equal(te_done(p->a, got, 2), 1);
    assert_true(got[0] == b);
    assert_int_equal(te_done(p->a, got, 2), 0);
    assert_int_equal(poll(&pfd, 1, 0), 0);
    assert_int_equal(te_batch_free(p->a, b), 0);
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit(p->a, b, &r, 1, NULL), 0);
    assert_int_equal(poll(&pfd, 1, PATIENCE_MS), 1);
    assert_int_equal(te_batch_free(p->a, b), 0);
    assert_int_equal(poll(&pfd, 1, 0), 0); /* freed: nothing is left to take */
}

static void notifications(void **state)
{
    struct pair *p = *state;
    te_request r = from_the_start(p, TE_WRITE, 3 << 20);
    te_submit_opts o = {.size = sizeof(o),
                        .notify_name = "layer",
                        .notify_msg = "\"done\" \\ 1",
                        .notify_target = p->seg};
    te_notification *n = NULL;
    size_t count = 0;
    te_batch b;

    assert_int_equal(te_notify(p->a, p->seg, "hello", "w\xc3\xb6rld"), 0);
    assert_int_equal(te_notify_recv(p->b, &n, &count), 0);
    assert_int_equal(count, 1);
    assert_string_equal(n[0].name, "hello");
    assert_string_equal(n[0].msg, "w\xc3\xb6rld");
    te_notify_free(n, count);
    fill(p->am, 3 << 20, 42);
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit(p->a, b, &r, 1, &o), 0);
    WAIT_FOR(te_notify_recv(p->b, &n, &count) || count);
    /* Told after the data was applied. */
    assert_non_null(n);
    assert_string_equal(n[0].msg, "\"done\" \\ 1");
    assert_int_equal(first_difference(p->bm, 3 << 20, 42), 3 << 20);
    te_notify_free(n, count);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_free(p->a, b), 0);
    assert_int_equal(te_notify_recv(p->b, &n, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(te_probe(p->a, p->bname), 0);
    assert_int_equal(te_probe(p->a, "127.0.0.1:1"), TE_ERR_PEER);
}

/* The oldest message that b has; the others are dropped. */
static void check_first(struct pair *p, const te_message *want, size_t n_want)
{
    te_message *got = NULL;
    size_t n = 0;

    WAIT_FOR(te_notify_recv_bytes(p->b, &got, &n) || n);
    assert_int_equal(n, n_want);
    assert_int_equal(got[0].name_len, want->name_len);
    assert_memory_equal(got[0].name, want->name, want->name_len);
    assert_int_equal(got[0].msg_len, want->msg_len);
    assert_memory_equal(got[0].msg, want->msg, want->msg_len);
    assert_int_equal(((const char *)got[0].msg)[want->msg_len], '\0');
    te_message_free(got, n);
}

static void message_after(void **state)
{
    static const char bytes[] = "\0\xff\xc3 after";
    const te_message m = {bytes, 3, bytes, sizeof(bytes)}, later = {NULL, 0, "later", 5};
    struct pair *p = *state;
    te_request r = from_the_start(p, TE_WRITE, 3 << 20), wrong = r;
    te_message *got;
    size_t n;
    te_batch b;

    /* Nothing was submitted: at once. */
    assert_int_equal(te_batch_alloc(p->a, 8, &b), 0);
    assert_int_equal(te_notify_after(p->a, b, p->seg, &m), 0);
    check_first(p, &m, 1);
    for (uint64_t i = 0; i < 3; i++) {
        fill(p->am, 3 << 20, 50 + i);
        assert_int_equal(te_submit(p->a, b, &r, 1, NULL), 0);
        assert_int_equal(te_notify_after(p->a, b, p->seg, &m), 0);
        check_first(p, &m, 1);
        assert_int_equal(first_difference(p->bm, 3 << 20, 50 + i), 3 << 20);
        assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    }
    /* Behind what has failed none comes; another batch is not concerned. */
    wrong.target_offset += (uint64_t)1 << 40;
    assert_int_equal(te_submit(p->a, b, &wrong, 1, NULL), 0);
    assert_int_equal(te_notify_after(p->a, b, p->seg, &m), 0);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_notify_after(p->a, b, p->seg, &m), 0);
    assert_int_equal(te_batch_free(p->a, b), 0);
    assert_int_equal(te_notify_after(p->a, b, p->seg, &m), TE_ERR_NOT_FOUND);
    assert_int_equal(te_notify_bytes(p->a, p->seg, &later), 0);
    check_first(p, &later, 1);
    assert_int_equal(te_notify_recv_bytes(p->b, &got, &n), 0);
    assert_int_equal(n, 0);
    assert_null(got);
}

/* What is wrong with a message does not concern the requests. */
static void bad_message(void **state)
{
    struct pair *p = *state;
    te_request r = from_the_start(p, TE_WRITE, 65536);
    const size_t size = (size_t)2 << 20;
    char *large = calloc(size, 1);
    te_submit_opts o = {
        .size = sizeof(o), .notify_name = "n", .notify_msg = large, .notify_target = p->seg};
    te_message m = {NULL, 0, large, size}, none = {NULL, 1, "x", 1}, ok = {NULL, 0, "\0", 1};
    struct te_status st;
    te_batch b;

    assert_non_null(large);
    assert_int_equal(te_notify_bytes(p->a, p->seg, &m), TE_ERR_TOO_LARGE);
    assert_int_equal(te_notify_bytes(p->a, p->seg, &none), TE_ERR_INVALID);
    assert_int_equal(te_notify_bytes(p->a, p->seg, NULL), TE_ERR_INVALID);
    assert_int_equal(te_notify_bytes(p->a, 12345, &ok), TE_ERR_NOT_FOUND);
    memset(large, 'x', size - 1);
    assert_int_equal(te_notify(p->a, p->seg, "n", large), TE_ERR_TOO_LARGE);
    fill(p->am, 65536, 60);
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit(p->a, b, &r, 1, &o), 0);
    assert_non_null(strstr(te_errmsg(), "MC_HANDSHAKE_MAX_LENGTH"));
    assert_int_equal(te_notify_after(p->a, b, p->seg, &m), TE_ERR_TOO_LARGE);
    assert_int_equal(te_notify_after(p->a, b, 12345, &ok), TE_ERR_NOT_FOUND);
    assert_int_equal(te_notify_after(p->a, b, p->seg, &ok), 0);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_status(p->a, b, &st), 0);
    assert_int_equal(st.state, TE_COMPLETED);
    check_first(p, &ok, 1);
    assert_int_equal(first_difference(p->bm, 65536, 60), 65536);
    assert_int_equal(te_batch_free(p->a, b), 0);
    free(large);
}

static void cancel_and_deadline_of_a_frozen_target(void **state)
{
    struct child_engine c;
    te_engine *e = NULL;
    te_options o;
    te_submit_opts deadline = {.size = sizeof(deadline), .deadline_ms = 2000};
    te_request r = {.opcode = TE_READ, .length = 1 << 20};
    struct te_status st;
    te_batch b;
    char why[256];

    (void)state;
    child_start(&c, 1 << 20, TE_REMOTE_RW);
    loopback_options(&o);
    assert_int_equal(te_option_set(&o, "TE_HOST_PATH", "0"), 0);
    assert_int_equal(te_engine_create(&o, &e), 0);
    te_options_fini(&o);
    r.source = map_pages(1 << 20);
    r.target_offset = (uintptr_t)c.mem;
    assert_int_equal(te_register(e, r.source, 1 << 20, "*", TE_LOCAL_ONLY), 0);
    assert_int_equal(te_open(e, c.name, &r.target), 0);
    child_freeze(&c);
    assert_int_equal(te_batch_alloc(e, 2, &b), 0);
    assert_int_equal(te_submit(e, b, &r, 1, &deadline), 0);
    assert_int_equal(te_wait(e, b, 10), TE_ERR_TIMEOUT);
    assert_int_equal(te_unregister(e, r.source), TE_ERR_BUSY);
    assert_int_equal(te_close(e, r.target), TE_ERR_BUSY);
    assert_int_equal(te_transport_uninstall(e, "tcp"), TE_ERR_BUSY);
    assert_int_equal(te_batch_free(e, b), TE_ERR_BUSY);
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_status(e, b, 0, &st), 0);
    assert_int_equal(st.state, TE_TIMEOUT);
    assert_int_equal(te_status_msg(e, b, 0, why, sizeof(why)), 0);
    assert_non_null(strstr(why, "deadline"));
    assert_int_equal(te_submit(e, b, &r, 1, NULL), 0);
    assert_int_equal(te_cancel(e, b), 0);
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_status(e, b, 1, &st), 0);
    assert_int_equal(st.state, TE_CANCELED);
    assert_int_equal(te_batch_free(e, b), 0);
    assert_int_equal(te_unregister(e, r.source), 0);
    munmap(r.source, 1 << 20);
    te_engine_destroy(e);
    child_stop(&c);
}

/* Two requests for a range that only a fetch could find, which the frozen target never answers. */
static void parked_requests_keep_deadline_and_cancel(void **state)
{
    te_submit_opts deadline = {.size = sizeof(deadline), .deadline_ms = 2000};
    te_request r = {.opcode = TE_READ, .length = 64};
    struct child_engine c;
    struct te_status st;
    te_engine *e = NULL;
    te_options o;
    te_batch b;

    (void)state;
    child_start(&c, 4096, TE_REMOTE_RW);
    loopback_options(&o);
    assert_int_equal(te_engine_create(&o, &e), 0);
    r.source = map_pages(4096);
    r.target_offset = 4096;
    assert_int_equal(te_register(e, r.source, 4096, "*", TE_LOCAL_ONLY), 0);
    assert_int_equal(te_open(e, c.name, &r.target), 0);
    child_freeze(&c);
    assert_int_equal(te_batch_alloc(e, 3, &b), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(te_submit(e, b, &r, 1, &deadline), 0);
        assert_int_equal(te_status(e, b, i, &st), 0);
        assert_int_equal(st.state, TE_PENDING);
        assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
        assert_int_equal(te_status(e, b, i, &st), 0);
        assert_int_equal(st.state, TE_TIMEOUT);
    }
    assert_int_equal(te_submit(e, b, &r, 1, NULL), 0);
    assert_int_equal(te_cancel(e, b), 0);
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_status(e, b, 2, &st), 0);
    assert_int_equal(st.state, TE_CANCELED);
    kill(c.pid, SIGCONT);
    te_engine_destroy(e);
    munmap(r.source, 4096);
    child_stop(&c);
}

struct hammer {
    struct pair *p;
    size_t lane;
    int bad;
};

static void *hammer(void *arg)
{
    struct hammer *h = arg;
    unsigned char *local = h->p->am + h->lane * 65536, *remote = h->p->bm + h->lane * 65536;

    for (uint64_t i = 0; i < 200; i++) {
        size_t n = 1 + (i * 7919) % 65536;

        fill(local, n, i);
        h->bad += transfer(h->p->a, TE_WRITE, local, h->p->seg, remote, n).state != TE_COMPLETED;
        memset(local, 0, n);
        h->bad += transfer(h->p->a, TE_READ, local, h->p->seg, remote, n).state != TE_COMPLETED;
        h->bad += first_difference(local, n, i) != n;
    }
    return NULL;
}

static void many_threads(void **state)
{
    struct hammer h[8];
    pthread_t t[8];

    for (size_t i = 0; i < 8; i++) {
        h[i] = (struct hammer){.p = *state, .lane = i};
        assert_int_equal(pthread_create(&t[i], NULL, hammer, &h[i]), 0);
    }
    for (size_t i = 0; i < 8; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(h[i].bad, 0);
    }
}

static void big_batch(void **state)
{
    enum { N = 4096 };
    struct pair *p = *state;
    te_request *r = calloc(N, sizeof(*r));
    struct te_status st;
    te_batch b;

    assert_non_null(r);
    fill(p->am, (size_t)N * 1000, 6);
    for (size_t i = 0; i < N; i++)
        r[i] = (te_request){.opcode = TE_WRITE,
                            .source = p->am + i * 1000,
                            .target = i % 2 ? p->seg : TE_LOCAL_SEGMENT,
                            .target_offset = (uintptr_t)(i % 2 ? p->bm + i * 1000
                                                               : p->am + (4 << 20) + i * 1000),
                            .length = 1000};
    assert_int_equal(te_batch_alloc(p->a, N, &b), 0);
    assert_int_equal(te_submit(p->a, b, r, N, NULL), 0);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_status(p->a, b, &st), 0);
    assert_int_equal(st.state, TE_COMPLETED);
    assert_int_equal(st.bytes, (size_t)N * 1000);
    for (size_t i = 0; i < N; i++)
        assert_memory_equal((void *)(uintptr_t)r[i].target_offset, r[i].source, 1000);
    assert_int_equal(te_batch_free(p->a, b), 0);
    free(r);
}

static void explain_agrees_with_submit(void **state)
{
    struct pair *p = *state;
    te_request bad[6];
    char text[1024];
    te_batch b;

    for (size_t i = 0; i < 6; i++)
        bad[i] = (te_request){.opcode = TE_READ,
                              .source = p->am,
                              .target = p->seg,
                              .target_offset = (uintptr_t)p->bm,
                              .length = 16};
    bad[0].opcode = 9;
    bad[1].target_offset = UINT64_MAX;
    bad[2].target = TE_LOCAL_SEGMENT; /* where bm is not registered */
    bad[3].source = p->bm;
    bad[4].target = 12345;
    bad[5].length = 0;
    bad[5].source = NULL;
    assert_int_equal(te_batch_alloc(p->a, 6, &b), 0);
    for (size_t i = 0; i < 6; i++) {
        int rc = te_submit(p->a, b, &bad[i], 1, NULL);

        assert_int_equal(te_explain(p->a, &bad[i], text, sizeof(text)), rc);
        assert_int_equal(rc == 0, i == 5);
        assert_true(text[0] != '\0');
    }
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_free(p->a, b), 0);
}

/* One line for each transport, whatever keeps it from being taken. */
static void explain_says_why_not(void **state)
{
    struct pair *p = *state;
    te_request r = {.opcode = TE_WRITE,
                    .source = p->am,
                    .target = TE_LOCAL_SEGMENT,
                    .target_offset = (uintptr_t)p->am + 4096,
                    .length = 10};
    char text[2048];

    assert_int_equal(te_explain(p->a, &r, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "transport local: score "));
    assert_non_null(
        strstr(text, "transport tcp: not possible: does not reach this engine itself\n"));
    r.target = p->seg;
    r.target_offset = (uintptr_t)p->bm;
    /* The peer's engine runs without it. */
    assert_int_equal(te_transport_uninstall(p->b, "tcp"), 0);
    assert_int_equal(te_refresh(p->a, p->bname), 0);
    te_explain(p->a, &r, text, sizeof(text));
    assert_non_null(
        strstr(text, "transport tcp: not possible: the descriptor has no tcp_data_port\n"));
    assert_int_equal(te_transport_uninstall(p->a, "tcp"), 0);
    te_explain(p->a, &r, text, sizeof(text));
    assert_non_null(strstr(text, "transport tcp: not installed: te_transport_install() adds it\n"));
    assert_non_null(strstr(text, "transport local: not possible: "));
    assert_null(strstr(text, "taken"));
}

static void an_unreached_segment_is_named(void **state)
{
    struct pair *p = *state;
    te_request r = from_the_start(p, TE_READ, 10);
    char text[512];
    te_batch b;

    assert_int_equal(te_transport_uninstall(p->b, "tcp"), 0);
    assert_int_equal(te_refresh(p->a, p->bname), 0);
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit(p->a, b, &r, 1, NULL), TE_ERR_UNSUPPORTED);
    snprintf(text, sizeof(text), "reaches segment '%s' of protocol '", p->bname);
    assert_non_null(strstr(te_errmsg(), text));
    assert_int_equal(te_batch_free(p->a, b), 0);
}

static void *refresh_all(void *arg)
{
    struct pair *p = arg;

    for (int i = 0; i < 300; i++)
        te_refresh(p->a, NULL);
    return NULL;
}

static void close_beside_refresh(void **state)
{
    struct pair *p = *state;
    pthread_t t[2];
    te_segment s;

    assert_int_equal(te_close(p->a, p->seg), 0);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, refresh_all, p), 0);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(te_open(p->a, p->bname, &s), 0);
        assert_int_equal(te_close(p->a, s), 0); /* a refresh is no transfer */
    }
    for (size_t i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(te_open(p->a, p->bname, &s), 0);
    assert_int_equal(transfer(p->a, TE_READ, p->am, s, p->bm, 10).state, TE_COMPLETED);
}

static void explain_and_counters(void **state)
{
    struct pair *p = *state;
    te_request r = from_the_start(p, TE_READ, 10);
    struct te_stats s = {.size = sizeof(s)};
    char text[2048];

    assert_int_equal(te_explain(p->a, &r, text, sizeof(text)), 0);
    assert_non_null(
        strstr(text, "transport local: not possible: reaches this engine itself only\n"));
    assert_non_null(strstr(text, "transport tcp: score "));
    r.source = p->bm;
    assert_int_equal(te_explain(p->a, &r, text, sizeof(text)), TE_ERR_NOT_REGISTERED);
    r.source = p->am;
    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 4096).state, TE_COMPLETED);
    assert_int_equal(te_stats(p->a, &s), 0);
    assert_int_equal(s.requests_completed, 1);
    assert_int_equal(s.bytes_read, 4096);
    assert_int_equal(s.segments_open, 1);
    s.size = sizeof(s);
    assert_int_equal(te_stats(p->b, &s), 0);
    assert_int_equal(s.served_bytes_out, 4096);
}

static bool is_socket(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* A child holds none of the sockets: peers of a parent that dies must see them close. */
static void child_of_fork_is_refused(void **state)
{
    struct pair *p = *state;
    int status;
    pid_t pid;

    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 4096).state, TE_COMPLETED);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        te_batch b;
        int sockets = 0;

        for (int fd = 3; fd < 256; fd++)
            sockets += is_socket(fd);
        _exit(te_batch_alloc(p->a, 1, &b) == TE_ERR_CLOSED && sockets == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(transfer(p->a, TE_READ, p->am, p->seg, p->bm, 4096).state, TE_COMPLETED);
}

static void uninstall_and_install(void **state)
{
    struct pair *p = *state;
    te_request r = from_the_start(p, TE_READ, 10);
    te_batch b;

    assert_int_equal(te_transport_uninstall(p->a, "tcp"), 0);
    assert_int_equal(te_transport_uninstall(p->a, "tcp"), TE_ERR_NOT_FOUND);
    assert_int_equal(te_batch_alloc(p->a, 1, &b), 0);
    assert_int_equal(te_submit(p->a, b, &r, 1, NULL), TE_ERR_UNSUPPORTED);
    assert_int_equal(te_transport_install(p->a, "ascend", NULL), TE_ERR_UNSUPPORTED);
    assert_non_null(strstr(te_errmsg(), "ascend"));
    assert_int_equal(te_transport_install(p->a, "tcp", NULL), 0);
    assert_int_equal(te_transport_install(p->a, "tcp", NULL), 0);
    assert_int_equal(te_submit(p->a, b, &r, 1, NULL), 0);
    assert_int_equal(te_wait(p->a, b, PATIENCE_MS), 0);
    assert_int_equal(te_batch_free(p->a, b), 0);
}

#define PAIR_TEST(f) cmocka_unit_test_setup_teardown(f, pair_setup, pair_teardown)
#define TCP_TEST(f)  cmocka_unit_test_setup_teardown(f, pair_setup_tcp, pair_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(sizes_both_ways),
        PAIR_TEST(own_segment_is_a_copy),
        PAIR_TEST(zero_length_completes),
        PAIR_TEST(target_over_adjacent_buffers),
        PAIR_TEST(late_registration_is_found),
        PAIR_TEST(rights_are_kept),
        PAIR_TEST(submit_is_all_or_nothing),
        PAIR_TEST(dead_ids_are_safe),
        PAIR_TEST(unpolled_batch_can_be_freed),
        PAIR_TEST(registration_errors),
        PAIR_TEST(own_memory),
        PAIR_TEST(own_buffers),
        PAIR_TEST(segments_open_and_close),
        PAIR_TEST(finish_wakes_event_fd),
        PAIR_TEST(notifications),
        PAIR_TEST(message_after),
        PAIR_TEST(bad_message),
        PAIR_TEST(many_threads),
        PAIR_TEST(big_batch),
        TCP_TEST(explain_and_counters),
        TCP_TEST(explain_says_why_not),
        TCP_TEST(an_unreached_segment_is_named),
        PAIR_TEST(explain_agrees_with_submit),
        PAIR_TEST(close_beside_refresh),
        TCP_TEST(uninstall_and_install),
        PAIR_TEST(child_of_fork_is_refused),
        cmocka_unit_test(cancel_and_deadline_of_a_frozen_target),
        cmocka_unit_test(parked_requests_keep_deadline_and_cancel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
