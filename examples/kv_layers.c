/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A KV cache from prefill to decode, layer by layer: ./kv_layers
 * Two processes. Decode has free pages, and makes a counter for each request; prefill writes each layer once it
 * is computed, and has the counter raised by a bit of its own. The second request is given up in the middle,
 * and the third gets its pages. docs/tutorial-kv.md goes through it step by step.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <te.h>
#include <unistd.h>

enum { LAYERS = 16, PAGES = 64, PAGE = 16384, NEEDED = 20, WAIT_MS = 60000, REQUESTS = 3 };

static unsigned char ours[LAYERS][PAGES][PAGE];   /* of prefill: layer by layer */
static unsigned char theirs[PAGES][LAYERS][PAGE]; /* of decode: page by page */

/* What prefill must know. In a server it comes with the prompt. */
struct order {
    char engine[300], counter[32];
    uint64_t base;
    uint32_t seed, pages[NEEDED];
};

#define MUST(call) must(#call, call)

static void must(const char *call, int rc)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "kv_layers: %s: %s\n", call, te_errmsg());
    exit(1);
}

/* Stands for the model: what page i of a layer holds. */
static void compute(unsigned char page[PAGE], uint32_t seed, size_t layer, size_t i)
{
    for (size_t at = 0; at < PAGE; at++)
        page[at] = (unsigned char)(at * 7 + at / 256 + seed * 101 + layer * 31 + i);
}

static te_batch send_layer(te_engine *e, te_segment target, te_adder adder, const struct order *o,
                           size_t layer)
{
    const te_pages pages = {
        .size = sizeof(pages),
        .opcode = TE_WRITE,
        .target = target,
        .length = PAGE,
        .n = NEEDED,
        .index_bits = 32,
        .local = {.base = (uintptr_t)ours[layer], .pages = PAGES, .stride = PAGE},
        .remote = {o->base + layer * PAGE, PAGES, LAYERS * PAGE, 0, 0, o->pages},
    };
    te_batch batch;

    MUST(te_batch_alloc(e, 1, &batch));
    MUST(te_submit_pages(e, batch, &pages, NULL));
    MUST(te_adder_after(e, batch, adder, (uint64_t)1 << layer));
    return batch;
}

/* Then nothing of it changes the memory of either side any more. */
static void end_layer(te_engine *e, te_batch batch, int given_up)
{
    if (given_up)
        MUST(te_cancel(e, batch));
    MUST(te_wait(e, batch, WAIT_MS));
    if (given_up)
        MUST(te_fence(e, batch, WAIT_MS, NULL, 0, NULL));
    MUST(te_batch_free(e, batch));
}

static void serve(te_engine *e, int decode, const struct order *o)
{
    char word = 0; /* 'd': decode has all of it, 'g': it is given up */
    te_batch batches[LAYERS];
    te_segment target;
    te_adder adder;
    size_t n = 0;

    MUST(te_open(e, o->engine, &target));
    MUST(te_adder_open(e, target, o->counter, &adder));
    for (; n < LAYERS && recv(decode, &word, 1, MSG_DONTWAIT) != 1; n++) {
        for (size_t i = 0; i < NEEDED; i++)
            compute(ours[n][i], o->seed, n, i);
        batches[n] = send_layer(e, target, adder, o, n);
    }
    if (!word && recv(decode, &word, 1, 0) != 1)
        exit(1);
    while (n > 0)
        end_layer(e, batches[--n], word == 'g');
    MUST(te_adder_flush(e, adder, WAIT_MS)); /* what was not given up is counted */
    MUST(te_adder_close(e, adder));
    MUST(te_close(e, target));
    (void)!write(decode, "q", 1);
}

static int prefill(int decode)
{
    te_engine *e;
    struct order o;

    MUST(te_engine_create(NULL, &e));
    MUST(te_register(e, ours, sizeof(ours), "*", TE_LOCAL_ONLY));
    while (recv(decode, &o, sizeof(o), 0) == sizeof(o))
        serve(e, decode, &o);
    te_engine_destroy(e);
    return 0;
}

/* Waits for a layer and uses it: here it is compared. `have` gets a bit for each that has come. */
static int use_layer(te_engine *e, te_counter counter, const struct order *o, size_t layer,
                     uint64_t *have)
{
    unsigned char page[PAGE];
    int wrong = 0;

    while (!(*have >> layer & 1)) {
        MUST(te_counter_wait(e, counter, *have + 1, WAIT_MS));
        MUST(te_counter_value(e, counter, have));
    }
    for (size_t i = 0; i < NEEDED; i++) {
        compute(page, o->seed, layer, i);
        wrong += memcmp(page, theirs[o->pages[i]][layer], PAGE) != 0;
    }
    return wrong;
}

static int request(te_engine *e, int prefill, uint32_t number)
{
    struct order o = {.base = (uintptr_t)theirs, .seed = number};
    int given_up = number == 2, wrong = 0;
    te_counter counter;
    uint64_t have = 0;
    char answer;

    for (uint32_t i = 0; i < NEEDED; i++) /* the third has the pages of the second */
        o.pages[i] = (i * 7 + (number > 1)) % PAGES;
    snprintf(o.counter, sizeof(o.counter), "request %u", number);
    MUST(te_engine_name(e, o.engine, sizeof(o.engine)));
    MUST(te_counter_create(e, o.counter, &counter));
    (void)!write(prefill, &o, sizeof(o));
    for (size_t layer = 0; layer < (given_up ? 1 : LAYERS); layer++)
        wrong += use_layer(e, counter, &o, layer, &have);
    (void)!write(prefill, given_up ? "g" : "d", 1);
    if (recv(prefill, &answer, 1, 0) != 1) /* else its pages may still change */
        exit(1);
    MUST(te_counter_destroy(e, counter));
    printf("%s: %s, %d pages are wrong\n", o.counter, given_up ? "given up" : "all layers", wrong);
    return wrong;
}

int main(void)
{
    int ends[2], status = 1, wrong = 0;
    te_engine *e;
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) || (child = fork()) < 0)
        return 1;
    if (child == 0) { /* neither process has an engine yet */
        close(ends[0]);
        return prefill(ends[1]);
    }
    close(ends[1]);
    MUST(te_engine_create(NULL, &e));
    MUST(te_register(e, theirs, sizeof(theirs), "*", TE_REMOTE_WRITE));
    for (uint32_t number = 1; number <= REQUESTS; number++)
        wrong += request(e, ends[0], number);
    te_engine_destroy(e);
    close(ends[0]); /* which prefill ends at */
    wait(&status);
    return wrong || status;
}
