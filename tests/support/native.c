/* SPDX-License-Identifier: Apache-2.0 */
#include "native.h"
#include "patience.h"

#include "base/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static json_t *describe(struct tei_transport *t)
{
    json_t *root = json_object();

    assert_int_equal(t->ops.describe(t, root), 0);
    return root;
}

uint16_t native_port(struct tei_transport *t)
{
    json_t *root = describe(t);
    uint16_t port = (uint16_t)json_integer_value(json_object_get(root, "tcp_data_port"));

    json_decref(root);
    return port;
}

uint64_t native_id(struct tei_transport *t)
{
    json_t *root = describe(t), *tcp = json_object_get(json_object_get(root, "te"), "tcp");
    uint64_t id;

    assert_int_equal(json_integer_value(json_object_get(tcp, "framing")), TCP_NATIVE_VERSION);
    id = strtoull(json_string_value(json_object_get(tcp, "id")), NULL, 16);
    json_decref(root);
    return id;
}

int native_dial(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval limit = {.tv_sec = PATIENCE_MS / 1000};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit), 0);
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
    return fd;
}

void native_put(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;

    for (size_t at = 0; at < n;) {
        ssize_t sent = send(fd, p + at, n - at, MSG_NOSIGNAL);

        assert_true(sent > 0);
        at += (size_t)sent;
    }
}

void native_get(int fd, void *bytes, size_t n)
{
    assert_int_equal(recv(fd, bytes, n, MSG_WAITALL), n);
}

void native_expect_end(int fd)
{
    char c;

    assert_true(recv(fd, &c, 1, 0) <= 0);
    close(fd);
}

void native_expect_silence(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    assert_int_equal(poll(&p, 1, 200), 0);
}

void native_put_hello(int fd, const struct tcp_hello *h)
{
    uint8_t bytes[TCP_HELLO_LEN];

    tei_tcp_hello_encode(h, bytes);
    native_put(fd, bytes, sizeof bytes);
}

struct native native_greet(struct tei_transport *t, uint64_t client, uint64_t connection, bool crc)
{
    struct native c = {native_dial(native_port(t)), crc};

    native_put_hello(c.fd, &(struct tcp_hello){.version = TCP_NATIVE_VERSION,
                                               .flags = crc ? TCP_HELLO_CRC32C : 0,
                                               .target = native_id(t),
                                               .client = client,
                                               .connection = connection});
    native_expect(&c, TCP_FRAME_HELLO, 0, TCP_OK, 0, 0);
    return c;
}

size_t native_request(uint8_t *out, bool crc, unsigned type, uint64_t id,
                      const struct tcp_range *blocks, unsigned n, const void *payload)
{
    struct tcp_frame_head h = {.type = type, .count = n, .id = id};
    size_t len = TCP_FRAME_LEN + (size_t)n * TCP_BLOCK_LEN;

    for (unsigned i = 0; type == TCP_FRAME_WRITE && i < n; i++)
        h.length += blocks[i].length;
    tei_tcp_frame_encode(&h, out);
    for (unsigned i = 0; i < n; i++)
        tei_tcp_range_encode(&blocks[i], out + TCP_FRAME_LEN + i * TCP_BLOCK_LEN);
    if (crc)
        tei_tcp_frame_seal(out, len);
    if (h.length)
        memcpy(out + len, payload, h.length);
    if (h.length && crc) {
        uint32_t sum = htole32(tei_crc32c(0, payload, h.length));

        memcpy(out + len + h.length, &sum, sizeof sum);
        len += sizeof sum;
    }
    return len + h.length;
}

void native_send(const struct native *c, unsigned type, uint64_t id, const struct tcp_range *blocks,
                 unsigned n, const void *payload)
{
    uint64_t total = 0;
    uint8_t *bytes;

    for (unsigned i = 0; i < n; i++)
        total += blocks[i].length;
    bytes = malloc(TCP_FRAME_HEAD_MAX + total + TCP_TRAILER_LEN);
    assert_non_null(bytes);
    native_put(c->fd, bytes, native_request(bytes, c->crc, type, id, blocks, n, payload));
    free(bytes);
}

size_t native_option(uint8_t *out, unsigned kind, const void *value, size_t n)
{
    const uint16_t head[2] = {htole16((uint16_t)kind), htole16((uint16_t)n)};
    size_t len = (sizeof head + n + TCP_OPTION_UNIT - 1) / TCP_OPTION_UNIT * TCP_OPTION_UNIT;

    memset(out, 0, len);
    memcpy(out, head, sizeof head);
    memcpy(out + sizeof head, value, n);
    return len;
}

void native_send_with(const struct native *c, unsigned type, uint64_t id, struct tcp_range block,
                      const void *payload, const uint8_t *options, size_t n_options)
{
    struct tcp_frame_head h = {.type = type, .count = 1, .id = id, .options = n_options};
    size_t n = TCP_FRAME_LEN + TCP_BLOCK_LEN + n_options;
    uint8_t *bytes = malloc(n + block.length + TCP_TRAILER_LEN);
    uint32_t sum;

    assert_non_null(bytes);
    h.length = type == TCP_FRAME_WRITE ? block.length : 0;
    sum = htole32(tei_crc32c(0, payload, h.length));
    tei_tcp_frame_encode(&h, bytes);
    tei_tcp_range_encode(&block, bytes + TCP_FRAME_LEN);
    memcpy(bytes + TCP_FRAME_LEN + TCP_BLOCK_LEN, options, n_options);
    if (c->crc)
        tei_tcp_frame_seal(bytes, n);
    memcpy(bytes + n, payload, h.length);
    memcpy(bytes + n + h.length, &sum, sizeof sum);
    native_put(c->fd, bytes, n + h.length + (h.length && c->crc ? sizeof sum : 0));
    free(bytes);
}

struct tcp_frame_head native_head(const struct native *c)
{
    uint8_t bytes[TCP_FRAME_LEN];
    struct tcp_frame_head h;

    native_get(c->fd, bytes, sizeof bytes);
    tei_tcp_frame_decode(bytes, &h);
    assert_true(c->crc ? tei_tcp_frame_intact(bytes, sizeof bytes) : h.crc == 0);
    return h;
}

void native_expect(const struct native *c, unsigned type, uint64_t id, enum tcp_verdict verdict,
                   uint32_t index, uint64_t length)
{
    struct tcp_frame_head h = native_head(c);

    assert_int_equal(h.type, type);
    assert_int_equal(h.count, 0);
    assert_int_equal(h.id, id);
    assert_int_equal(h.verdict, verdict);
    assert_int_equal(h.index, index);
    assert_int_equal(h.length, length);
}

void native_answer(const struct native *c, const struct tcp_frame_head *h, const void *payload)
{
    uint8_t bytes[TCP_FRAME_LEN];
    uint32_t sum;

    tei_tcp_frame_encode(h, bytes);
    if (c->crc)
        tei_tcp_frame_seal(bytes, sizeof bytes);
    native_put(c->fd, bytes, sizeof bytes);
    if (h->length == 0)
        return;
    native_put(c->fd, payload, h->length);
    sum = htole32(tei_crc32c(0, payload, h->length));
    if (c->crc)
        native_put(c->fd, &sum, sizeof sum);
}
