/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_parser.c - frames of the handshake port, as bytes.
 *
 *     length  8 bytes, little-endian: how many follow
 *     type    1 byte, 0..3; absent in the old form: a first byte above 3 belongs to the text
 *     text    JSON
 *
 * The parser is silent: whoever feeds it knows the peer's name and says what went wrong with it.
 */
#include "meta/rpc.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES 8
#define FIRST_CAP  1024

void tei_rpc_parser_init(struct tei_rpc_parser *p, size_t max_len)
{
    *p = (struct tei_rpc_parser){.max_len = max_len};
}

void tei_rpc_parser_fini(struct tei_rpc_parser *p)
{
    free(p->body);
    *p = (struct tei_rpc_parser){.max_len = p->max_len};
}

size_t tei_rpc_parser_wants(const struct tei_rpc_parser *p)
{
    if (p->head_got < HEAD_BYTES)
        return HEAD_BYTES - p->head_got;
    return (size_t)p->want - p->got - p->typed;
}

/* Takes what belongs to the length; how many bytes that were. */
static size_t feed_head(struct tei_rpc_parser *p, const uint8_t *data, size_t n)
{
    size_t used = tei_min(n, HEAD_BYTES - p->head_got);

    if (!used)
        return 0;
    memcpy(p->head + p->head_got, data, used);
    p->head_got += used;
    for (size_t i = HEAD_BYTES; i > 0 && p->head_got == HEAD_BYTES; i--)
        p->want = p->want << 8 | p->head[i - 1];
    return used;
}

static bool grow(struct tei_rpc_parser *p, size_t n)
{
    size_t cap = p->cap ? p->cap : FIRST_CAP;
    char *body;

    while (cap < n + 1)
        cap *= 2;
    if (cap == p->cap)
        return true;
    body = realloc(p->body, cap);
    if (!body)
        return false;
    p->body = body;
    p->cap = cap;
    return true;
}

/* The old form, without a type, is a connection. */
static bool is_small(const struct tei_rpc_parser *p)
{
    return !p->typed || p->type == TEI_RPC_CONNECTION || p->type == TEI_RPC_PROBE;
}

/* Takes what belongs to the message. */
static int feed_message(struct tei_rpc_parser *p, const uint8_t *data, size_t n, size_t *used)
{
    *used = 0;
    if (!n)
        return 0;
    if (!p->got && !p->typed && data[0] <= TEI_RPC_PROBE) {
        p->typed = true;
        p->type = data[0];
        *used = 1;
    }
    if (p->small_len && p->want > p->small_len && is_small(p))
        return TE_ERR_TOO_LARGE;
    n = tei_min(n - *used, tei_rpc_parser_wants(p));
    if (!grow(p, p->got + n))
        return TE_ERR_MEMORY;
    memcpy(p->body + p->got, data + *used, n);
    p->got += n;
    p->body[p->got] = '\0';
    *used += n;
    p->done = !tei_rpc_parser_wants(p);
    return p->done;
}

int tei_rpc_parser_feed(struct tei_rpc_parser *p, const void *data, size_t n, size_t *used)
{
    size_t more;
    int rc;

    *used = 0;
    if (p->done)
        return 1;
    *used = feed_head(p, data, n);
    if (p->head_got < HEAD_BYTES)
        return 0;
    if (!p->want)
        return TE_ERR_PROTOCOL;
    if (p->want > p->max_len)
        return TE_ERR_TOO_LARGE;
    rc = feed_message(p, (const uint8_t *)data + *used, n - *used, &more);
    *used += more;
    return rc;
}

const char *tei_rpc_parser_body(const struct tei_rpc_parser *p, size_t *len)
{
    *len = p->got;
    return p->body;
}

char *tei_rpc_frame(bool typed, uint8_t type, const char *text, size_t len, size_t *frame_len)
{
    uint64_t length = (uint64_t)len + typed + 1;
    char *frame = malloc(HEAD_BYTES + (size_t)length), *p = frame;

    if (!frame)
        return NULL;
    for (int i = 0; i < HEAD_BYTES; i++)
        *p++ = (char)(uint8_t)(length >> (8 * i));
    if (typed)
        *p++ = (char)type;
    if (len)
        memcpy(p, text, len);
    p[len] = '\n';
    *frame_len = HEAD_BYTES + (size_t)length;
    return frame;
}
