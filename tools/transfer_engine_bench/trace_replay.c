/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread does it all: it takes requests up in the order of the trace, submits the writes of each
 * as a batch, and sleeps until batches end, the next request arrives or the user wants it to end. A
 * request goes through
 *
 *   taken up   its blocks are found or get slots, and are pinned. When there is no slot, it stays so
 *              until a request before it ends. Alone, it leaves out what finds no slot.
 *   writing    its batch is under way
 *   settling   blocks that it shares with requests before it are still being written by those
 *   reading    --verify: its blocks come back, as many at a time as its area holds
 *
 * and is complete at the end of settling. It is never more than one that is taken up and has not
 * begun to write, and it waits only for such as have; so they cannot block each other.
 *
 * Where bytes come from: the buffers of this side begin with random bytes, and a block is the range
 * of them that its id leads to. So any number of writes can be under way without one copy being made
 * for them, they read memory that is not in the CPU's cache, and what comes back can be compared. The
 * rest of the buffers takes what is read back.
 */
#include "trace_replay.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common_memory.h"
#include "common_random.h"
#include "common_units.h"
#include "te.h"
#include "trace_lru.h"

#define SOURCE_ALIGN  64         /* of the range that is a block's bytes */
#define SOURCE_SPREAD (1u << 20) /* bytes that ranges begin in, at least */
#define WARM_BYTES    65536      /* of a write before the measured ones, at most */
#define WARM_WRITES   16
#define NOISE         0xEE /* what the area to read into has before */
#define POLL_MS       100  /* how often the wait for the first writes looks for signals */
#define TICK_MS       1000 /* the longest sleep */
#define LINE_MS       500  /* how often the live line changes */

#define ROW(member) .name = #member, .offset = offsetof(struct replay_flags, member)

const struct flag replay_flag_table[] = {
    {ROW(trace), .kind = FLAG_TEXT, .initial = "",
     .help =
         "Replay the moves of KV cache of a request trace, a file with a JSON object a line:\n"
         "      {\"timestamp\": ms, \"input_length\": tokens, \"output_length\": tokens,\n"
         "      \"hash_ids\": [one id per 512 tokens]}. The target is the decode side. Not used\n"
         "      then: the flags that shape a load (block and batch size, threads, duration)."},
    {ROW(bytes_per_token), .kind = FLAG_SIZE, .initial = "0", .max = 1u << 30,
     .help = "Bytes of KV cache per token; must be given with --trace. LLaMA3-70B: 327680."},
    {ROW(trace_lru), .kind = FLAG_SIZE, .initial = "0",
     .help = "Bytes of the decode side's cache, least recently used out; 0: the target's buffers."},
    {ROW(trace_speed), .kind = FLAG_FACTOR, .initial = "0",
     .help = "1: as the timestamps say, 10: ten times as fast; 0: as fast as possible."},
    {ROW(trace_inflight), .kind = FLAG_COUNT, .initial = "8", .min = 1, .max = 1024,
     .help = "Requests of the trace that are under way at a time."},
    {ROW(trace_requests), .kind = FLAG_COUNT, .initial = "0",
     .help = "Take only so many requests of the trace; 0: all."},
};

const size_t replay_flag_count = sizeof(replay_flag_table) / sizeof(replay_flag_table[0]);

enum flight_state { FLIGHT_FREE, FLIGHT_TAKEN, FLIGHT_WRITING, FLIGHT_SETTLING, FLIGHT_READING };

/* A request under way. */
struct flight {
    enum flight_state state;
    const struct trace_request *request;
    int64_t arrival_ns;
    te_batch batch;
    te_request *reqs;            /* of the batch */
    struct trace_block **moved;  /* the block of each of them */
    size_t count;                /* of them */
    struct trace_block **blocks; /* of the request; NULL: left out */
    size_t taken, settled, read; /* blocks that are through with that */
    uint8_t *area;               /* that blocks are read into */
    bool in_part;
};

/* A replay under way. */
struct run {
    const struct replay *replay;
    struct replay_result *result;
    te_engine *engine;
    struct trace_lru cache;
    struct mirror *mirrors; /* of our buffers */
    struct flight *flights;
    size_t flight_count, flying; /* flying: those beyond FLIGHT_TAKEN */
    struct flight *taken;        /* the one that is FLIGHT_TAKEN, or NULL */
    uint64_t source_bytes;       /* at the begin of each of our buffers */
    size_t area_blocks;
    size_t next; /* request of the trace */
    int64_t begin_ns, last_ns, line_ns;
    uint64_t line_bytes;
    int event_fd, signal_fd;
    bool stop;     /* no new request */
    bool canceled; /* nor the old ones */
    bool line;     /* there is a live line to wipe */
};

static int64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* ---- Before the first byte ------------------------------------------------------------------- */

bool replay_check(const struct replay *r)
{
    static const char *const others[] = {"sweep", "poll"};
    const struct replay_flags *flags = r->flags;
    struct setup *s = r->setup;

    if (!flags->trace[0]) {
        for (size_t i = 1; i < replay_flag_count; i++) {
            if (flags_given(s->line, replay_flag_table[i].name))
                return setup_fail(s, "--%s needs a trace: give --trace=FILE, too",
                                  replay_flag_table[i].name);
        }
        return true;
    }
    if (flags->bytes_per_token == 0)
        return setup_fail(s,
                          "--bytes_per_token is missing: give the bytes of KV cache that a token "
                          "has in your model, such as --bytes_per_token=327680 for LLaMA3-70B");
    if (flags_given(s->line, "operation") && strcmp(s->flags->operation, "write") != 0)
        return setup_fail(s, "--trace writes: drop --operation=%s", s->flags->operation);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (flags_given(s->line, others[i]))
            return setup_fail(s, "--%s does not go with --trace: drop one of them", others[i]);
    }
    uint64_t block = flags->bytes_per_token * TRACE_BLOCK_TOKENS;
    return flags->trace_lru == 0 || flags->trace_lru >= block ||
           setup_fail(s, "--trace_lru=%" PRIu64 " holds no block of %" PRIu64 " bytes (%d tokens)",
                      flags->trace_lru, block, TRACE_BLOCK_TOKENS);
}

bool replay_read(struct replay *r)
{
    char error[TRACE_ERROR_MAX];
    const char *path = r->flags->trace;
    FILE *in = fopen(path, "re");

    r->block = r->flags->bytes_per_token * TRACE_BLOCK_TOKENS;
    if (!in)
        return setup_fail(r->setup, "cannot open --trace=%s: %s", path, strerror(errno));
    bool ok = trace_read(&r->trace, in, (size_t)r->flags->trace_requests, error);
    fclose(in);
    return ok || setup_fail(r->setup, "cannot use --trace=%s: %s", path, error);
}

void replay_fini(struct replay *r)
{
    trace_free(&r->trace);
}

uint64_t replay_need(const struct replay *r)
{
    uint64_t spread = r->block > SOURCE_SPREAD ? r->block : SOURCE_SPREAD;
    uint64_t source = r->block + spread, areas = r->block * r->flags->trace_inflight;
    if (!r->verify)
        return source;
    return 2 * (source > areas ? source : areas);
}

/* How many slots the cache is to have. */
static bool size_cache(struct replay *r)
{
    struct setup *s = r->setup;
    size_t room = trace_lru_room(s->remotes, s->remote_count, r->block);
    uint64_t asked = r->flags->trace_lru / r->block;

    if (asked > room)
        return setup_fail(s,
                          "--trace_lru=%" PRIu64 " is more than the target has: %zu buffers with "
                          "room for %zu blocks of %" PRIu64 " bytes; start it with a larger "
                          "--buffer_size",
                          r->flags->trace_lru, s->remote_count, room, r->block);
    r->slots = asked ? (size_t)asked : room;
    return true;
}

/* Cuts our buffers into random bytes and, to verify, an area for each flight. */
static bool lay_out(struct run *run)
{
    const struct replay *r = run->replay;
    struct setup *s = r->setup;
    size_t areas = (run->flight_count + s->count - 1) / s->count; /* in each buffer */
    uint64_t seed = 0;

    run->source_bytes = r->verify ? s->length / 2 : s->length;
    for (size_t i = 0; i < s->count; i++) {
        struct mirror *m = &run->mirrors[i];
        if (!mirror_open(m, s, s->buffers[i].addr, s->length))
            return setup_fail(s, "%s", m->error);
        random_fill(&seed, m->seen, run->source_bytes);
        if (!mirror_push(m, 0, run->source_bytes))
            return setup_fail(s, "%s", m->error);
    }
    run->area_blocks = (size_t)((s->length - run->source_bytes) / areas / r->block);
    for (size_t i = 0; r->verify && i < run->flight_count; i++)
        run->flights[i].area = (uint8_t *)s->buffers[i % s->count].addr + run->source_bytes +
                               i / s->count * run->area_blocks * r->block;
    return true;
}

/* Of the buffer that the address is in. */
static struct mirror *mirror_of(const struct run *run, const uint8_t *at)
{
    struct mirror *m = run->mirrors;
    while (at < m->part || (uint64_t)(at - m->part) >= m->length)
        m++;
    return m;
}

static uint8_t *seen(const struct mirror *m, const uint8_t *at)
{
    return m->seen + (at - m->part);
}

/* The bytes of a block. */
static uint8_t *source_of(const struct run *run, uint64_t id)
{
    const struct setup *s = run->replay->setup;
    uint64_t places = (run->source_bytes - run->replay->block) / SOURCE_ALIGN + 1;
    uint64_t state = id;
    uint64_t place = random_next(&state) % places;
    return (uint8_t *)s->buffers[id % s->count].addr + place * SOURCE_ALIGN;
}

static bool make_flights(struct run *run)
{
    size_t n = run->replay->trace.blocks_max ? run->replay->trace.blocks_max : 1;

    run->mirrors = calloc(run->replay->setup->count, sizeof(*run->mirrors));
    run->flights = calloc(run->flight_count, sizeof(*run->flights));
    for (size_t i = 0; run->flights && i < run->flight_count; i++) {
        struct flight *f = &run->flights[i];
        f->reqs = calloc(n, sizeof(*f->reqs));
        f->moved = calloc(n, sizeof(struct trace_block *));
        f->blocks = calloc(n, sizeof(struct trace_block *));
        if (!f->reqs || !f->moved || !f->blocks)
            return false;
    }
    return run->flights != NULL && run->mirrors != NULL;
}

static void close_run(struct run *run)
{
    for (size_t i = 0; run->flights && i < run->flight_count; i++) {
        free(run->flights[i].reqs);
        free(run->flights[i].moved);
        free(run->flights[i].blocks);
    }
    free(run->flights);
    for (size_t i = 0; run->mirrors && i < run->replay->setup->count; i++)
        mirror_close(&run->mirrors[i]);
    free(run->mirrors);
    trace_lru_fini(&run->cache);
    if (run->signal_fd >= 0)
        close(run->signal_fd);
}

static bool open_run(struct run *run)
{
    const struct replay *r = run->replay;
    struct setup *s = r->setup;
    size_t slots = r->slots < r->trace.id_count ? r->slots : r->trace.id_count;

    run->signal_fd = setup_signal_fd();
    if (run->signal_fd < 0)
        return setup_fail(s, "cannot wait for signals: %s", strerror(errno));
    run->event_fd = te_event_fd(run->engine);
    if (run->event_fd < 0)
        return setup_fail(s, "cannot wait for batches: %s", te_errmsg());
    run->flight_count = (size_t)r->flags->trace_inflight;
    /* A slot more than can be used would never be; one is for the writes before the measured ones. */
    if (!trace_lru_init(&run->cache, s->remotes, s->remote_count, r->block, slots ? slots : 1) ||
        !make_flights(run))
        return setup_fail(s, "out of memory");
    return lay_out(run);
}

/* ---- Failures -------------------------------------------------------------------------------- */

/* No more requests; those under way end soon. */
static void give_up(struct run *run)
{
    run->stop = true;
    run->canceled = true;
    for (size_t i = 0; i < run->flight_count; i++) {
        enum flight_state state = run->flights[i].state;
        if (state == FLIGHT_WRITING || state == FLIGHT_READING)
            te_cancel(run->engine, run->flights[i].batch);
    }
}

static void fail(struct run *run, const struct flight *f, const char *what)
{
    run->result->failed = true;
    if (f->request)
        setup_fail(run->replay->setup, "FAILED: request of line %zu: %s", f->request->line, what);
    else
        setup_fail(run->replay->setup, "FAILED: before the first request: %s", what);
    give_up(run);
}

/* Says what became of the first transfer of a batch that did not complete. */
static void fail_batch(struct run *run, const struct flight *f)
{
    char text[1024] = "";
    struct te_status st;

    for (size_t i = 0; i < f->count; i++) {
        if (te_status(run->engine, f->batch, i, &st) || st.state == TE_COMPLETED)
            continue;
        if (te_status_msg(run->engine, f->batch, i, text, sizeof(text)) || !text[0])
            snprintf(text, sizeof(text), "transfer %zu: %s", i, te_strerror(st.error));
        break;
    }
    fail(run, f, text);
}

/* Says how what was read back by request `i` of the batch differs. */
static void tell_mismatch(struct run *run, const struct flight *f, size_t i, const uint8_t *want,
                          const uint8_t *have)
{
    uint64_t length = f->reqs[i].length, first = length, count = 0;

    for (uint64_t at = length; at-- > 0;) {
        if (want[at] == have[at])
            continue;
        first = at;
        count++;
    }
    run->result->corrupt = true;
    setup_fail(run->replay->setup,
               "Detect data integrity problem: request of line %zu, block %" PRIu64
               ": byte at offset %" PRIu64 " of %" PRIu64 " (target address 0x%" PRIx64
               ") is 0x%02x, expected 0x%02x; %" PRIu64 " bytes differ",
               f->request->line, f->moved[i]->id, first, length, f->reqs[i].target_offset + first,
               have[first], want[first], count);
    give_up(run);
}

/* ---- The way of a request -------------------------------------------------------------------- */

static bool submit(struct run *run, struct flight *f, enum flight_state state)
{
    te_submit_opts opts = {.size = sizeof(opts),
                           .deadline_ms = (int64_t)run->replay->setup->flags->deadline_ms};

    if (te_batch_alloc(run->engine, f->count, &f->batch)) {
        fail(run, f, te_errmsg());
        return false;
    }
    if (te_submit(run->engine, f->batch, f->reqs, f->count, &opts)) {
        fail(run, f, te_errmsg());
        te_batch_free(run->engine, f->batch);
        return false;
    }
    f->state = state;
    return true;
}

/* `b` may be longer than what the request has of it. */
static void add_request(const struct run *run, struct flight *f, enum te_opcode opcode,
                        uint8_t *local, struct trace_block *b, uint64_t length)
{
    f->reqs[f->count] = (te_request){.opcode = (int)opcode,
                                     .source = local,
                                     .target = run->replay->setup->target,
                                     .target_offset = b->addr,
                                     .length = length};
    f->moved[f->count++] = b;
}

/* The request is done with its blocks. */
static void land(struct run *run, struct flight *f)
{
    for (size_t i = 0; i < f->taken; i++) {
        if (f->blocks[i])
            trace_lru_put(f->blocks[i]);
    }
    run->flying -= f->state != FLIGHT_TAKEN;
    f->state = FLIGHT_FREE;
}

static uint64_t block_bytes(const struct run *run, const struct flight *f, size_t i)
{
    return trace_block_tokens(f->request, i) * run->replay->flags->bytes_per_token;
}

/* Finds one block or makes room for it; false: not before a request that is under way has ended. */
static bool take_block(struct run *run, struct flight *f, size_t i)
{
    uint64_t id = run->replay->trace.ids[f->request->first_id + i];
    uint64_t length = block_bytes(run, f, i);
    struct trace_block *b = trace_lru_get(&run->cache, id);

    f->blocks[i] = b;
    if (b && b->length >= length) {
        run->result->hit++;
        return true;
    }
    b = b ? b : trace_lru_add(&run->cache, id);
    if (!b && run->flying > 0)
        return false;
    f->blocks[i] = b;
    if (!b) {
        run->result->left_out++;
        f->in_part = true;
        return true;
    }
    run->result->missed++;
    b->length = length;
    b->writes++;
    add_request(run, f, TE_WRITE, source_of(run, id), b, length);
    return true;
}

/* Goes on with the request that is taken up; false while it needs slots of others. */
static bool take(struct run *run)
{
    struct flight *f = run->taken;

    for (; f->taken < f->request->blocks; f->taken++) {
        if (!take_block(run, f, f->taken))
            return false;
    }
    run->taken = NULL;
    if (f->count == 0) {
        f->state = FLIGHT_SETTLING;
    } else if (!submit(run, f, FLIGHT_WRITING)) {
        land(run, f);
        return true;
    }
    run->flying++;
    return true;
}

/* Reads as many blocks back as the area holds; the end of the request when there are none left. */
static void read_back(struct run *run, struct flight *f)
{
    f->count = 0;
    while (f->read < f->taken && f->count < run->area_blocks) {
        uint64_t length = block_bytes(run, f, f->read);
        struct trace_block *b = f->blocks[f->read++];
        if (!b)
            continue;
        uint8_t *local = f->area + f->count * run->replay->block;
        struct mirror *m = mirror_of(run, local);
        memset(seen(m, local), NOISE, length);
        if (!mirror_push(m, (uint64_t)(local - m->part), length)) {
            fail(run, f, m->error);
            land(run, f);
            return;
        }
        add_request(run, f, TE_READ, local, b, length);
    }
    if (f->count == 0 || !submit(run, f, FLIGHT_READING))
        land(run, f);
}

static void compare(struct run *run, const struct flight *f)
{
    for (size_t i = 0; i < f->count && !run->result->corrupt; i++) {
        const te_request *req = &f->reqs[i];
        const uint8_t *from = source_of(run, f->moved[i]->id), *to = req->source;
        struct mirror *m = mirror_of(run, to);
        const uint8_t *want = seen(mirror_of(run, from), from), *have = seen(m, to);
        if (!mirror_pull(m, (uint64_t)(to - m->part), req->length)) {
            fail(run, f, m->error);
            return;
        }
        if (memcmp(want, have, req->length) != 0)
            tell_mismatch(run, f, i, want, have);
        else
            run->result->verified += req->length;
    }
}

/* Whether all blocks of the request are in place. */
static bool settled(struct flight *f)
{
    while (f->settled < f->taken && (!f->blocks[f->settled] || f->blocks[f->settled]->writes == 0))
        f->settled++;
    return f->settled == f->taken;
}

static void complete(struct run *run, struct flight *f)
{
    run->last_ns = now_ns();
    hist_add(&run->result->completion, (uint64_t)(run->last_ns - f->arrival_ns), 1);
    run->result->requests++;
    run->result->in_part += f->in_part;
    if (run->replay->verify && !run->canceled)
        read_back(run, f);
    else
        land(run, f);
}

/* A batch of the request has ended. */
static void on_batch(struct run *run, struct flight *f)
{
    struct te_status st;
    bool writing = f->state == FLIGHT_WRITING;
    bool ok = te_batch_status(run->engine, f->batch, &st) == 0 && st.state == TE_COMPLETED;

    if (!ok && !run->canceled)
        fail_batch(run, f);
    te_batch_free(run->engine, f->batch);
    f->state = FLIGHT_SETTLING; /* It has no batch to cancel any more. */
    for (size_t i = 0; writing && i < f->count; i++)
        f->moved[i]->writes--;
    if (ok && writing)
        run->result->bytes += st.bytes;
    else if (ok)
        compare(run, f);
    if (!ok || (!writing && run->canceled))
        land(run, f);
    else if (!writing)
        read_back(run, f);
}

/* ---- The loop -------------------------------------------------------------------------------- */

/* When the next request arrives; with no pace, now. */
static int64_t next_arrival(const struct run *run)
{
    const struct trace *t = &run->replay->trace;
    uint64_t ms = t->requests[run->next].timestamp_ms - t->requests[0].timestamp_ms;
    double speed = run->replay->flags->trace_speed;
    double ns = speed > 0 ? (double)ms * 1e6 / speed : 0;

    if (speed <= 0)
        return now_ns();
    return ns < 4e18 ? run->begin_ns + (int64_t)ns : INT64_MAX;
}

static bool more(const struct run *run)
{
    return !run->stop && run->next < run->replay->trace.count;
}

static struct flight *free_flight(const struct run *run)
{
    for (size_t i = 0; i < run->flight_count; i++) {
        if (run->flights[i].state == FLIGHT_FREE)
            return &run->flights[i];
    }
    return NULL;
}

/* Begins with the next request, if it has arrived and may be under way. */
static bool begin(struct run *run)
{
    struct flight *f = more(run) ? free_flight(run) : NULL;
    int64_t arrival = f ? next_arrival(run) : 0;

    if (!f || arrival > now_ns())
        return false;
    f->state = FLIGHT_TAKEN;
    f->request = &run->replay->trace.requests[run->next++];
    f->arrival_ns = arrival;
    f->count = f->taken = f->settled = f->read = 0;
    f->in_part = false;
    run->taken = f;
    return true;
}

static void settle(struct run *run)
{
    for (size_t i = 0; i < run->flight_count; i++) {
        struct flight *f = &run->flights[i];
        if (f->state == FLIGHT_SETTLING && run->canceled)
            land(run, f);
        else if (f->state == FLIGHT_SETTLING && settled(f))
            complete(run, f);
    }
}

/* Begins with as many requests as may be. */
static void launch(struct run *run)
{
    while ((run->taken || begin(run)) && !run->canceled) {
        if (!take(run))
            return;
        settle(run);
    }
}

/* Takes the batches that have ended. */
static void harvest(struct run *run)
{
    te_batch ids[64];
    int n;

    while ((n = te_done(run->engine, ids, sizeof(ids) / sizeof(ids[0]))) > 0) {
        for (int k = 0; k < n; k++) {
            for (size_t i = 0; i < run->flight_count; i++) {
                struct flight *f = &run->flights[i];
                if (f->batch == ids[k] &&
                    (f->state == FLIGHT_WRITING || f->state == FLIGHT_READING))
                    on_batch(run, f);
            }
        }
    }
    settle(run);
}

/* The first signal asks for no more requests, the second cancels those under way. */
static void heed_signals(struct run *run)
{
    if (!setup_interrupted(0))
        return;
    if (run->result->interrupted)
        give_up(run);
    run->result->interrupted = true;
    run->stop = true;
}

static void draw_line(struct run *run, int64_t now)
{
    const struct setup_flags *flags = run->replay->setup->flags;
    const struct replay_result *res = run->result;
    double seconds = (double)(now - run->line_ns) / 1e9;
    double asked = (double)(res->hit + res->missed + res->left_out);

    fprintf(stderr, "\r%.*f %s/s, %zu of %zu requests, hit rate %.1f %%\033[K",
            (int)flags->report_precision,
            (double)(res->bytes - run->line_bytes) / seconds / units_report(flags->report_unit),
            flags->report_unit, res->requests, run->replay->trace.count,
            asked > 0 ? 100 * (double)res->hit / asked : 0);
    fflush(stderr);
    run->line = true;
    run->line_ns = now;
    run->line_bytes = res->bytes;
}

/* Sleeps until something is to be done. */
static void sleep_until_event(struct run *run)
{
    struct pollfd fds[] = {{.fd = run->event_fd, .events = POLLIN},
                           {.fd = run->signal_fd, .events = POLLIN}};
    int64_t now = now_ns(), left = TICK_MS * 1000000ll;

    if (run->replay->progress && now - run->line_ns >= LINE_MS * 1000000ll)
        draw_line(run, now);
    if (run->replay->progress)
        left = LINE_MS * 1000000ll;
    if (!run->taken && more(run) && free_flight(run)) {
        int64_t until = next_arrival(run) - now;
        left = until < left ? until : left;
    }
    left = left > 0 ? left : 0;
    struct timespec ts = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    if (ppoll(fds, 2, &ts, NULL) > 0 && fds[1].revents)
        heed_signals(run);
}

/* Writes a little to the target, which finds it and connects; this is not measured. */
static void warm_up(struct run *run)
{
    const struct replay *r = run->replay;
    struct flight *f = &run->flights[0];
    struct te_status st = {.state = TE_FAILED};
    uint64_t length = r->block < WARM_BYTES ? r->block : WARM_BYTES;

    for (size_t i = 0; i < run->cache.count && i < r->trace.blocks_max && i < WARM_WRITES; i++)
        add_request(run, f, TE_WRITE, source_of(run, i), &run->cache.slots[i], length);
    if (f->count == 0 || !submit(run, f, FLIGHT_WRITING))
        return;
    while (te_wait(run->engine, f->batch, POLL_MS) == TE_ERR_TIMEOUT) {
        if (setup_interrupted(0)) {
            run->result->interrupted = true;
            give_up(run);
        }
    }
    bool ok = te_batch_status(run->engine, f->batch, &st) == 0 && st.state == TE_COMPLETED;
    if (!ok && !run->canceled)
        fail_batch(run, f);
    te_batch_free(run->engine, f->batch);
    f->state = FLIGHT_FREE;
}

static void go(struct run *run)
{
    run->begin_ns = run->last_ns = run->line_ns = now_ns();
    launch(run);
    while (run->flying > 0 || (run->taken && !run->canceled) || more(run)) {
        sleep_until_event(run);
        harvest(run);
        launch(run);
    }
    if (run->line)
        fputs("\r\033[K", stderr);
    run->result->seconds = (double)(run->last_ns - run->begin_ns) / 1e9;
    run->result->evicted = run->cache.evicted;
}

bool replay_run(struct replay *r, struct replay_result *result)
{
    struct run run = {.replay = r, .result = result, .engine = r->setup->engine, .signal_fd = -1};

    *result = (struct replay_result){0};
    bool ok = size_cache(r) && open_run(&run);
    if (ok) {
        warm_up(&run);
        go(&run);
    }
    result->failed |= !ok;
    close_run(&run);
    return !result->failed && !result->corrupt;
}
