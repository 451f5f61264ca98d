/* SPDX-License-Identifier: Apache-2.0 */
/* ofi_nic.c - a NIC: its domain, the endpoint that serves, generations of the one that asks. */
#include "base/err.h"
#include "base/os.h"
#include "transport/ofi/ofi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32 };

#define REST_NS (100 * TEI_NS_PER_MS) /* after no generation could be made */

/* Not logged: the lock may be held. */
static int refuse(const struct ofi_nic *n, const char *call, int rc)
{
    char text[200];

    snprintf(text, sizeof text, "%s: %s: %.80s", n->name, call, n->ofi->lib.strerror(-rc));
    return tei_err_keep(rc == -FI_ENOMEM ? TE_ERR_MEMORY : TE_ERR_SYSTEM, text);
}

static void close_fid(struct fid *f)
{
    if (f)
        (void)fi_close(f);
}

/* A queue that can be slept on, if the provider has such. */
static int open_cq(struct ofi_nic *n, struct fid_cq **cq, int *fd)
{
    struct fi_cq_attr attr = {
        .size = n->credits, .format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_FD};
    int rc = fi_cq_open(n->domain, &attr, cq, NULL);

    *fd = -1;
    if (!rc && fi_control(&(*cq)->fid, FI_GETWAIT, fd) == 0)
        return 0;
    *fd = -1;
    if (!rc)
        return 0;
    attr.wait_obj = FI_WAIT_NONE;
    return fi_cq_open(n->domain, &attr, cq, NULL);
}

static int open_ep(struct ofi_nic *n, struct fi_info *info, struct fid_cq *cq, struct fid_ep **ep)
{
    int rc = fi_endpoint(n->domain, info, ep, NULL);

    if (rc) {
        *ep = NULL;
        return rc;
    }
    rc = fi_ep_bind(*ep, &n->av->fid, 0);
    if (!rc)
        rc = fi_ep_bind(*ep, &cq->fid, FI_TRANSMIT | FI_RECV);
    if (!rc)
        rc = fi_enable(*ep);
    if (rc) {
        close_fid(&(*ep)->fid);
        *ep = NULL;
    }
    return rc;
}

/* ------------------------------------------------------------------------------------ which serves */

/* The same address again, if there was one: peers then need not ask for the new one. */
static int open_at(struct ofi_nic *n, const void *addr, size_t len)
{
    struct fi_info *info = n->ofi->lib.dupinfo(n->info);
    int rc;

    if (!info)
        return -FI_ENOMEM;
    if (addr) {
        free(info->src_addr);
        info->src_addr = malloc(len);
        info->src_addrlen = info->src_addr ? len : 0;
        if (info->src_addr)
            memcpy(info->src_addr, addr, len);
    }
    rc = open_ep(n, info, n->cq, &n->ep);
    n->ofi->lib.freeinfo(info);
    return rc;
}

int tei_ofi_serve(struct ofi_nic *n)
{
    size_t len = sizeof n->addr;
    int rc = open_cq(n, &n->cq, &n->fd);

    if (rc) {
        n->cq = NULL;
        return refuse(n, "a queue of completions", rc);
    }
    rc = n->addr_len ? open_at(n, n->addr, n->addr_len) : -1;
    if (rc)
        rc = open_at(n, NULL, 0);
    if (rc) {
        tei_ofi_unserve(n);
        return refuse(n, "an endpoint", rc);
    }
    rc = fi_getname(&n->ep->fid, n->addr, &len);
    if (rc) {
        tei_ofi_unserve(n);
        return refuse(n, "its address", rc);
    }
    n->addr_len = len;
    return 0;
}

void tei_ofi_unserve(struct ofi_nic *n)
{
    if (n->ep)
        close_fid(&n->ep->fid);
    n->ep = NULL;
    /* With it: tcp;ofi_rxm of 1.17 still asks an endpoint that is closed whether its queue may be slept on. */
    if (n->cq)
        close_fid(&n->cq->fid);
    n->cq = NULL;
    n->fd = -1;
}

/* --------------------------------------------------------------------------------------- the NIC */

int tei_ofi_nic_open(struct ofi_nic *n)
{
    struct fi_av_attr av = {.type = FI_AV_UNSPEC};
    int rc = n->ofi->lib.fabric(n->info->fabric_attr, &n->fabric, NULL);

    if (rc)
        return refuse(n, "its fabric", rc);
    rc = fi_domain(n->fabric, n->info, &n->domain, NULL);
    if (rc)
        return refuse(n, "its domain", rc);
    rc = fi_av_open(n->domain, &av, &n->av, NULL);
    return rc ? refuse(n, "a table of addresses", rc) : tei_ofi_serve(n);
}

void tei_ofi_nic_close(struct ofi_nic *n)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&n->gens, link, tmp)
        (void)tei_ofi_gen_close(tei_container_of(link, struct ofi_gen, link));
    tei_ofi_unserve(n);
    if (n->av)
        close_fid(&n->av->fid);
    if (n->domain)
        close_fid(&n->domain->fid);
    if (n->fabric)
        close_fid(&n->fabric->fid);
    n->ofi->lib.freeinfo(n->info);
}

/* ------------------------------------------------------------------------------------- generations */

static void drop_gen(struct ofi_gen *g)
{
    if (g->ep)
        close_fid(&g->ep->fid);
    if (g->cq)
        close_fid(&g->cq->fid);
    free(g);
}

static int make_gen(struct ofi_nic *n, struct ofi_gen **out)
{
    struct ofi_gen *g = calloc(1, sizeof *g);
    int rc;

    if (!g)
        return refuse(n, "an endpoint", -FI_ENOMEM);
    tei_list_init(&g->flying);
    g->nic = n;
    rc = open_cq(n, &g->cq, &g->fd);
    if (!rc)
        rc = open_ep(n, n->info, g->cq, &g->ep);
    if (rc) {
        drop_gen(g);
        return refuse(n, "an endpoint", rc);
    }
    *out = g;
    return 0;
}

struct ofi_gen *tei_ofi_gen(struct ofi_nic *n, int64_t now)
{
    struct ofi_gen *g = n->gen;

    if (!g && now >= n->rest_ns) {
        if (make_gen(n, &g)) {
            n->rest_ns = now + REST_NS;
            n->ofi->trouble = "no endpoint can be opened to send by";
            return NULL;
        }
        tei_list_push_back(&n->gens, &g->link);
        n->gen = g;
    }
    return g && g->n_flying < n->credits ? g : NULL;
}

/* Endpoint first: a queue that an endpoint is bound to cannot be closed. */
bool tei_ofi_gen_close(struct ofi_gen *g)
{
    struct tei_list lost;
    struct tei_link *link, *tmp;
    int64_t now = tei_now_ns();

    if (fi_close(&g->ep->fid)) {
        g->nic->ofi->trouble = "an endpoint cannot be closed: its requests end when that is done";
        return false;
    }
    g->ep = NULL;
    tei_list_init(&lost);
    tei_list_splice(&lost, &g->flying);
    tei_list_del(&g->link);
    if (g->nic->gen == g)
        g->nic->gen = NULL;
    drop_gen(g);
    TEI_LIST_EACH(&lost, link, tmp) {
        tei_list_del(link);
        tei_ofi_lost(tei_ofi_op_of(link), now);
    }
    return true;
}

/* ------------------------------------------------------------------------------------- completions */

static void end_op(void *context, int err, int64_t now)
{
    struct ofi_op *op = tei_container_of((struct fi_context2 *)context, struct ofi_op, context);

    tei_list_del(&op->link);
    op->gen->n_flying--;
    op->gen = NULL;
    tei_ofi_back(op, err, now);
}

union error {
    struct fi_cq_err_entry e;
    char room[512]; /* for members that a newer library has */
};

/* It has no work of its own: what it reports as an error is a peer's. */
static void serve(struct fid_cq *cq)
{
    struct fi_cq_entry e[BATCH];
    union error u;

    memset(&u, 0, sizeof u);
    if (fi_cq_read(cq, e, BATCH) == -FI_EAVAIL)
        (void)fi_cq_readerr(cq, &u.e, 0);
}

static bool read_error(struct fid_cq *cq, int64_t now)
{
    union error u;

    memset(&u, 0, sizeof u);
    if (fi_cq_readerr(cq, &u.e, 0) != 1)
        return false;
    if (u.e.op_context)
        end_op(u.e.op_context, u.e.err ? u.e.err : FI_EIO, now);
    return true;
}

/* Reads until there is no more; whether there was something. */
static bool drain(struct fid_cq *cq, int64_t now)
{
    struct fi_cq_entry e[BATCH];
    bool any = false;

    for (;;) {
        ssize_t n = fi_cq_read(cq, e, BATCH);

        if (n == -FI_EAVAIL && read_error(cq, now))
            n = 0;
        else if (n <= 0)
            return any;
        any = true;
        for (ssize_t i = 0; i < n; i++)
            end_op(e[i].op_context, 0, now);
    }
}

bool tei_ofi_progress(struct ofi_nic *n, int64_t now)
{
    struct tei_link *link, *tmp;
    bool any = false;

    if (n->cq)
        serve(n->cq);
    TEI_LIST_EACH(&n->gens, link, tmp)
        any |= drain(tei_container_of(link, struct ofi_gen, link)->cq, now);
    return any;
}

static bool add_fd(struct ofi_nic *n, struct fid_cq *cq, int fd, int *fds, size_t *n_fds,
                   bool *blind)
{
    struct fid *fid = &cq->fid;

    if (fd < 0 || *n_fds == OFI_FDS) {
        *blind = true;
        return true;
    }
    fds[(*n_fds)++] = fd;
    return fi_trywait(n->fabric, &fid, 1) == 0;
}

bool tei_ofi_may_sleep(struct ofi_nic *n, int *fds, size_t *n_fds, bool *blind)
{
    struct tei_link *link, *tmp;
    bool may = !n->cq || add_fd(n, n->cq, n->fd, fds, n_fds, blind);

    TEI_LIST_EACH(&n->gens, link, tmp) {
        struct ofi_gen *g = tei_container_of(link, struct ofi_gen, link);

        may &= add_fd(n, g->cq, g->fd, fds, n_fds, blind);
    }
    return may;
}
