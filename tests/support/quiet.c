/* SPDX-License-Identifier: Apache-2.0 */
#include "patience.h"
#include "quiet.h"

#include "child_engine.h"

#include <assert.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SIZE      ((size_t)128 << 20)
#define OLD_SEED  1
#define PEER_SEED 2
#define PATTERN   0xA5

static atomic_int faults; /* log lines that tell of EFAULT */

static void watch_log(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    if (strstr(line, "Bad address"))
        atomic_fetch_add(&faults, 1);
}

static void sleep_ms(long ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&ts, NULL);
}

/* Waits until some bytes have moved, then freezes the peer. */
static void freeze_midway(te_engine *e, te_batch b, const struct child_engine *c, size_t tasks)
{
    uint64_t moved = 0;

    for (int i = 0; i < 20000 && moved == 0; i++) {
        for (size_t t = 0; t < tasks; t++) {
            struct te_status st;

            assert(te_status(e, b, t, &st) == 0);
            moved += st.bytes;
        }
    }
    child_freeze(c);
}

/* Brings the requests to their end; nothing of the engine may touch `local` after it. */
static te_engine *bring_to_end(te_engine *e, te_batch b, const struct child_engine *c,
                               enum quiet_end how)
{
    switch (how) {
    case QUIET_CANCEL:
        sleep_ms(20);
        assert(te_cancel(e, b) == 0);
        assert(te_wait(e, b, PATIENCE_MS) == 0);
        return e;
    case QUIET_DEADLINE:
        assert(te_wait(e, b, PATIENCE_MS) == 0);
        return e;
    case QUIET_PEER_DEATH:
        kill(c->pid, SIGKILL);
        assert(te_wait(e, b, PATIENCE_MS) == 0);
        return e;
    case QUIET_DESTROY:
        sleep_ms(20);
        te_engine_destroy(e);
        return NULL;
    }
    return e;
}

static size_t count_pattern_gone(const unsigned char *p, size_t n)
{
    size_t gone = 0;

    for (size_t i = 0; i < n; i++)
        gone += p[i] != PATTERN;
    return gone;
}

/* Whole pages of the pattern cannot come from the old source. */
static size_t count_pattern_pages(const unsigned char *p, size_t n)
{
    unsigned char page[4096];
    size_t found = 0;

    memset(page, PATTERN, sizeof(page));
    for (size_t i = 0; i + sizeof(page) <= n; i += sizeof(page))
        found += memcmp(p + i, page, sizeof(page)) == 0;
    return found;
}

static void submit_all(te_engine *e, te_batch b, const struct child_engine *c, void *local,
                       int opcode, enum quiet_end how)
{
    te_submit_opts o = {.size = sizeof(o), .deadline_ms = how == QUIET_DEADLINE ? 300 : 0};
    te_request r[8];
    te_segment seg;

    assert(te_open(e, c->name, &seg) == 0);
    for (size_t i = 0; i < 8; i++)
        r[i] = (te_request){.opcode = opcode,
                            .source = (char *)local + i * (SIZE / 8),
                            .target = seg,
                            .target_offset = (uintptr_t)c->mem + i * (SIZE / 8),
                            .length = SIZE / 8};
    assert(te_submit(e, b, r, 8, &o) == 0);
}

static int judge(const struct child_engine *c, const unsigned char *local, int opcode)
{
    size_t touched = count_pattern_gone(local, SIZE),
           leaked = opcode == TE_WRITE ? count_pattern_pages(c->mem, SIZE) : 0;
    int bad = (touched != 0) + (leaked != 0) + (atomic_load(&faults) != 0);

    if (touched)
        fprintf(stderr, "quiet memory broken: %zu local bytes changed after the end\n", touched);
    if (leaked)
        fprintf(stderr, "quiet memory broken: %zu pages written after the end reached the peer\n",
                leaked);
    if (atomic_load(&faults))
        fprintf(stderr, "quiet memory broken: EFAULT was logged\n");
    return bad;
}

int quiet_run(enum quiet_end how, int opcode)
{
    unsigned char *local = map_pages(SIZE);
    struct child_engine c;
    te_engine *e = NULL;
    te_options o;
    te_batch b;
    int bad;

    atomic_store(&faults, 0);
    child_start(&c, SIZE, TE_REMOTE_RW);
    fill(c.mem, SIZE, PEER_SEED);
    fill(local, SIZE, OLD_SEED);
    te_log_set_sink(watch_log, NULL);
    loopback_options(&o);
    assert(te_engine_create(&o, &e) == 0);
    assert(te_register(e, local, SIZE, "*", TE_LOCAL_ONLY) == 0);
    assert(te_batch_alloc(e, 8, &b) == 0);
    submit_all(e, b, &c, local, opcode, how);
    freeze_midway(e, b, &c, 8);
    e = bring_to_end(e, b, &c, how);
    assert(mmap(local, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0) == local);
    memset(local, PATTERN, SIZE);
    kill(c.pid, SIGCONT);
    sleep_ms(1000);
    bad = judge(&c, local, opcode);
    te_engine_destroy(e);
    te_log_set_sink(NULL, NULL);
    child_stop(&c);
    munmap(local, SIZE);
    return bad;
}
