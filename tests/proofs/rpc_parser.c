/* SPDX-License-Identifier: Apache-2.0 */
/* A frame in two pieces: no more is taken than there is, and no text is longer than the limit. */
/* proof: --unsigned-overflow-check --unwind 10 */
#include "meta/rpc_parser.c"
#include "proof.h"

enum { MAX = 12, LIMIT = 8 };

static int feed(struct tei_rpc_parser *p)
{
    size_t n, used;
    int rc;

    ASSUME(n <= MAX);
    const uint8_t *data = any_bytes(n);
    rc = tei_rpc_parser_feed(p, data, n, &used);
    PROVE(used <= n);
    PROVE(rc != 0 || used == n);
    return rc;
}

void proof(void)
{
    struct tei_rpc_parser p;
    size_t len;

    tei_rpc_parser_init(&p, LIMIT);
    if (feed(&p) == 0 && feed(&p) == 1) {
        const char *body = tei_rpc_parser_body(&p, &len);

        PROVE(len + p.typed == p.want && len <= LIMIT && body[len] == '\0');
    }
    tei_rpc_parser_fini(&p);
}
