/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: one-thread timeout=300 */
/*
 * Every history of two works of two bytes each, however long, over the ledger itself: each state that can be
 * reached is, once. Two states are the same if nothing that may follow tells them apart: times count from now on,
 * one longer ago than any limit is as long ago as any other, and which of the two works is which matters to nobody.
 */
#define HISTORY_WORKS 2
#define HISTORY_PARTS 4
#include "fuzz/ledger_history.h"

#include "base/hash.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>

#define TICK   (HISTORY_PATIENCE / 2)
#define LENGTH 2
#define DEEP   100000

enum step { POST, TAKE, BACK, FAIL, WITHDRAW, WAIT };

struct action {
    enum step step;
    unsigned which; /* work, part or owner */
    int64_t arg;    /* POST: until the deadline; TAKE: bytes at most; BACK: the error */
    bool waits;
};

static struct action actions[64];
static size_t n_actions;

/* What tells states apart: one byte each. */
struct key {
    uint8_t works[HISTORY_WORKS][16];
    uint8_t parts[HISTORY_PARTS][4];
    uint8_t times[2];
};

struct seen {
    struct key key;
    UT_hash_handle hh;
};

/* A state on the way to the one that is looked at, and the next action to try there. */
struct place {
    struct history h;
    size_t next;
};

static struct history h; /* pointers lead into it, so states are copied to it and from it */
static struct place *way;
static size_t depth;
static struct seen *all;
static size_t n_steps;

static void add(enum step step, unsigned which, int64_t arg, bool waits)
{
    actions[n_actions++] = (struct action){step, which, arg, waits};
}

static void list_actions(void)
{
    static const int errors[] = {TE_ERR_OK, TE_ERR_STALE, TE_ERR_SYSTEM};

    for (unsigned i = 0; i < HISTORY_WORKS; i++) {
        add(POST, i, TEI_NEVER, false);
        add(POST, i, TICK, false);
        add(WITHDRAW, i, 0, false);
        add(FAIL, i, 0, false);
    }
    for (unsigned i = 0; i < 4; i++)
        add(TAKE, 0, 1 + (i & 1), i & 2);
    for (unsigned i = 0; i < HISTORY_PARTS; i++)
        for (size_t k = 0; k < TEI_ARRAY_LEN(errors); k++)
            add(BACK, i, errors[k], false);
    add(FAIL, 2, 0, false);
    add(WAIT, 0, 0, false);
}

static void withdraw(struct history_work *w)
{
    if (!w->live || w->error || w->given)
        return;
    tei_ledger_withdraw(&w->entry);
    w->live = false;
}

static void act(const struct action *a)
{
    switch (a->step) {
    case POST:
        history_post(&h, a->which, LENGTH, a->arg == TEI_NEVER ? TEI_NEVER : h.now + a->arg);
        break;
    case TAKE:
        history_take(&h, (uint64_t)a->arg, a->waits);
        break;
    case BACK:
        if (a->which < h.n_parts)
            history_back(&h, a->which, (int)a->arg);
        break;
    case FAIL:
        history_fail(&h, a->which);
        break;
    case WITHDRAW:
        withdraw(&h.works[a->which]);
        break;
    case WAIT:
        history_tick(&h, TICK);
    }
    history_reap(&h);
}

/* In ticks from now, up to one more than there is a limit of. */
static uint8_t ago(int64_t then)
{
    int64_t ticks = (h.now - then) / TICK;

    return (uint8_t)(then == TEI_NEVER ? 255 : ticks > 3 ? 3 : ticks + 100);
}

static unsigned number_of(const struct tei_entry *e)
{
    return (unsigned)(history_of(e) - h.works);
}

static void key_of_work(uint8_t *key, const struct history_work *w)
{
    const struct tei_entry *e = &w->entry;
    uint8_t all_of_it[] = {1,
                           (uint8_t)-w->error,
                           (uint8_t)w->given,
                           (uint8_t)w->good,
                           (uint8_t)w->out,
                           (uint8_t)w->waiting,
                           ago(w->since),
                           (uint8_t)-e->base.error,
                           (uint8_t)e->next,
                           (uint8_t)e->out,
                           (uint8_t)e->waiting,
                           ago(e->since_ns),
                           ago(e->base.deadline_ns),
                           e->base.why != NULL};

    if (w->live)
        memcpy(key, all_of_it, sizeof(all_of_it));
}

/* Which list each is in, and where in it. */
static void key_of_lists(struct key *key, unsigned swap)
{
    struct tei_list *lists[] = {&h.ledger.queue, &h.ledger.whole, &h.ledger.failed};
    struct tei_link *link, *tmp;

    for (size_t i = 0; i < TEI_ARRAY_LEN(lists); i++) {
        uint8_t at = 0;

        TEI_LIST_EACH(lists[i], link, tmp)
            key->works[number_of(tei_entry_of(link)) ^ swap][15] = (uint8_t)(16 * i + ++at);
    }
}

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(((struct key *)0)->parts[0]));
}

/* swap: 1 if the first work is to be the second. */
static struct key key_as(unsigned swap)
{
    struct key key = {.times = {ago(h.progress), ago(h.ledger.look_ns)}};

    for (unsigned i = 0; i < HISTORY_WORKS; i++)
        key_of_work(key.works[i ^ swap], &h.works[i]);
    key_of_lists(&key, swap);
    for (size_t i = 0; i < h.n_parts; i++) {
        const struct tei_part *p = &h.parts[i];
        uint8_t all_of_it[] = {(uint8_t)(1 + (number_of(p->entry) ^ swap)),
                               (uint8_t)(p->remote - 1000), (uint8_t)p->length, p->waits};

        memcpy(key.parts[i], all_of_it, sizeof(all_of_it));
    }
    qsort(key.parts, HISTORY_PARTS, sizeof(key.parts[0]),
          by_bytes); /* nor does which part is which */
    return key;
}

static struct key key_now(void)
{
    struct key one = key_as(0), other = key_as(1);

    return memcmp(&one, &other, sizeof(one)) < 0 ? one : other;
}

static bool is_new(void)
{
    struct key key = key_now();
    struct seen *s;

    HASH_FIND(hh, all, &key, sizeof(key), s);
    if (s)
        return false;
    s = malloc(sizeof(*s));
    assert_non_null(s);
    s->key = key;
    assert_true(TEI_HASH_ADD(all, &s->key, sizeof(s->key), s));
    return true;
}

static void enter(void)
{
    assert_true(depth < DEEP);
    way[depth++] = (struct place){.h = h};
}

static void tell_the_way(int signal_number)
{
    static const char *const names[] = {"post", "take", "back", "fail", "withdraw", "wait"};

    for (size_t i = 0; i < depth; i++) {
        const struct action *a = &actions[way[i].next - 1];

        fprintf(stderr, "%s(%u, %lld, %d)\n", names[a->step], a->which, (long long)a->arg,
                a->waits);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* From each state everything may be cancelled, and ends. */
static void look_around(struct place *p)
{
    if (p->next == n_actions) {
        history_end(&h);
        depth--;
        return;
    }
    act(&actions[p->next++]);
    n_steps++;
    if (is_new())
        enter();
}

TEST(every_history_of_two_works)
{
    struct seen *s, *tmp;

    list_actions();
    way = malloc(DEEP * sizeof(*way));
    assert_non_null(way);
    signal(SIGABRT, tell_the_way);
    history_begin(&h);
    for (assert_true(is_new()), enter(); depth > 0;) {
        h = way[depth - 1].h;
        look_around(&way[depth - 1]);
    }
    print_message("%u states, %zu steps\n", HASH_COUNT(all), n_steps);
    assert_true(HASH_COUNT(all) > 1000);
    HASH_ITER(hh, all, s, tmp) {
        HASH_DEL(all, s);
        free(s);
    }
    free(way);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_history_of_two_works)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
