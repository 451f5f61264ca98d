/* SPDX-License-Identifier: Apache-2.0 */
/* conformance_warm.c - connecting ahead: op warm(). A transport without connections has nothing to say there. */
#include "conformance.h"

#include "base/os.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* As the core asks. */
static void ask(const struct pair *p, struct tei_warmth *w)
{
    p->a->ops.warm(p->a, p->attach, w);
    w->begun = true;
}

/* Anew, until it is through. */
static struct tei_warmth warm(const struct pair *p)
{
    struct tei_warmth w = {0};

    ask(p, &w);
    WAIT_FOR((ask(p, &w), w.opening == 0));
    return w;
}

static void move(const struct pair *p, size_t n)
{
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, n), 0);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, n), 0);
}

static struct te_stats stats_of(struct tei_transport *t)
{
    struct te_stats s = {0};

    t->ops.stats(t, &s);
    return s;
}

/*
 * Work of any length finds all there; to ask again finds nothing to do. False: a connection broke meanwhile, as it may
 * on a machine that stalls, and was made again.
 */
static bool finds_all(const struct pair *p)
{
    struct tei_warmth first = warm(p), again = {0};
    struct te_stats before = stats_of(p->a), after;

    if (first.failed)
        return false;
    move(p, 100);
    move(p, PAIR_BYTES);
    after = stats_of(p->a);
    if (after.retries != before.retries)
        return false;
    if (first.ready) {
        assert_int_equal(after.connections, before.connections);
        assert_int_equal(after.reconnects, before.reconnects);
    }
    ask(p, &again);
    assert_int_equal(again.ready, first.ready);
    assert_int_equal(again.opening, 0);
    assert_int_equal(again.failed, 0);
    return true;
}

void conformance_warm(const struct conformance *with)
{
    bool found = false;

    for (int i = 0; i < PATIENCE_MS / 1000 && !found; i++) {
        struct pair *p = pair_open(with);

        found = finds_all(p);
        pair_close(p);
    }
    assert_true(found);
}

/* What was begun is no hindrance to work, nor to an end at any time. */
void conformance_warm_ends(const struct conformance *with)
{
    for (int round = 0; round < 4; round++) {
        struct pair *p = pair_open(with);
        struct tei_warmth w = {0};

        ask(p, &w);
        if (round % 2)
            move(p, 20 * PIECE);
        usleep((useconds_t)(round * 150));
        if (round / 2) {
            p->a->ops.close(p->a);
            ask(p, &w);
        }
        pair_close(p);
    }
}

/* All come to an end. */
static void *warm_often(void *arg)
{
    for (int i = 0; i < 5; i++)
        (void)warm(arg);
    return NULL;
}

void conformance_warm_together(const struct conformance *with)
{
    struct pair *p = pair_open(with);
    struct tei_warmth w;
    pthread_t threads[4];

    for (size_t i = 0; i < TEI_ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, warm_often, p), 0);
    move(p, 20 * PIECE);
    for (size_t i = 0; i < TEI_ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    WAIT_FOR((w = warm(p), w.failed == 0));
    pair_close(p);
}

/* Each try has its end, and says why. An engine of another test may have got the port: then another peer is taken. */
void conformance_warm_dead(const struct conformance *with)
{
    struct tei_warmth w = {.ready = 1};

    for (int i = 0; i < 5 && w.ready; i++) {
        struct pair *p = pair_fork(with);

        pair_end_child(p);
        p->child = -1;
        w = warm(p);
        pair_close(p);
    }
    assert_int_equal(w.ready, 0);
    if (w.failed) { /* else there is nothing to connect */
        assert_int_equal(w.error, TE_ERR_PEER);
        assert_true(strlen(w.why) > 0);
    }
}

/* A peer that is stopped holds up nobody; once it goes on all comes to its end without being asked to begin again. */
void conformance_warm_frozen(const struct conformance *with)
{
    struct pair *p = pair_fork(with);
    struct tei_warmth w = {0};

    kill(p->child, SIGSTOP);
    waitpid(p->child, NULL, WUNTRACED);
    ask(p, &w); /* it goes on only after this */
    kill(p->child, SIGCONT);
    WAIT_FOR((ask(p, &w), w.opening == 0));
    move(p, 20 * PIECE);
    WAIT_FOR((w = warm(p), w.failed == 0));
    pair_close(p);
}
