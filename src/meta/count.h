/* SPDX-License-Identifier: Apache-2.0 */
/* count.h - what engines say of counters (te_counter.h) on the handshake port; docs/protocol.md has the messages. */
#ifndef TEI_COUNT_H
#define TEI_COUNT_H

#include "base/sock.h"
#include "model/model.h"

struct tei_auth;

#define TEI_COUNT_NAME_MAX 255

/* Which counter; made by its engine, and to be guessed by nobody. */
struct tei_count_key {
    uint64_t id, secret;
};

/* Who adds: one adder of one life of an engine. */
struct tei_count_from {
    uint64_t incarnation, adder;
};

/* All that an adder has added so far. */
struct tei_count {
    struct tei_count_key key;
    struct tei_count_from from;
    uint64_t total;
};

/* Those of one message, which is short enough to be taken in on te/ctl. */
#define TEI_COUNTS_MAX 32
struct tei_counts {
    size_t n;
    struct tei_count of[TEI_COUNTS_MAX];
    uint64_t life; /* of any message: the incarnation of the engine that it is for; 0: not said */
};

/* TE_ERR_INVALID, with a text: it is NULL, empty, too long or no UTF-8. */
int tei_count_name_check(const char *name);

/* ---- the initiator; as tei_rpc_request(), and: */

/*
 * TE_ERR_NOT_FOUND: there is none of that name. TE_ERR_UNSUPPORTED: the engine knows no counters. TE_ERR_STALE: its
 * incarnation is not `life`; 0: any will do.
 */
int tei_rpc_count_open(struct tei_auth *auth, const struct tei_hostport *where, const char *name,
                       uint64_t life, int64_t deadline_ns, struct tei_count_key *out);
/*
 * Tells `n`, TEI_COUNTS_MAX at most, and what has become of each: 0: it was taken in, which is so however often it
 * comes. TE_ERR_STALE: there is no such counter there. TE_ERR_REJECTED: too many have added to it. TE_ERR_MEMORY.
 */
int tei_rpc_counts(struct tei_auth *auth, const struct tei_hostport *where,
                   const struct tei_count *counts, int *answers, size_t n, int64_t deadline_ns);
/* Such an answer in words. */
const char *tei_count_answer_text(int answer);

/* ---- the target: bodies, of hostile bytes */

/* What a probe asks for. */
struct tei_probe_ask {
    bool is_ours;                         /* more than whether the engine lives */
    uint64_t life;                        /* whether it is of that incarnation; 0: not asked */
    char counter[TEI_COUNT_NAME_MAX + 1]; /* the counter that is to be opened; "": none */
};
void tei_probe_read(const char *body, size_t len, struct tei_probe_ask *out);
/*
 * The answer, of an engine of the incarnation `own`; `key`, of the counter that is asked for, NULL: there is none of that
 * name. One that is asked for of another incarnation is not told.
 */
#define TEI_PROBE_ANSWER_MAX 160
void tei_probe_answer(const struct tei_probe_ask *ask, const struct tei_count_key *key,
                      uint64_t own, char out[TEI_PROBE_ANSWER_MAX]);
/* Of `te.count` in a message of type 2. TE_ERR_JSON, with a text. */
int tei_counts_read(const json_t *j, struct tei_counts *out);
/* The reply to that. */
#define TEI_COUNTS_REPLY_MAX 512
void tei_counts_reply(const int *answers, size_t n, char out[TEI_COUNTS_REPLY_MAX]);

#endif
