/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma.c - the RDMA transport: its ops, from the first to the last moment of an instance. Read
 * rdma.h first.
 *
 * What stop() waits for is counted in `live`: work not given back, endpoints not taken apart, messages of
 * peers not answered. close() ends all work and fails all endpoints, so that number can only fall;
 * workers and the monitor run until it is 0, since it is they who make it fall.
 */
#include "transport/rdma/rdma.h"
#include "transport/rdma/rdma_memory.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tei_rdma_live(struct rdma *t, size_t n)
{
    pthread_mutex_lock(&t->live_lock);
    t->live += n;
    pthread_mutex_unlock(&t->live_lock);
}

void tei_rdma_gone(struct rdma *t, size_t n)
{
    pthread_mutex_lock(&t->live_lock);
    t->live -= n;
    if (t->live == 0)
        pthread_cond_broadcast(&t->quiet);
    pthread_mutex_unlock(&t->live_lock);
}

/* --------------------------------------------------------------------------------------- opening */

/* Whether the kernel shows any RDMA device. The library is opened only where it does. */
static bool rdma_probe(const struct tei_conf *conf, char *why, size_t n)
{
    char dir[TEI_CONF_TEXT + 32];
    const struct dirent *d = NULL;
    DIR *all;

    snprintf(dir, sizeof dir, "%s/class/infiniband", conf->sysfs_path);
    all = opendir(dir);
    while (all && (d = readdir(all)) && d->d_name[0] == '.') {}
    if (all)
        closedir(all);
    if (!d)
        snprintf(why, n, "there is no RDMA device in %.100s", dir);
    return d != NULL;
}

static void init(struct rdma *t)
{
    const struct tei_conf *c = t->base.host->conf;

    t->conf = c;
    t->chunk = c->max_mr_size;
    snprintf(t->server, sizeof t->server, "%.254s",
             c->rdma_bind_address[0] ? c->rdma_bind_address : t->base.host->segment_name);
    pthread_mutex_init(&t->peers_lock, NULL);
    pthread_mutex_init(&t->memory_lock, NULL);
    pthread_mutex_init(&t->keys_lock, NULL);
    pthread_mutex_init(&t->live_lock, NULL);
    tei_list_init(&t->memories);
    tei_list_init(&t->lacking);
    tei_cond_init(&t->quiet);
    tei_list_init(&t->peers);
    tei_pool_init(&t->slices, sizeof(struct rdma_slice));
    t->ready = true;
}

static int open_verbs(struct rdma *t)
{
    int rc = tei_verbs_open(t->conf, &t->verbs);

    if (rc)
        return TEI_FAIL(rc, "rdma: %s; install libibverbs1, or name the library in TE_IBVERBS_PATH",
                        te_errmsg());
    /* Before any memory is registered. Newer kernels need it no more, and it does nothing there. */
    if (t->verbs.fork_init)
        (void)t->verbs.fork_init();
    return 0;
}

static int make_rows(struct rdma *t)
{
    t->row_users = calloc(t->matrix.n_rows + 1, sizeof *t->row_users);
    return t->row_users ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for the rows of a matrix");
}

static int rdma_open(struct tei_transport *base)
{
    struct rdma *t = tei_rdma_of(base);
    int rc;

    init(t);
    rc = t->conf->hca_peer_affinity ? tei_path_affinity_check(t->conf->nic_peer_affinity) : 0;
    if (!rc)
        rc = open_verbs(t);
    if (!rc)
        rc = tei_mlx5_open(t->conf, &t->mlx5);
    if (!rc)
        rc = base->host->topology(base->host, &t->matrix);
    if (!rc)
        rc = make_rows(t);
    if (!rc)
        rc = tei_rdma_nics_open(t);
    for (size_t i = 0; !rc && i < t->n_nics; i++)
        if (t->nics[i].context)
            rc = tei_rdma_workers_start(&t->nics[i]);
    if (!rc)
        rc = tei_rdma_monitor_start(t);
    if (rc)
        base->ops.stop(base);
    return rc;
}

/* ------------------------------------------------------------------------------------- descriptor */

static json_t *devices_json(struct rdma *t)
{
    struct tei_rdma_device all[RDMA_NICS_MAX];
    size_t count = 0;

    memset(all, 0, sizeof all);
    for (size_t i = 0; i < t->n_nics; i++) {
        struct rdma_nic *n = &t->nics[i];
        struct tei_rdma_device *d = &all[count];

        if (n->absent)
            continue;
        snprintf(d->name, sizeof d->name, "%s", n->name);
        pthread_mutex_lock(&n->port_lock);
        d->lid = n->port_attr.lid;
        memcpy(d->gid, n->gid.gid, sizeof d->gid);
        pthread_mutex_unlock(&n->port_lock);
        count++;
    }
    return tei_rdma_devices_json(all, count);
}

static json_t *active_names(struct rdma *t, char *const *names, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        const struct rdma_nic *nic = tei_rdma_nic_find(t, names[i]);

        if (nic && atomic_load(&nic->active))
            tei_json_append(&list, json_string(names[i]));
    }
    return list;
}

/* The matrix without the NICs that do not work now: no peer is to try them. */
static json_t *matrix_json(struct rdma *t)
{
    json_t *root = json_object();

    for (size_t i = 0; i < t->matrix.n_rows; i++) {
        const struct tei_topology_row *r = &t->matrix.rows[i];
        json_t *row = json_array();

        tei_json_append(&row, active_names(t, r->preferred, r->n_preferred));
        tei_json_append(&row, active_names(t, r->available, r->n_available));
        tei_json_set(&root, r->location, row);
    }
    return root;
}

static int rdma_describe(struct tei_transport *base, json_t *root)
{
    struct rdma *t = tei_rdma_of(base);
    const char *bound = t->conf->rdma_bind_address;

    if (json_object_set_new(root, "devices", devices_json(t)) ||
        json_object_set_new(root, "priority_matrix", matrix_json(t)) ||
        json_object_set_new(root, "tcp_data_port", json_integer(0)) ||
        json_object_set_new(root, "tcp_proto_version", json_integer(1)) ||
        (bound[0] && json_object_set_new(root, "rdma_server_name", json_string(bound))))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the keys of rdma");
    return 0;
}

static uint64_t rdma_buffer_max(struct tei_transport *base)
{
    return tei_rdma_of(base)->chunk;
}

/* ----------------------------------------------------------------------------------------- others */

/* Whether a NIC works that has the memory at `source`. */
static bool any_is_active(struct rdma *t, const void *source)
{
    uint32_t lost = tei_rdma_memory_lost(t, (uintptr_t)source);

    for (size_t i = 0; i < t->n_nics; i++)
        if (!(lost >> i & 1) && atomic_load_explicit(&t->nics[i].active, memory_order_relaxed))
            return true;
    return false;
}

/* Without a NIC that works, whatever else reaches the target is better than to wait for one. */
static unsigned rdma_score(struct tei_transport *t, const struct tei_attach *a, const te_request *r)
{
    if (!a || !tei_rdma_has_keys(a, r->target_offset, r->length))
        return 0;
    return any_is_active(tei_rdma_of(t), r->source) ? 80 : TEI_SCORE_LAST;
}

static void rdma_why_not(struct tei_transport *t, const struct tei_attach *a, const te_request *r,
                         char *why, size_t n)
{
    (void)t;
    (void)r;
    snprintf(why, n, "%s",
             a ? "the target's NICs have no keys for this memory: they could not register it"
               : "it does not reach this engine itself");
}

static void rdma_stats(struct tei_transport *base, struct te_stats *s)
{
    struct rdma *t = tei_rdma_of(base);

    for (size_t i = 0; i < t->n_nics; i++) {
        pthread_mutex_lock(&t->nics[i].pool_lock);
        s->connections += t->nics[i].n_live;
        pthread_mutex_unlock(&t->nics[i].pool_lock);
    }
    s->retries += atomic_load_explicit(&t->n_retries, memory_order_relaxed);
    s->reconnects += atomic_load_explicit(&t->n_connects, memory_order_relaxed);
}

/* ----------------------------------------------------------------------------------------- the end */

static void end_one(struct rdma_endpoint *ep, void *arg)
{
    (void)arg;
    tei_rdma_ep_fail(ep, 0, "this engine is closing");
}

static void rdma_close(struct tei_transport *base)
{
    struct rdma *t = tei_rdma_of(base);

    if (!t->ready)
        return;
    atomic_store(&t->closing, true);
    tei_rdma_cancel(base, NULL);
    for (size_t i = 0; i < t->n_nics; i++)
        tei_rdma_eps_each(&t->nics[i], end_one, NULL);
    if (t->monitor.running)
        tei_rdma_monitor_wake(t);
}

static void rdma_stop(struct tei_transport *base)
{
    struct rdma *t = tei_rdma_of(base);

    rdma_close(base);
    pthread_mutex_lock(&t->live_lock);
    while (t->live > 0)
        pthread_cond_wait(&t->quiet, &t->live_lock);
    pthread_mutex_unlock(&t->live_lock);
    tei_rdma_monitor_stop(t);
    for (size_t i = 0; i < t->n_nics; i++)
        tei_rdma_workers_stop(&t->nics[i]);
}

static void rdma_fini(struct tei_transport *base)
{
    struct rdma *t = tei_rdma_of(base);

    if (!t->ready)
        return;
    if (t->nics)
        tei_rdma_nics_close(t);
    tei_topology_fini(&t->matrix);
    free(t->row_users);
    tei_pool_fini(&t->slices);
    pthread_cond_destroy(&t->quiet);
    pthread_mutex_destroy(&t->live_lock);
    pthread_mutex_destroy(&t->keys_lock);
    pthread_mutex_destroy(&t->memory_lock);
    pthread_mutex_destroy(&t->peers_lock);
}

extern const struct tei_transport_ops tei_rdma_ops; /* named by transports.def */

const struct tei_transport_ops tei_rdma_ops = {
    .name = "rdma",
    .abi = TEI_TRANSPORT_ABI,
    .caps = TEI_CAP_REMOTE | TEI_CAP_NICS | TEI_CAP_LIVES,
    .mem_kinds = TEI_MEM_KNOWN,
    .target_kinds = TEI_MEM_ANY, /* its keys say whether the peer's NICs have it */
    .size = sizeof(struct rdma),
    .work_size = sizeof(struct rdma_work),
    .attach_size = sizeof(struct rdma_attach),
    .probe = rdma_probe,
    .open = rdma_open,
    .describe = rdma_describe,
    .describe_buffer = tei_rdma_describe_buffer,
    .buffer_max = rdma_buffer_max,
    .attach = tei_rdma_attach,
    .detach = tei_rdma_detach,
    .peer_gone = tei_rdma_peer_gone,
    .warm = tei_rdma_warm,
    .score = rdma_score,
    .why_not = rdma_why_not,
    .post = tei_rdma_post,
    .poll = tei_rdma_poll,
    .cancel = tei_rdma_cancel,
    .handshake = tei_rdma_handshake,
    .region_add = tei_rdma_region_add,
    .region_del = tei_rdma_region_del,
    .stats = rdma_stats,
    .links = tei_rdma_links,
    .nics = tei_rdma_nics,
    .close = rdma_close,
    .stop = rdma_stop,
    .fini = rdma_fini,
};
