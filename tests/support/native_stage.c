/* SPDX-License-Identifier: Apache-2.0 */
#include "native_stage.h"

#include "transport/conformance.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void stage_open(struct stage *s, void (*configure)(struct tei_conf *))
{
    stage_open_as(s, configure, TCP_NATIVE_VERSION);
}

void stage_open_as(struct stage *s, void (*configure)(struct tei_conf *), unsigned framing)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    struct timeval limit = {.tv_sec = PATIENCE_MS / 1000};
    socklen_t n = sizeof a;
    json_t *root;
    char id[17];

    memset(s, 0, sizeof *s);
    s->framing = framing;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(s->listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(s->listener, 16), 0);
    getsockname(s->listener, (struct sockaddr *)&a, &n);
    fake_host_init(&s->host);
    s->host.conf.tcp_lanes = 1;
    if (configure)
        configure(&s->host.conf);
    s->crc = s->host.conf.tcp_crc32c;
    s->t = fake_open(&s->host, "tcp");
    s->memory = calloc(1, STAGE_BYTES);
    assert_non_null(s->memory);
    fill_pattern(s->memory, STAGE_BYTES, 8);
    snprintf(id, sizeof id, "%016llx", (unsigned long long)ID);
    root = json_pack("{s:i,s:i,s:{s:{s:i,s:s}}}", "tcp_data_port", ntohs(a.sin_port),
                     "tcp_proto_version", 2, "te", "tcp", "framing", (int)framing, "id", id);
    assert_int_equal(fake_attach_json(s->t, root, "127.0.0.1", &s->attach), 0);
    tei_list_init(&s->list);
}

void stage_close(struct stage *s)
{
    close(s->listener);
    fake_detach(s->t, s->attach);
    fake_close(s->t);
    fake_host_fini(&s->host);
    free(s->memory);
}

uint64_t stage_remote(size_t at)
{
    return 0x7f4400000000u + at;
}

struct tei_work *stage_add(struct stage *s, unsigned task, int opcode, size_t at, size_t n)
{
    return fake_work(&s->list, s->t, s->attach, &s->tasks[task], opcode, s->memory + at,
                     (void *)(uintptr_t)stage_remote(at), n);
}

void stage_post(struct stage *s)
{
    s->t->ops.post(s->t, &s->list);
}

void stage_request(struct stage *s, unsigned task, int opcode, size_t at, size_t n)
{
    stage_add(s, task, opcode, at, n);
    stage_post(s);
}

int stage_outcome(struct stage *s, unsigned task)
{
    assert_true(fake_wait(&s->host, NULL, &s->tasks[task], 1, PATIENCE_MS));
    return s->tasks[task].error;
}

bool stage_is_done(struct stage *s, unsigned task)
{
    return fake_wait(&s->host, NULL, &s->tasks[task], 1, 0);
}

uint64_t stage_connections(const struct stage *s)
{
    struct te_stats stats = {.size = sizeof stats};

    s->t->ops.stats(s->t, &stats);
    return stats.connections;
}

struct native stage_take(struct stage *s)
{
    struct timeval limit = {.tv_sec = PATIENCE_MS / 1000};
    struct native c = {accept(s->listener, NULL, NULL), s->crc};
    uint8_t bytes[TCP_HELLO_LEN];

    assert_true(c.fd >= 0);
    setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    native_get(c.fd, bytes, sizeof bytes);
    assert_true(tei_tcp_hello_begins(bytes));
    tei_tcp_hello_decode(bytes, &s->hello);
    assert_int_equal(s->hello.version, tei_min(s->framing, TCP_NATIVE_VERSION));
    assert_int_equal(s->hello.options, 0);
    assert_int_equal(s->hello.flags, s->crc ? TCP_HELLO_CRC32C : 0);
    assert_int_equal(s->hello.target, ID);
    return c;
}

void stage_answer(const struct native *c, unsigned type, uint64_t id, enum tcp_verdict verdict,
                  uint32_t index)
{
    native_answer(
        c, &(struct tcp_frame_head){.type = type, .id = id, .verdict = verdict, .index = index},
        NULL);
}

struct native stage_take_greeted(struct stage *s)
{
    struct native c = stage_take(s);

    stage_answer(&c, TCP_FRAME_HELLO, 0, TCP_OK, 0);
    return c;
}

struct got stage_get_head(const struct native *c)
{
    uint8_t bytes[TCP_FRAME_HEAD_MAX + TCP_OPTIONS_MAX];
    struct got g = {0};
    size_t n;

    native_get(c->fd, bytes, TCP_FRAME_LEN);
    tei_tcp_frame_decode(bytes, &g.h);
    assert_true(g.h.count > 0 && g.h.count <= TCP_FRAME_BLOCKS);
    assert_true(g.h.options <= TCP_OPTIONS_MAX);
    n = TCP_FRAME_LEN + (size_t)g.h.count * TCP_BLOCK_LEN;
    native_get(c->fd, bytes + TCP_FRAME_LEN, n + g.h.options - TCP_FRAME_LEN);
    memcpy(g.options, bytes + n, g.h.options);
    if (c->crc)
        assert_true(tei_tcp_frame_intact(bytes, n + g.h.options));
    for (unsigned i = 0; i < g.h.count; i++) {
        tei_tcp_range_decode(bytes + TCP_FRAME_LEN + i * TCP_BLOCK_LEN, &g.r[i]);
        g.total += g.r[i].length;
    }
    return g;
}

struct got stage_get_request(struct stage *s, const struct native *c, unsigned type)
{
    struct got g = stage_get_head(c);
    char *bytes = malloc(g.total + TCP_TRAILER_LEN), *p = bytes;

    assert_non_null(bytes);
    assert_int_equal(g.h.type, type);
    assert_int_equal(g.h.length, type == TCP_FRAME_WRITE ? g.total : 0);
    if (type == TCP_FRAME_WRITE) {
        native_get(c->fd, bytes, g.total + (c->crc ? TCP_TRAILER_LEN : 0));
        for (unsigned i = 0; i < g.h.count; p += g.r[i++].length)
            assert_memory_equal(p, s->memory + (g.r[i].addr - stage_remote(0)), g.r[i].length);
    }
    free(bytes);
    return g;
}

void stage_put_data(const struct native *c, const struct got *g, uint32_t seed)
{
    char *bytes = malloc(g->total);

    assert_non_null(bytes);
    fill_pattern(bytes, g->total, seed);
    native_answer(
        c, &(struct tcp_frame_head){.type = TCP_FRAME_DATA, .id = g->h.id, .length = g->total},
        bytes);
    free(bytes);
}

void stage_expect_pattern(const char *p, size_t n, uint32_t seed)
{
    char *bytes = malloc(n);

    assert_non_null(bytes);
    fill_pattern(bytes, n, seed);
    assert_memory_equal(p, bytes, n);
    free(bytes);
}
