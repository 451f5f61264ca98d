/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the memory of target.c and writes it back inverted: ./initiator NAME, where NAME is what the target
 * prints.
 * The blocks are a prepared list. A few batches of them are under way at a time, with a deadline, and the
 * program learns by poll(2) which have ended. In between it cancels a WRITE and waits until the target is
 * quiet, and at the end it sends a message.
 */
#include <poll.h>
#include <stdio.h>
#include <te.h>

enum { BLOCK = 64 << 10, BLOCKS = 32, PER_BATCH = 8, UNDER_WAY = 2, DEADLINE_MS = 60000 };

static unsigned char memory[BLOCKS * BLOCK];

/* Whether a call failed; says why. */
static int bad(const char *what, int rc)
{
    if (rc < 0)
        fprintf(stderr, "initiator: %s: %s\n", what, te_errmsg());
    return rc < 0;
}

/* A list of all blocks of the segment, each beside its place in `memory`. */
static int prepare(te_engine *engine, te_segment segment, te_prep *list)
{
    void *local[BLOCKS];
    uint64_t remote[BLOCKS];
    size_t length[BLOCKS], buffers;
    te_buffer there = {0};

    if (bad("te_segment_buffers", te_segment_buffers(engine, segment, &there, 1, &buffers)))
        return 1;
    if (there.length != sizeof(memory))
        return fprintf(stderr, "initiator: this is not the segment of target.c\n"), 1;
    for (size_t i = 0; i < BLOCKS; i++) {
        local[i] = memory + i * BLOCK;
        remote[i] = (uintptr_t)there.addr + i * BLOCK;
        length[i] = BLOCK;
    }
    return bad("te_prep_create",
               te_prep_create(engine, segment, local, remote, length, BLOCKS, list));
}

/* Submits PER_BATCH blocks, from number `first` on, as a batch of their own. */
static int submit(te_engine *engine, te_prep list, int opcode, uint32_t first)
{
    const te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = DEADLINE_MS};
    uint32_t index[PER_BATCH];
    te_batch batch;

    for (uint32_t i = 0; i < PER_BATCH; i++)
        index[i] = first + i;
    return bad("te_batch_alloc", te_batch_alloc(engine, PER_BATCH, &batch)) ||
           bad("te_prep_submit",
               te_prep_submit(engine, batch, list, opcode, index, PER_BATCH, &opts));
}

/* Frees a batch that has ended. Returns how many of its requests completed, and says why others did not. */
static int finish(te_engine *engine, te_batch batch, int requests)
{
    struct te_status status;
    char why[512];
    int completed = 0;

    for (int task = 0; task < requests; task++) {
        if (bad("te_status", te_status(engine, batch, task, &status)) ||
            bad("te_status_msg", te_status_msg(engine, batch, task, why, sizeof(why))))
            return -1;
        completed += status.state == TE_COMPLETED;
        if (status.state != TE_COMPLETED && status.state != TE_CANCELED)
            fprintf(stderr, "initiator: %s\n", why);
    }
    return bad("te_batch_free", te_batch_free(engine, batch)) ? -1 : completed;
}

/* Moves all blocks. A program with an event loop has the descriptor among its others. */
static int move(te_engine *engine, te_prep list, int opcode)
{
    struct pollfd ready = {.fd = te_event_fd(engine), .events = POLLIN};
    te_batch ended[UNDER_WAY];
    uint32_t next = 0;
    int under_way = 0, n;

    if (bad("te_event_fd", ready.fd))
        return 1;
    while (next < BLOCKS || under_way > 0) {
        for (; next < BLOCKS && under_way < UNDER_WAY; next += PER_BATCH, under_way++)
            if (submit(engine, list, opcode, next))
                return 1;
        poll(&ready, 1, -1); /* the deadline ends what the peer does not */
        n = te_done(engine, ended, UNDER_WAY);
        if (bad("te_done", n))
            return 1;
        for (under_way -= n; n > 0; n--)
            if (finish(engine, ended[n - 1], PER_BATCH) != PER_BATCH)
                return 1;
    }
    return 0;
}

/*
 * Starts to write all blocks, and cancels that. Once the batch has ended, the engine touches no block; after the
 * fence nothing of it changes the memory of the target, so that others may write there.
 */
static int write_and_cancel(te_engine *engine, te_prep list, int *completed)
{
    te_batch batch;

    if (bad("te_batch_alloc", te_batch_alloc(engine, BLOCKS, &batch)) ||
        bad("te_prep_submit", te_prep_submit(engine, batch, list, TE_WRITE, NULL, BLOCKS, NULL)) ||
        bad("te_cancel", te_cancel(engine, batch)) ||
        bad("te_wait", te_wait(engine, batch, DEADLINE_MS)) ||
        bad("te_fence", te_fence(engine, batch, DEADLINE_MS, NULL, 0, NULL)))
        return 1;
    *completed = finish(engine, batch, BLOCKS);
    return *completed < 0;
}

static int work(te_engine *engine, const char *name)
{
    te_segment segment;
    te_prep list;
    int wrong = 0, completed;

    if (bad("te_register", te_register(engine, memory, sizeof(memory), "*", TE_LOCAL_ONLY)) ||
        bad("te_open", te_open(engine, name, &segment)) || prepare(engine, segment, &list) ||
        move(engine, list, TE_READ) || write_and_cancel(engine, list, &completed))
        return 1;
    for (size_t i = 0; i < sizeof(memory); i++) {
        wrong += memory[i] != (unsigned char)(i * 7 + i / 251);
        memory[i] = (unsigned char)~memory[i];
    }
    if (move(engine, list, TE_WRITE) ||
        bad("te_notify", te_notify(engine, segment, "written", "by initiator.c")))
        return 1;
    printf("initiator: %zu bytes read, %d of them wrong, and written back inverted; of %d canceled "
           "requests %d completed\n",
           sizeof(memory), wrong, BLOCKS, completed);
    return bad("te_prep_destroy", te_prep_destroy(engine, list)) ||
           bad("te_close", te_close(engine, segment)) || wrong > 0;
}

int main(int argc, char **argv)
{
    te_engine *engine;
    int rc;

    if (argc != 2)
        return fprintf(stderr, "usage: %s NAME\n", argv[0]), 2;
    if (bad("te_engine_create", te_engine_create(NULL, &engine)))
        return 1;
    rc = work(engine, argv[1]);
    te_engine_destroy(engine);
    return rc;
}
