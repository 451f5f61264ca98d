/* SPDX-License-Identifier: Apache-2.0 */
/* answers.h - which engines of segments answer now. */
#ifndef TE_SEGMENT_ANSWERS_H
#define TE_SEGMENT_ANSWERS_H

#include "te_segment/registry.h"

/*
 * Asks the engines of all entries that have one, side by side, each for
 * MC_HANDSHAKE_CONNECT_TIMEOUT at most, and fills `answer` and `silent`.
 * TE_ERR_MEMORY.
 */
int answers_ask(const struct tei_conf *conf, struct entry *list, size_t n);

#endif
