/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of a KV cache, layer by layer: ./pages
 * Two engines of this process stand for two. One has its cache layer by layer, the other page by page. Of
 * each layer the pages of a prompt are one request, with their numbers on both sides; a message follows
 * the last layer.
 */
#include <stdio.h>
#include <string.h>
#include <te.h>

enum { LAYERS = 8, PAGES = 64, PAGE = 4096, FILLED = 5, WAIT_MS = 60000 };

static unsigned char ours[LAYERS][PAGES][PAGE], theirs[PAGES][LAYERS][PAGE];
static const uint32_t filled[FILLED] = {5, 3, 4, 60, 17}, unused[FILLED] = {0, 1, 2, 7, 63};

/* Whether a call failed; says why. */
static int bad(const char *what, int rc)
{
    if (rc < 0)
        fprintf(stderr, "pages: %s: %s\n", what, te_errmsg());
    return rc < 0;
}

static int begin(te_engine **engine, void *memory, size_t length)
{
    return bad("te_engine_create", te_engine_create(NULL, engine)) ||
           bad("te_register", te_register(*engine, memory, length, "*", TE_REMOTE_RW));
}

/* The next request of the batch. In a server it is submitted when the layer has been computed. */
static int submit_layer(te_engine *engine, te_batch batch, te_segment target, size_t layer)
{
    const te_pages pages = {
        .size = sizeof(pages),
        .opcode = TE_WRITE,
        .target = target,
        .length = PAGE,
        .n = FILLED,
        .index_bits = 32,
        .local = {.base = (uintptr_t)ours[layer], .pages = PAGES, .stride = PAGE, .index = filled},
        .remote = {.base = (uintptr_t)theirs[0][layer],
                   .pages = PAGES,
                   .stride = LAYERS * PAGE,
                   .index = unused},
    };

    return bad("te_submit_pages", te_submit_pages(engine, batch, &pages, NULL));
}

static int move(te_engine *engine, te_segment target)
{
    const te_message ready = {"request 17", 10, "5 pages", 7};
    struct te_status status;
    te_batch batch;

    if (bad("te_batch_alloc", te_batch_alloc(engine, LAYERS, &batch)))
        return 1;
    for (size_t layer = 0; layer < LAYERS; layer++)
        if (submit_layer(engine, batch, target, layer))
            return 1;
    if (bad("te_notify_after", te_notify_after(engine, batch, target, &ready)) ||
        bad("te_wait", te_wait(engine, batch, WAIT_MS)) ||
        bad("te_batch_status", te_batch_status(engine, batch, &status)))
        return 1;
    printf("pages: %llu bytes in %d requests, %s\n", (unsigned long long)status.bytes, LAYERS,
           te_strerror(status.error));
    return bad("te_batch_free", te_batch_free(engine, batch)) || status.state != TE_COMPLETED;
}

static int count_wrong(void)
{
    int wrong = 0;

    for (size_t layer = 0; layer < LAYERS; layer++)
        for (size_t i = 0; i < FILLED; i++)
            wrong += memcmp(ours[layer][filled[i]], theirs[unused[i]][layer], PAGE) != 0;
    return wrong;
}

int main(void)
{
    te_engine *prefill = NULL, *decode = NULL;
    te_segment target;
    char name[300];
    int failed = 1, wrong = 0;

    for (size_t i = 0; i < sizeof(ours); i++)
        (&ours[0][0][0])[i] = (unsigned char)(i * 7 + i / PAGE);
    if (!begin(&prefill, ours, sizeof(ours)) && !begin(&decode, theirs, sizeof(theirs)) &&
        !bad("te_engine_name", te_engine_name(decode, name, sizeof(name))) &&
        !bad("te_open", te_open(prefill, name, &target)) && !move(prefill, target)) {
        wrong = count_wrong();
        printf("pages: %d of %d pages are wrong\n", wrong, LAYERS * FILLED);
        failed = wrong != 0;
    }
    te_engine_destroy(prefill);
    te_engine_destroy(decode);
    return failed;
}
