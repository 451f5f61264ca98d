/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library says to those who call it wrongly: one line for each, in which test_troubleshooting_*.py
 * looks for its texts.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "te.h"

#define SIZE 65536

static uint8_t memory[SIZE];
static te_engine *engine;

static void say(int rc)
{
    printf("%s: %s\n", te_errname(rc), rc ? te_errmsg() : "");
}

static te_engine *create(void)
{
    te_engine *e = NULL;
    te_options o;

    te_options_init(&o);
    o.metadata = "P2PHANDSHAKE";
    o.local_server_name = "127.0.0.1";
    o.auto_discover = 0;
    if (te_engine_create(&o, &e)) {
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
    te_engine *other = create();
    te_segment far = -1;
    char name[256];

    submit(TE_LOCAL_SEGMENT, strange, (uintptr_t)memory);
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
    te_request r[2] = {{.opcode = TE_READ,
                        .source = memory,
                        .target = TE_LOCAL_SEGMENT,
                        .target_offset = (uintptr_t)memory + 64,
                        .length = 64}};
    te_batch b;

    r[1] = r[0];
    say(te_batch_alloc(engine, 1, &b));
    say(te_submit(engine, b, r, 2, NULL));
    say(te_batch_free(engine, b));
    say(te_batch_free(engine, b));
}

static void regions(void)
{
    void *addr;

    say(te_register(engine, memory + 64, 64, "*", TE_REMOTE_RW));
    say(te_unregister(engine, memory + 64));
    say(te_register(engine, (void *)(UINTPTR_MAX - SIZE), 64, "*", TE_REMOTE_RW));
    say(te_alloc(engine, SIZE, "cpu:4095", &addr));
    say(te_register(engine, memory, 64, "cpu:4095", TE_REMOTE_RW));
    say(te_register(engine, memory, 64, "cuda:9", TE_REMOTE_RW));
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

int main(void)
{
    options();
    engine = create();
    say(te_register(engine, memory, SIZE, "*", TE_REMOTE_RW));
    submits();
    prepared();
    batches();
    regions();
    child();
    te_engine_destroy(engine);
    return 0;
}
