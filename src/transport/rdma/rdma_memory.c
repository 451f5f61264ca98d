/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_memory.c - registered memory: one memory region for each NIC and each chunk that a NIC can
 * register at once.
 *
 * Registering pins pages and fills tables of the device, up to seconds for large memory, and each
 * NIC does it by itself. So NICs are told at the same time, each in a thread that lives as long as
 * the call, where MC_ENABLE_PARALLEL_REG_MR says so; by itself where there are several NICs and the
 * pages are there already, for else the threads would only meet in the kernel's page faults. There
 * are no more threads than MC_MAX_CONCURRENT_REG_MR says.
 *
 * Memory that is this engine's own gets no rights for peers, so no key of it opens anything.
 *
 * Memory of a GPU is registered by its addresses where a module of the kernel (nvidia-peermem)
 * answers for them, or through dma-bufs that its driver exports. Either all NICs take a region or
 * none does: else the core would have to know which NIC a request goes through. One that they
 * do not take the core stages, and peers find no key of it.
 *
 * A NIC that has failed is passed over: it gets its part when it is opened anew.
 */
#include "plat/plat.h"
#include "transport/rdma/rdma.h"
#include "transport/rdma/rdma_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PARALLEL_MIN ((size_t)4 << 20) /* bytes below which threads cost more than they gain */

/* One NIC's part of a registration. */
struct task {
    struct rdma_nic *nic;
    struct rdma_memory *memory;
    int errnum;    /* 0: it is registered */
    char why[128]; /* what the driver said, if it was not the NIC that refused */
};

/* One thread of a registration, for each `step`-th of the tasks from `first` on. */
struct hand {
    struct task *tasks;
    size_t n_tasks, first, step;
    pthread_t thread;
    bool started;
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

/* Registers a dma-buf of the range, which the memory region keeps. NULL and errno. */
static struct ibv_mr *register_dmabuf(struct task *k, uintptr_t addr, size_t length,
                                      unsigned access)
{
    const struct tei_verbs *v = &k->nic->t->verbs;
    struct tei_mem_info info;
    struct ibv_mr *mr;
    uint64_t offset;
    int fd, rc;

    if (!v->reg_dmabuf_mr) {
        snprintf(k->why, sizeof k->why, "libibverbs has no ibv_reg_dmabuf_mr");
        errno = EOPNOTSUPP;
        return NULL;
    }
    rc = tei_mem_inspect((void *)addr, length, &info);
    if (!rc)
        rc = tei_gpu_dmabuf(&info, addr, length, &fd, &offset);
    if (rc) {
        snprintf(k->why, sizeof k->why, "%.127s", te_errmsg());
        errno = EOPNOTSUPP;
        return NULL;
    }
    mr = v->reg_dmabuf_mr(k->nic->pd, offset, length, addr, fd, (int)access);
    rc = errno;
    close(fd);
    errno = rc;
    return mr;
}

static struct ibv_mr *register_chunk(struct task *k, uintptr_t addr, size_t length)
{
    struct rdma_nic *n = k->nic;
    const struct tei_verbs *v = &n->t->verbs;
    unsigned access = access_of(n, k->memory->region);

    if (k->memory->dmabuf)
        return register_dmabuf(k, addr, length, access);
    if (access & IBV_ACCESS_RELAXED_ORDERING)
        return v->reg_mr_iova2(n->pd, (void *)addr, length, addr, access);
    return v->reg_mr(n->pd, (void *)addr, length, (int)access);
}

static void register_at(struct task *k)
{
    struct rdma_memory *m = k->memory;

    for (size_t c = 0; c < m->n_chunks && !k->errnum; c++) {
        uint64_t from = c * m->chunk;
        struct rdma_keys *keys = &m->at[k->nic->index * m->n_chunks + c];
        struct ibv_mr *mr = register_chunk(k, m->region->addr + from,
                                           (size_t)tei_min(m->chunk, m->region->length - from));

        keys->mr = mr;
        atomic_store_explicit(&keys->lkey, mr ? mr->lkey : 0, memory_order_relaxed);
        atomic_store_explicit(&keys->rkey, mr ? mr->rkey : 0, memory_order_relaxed);
        if (!mr)
            k->errnum = errno ? errno : EINVAL;
    }
}

static void *register_some(void *arg)
{
    struct hand *h = arg;

    for (size_t i = h->first; i < h->n_tasks; i += h->step)
        register_at(&h->tasks[i]);
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
    return t->n_nics > 1 && r->length >= PARALLEL_MIN &&
           (r->kind != TEI_MEM_HOST || was_touched(r));
}

static int refused(const struct task *k)
{
    return TEI_FAIL(TE_ERR_MEMORY, "rdma: NIC %s does not register %zu bytes at 0x%zx: %s%s",
                    k->nic->name, k->memory->region->length, (size_t)k->memory->region->addr,
                    tei_errno_text(k->errnum),
                    k->errnum == ENOMEM ? "; look at the limit of locked memory (ulimit -l)" : "");
}

/* How many threads register at `n` NICs, the caller's among them. */
static size_t count_hands(const struct rdma *t, const struct tei_region *r, size_t n)
{
    size_t most = (size_t)t->conf->max_concurrent_reg_mr;

    if (!in_parallel(t, r))
        return tei_min(n, 1);
    return most > 0 ? tei_min(n, most) : n;
}

static void run_tasks(struct task *tasks, size_t n, size_t n_hands)
{
    struct hand hands[RDMA_NICS_MAX];

    for (size_t i = 0; i < n_hands; i++) {
        hands[i] = (struct hand){.tasks = tasks, .n_tasks = n, .first = i, .step = n_hands};
        /* The last one is the caller's own. */
        hands[i].started = i + 1 < n_hands && tei_thread_start(&hands[i].thread, "te/reg",
                                                               register_some, &hands[i]) == 0;
        if (!hands[i].started)
            register_some(&hands[i]);
    }
    for (size_t i = 0; i < n_hands; i++)
        if (hands[i].started)
            pthread_join(hands[i].thread, NULL);
}

/* At all NICs that work; how many. */
static size_t register_each(struct rdma *t, struct rdma_memory *m, struct task *tasks)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n_nics; i++)
        /* One that has failed gets its part when it is opened anew. */
        if (t->nics[i].context && !atomic_load(&t->nics[i].broken))
            tasks[n++] = (struct task){.nic = &t->nics[i], .memory = m};
    run_tasks(tasks, n, count_hands(t, m->region, n));
    return n;
}

/* 0: all NICs have it, else why the first of them does not: in `failed`, unlogged. */
static int register_all(struct rdma *t, struct rdma_memory *m, struct task *failed)
{
    struct task tasks[RDMA_NICS_MAX];
    size_t n = register_each(t, m, tasks);

    for (size_t i = 0; i < n; i++) {
        if (tasks[i].errnum) {
            *failed = tasks[i];
            return TE_ERR_UNSUPPORTED;
        }
    }
    return 0;
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

/* Sets which NICs do not have it. memory_lock is held. */
static void set_lost(struct rdma *t, struct rdma_memory *m, uint32_t lost)
{
    uint32_t before = atomic_exchange_explicit(&m->lost, lost, memory_order_relaxed);

    if (!before == !lost)
        return;
    pthread_mutex_lock(&t->keys_lock);
    if (lost) {
        tei_list_push_back(&t->lacking, &m->lacking);
        atomic_fetch_add_explicit(&t->n_lacking, 1, memory_order_relaxed);
    } else {
        tei_list_del(&m->lacking);
        atomic_fetch_sub_explicit(&t->n_lacking, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&t->keys_lock);
}

static void set_lost_to(struct rdma_nic *n, struct rdma_memory *m, bool lost)
{
    uint32_t bit = UINT32_C(1) << n->index;
    uint32_t before = atomic_load_explicit(&m->lost, memory_order_relaxed);

    set_lost(n->t, m, lost ? before | bit : before & ~bit);
}

uint32_t tei_rdma_memory_lost(struct rdma *t, uintptr_t addr)
{
    struct tei_link *link, *next;
    uint32_t lost = 0;

    /* Relaxed: of what is lost at this moment a request may see either. */
    if (atomic_load_explicit(&t->n_lacking, memory_order_relaxed) == 0)
        return 0;
    pthread_mutex_lock(&t->keys_lock);
    TEI_LIST_EACH(&t->lacking, link, next) {
        const struct rdma_memory *m = tei_container_of(link, struct rdma_memory, lacking);

        if (tei_region_contains(m->region, addr, 1))
            lost = atomic_load_explicit(&m->lost, memory_order_relaxed);
    }
    pthread_mutex_unlock(&t->keys_lock);
    return lost;
}

/* The NIC has no keys of this from here on. `when`: that it was opened anew, or nothing. */
static void lose(const struct task *k, const char *when)
{
    struct rdma_memory *m = k->memory;

    deregister_at(k->nic, m);
    set_lost_to(k->nic, m, true);
    TEI_WARN(
        "rdma: NIC %s%s does not take the %zu bytes of %s at 0x%zx: %s; other NICs carry them, "
        "if any",
        k->nic->name, when, m->region->length, m->region->location, (size_t)m->region->addr,
        k->why[0] ? k->why : tei_errno_text(k->errnum));
}

/* Whether it is the device that has failed, which may not have told so yet, and not the memory. */
static bool is_of_device(int errnum)
{
    return errnum == EIO || errnum == ENODEV || errnum == ENXIO;
}

/* Memory of the host is for all NICs, but for those that have failed, as long as there is another. */
static int register_host(struct rdma *t, struct rdma_memory *m)
{
    struct task tasks[RDMA_NICS_MAX];
    size_t n = register_each(t, m, tasks), taken = 0;
    const struct task *failed = NULL;

    for (size_t i = 0; i < n; i++) {
        taken += !tasks[i].errnum;
        if (tasks[i].errnum && (!failed || is_of_device(failed->errnum)))
            failed = &tasks[i];
    }
    if (failed && (taken == 0 || !is_of_device(failed->errnum))) {
        deregister_all(t, m);
        return refused(failed);
    }
    for (size_t i = 0; i < n; i++)
        if (tasks[i].errnum)
            lose(&tasks[i], "");
    return 0;
}

/* In the order in which they are tried; true: through dma-bufs. How many there are. */
static size_t ways_of(const struct tei_conf *c, uint8_t kind, bool dmabuf[2])
{
    bool hip = kind == TEI_MEM_HIP, cuda = kind == TEI_MEM_CUDA;

    dmabuf[0] = hip ? !c->disable_hip_dmabuf : cuda && !c->nvidia_peermem;
    dmabuf[1] = !dmabuf[0];
    return (hip && c->disable_hip_dmabuf) || (cuda && !c->nvidia_peermem) ? 1 : 2;
}

static const char *remedy(uint8_t kind)
{
    return kind == TEI_MEM_CUDA
               ? "load the module nvidia-peermem (modprobe nvidia-peermem), or use a kernel, driver "
                 "and libibverbs with dma-buf"
           : kind == TEI_MEM_ASCEND
               ? "use a kernel and driver by which NICs of this host reach memory of NPUs by its "
                 "addresses; the NPU's own NICs are not reached by libibverbs"
               : "use a kernel, driver and libibverbs with dma-buf";
}

/* What is said once of memory that no way leads to. memory_lock is held. */
static int refuse_device(struct rdma *t, const struct tei_region *r, const char *said)
{
    char text[640];

    snprintf(text, sizeof text, "rdma: no NIC reaches the memory at %s (%s)", r->location, said);
    if (!t->told_staged)
        TEI_WARN("%s: it goes through host memory, and peers do not reach it by rdma; %s", text,
                 remedy(r->kind));
    t->told_staged = true;
    return tei_err_keep(TE_ERR_UNSUPPORTED, text);
}

static int register_device(struct rdma *t, struct rdma_memory *m)
{
    bool ways[2];
    size_t n = ways_of(t->conf, m->region->kind, ways), used = 0;
    char said[448] = "";

    for (size_t i = 0; i < n; i++) {
        struct task failed = {0};
        int rc;

        m->dmabuf = ways[i];
        rc = register_all(t, m, &failed);
        if (!rc)
            return 0;
        deregister_all(t, m);
        if (!failed.errnum)
            return rc;
        used += (size_t)snprintf(said + used, sizeof said - used, "%s%.60s, by %s: %.100s",
                                 used ? "; " : "", failed.nic->name,
                                 ways[i] ? "dma-buf" : "its addresses",
                                 failed.why[0] ? failed.why : tei_errno_text(failed.errnum));
    }
    return refuse_device(t, m->region, said);
}

int tei_rdma_memory_join(struct rdma_nic *n)
{
    struct tei_link *link, *next;

    TEI_LIST_EACH(&n->t->memories, link, next) {
        struct rdma_memory *m = tei_container_of(link, struct rdma_memory, link);
        struct task k = {.nic = n, .memory = m};

        register_at(&k);
        if (k.errnum && m->region->kind == TEI_MEM_HOST)
            return refused(&k);
        if (k.errnum)
            lose(&k, ", opened anew,");
        else
            set_lost_to(n, m, false);
    }
    return 0;
}

void tei_rdma_memory_leave(struct rdma_nic *n)
{
    struct tei_link *link, *next;

    TEI_LIST_EACH(&n->t->memories, link, next)
        deregister_at(n, tei_container_of(link, struct rdma_memory, link));
}

/* The matrix row of a location; n_rows if it has none, and a WARN unless none was to be had: "*". */
static size_t row_of(const struct rdma *t, const char *location)
{
    for (size_t i = 0; i < t->matrix.n_rows; i++)
        if (strcmp(t->matrix.rows[i].location, location) == 0)
            return i;
    if (strcmp(location, "*") != 0)
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
    pthread_mutex_lock(&t->memory_lock);
    rc = r->kind == TEI_MEM_HOST ? register_host(t, m) : register_device(t, m);
    if (!rc) {
        m->row = row_of(t, r->location);
        atomic_fetch_add_explicit(&t->row_users[m->row], 1, memory_order_relaxed);
        tei_list_push_back(&t->memories, &m->link);
    }
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
    set_lost(t, m, 0);
    tei_list_del(&m->link);
    atomic_fetch_sub_explicit(&t->row_users[m->row], 1, memory_order_relaxed);
    pthread_mutex_unlock(&t->memory_lock);
    /* While an engine ends its regions are still described to who asks. */
    pthread_mutex_lock(&t->keys_lock);
    r->keys[base->index] = NULL;
    pthread_mutex_unlock(&t->keys_lock);
    free(m);
    return 0;
}

/*
 * The keys of the NICs that the descriptor has, *n of them; of 0, and false, if the region is not
 * registered, or not any more.
 */
static bool read_keys(struct rdma *t, const struct tei_region *r, uint64_t addr, uint32_t *rkeys,
                      uint32_t *lkeys, size_t *n)
{
    const struct rdma_memory *m;

    *n = 0;
    pthread_mutex_lock(&t->keys_lock);
    m = r->keys[t->base.index];
    for (size_t i = 0; i < t->n_nics; i++) {
        const struct rdma_keys *keys = m ? tei_rdma_keys_at(m, i, addr) : NULL;

        if (t->nics[i].absent)
            continue;
        rkeys[*n] = keys ? atomic_load_explicit(&keys->rkey, memory_order_relaxed) : 0;
        lkeys[*n] = keys ? atomic_load_explicit(&keys->lkey, memory_order_relaxed) : 0;
        ++*n;
    }
    pthread_mutex_unlock(&t->keys_lock);
    return m != NULL;
}

int tei_rdma_describe_buffer(struct tei_transport *base, const struct tei_region *r, uint64_t addr,
                             json_t *object)
{
    struct rdma *t = tei_rdma_of(base);
    uint32_t rkeys[RDMA_NICS_MAX], lkeys[RDMA_NICS_MAX];
    size_t n;

    /*
     * What NICs do not take, or for some peers only, which a NIC cannot tell apart, has keys of 0: other engines refuse a
     * descriptor without any.
     */
    if (!read_keys(t, r, addr, rkeys, lkeys, &n) && r->kind == TEI_MEM_HOST)
        return tei_err_keep(TE_ERR_CLOSED, "the rdma transport is going");
    if (!r->access)
        memset(rkeys, 0, n * sizeof rkeys[0]);
    if (json_object_set_new(object, "name", json_string(r->location)) ||
        tei_rdma_keys_encode(object, rkeys, lkeys, n))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the keys of a buffer");
    return 0;
}
