/* SPDX-License-Identifier: Apache-2.0 */
/* ofi.c - the transport over libfabric: its ops. Read ofi.h first. */
#include "transport/ofi/ofi.h"

#include "base/err.h"
#include "base/os.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void init(struct ofi *t)
{
    pthread_mutex_init(&t->lock, NULL);
    tei_list_init(&t->regions);
    tei_list_init(&t->peers);
    tei_list_init(&t->active);
    tei_list_init(&t->idle);
    tei_list_init(&t->over);
    t->waker.fd = -1;
    t->ready = true;
}

static int open_library(struct ofi *t)
{
    int rc = tei_ofi_library_open(t->base.host->conf, &t->lib);

    return rc ? TEI_FAIL(rc, "ofi: %s; install libfabric1, or name the library in TE_OFI_PATH",
                         te_errmsg())
              : 0;
}

static int make_ops(struct ofi *t)
{
    t->ops = calloc(OFI_OPS, sizeof t->ops[0]);
    if (!t->ops)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the parts of ofi");
    for (size_t i = 0; i < OFI_OPS; i++)
        tei_list_push_back(&t->idle, &t->ops[i].link);
    return 0;
}

static int open_nics(struct ofi *t)
{
    int rc = tei_ofi_find(t);

    for (size_t i = 0; !rc && i < t->n_nics; i++) {
        rc = tei_ofi_nic_open(&t->nics[i]);
        if (rc)
            rc = TEI_FAIL(rc, "ofi: %s", te_errmsg());
    }
    if (!rc)
        TEI_INFO("ofi: provider %s, %zu NICs, the first is %s",
                 t->nics[0].info->fabric_attr->prov_name, t->n_nics, t->nics[0].name);
    return rc;
}

/* Nothing proves to a provider who a peer is. */
static int check_auth(const struct tei_conf *conf)
{
    return conf->identity
               ? TEI_FAIL(TE_ERR_UNSUPPORTED, "ofi: it has no proof of who peers are, which "
                                              "TE_AUTH asks for")
               : 0;
}

static int open_all(struct ofi *t)
{
    int rc = check_auth(t->base.host->conf);

    if (!rc)
        rc = open_library(t);
    if (!rc)
        rc = tei_waker_init(&t->waker);
    if (!rc)
        rc = make_ops(t);
    if (!rc)
        rc = open_nics(t);
    if (!rc)
        rc = tei_ofi_memory_open(t);
    return rc ? rc : tei_ofi_thread_start(t);
}

/* Providers start threads: with the signals blocked that the program's are to get. */
static int ofi_open(struct tei_transport *base)
{
    struct ofi *t = tei_ofi_of(base);
    sigset_t all, old;
    int rc;

    init(t);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = open_all(t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

static void ofi_post(struct tei_transport *base, struct tei_list *work)
{
    struct ofi *t = tei_ofi_of(base);

    pthread_mutex_lock(&t->lock);
    tei_ofi_take(t, work);
    tei_waker_ring(&t->waker);
    pthread_mutex_unlock(&t->lock);
}

static void ofi_cancel(struct tei_transport *base, const void *owner)
{
    struct ofi *t = tei_ofi_of(base);

    pthread_mutex_lock(&t->lock);
    tei_ofi_fail(t, owner, TE_ERR_CANCELED);
    tei_waker_ring(&t->waker);
    pthread_mutex_unlock(&t->lock);
}

static void ofi_close(struct tei_transport *base)
{
    struct ofi *t = tei_ofi_of(base);

    if (!t->running)
        return;
    pthread_mutex_lock(&t->lock);
    t->closed = true;
    tei_ofi_fail(t, NULL, TE_ERR_CANCELED);
    tei_waker_ring(&t->waker);
    pthread_mutex_unlock(&t->lock);
}

static void ofi_stop(struct tei_transport *base)
{
    ofi_close(base);
    tei_ofi_thread_stop(tei_ofi_of(base));
}

/* Peers that are still attached have no work: detach() may come later, when their NICs are gone. */
static void ofi_fini(struct tei_transport *base)
{
    struct ofi *t = tei_ofi_of(base);

    if (!t->ready)
        return;
    if (t->lib.library) {
        tei_ofi_memory_close(t);
        for (size_t i = 0; i < t->n_nics; i++)
            tei_ofi_nic_close(&t->nics[i]);
    }
    free(t->ops);
    if (t->waker.fd >= 0)
        tei_waker_fini(&t->waker);
    pthread_mutex_destroy(&t->lock);
}

/* ------------------------------------------------------------------------------------- what is told */

static void ofi_stats(struct tei_transport *base, struct te_stats *s)
{
    struct ofi *t = tei_ofi_of(base);

    pthread_mutex_lock(&t->lock);
    s->retries += t->n_retries;
    pthread_mutex_unlock(&t->lock);
}

static json_t *nic_json(const struct ofi_nic *n)
{
    json_t *j = json_pack("{ss sb ss}", "device", n->name, "used", n->ep != NULL, "provider",
                          n->info->fabric_attr->prov_name);

    if (!n->ep)
        tei_json_set(&j, "why", json_string("its endpoint could not be opened again"));
    return j;
}

static int ofi_links(struct tei_transport *base, json_t *nics)
{
    struct ofi *t = tei_ofi_of(base);
    int rc = 0;

    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; !rc && i < t->n_nics; i++)
        rc = json_array_append_new(nics, nic_json(&t->nics[i])) ? TE_ERR_MEMORY : 0;
    pthread_mutex_unlock(&t->lock);
    return rc;
}

/* What peers do by themselves, with our memory, is not seen. */
static void ofi_nics(struct tei_transport *base, struct tei_nic_table *out)
{
    struct ofi *t = tei_ofi_of(base);

    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->n_nics; i++) {
        const struct ofi_nic *n = &t->nics[i];
        struct tei_nic_figures f = {
            .bytes = {n->bytes[0], n->bytes[1]}, .resent = n->n_failed, .up = n->ep != NULL};

        snprintf(f.name, sizeof f.name, "%.*s", (int)sizeof f.name - 1, n->name);
        tei_nics_add(out, &f);
    }
    pthread_mutex_unlock(&t->lock);
}

static const char *ofi_why_off(const struct tei_conf *conf)
{
    if (!conf->ofi)
        return "TE_OFI is off";
    if (conf->force_tcp)
        return "MC_FORCE_TCP is on";
    return conf->auth[0] && strcmp(conf->auth, "off") != 0
               ? "TE_AUTH is on, and it has no proof of who peers are"
               : NULL;
}

extern const struct tei_transport_ops tei_ofi_ops; /* named by transports.def */

const struct tei_transport_ops tei_ofi_ops = {
    .name = "ofi",
    .abi = TEI_TRANSPORT_ABI,
    .caps = TEI_CAP_REMOTE,
    .mem_kinds = TEI_MEM_BIT(TEI_MEM_HOST),
    .target_kinds = TEI_MEM_BIT(TEI_MEM_HOST),
    .beside = TEI_MEM_BIT(TEI_MEM_HOST),
    .why_off = ofi_why_off,
    .size = sizeof(struct ofi),
    .work_size = sizeof(struct tei_entry),
    .attach_size = sizeof(struct ofi_attach),
    .probe = tei_ofi_probe,
    .open = ofi_open,
    .describe = tei_ofi_describe,
    .attach = tei_ofi_attach,
    .detach = tei_ofi_detach,
    .score = tei_ofi_score,
    .why_not = tei_ofi_why_not,
    .post = ofi_post,
    .cancel = ofi_cancel,
    .region_add = tei_ofi_region_add,
    .region_del = tei_ofi_region_del,
    .stats = ofi_stats,
    .links = ofi_links,
    .nics = ofi_nics,
    .close = ofi_close,
    .stop = ofi_stop,
    .fini = ofi_fini,
};
