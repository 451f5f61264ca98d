/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foe.c - hosts that are no engines and mean harm: they speak to both ports of every engine, in frames that are
 * nearly right. What they ask for is nothing that anybody may have but for `extra`, which is open while it is
 * there: memory of a user's own, what leases are of, ranges that begin before open memory or end beyond it. So no
 * byte that the run is sure of may ever change by them, and nothing that is protected may be touched. Their bytes are put together here, by docs/protocol.md, not by what
 * the library has for that.
 */
#include "world.h"

#include "machine.h"
#include "net.h"
#include "sim.h"
#include "transport/tcp/tcp_wire.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define JSON   ((size_t)1 << 20)
#define BLOCKS 4
#define FRAMES 24 /* of a visit at most */
#define ROOM \
    (TCP_FRAME_LEN + BLOCKS * (TCP_BLOCK_LEN + EXTRA) + TCP_LEASE_OPTIONS) /* for the longest */

/* What a foe knows of the engine that it visits. */
struct prey {
    const struct life *life;
    uint64_t id;       /* te.tcp.id */
    uint16_t ports[2]; /* of data, of handshakes; 0: not known */
};

/* A visit to the data port, in the native framing. */
struct visit {
    const struct prey *prey;
    int fd;
    bool is_plain; /* nothing that was sent is malformed, so answers are of what was asked for */
    bool is_open[1 + FRAMES]; /* all of that frame was in `extra` */
    uint8_t head
        [TCP_FRAME_LEN]; /* of the answer that comes, so many bytes of it, and how many follow it */
    size_t have, rest;
};

static void put(uint8_t *to, size_t n, uint64_t value)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t number_behind(const char *json, const char *key, const char *digits, int base)
{
    const char *at = strstr(json, key);

    at = at ? at + strlen(key) : NULL;
    return at ? strtoull(at + strcspn(at, digits), NULL, base) : 0;
}

/* By the word of the engine itself, as everybody can ask for it. */
static bool find(struct prey *p)
{
    const struct life *l = sim_any_life();
    char *json;

    if (!l || l->over || !l->engine)
        return false;
    json = sim_new(JSON);
    sim_segment_json(l->engine, TE_LOCAL_SEGMENT, json, JSON);
    p->life = l;
    p->ports[0] = (uint16_t)number_behind(json, "tcp_data_port", "0123456789", 10);
    p->id = number_behind(json, "\"id\":\"", "0123456789abcdef", 16);
    p->ports[1] = sim_world.store ? 0 : (uint16_t)number_behind(l->name, ":", "0123456789", 10);
    free(json);
    return p->ports[0];
}

/* -------------------------------------------------------------------------------------- memory */

/* A range that nobody may have, unless it is in `extra`, which is told. Memory of a device, or of
 * te_alloc(), may adjoin other memory. */
static uint64_t range(const struct prey *p, uint32_t *length, bool *is_open)
{
    const struct life *l = p->life;
    bool adjoins = (sim_world.knobs.fabrics & FABRIC_GPUS) || sim_machine_is_shared(l->host);
    uint64_t at = 1 + sim_below(64), first = adjoins ? 2 : 0;

    *length = 1 + (uint32_t)sim_below(1u << sim_below(13));
    *is_open = false;
    switch (first + sim_below((l->lent ? 8 : 6) - first)) {
    case 0: /* before open memory, and into it */
        return (uintptr_t)l->memory - at;
    case 1: /* in it, and beyond it */
        *length += (uint32_t)at;
        return (uintptr_t)l->memory + sim_memory_size() - at;
    case 2:
        return (uintptr_t)sim_world.hosts[l->host].users[sim_below(USERS)].local;
    case 3:
        return UINT64_MAX - sim_below(2 * *length);
    case 4:
        return sim_random() << sim_below(60);
    case 5:
        at = sim_below(EXTRA - 1);
        *length = 1 + (uint32_t)sim_below(EXTRA - 1 - at);
        *is_open = true;
        return (uintptr_t)l->extra + at;
    default:
        return (uintptr_t)sim_leases_place(l);
    }
}

/* ------------------------------------------------------------------------------------- data port */

/* The key of no lease; or of one that is over, which opens nothing either. */
static size_t put_key(uint8_t *out, const struct prey *p)
{
    uint8_t key[sizeof(te_lease_key)];

    for (size_t i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)sim_random();
    if (p->life->lent)
        sim_leases_wrong_key(p->life, key);
    put(out, 2, TCP_OPTION_LEASE | TCP_OPTION_MUST);
    put(out + 2, 2, sizeof(key));
    memcpy(out + 4, key, sizeof(key));
    put(out + 28, 4, 0);
    return TCP_LEASE_OPTIONS;
}

/* The blocks of a frame; returns how much is to be moved. */
static uint64_t put_blocks(uint8_t *out, unsigned n, const struct prey *p, bool *is_open)
{
    uint64_t payload = 0;

    *is_open = true;
    for (unsigned i = 0; i < n; i++, out += TCP_BLOCK_LEN) {
        uint32_t length;
        bool open;
        uint64_t addr = range(p, &length, &open);

        put(out, 8, addr);
        put(out + 8, 4, length);
        put(out + 12, 4, 0);
        payload += length;
        *is_open = *is_open && open;
    }
    return payload;
}

/* A READ or WRITE, or what looks like one; returns its bytes. */
static size_t native_frame(uint8_t *out, struct visit *v, unsigned id)
{
    unsigned type = sim_one_in(32) ? (unsigned)sim_below(24)
                                   : (sim_one_in(2) ? TCP_FRAME_READ : TCP_FRAME_WRITE);
    unsigned n = 1 + (unsigned)sim_below(BLOCKS);
    size_t at = TCP_FRAME_LEN + n * TCP_BLOCK_LEN, options = 0;
    uint64_t payload = put_blocks(out + TCP_FRAME_LEN, n, v->prey, &v->is_open[id]);

    if (sim_one_in(2)) {
        options = put_key(out + at, v->prey);
        v->is_open[id] = false;
    }
    at += options;
    payload = type == TCP_FRAME_WRITE ? payload : 0;
    memset(out, 0, TCP_FRAME_LEN);
    out[0] = (uint8_t)type;
    out[1] = (uint8_t)(options / TCP_OPTION_UNIT);
    put(out + 2, 2, n);
    put(out + 8, 8, id);
    put(out + 16, 8, payload);
    v->is_plain = v->is_plain && (type == TCP_FRAME_READ || type == TCP_FRAME_WRITE);
    if (sim_one_in(32)) { /* but for its blocks */
        out[sim_below(TCP_FRAME_LEN)] ^= (uint8_t)(1u << sim_below(8));
        v->is_plain = false;
    }
    memset(out + at, 0xee, payload);
    return at + payload;
}

static size_t classic_frame(uint8_t *out, const struct prey *p)
{
    uint32_t length;
    bool is_open;
    uint64_t addr = range(p, &length, &is_open);

    memset(out, 0, TCP_HEAD_LEN);
    put(out, 8, sim_one_in(10) ? sim_random() << sim_below(64) : length);
    put(out + 8, 8, addr);
    out[16] = (uint8_t)(sim_one_in(8) ? sim_random()
                                      : (sim_below(2) | (sim_one_in(2) ? TCP_OPCODE_V2 : 0)));
    memset(out + TCP_HEAD_LEN, 0xee, length);
    return TCP_HEAD_LEN + length;
}

static size_t greeting(uint8_t *out, struct visit *v)
{
    memset(out, 0, TCP_HELLO_LEN);
    put(out, 8, TCP_HELLO_MAGIC);
    put(out + 8, 2, TCP_NATIVE_VERSION);
    put(out + 16, 8, v->prey->id);
    put(out + 24, 8, sim_random());
    put(out + 32, 8, sim_random());
    if (sim_one_in(8)) {
        out[8 + sim_below(16)] ^= (uint8_t)(1u << sim_below(8));
        v->is_plain = false;
    }
    return TCP_HELLO_LEN;
}

/* The header of an answer: nothing was done that is not open. */
static void judge(struct visit *v)
{
    uint64_t id = 0, length = 0, verdict = 0;

    for (size_t i = 8; i-- > 0;) {
        id = id << 8 | v->head[8 + i];
        length = length << 8 | v->head[16 + i];
        verdict = verdict << 8 | (i < 4 ? v->head[24 + i] : 0);
    }
    v->rest = length + (size_t)v->head[1] * TCP_OPTION_UNIT;
    sim_trace("a foe: answer %u to %llu: %llu", v->head[0], (unsigned long long)id,
              (unsigned long long)verdict);
    if (v->is_plain && verdict == TCP_OK && v->head[0] != TCP_FRAME_HELLO &&
        (id > FRAMES || !v->is_open[id]))
        sim_fail("torn: host %d has %s what is open to nobody, by frame %llu", v->prey->life->host,
                 v->head[0] == TCP_FRAME_DATA ? "told" : "let in", (unsigned long long)id);
}

static void take_answers(struct visit *v, const uint8_t *bytes, size_t n)
{
    for (size_t k; n > 0; bytes += k, n -= k) {
        k = v->rest ? v->rest : TCP_FRAME_LEN - v->have;
        k = k < n ? k : n;
        if (v->rest) {
            v->rest -= k;
            continue;
        }
        memcpy(v->head + v->have, bytes, k);
        v->have += k;
        if (v->have == TCP_FRAME_LEN) {
            v->have = 0;
            judge(v);
        }
    }
}

/* -------------------------------------------------------------------------------- handshake port */

static size_t handshake(uint8_t *out)
{
    static const char *const texts[] = {
        "{\"te\":{\"page\":{\"from\":%llu,\"max\":%llu}}}",
        "{\"name\":\"foe\",\"notify_msg\":\"%llu %llu\"}",
        "{\"te\":{\"counter\":\"%llu%llu\"}}",
        "{\"name\":\"\",\"notify_msg\":\"\",\"te\":{\"life\":\"%016llx\",\"bytes\":[\"%llu\",\"\"]}}",
        "{\"name\":\"\",\"notify_msg\":\"\",\"te\":{\"count\":[[\"%016llx\",\"%016llx\",\"0\",\"0\",\"0\"]]}}",
        "{\"local_nic_path\":\"foe@sim%llu\",\"peer_nic_path\":\"foe@sim\",\"qp_num\":[%llu]}",
    };
    char *text = (char *)out + 9;
    size_t n;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    n = (size_t)snprintf(text, 512, texts[sim_below(6)],
                         (unsigned long long)(sim_random() >> sim_below(64)),
                         (unsigned long long)(sim_random() >> sim_below(64)));
#pragma GCC diagnostic pop
    for (uint64_t k = sim_one_in(2) ? sim_below(4) : 0; k > 0; k--)
        text[sim_below(n)] = (char)sim_random();
    text[n++] = '\n';
    put(out, 8, sim_one_in(16) ? sim_random() >> sim_below(64) : n + 1);
    out[8] = (uint8_t)sim_below(sim_one_in(8) ? 256 : 4);
    return 9 + n;
}

/* ---------------------------------------------------------------------------------------- a visit */

static int dial(const struct prey *p, bool data)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(p->ports[data ? 0 : 1]),
                             .sin_addr.s_addr = htonl(SIM_NET | (uint32_t)p->life->host)};
    struct pollfd wait = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), .events = POLLOUT};

    if (wait.fd < 0)
        return -1;
    (void)connect(wait.fd, (struct sockaddr *)&at, sizeof(at));
    if (poll(&wait, 1, 2000) == 1 && !(wait.revents & (POLLERR | POLLHUP)))
        return wait.fd;
    close(wait.fd);
    return -1;
}

/* False: the engine has had enough. */
static bool say(int fd, const uint8_t *bytes, size_t n)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};

    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, bytes + at, n - at, MSG_NOSIGNAL);

        if (k > 0)
            at += (size_t)k;
        else if (poll(&wait, 1, 500) != 1 || (wait.revents & (POLLERR | POLLHUP)))
            return false;
    }
    return true;
}

/* Whatever comes, for so long at most. */
static void hear(struct visit *v, int ms)
{
    struct pollfd wait = {.fd = v->fd, .events = POLLIN};
    uint8_t bytes[4096];
    ssize_t n;

    for (; poll(&wait, 1, ms) == 1 && (n = recv(v->fd, bytes, sizeof(bytes), 0)) > 0; ms /= 2)
        take_answers(v, bytes, (size_t)n);
}

/* One frame of any sort; false: the engine has had enough. */
static bool harm(struct visit *v, uint8_t *out, bool data, bool native, unsigned id)
{
    size_t n = !data    ? handshake(out)
               : native ? native_frame(out, v, id)
                        : classic_frame(out, v->prey);
    bool whole = !sim_one_in(32);

    sim_world.counts.hostile++;
    v->is_plain = v->is_plain && whole;
    return say(v->fd, out, whole ? n : sim_below(n));
}

static void visit(const struct prey *p)
{
    bool data = !p->ports[1] || !sim_one_in(4), native = p->id && !sim_one_in(4);
    struct visit v = {.prey = p, .fd = dial(p, data), .is_plain = data && native};
    uint8_t *out = sim_new(ROOM);
    bool goes_on = v.fd >= 0;

    if (goes_on && data && native) {
        goes_on = say(v.fd, out, greeting(out, &v));
        hear(&v, sim_one_in(4) ? 0 : 200);
    }
    for (unsigned id = 1, n = data ? 1 + (unsigned)sim_below(FRAMES) : 1; goes_on && id <= n;
         id++) {
        goes_on = harm(&v, out, data, native, id);
        if (sim_one_in(3))
            hear(&v, 1 << sim_below(8));
    }
    if (goes_on && !sim_one_in(3))
        hear(&v, 300);
    if (v.fd >= 0)
        close(v.fd);
    free(out);
}

static void *foe_main(void *arg)
{
    struct prey p;

    (void)arg;
    while (!sim_world.is_quiet) {
        if (find(&p))
            visit(&p);
        usleep((useconds_t)sim_below(1u << sim_below(19)));
    }
    return NULL;
}

/* Engines are known to them by addresses of this version alone. */
void sim_foes_lay(int first)
{
    for (int i = 0; i < SIM_FOES && !sim_is_v6; i++)
        sim_spawn(first + i, foe_main, NULL);
}
