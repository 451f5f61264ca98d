/* SPDX-License-Identifier: Apache-2.0 */
/*
 * past.c - what version 0.1 of the library lacks. It is found by name, so that the same program runs on that one,
 * unmodified: LD_LIBRARY_PATH=$(scripts/past.sh)/build/lib. What 0.1 answers otherwise in each run is not
 * asked of it then, since nothing else would be seen.
 */
#include "world.h"

#include <dlfcn.h>
#include <string.h>

static int (*segment_json)(te_engine *, te_segment, char *, size_t);
static int (*alloc_with)(te_engine *, size_t, const te_alloc_opts *, void **);
struct sim_later sim_later;

static void find(const char *name, void *out)
{
    void *at = dlsym(RTLD_DEFAULT, name);

    memcpy(out, &at, sizeof(at));
}

void sim_past_look(void)
{
    find("te_segment_json", &segment_json);
    find("te_alloc_with", &alloc_with);
    find("te_submit_pages", &sim_later.submit_pages);
    find("te_counter_create", &sim_later.counter_create);
    find("te_counter_destroy", &sim_later.counter_destroy);
    find("te_counter_value", &sim_later.counter_value);
    find("te_counter_wait", &sim_later.counter_wait);
    find("te_counter_fd", &sim_later.counter_fd);
    find("te_adder_open", &sim_later.adder_open);
    find("te_adder_after", &sim_later.adder_after);
    find("te_adder_flush", &sim_later.adder_flush);
    find("te_adder_close", &sim_later.adder_close);
    find("te_open_with", &sim_later.open_with);
    find("te_path", &sim_later.path);
    find("te_warm", &sim_later.warm);
    find("te_lease_grant", &sim_later.lease_grant);
    find("te_revoke", &sim_later.revoke);
}

bool sim_is_past(void)
{
    return !segment_json || !alloc_with;
}

void sim_segment_json(te_engine *e, te_segment seg, char *json, size_t n)
{
    sim_ok(segment_json(e, seg, json, n), "te_segment_json");
}

void *sim_alloc(te_engine *e, size_t n, const te_alloc_opts *opts)
{
    void *p;

    if (sim_is_past())
        sim_ok(te_alloc(e, n, opts->location, &p), "te_alloc");
    else
        sim_ok(alloc_with(e, n, opts, &p), "te_alloc_with");
    return p;
}
