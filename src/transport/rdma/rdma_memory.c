/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_memory.c - registered memory: one memory region for each NIC and each chunk that a NIC can
 * register at once.
 *
 * Registering pins pages and fills tables of the device, up to seconds for large memory, and each
 * NIC does it by itself. So NICs are told at the same time, each in a thread that lives as long as
 * the call, where MC_ENABLE_PARALLEL_REG_MR says so; by itself where there are several NICs and the
 * pages are there already, for else the threads would only meet in the kernel's page faults.
 *
 * Memory that is this engine's own gets no rights for peers, so no key of it opens anything.
 */
#include "transport/rdma/rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PARALLEL_MIN ((size_t)4 << 20) /* bytes below which threads cost more than they gain */

/* One NIC's part of a registration. */
struct task {
    struct rdma_nic *nic;
    struct rdma_memory *memory;
    pthread_t thread;
    bool started;
    int errnum;
};

static unsigned access_of(const struct rdma_nic *n, const struct tei_region *r)
{
    unsigned access = IBV_ACCESS_LOCAL_WRITE;

    if (r->access & TE_REMOTE_READ)
        access |= IBV_ACCESS_REMOTE_READ;
    if (r->access & TE_REMOTE_WRITE)
        access |= IBV_ACCESS_REMOTE_WRITE;
    if (n->t->conf->relaxed_ordering > 0 && n->t->verbs.reg_mr_iova2)
        access |= IBV_ACCESS_RELAXED_ORDERING;
    return access;
}

static struct ibv_mr *register_chunk(struct rdma_nic *n, uintptr_t addr, size_t length,
                                     unsigned access)
{
    const struct tei_verbs *v = &n->t->verbs;

    if (access & IBV_ACCESS_RELAXED_ORDERING)
        return v->reg_mr_iova2(n->pd, (void *)addr, length, addr, access);
    return v->reg_mr(n->pd, (void *)addr, length, (int)access);
}

static void *register_at(void *arg)
{
    struct task *k = arg;
    struct rdma_memory *m = k->memory;

    for (size_t c = 0; c < m->n_chunks && !k->errnum; c++) {
        uint64_t from = c * m->chunk;
        struct rdma_keys *keys = &m->at[k->nic->index * m->n_chunks + c];
        struct ibv_mr *mr = register_chunk(k->nic, m->region->addr + from,
                                           (size_t)tei_min(m->chunk, m->region->length - from),
                                           access_of(k->nic, m->region));

        keys->mr = mr;
        atomic_store_explicit(&keys->lkey, mr ? mr->lkey : 0, memory_order_relaxed);
        atomic_store_explicit(&keys->rkey, mr ? mr->rkey : 0, memory_order_relaxed);
        if (!mr)
            k->errnum = errno ? errno : EINVAL;
    }
    return NULL;
}

/* Whether the first, a middle and the last page are in memory. */
static bool was_touched(const struct tei_region *r)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const size_t at[] = {0, r->length / 2, r->length - 1};

    for (size_t i = 0; i < TEI_ARRAY_LEN(at); i++) {
        unsigned char in = 0;

        if (mincore((void *)((r->addr + at[i]) & ~(page - 1)), 1, &in) != 0 || !(in & 1))
            return false;
    }
    return true;
}

static bool in_parallel(const struct rdma *t, const struct tei_region *r)
{
    if (t->conf->parallel_reg_mr >= 0)
        return t->conf->parallel_reg_mr > 0;
    return t->n_nics > 1 && r->length >= PARALLEL_MIN && was_touched(r);
}

static int refused(const struct task *k)
{
    return TEI_FAIL(TE_ERR_MEMORY, "rdma: NIC %s does not register %zu bytes at 0x%zx: %s%s",
                    k->nic->name, k->memory->region->length, (size_t)k->memory->region->addr,
                    tei_errno_text(k->errnum),
                    k->errnum == ENOMEM ? "; look at the limit of locked memory (ulimit -l)" : "");
}

static int register_all(struct rdma *t, struct rdma_memory *m)
{
    bool parallel = in_parallel(t, m->region);
    struct task *tasks = calloc(t->n_nics, sizeof *tasks);
    int rc = 0;

    if (!tasks)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to register with %zu NICs", t->n_nics);
    for (size_t i = 0; i < t->n_nics; i++) {
        tasks[i] = (struct task){.nic = &t->nics[i], .memory = m};
        /* One that has failed gets its part when it is opened anew. */
        if (!t->nics[i].context || atomic_load(&t->nics[i].broken))
            continue;
        /* The last one is the caller's own. */
        tasks[i].started =
            parallel && i + 1 < t->n_nics &&
            tei_thread_start(&tasks[i].thread, "te/reg", register_at, &tasks[i]) == 0;
        if (!tasks[i].started)
            register_at(&tasks[i]);
    }
    for (size_t i = 0; i < t->n_nics; i++) {
        if (tasks[i].started)
            pthread_join(tasks[i].thread, NULL);
        if (tasks[i].errnum && !rc)
            rc = refused(&tasks[i]);
    }
    free(tasks);
    return rc;
}

static void deregister_at(struct rdma_nic *n, struct rdma_memory *m)
{
    for (size_t c = 0; c < m->n_chunks; c++) {
        struct rdma_keys *keys = &m->at[n->index * m->n_chunks + c];

        if (keys->mr)
            n->t->verbs.dereg_mr(keys->mr);
        keys->mr = NULL;
        atomic_store_explicit(&keys->lkey, 0, memory_order_relaxed);
        atomic_store_explicit(&keys->rkey, 0, memory_order_relaxed);
    }
}

static void deregister_all(struct rdma *t, struct rdma_memory *m)
{
    for (size_t i = 0; i < t->n_nics; i++)
        deregister_at(&t->nics[i], m);
}

int tei_rdma_memory_join(struct rdma_nic *n)
{
    struct tei_link *link, *next;
    struct task k = {.nic = n};

    TEI_LIST_EACH(&n->t->memories, link, next) {
        k.memory = tei_container_of(link, struct rdma_memory, link);
        register_at(&k);
        if (k.errnum)
            return refused(&k);
    }
    return 0;
}

void tei_rdma_memory_leave(struct rdma_nic *n)
{
    struct tei_link *link, *next;

    TEI_LIST_EACH(&n->t->memories, link, next)
        deregister_at(n, tei_container_of(link, struct rdma_memory, link));
}

/* The matrix row of a location; n_rows, and a WARN, if it has none. */
static size_t row_of(const struct rdma *t, const char *location)
{
    for (size_t i = 0; i < t->matrix.n_rows; i++)
        if (strcmp(t->matrix.rows[i].location, location) == 0)
            return i;
    TEI_WARN("rdma: the topology does not know location '%s': its memory goes through all NICs",
             location);
    return t->matrix.n_rows;
}

int tei_rdma_region_add(struct tei_transport *base, struct tei_region *r)
{
    struct rdma *t = tei_rdma_of(base);
    size_t n_chunks = (size_t)((r->length - 1) / t->chunk) + 1;
    struct rdma_memory *m = calloc(1, sizeof *m + t->n_nics * n_chunks * sizeof m->at[0]);
    int rc;

    if (!m)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to register with %zu NICs", t->n_nics);
    m->region = r;
    m->chunk = t->chunk;
    m->n_chunks = n_chunks;
    m->row = row_of(t, r->location);
    pthread_mutex_lock(&t->memory_lock);
    rc = register_all(t, m);
    if (rc)
        deregister_all(t, m);
    else
        tei_list_push_back(&t->memories, &m->link);
    pthread_mutex_unlock(&t->memory_lock);
    pthread_mutex_lock(&t->keys_lock);
    r->keys[base->index] = rc ? NULL : m;
    pthread_mutex_unlock(&t->keys_lock);
    if (rc)
        free(m);
    return rc;
}

/* The device itself keeps peers out from here on: no key of the region is good any more. */
int tei_rdma_region_del(struct tei_transport *base, struct tei_region *r)
{
    struct rdma *t = tei_rdma_of(base);
    struct rdma_memory *m = r->keys[base->index];

    if (!m)
        return 0;
    pthread_mutex_lock(&t->memory_lock);
    deregister_all(t, m);
    tei_list_del(&m->link);
    pthread_mutex_unlock(&t->memory_lock);
    /* While an engine ends its regions are still described to who asks. */
    pthread_mutex_lock(&t->keys_lock);
    r->keys[base->index] = NULL;
    pthread_mutex_unlock(&t->keys_lock);
    free(m);
    return 0;
}

/* false if the region is not registered any more. */
static bool read_keys(struct rdma *t, const struct tei_region *r, uint64_t addr, uint32_t *rkeys,
                      uint32_t *lkeys)
{
    const struct rdma_memory *m;

    pthread_mutex_lock(&t->keys_lock);
    m = r->keys[t->base.index];
    for (size_t i = 0; m && i < t->n_nics; i++) {
        const struct rdma_keys *keys = tei_rdma_keys_at(m, i, addr);

        rkeys[i] = atomic_load_explicit(&keys->rkey, memory_order_relaxed);
        lkeys[i] = atomic_load_explicit(&keys->lkey, memory_order_relaxed);
    }
    pthread_mutex_unlock(&t->keys_lock);
    return m != NULL;
}

int tei_rdma_describe_buffer(struct tei_transport *base, const struct tei_region *r, uint64_t addr,
                             json_t *object)
{
    struct rdma *t = tei_rdma_of(base);
    uint32_t rkeys[RDMA_NICS_MAX], lkeys[RDMA_NICS_MAX];

    if (!read_keys(t, r, addr, rkeys, lkeys))
        return tei_err_keep(TE_ERR_CLOSED, "the rdma transport is going");
    if (json_object_set_new(object, "name", json_string(r->location)) ||
        tei_rdma_keys_encode(object, rkeys, lkeys, t->n_nics))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the keys of a buffer");
    return 0;
}
