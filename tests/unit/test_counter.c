/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of a target and the messages that raise them: whatever comes, in whatever order, each addition counts once. */
#include "core/counter.h"
#include "core/complete.h"
#include "core/core.h"
#include "core/group.h"
#include "patience.h"
#include "test.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDERS 7

static te_engine *e;

static int set_up(void **state)
{
    te_options o;

    (void)state;
    te_options_init(&o);
    o.local_server_name = "127.0.0.1";
    assert_int_equal(te_engine_create(&o, &e), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    te_engine_destroy(e);
    return 0;
}

static te_counter make(const char *name, struct tei_count_key *key)
{
    te_counter c;

    assert_int_equal(te_counter_create(e, name, &c), 0);
    assert_int_equal(tei_counter_key(&e->counters, name, key), 0);
    return c;
}

static uint64_t value(te_counter c)
{
    uint64_t v;

    assert_int_equal(te_counter_value(e, c, &v), 0);
    return v;
}

static int take(struct tei_count_key key, uint64_t adder, uint64_t total)
{
    struct tei_count m = {key, {77, adder}, total};

    return tei_counter_take(&e->counters, &m);
}

/* Each total that an adder ever had comes any number of times, in any order. */
TEST(totals_in_any_order)
{
    struct tei_count_key key;
    te_counter c = make("any", &key);
    uint64_t largest[ADDERS] = {0}, sum, last = 0;

    srandom(5);
    for (int i = 0; i < 20000; i++) {
        size_t adder = (size_t)random() % ADDERS;
        uint64_t total = (uint64_t)random() % 1000;

        assert_int_equal(take(key, adder, total), 0);
        largest[adder] = total > largest[adder] ? total : largest[adder];
        sum = 0;
        for (size_t k = 0; k < ADDERS; k++)
            sum += largest[k];
        assert_int_equal(value(c), sum);
        assert_true(sum >= last);
        last = sum;
    }
    assert_int_equal(te_counter_destroy(e, c), 0);
}

TEST(the_largest_value_stays)
{
    struct tei_count_key key;
    te_counter c = make("large", &key);

    assert_int_equal(take(key, 1, UINT64_MAX - 1), 0);
    assert_int_equal(take(key, 2, 5), 0);
    assert_true(value(c) == UINT64_MAX);
    assert_int_equal(te_counter_wait(e, c, UINT64_MAX, 0), 0);
    assert_int_equal(te_counter_destroy(e, c), 0);
}

TEST(who_does_not_know_the_key_adds_nothing)
{
    struct tei_count_key key, other;
    te_counter c = make("kept", &key);

    other = key;
    other.secret ^= 1;
    assert_int_equal(take(other, 1, 5), TE_ERR_STALE);
    other = key;
    other.id ^= 1;
    assert_int_equal(take(other, 1, 5), TE_ERR_STALE);
    assert_int_equal(value(c), 0);
    assert_int_equal(te_counter_destroy(e, c), 0);
    assert_int_equal(take(key, 1, 5), TE_ERR_STALE);
    /* One of the same name is another. */
    c = make("kept", &other);
    assert_int_equal(take(key, 1, 5), TE_ERR_STALE);
    assert_int_equal(take(other, 1, 5), 0);
    assert_int_equal(value(c), 5);
    assert_int_equal(te_counter_destroy(e, c), 0);
}

TEST(as_many_adders_as_there_is_room_for)
{
    struct tei_count_key key;
    te_counter c = make("crowded", &key);

    assert_int_equal(take(key, 5000, 0), 0); /* nothing, which needs no room */
    for (uint64_t i = 0; i < 4096; i++)
        assert_int_equal(take(key, i, 2), 0);
    assert_int_equal(take(key, 4096, 2), TE_ERR_REJECTED);
    assert_int_equal(take(key, 4095, 3), 0);
    assert_int_equal(value(c), 2 * 4096 + 1);
    assert_int_equal(te_counter_destroy(e, c), 0);
}

TEST(as_many_counters_as_there_is_room_for)
{
    te_counter *all = calloc(65536, sizeof(*all)), more;
    char name[32];

    assert_non_null(all);
    for (size_t i = 0; i < 65536; i++) {
        snprintf(name, sizeof(name), "%zu", i);
        assert_int_equal(te_counter_create(e, name, &all[i]), 0);
    }
    assert_int_equal(te_counter_create(e, "one more", &more), TE_ERR_TOO_MANY);
    assert_int_equal(te_counter_destroy(e, all[7]), 0);
    assert_int_equal(te_counter_create(e, "one more", &more), 0);
    free(all); /* the engine ends them */
}

/* What a probe, and a message, may be. */
TEST(bodies)
{
    static const char *const none[] = {
        "",
        "{}",
        "[]",
        "{\"te\":3}",
        "{\"te\":{}}",
        "{\"te\":{\"counter\":3}}",
        "{\"te\":{\"counter\":[\"a\"]}}",
        "{\"te\":{\"counter\":\"\"}}",
        "{\"te\":{\"counter\":\"a\"",
    };
    struct tei_probe_ask ask;
    char text[600];

    for (size_t i = 0; i < TEI_ARRAY_LEN(none); i++) {
        tei_probe_read(none[i], strlen(none[i]), &ask);
        assert_string_equal(ask.counter, "");
        assert_int_equal(ask.is_ours, strncmp(none[i], "{\"te\":{", 7) == 0 &&
                                          none[i][strlen(none[i]) - 1] == '}');
    }
    snprintf(text, sizeof(text), "{\"te\":{\"counter\":\"%0255d\"}}", 1);
    tei_probe_read(text, strlen(text), &ask);
    assert_int_equal(strlen(ask.counter), 255);
    snprintf(text, sizeof(text), "{\"te\":{\"counter\":\"%0256d\"}}", 1);
    tei_probe_read(text, strlen(text), &ask);
    assert_int_equal(strlen(ask.counter), 0);
}

/* Of an engine of the incarnation 0xa, to who asks for that, for another one, or for none. */
static void answers_to_probes(void **state)
{
    static const struct tei_count_key key = {1, 2};
    static const struct {
        const char *ask, *answer;
    } probes[] = {
        {"{}", "{\"status\":\"success\"}"},
        {"{\"te\":{}}", "{\"status\":\"success\",\"te\":{\"notify\":1}}"},
        {"{\"te\":{\"life\":\"0000000000000000\"}}",
         "{\"status\":\"success\",\"te\":{\"notify\":1}}"},
        {"{\"te\":{\"life\":\"b\"}}", "{\"status\":\"success\",\"te\":{\"notify\":1}}"},
        {"{\"te\":{\"life\":11}}", "{\"status\":\"success\",\"te\":{\"notify\":1}}"},
        {"{\"te\":{\"life\":\"000000000000000b\"}}",
         "{\"status\":\"success\",\"te\":{\"life\":\"000000000000000a\",\"notify\":1}}"},
        {"{\"te\":{\"counter\":\"x\"}}",
         "{\"status\":\"success\",\"te\":{\"counter\":[\"0000000000000001\","
         "\"0000000000000002\"],\"notify\":1}}"},
        {"{\"te\":{\"counter\":\"x\",\"life\":\"000000000000000a\"}}",
         "{\"status\":\"success\",\"te\":{\"counter\":[\"0000000000000001\","
         "\"0000000000000002\"],\"life\":\"000000000000000a\",\"notify\":1}}"},
        {"{\"te\":{\"counter\":\"x\",\"life\":\"000000000000000b\"}}",
         "{\"status\":\"success\",\"te\":{\"life\":\"000000000000000a\",\"notify\":1}}"},
    };
    char answer[TEI_PROBE_ANSWER_MAX];
    struct tei_probe_ask ask;

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(probes); i++) {
        tei_probe_read(probes[i].ask, strlen(probes[i].ask), &ask);
        tei_probe_answer(&ask, &key, 10, answer);
        assert_string_equal(answer, probes[i].answer);
    }
    tei_probe_read(probes[7].ask, strlen(probes[7].ask), &ask);
    tei_probe_answer(&ask, NULL, 10, answer);
    assert_string_equal(answer, "{\"status\":\"success\",\"te\":{\"counter\":[],\"life\":"
                                "\"000000000000000a\",\"notify\":1}}");
}

/* Whom a message is for. */
static void lives_of_messages(void **state)
{
    static const char *const bad[] = {
        "7", "\"\"", "\"a\"", "\"0000000000000000\"", "null", "\"0123456789ABCDEF\""};
    const te_message texts[] = {{"a", 1, "b", 1}, {"\377", 1, "b", 1}};
    struct tei_counts more;
    te_message got;
    char body[64], *text;

    (void)state;
    for (size_t i = 0; i < TEI_ARRAY_LEN(texts); i++)
        for (uint64_t life = 0; life < 2; life++) {
            assert_int_equal(tei_notify_encode(&texts[i], life, &text), 0);
            assert_int_equal(strstr(text, "life") != NULL, life);
            assert_int_equal(tei_notify_decode(text, strlen(text), &got, &more), 0);
            assert_true(more.life == life);
            assert_memory_equal(got.name, texts[i].name, 2);
            tei_message_fini(&got);
            free(text);
        }
    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        snprintf(body, sizeof(body), "{\"name\":\"a\",\"te\":{\"life\":%s}}", bad[i]);
        assert_int_equal(tei_notify_decode(body, strlen(body), &got, &more), TE_ERR_JSON);
    }
}

#define N16 "\"0123456789abcdef\""

TEST(messages)
{
    static const char *const bad[] = {
        "3",
        "{}",
        "[]",
        "[[]]",
        "[3]",
        "null",
        "[[" N16 "," N16 "," N16 "," N16 "]]",
        "[[" N16 "," N16 "," N16 "," N16 "," N16 "," N16 "]]",
        "[[" N16 "," N16 "," N16 "," N16 ",3]]",
        "[[" N16 "," N16 "," N16 "," N16 ",\"123456789abcdef\"]]",
        "[[" N16 "," N16 "," N16 "," N16 ",\"0123456789abcdeg\"]]",
        "[[" N16 "," N16 "," N16 "," N16 "," N16 "],[]]",
    };
    struct tei_counts counts;
    te_message text;
    char body[400];

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        snprintf(body, sizeof(body), "{\"te\":{\"count\":%s}}", bad[i]);
        assert_int_equal(tei_notify_decode(body, strlen(body), &text, &counts), TE_ERR_JSON);
    }
    snprintf(body, sizeof(body),
             "{\"te\":{\"count\":[[\"0000000000000001\",\"0000000000000002\",\"0000000000000003\","
             "\"0000000000000004\",\"ffffffffffffffff\"]]}}");
    assert_int_equal(tei_notify_decode(body, strlen(body), &text, &counts), 0);
    assert_null(text.name);
    assert_int_equal(counts.n, 1);
    assert_int_equal(counts.of[0].key.id, 1);
    assert_int_equal(counts.of[0].key.secret, 2);
    assert_int_equal(counts.of[0].from.incarnation, 3);
    assert_int_equal(counts.of[0].from.adder, 4);
    assert_true(counts.of[0].total == UINT64_MAX);
    /* To one that only reads messages it is an empty one. */
    assert_int_equal(tei_notify_decode(body, strlen(body), &text, NULL), 0);
    assert_string_equal(text.name, "");
    tei_message_fini(&text);
}

static json_t *message_of(size_t n)
{
    json_t *counts = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(counts, json_pack("[sssss]", "0000000000000001", "0000000000000002",
                                                "0000000000000003", "0000000000000004",
                                                "0000000000000005"));
    return json_pack("{s:{s:o}}", "te", "count", counts);
}

TEST(as_many_as_a_message_may_have)
{
    struct tei_counts counts;
    te_message text;

    for (size_t n = TEI_COUNTS_MAX; n <= TEI_COUNTS_MAX + 1; n++) {
        json_t *j = message_of(n);
        char *body = tei_json_text(j, NULL);

        assert_int_equal(tei_notify_decode(body, strlen(body), &text, &counts),
                         n == TEI_COUNTS_MAX ? 0 : TE_ERR_JSON);
        free(body);
        json_decref(j);
    }
}

/* What they say of themselves they understand. */
TEST(replies)
{
    int answers[TEI_COUNTS_MAX];
    char reply[TEI_COUNTS_REPLY_MAX];
    json_t *j = NULL;

    for (size_t i = 0; i < TEI_COUNTS_MAX; i++)
        answers[i] = TE_ERR_MEMORY;
    tei_counts_reply(answers, TEI_COUNTS_MAX, reply);
    assert_int_equal(tei_json_load(reply, strlen(reply), 0, &j, NULL), 0);
    assert_int_equal(json_array_size(json_object_get(json_object_get(j, "te"), "count")),
                     TEI_COUNTS_MAX);
    json_decref(j);
    answers[0] = 0;
    answers[1] = TE_ERR_STALE;
    answers[2] = TE_ERR_REJECTED;
    tei_counts_reply(answers, 4, reply);
    assert_string_equal(reply, "{\"name\":\"\",\"notify_msg\":\"success\",\"te\":{\"count\":"
                               "[\"taken\",\"gone\",\"full\",\"later\"]}}");
}

/* ------------------------------------------------------------------------------------------ adders */

/* What follows a batch before all else, and holds up the thread that ends it. */
struct hook {
    struct group group;
    struct batch *batch;
    sem_t reached, go_on;
};

static void hold_up(struct group *g, bool good)
{
    struct hook *h = (struct hook *)g;

    (void)good;
    sem_post(&h->reached);
    sem_wait(&h->go_on);
}

static void nothing(struct group *g, bool good)
{
    (void)g;
    (void)good;
}

/* As the end of its only request does. */
static void *end_batch(void *arg)
{
    struct hook *h = arg;
    struct group last = {.left = 1, .end = nothing};

    atomic_store(&h->batch->tasks[0].state, TE_COMPLETED);
    atomic_fetch_sub(&h->batch->left, 1);
    tei_batch_after(h->batch, &last);
    return NULL;
}

/* The batch has a request that is unfinished. */
static struct batch *begin_batch(te_batch b)
{
    struct batch *batch = tei_batch_pin(&e->batches, b);

    atomic_store(&batch->tasks[0].state, TE_WAITING);
    atomic_store(&batch->claimed, 1);
    atomic_fetch_add(&batch->left, 1);
    return batch;
}

/*
 * An adder of a counter of this engine's own, with an addition of 7 by a batch that has one request, which the thread
 * has ended; but it has not come to the addition yet.
 */
static pthread_t end_halfway(struct hook *h, te_batch b, te_adder *a)
{
    pthread_t thread;

    *h = (struct hook){.group = {.left = 1, .end = hold_up}, .batch = begin_batch(b)};
    sem_init(&h->reached, 0, 0);
    sem_init(&h->go_on, 0, 0);
    tei_batch_after(h->batch, &h->group);
    assert_int_equal(te_adder_open(e, TE_LOCAL_SEGMENT, "closed", a), 0);
    assert_int_equal(te_adder_after(e, b, *a, 7), 0);
    assert_int_equal(te_adder_close(e, *a), TE_ERR_BUSY);
    assert_int_equal(te_wait(e, b, 0), TE_ERR_TIMEOUT);
    assert_int_equal(pthread_create(&thread, NULL, end_batch, h), 0);
    sem_wait(&h->reached);
    return thread;
}

static void go_on(struct hook *h, pthread_t thread)
{
    sem_post(&h->go_on);
    pthread_join(thread, NULL);
    tei_batch_unpin(&e->batches, h->batch->id);
    sem_destroy(&h->reached);
    sem_destroy(&h->go_on);
}

/* Who has waited for the batch may close the adder at once, wherever the thread is that ends the batch. */
TEST(close_behind_a_batch_that_is_done)
{
    te_counter c;
    te_batch b;
    te_adder a;
    struct hook h;
    pthread_t thread;

    assert_int_equal(te_counter_create(e, "closed", &c), 0);
    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    thread = end_halfway(&h, b, &a);
    assert_int_equal(te_wait(e, b, PATIENCE_MS), 0);
    assert_int_equal(te_adder_flush(e, a, 0), TE_ERR_TIMEOUT);
    assert_int_equal(te_adder_close(e, a), 0);
    assert_int_equal(te_adder_close(e, a), TE_ERR_NOT_FOUND);
    go_on(&h, thread);
    assert_int_equal(value(c), 0); /* forgotten, as what a target has not counted */
    thread = end_halfway(&h, b, &a);
    go_on(&h, thread);
    assert_int_equal(te_adder_flush(e, a, 0), 0);
    assert_int_equal(value(c), 7);
    assert_int_equal(te_adder_close(e, a), 0);
    assert_int_equal(te_batch_free(e, b), 0);
    assert_int_equal(te_counter_destroy(e, c), 0);
}

/* Nor is it busy for who has seen by te_status() that all has ended, a moment before the batch is done. */
TEST(close_behind_requests_that_have_ended)
{
    struct hook h = {0};
    te_counter c;
    te_batch b;
    te_adder a;

    assert_int_equal(te_counter_create(e, "closed", &c), 0);
    assert_int_equal(te_batch_alloc(e, 1, &b), 0);
    h.batch = begin_batch(b);
    assert_int_equal(te_adder_open(e, TE_LOCAL_SEGMENT, "closed", &a), 0);
    assert_int_equal(te_adder_after(e, b, a, 7), 0);
    assert_int_equal(te_adder_close(e, a), TE_ERR_BUSY);
    atomic_store(&h.batch->tasks[0].state, TE_COMPLETED);
    assert_int_equal(te_adder_close(e, a), 0);
    end_batch(&h);
    assert_int_equal(value(c), 0);
    tei_batch_unpin(&e->batches, b);
    assert_int_equal(te_batch_free(e, b), 0);
    assert_int_equal(te_counter_destroy(e, c), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(totals_in_any_order),
        cmocka_unit_test(the_largest_value_stays),
        cmocka_unit_test(who_does_not_know_the_key_adds_nothing),
        cmocka_unit_test(as_many_adders_as_there_is_room_for),
        cmocka_unit_test(close_behind_a_batch_that_is_done),
        cmocka_unit_test(close_behind_requests_that_have_ended),
        cmocka_unit_test(as_many_counters_as_there_is_room_for),
        cmocka_unit_test(bodies),
        cmocka_unit_test(answers_to_probes),
        cmocka_unit_test(lives_of_messages),
        cmocka_unit_test(messages),
        cmocka_unit_test(as_many_as_a_message_may_have),
        cmocka_unit_test(replies),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
