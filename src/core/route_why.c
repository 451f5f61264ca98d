/* SPDX-License-Identifier: Apache-2.0 */
/* route_why.c - why a request is not carried by a transport. */
#include "core/core.h"
#include "core/install.h"
#include "core/route.h"

#include <stdio.h>

/* One that is installed, but is not part of the view. */
static const char *why_apart(const struct view *v, const struct tei_transport *t)
{
    const char *said = v->why_not[t->index];

    if (!v->seg)
        return "does not reach this engine itself";
    if (t->ops.caps & TEI_CAP_LOCAL_ONLY)
        return "reaches this engine itself only";
    if (v->seg->files && !(t->ops.caps & TEI_CAP_FILE))
        return "reaches memory, and the target is files";
    if (!v->seg->files && (t->ops.caps & TEI_CAP_FILE))
        return "reaches files, and the target is memory";
    return said && said[0] ? said : "the target does not speak it";
}

static const struct via *find_via(const struct view *v, const struct tei_transport *t)
{
    for (size_t i = 0; i < v->n_via; i++)
        if (v->via[i].transport == t)
            return &v->via[i];
    return NULL;
}

static void why_installed(struct view *v, const te_request *r, struct tei_transport *t, char *buf,
                          size_t n)
{
    const struct via *via = find_via(v, t);

    char why[256];

    if (!via) {
        snprintf(buf, n, "not possible: %s", why_apart(v, t));
    } else if (!(t->ops.target_kinds & TEI_MEM_BIT(tei_route_kind(v, r)))) {
        snprintf(buf, n, "not possible: does not reach the sort of memory that the target is in");
    } else {
        t->ops.why_not(t, via->attach, r, why, sizeof(why));
        snprintf(buf, n, "score 0: %s", why);
    }
}

void tei_route_why_not(struct view *v, const te_request *r, size_t place, char *buf, size_t n)
{
    const struct tei_transport_ops *ops = tei_transport_at(place);
    struct transports *set = &v->engine->transports;
    char why[384];
    struct tei_transport *t;

    pthread_rwlock_rdlock(&set->lock);
    t = tei_transports_find(set, ops->name);
    if (t) {
        why_installed(v, r, t, buf, n);
    } else {
        tei_install_why_not(v->engine, ops, why, sizeof(why));
        snprintf(buf, n, "not installed: %s", why);
    }
    pthread_rwlock_unlock(&set->lock);
}

/* Whether it is because of what an earlier WRITE may still do; says so. */
static bool is_held(struct view *v, const te_request *r, char *buf, size_t n)
{
    const struct via *holder = tei_route_holder(v, r);

    if (holder)
        snprintf(buf, n,
                 "an earlier WRITE there, which %s had, is not over, and that is not allowed now; "
                 "te_fence() tells when it is over",
                 holder->transport->ops.name);
    return holder != NULL;
}

void tei_route_refusal(struct view *v, const te_request *r, const struct rules *own, char *buf,
                       size_t n)
{
    const struct tei_transport_ops *ops;
    size_t used = 0;

    if (is_held(v, r, buf, n))
        return;
    for (size_t i = 0; (ops = tei_transport_at(i)) && used < n; i++) {
        char why[448];

        if (!tei_rules_allow(v->peer->rules, i) || !tei_rules_allow(own, i))
            continue;
        tei_route_why_not(v, r, i, why, sizeof(why));
        used +=
            (size_t)snprintf(buf + used, n - used, "%s%s: %s", used ? "; " : "", ops->name, why);
    }
    if (!used)
        snprintf(buf, n, "no transport is allowed");
}
