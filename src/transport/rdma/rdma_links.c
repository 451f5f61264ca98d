/* SPDX-License-Identifier: Apache-2.0 */
/* rdma_links.c - what this transport knows of its NICs, for te_links() and the metrics. */
#include "transport/rdma/rdma.h"

#include <stdio.h>
#include <string.h>

#define RATE_WINDOW_NS (100 * TEI_NS_PER_MS)

static uint64_t bytes_of(const struct rdma_nic *n, enum te_opcode op)
{
    return atomic_load_explicit(&n->n_bytes[op], memory_order_relaxed);
}

void tei_rdma_nic_measure(struct rdma_nic *n, int64_t now)
{
    uint64_t bytes = bytes_of(n, TE_READ) + bytes_of(n, TE_WRITE);
    int64_t took = now - n->rate_ns;

    if (took < RATE_WINDOW_NS)
        return;
    /* After a pause the first window tells of the pause as well, and is left out. */
    if (took < 2 * RATE_WINDOW_NS)
        atomic_store_explicit(&n->rate_bps,
                              (bytes - n->rate_bytes) * 8000 / (uint64_t)(took / TEI_NS_PER_MS),
                              memory_order_relaxed);
    n->rate_ns = now;
    n->rate_bytes = bytes;
}

static void set_gid(struct rdma_nic *n, json_t **j)
{
    char text[TEI_GID_TEXT];
    int index;

    pthread_mutex_lock(&n->port_lock);
    tei_gid_text(n->gid.gid, text);
    index = n->gid.index;
    pthread_mutex_unlock(&n->port_lock);
    tei_json_set(j, "gid", json_string(text));
    tei_json_set(j, "gid_index", json_integer(index));
}

static void set_load(struct rdma *t, struct rdma_nic *n, json_t **j)
{
    uint64_t flying = tei_path_nic_bytes(&t->path_nics, n->index);
    uint64_t rate = atomic_load_explicit(&n->rate_bps, memory_order_relaxed);

    tei_json_set(j, "port", json_integer(n->port));
    tei_json_set(j, "inflight_bytes", json_integer((json_int_t)flying));
    tei_json_set(j, "bandwidth_bps", json_integer((json_int_t)rate));
}

static json_t *nic_json(struct rdma *t, struct rdma_nic *n)
{
    bool used = atomic_load(&n->active);
    json_t *j = json_pack("{ss sb}", "device", n->name, "used", used);
    char why[sizeof n->why];

    pthread_mutex_lock(&n->port_lock);
    memcpy(why, n->why, sizeof why);
    pthread_mutex_unlock(&n->port_lock);
    if (!used)
        tei_json_set(&j, "why", json_string(why));
    if (n->n_gids > 0)
        set_gid(n, &j);
    set_load(t, n, &j);
    return j;
}

int tei_rdma_links(struct tei_transport *base, json_t *nics)
{
    struct rdma *t = tei_rdma_of(base);

    for (size_t i = 0; i < t->n_nics; i++)
        if (json_array_append_new(nics, nic_json(t, &t->nics[i])))
            return TE_ERR_MEMORY;
    return 0;
}

/* What peers do by themselves, with our memory, is not seen. */
void tei_rdma_nics(struct tei_transport *base, struct tei_nic_table *out)
{
    struct rdma *t = tei_rdma_of(base);

    for (size_t i = 0; i < t->n_nics; i++) {
        struct rdma_nic *n = &t->nics[i];
        struct tei_nic_figures f = {.bytes = {bytes_of(n, TE_WRITE), bytes_of(n, TE_READ)},
                                    .resent =
                                        atomic_load_explicit(&n->n_failed, memory_order_relaxed),
                                    .up = atomic_load(&n->active)};

        snprintf(f.name, sizeof(f.name), "%.*s", (int)sizeof(f.name) - 1, n->name);
        pthread_mutex_lock(&n->pool_lock);
        f.connections = n->n_live;
        pthread_mutex_unlock(&n->pool_lock);
        tei_nics_add(out, &f);
    }
}
