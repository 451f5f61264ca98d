/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpuipc.c - nvlink_intra, nvlink and the one of each other maker: their ops. Read gpuipc.h first.
 *
 * A descriptor has te.gpu.<name> of every one of them that is installed; where one is the protocol, each
 * buffer has "shm_name" too, as engines of another make write and read it.
 */
#include "transport/gpuipc/gpuipc.h"

#include "base/err.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCORE 95 /* above the network, and the host's memory */

/* -------------------------------------------------------------------------------------- lifecycle */

static bool has_driver(enum tei_mem_kind kind, bool disabled, const char *option, char *why,
                       size_t n)
{
    if (disabled)
        snprintf(why, n, "%s is on", option);
    else if (!tei_gpu_is_there(kind))
        snprintf(why, n, "there is no %s driver", tei_gpu_title(kind));
    else
        return true;
    return false;
}

#define PROBE(name, kind, disabled, option)                                    \
    static bool name##_probe(const struct tei_conf *conf, char *why, size_t n) \
    {                                                                          \
        (void)conf;                                                            \
        return has_driver(kind, disabled, option, why, n);                     \
    }
PROBE(cuda, TEI_MEM_CUDA, false, NULL)
PROBE(hip, TEI_MEM_HIP, conf->disable_hip, "MC_DISABLE_HIP")
PROBE(ascend, TEI_MEM_ASCEND, false, NULL)
PROBE(musa, TEI_MEM_MUSA, conf->disable_musa, "MC_DISABLE_MUSA")
PROBE(maca, TEI_MEM_MACA, conf->disable_maca, "MC_DISABLE_MACA")
PROBE(supa, TEI_MEM_SUPA, false, NULL)

static int look_at_devices(struct gpuipc *g, bool *all_fabric)
{
    g->n_devices = (size_t)tei_gpu_count(g->kind);
    g->uuids = calloc(g->n_devices + 1, sizeof(g->uuids[0]));
    if (!g->uuids)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a list of devices");
    *all_fabric = g->n_devices > 0;
    for (size_t i = 0; i < g->n_devices; i++) {
        bool fabric = tei_gpu_has_fabric(g->kind, (int)i);
        int rc = tei_gpu_uuid(g->kind, (int)i, g->uuids[i]);

        if (rc)
            return rc;
        g->has_fabric |= fabric;
        *all_fabric &= fabric;
    }
    return 0;
}

/* Which handles are given out. */
static enum tei_gpu_sort choose_sort(const struct gpuipc *g, bool all_fabric)
{
    const struct tei_conf *c = g->base.host->conf;

    if (g->kind == TEI_MEM_HIP)
        return c->use_hip_ipc ? TEI_GPU_IPC : TEI_GPU_FABRIC;
    if (strcmp(g->base.ops.name, "nvlink") != 0 || c->use_nvlink_ipc)
        return TEI_GPU_IPC;
    if (!all_fabric)
        TEI_INFO("nvlink: not every device can have memory for other hosts; only processes of this "
                 "host are reached");
    return all_fabric ? TEI_GPU_FABRIC : TEI_GPU_IPC;
}

static void init(struct gpuipc *g)
{
    pthread_mutex_init(&g->lock, NULL);
    tei_cond_init(&g->quiet);
    tei_list_init(&g->wanted);
    tei_list_init(&g->idle);
    tei_ledger_init(&g->ledger, g->base.host->conf->transfer_timeout_ms);
    tei_ledger_init(&g->unmapped, g->base.host->conf->transfer_timeout_ms);
    tei_list_init(&g->over);
    while (!(g->base.ops.target_kinds & TEI_MEM_BIT(g->kind)))
        g->kind++;
    g->ready = true;
}

static int gpuipc_open(struct tei_transport *t)
{
    struct gpuipc *g = tei_gpuipc_of(t);
    bool all_fabric = false;
    char thread[16];
    int rc;

    init(g);
    rc = tei_gpu_open(g->kind);
    if (!rc)
        rc = look_at_devices(g, &all_fabric);
    if (rc)
        return rc;
    g->sort = choose_sort(g, all_fabric);
    rc = tei_gpuipc_table_make(g, &g->table);
    snprintf(thread, sizeof(thread), "te/%s", t->ops.name);
    return rc ? rc : tei_mover_start(thread, t->host->conf, tei_gpuipc_ended, g, &g->mover);
}

static void gpuipc_stop(struct tei_transport *t)
{
    struct gpuipc *g = tei_gpuipc_of(t);

    tei_gpuipc_close(t);
    pthread_mutex_lock(&g->lock);
    while (g->guests || g->job_is_out || g->tell_is_out)
        pthread_cond_wait(&g->quiet, &g->lock);
    pthread_mutex_unlock(&g->lock);
    tei_mover_destroy(g->mover);
    g->mover = NULL;
}

static void gpuipc_fini(struct tei_transport *t)
{
    struct gpuipc *g = tei_gpuipc_of(t);

    if (!g->ready)
        return;
    tei_gpuipc_unmap_all(g);
    tei_gpuipc_table_end(g->table);
    tei_gpuipc_table_put(g->table);
    free(g->uuids);
    pthread_cond_destroy(&g->quiet);
    pthread_mutex_destroy(&g->lock);
}

/* ----------------------------------------------------------------------------------------- routing */

static const struct gpuipc_known *find_known(const struct tei_attach *a, const te_request *r)
{
    return tei_gpuipc_find((const struct gpuipc_attach *)a, r->target_offset, r->length);
}

static bool is_refused(const struct gpuipc_known *k)
{
    /* Acquire: partner of the release with which it is refused. */
    return atomic_load_explicit(&k->memory->state, memory_order_acquire) == GPUIPC_REFUSED;
}

static unsigned gpuipc_score(struct tei_transport *t, const struct tei_attach *a,
                             const te_request *r)
{
    const struct gpuipc_known *k = a ? find_known(a, r) : NULL;

    (void)t;
    return k && !is_refused(k) ? SCORE : 0;
}

static void gpuipc_why_not(struct tei_transport *t, const struct tei_attach *a, const te_request *r,
                           char *why, size_t n)
{
    const struct gpuipc_known *k = a ? find_known(a, r) : NULL;

    (void)t;
    if (!k)
        snprintf(why, n, "the range is not within one allocation that the target shares this way");
    else if (is_refused(k))
        snprintf(why, n, "the driver does not map the target's memory: %s",
                 k->memory->why ? k->memory->why : "no memory");
    else
        snprintf(why, n, "cannot carry this request");
}

#define GPUIPC_OPS(scheme, own_kind, with, own_probe)                                              \
    {                                                                                              \
        .name = (scheme), .abi = TEI_TRANSPORT_ABI,                                                \
        .caps = TEI_CAP_REMOTE | TEI_CAP_DEVICE | TEI_CAP_SETTLED | TEI_CAP_LIVES,                 \
        .mem_kinds = TEI_MEM_BIT(TEI_MEM_HOST) | TEI_MEM_BIT(own_kind),                            \
        .target_kinds = TEI_MEM_BIT(own_kind), .beside = TEI_MEM_BIT(own_kind) | (with),           \
        .size = sizeof(struct gpuipc), .work_size = sizeof(struct gpuipc_work),                    \
        .attach_size = sizeof(struct gpuipc_attach), .probe = (own_probe), .open = gpuipc_open,    \
        .describe = tei_gpuipc_describe, .describe_buffer = tei_gpuipc_describe_buffer,            \
        .attach = tei_gpuipc_attach, .detach = tei_gpuipc_detach,                                  \
        .peer_gone = tei_gpuipc_peer_gone, .score = gpuipc_score, .why_not = gpuipc_why_not,       \
        .post = tei_gpuipc_post, .cancel = tei_gpuipc_cancel, .region_add = tei_gpuipc_region_add, \
        .region_del = tei_gpuipc_region_del, .close = tei_gpuipc_close, .stop = gpuipc_stop,       \
        .fini = gpuipc_fini,                                                                       \
    }

/* Named by transports.def. */
extern const struct tei_transport_ops tei_nvlink_intra_ops, tei_nvlink_ops, tei_hip_ops,
    tei_ascend_ops, tei_musa_ops, tei_maca_ops, tei_supa_ops;

const struct tei_transport_ops tei_nvlink_intra_ops =
    GPUIPC_OPS("nvlink_intra", TEI_MEM_CUDA, 0, cuda_probe);
/* Without memory that a fabric takes, it would do what nvlink_intra does. */
const struct tei_transport_ops tei_nvlink_ops =
    GPUIPC_OPS("nvlink", TEI_MEM_CUDA, TEI_KIND_FABRIC, cuda_probe);
const struct tei_transport_ops tei_hip_ops = GPUIPC_OPS("hip", TEI_MEM_HIP, 0, hip_probe);
const struct tei_transport_ops tei_ascend_ops =
    GPUIPC_OPS("ascend", TEI_MEM_ASCEND, 0, ascend_probe);
const struct tei_transport_ops tei_musa_ops = GPUIPC_OPS("musa", TEI_MEM_MUSA, 0, musa_probe);
const struct tei_transport_ops tei_maca_ops = GPUIPC_OPS("maca", TEI_MEM_MACA, 0, maca_probe);
const struct tei_transport_ops tei_supa_ops = GPUIPC_OPS("supa", TEI_MEM_SUPA, 0, supa_probe);
