/* SPDX-License-Identifier: Apache-2.0 */
#include "pair.h"

#include "child_engine.h"
#include "patience.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Without an option: NULL. */
static te_engine *make(const char *host_path, const char *option, const char *value)
{
    te_engine *e = NULL;
    te_options o;

    loopback_options(&o);
    assert(te_option_set(&o, "TE_HOST_PATH", host_path) == 0);
    assert(!option || te_option_set(&o, option, value) == 0);
    assert(te_engine_create(&o, &e) == 0);
    te_options_fini(&o);
    return e;
}

static int set_up(void **state, const char *host_path)
{
    struct pair *p = calloc(1, sizeof(*p));

    assert(p);
    p->a = make(host_path, NULL, NULL);
    p->b = make(host_path, NULL, NULL);
    p->am = map_pages(PAIR_SIZE);
    p->bm = map_pages(PAIR_SIZE);
    assert(te_register(p->a, p->am, PAIR_SIZE, "*", TE_LOCAL_ONLY) == 0);
    assert(te_register(p->b, p->bm, PAIR_SIZE, "cpu:0", TE_REMOTE_RW) == 0);
    assert(te_engine_name(p->b, p->bname, sizeof(p->bname)) == 0);
    assert(te_open(p->a, p->bname, &p->seg) == 0);
    *state = p;
    return 0;
}

int pair_setup(void **state)
{
    return set_up(state, "1");
}

int pair_setup_tcp(void **state)
{
    return set_up(state, "0");
}

te_engine *pair_third(const char *option, const char *value)
{
    return make("0", option, value);
}

int pair_teardown(void **state)
{
    struct pair *p = *state;

    te_engine_destroy(p->a);
    te_engine_destroy(p->b);
    munmap(p->am, PAIR_SIZE);
    munmap(p->bm, PAIR_SIZE);
    free(p);
    return 0;
}

struct te_status transfer(te_engine *e, int opcode, void *local, te_segment seg, const void *remote,
                          size_t n)
{
    te_request r = {.opcode = opcode,
                    .source = local,
                    .target = seg,
                    .target_offset = (uintptr_t)remote,
                    .length = n};
    struct te_status st;
    te_batch b;

    assert(te_batch_alloc(e, 1, &b) == 0);
    assert(te_submit(e, b, &r, 1, NULL) == 0);
    assert(te_wait(e, b, PATIENCE_MS) == 0);
    assert(te_status(e, b, 0, &st) == 0);
    assert(te_batch_free(e, b) == 0);
    return st;
}
