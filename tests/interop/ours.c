/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our engine in a process of its own, told what to do line by line: the lines of theirs.py, which
 * says what each means. Beside those:
 *
 *   notify   target, name, msg
 *   refresh  target
 *   install  protocol                              a transport, beside those of init
 *
 * A failure has the engine's own text as "error", and of a transfer the state of the batch as
 * "state".
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <jansson.h>

#include "te.h"

#define SEGMENTS_MAX 64
#define TEXT_MAX     512
#define POLLS_MAX    2000000000ul

static te_engine *engine;
static struct {
    char *name;
    te_segment seg;
} segments[SEGMENTS_MAX];
static size_t segment_count;

/* ---- Random bytes: the Mersenne twister, seeded as Python's random.Random(seed) does -------- */

#define MT_N 624
#define MT_M 397

struct twister {
    uint32_t state[MT_N];
    size_t at;
};

static void seed_linear(struct twister *t, uint32_t seed)
{
    t->state[0] = seed;
    for (uint32_t i = 1; i < MT_N; i++)
        t->state[i] = 1812433253u * (t->state[i - 1] ^ (t->state[i - 1] >> 30)) + i;
}

/* By an array of one number, which is what Python makes of a seed below 2^32. */
static void seed_twister(struct twister *t, uint32_t seed)
{
    uint32_t *s = t->state;
    uint32_t i = 1;
    seed_linear(t, 19650218u);
    for (uint32_t k = 0; k < MT_N; k++) {
        s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1664525u)) + seed;
        if (++i == MT_N) {
            s[0] = s[MT_N - 1];
            i = 1;
        }
    }
    for (uint32_t k = 0; k < MT_N - 1; k++) {
        s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1566083941u)) - i;
        if (++i == MT_N) {
            s[0] = s[MT_N - 1];
            i = 1;
        }
    }
    s[0] = 0x80000000u;
    t->at = MT_N;
}

static void turn(struct twister *t)
{
    uint32_t *s = t->state;
    for (size_t i = 0; i < MT_N; i++) {
        uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % MT_N] & 0x7fffffffu);
        s[i] = s[(i + MT_M) % MT_N] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    t->at = 0;
}

static uint32_t draw(struct twister *t)
{
    if (t->at == MT_N)
        turn(t);
    uint32_t y = t->state[t->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/*
 * Writes bytes of the stream of a seed, from its byte `offset` on, or compares them: the first that
 * differs, -1 for none.
 */
static int64_t stream(uint32_t seed, uint64_t offset, uint8_t *p, uint64_t size, bool compare)
{
    static struct twister t;
    seed_twister(&t, seed);
    for (uint64_t at = 0; at < offset / 4; at++)
        draw(&t);
    uint64_t skip = offset % 4;
    for (uint64_t at = 0; at < size;) {
        uint32_t word = draw(&t);
        uint8_t bytes[4];
        memcpy(bytes, &word, sizeof(bytes)); /* little-endian, as Python writes them */
        uint64_t n = 4 - skip < size - at ? 4 - skip : size - at;
        for (uint64_t k = 0; compare && k < n; k++)
            if (p[at + k] != bytes[skip + k])
                return (int64_t)(at + k);
        if (!compare)
            memcpy(p + at, bytes + skip, n);
        at += n;
        skip = 0;
    }
    return -1;
}

/* ---- Words of a line and answers ------------------------------------------------------------ */

static uint64_t number(json_t *words, const char *key, uint64_t otherwise)
{
    json_t *value = json_object_get(words, key);
    return json_is_integer(value) ? (uint64_t)json_integer_value(value) : otherwise;
}

static const char *text(json_t *words, const char *key)
{
    const char *value = json_string_value(json_object_get(words, key));
    return value ? value : "";
}

static uint8_t *memory(json_t *words, const char *key)
{
    return (uint8_t *)(uintptr_t)number(words, key, 0);
}

static json_t *answer(int rc)
{
    return rc ? json_pack("{sisssi}", "rc", rc, "error", te_errmsg(), "state", -1)
              : json_pack("{si}", "rc", 0);
}

/* ---- The engine ----------------------------------------------------------------------------- */

/* Only the transport that was asked for, and what goes with it. */
static int create(json_t *words)
{
    te_options o;
    te_options_init(&o);
    o.metadata = text(words, "metadata");
    o.local_server_name = text(words, "name");
    o.auto_discover = 0;
    int rc = 0;
    if (*text(words, "device"))
        rc = te_option_set(&o, "MC_TE_FILTERS", text(words, "device"));
    if (!rc)
        rc = te_engine_create(&o, &engine);
    te_options_fini(&o);
    if (!rc)
        rc = te_transport_install(engine,
                                  *text(words, "protocol") ? text(words, "protocol") : "tcp", NULL);
    return rc;
}

static json_t *do_init(json_t *words)
{
    char name[TEXT_MAX], addr[TEXT_MAX];
    int rc = create(words);
    if (!rc)
        rc = te_engine_name(engine, name, sizeof(name));
    if (!rc)
        rc = te_engine_addr(engine, addr, sizeof(addr));
    if (rc)
        return answer(rc);
    return json_pack("{sisssi}", "rc", 0, "segment", name, "port", atoi(strrchr(addr, ':') + 1));
}

static json_t *do_install(json_t *words)
{
    return answer(te_transport_install(engine, text(words, "protocol"), NULL));
}

/* A name that was opened stays open, as in theirs. */
static int find_segment(json_t *words, te_segment *out)
{
    const char *name = text(words, "target");
    for (size_t i = 0; i < segment_count; i++) {
        if (strcmp(segments[i].name, name) == 0) {
            *out = segments[i].seg;
            return 0;
        }
    }
    if (segment_count == SEGMENTS_MAX)
        return TE_ERR_TOO_MANY;
    int rc = te_open(engine, name, out);
    if (!rc) {
        segments[segment_count].name = strdup(name);
        segments[segment_count++].seg = *out;
    }
    return rc;
}

/* ---- Memory --------------------------------------------------------------------------------- */

static int each_buffer(uint8_t *addr, uint64_t size, uint64_t count, bool add)
{
    te_buffer *bufs = calloc(count, sizeof(*bufs));
    void **addrs = calloc(count, sizeof(*addrs));
    int rc = bufs && addrs ? 0 : TE_ERR_MEMORY;
    for (uint64_t i = 0; !rc && i < count; i++) {
        addrs[i] = addr + i * size;
        bufs[i] = (te_buffer){addrs[i], size};
    }
    if (!rc)
        rc = add ? te_register_batch(engine, bufs, count, NULL, TE_REMOTE_RW)
                 : te_unregister_batch(engine, addrs, count);
    free(bufs);
    free(addrs);
    return rc;
}

static json_t *do_register(json_t *words)
{
    uint64_t size = number(words, "size", 0), count = number(words, "count", 1);
    uint64_t align = number(words, "align", 0);
    uint8_t *map = mmap(NULL, size * count + align, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return answer(TE_ERR_MEMORY);
    uint8_t *addr = map + align;
    int rc = count == 1 ? te_register(engine, addr, size, NULL, TE_REMOTE_RW)
                        : each_buffer(addr, size, count, true);
    if (rc)
        return answer(rc);
    if (json_object_get(words, "seed"))
        stream((uint32_t)number(words, "seed", 0), 0, addr, size * count, false);
    return json_pack("{sisI}", "rc", 0, "addr", (json_int_t)(uintptr_t)addr);
}

static json_t *do_unregister(json_t *words)
{
    uint64_t count = number(words, "count", 1);
    uint8_t *addr = memory(words, "addr");
    return answer(count == 1 ? te_unregister(engine, addr)
                             : each_buffer(addr, number(words, "size", 0), count, false));
}

static int64_t stream_of(json_t *words, bool compare)
{
    return stream((uint32_t)number(words, "seed", 0), number(words, "offset", 0),
                  memory(words, "addr"), number(words, "size", 0), compare);
}

static json_t *do_fill(json_t *words)
{
    stream_of(words, false);
    return answer(0);
}

static json_t *do_check(json_t *words)
{
    int64_t at = stream_of(words, true);
    return at < 0 ? answer(0) : json_pack("{sisI}", "rc", -1, "at", (json_int_t)at);
}

/* ---- Transfers ------------------------------------------------------------------------------ */

/* Waits for the batch; with `polls`, by asking for its state as often as it takes. */
static int finish(te_batch b, unsigned long *polls, struct te_status *st)
{
    if (!polls) {
        int rc = te_wait(engine, b, -1);
        return rc ? rc : te_batch_status(engine, b, st);
    }
    int rc;
    do {
        rc = te_batch_status(engine, b, st);
    } while (!rc && (st->state == TE_WAITING || st->state == TE_PENDING) && ++*polls < POLLS_MAX);
    return rc;
}

static json_t *outcome(te_batch b, size_t n, const struct te_status *st, const unsigned long *polls)
{
    char why[TEXT_MAX] = "";
    for (size_t i = 0; i < n && !*why && st->state != TE_COMPLETED; i++)
        te_status_msg(engine, b, i, why, sizeof(why));
    int rc = st->state == TE_COMPLETED ? 0 : st->error;
    return json_pack("{sisisssI}", "rc", rc, "state", st->state, "error", why, "polls",
                     (json_int_t)(polls ? *polls : 0));
}

static json_t *run(const te_request *reqs, size_t n, const te_submit_opts *opts,
                   unsigned long *polls)
{
    struct te_status st = {0};
    te_batch b;
    int rc = te_batch_alloc(engine, n, &b);
    if (rc)
        return answer(rc);
    rc = te_submit(engine, b, reqs, n, opts);
    if (!rc)
        rc = finish(b, polls, &st);
    json_t *got = rc ? answer(rc) : outcome(b, n, &st, polls);
    te_wait(engine, b, -1);
    te_batch_free(engine, b);
    return got;
}

static json_t *move(json_t *words, int opcode, unsigned long *polls)
{
    json_t *note = json_object_get(words, "notify");
    te_submit_opts opts = {.size = sizeof(opts)};
    te_request r = {.opcode = opcode,
                    .source = memory(words, "local"),
                    .target_offset = number(words, "remote", 0),
                    .length = number(words, "length", 0)};
    int rc = find_segment(words, &r.target);
    if (rc)
        return answer(rc);
    if (json_array_size(note) == 2) {
        opts.notify_name = json_string_value(json_array_get(note, 0));
        opts.notify_msg = json_string_value(json_array_get(note, 1));
        opts.notify_target = r.target;
    }
    return run(&r, 1, &opts, polls);
}

static json_t *do_read(json_t *words)
{
    return move(words, TE_READ, NULL);
}

static json_t *do_write(json_t *words)
{
    return move(words, TE_WRITE, NULL);
}

static json_t *do_polled_write(json_t *words)
{
    unsigned long polls = 0;
    return move(words, TE_WRITE, &polls);
}

static json_t *move_batch(json_t *words, int opcode)
{
    json_t *local = json_object_get(words, "local"), *remote = json_object_get(words, "remote");
    json_t *length = json_object_get(words, "length");
    size_t n = json_array_size(local);
    te_segment seg;
    int rc = find_segment(words, &seg);
    te_request *reqs = calloc(n + 1, sizeof(*reqs));
    if (!rc && !reqs)
        rc = TE_ERR_MEMORY;
    for (size_t i = 0; !rc && i < n; i++) {
        uintptr_t addr = (uintptr_t)json_integer_value(json_array_get(local, i));
        reqs[i] =
            (te_request){.opcode = opcode,
                         .source = (void *)addr,
                         .target = seg,
                         .target_offset = (uint64_t)json_integer_value(json_array_get(remote, i)),
                         .length = (uint64_t)json_integer_value(json_array_get(length, i))};
    }
    json_t *got = rc ? answer(rc) : run(reqs, n, NULL, NULL);
    free(reqs);
    return got;
}

static json_t *do_batch_read(json_t *words)
{
    return move_batch(words, TE_READ);
}

static json_t *do_batch_write(json_t *words)
{
    return move_batch(words, TE_WRITE);
}

/* ---- Control -------------------------------------------------------------------------------- */

static json_t *do_notify(json_t *words)
{
    te_segment seg;
    int rc = find_segment(words, &seg);
    return answer(rc ? rc : te_notify(engine, seg, text(words, "name"), text(words, "msg")));
}

static json_t *do_notifies(json_t *words)
{
    (void)words;
    te_notification *list;
    size_t n;
    int rc = te_notify_recv(engine, &list, &n);
    if (rc)
        return answer(rc);
    json_t *out = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(out, json_pack("[ss]", list[i].name, list[i].msg));
    te_notify_free(list, n);
    return json_pack("{siso}", "rc", 0, "list", out);
}

static json_t *do_probe(json_t *words)
{
    return answer(te_probe(engine, text(words, "target")));
}

static json_t *do_refresh(json_t *words)
{
    return answer(te_refresh(engine, text(words, "target")));
}

/* The first that is told of: in address order, where theirs tells the first in the descriptor. */
static json_t *do_first_buffer(json_t *words)
{
    te_buffer buf = {0};
    te_segment seg;
    size_t total;
    int rc = find_segment(words, &seg);
    if (!rc)
        rc = te_segment_buffers(engine, seg, &buf, 1, &total);
    if (rc)
        return answer(rc);
    return json_pack("{sisI}", "rc", 0, "addr", (json_int_t)(uintptr_t)buf.addr);
}

static json_t *do_version(json_t *words)
{
    (void)words;
    return json_pack("{siss}", "rc", 0, "version", te_version());
}

static const struct {
    const char *name;
    json_t *(*run)(json_t *words);
} ops[] = {
    {"init", do_init},
    {"version", do_version},
    {"install", do_install},
    {"register", do_register},
    {"unregister", do_unregister},
    {"fill", do_fill},
    {"check", do_check},
    {"read", do_read},
    {"write", do_write},
    {"batch_read", do_batch_read},
    {"batch_write", do_batch_write},
    {"polled_write", do_polled_write},
    {"notify", do_notify},
    {"notifies", do_notifies},
    {"probe", do_probe},
    {"refresh", do_refresh},
    {"first_buffer", do_first_buffer},
};

static json_t *obey(json_t *words)
{
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (strcmp(ops[i].name, text(words, "op")) == 0)
            return ops[i].run(words);
    return json_pack("{snss}", "rc", "error", "no such op");
}

static void say(json_t *got)
{
    char *line = json_dumps(got, JSON_COMPACT);
    puts(line ? line : "{\"rc\": null, \"error\": \"an answer that is no JSON\"}");
    fflush(stdout);
    free(line);
    json_decref(got);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    say(json_pack("{sisb}", "rc", 0, "ready", 1));
    while (getline(&line, &room, stdin) > 0) {
        json_t *words = json_loads(line, 0, NULL);
        bool last = words && strcmp(text(words, "op"), "exit") == 0;
        if (!last)
            say(words ? obey(words) : json_pack("{snss}", "rc", "error", "no JSON"));
        json_decref(words);
        if (last)
            break;
    }
    free(line);
    te_engine_destroy(engine);
    for (size_t i = 0; i < segment_count; i++)
        free(segments[i].name);
    return 0;
}
