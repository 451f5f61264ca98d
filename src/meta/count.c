/* SPDX-License-Identifier: Apache-2.0 */
/*
 * count.c - the messages of counters: a probe that names one, which its engine answers with its key, and a
 * notification without text that carries what was added.
 *
 * Numbers are texts of 16 hexadecimal digits: those of JSON are no 64 bits wide everywhere.
 */
#include "meta/count.h"
#include "base/err.h"
#include "base/hex.h"
#include "meta/meta.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define REPLY_MAX 4096

int tei_count_name_check(const char *name)
{
    size_t len = name ? strlen(name) : 0;
    json_t *text = NULL;
    int rc;

    if (len < 1 || len > TEI_COUNT_NAME_MAX)
        return TEI_FAIL(TE_ERR_INVALID, "the name of a counter has 1 to %d bytes, not %zu",
                        TEI_COUNT_NAME_MAX, len);
    rc = tei_json_string(name, &text);
    json_decref(text);
    if (rc == TE_ERR_INVALID)
        return TEI_FAIL(rc, "the name of a counter is text in UTF-8");
    return rc ? TEI_FAIL(rc, "no memory for the name of a counter") : 0;
}

/* False: it is no array of just `n` such texts. */
static bool read_numbers(const json_t *array, uint64_t *out, size_t n)
{
    bool good = json_array_size(array) == n;

    for (size_t i = 0; good && i < n; i++)
        good = tei_hex_number(json_string_value(json_array_get(array, i)), &out[i]);
    return good;
}

/* ------------------------------------------------------------------------------------ the target */

void tei_probe_read(const char *body, size_t len, struct tei_probe_ask *out)
{
    json_t *root = NULL;
    const json_t *te, *name;

    *out = (struct tei_probe_ask){0};
    (void)tei_json_load(body, len, 0, &root, NULL);
    te = json_object_get(root, "te");
    name = json_object_get(te, "counter");
    out->is_ours = json_is_object(te);
    (void)tei_hex_number(json_string_value(json_object_get(te, "life")), &out->life);
    if (json_is_string(name) && json_string_length(name) <= TEI_COUNT_NAME_MAX)
        memcpy(out->counter, json_string_value(name), json_string_length(name));
    json_decref(root);
}

/* `"counter":[ID,SECRET],`; nothing: none is asked for, or not of this life. */
static void counter_member(const struct tei_probe_ask *ask, const struct tei_count_key *key,
                           uint64_t own, char out[64])
{
    out[0] = '\0';
    if (!ask->counter[0] || (ask->life && ask->life != own))
        return;
    if (key)
        snprintf(out, 64, "\"counter\":[\"%016" PRIx64 "\",\"%016" PRIx64 "\"],", key->id,
                 key->secret);
    else
        snprintf(out, 64, "\"counter\":[],");
}

void tei_probe_answer(const struct tei_probe_ask *ask, const struct tei_count_key *key,
                      uint64_t own, char out[TEI_PROBE_ANSWER_MAX])
{
    char counter[64], life[32] = "";

    counter_member(ask, key, own, counter);
    if (ask->life)
        snprintf(life, sizeof(life), "\"life\":\"%016" PRIx64 "\",", own);
    if (ask->is_ours)
        snprintf(out, TEI_PROBE_ANSWER_MAX, "{\"status\":\"success\",\"te\":{%s%s\"notify\":1}}",
                 counter, life);
    else
        snprintf(out, TEI_PROBE_ANSWER_MAX, "%s", TEI_PROBE_OK);
}

static bool read_count(const json_t *j, struct tei_count *out)
{
    uint64_t n[5];
    bool good = read_numbers(j, n, TEI_ARRAY_LEN(n));

    if (good)
        *out = (struct tei_count){{n[0], n[1]}, {n[2], n[3]}, n[4]};
    return good;
}

int tei_counts_read(const json_t *j, struct tei_counts *out)
{
    size_t n = json_array_size(j);
    bool good = n >= 1 && n <= TEI_COUNTS_MAX;

    for (size_t i = 0; good && i < n; i++)
        good = read_count(json_array_get(j, i), &out->of[i]);
    out->n = n;
    return good ? 0
                : TEI_FAIL(TE_ERR_JSON,
                           "notification: te.count is no array of 1 to %d arrays of numbers",
                           TEI_COUNTS_MAX);
}

static const struct {
    int answer;
    const char *word, *text;
} answers_known[] = {
    {0, "taken", "taken in"},
    {TE_ERR_STALE, "gone", "the counter is gone: it was destroyed, or its engine started anew"},
    {TE_ERR_REJECTED, "full", "the counter takes no other adder: 4,096 have raised it"},
    {TE_ERR_MEMORY, "later", "the target has no memory for one more adder"},
};

const char *tei_count_answer_text(int answer)
{
    for (size_t i = 0; i < TEI_ARRAY_LEN(answers_known); i++)
        if (answers_known[i].answer == answer)
            return answers_known[i].text;
    return te_strerror(answer);
}

static const char *word_of(int answer)
{
    for (size_t i = 0; i < TEI_ARRAY_LEN(answers_known); i++)
        if (answers_known[i].answer == answer)
            return answers_known[i].word;
    return "later";
}

void tei_counts_reply(const int *answers, size_t n, char out[TEI_COUNTS_REPLY_MAX])
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, TEI_COUNTS_REPLY_MAX - at, "%s\"%s\"",
                               i ? ","
                                 : "{\"name\":\"\",\"notify_msg\":\"success\",\"te\":{\"count\":[",
                               word_of(answers[i]));
    snprintf(out + at, TEI_COUNTS_REPLY_MAX - at, "]}}");
}

/* --------------------------------------------------------------------------------- the initiator */

static int read_key(const struct tei_bytes *reply, const struct tei_hostport *where,
                    const char *name, uint64_t life, struct tei_count_key *out)
{
    json_t *root = NULL;
    const json_t *key, *te;
    uint64_t n[2], found = 0;
    int rc = 0;

    (void)tei_json_load(reply->data, reply->len, 0, &root, NULL);
    te = json_object_get(root, "te");
    key = json_object_get(te, "counter");
    if (life && tei_hex_number(json_string_value(json_object_get(te, "life")), &found) &&
        found != life)
        rc = tei_rpc_fail_life(where, life, found);
    else if (!json_is_array(key))
        rc = TEI_FAIL(TE_ERR_UNSUPPORTED,
                      "the engine at %s port %u has no counters: it is of another make, or older; "
                      "a notification tells it",
                      where->host, (unsigned)where->port);
    else if (json_array_size(key) == 0)
        rc = TEI_FAIL(TE_ERR_NOT_FOUND, "the engine at %s port %u has no counter '%s'", where->host,
                      (unsigned)where->port, name);
    else if (read_numbers(key, n, TEI_ARRAY_LEN(n)))
        *out = (struct tei_count_key){n[0], n[1]};
    else
        rc = TEI_FAIL(TE_ERR_PROTOCOL, "%s port %u: the answer for counter '%s' has no key",
                      where->host, (unsigned)where->port, name);
    json_decref(root);
    return rc;
}

/* malloc'ed; NULL: no memory. */
static char *ask_text(const char *name, uint64_t life)
{
    json_t *ask = json_pack("{s:{s:s}}", "te", "counter", name);
    char text[17], *body = NULL;

    snprintf(text, sizeof(text), "%016" PRIx64, life);
    if (!life || json_object_set_new(json_object_get(ask, "te"), "life", json_string(text)) == 0)
        body = tei_json_text(ask, NULL);
    json_decref(ask);
    return body;
}

int tei_rpc_count_open(struct tei_auth *auth, const struct tei_hostport *where, const char *name,
                       uint64_t life, int64_t deadline_ns, struct tei_count_key *out)
{
    char *body = ask_text(name, life);
    struct tei_bytes reply;
    int rc;

    if (!body)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to ask for a counter");
    rc = tei_rpc_request(auth, where, TEI_RPC_PROBE, body, strlen(body), REPLY_MAX, deadline_ns,
                         &reply);
    free(body);
    if (rc)
        return rc;
    rc = read_key(&reply, where, name, life, out);
    tei_bytes_fini(&reply);
    return rc;
}

/* An engine that knows no counters takes the message for one without text: so each needs an answer of its own. */
static void read_answers(const json_t *array, int *answers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *word = json_string_value(json_array_get(array, i));

        answers[i] = TE_ERR_STALE;
        for (size_t k = 0; word && k < TEI_ARRAY_LEN(answers_known); k++)
            if (strcmp(word, answers_known[k].word) == 0)
                answers[i] = answers_known[k].answer;
    }
}

static int read_reply(const struct tei_bytes *reply, const struct tei_hostport *where, int *answers,
                      size_t n)
{
    json_t *root = NULL;
    int rc = tei_json_load(reply->data, reply->len, 0, &root, NULL);

    if (rc)
        rc = TEI_FAIL(rc == TE_ERR_MEMORY ? rc : TE_ERR_PROTOCOL,
                      "%s port %u: the answer to an addition is no JSON", where->host,
                      (unsigned)where->port);
    else
        read_answers(json_object_get(json_object_get(root, "te"), "count"), answers, n);
    json_decref(root);
    return rc;
}

/* As JSON, NUL-terminated; what it needs is known. */
#define BODY_MAX (64 + TEI_COUNTS_MAX * 100)

static size_t write_counts(const struct tei_count *counts, size_t n, char out[BODY_MAX])
{
    int at = snprintf(out, BODY_MAX, "{\"name\":\"\",\"notify_msg\":\"\",\"te\":{\"count\":[");

    for (size_t i = 0; i < n; i++) {
        const struct tei_count *m = &counts[i];

        at += snprintf(out + at, BODY_MAX - (size_t)at,
                       "%s[\"%016" PRIx64 "\",\"%016" PRIx64 "\",\"%016" PRIx64 "\",\"%016" PRIx64
                       "\",\"%016" PRIx64 "\"]",
                       i ? "," : "", m->key.id, m->key.secret, m->from.incarnation, m->from.adder,
                       m->total);
    }
    return (size_t)(at + snprintf(out + at, BODY_MAX - (size_t)at, "]}}"));
}

int tei_rpc_counts(struct tei_auth *auth, const struct tei_hostport *where,
                   const struct tei_count *counts, int *answers, size_t n, int64_t deadline_ns)
{
    char body[BODY_MAX];
    size_t len = write_counts(counts, n, body);
    struct tei_bytes reply;
    int rc =
        tei_rpc_request(auth, where, TEI_RPC_NOTIFY, body, len, REPLY_MAX, deadline_ns, &reply);

    if (rc)
        return rc;
    rc = read_reply(&reply, where, answers, n);
    tei_bytes_fini(&reply);
    return rc;
}
