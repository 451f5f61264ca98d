/* SPDX-License-Identifier: Apache-2.0 */
/* serve.h - requests of peers on the handshake port, and ours to theirs. */
#ifndef TEI_SERVE_H
#define TEI_SERVE_H

#include "meta/meta.h"
#include "transport/transport.h"

/* struct tei_host ops. */
int tei_serve_connect(struct tei_host *h, const struct tei_hostport *where, const char *body,
                      size_t len, char **answer, size_t *answer_len);
void tei_serve_answer(struct tei_host *h, struct tei_rpc_call *call, const char *text, size_t len);
/* struct tei_rpc_service. */
void tei_serve_rpc(void *arg, struct tei_rpc_call *call, enum tei_rpc_type type, const char *body,
                   size_t len);
bool tei_serve_is_heavy(void *arg, enum tei_rpc_type type, size_t len);

#endif
