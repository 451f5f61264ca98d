/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_wire.c - headers, statuses, greetings, blocks and trailers to bytes and back. */
#include "transport/tcp/tcp_wire.h"

#include "base/crc32c.h"
#include "te.h"

#include <endian.h>
#include <string.h>

static void put64(uint8_t *out, uint64_t v)
{
    v = htole64(v);
    memcpy(out, &v, sizeof v);
}

static uint64_t get64(const uint8_t *in)
{
    uint64_t v;

    memcpy(&v, in, sizeof v);
    return le64toh(v);
}

static void put32(uint8_t *out, uint32_t v)
{
    v = htole32(v);
    memcpy(out, &v, sizeof v);
}

static uint32_t get32(const uint8_t *in)
{
    uint32_t v;

    memcpy(&v, in, sizeof v);
    return le32toh(v);
}

static void put16(uint8_t *out, unsigned v)
{
    uint16_t le = htole16((uint16_t)v);

    memcpy(out, &le, sizeof le);
}

static unsigned get16(const uint8_t *in)
{
    uint16_t v;

    memcpy(&v, in, sizeof v);
    return le16toh(v);
}

void tei_tcp_head_encode(const struct tcp_head *h, uint8_t out[TCP_HEAD_LEN])
{
    struct tcp_head_wire w = {.opcode = h->opcode == TE_WRITE ? TCP_OPCODE_WRITE : 0};

    put64(w.size, h->size);
    put64(w.addr, h->addr);
    if (h->version >= 2)
        w.opcode |= TCP_OPCODE_V2;
    memcpy(out, &w, sizeof w);
}

void tei_tcp_head_decode(const uint8_t in[TCP_HEAD_LEN], struct tcp_head *out)
{
    struct tcp_head_wire w;

    memcpy(&w, in, sizeof w);
    out->size = get64(w.size);
    out->addr = get64(w.addr);
    out->version = w.opcode & TCP_OPCODE_V2 ? 2 : 1;
    out->opcode = (w.opcode & ~TCP_OPCODE_V2) == TCP_OPCODE_WRITE ? TE_WRITE : TE_READ;
}

bool tei_tcp_head_is_known(const uint8_t in[TCP_HEAD_LEN])
{
    struct tcp_head_wire w;

    memcpy(&w, in, sizeof w);
    return (w.opcode & ~TCP_OPCODE_V2) <= TCP_OPCODE_WRITE;
}

void tei_tcp_status_encode(uint32_t code, uint8_t out[TCP_STATUS_LEN])
{
    put64(out, (uint64_t)TCP_STATUS_MAGIC << 32 | code);
}

bool tei_tcp_status_decode(const uint8_t in[TCP_STATUS_LEN], uint32_t *code)
{
    uint64_t v = get64(in);

    *code = (uint32_t)v;
    return v >> 32 == TCP_STATUS_MAGIC;
}

void tei_tcp_hello_encode(const struct tcp_hello *h, uint8_t out[TCP_HELLO_LEN])
{
    struct tcp_hello_wire w = {0};

    put64(w.magic, TCP_HELLO_MAGIC);
    put16(w.version, h->version);
    put16(w.flags, h->flags);
    put16(w.options, (unsigned)(h->options / TCP_OPTION_UNIT));
    put64(w.target, h->target);
    put64(w.client, h->client);
    put64(w.connection, h->connection);
    memcpy(out, &w, sizeof w);
}

bool tei_tcp_hello_begins(const uint8_t in[TCP_HEAD_LEN])
{
    return get64(in) == TCP_HELLO_MAGIC;
}

void tei_tcp_hello_decode(const uint8_t in[TCP_HELLO_LEN], struct tcp_hello *out)
{
    struct tcp_hello_wire w;

    memcpy(&w, in, sizeof w);
    out->version = get16(w.version);
    out->flags = get16(w.flags);
    out->options = out->version == TCP_NATIVE_FIRST ? 0 : get16(w.options) * TCP_OPTION_UNIT;
    out->target = get64(w.target);
    out->client = get64(w.client);
    out->connection = get64(w.connection);
}

void tei_tcp_frame_encode(const struct tcp_frame_head *h, uint8_t out[TCP_FRAME_LEN])
{
    struct tcp_frame_wire w = {.type = (uint8_t)h->type,
                               .options = (uint8_t)(h->options / TCP_OPTION_UNIT)};

    put16(w.count, h->count);
    put32(w.crc, h->crc);
    put64(w.id, h->id);
    put64(w.length, h->length);
    put32(w.verdict, h->verdict);
    put32(w.index, h->index);
    memcpy(out, &w, sizeof w);
}

void tei_tcp_frame_decode(const uint8_t in[TCP_FRAME_LEN], struct tcp_frame_head *out)
{
    struct tcp_frame_wire w;

    memcpy(&w, in, sizeof w);
    out->type = w.type;
    out->options = (size_t)w.options * TCP_OPTION_UNIT;
    out->count = get16(w.count);
    out->crc = get32(w.crc);
    out->id = get64(w.id);
    out->length = get64(w.length);
    out->verdict = get32(w.verdict);
    out->index = get32(w.index);
}

void tei_tcp_range_encode(const struct tcp_range *r, uint8_t out[TCP_BLOCK_LEN])
{
    struct tcp_block_wire w = {0};

    put64(w.addr, r->addr);
    put32(w.length, r->length);
    memcpy(out, &w, sizeof w);
}

void tei_tcp_range_decode(const uint8_t in[TCP_BLOCK_LEN], struct tcp_range *out)
{
    struct tcp_block_wire w;

    memcpy(&w, in, sizeof w);
    out->addr = get64(w.addr);
    out->length = get32(w.length);
}

/* The option at the front of a list of n bytes, and how much of the list it is; 0: it is none. */
static size_t read_option(const uint8_t *list, size_t n, unsigned *kind, size_t *value)
{
    struct tcp_option_wire w;
    size_t len;

    memcpy(&w, list, sizeof w);
    *kind = get16(w.kind);
    *value = get16(w.length);
    len = (TCP_OPTION_LEN + *value + TCP_OPTION_UNIT - 1) & ~(TCP_OPTION_UNIT - 1u);
    return (*kind & ~TCP_OPTION_MUST) == 0 || len > n ? 0 : len;
}

static bool is_known(unsigned known, unsigned kind)
{
    return kind < 32 && (known & TCP_KNOWN(kind));
}

bool tei_tcp_options_read(const uint8_t *list, size_t n, unsigned known, uint32_t *unknown)
{
    size_t len, value;
    unsigned kind;

    *unknown = 0;
    for (size_t at = 0; at < n; at += len) {
        len = read_option(list + at, n - at, &kind, &value);
        if (len == 0)
            return false;
        if (*unknown == 0 && (kind & TCP_OPTION_MUST) && !is_known(known, kind & ~TCP_OPTION_MUST))
            *unknown = kind & ~TCP_OPTION_MUST;
    }
    return true;
}

const uint8_t *tei_tcp_option_find(const uint8_t *list, size_t n, unsigned kind, size_t *len)
{
    size_t here;
    unsigned found;

    for (size_t at = 0; at < n; at += here) {
        here = read_option(list + at, n - at, &found, len);
        if (here == 0)
            return NULL;
        if ((found & ~TCP_OPTION_MUST) == kind)
            return list + at + TCP_OPTION_LEN;
    }
    return NULL;
}

size_t tei_tcp_option_put(uint8_t *to, unsigned kind, const void *value, size_t len)
{
    size_t whole = (TCP_OPTION_LEN + len + TCP_OPTION_UNIT - 1) & ~(TCP_OPTION_UNIT - 1u);
    struct tcp_option_wire w;

    memset(to, 0, whole);
    put16(w.kind, kind);
    put16(w.length, (unsigned)len);
    memcpy(to, &w, sizeof w);
    memcpy(to + TCP_OPTION_LEN, value, len);
    return whole;
}

uint32_t tei_tcp_sum(uint32_t crc, const struct iovec *parts, uint64_t n)
{
    for (; n > 0; parts++) {
        size_t len = (size_t)tei_min(parts->iov_len, n);

        crc = tei_crc32c(crc, parts->iov_base, len);
        n -= len;
    }
    return crc;
}

void tei_tcp_trailer_encode(uint32_t crc, uint8_t out[TCP_TRAILER_LEN])
{
    put32(out, crc);
}

uint32_t tei_tcp_trailer_decode(const uint8_t in[TCP_TRAILER_LEN])
{
    return get32(in);
}

static uint32_t checksum(const uint8_t *head, size_t n)
{
    static const uint8_t none[4];
    size_t at = offsetof(struct tcp_frame_wire, crc);
    uint32_t crc = tei_crc32c(0, head, at);

    crc = tei_crc32c(crc, none, sizeof none);
    return tei_crc32c(crc, head + at + sizeof none, n - at - sizeof none);
}

void tei_tcp_frame_seal(uint8_t *head, size_t n)
{
    put32(head + offsetof(struct tcp_frame_wire, crc), checksum(head, n));
}

bool tei_tcp_frame_intact(const uint8_t *head, size_t n)
{
    return get32(head + offsetof(struct tcp_frame_wire, crc)) == checksum(head, n);
}
