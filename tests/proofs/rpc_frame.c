/* SPDX-License-Identifier: Apache-2.0 */
/* What is made a frame is read again: all of it, with its type. */
/* proof: --unsigned-overflow-check --unwind 10 */
#include "meta/rpc_parser.c"
#include "proof.h"

enum { MAX = 4 };

void proof(void)
{
    struct tei_rpc_parser p;
    size_t n, used, got, at, frame_len;
    bool typed = any_bool();
    uint8_t type;
    char *frame;

    ASSUME(n >= 1 && n <= MAX && at < n && type <= TEI_RPC_PROBE);
    const char *text = any_bytes(n);
    ASSUME((uint8_t)text[0] > TEI_RPC_PROBE);
    frame = tei_rpc_frame(typed, type, text, n, &frame_len);
    if (!frame)
        return;
    tei_rpc_parser_init(&p, TEI_RPC_LENGTH_MAX);
    int rc = tei_rpc_parser_feed(&p, frame, frame_len, &used);
    ASSUME(rc != TE_ERR_MEMORY);
    const char *body = tei_rpc_parser_body(&p, &got);
    PROVE(rc == 1 && used == frame_len && got == n + 1);
    PROVE(p.typed == typed && (!typed || p.type == type));
    PROVE(body[at] == text[at] && body[n] == '\n');
}
