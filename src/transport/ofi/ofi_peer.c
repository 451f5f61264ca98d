/* SPDX-License-Identifier: Apache-2.0 */
/* ofi_peer.c - peers by their addresses, and attachments, which have their keys. */
#include "base/err.h"
#include "base/os.h"
#include "transport/ofi/ofi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCORE 70 /* above tcp; below a NIC's own interface and the host's memory */

static struct ofi_attach *attach_of(struct tei_attach *a)
{
    return (struct ofi_attach *)a;
}

/* ------------------------------------------------------------------------------------------- peers */

static bool is_at(const struct ofi_peer *p, const struct ofi_keys *k)
{
    bool same = p->n_nics == k->n_nics;

    for (size_t i = 0; same && i < p->n_nics; i++)
        same = p->nics[i].addr_len == k->nics[i].addr_len &&
               memcmp(p->nics[i].addr, k->nics[i].addr, p->nics[i].addr_len) == 0 &&
               p->nics[i].page_key == k->nics[i].page_key &&
               p->nics[i].page_addr == k->nics[i].page_addr;
    return same;
}

/* Lock held. */
static struct ofi_peer *find_peer(struct ofi *t, const struct ofi_keys *k)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&t->peers, link, tmp) {
        struct ofi_peer *p = tei_container_of(link, struct ofi_peer, link);

        if (is_at(p, k))
            return p;
    }
    return NULL;
}

static struct ofi_peer *new_peer(struct ofi *t, const struct ofi_keys *k)
{
    struct ofi_peer *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    tei_ledger_init(&p->ledger, t->base.host->conf->transfer_timeout_ms);
    tei_list_init(&p->waiting);
    p->n_nics = k->n_nics;
    memcpy(p->nics, k->nics, sizeof p->nics);
    tei_list_push_back(&t->peers, &p->link);
    return p;
}

/* Lock held. No work of it is left. */
static void drop_peer(struct ofi *t, struct ofi_peer *p)
{
    for (size_t i = 0; i < t->n_nics; i++)
        if (p->inserted[i])
            (void)fi_av_remove(t->nics[i].av, &p->addr[i], 1, 0);
    if (tei_link_is_in(&p->active))
        tei_list_del(&p->active);
    tei_list_del(&p->link);
    free(p);
}

/* ------------------------------------------------------------------------------------- attachments */

static int refuse(const char *why)
{
    return tei_err_keep(TE_ERR_UNSUPPORTED, why);
}

static int check_provider(struct ofi *t, const struct ofi_keys *k)
{
    const struct fi_info *i = t->nics[0].info;
    char why[200];

    if (strncmp(k->provider, i->fabric_attr->prov_name, sizeof k->provider - 1) == 0 &&
        k->protocol == i->ep_attr->protocol &&
        k->protocol_version == i->ep_attr->protocol_version && k->format == i->addr_format)
        return 0;
    snprintf(
        why, sizeof why,
        "it uses libfabric's provider '%s', version %u of protocol %u; this engine uses '%.60s', "
        "version %u of %u",
        k->provider, k->protocol_version, k->protocol, i->fabric_attr->prov_name,
        i->ep_attr->protocol_version, i->ep_attr->protocol);
    return refuse(why);
}

static int check_addrs(struct ofi *t, const struct ofi_keys *k)
{
    const char *why = NULL;

    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; !why && i < k->n_nics; i++)
        why = tei_ofi_addr_check(k->format, k->nics[i].addr, k->nics[i].addr_len, t->nics[0].addr,
                                 t->nics[0].addr_len);
    pthread_mutex_unlock(&t->lock);
    return why ? refuse(why) : 0;
}

static int read_keys(struct ofi *t, const struct tei_segment *s, struct ofi_keys *k)
{
    const json_t *te = json_object_get(s->root, "te");
    const char *why = tei_ofi_keys_read(json_object_get(te, t->base.ops.name), k);
    int rc;

    if (why)
        return refuse(why);
    rc = check_provider(t, k);
    if (!rc)
        rc = check_addrs(t, k);
    if (rc)
        tei_ofi_keys_fini(k);
    return rc;
}

int tei_ofi_attach(struct tei_transport *base, struct tei_attach *a, const struct tei_segment *s,
                   const struct tei_hostport *where)
{
    struct ofi *t = tei_ofi_of(base);
    struct ofi_attach *at = attach_of(a);
    int rc = read_keys(t, s, &at->keys);

    (void)where;
    if (rc)
        return rc;
    pthread_mutex_lock(&t->lock);
    at->peer = find_peer(t, &at->keys);
    if (!at->peer)
        at->peer = new_peer(t, &at->keys);
    if (at->peer)
        at->peer->refs++;
    pthread_mutex_unlock(&t->lock);
    if (at->peer)
        return 0;
    tei_ofi_keys_fini(&at->keys);
    return TEI_FAIL(TE_ERR_MEMORY, "no memory for a peer of ofi");
}

void tei_ofi_detach(struct tei_transport *base, struct tei_attach *a)
{
    struct ofi *t = tei_ofi_of(base);
    struct ofi_attach *at = attach_of(a);

    pthread_mutex_lock(&t->lock);
    if (--at->peer->refs == 0)
        drop_peer(t, at->peer);
    pthread_mutex_unlock(&t->lock);
    tei_ofi_keys_fini(&at->keys);
}

static unsigned access_of(const te_request *r)
{
    return r->opcode == TE_READ ? TE_REMOTE_READ : TE_REMOTE_WRITE;
}

static bool is_dark(const struct ofi_attach *a)
{
    /* Relaxed: a hint. */
    return atomic_load_explicit(&a->peer->dark_ns, memory_order_relaxed) > tei_now_ns();
}

unsigned tei_ofi_score(struct tei_transport *t, const struct tei_attach *a, const te_request *r)
{
    const struct ofi_attach *at = (const struct ofi_attach *)a;

    (void)t;
    if (!a || !tei_ofi_keys_cover(&at->keys, r->target_offset, r->length, access_of(r)))
        return 0;
    return is_dark(at) ? TEI_SCORE_LATER : SCORE;
}

void tei_ofi_why_not(struct tei_transport *t, const struct tei_attach *a, const te_request *r,
                     char *why, size_t n)
{
    const struct ofi_attach *at = (const struct ofi_attach *)a;

    (void)t;
    if (!a)
        snprintf(why, n, "it does not reach this engine itself");
    else if (!tei_ofi_keys_cover(&at->keys, r->target_offset, r->length, access_of(r)))
        snprintf(why, n, "the target tells no keys for this memory: it tells those of %d regions",
                 OFI_SLOTS);
    else
        snprintf(why, n, "the target did not answer a short while ago; it is tried again soon");
}
