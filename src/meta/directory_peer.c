/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_peer.c - P2PHANDSHAKE: no server. A segment's name is where its engine answers, and
 * whoever wants its descriptor asks it there, so there is nothing to publish.
 */
#include "meta/directory.h"

#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int peer_own_name(struct tei_directory *d, const char *wanted,
                         const struct tei_hostport *addr, char *out, size_t n)
{
    char name[TEI_HOSTPORT_MAX];

    (void)d, (void)wanted;
    tei_hostport_format(addr->host, addr->port, name, sizeof name);
    if ((size_t)snprintf(out, n, "%s", name) >= n)
        return TEI_FAIL(TE_ERR_INVALID, "segment name %s is longer than %zu bytes", name, n - 1);
    return 0;
}

static bool peer_route_hint(struct tei_directory *d, char *host, size_t n)
{
    (void)d, (void)host, (void)n;
    return false;
}

static int peer_announce(struct tei_directory *d, const char *name, const struct tei_hostport *addr)
{
    (void)d, (void)name, (void)addr;
    return 0;
}

static int peer_publish(struct tei_directory *d, const char *name, const char *text, size_t len)
{
    (void)d, (void)name, (void)text, (void)len;
    return 0;
}

static int peer_withdraw(struct tei_directory *d, const char *name)
{
    (void)d, (void)name;
    return 0;
}

static int peer_keep(struct tei_directory *d, const char *name)
{
    (void)d, (void)name;
    return 0;
}

static int read_name(const struct tei_directory *d, const char *name, struct tei_hostport *out)
{
    int rc = tei_hostport_parse(name, d->conf->handshake_port, out);

    if (rc)
        return rc;
    return out->port
               ? tei_directory_expect(d->conf, out->host, out)
               : TEI_FAIL(TE_ERR_INVALID,
                          "segment '%s': no engine has port 0; use the name that te_engine_name() "
                          "gives there",
                          name);
}

/* Adds what is to be known of such a name to the error of a fetch. */
static int explain_name(const char *name, const struct tei_hostport *addr, int rc)
{
    char why[512], taken[96] = "";

    snprintf(why, sizeof why, "%s", te_errmsg());
    if (!tei_hostport_has_port(name))
        snprintf(taken, sizeof taken, "; the name has no port, so %u (MC_HANDSHAKE_PORT) was taken",
                 (unsigned)addr->port);
    else if (rc != TE_ERR_DNS)
        return rc;
    return TEI_FAIL(rc, "%s%s; without a metadata server a name is HOST:PORT", why, taken);
}

static int peer_rpc_addr(struct tei_directory *d, const char *name, bool fresh,
                         struct tei_hostport *out)
{
    (void)fresh;
    return read_name(d, name, out);
}

static int peer_lookup(struct tei_directory *d, const char *name, const struct tei_segment *old,
                       struct tei_segment **out, struct tei_hostport *where, int64_t *revision)
{
    struct tei_hostport addr;
    int rc;

    (void)old;
    if (revision)
        *revision = 0;
    if (strchr(name, '/'))
        return TEI_FAIL(
            TE_ERR_NOT_FOUND,
            "segment '%s': P2PHANDSHAKE keeps no records of files; open the file itself "
            "as file:///path, or use a metadata server",
            name);
    rc = read_name(d, name, &addr);
    if (rc)
        return rc;
    rc = tei_directory_fetch(&addr, d->conf, out);
    if (rc)
        return explain_name(name, &addr, rc);
    *where = addr;
    return 0;
}

static void peer_close(struct tei_directory *d)
{
    free(d);
}

/* An engine is asked when it is needed: there is nobody who would tell of changes. */
static int peer_listen(struct tei_directory *d, void (*changed)(void *arg, const char *name),
                       void *arg)
{
    (void)d;
    (void)changed;
    (void)arg;
    return 0;
}

static void peer_unlisten(struct tei_directory *d)
{
    (void)d;
}

static void peer_follow(struct tei_directory *d, const char *name, int64_t revision)
{
    (void)d;
    (void)name;
    (void)revision;
}

static void peer_forget(struct tei_directory *d, const char *name)
{
    (void)d;
    (void)name;
}

static const struct tei_directory_ops peer_ops = {
    .own_name = peer_own_name,
    .route_hint = peer_route_hint,
    .announce = peer_announce,
    .publish = peer_publish,
    .withdraw = peer_withdraw,
    .keep = peer_keep,
    .rpc_addr = peer_rpc_addr,
    .lookup = peer_lookup,
    .listen = peer_listen,
    .follow = peer_follow,
    .forget = peer_forget,
    .unlisten = peer_unlisten,
    .close = peer_close,
    .stores = false,
};

int tei_directory_open_peer(const struct tei_conf *conf, struct tei_directory **out)
{
    struct tei_directory *d = calloc(1, sizeof *d);

    if (!d)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a directory");
    d->ops = &peer_ops;
    d->conf = conf;
    *out = d;
    return 0;
}
