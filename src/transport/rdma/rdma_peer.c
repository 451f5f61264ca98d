/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_peer.c - peers as their descriptors tell them. An attachment holds what one descriptor says
 * of memory: keys and locations; the peer, shared by attachments that name the same NICs, holds what
 * lives longer: rails with what was measured of them, endpoints, the queue of work.
 */
#include "transport/rdma/rdma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rdma_attach *attach_of(struct tei_attach *a)
{
    return tei_container_of(a, struct rdma_attach, base);
}

/* ------------------------------------------------------------------------------------------ peers */

static struct tei_path_conf path_conf(const struct rdma *t)
{
    const struct tei_conf *c = t->conf;

    return (struct tei_path_conf){.roundrobin = c->path_roundrobin,
                                  .same_name = c->dest_device_affinity,
                                  .affinity = c->hca_peer_affinity ? c->nic_peer_affinity : NULL,
                                  .rail_pause_ns = c->rail_pause_s * TEI_NS_PER_S,
                                  .max_slices = (uint32_t)(c->max_wr * c->num_qp_per_ep)};
}

static void free_peer(struct rdma_peer *p)
{
    struct tei_link *link;

    for (size_t i = 0; p->eps && i < p->t->n_nics * p->n_devices; i++)
        if (p->eps[i])
            tei_rdma_ep_put(p->eps[i]);
    while ((link = tei_list_pop(&p->spare)))
        tei_pool_put(&p->t->slices, tei_rdma_slice_of(link));
    tei_paths_fini(&p->paths);
    pthread_mutex_destroy(&p->lock);
    free(p->eps);
    free(p->past);
    free(p->server);
    free(p->devices);
    free(p);
}

static int make_paths(struct rdma *t, struct rdma_peer *p)
{
    struct tei_path_conf conf = path_conf(t);
    struct tei_path_port *ports = calloc(p->n_devices, sizeof *ports);
    int rc;

    if (!ports)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a peer's NICs");
    for (size_t i = 0; i < p->n_devices; i++)
        ports[i] = (struct tei_path_port){.name = p->devices[i].name, .active = true};
    rc = tei_paths_init(&p->paths, &conf, &t->path_nics, ports, p->n_devices);
    free(ports);
    return rc;
}

/* How long work may be without progress; 0: there is no limit. */
static int64_t patience_ms(const struct tei_conf *c)
{
    int64_t all = c->transfer_timeout_ms, slice = c->slice_timeout_s * 1000;

    return slice > 0 && (slice < all || all <= 0) ? slice : all;
}

/* Takes over `devices`. */
static int make_peer(struct rdma *t, const char *server, uint64_t id,
                     const struct tei_hostport *where, struct tei_rdma_device *devices, size_t n,
                     struct rdma_peer **out)
{
    struct rdma_peer *p = calloc(1, sizeof *p);
    int rc = TE_ERR_MEMORY;

    if (!p) {
        free(devices);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a peer");
    }
    p->t = t;
    p->id = id;
    p->made_ns = tei_now_ns();
    p->where = *where;
    p->devices = devices;
    p->n_devices = n;
    pthread_mutex_init(&p->lock, NULL);
    tei_ledger_init(&p->ledger, patience_ms(t->conf));
    tei_list_init(&p->again);
    tei_list_init(&p->spare);
    p->server = strdup(server);
    p->eps = calloc(t->n_nics * n, sizeof(struct rdma_endpoint *));
    p->past = calloc(t->n_nics * n, sizeof *p->past);
    if (p->server && p->eps && p->past)
        rc = make_paths(t, p);
    if (rc) {
        free_peer(p);
        return rc;
    }
    *out = p;
    return 0;
}

static bool is_peer(const struct rdma_peer *p, const char *server, uint64_t id,
                    const struct tei_hostport *where, const struct tei_rdma_device *devices,
                    size_t n)
{
    return p->id == id && p->n_devices == n && strcmp(p->server, server) == 0 &&
           p->where.port == where->port && strcmp(p->where.host, where->host) == 0 &&
           p->where.expected == where->expected &&
           memcmp(p->devices, devices, n * sizeof *devices) == 0;
}

/* Takes over `devices`. */
static int get_peer(struct rdma *t, const char *server, uint64_t id,
                    const struct tei_hostport *where, struct tei_rdma_device *devices, size_t n,
                    struct rdma_peer **out)
{
    struct tei_link *link, *next;
    int rc = 0;

    *out = NULL;
    pthread_mutex_lock(&t->peers_lock);
    TEI_LIST_EACH(&t->peers, link, next) {
        struct rdma_peer *p = tei_container_of(link, struct rdma_peer, link);

        if (!*out && is_peer(p, server, id, where, devices, n))
            *out = p;
    }
    if (*out)
        free(devices);
    else
        rc = make_peer(t, server, id, where, devices, n, out);
    if (!rc && atomic_fetch_add_explicit(&(*out)->refs, 1, memory_order_relaxed) == 0)
        tei_list_push_back(&t->peers, &(*out)->link);
    pthread_mutex_unlock(&t->peers_lock);
    return rc;
}

void tei_rdma_peer_put(struct rdma_peer *p)
{
    unsigned refs = atomic_load_explicit(&p->refs, memory_order_relaxed);
    struct rdma *t = p->t;
    bool last;

    /* Only the last reference needs the lock, under which others may be taken from the list. */
    while (refs > 1)
        if (atomic_compare_exchange_weak_explicit(&p->refs, &refs, refs - 1, memory_order_release,
                                                  memory_order_relaxed))
            return;
    pthread_mutex_lock(&t->peers_lock);
    last = atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1;
    if (last)
        tei_list_del(&p->link);
    pthread_mutex_unlock(&t->peers_lock);
    if (last)
        free_peer(p);
}

/* The peer behind `before` (NULL: the first), which is held and so in the list; held. */
static struct rdma_peer *next_peer(struct rdma *t, struct rdma_peer *before)
{
    struct tei_link *link;
    struct rdma_peer *p = NULL;

    pthread_mutex_lock(&t->peers_lock);
    link = before ? tei_list_next(&t->peers, &before->link) : tei_list_first(&t->peers);
    if (link) {
        p = tei_container_of(link, struct rdma_peer, link);
        tei_rdma_peer_hold(p);
    }
    pthread_mutex_unlock(&t->peers_lock);
    return p;
}

void tei_rdma_peers_each(struct rdma *t, void (*fn)(struct rdma_peer *p, void *arg), void *arg)
{
    struct rdma_peer *p = next_peer(t, NULL), *next;

    for (; p; p = next) {
        fn(p, arg);
        next = next_peer(t, p);
        tei_rdma_peer_put(p);
    }
}

/* The endpoint of the rail, held, or NULL; and whether the rail is on trial. */
static struct rdma_endpoint *endpoint_of(struct rdma_peer *p, int rail, bool *on_trial)
{
    struct rdma_endpoint *ep;

    pthread_mutex_lock(&p->lock);
    *on_trial = tei_paths_is_on_trial(&p->paths, rail);
    ep = p->eps[rail];
    if (ep)
        tei_rdma_ep_hold(ep);
    pthread_mutex_unlock(&p->lock);
    return ep;
}

/* In the place of `old`, unless another thread was first. */
static void set_endpoint(struct rdma_peer *p, int rail, struct rdma_endpoint *old,
                         struct rdma_endpoint *ep)
{
    pthread_mutex_lock(&p->lock);
    if (!p->eps[rail] || p->eps[rail] == old) {
        if (p->eps[rail]) {
            p->past[rail] = (struct rdma_past){.n = (uint8_t)(p->past[rail].n + 1),
                                               .drained = tei_rdma_ep_is_drained(old)};
            tei_rdma_ep_put(old);
        }
        tei_rdma_ep_hold(ep);
        p->eps[rail] = ep;
    }
    pthread_mutex_unlock(&p->lock);
}

int tei_rdma_peer_ep(struct rdma_peer *p, int rail, struct rdma_endpoint **out)
{
    struct rdma_endpoint *old, *ep = NULL;
    bool on_trial;
    int rc;

    *out = old = endpoint_of(p, rail, &on_trial);
    if (old && !atomic_load_explicit(&old->closed, memory_order_relaxed)) {
        tei_sieve_hit(&old->node);
        return 0;
    }
    /* It stays until there is another, so that whoever makes that one has its ticket. */
    rc = tei_rdma_ep_get(&p->t->nics[(size_t)rail / p->n_devices], p, (size_t)rail % p->n_devices,
                         on_trial, old, &ep);
    if (!rc)
        set_endpoint(p, rail, old, ep);
    if (old)
        tei_rdma_ep_put(old);
    *out = ep;
    return rc;
}

struct rdma_endpoint *tei_rdma_peer_ep_now(struct rdma_peer *p, int rail, struct rdma_past *past)
{
    struct rdma_endpoint *ep;

    pthread_mutex_lock(&p->lock);
    ep = p->eps[rail];
    *past = p->past[rail];
    if (ep)
        tei_rdma_ep_hold(ep);
    pthread_mutex_unlock(&p->lock);
    return ep;
}

/* ----------------------------------------------------------------------------------- descriptors */

/* "priority_matrix" of a descriptor; one without it has no rows. */
static int read_matrix(const json_t *root, struct tei_topology *out)
{
    const json_t *j = json_object_get(root, "priority_matrix");

    return j ? tei_topology_read(j, out) : 0;
}

static size_t row_of(const struct tei_topology *t, const char *location)
{
    for (size_t i = 0; location && i < t->n_rows; i++)
        if (strcmp(t->rows[i].location, location) == 0)
            return i;
    return t->n_rows;
}

static bool has_key(const uint32_t *rkeys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (rkeys[i])
            return true;
    return false;
}

/* Keys and location of the buffer at `i`. */
static int read_buffer(struct rdma_attach *a, size_t i, size_t n_devices)
{
    json_t *b;
    int rc;

    if (a->seg->several && !(a->seg->buffers[i].by & TEI_BY_RDMA)) {
        a->has_keyless = true; /* of all devices, as the memory is zeroed */
        a->rows[i] = (uint16_t)a->matrix.n_rows;
        return 0;
    }
    b = tei_segment_buffer(a->seg, a->seg->buffers[i].index);
    if (!b)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the keys of a buffer");
    rc = tei_rdma_keys_decode(b, n_devices, a->rkeys + i * n_devices);
    a->has_keyless |= rc >= 0 && !has_key(a->rkeys + i * n_devices, n_devices);
    a->rows[i] = (uint16_t)row_of(&a->matrix, json_string_value(json_object_get(b, "name")));
    json_decref(b);
    return rc;
}

static int read_buffers(struct rdma_attach *a, size_t n_devices)
{
    const struct tei_segment *s = a->seg;

    a->rkeys = calloc(s->n_buffers * n_devices + 1, sizeof *a->rkeys);
    a->rows = calloc(s->n_buffers + 1, sizeof *a->rows);
    if (!a->rkeys || !a->rows)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the keys of %zu buffers", s->n_buffers);
    for (size_t i = 0; i < s->n_buffers; i++) {
        int rc = read_buffer(a, i, n_devices);

        if (rc < 0)
            return rc;
    }
    return 0;
}

bool tei_rdma_has_keys(const struct tei_attach *attach, uint64_t addr, uint64_t length)
{
    const struct rdma_attach *a = tei_container_of(attach, const struct rdma_attach, base);
    size_t n = a->peer->n_devices, at;
    uint64_t part;

    if (!a->has_keyless)
        return true;
    for (uint64_t done = 0; done < length; done += part)
        if (!tei_segment_cover(a->seg, addr + done, length - done, &at, &part) ||
            !has_key(a->rkeys + at * n, n))
            return false;
    return true;
}

static int refuse(const char *why)
{
    return tei_err_keep(TE_ERR_UNSUPPORTED, why);
}

/* The devices that the matrix does not have are those that do not work at the moment. */
static void note_active(struct rdma_peer *p, const struct tei_topology *matrix)
{
    const char **names;
    size_t n;

    if (matrix->n_rows == 0 || tei_topology_devices(matrix, &names, &n) != 0)
        return;
    pthread_mutex_lock(&p->lock);
    for (size_t d = 0; d < p->n_devices; d++) {
        bool in = n == 0;

        for (size_t i = 0; i < n && !in; i++)
            in = strcmp(names[i], p->devices[d].name) == 0;
        tei_paths_peer_changed(&p->paths, d, in);
    }
    pthread_mutex_unlock(&p->lock);
    free(names);
}

static void forget(struct rdma_attach *a)
{
    size_t n = (tei_rdma_of(a->base.transport)->matrix.n_rows + 1) * (a->matrix.n_rows + 1);

    for (size_t i = 0; a->routes && i < n; i++)
        free(a->routes[i]);
    free(a->routes);
    free(a->rows);
    free(a->rkeys);
    tei_topology_fini(&a->matrix);
    tei_segment_put(a->seg);
}

static int find_peer(struct rdma *t, struct rdma_attach *a, const struct tei_hostport *where)
{
    const json_t *bound = json_object_get(a->seg->root, "rdma_server_name");
    const char *server = json_is_string(bound) ? json_string_value(bound) : a->seg->name;
    struct tei_rdma_device *devices;
    size_t n;
    int rc = tei_rdma_devices_decode(a->seg->root, &devices, &n);

    if (rc)
        return rc;
    if (n == 0 || n > TEI_PATH_NICS) {
        free(devices);
        return refuse(n ? "the peer has more NICs than this engine can tell apart"
                        : "the peer's descriptor has no RDMA devices");
    }
    rc = read_buffers(a, n);
    if (rc)
        free(devices);
    else
        rc = get_peer(t, server, a->seg->incarnation, where, devices, n, &a->peer);
    return rc;
}

int tei_rdma_attach(struct tei_transport *base, struct tei_attach *attach,
                    const struct tei_segment *s, const struct tei_hostport *where)
{
    struct rdma *t = tei_rdma_of(base);
    struct rdma_attach *a = attach_of(attach);
    int rc;

    if (!tei_segment_speaks(s, "rdma"))
        return refuse("the peer's protocol is not rdma");
    a->base.transport = base;
    a->seg = tei_segment_get((struct tei_segment *)s);
    rc = read_matrix(s->root, &a->matrix);
    if (!rc) {
        a->routes = calloc((t->matrix.n_rows + 1) * (a->matrix.n_rows + 1),
                           sizeof(struct tei_path_route *));
        rc = a->routes ? find_peer(t, a, where)
                       : TEI_FAIL(TE_ERR_MEMORY, "no memory for the routes to a peer");
    }
    if (rc) {
        forget(a);
        return rc;
    }
    note_active(a->peer, &a->matrix);
    return 0;
}

void tei_rdma_detach(struct tei_transport *base, struct tei_attach *attach)
{
    struct rdma_attach *a = attach_of(attach);

    (void)base;
    tei_rdma_peer_put(a->peer);
    forget(a);
}

/* Its queue pairs lead to a process that is no more. */
void tei_rdma_peer_gone(struct tei_transport *base, struct tei_attach *attach)
{
    struct rdma_peer *p = attach_of(attach)->peer;
    size_t n = tei_rdma_of(base)->n_nics * p->n_devices;

    for (size_t i = 0; i < n; i++) {
        struct rdma_endpoint *ep;

        pthread_mutex_lock(&p->lock);
        ep = p->eps[i];
        p->eps[i] = NULL;
        pthread_mutex_unlock(&p->lock);
        if (!ep)
            continue;
        if (!tei_rdma_ep_outlives(ep, p->id))
            tei_rdma_ep_fail(ep, 0, "the peer is gone or was started anew");
        tei_rdma_ep_put(ep);
    }
}

/* ---------------------------------------------------------------------------------------- routes */

static void add_local(const struct rdma *t, char *const *names, size_t n, struct tei_path_list *out)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < t->n_nics && out->n < TEI_PATH_NICS; k++)
            if (strcmp(names[i], t->nics[k].name) == 0)
                out->nic[out->n++] = (uint8_t)k;
}

static void add_remote(const struct rdma_peer *p, char *const *names, size_t n,
                       struct tei_path_list *out)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < p->n_devices && out->n < TEI_PATH_NICS; k++)
            if (strcmp(names[i], p->devices[k].name) == 0)
                out->nic[out->n++] = (uint8_t)k;
}

static void make_route(struct rdma_attach *a, size_t here, size_t there, struct tei_path_route *out)
{
    const struct rdma *t = a->peer->t;
    struct tei_path_list l[4] = {{0}};

    if (here < t->matrix.n_rows) {
        const struct tei_topology_row *r = &t->matrix.rows[here];

        add_local(t, r->preferred, r->n_preferred, &l[0]);
        add_local(t, r->available, r->n_available, &l[1]);
    }
    if (there < a->matrix.n_rows) {
        const struct tei_topology_row *r = &a->matrix.rows[there];

        add_remote(a->peer, r->preferred, r->n_preferred, &l[2]);
        add_remote(a->peer, r->available, r->n_available, &l[3]);
    }
    tei_paths_route(&a->peer->paths, &l[0], &l[1], &l[2], &l[3], out);
}

struct tei_path_route *tei_rdma_route(struct rdma_attach *a, size_t row, size_t buffer)
{
    struct tei_path_route **r = &a->routes[row * (a->matrix.n_rows + 1) + a->rows[buffer]];

    if (!*r) {
        *r = calloc(1, sizeof **r);
        if (*r)
            make_route(a, row, a->rows[buffer], *r);
    }
    return *r;
}
