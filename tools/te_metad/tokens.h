/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may do what: the file of --token-file. Each of its lines is
 *
 *   TOKEN                  every key may be read and written
 *   TOKEN rw|ro            the same; "ro": only read
 *   TOKEN rw|ro PREFIX     only keys of segments whose name begins with PREFIX
 *
 * Several lines of one token add up. Words are apart by spaces and tabs; empty lines and those whose
 * first word is "#" say nothing.
 *
 * PREFIX is "NAME" or "CLUSTER/NAME", apart at its last '/'. A key belongs to it when it is
 * "mooncake/KIND/x", or "mooncake/CLUSTER/KIND/x", where x, which has no '/', begins with NAME, which
 * may be empty, and KIND is anything without a '/': "ram", "rpc_meta", "nvmeof". So whoever may write
 * a name may say what it is made of. CLUSTER must be the whole of MC_METADATA_CLUSTER_ID; without
 * it, keys of no cluster are meant. Keys of another form belong to no PREFIX.
 */
#ifndef TE_METAD_TOKENS_H
#define TE_METAD_TOKENS_H

#include <stdbool.h>
#include <stddef.h>

#include "te_metad/secret.h"

struct tokens;
struct token; /* one of them; lives as long as all */

/* NULL, with one line in `why` that begins with the flag and shows no token, when it is no such file. */
struct tokens *tokens_read(const char *flag, const char *path, char why[SECRET_WHY_MAX]);
void tokens_free(struct tokens *t); /* NULL is allowed */

/*
 * The token that was sent, NULL if there is none such, in a time that tells nothing but the length of
 * what was sent and whether it was right.
 */
const struct token *tokens_find(const struct tokens *t, const char *sent);

/* Whether it may read the key, or write it. */
bool token_may(const struct token *t, bool write, const char *key, size_t len);

#endif
