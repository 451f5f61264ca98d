/* SPDX-License-Identifier: Apache-2.0 */
/*
 * life.c - segments of one life of their engine.
 *
 * What keeps bytes out of another life is said here once. A peer of one life (peer.h) has views of that life's
 * descriptors alone; the first descriptor of another one ends it for good, by a view that carries nothing (view.c).
 * What was posted by then, or is posted before anybody has seen that descriptor, goes by an attachment of the old one,
 * and each transport with TEI_CAP_LIVES sees to it that no connection leads such work to another engine. What is said on
 * the handshake port names the life, and the receiver compares (serve.c).
 */
#include "core/life.h"
#include "core/core.h"

#include <inttypes.h>
#include <stdio.h>

static void write_text(const char *name, uint64_t wanted, uint64_t found, char *buf, size_t n)
{
    char now[64] = "an engine that tells no incarnation has its name now";

    if (found)
        snprintf(now, sizeof(now), "%016" PRIx64 " has its name now", found);
    snprintf(buf, n,
             "segment '%s' is of the incarnation %016" PRIx64
             " of its engine, and %s: the process was started again; open the new one by "
             "te_open_life()",
             name, wanted, now);
}

void tei_life_text(const struct view *v, char *buf, size_t n)
{
    write_text(v->peer->name, v->peer->life, v->instead, buf, n);
}

int tei_life_fail_other(const char *name, uint64_t wanted, uint64_t found)
{
    char text[512];

    write_text(name, wanted, found, text, sizeof(text));
    return TEI_FAIL(TE_ERR_STALE, "%s", text);
}

int tei_life_fail_now(const struct peer *p, uint64_t instead)
{
    return tei_life_fail_other(p->name, p->life, instead);
}

int tei_life_fail_files(const char *name)
{
    return TEI_FAIL(
        TE_ERR_UNSUPPORTED,
        "segment '%s' is made of files, which have no incarnation: open it by te_open()", name);
}

/* Asks the engine that answers there: a descriptor may be one that its engine has left behind. */
static int ask(struct peer *p, const struct tei_hostport *where)
{
    const struct tei_conf *conf = &p->engine->conf;
    uint64_t found;
    int rc;

    if (!where->port)
        return TEI_FAIL(TE_ERR_PEER, "segment '%s': its engine is not up yet", p->name);
    rc = tei_rpc_life(conf->identity, where, p->life, &found,
                      tei_deadline_ns((int64_t)conf->handshake_connect_timeout_s * 1000));
    if (!rc && found != p->life)
        rc = tei_life_fail_now(p, found);
    return rc;
}

int tei_life_admit(struct peer *p, const struct tei_segment *seg, const struct tei_hostport *where)
{
    if (!seg->incarnation)
        return TEI_FAIL(TE_ERR_UNSUPPORTED,
                        "segment '%s' tells no incarnation: its engine is of another make, and "
                        "cannot be told from the next one of that name; open it by te_open()",
                        p->name);
    if (p->life && p->life != seg->incarnation)
        return tei_life_fail_now(p, seg->incarnation);
    p->life = seg->incarnation;
    return ask(p, where);
}

int tei_life_check_paths(const struct view *v)
{
    char why[448];
    size_t used = 0;

    for (size_t i = 0; i < TEI_TRANSPORTS_MAX && used < sizeof(why); i++)
        if (v->why_not[i])
            used += (size_t)snprintf(why + used, sizeof(why) - used, "%s%s", used ? "; " : "",
                                     v->why_not[i]);
    if (v->n_via || !used)
        return 0;
    return TEI_FAIL(TE_ERR_UNSUPPORTED,
                    "segment '%s': no installed transport can keep to one incarnation of it: %s",
                    v->peer->name, why);
}
