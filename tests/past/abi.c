/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that is compiled with the headers of a released version, and runs with the shared library
 * of this one: test_past.py does both. It calls functions of both headers; structs that the library
 * fills have bytes behind them that must stay as they are, in case a later library's struct is longer.
 * So it uses nothing that is younger than the first version. It says "ok" and ends with 0.
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "te.h"
#include "transfer_engine_c.h"

#define LENGTH  10007
#define GUARD   64
#define PATTERN 0x5A

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, te_errmsg());
    exit(1);
}

static void check(int good, const char *what)
{
    if (!good)
        fail(what);
}

/* A struct that the library fills, and what it must leave alone. */
#define GUARDED(type)               \
    struct {                        \
        type it;                    \
        unsigned char guard[GUARD]; \
    }
#define PREPARE(g)   memset(&(g), PATTERN, sizeof(g))
#define UNTOUCHED(g) check(is_untouched((g).guard), "bytes behind a struct: " #g)

static int is_untouched(const unsigned char *guard)
{
    for (size_t i = 0; i < GUARD; i++)
        if (guard[i] != PATTERN)
            return 0;
    return 1;
}

static uint8_t there[LENGTH], here[2 * LENGTH];

/* ------------------------------------------------------------------------ transfer_engine_c.h */

static transfer_engine_t make_engine(void *memory, size_t length)
{
    transfer_engine_t e = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "127.0.0.1", 0, 0);
    check(e != NULL, "createTransferEngine");
    check(installTransport(e, "tcp", NULL) != NULL, "installTransport");
    check(registerLocalMemory(e, memory, length, "cpu:0", 1) == 0, "registerLocalMemory");
    return e;
}

static void move_by_c_names(transfer_engine_t e, segment_id_t segment, int opcode, uint8_t *local)
{
    notify_msg_t note = {.name = (char[]){"name"}, .msg = (char[]){"text"}};
    transfer_request_t r = {.opcode = opcode,
                            .source = local,
                            .target_id = segment,
                            .target_offset = (uint64_t)(uintptr_t)there,
                            .length = LENGTH};
    GUARDED(transfer_status_t) status;
    batch_id_t b = allocateBatchID(e, 1);

    check(b != INVALID_BATCH, "allocateBatchID");
    check(submitTransferWithNotify(e, b, &r, 1, note) == 0, "submitTransferWithNotify");
    do {
        PREPARE(status);
        check(getTransferStatus(e, b, 0, &status.it) == 0, "getTransferStatus");
        UNTOUCHED(status);
    } while (status.it.status == STATUS_WAITING || status.it.status == STATUS_PENDING);
    check(status.it.status == STATUS_COMPLETED, "STATUS_COMPLETED");
    check(status.it.transferred_bytes == LENGTH, "transferred_bytes");
    check(freeBatchID(e, b) == 0, "freeBatchID");
}

/* A message comes after the last request; it is in the inbox when its sender's answer has come. */
static void take_message(transfer_engine_t e)
{
    int n = 0;
    notify_msg_t *got = NULL;
    while (n == 0) {
        got = getNotifsFromEngine(e, &n);
        check(n >= 0, "getNotifsFromEngine");
    }
    check(strcmp(got[0].name, "name") == 0 && strcmp(got[0].msg, "text") == 0, "the message");
    check(freeNotifsMsgBuf(got, n) == 0, "freeNotifsMsgBuf");
}

static void c_names(void)
{
    char name[256], links[4096];
    size_t count = 1;
    GUARDED(nic_load_stat_t) load;
    transfer_engine_t target = make_engine(there, sizeof(there));
    transfer_engine_t e = make_engine(here, sizeof(here));
    check(getLocalIpAndPort(target, name, sizeof(name)) == 0, "getLocalIpAndPort");
    segment_id_t segment = openSegment(e, name);
    check(segment >= 0, "openSegment");
    for (size_t i = 0; i < LENGTH; i++)
        here[i] = (uint8_t)(i * 7 + (i >> 8));
    move_by_c_names(e, segment, OPCODE_WRITE, here);
    move_by_c_names(e, segment, OPCODE_READ, here + LENGTH);
    check(memcmp(here, there, LENGTH) == 0, "what was written");
    check(memcmp(here, here + LENGTH, LENGTH) == 0, "what was read");
    take_message(target);
    check(syncSegmentCache(e) == 0, "syncSegmentCache");
    PREPARE(load);
    check(getNicLoadStats(e, &load.it, &count) == 0, "getNicLoadStats");
    UNTOUCHED(load);
    check(showLinks(e, links, sizeof(links), 1) == 0, "showLinks");
    check(closeSegment(e, segment) == 0, "closeSegment");
    check(unregisterLocalMemory(e, here) == 0, "unregisterLocalMemory");
    destroyTransferEngine(e);
    destroyTransferEngine(target);
}

/* --------------------------------------------------------------------------------------- te.h */

static te_engine *native_engine(void *memory, size_t length)
{
    GUARDED(te_options) o;
    te_engine *e;

    PREPARE(o);
    te_options_init(&o.it);
    UNTOUCHED(o);
    o.it.local_server_name = "127.0.0.1";
    o.it.auto_discover = 0;
    check(te_option_set(&o.it, "TE_HOST_PATH", "0") == 0, "te_option_set");
    check(te_engine_create(&o.it, &e) == 0, "te_engine_create");
    te_options_fini(&o.it);
    UNTOUCHED(o);
    check(te_transport_install(e, "tcp", NULL) == 0, "te_transport_install");
    check(te_register(e, memory, length, "*", TE_REMOTE_RW) == 0, "te_register");
    return e;
}

static void wait_by_descriptor(te_engine *e, int fd, te_batch b)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    te_batch done = 0;

    while (te_done(e, &done, 1) == 0)
        check(poll(&p, 1, -1) == 1, "poll");
    check(done == b, "te_done");
}

static void native(void)
{
    char name[256], text[4096];
    te_segment segment;
    te_batch b;
    GUARDED(te_buffer) buffer;
    GUARDED(struct te_status) status;
    GUARDED(struct te_stats) stats;
    size_t total;
    te_engine *target = native_engine(there, sizeof(there));
    te_engine *e = native_engine(here, sizeof(here));
    int fd = te_event_fd(e);

    check(fd >= 0, "te_event_fd");
    check(te_engine_name(target, name, sizeof(name)) == 0, "te_engine_name");
    check(te_open(e, name, &segment) == 0, "te_open");
    PREPARE(buffer);
    check(te_segment_buffers(e, segment, &buffer.it, 1, &total) == 0, "te_segment_buffers");
    UNTOUCHED(buffer);
    check(total == 1 && buffer.it.addr == there && buffer.it.length == LENGTH, "the buffer");
    te_request r = {.opcode = TE_READ,
                    .source = here,
                    .target = segment,
                    .target_offset = (uint64_t)(uintptr_t)there,
                    .length = LENGTH};
    te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = 60000};
    memset(here, 0, sizeof(here));
    check(te_explain(e, &r, text, sizeof(text)) == 0, "te_explain");
    check(te_batch_alloc(e, 1, &b) == 0, "te_batch_alloc");
    check(te_submit(e, b, &r, 1, &opts) == 0, "te_submit");
    wait_by_descriptor(e, fd, b);
    PREPARE(status);
    check(te_status(e, b, 0, &status.it) == 0, "te_status");
    UNTOUCHED(status);
    check(status.it.state == TE_COMPLETED && status.it.bytes == LENGTH, "TE_COMPLETED");
    check(memcmp(here, there, LENGTH) == 0, "what was read");
    check(te_batch_free(e, b) == 0, "te_batch_free");
    PREPARE(stats);
    stats.it.size = sizeof(stats.it);
    check(te_stats(e, &stats.it) == 0, "te_stats");
    UNTOUCHED(stats);
    check(stats.it.requests_completed == 1 && stats.it.bytes_read == LENGTH, "the counters");
    check(te_open(e, "127.0.0.1:1", &segment) != 0 && te_errmsg()[0], "te_open of nothing");
    te_engine_destroy(e);
    te_engine_destroy(target);
}

int main(void)
{
    te_log_set_level(TE_LOG_ERROR);
    c_names();
    native();
    printf("ok, library %s, headers %d.%d\n", te_version(), TE_VERSION_MAJOR, TE_VERSION_MINOR);
    return 0;
}
