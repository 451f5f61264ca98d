/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of the handshake port. The first byte says in pieces of what size the rest arrives;
 * however it is cut, the parser must come to the same end, take no byte twice and hold no more
 * memory than arrived.
 */
#include "meta/meta.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LEN 4096

struct end {
    int rc;
    size_t taken;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct end feed_all(struct tei_rpc_parser *p, const uint8_t *data, size_t size, size_t piece)
{
    struct end e = {0, 0};

    while (e.rc == 0 && e.taken < size) {
        size_t n = tei_min(piece, size - e.taken), used = SIZE_MAX;

        e.rc = tei_rpc_parser_feed(p, data + e.taken, n, &used);
        assert(used <= n && (e.rc != 0 || used == n));
        e.taken += used;
        assert(p->cap <= 2 * tei_max(e.taken, 1024));
    }
    return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tei_rpc_parser whole, cut;
    struct end a, b;
    size_t a_len, b_len;
    const char *a_body, *b_body;

    if (size < 1)
        return 0;
    tei_rpc_parser_init(&whole, MAX_LEN);
    tei_rpc_parser_init(&cut, MAX_LEN);
    a = feed_all(&whole, data + 1, size - 1, size);
    b = feed_all(&cut, data + 1, size - 1, (size_t)data[0] + 1);
    assert(a.rc == b.rc && whole.done == cut.done && whole.done == (a.rc == 1));
    if (whole.done) {
        assert(a.taken == b.taken && whole.typed == cut.typed && whole.type == cut.type);
        a_body = tei_rpc_parser_body(&whole, &a_len);
        b_body = tei_rpc_parser_body(&cut, &b_len);
        assert(a_len == b_len && memcmp(a_body, b_body, a_len) == 0);
        assert(a_body[a_len] == '\0' && a_len + whole.typed == whole.want && a_len <= MAX_LEN);
    }
    tei_rpc_parser_fini(&whole);
    tei_rpc_parser_fini(&cut);
    return 0;
}
