/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_nic.c - devices: which there are, opening them, whether their ports are up.
 *
 * A NIC of the matrix that cannot be opened keeps its place, so that all indexes stay what they are,
 * and te_links() says why; our descriptor does without it, and no rail goes through it. It is not
 * tried again; a port that is down is, whenever the device tells of a change, and one that does not
 * answer is by the monitor.
 */
#include "plat/plat.h"
#include "transport/rdma/rdma.h"
#include "transport/rdma/rdma_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOMINAL_BPS UINT64_C(12500000000) /* of a port that does not tell, in bytes a second */

struct rdma_nic *tei_rdma_nic_find(struct rdma *t, const char *name)
{
    for (size_t i = 0; i < t->n_nics; i++)
        if (strcmp(t->nics[i].name, name) == 0)
            return &t->nics[i];
    return NULL;
}

static struct ibv_device *find_device(const struct rdma *t, const char *name)
{
    for (struct ibv_device **d = t->devices; *d; d++)
        if (strcmp((*d)->name, name) == 0)
            return *d;
    return NULL;
}

static void set_why(struct rdma_nic *n, const char *why)
{
    pthread_mutex_lock(&n->port_lock);
    snprintf(n->why, sizeof n->why, "%s", why);
    pthread_mutex_unlock(&n->port_lock);
}

/* Keeps why a NIC is not used; false, for the caller to return. */
static bool unusable(struct rdma_nic *n, const char *what, int errnum)
{
    char why[sizeof n->why];

    snprintf(why, sizeof why, "%s%s%.60s", what, errnum ? ": " : "",
             errnum ? tei_errno_text(errnum) : "");
    set_why(n, why);
    return false;
}

/* ----------------------------------------------------------------------------------------- state */

void tei_rdma_nic_set_active(struct rdma_nic *n, bool active, const char *why)
{
    if (atomic_exchange(&n->active, active) == active)
        return;
    if (active) {
        tei_path_nic_up(&n->t->path_nics, n->index, n->nominal_bps);
        TEI_INFO("rdma: NIC %s port %u is up", n->name, n->port);
    } else {
        tei_path_nic_down(&n->t->path_nics, n->index);
        TEI_WARN("rdma: NIC %s port %u is not used: %s", n->name, n->port, why);
    }
    set_why(n, active ? "" : why);
}

static void set_port(struct rdma_nic *n, const struct ibv_port_attr *attr)
{
    pthread_mutex_lock(&n->port_lock);
    n->port_attr = *attr;
    pthread_mutex_unlock(&n->port_lock);
}

struct ibv_port_attr tei_rdma_nic_port(struct rdma_nic *n)
{
    struct ibv_port_attr attr;

    pthread_mutex_lock(&n->port_lock);
    attr = n->port_attr;
    pthread_mutex_unlock(&n->port_lock);
    return attr;
}

static bool has_gids(struct rdma_nic *n)
{
    bool has;

    pthread_mutex_lock(&n->port_lock);
    has = n->n_gids > 0;
    pthread_mutex_unlock(&n->port_lock);
    return has;
}

bool tei_rdma_nic_look(struct rdma_nic *n)
{
    bool was = atomic_load(&n->active);
    const char *why = NULL;
    struct ibv_port_attr now;
    int rc = tei_verbs_port(&n->t->verbs, n->context, n->port, &now);

    n->silent = rc != 0;
    if (!rc)
        set_port(n, &now);
    if (rc)
        why = "it does not answer";
    else if (now.state != IBV_PORT_ACTIVE)
        why = "its port is not active";
    else if (!has_gids(n))
        why = "its port has no GID"; /* nor an address, or the NIC is being taken out */
    tei_rdma_nic_set_active(n, !why, why);
    return was != atomic_load(&n->active);
}

/* ------------------------------------------------------------------------------------------ GIDs */

bool tei_rdma_nic_gid(struct rdma_nic *n, const uint8_t *peer, uint64_t tried[TEI_GID_WORDS],
                      struct tei_gid_entry *out)
{
    size_t at = 0;
    bool found;

    pthread_mutex_lock(&n->port_lock);
    found = tei_gid_pick(n->gids, n->n_gids, peer, tried, &at) == 0;
    if (found) {
        *out = n->gids[at];
        tei_gid_mark(tried, at);
    }
    pthread_mutex_unlock(&n->port_lock);
    return found;
}

/* The one of index MC_GID_INDEX, else the best. */
static bool best_gid(struct rdma_nic *n, struct tei_gid_entry *out)
{
    uint64_t tried[TEI_GID_WORDS] = {0};
    int wanted = n->t->conf->gid_index;
    bool found = false;

    if (wanted < 0)
        return tei_rdma_nic_gid(n, NULL, tried, out) || unusable(n, "it has no GID to use", 0);
    pthread_mutex_lock(&n->port_lock);
    for (size_t i = 0; i < n->n_gids && !found; i++) {
        found = n->gids[i].index == wanted;
        if (found)
            *out = n->gids[i];
    }
    pthread_mutex_unlock(&n->port_lock);
    return found || unusable(n, "its port has no GID of index MC_GID_INDEX", 0);
}

static bool read_gids(struct rdma_nic *n)
{
    char dir[IBV_SYSFS_PATH_MAX + 16], text[160];
    struct tei_gid_entry *gids, *old, best;
    size_t count;

    snprintf(dir, sizeof dir, "%s/ports/%u", n->context->device->ibdev_path, n->port);
    if (tei_gid_table_read(dir, &gids, &count) != 0)
        return unusable(n, "its GIDs cannot be read", 0);
    pthread_mutex_lock(&n->port_lock);
    old = n->gids;
    n->gids = gids;
    n->n_gids = count;
    pthread_mutex_unlock(&n->port_lock);
    free(old);
    if (!best_gid(n, &best))
        return false;
    pthread_mutex_lock(&n->port_lock);
    n->gid = best;
    pthread_mutex_unlock(&n->port_lock);
    tei_gid_describe(&best, text, sizeof text);
    TEI_INFO("rdma: NIC %s speaks from %s", n->name, text);
    return true;
}

bool tei_rdma_nic_reread(struct rdma_nic *n)
{
    struct tei_gid_entry before = n->gid;

    return read_gids(n) && memcmp(before.gid, n->gid.gid, sizeof before.gid) != 0;
}

/* --------------------------------------------------------------------------------------- opening */

static bool open_cq(struct rdma_nic *n, unsigned i)
{
    const struct tei_verbs *v = &n->t->verbs;
    struct rdma_cq *c = &n->cqs[i];
    struct ibv_cq *cq;
    int depth = (int)tei_min((size_t)n->t->conf->max_cqe_per_ctx, (size_t)n->limits.max_cqe);

    cq = v->create_cq(n->context, depth, c, n->workers[i % n->n_workers].channel, 0);
    if (!cq)
        return unusable(n, "no completion queue", errno);
    pthread_mutex_lock(&c->lock);
    c->cq = cq;
    c->depth = (uint32_t)depth;
    c->unacked = 0;
    atomic_store(&c->posted, 0);
    pthread_mutex_unlock(&c->lock);
    return true;
}

static bool open_worker(struct rdma_nic *n, unsigned i)
{
    struct rdma_worker *w = &n->workers[i];

    w->channel = n->t->verbs.create_comp_channel(n->context);
    if (!w->channel)
        return unusable(n, "no completion channel", errno);
    (void)fcntl(w->channel->fd, F_SETFL, fcntl(w->channel->fd, F_GETFL) | O_NONBLOCK);
    return true;
}

static bool open_queues(struct rdma_nic *n)
{
    bool ok = true;

    for (unsigned i = 0; ok && i < n->n_workers; i++)
        ok = open_worker(n, i);
    for (unsigned i = 0; ok && i < n->n_cqs; i++)
        ok = open_cq(n, i);
    return ok;
}

/* The speed of the port: as the kernel tells it, else as the device's codes do. */
static uint64_t port_bps(const struct rdma_nic *n)
{
    char path[IBV_SYSFS_PATH_MAX + 32];
    double gbps = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/ports/%u/rate", n->context->device->ibdev_path, n->port);
    f = fopen(path, "re");
    if (f && fscanf(f, "%lf", &gbps) != 1)
        gbps = 0;
    if (f)
        fclose(f);
    if (gbps <= 0 || gbps > 1e5)
        gbps = tei_verbs_port_gbps(&n->port_attr);
    return gbps > 0 ? (uint64_t)(gbps * 1e9 / 8) : NOMINAL_BPS;
}

/* The type of service that who runs the host gave to connections of the port; 0: none. */
static uint8_t default_tos(const struct rdma_nic *n)
{
    char path[TEI_CONF_TEXT + 128];
    unsigned tos = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/kernel/config/rdma_cm/%s/ports/%u/default_roce_tos",
             n->t->conf->sysfs_path, n->name, n->port);
    f = fopen(path, "re");
    if (f && fscanf(f, "%u", &tos) != 1)
        tos = 0;
    if (f)
        fclose(f);
    return (uint8_t)(tos <= UINT8_MAX ? tos : 0);
}

static void set_limits(struct rdma_nic *n)
{
    const struct tei_conf *c = n->t->conf;
    size_t qps = (size_t)n->limits.max_qp;

    n->depth = (uint32_t)tei_min((size_t)c->max_wr, (size_t)n->limits.max_qp_wr);
    n->cap = tei_max(1, tei_min((size_t)c->max_ep_per_ctx, qps / (size_t)c->num_qp_per_ep));
    n->t->chunk = tei_min(n->t->chunk, n->limits.max_mr_size ? n->limits.max_mr_size : UINT64_MAX);
    n->nominal_bps = port_bps(n);
    n->default_tos = default_tos(n);
}

static bool open_context(struct rdma_nic *n, struct ibv_device *d)
{
    const struct tei_verbs *v = &n->t->verbs;
    struct ibv_port_attr attr;
    int rc;

    n->context = v->open_device(d);
    if (!n->context)
        return unusable(n, "it cannot be opened", errno);
    rc = v->query_device(n->context, &n->limits);
    if (rc)
        return unusable(n, "its limits cannot be read", rc);
    if (n->port > n->limits.phys_port_cnt)
        return unusable(n, "it has no port of number MC_IB_PORT", 0);
    rc = tei_verbs_port(v, n->context, n->port, &attr);
    if (rc)
        return unusable(n, "its port cannot be read", rc);
    set_port(n, &attr);
    n->pd = v->alloc_pd(n->context);
    if (!n->pd)
        return unusable(n, "no protection domain", errno);
    (void)fcntl(n->context->async_fd, F_SETFL, fcntl(n->context->async_fd, F_GETFL) | O_NONBLOCK);
    return true;
}

static void close_cqs(struct rdma_nic *n)
{
    const struct tei_verbs *v = &n->t->verbs;

    for (unsigned i = 0; i < n->n_cqs; i++) {
        struct rdma_cq *c = &n->cqs[i];

        pthread_mutex_lock(&c->lock);
        if (c->unacked)
            v->ack_cq_events(c->cq, c->unacked);
        if (c->cq)
            v->destroy_cq(c->cq);
        c->cq = NULL;
        c->unacked = 0;
        atomic_store(&c->posted, 0);
        pthread_mutex_unlock(&c->lock);
    }
}

/* What open_device() got, in reverse; also of one that failed half way. */
static void close_device(struct rdma_nic *n)
{
    const struct tei_verbs *v = &n->t->verbs;

    close_cqs(n);
    for (unsigned i = 0; i < n->n_workers; i++) {
        if (n->workers[i].channel)
            v->destroy_comp_channel(n->workers[i].channel);
        n->workers[i].channel = NULL;
    }
    if (n->pd)
        v->dealloc_pd(n->pd);
    if (n->context)
        v->close_device(n->context);
    n->pd = NULL;
    n->context = NULL;
}

static bool open_device(struct rdma_nic *n)
{
    struct ibv_device *d = find_device(n->t, n->name);

    if (!d)
        return unusable(n, "there is no such device", 0);
    if (open_context(n, d) && read_gids(n) && open_queues(n)) {
        tei_rdma_mlx5_look(n, d);
        return true;
    }
    close_device(n);
    return false;
}

static bool open_nic(struct rdma_nic *n)
{
    if (!open_device(n))
        return false;
    set_limits(n);
    if (!tei_rdma_nic_look(n))
        (void)unusable(n, "its port is not active", 0);
    return true;
}

/* Each worker has queues and a channel of its own: nobody else is woken by what it polls. */
static int make_queues(struct rdma_nic *n)
{
    const struct tei_conf *c = n->t->conf;
    unsigned workers =
        (unsigned)tei_max((size_t)c->workers_per_ctx, (size_t)c->num_comp_channels_per_ctx);
    unsigned cqs = (unsigned)tei_max((size_t)c->num_cq_per_ctx, workers);

    n->workers = calloc(workers, sizeof *n->workers);
    n->cqs = calloc(cqs, sizeof *n->cqs);
    if (!n->workers || !n->cqs)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the queues of a NIC");
    for (; n->n_workers < workers; n->n_workers++)
        n->workers[n->n_workers] =
            (struct rdma_worker){.nic = n, .index = n->n_workers, .waker = {.fd = -1}};
    for (; n->n_cqs < cqs; n->n_cqs++) {
        n->cqs[n->n_cqs].nic = n;
        pthread_mutex_init(&n->cqs[n->n_cqs].lock, NULL);
    }
    return 0;
}

static int init_nic(struct rdma *t, size_t i, const char *name)
{
    struct rdma_nic *n = &t->nics[i];

    n->t = t;
    n->index = (unsigned)i;
    n->port = (uint8_t)t->conf->ib_port;
    n->nominal_bps = NOMINAL_BPS;
    snprintf(n->name, sizeof n->name, "%s", name);
    n->number = n->t->base.host->nic(n->t->base.host, name);
    pthread_mutex_init(&n->pool_lock, NULL);
    pthread_mutex_init(&n->port_lock, NULL);
    pthread_rwlock_init(&n->device_lock, NULL);
    tei_sieve_init(&n->pool, t->conf->endpoint_store_fifo);
    tei_list_init(&n->waiting);
    tei_list_init(&n->dying);
    return make_queues(n);
}

static void fini_nic(struct rdma_nic *n)
{
    close_device(n);
    for (unsigned i = 0; i < n->n_cqs; i++)
        pthread_mutex_destroy(&n->cqs[i].lock);
    free(n->cqs);
    free(n->workers);
    free(n->gids);
    pthread_rwlock_destroy(&n->device_lock);
    pthread_mutex_destroy(&n->port_lock);
    pthread_mutex_destroy(&n->pool_lock);
}

/* The NICs of this host that did not even come into the topology. */
static size_t list_left_out(const struct rdma *t, char *text, size_t size)
{
    struct tei_look look = tei_look_from(t->conf, NULL);
    struct tei_nics nics = {0};
    size_t used = 0;

    if (tei_nics_list(&look, &nics) != 0)
        return 0;
    for (size_t i = 0; i < nics.n && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s: %.100s", i ? "; " : "",
                                 nics.v[i].name,
                                 nics.v[i].usable ? "not in the topology" : nics.v[i].why);
    tei_nics_fini(&nics);
    return used;
}

/* Each NIC and why it is not used: for the error when none is. */
static int none_left(const struct rdma *t)
{
    char text[512];
    size_t used = 0;

    for (size_t i = 0; i < t->n_nics && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s: %s", i ? "; " : "",
                                 t->nics[i].name, t->nics[i].why);
    if (t->n_nics == 0)
        used = list_left_out(t, text, sizeof text);
    return TEI_FAIL(TE_ERR_NO_DEVICE, "rdma: no NIC can be used (%s)",
                    used ? text : "the topology has none");
}

/* All down, until they are open. */
static void init_paths(struct rdma *t)
{
    struct tei_path_port ports[RDMA_NICS_MAX] = {{0}};

    for (size_t i = 0; i < t->n_nics; i++)
        ports[i].name = t->nics[i].name;
    tei_path_nics_init(&t->path_nics, ports, t->n_nics);
}

static int list_devices(struct rdma *t)
{
    const char **names;
    size_t n;
    int rc = tei_topology_devices(&t->matrix, &names, &n);

    if (rc)
        return rc;
    n = tei_min(n, RDMA_NICS_MAX);
    t->nics = calloc(n + 1, sizeof *t->nics);
    for (; t->nics && !rc && t->n_nics < n; t->n_nics++)
        rc = init_nic(t, t->n_nics, names[t->n_nics]);
    free(names);
    if (t->nics)
        init_paths(t);
    if (rc)
        return rc;
    t->devices = t->verbs.get_device_list(NULL);
    if (!t->nics)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for %zu NICs", t->n_nics);
    if (!t->devices)
        return TEI_FAIL(TE_ERR_NO_DEVICE, "rdma: devices cannot be listed: %s",
                        tei_errno_text(errno));
    return 0;
}

static const char *why_left_out(const struct tei_nics *nics, const char *name)
{
    for (size_t i = 0; i < nics->n; i++)
        if (strcmp(nics->v[i].name, name) == 0)
            return nics->v[i].usable ? "it is not in the topology" : nics->v[i].why;
    return "there is no such device";
}

/* Who names NICs in MC_TE_FILTERS wants all of them. Those of the topology have been opened, or told of. */
static void tell_filtered(struct rdma *t)
{
    struct tei_look look = tei_look_from(t->conf, NULL);
    struct tei_nics nics = {0};
    char names[TEI_CONF_TEXT], *rest = names, *name;

    snprintf(names, sizeof names, "%s", t->conf->filters);
    if (!names[0] || tei_nics_list(&look, &nics) != 0)
        return;
    while ((name = strsep(&rest, ", \t")))
        if (name[0] && !tei_rdma_nic_find(t, name))
            TEI_WARN("rdma: NIC %.63s, which MC_TE_FILTERS names, is not used: %s", name,
                     why_left_out(&nics, name));
    tei_nics_fini(&nics);
}

/* One whose port is down is kept, and used once it is up; but something has to be there to begin with. */
int tei_rdma_nics_open(struct rdma *t)
{
    size_t up = 0;
    int rc = list_devices(t);

    for (size_t i = 0; !rc && i < t->n_nics; i++) {
        struct rdma_nic *n = &t->nics[i];

        n->absent = !open_nic(n);
        if (atomic_load(&n->active))
            up++;
        else
            TEI_WARN("rdma: NIC %s is not used: %s", n->name, n->why);
    }
    if (!rc && up == 0)
        return none_left(t);
    if (!rc)
        tell_filtered(t);
    return rc;
}

/* With all locks. The device may not even answer; then it is closed, and tried again. */
static bool reopen(struct rdma_nic *n)
{
    bool ok;

    tei_rdma_workers_stop(n);
    tei_rdma_memory_leave(n);
    close_device(n);
    ok = open_device(n) && tei_rdma_memory_join(n) == 0;
    if (ok && tei_rdma_workers_start(n) != 0) {
        tei_rdma_workers_stop(n);
        ok = false;
    }
    if (!ok) {
        tei_rdma_memory_leave(n);
        close_device(n);
    }
    return ok;
}

bool tei_rdma_nic_repair(struct rdma_nic *n)
{
    bool idle, ok = false;

    pthread_mutex_lock(&n->t->memory_lock);
    pthread_rwlock_wrlock(&n->device_lock);
    pthread_mutex_lock(&n->pool_lock);
    idle = n->n_live == 0;
    pthread_mutex_unlock(&n->pool_lock);
    if (idle)
        ok = reopen(n);
    if (ok)
        atomic_store(&n->broken, false);
    pthread_rwlock_unlock(&n->device_lock);
    pthread_mutex_unlock(&n->t->memory_lock);
    if (ok)
        (void)tei_rdma_nic_look(n);
    return ok;
}

void tei_rdma_nics_close(struct rdma *t)
{
    for (size_t i = 0; i < t->n_nics; i++)
        fini_nic(&t->nics[i]);
    free(t->nics);
    t->nics = NULL;
    t->n_nics = 0;
    if (t->devices)
        t->verbs.free_device_list(t->devices);
    t->devices = NULL;
}
