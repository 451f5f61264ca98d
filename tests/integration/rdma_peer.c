/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine with RDMA in a process of its own, told what to do line by line on stdin; each command is
 * answered by one line on stdout. test_rdma_fail.py compiles it.
 *
 *   rdma_peer METADATA NAME FILE [OPTION=VALUE]...     prints "ready SEGMENT ADDRESS"
 *
 * FILE is memory that the two processes of a test share, and the target registers: its first half is
 * read from, and holds what its offset determines; its second half is written to. The initiator looks
 * at it directly, so that what a READ brought and what a WRITE left at the target are both compared,
 * byte by byte, in the moment in which the engine says COMPLETED.
 *
 *   target                    registers FILE
 *   fill                      in place of it where the target is on another machine: fills a FILE of
 *                             its own alike, with which READ is compared
 *   open NAME ADDRESS         opens the target's segment, FILE being at ADDRESS there
 *   stream read|write LENGTH INFLIGHT REPORT
 *                             begins to transfer without end, and writes a line for each request into
 *                             REPORT: begin and end in nanoseconds, state, error, text
 *   stop                      ends the stream: "ok DONE FAILED WRONG"
 *   close                     destroys the engine; the process lives on until stdin ends
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "te.h"

#define INFLIGHT_MAX 64
#define WORDS_MAX    8
#define TIMEOUT_MS   1
#define BREATH_US    5000 /* after a failure */

static te_engine *engine;
static uint8_t *shared, *own; /* FILE, and as much memory of this process */
static size_t half;

static struct {
    pthread_t thread;
    atomic_bool stop;
    bool runs;
    int opcode;
    size_t length, inflight;
    _Atomic te_segment segment; /* opened anew while the stream runs */
    _Atomic uint64_t remote;    /* likewise */
    FILE *report;
    uint64_t next, done, failed, wrong;
} stream;

struct slot {
    te_batch batch;
    uint64_t block; /* of the half that is read from */
    int64_t begun_ns;
};

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void answer(int rc)
{
    if (rc)
        printf("err %d %s\n", rc, te_errmsg());
    else
        printf("ok\n");
}

/* Every word tells where it belongs, and those of different seeds differ. */
static void fill(uint8_t *at, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t z = (seed + i) * 0x9E3779B97F4A7C15ull;

        z ^= z >> 29;
        memcpy(at + i, &z, sizeof z);
    }
}

/* ---------------------------------------------------------------------------------------- stream */

static uint8_t *own_block(const struct slot *s, size_t index)
{
    return own + (stream.opcode == TE_READ ? index : s->block) * stream.length;
}

static uint8_t *far_block(const struct slot *s, size_t index)
{
    return shared +
           (stream.opcode == TE_READ ? s->block * stream.length : half + index * stream.length);
}

static void report(const struct slot *s, int state, int error, const char *text)
{
    fprintf(stream.report, "%" PRId64 " %" PRId64 " %d %d %s\n", s->begun_ns, now_ns(), state,
            error, text);
    if (state == TE_COMPLETED) {
        stream.done++;
    } else {
        stream.failed++;
        usleep(BREATH_US);
    }
}

/* Another block than the one before, so that what an earlier request left in the slot is not right. */
static void begin(struct slot *s, size_t index)
{
    te_request r = {.opcode = stream.opcode, .target = stream.segment, .length = stream.length};
    int rc = te_batch_alloc(engine, 1, &s->batch);

    s->block = stream.next++ % (half / stream.length);
    s->begun_ns = now_ns();
    r.source = own_block(s, index);
    r.target_offset = stream.remote + (uint64_t)(far_block(s, index) - shared);
    if (!rc)
        rc = te_submit(engine, s->batch, &r, 1, NULL);
    if (!rc)
        return;
    report(s, TE_FAILED, rc, te_errmsg());
    if (s->batch)
        te_batch_free(engine, s->batch);
    s->batch = 0;
}

/* True if the request of the slot has ended. */
static bool finish(struct slot *s, size_t index)
{
    struct te_status st;
    char text[512] = "";

    if (te_batch_status(engine, s->batch, &st) || st.state == TE_WAITING || st.state == TE_PENDING)
        return false;
    if (st.state != TE_COMPLETED)
        te_status_msg(engine, s->batch, 0, text, sizeof text);
    else if (memcmp(own_block(s, index), far_block(s, index), stream.length) != 0)
        stream.wrong++;
    report(s, st.state, st.error, text);
    while (te_batch_free(engine, s->batch) == TE_ERR_BUSY)
        te_wait(engine, s->batch, TIMEOUT_MS);
    s->batch = 0;
    return true;
}

/* Ends and begins what there is to end and begin; how many requests have ended. */
static size_t turn(struct slot *slots, bool more)
{
    size_t ended = 0;

    for (size_t i = 0; i < stream.inflight; i++) {
        if (slots[i].batch)
            ended += finish(&slots[i], i);
        if (!slots[i].batch && more)
            begin(&slots[i], i);
    }
    return ended;
}

/* NULL: all have ended. */
static const struct slot *first_busy(const struct slot *slots)
{
    for (size_t i = 0; i < stream.inflight; i++)
        if (slots[i].batch)
            return &slots[i];
    return NULL;
}

static void *run(void *arg)
{
    struct slot slots[INFLIGHT_MAX] = {{0}};
    const struct slot *busy;
    bool more;

    (void)arg;
    do {
        more = !atomic_load(&stream.stop);
        size_t ended = turn(slots, more);
        busy = first_busy(slots);
        if (busy && ended == 0)
            te_wait(engine, busy->batch, TIMEOUT_MS);
    } while (more || busy);
    return NULL;
}

static void do_stream(char **w)
{
    stream.opcode = strcmp(w[1], "write") == 0 ? TE_WRITE : TE_READ;
    stream.length = strtoull(w[2], NULL, 0);
    stream.inflight = strtoull(w[3], NULL, 0);
    stream.report = fopen(w[4], "we");
    if (!stream.report || stream.inflight > INFLIGHT_MAX ||
        stream.inflight * stream.length > half || stream.length == 0) {
        printf("err -1 bad stream\n");
        return;
    }
    setvbuf(stream.report, NULL, _IOLBF, 0); /* read while it grows */
    stream.next = stream.done = stream.failed = stream.wrong = 0;
    atomic_store(&stream.stop, false);
    stream.runs = pthread_create(&stream.thread, NULL, run, NULL) == 0;
    printf("ok\n");
}

static void do_stop(char **w)
{
    (void)w;
    if (!stream.runs) {
        printf("err -1 no stream\n");
        return;
    }
    atomic_store(&stream.stop, true);
    pthread_join(stream.thread, NULL);
    stream.runs = false;
    fclose(stream.report);
    printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", stream.done, stream.failed, stream.wrong);
}

/* ----------------------------------------------------------------------------------------- engine */

static void do_target(char **w)
{
    (void)w;
    fill(shared, half, 1);
    answer(te_register(engine, shared, 2 * half, "*", TE_REMOTE_RW));
}

static void do_fill(char **w)
{
    (void)w;
    fill(shared, half, 1);
    answer(0);
}

static void do_open(char **w)
{
    te_segment segment = 0;
    int rc = te_open(engine, w[1], &segment);

    if (!rc)
        stream.segment = segment;
    stream.remote = strtoull(w[2], NULL, 0);
    if (!rc && !own) {
        own = mmap(NULL, half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fill(own, half, 2);
        rc = te_register(engine, own, half, "*", TE_REMOTE_RW);
    }
    answer(rc);
}

static void do_close(char **w)
{
    (void)w;
    te_engine_destroy(engine);
    printf("ok\n");
}

static void do_explain(char **w)
{
    char text[8192];
    te_request r = {.opcode = TE_READ,
                    .source = own,
                    .target = stream.segment,
                    .target_offset = stream.remote,
                    .length = 65536};
    int rc = te_explain(engine, &r, text, sizeof text);

    (void)w;
    for (char *c = text; !rc && *c; c++)
        *c = *c == '\n' ? ';' : *c;
    if (rc)
        answer(rc);
    else
        printf("ok %s\n", text);
}

static const struct {
    const char *name;
    int words;
    void (*run)(char **w);
} commands[] = {{"target", 1, do_target},  {"fill", 1, do_fill}, {"open", 3, do_open},
                {"stream", 5, do_stream},  {"stop", 1, do_stop}, {"close", 1, do_close},
                {"explain", 1, do_explain}};

static void obey(char *line)
{
    char *words[WORDS_MAX + 1] = {NULL};
    int n = 0;

    for (char *w = strtok(line, " \n"); w && n < WORDS_MAX; w = strtok(NULL, " \n"))
        words[n++] = w;
    for (size_t i = 0; n > 0 && i < sizeof commands / sizeof commands[0]; i++) {
        if (n >= commands[i].words && strcmp(words[0], commands[i].name) == 0) {
            commands[i].run(words);
            return;
        }
    }
    printf("err -1 no such command, or too few words\n");
}

static int map(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) != 0)
        return -1;
    half = (size_t)st.st_size / 2;
    shared = mmap(NULL, 2 * half, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return shared == MAP_FAILED ? -1 : 0;
}

static int start(int argc, char **argv)
{
    te_options o;
    int rc = 0;

    te_options_init(&o);
    o.metadata = argv[1];
    o.local_server_name = argv[2];
    o.auto_discover = 0;
    for (int i = 4; i < argc && !rc; i++) {
        char *value = strchr(argv[i], '=');

        if (value)
            *value++ = '\0';
        rc = te_option_set(&o, argv[i], value ? value : "1");
    }
    if (!rc)
        rc = te_engine_create(&o, &engine);
    te_options_fini(&o);
    return rc ? rc : te_transport_install(engine, "rdma", NULL);
}

int main(int argc, char **argv)
{
    char line[4096], name[256];
    int rc;

    if (argc < 4 || map(argv[3]) != 0) {
        fprintf(stderr, "usage: rdma_peer METADATA NAME FILE [OPTION=VALUE]...\n");
        return 2;
    }
    rc = start(argc, argv);
    if (!rc)
        rc = te_engine_name(engine, name, sizeof name);
    if (rc) {
        printf("err %d %s\n", rc, te_errmsg());
        return 1;
    }
    printf("ready %s %" PRIu64 "\n", name, (uint64_t)(uintptr_t)shared);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        obey(line);
        fflush(stdout);
    }
    return 0;
}
