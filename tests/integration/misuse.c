/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library says to those who call it wrongly: one line for each, in which test_troubleshooting_*.py
 * looks for its texts.
 *
 *   misuse
 *   misuse busy SEGMENT      of requests that are under way, to one that does not answer
 *   misuse high              of memory whose address cannot be published
 *   misuse unmapped          of memory that was unmapped while it is registered
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "te.h"

#define SIZE      65536
#define MESSAGE   ((size_t)2 << 20)
#define P2P       "P2PHANDSHAKE"
#define LOCALHOST "127.0.0.1"

static uint8_t memory[SIZE];
static te_engine *engine;
static te_request own = {
    .opcode = TE_READ, .source = memory, .length = 64}; /* within this engine */

static void say(int rc)
{
    printf("%s: %s\n", te_errname(rc), rc ? te_errmsg() : "");
}

static te_engine *create(const char *metadata, const char *name)
{
    te_engine *e = NULL;
    te_options o;

    te_options_init(&o);
    o.metadata = metadata;
    o.local_server_name = name;
    o.auto_discover = 0;
    if (te_option_set(&o, "MC_TCP_LANES_PER_PEER", "1") || te_engine_create(&o, &e)) {
        say(1);
        exit(1);
    }
    te_options_fini(&o);
    return e;
}

static void options(void)
{
    te_options o = {0};
    te_engine *e;

    say(te_engine_create(&o, &e));
}

static void submit(te_segment target, void *source, uint64_t offset)
{
    te_request r = {.opcode = TE_READ,
                    .source = source,
                    .target = target,
                    .target_offset = offset,
                    .length = 64};
    te_batch b;

    if (te_batch_alloc(engine, 1, &b) == 0) {
        say(te_submit(engine, b, &r, 1, NULL));
        te_batch_free(engine, b);
    }
}

static void submits(void)
{
    static uint8_t strange[64];
    te_engine *other = create(P2P, LOCALHOST);
    te_segment far = -1;
    char name[256];

    submit(TE_LOCAL_SEGMENT, strange, (uintptr_t)memory);
    submit(TE_LOCAL_SEGMENT, memory + SIZE - 40, (uintptr_t)memory);
    submit(TE_LOCAL_SEGMENT, memory, (uintptr_t)strange);
    submit(4711, memory, 0);
    /* Only `local` is installed. */
    te_register(other, strange, sizeof(strange), "*", TE_REMOTE_RW);
    te_engine_name(other, name, sizeof(name));
    say(te_open(engine, name, &far));
    submit(far, memory, (uintptr_t)strange);
    te_engine_destroy(other);
}

static void prepared(void)
{
    void *local = memory;
    uint64_t remote = (uintptr_t)memory;
    size_t length = 64;
    uint32_t index = 1;
    te_prep prep;
    te_batch b;

    say(te_batch_alloc(engine, 4, &b));
    say(te_prep_create(engine, TE_LOCAL_SEGMENT, &local, &remote, &length, 1, &prep));
    say(te_prep_submit(engine, b, prep, TE_READ, &index, 1, NULL));
    say(te_unregister(engine, memory));
    say(te_prep_submit(engine, b, prep, TE_READ, NULL, 1, NULL));
    say(te_register(engine, memory, SIZE, "*", TE_REMOTE_RW));
    say(te_prep_destroy(engine, prep));
    say(te_batch_free(engine, b));
}

static void batches(void)
{
    te_request r[2] = {own, own};
    te_batch b;

    say(te_batch_alloc(engine, 1, &b));
    say(te_submit(engine, b, r, 2, NULL));
    say(te_fence(engine, b, 0, NULL, 1, NULL));
    say(te_batch_free(engine, b));
    say(te_batch_free(engine, b));
}

static void regions(void)
{
    void *addr;

    say(te_register(engine, memory + 64, 64, "*", TE_REMOTE_RW));
    say(te_unregister(engine, memory + 64));
    say(te_alloc(engine, SIZE, "cpu:4095", &addr));
    say(te_alloc(engine, SIZE, "cuda:9", &addr));
    say(te_register(engine, (void *)4096, 64, "*", TE_REMOTE_RW));
    say(te_unregister(engine, memory));
    say(te_register(engine, memory, SIZE, "cuda:0", TE_REMOTE_RW));
    say(te_register(engine, memory, SIZE, "*", TE_REMOTE_RW));
}

/* A name of more than what a message may have, and messages until the inbox has no room for this sender. */
static void notifications(void)
{
    te_submit_opts opts = {
        .size = sizeof(opts), .notify_name = "", .notify_target = TE_LOCAL_SEGMENT};
    te_message m = {.name = "", .msg_len = MESSAGE};
    char *text = malloc(MESSAGE + 1), name[256];
    te_engine *other = create(P2P, LOCALHOST);
    te_segment far;
    te_batch b;
    int rc = te_batch_alloc(engine, 1, &b);

    if (!text || rc)
        exit(1);
    memset(text, 'x', MESSAGE);
    text[MESSAGE] = '\0';
    m.msg = opts.notify_msg = text;
    say(te_submit(engine, b, &own, 1, &opts));
    say(te_wait(engine, b, -1));
    te_batch_free(engine, b);
    te_engine_name(other, name, sizeof(name));
    say(te_open(engine, name, &far));
    for (m.msg_len = MESSAGE / 4; !rc;)
        rc = te_notify_bytes(engine, far, &m);
    say(rc);
    te_engine_destroy(other);
    free(text);
}

/* A request that ends badly, by its deadline at the latest. */
static void wait_in_vain(te_request *r, int64_t deadline_ms)
{
    te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = deadline_ms};
    char text[512] = "";
    te_batch b;

    say(te_batch_alloc(engine, 1, &b));
    say(te_submit(engine, b, r, 1, &opts));
    say(te_wait(engine, b, -1));
    te_status_msg(engine, b, 0, text, sizeof(text));
    printf("%s\n", text);
    te_batch_free(engine, b);
}

/* While a request to that segment, which does not answer, goes on. */
static void busy(const char *name)
{
    te_request r = own;
    te_batch b;

    say(te_transport_install(engine, "tcp", NULL));
    say(te_open(engine, name, &r.target));
    r.target_offset = 4096;
    say(te_batch_alloc(engine, 1, &b));
    say(te_submit(engine, b, &r, 1, NULL));
    wait_in_vain(&r, 100); /* for the one connection, which is in use */
    say(te_unregister(engine, memory));
    say(te_transport_uninstall(engine, "tcp"));
    te_cancel(engine, b);
    te_wait(engine, b, -1);
    te_batch_free(engine, b);
}

static void high(void)
{
    void *tagged = (void *)(UINTPTR_MAX - SIZE), *last = (void *)(INTPTR_MAX - 63);

    say(te_register(engine, tagged, 64, "*", TE_REMOTE_RW));
    say(te_register(engine, last, 64, "*", TE_REMOTE_READ));
    say(te_register(engine, memory, (size_t)INTPTR_MAX, "*", TE_REMOTE_WRITE));
    say(te_register(engine, tagged, 64, "*", TE_LOCAL_ONLY));
}

/* Twice, of which the target tells one. */
static void unmapped(void)
{
    te_engine *other = create(P2P, LOCALHOST);
    void *half = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    te_request r = own;
    char name[256];

    say(te_transport_install(other, "tcp", NULL));
    say(te_transport_install(engine, "tcp", NULL));
    say(te_register(other, half, SIZE, "*", TE_REMOTE_RW));
    mprotect((char *)half + SIZE / 2, SIZE / 2, PROT_NONE); /* where nobody maps anything else */
    te_engine_name(other, name, sizeof(name));
    say(te_open(engine, name, &r.target));
    r.length = SIZE;
    r.target_offset = (uintptr_t)half;
    wait_in_vain(&r, 0);
    wait_in_vain(&r, 0);
    te_engine_destroy(other);
    munmap(half, SIZE);
}

static void child(void)
{
    char name[256];
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        say(te_engine_name(engine, name, sizeof(name)));
        say(te_register(engine, memory, 64, "*", TE_REMOTE_RW));
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

static void all(void)
{
    submits();
    prepared();
    batches();
    say(te_transport_install(engine, "tcp", NULL));
    regions();
    notifications();
    child();
}

int main(int argc, char **argv)
{
    options();
    engine = create(P2P, LOCALHOST);
    own.target_offset = (uintptr_t)memory + 64;
    say(te_register(engine, memory, SIZE, "*", TE_REMOTE_RW));
    if (argc < 2)
        all();
    else if (strcmp(argv[1], "high") == 0)
        high();
    else if (strcmp(argv[1], "unmapped") == 0)
        unmapped();
    else
        busy(argv[2]);
    te_engine_destroy(engine);
    return 0;
}
