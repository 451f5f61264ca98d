/* SPDX-License-Identifier: Apache-2.0 */
/* rail_explain.c - why each rail of a route is used or not, for people. */
#include "rail/rail.h"

#include <stdarg.h>
#include <stdio.h>

struct text {
    char *at;
    size_t size, len;
};

static void add(struct text *t, const char *fmt, ...) TEI_PRINTF(2, 3);

static void add(struct text *t, const char *fmt, ...)
{
    size_t room = t->len < t->size ? t->size - t->len : 0;
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(room ? t->at + t->len : NULL, room, fmt, args);
    va_end(args);
    if (n > 0)
        t->len += (size_t)n;
}

static bool is_listed(const uint16_t *rails, unsigned n, unsigned rail)
{
    for (unsigned k = 0; k < n; k++) {
        if (rails[k] == rail)
            return true;
    }
    return false;
}

static bool is_base(const struct tei_path_route *route, const struct tei_rail *r)
{
    for (unsigned k = 0; k < route->n_base; k++) {
        if (route->base[k].local == r->local && route->base[k].peer == r->peer)
            return true;
    }
    return false;
}

static void explain_state(struct text *t, const struct tei_paths *p, const struct tei_rail *r,
                          int64_t now)
{
    if (!atomic_load_explicit(&r->nic->active, memory_order_relaxed))
        add(t, "not used, the local NIC is down");
    else if (!p->peers[r->peer].active)
        add(t, "not used, the NIC of the peer is down");
    else if (r->state == TEI_RAIL_PAUSED)
        add(t, "paused for another %.3f s", (double)(r->until_ns - now) / 1e9);
    else if (r->state == TEI_RAIL_PROBATION)
        add(t, "on probation, one slice at a time");
    else
        add(t, "not needed, its NICs have other rails");
}

static void explain_rail(struct text *t, const struct tei_paths *p,
                         const struct tei_path_route *route, unsigned rail, int64_t now)
{
    const struct tei_rail *r = &p->rails[rail];
    bool is_used = is_listed(route->set, route->n_set, rail);

    if (!is_used && !is_listed(route->trials, route->n_trials, rail) && !is_base(route, r) &&
        r->n_faults == 0)
        return;
    add(t, "%s -> %s: ", r->nic->name, p->peers[r->peer].name);
    if (is_used)
        add(t, is_base(route, r) ? "in use" : "in use, in place of a rail that does not work");
    else
        explain_state(t, p, r, now);
    add(t, "; %.2f of %.2f GB/s, %llu KiB in %u slices under way", r->rate / 1e9, r->nominal / 1e9,
        (unsigned long long)(r->outstanding >> 10), r->n_out);
    if (r->n_faults > 0)
        add(t, ", %u faults", r->n_faults);
    add(t, "\n");
}

size_t tei_paths_explain(struct tei_paths *p, struct tei_path_route *route, int64_t now, char *text,
                         size_t size)
{
    struct text t = {text, size, 0};

    if (route->epoch != p->epoch)
        tei_path_refresh(p, route);
    if (size > 0)
        text[0] = '\0';
    for (unsigned rail = 0; rail < p->n_local * p->n_peer; rail++)
        explain_rail(&t, p, route, rail, now);
    return t.len;
}
