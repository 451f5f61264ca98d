/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc.h - the frame of the handshake port, shared by its server and its client; private to meta/.
 */
#ifndef TEI_META_RPC_H
#define TEI_META_RPC_H

#include "meta/meta.h"

/* No engine of this protocol family sends or takes more; other bytes than a length show as more. */
#define TEI_RPC_LENGTH_MAX ((uint64_t)128 << 20)

/*
 * A whole frame, malloc'ed: length, type byte if `typed`, `len` bytes of text, newline. NULL when
 * memory is out.
 */
char *tei_rpc_frame(bool typed, uint8_t type, const char *text, size_t len, size_t *frame_len);

/*
 * Bytes that must still arrive before the parser has anything new to say: the rest of the length,
 * or of the message.
 */
size_t tei_rpc_parser_wants(const struct tei_rpc_parser *p);

#endif
