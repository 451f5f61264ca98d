/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmeof.c - the ops of the transport between memory and files. Until a segment of files is opened it
 * is a lock and two lists.
 */
#include "transport/nvmeof/nvmeof.h"

#include "base/err.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct nvmeof_attach *attach_of(struct tei_attach *a)
{
    return tei_container_of(a, struct nvmeof_attach, base);
}

/* --------------------------------------------------------------------------------------- open, close */

static int nvmeof_open(struct tei_transport *t)
{
    struct nvmeof *n = tei_nvmeof_of(t);

    n->conf = t->host->conf;
    pthread_mutex_init(&n->lock, NULL);
    tei_cond_init(&n->quiet);
    tei_list_init(&n->busy);
    tei_list_init(&n->ended);
    tei_list_init(&n->idle);
    n->late_ns = TEI_NEVER;
    n->ready = true;
    tei_nvmeof_names(t->host->segment_name, &n->names);
    return tei_nvmeof_roots_add_all(&n->roots, n->conf->file_paths);
}

static int nvmeof_allow(struct tei_transport *t, const char *path)
{
    return tei_nvmeof_roots_add(&tei_nvmeof_of(t)->roots, path);
}

/* What has no path here is nothing to be opened. */
static int admit_buffer(struct nvmeof *n, const struct tei_segment *s, const struct tei_buffer *b,
                        char *why, size_t len)
{
    char *path = tei_nvmeof_path(s, b->index, &n->names, why, len);
    int rc = path ? tei_nvmeof_admit(&n->roots, path, s->by_path, why, len) : 0;

    free(path);
    return rc;
}

static int nvmeof_admit(struct tei_transport *t, const struct tei_segment *s, uint64_t begin,
                        uint64_t length, char *why, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < s->n_buffers && !rc; i++) {
        const struct tei_buffer *b = &s->buffers[i];

        if (b->addr < begin + length && begin < b->addr + b->length)
            rc = admit_buffer(tei_nvmeof_of(t), s, b, why, n);
    }
    return rc;
}

/* Fails all work that one owner has posted; NULL: everybody's. */
static void fail_all(struct nvmeof *n, const void *owner)
{
    struct tei_link *l;
    bool started;

    pthread_mutex_lock(&n->lock);
    for (l = tei_list_first(&n->busy); l; l = tei_list_next(&n->busy, l)) {
        struct nvmeof_file *f = tei_container_of(l, struct nvmeof_file, busy);

        tei_ledger_fail(&f->ledger, owner, TE_ERR_CANCELED, NULL);
        tei_ledger_reap(&f->ledger, &n->ended);
    }
    n->cancels = true;
    n->closed |= !owner;
    started = n->started;
    pthread_mutex_unlock(&n->lock);
    if (started)
        tei_waker_ring(&n->waker);
}

static void nvmeof_cancel(struct tei_transport *t, const void *owner)
{
    fail_all(tei_nvmeof_of(t), owner);
}

static void nvmeof_close(struct tei_transport *t)
{
    fail_all(tei_nvmeof_of(t), NULL);
}

static void nvmeof_stop(struct tei_transport *t)
{
    nvmeof_close(t);
    tei_nvmeof_stop(tei_nvmeof_of(t));
}

static void nvmeof_fini(struct tei_transport *t)
{
    struct nvmeof *n = tei_nvmeof_of(t);

    if (!n->ready)
        return;
    tei_nvmeof_fini(n);
    tei_nvmeof_roots_fini(&n->roots);
    pthread_cond_destroy(&n->quiet);
    pthread_mutex_destroy(&n->lock);
}

/* ----------------------------------------------------------------------------------- attachments */

static void drop_parts(struct nvmeof_attach *a)
{
    while (a->n) {
        struct nvmeof_part *part = &a->parts[--a->n];

        if (part->file)
            tei_nvmeof_file_put(part->file);
        free(part->why);
    }
    free(a->parts);
}

static int add_part(struct nvmeof *n, struct nvmeof_attach *a, const struct tei_segment *s,
                    const struct tei_buffer *b)
{
    struct nvmeof_part *part = &a->parts[a->n];
    char why[1024], *path = tei_nvmeof_path(s, b->index, &n->names, why, sizeof why);

    *part = (struct nvmeof_part){.begin = b->addr, .length = b->length};
    if (path) {
        pthread_mutex_lock(&n->lock);
        part->file = tei_nvmeof_file_get(n, path, s->by_path);
        pthread_mutex_unlock(&n->lock);
        if (part->file)
            tei_nvmeof_file_look(part->file);
    } else {
        part->why = strdup(why);
    }
    if (!part->file && !part->why)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the files of a segment");
    a->n++;
    return 0;
}

static int nvmeof_attach(struct tei_transport *t, struct tei_attach *base,
                         const struct tei_segment *s, const struct tei_hostport *where)
{
    struct nvmeof_attach *a = attach_of(base);
    struct nvmeof *n = tei_nvmeof_of(t);
    int rc = tei_nvmeof_start(n);

    (void)where;
    if (rc)
        return rc;
    a->parts = calloc(s->n_buffers + 1, sizeof *a->parts);
    if (!a->parts)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the files of a segment");
    for (size_t i = 0; i < s->n_buffers && !rc; i++)
        rc = add_part(n, a, s, &s->buffers[i]);
    if (rc)
        drop_parts(a);
    return rc;
}

static void nvmeof_detach(struct tei_transport *t, struct tei_attach *a)
{
    (void)t;
    drop_parts(attach_of(a));
}

static unsigned nvmeof_score(struct tei_transport *t, const struct tei_attach *a,
                             const te_request *r)
{
    (void)t;
    (void)a;
    (void)r;
    return 100;
}

/* ------------------------------------------------------------------------------------------- work */

static const struct nvmeof_part *find_part(const struct nvmeof_attach *a, uint64_t at)
{
    size_t lo = 0, hi = a->n;

    while (lo + 1 < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (a->parts[mid].begin <= at)
            lo = mid;
        else
            hi = mid;
    }
    return &a->parts[lo];
}

/* Into its file's queue, or among those that end here. Lock held. */
static void take(struct nvmeof *n, struct nvmeof_work *w, int64_t now, struct tei_list *refused)
{
    const struct nvmeof_part *part =
        find_part(attach_of(w->entry.base.attach), w->entry.base.remote);
    struct tei_host *host = n->base.host;

    if (n->closed || !part->file) {
        w->entry.base.error = n->closed ? TE_ERR_CANCELED : TE_ERR_PEER; /* looked up anew */
        w->entry.base.why = n->closed ? NULL : host->note(host, &w->entry.base, part->why);
        tei_list_push_back(refused, &w->entry.base.link);
        return;
    }
    w->file = part->file;
    w->at = w->entry.base.remote - part->begin;
    w->looked = false;
    n->pending++;
    tei_ledger_post(&w->file->ledger, &w->entry, now);
    if (w->file->ledger.look_ns < n->late_ns)
        n->late_ns = w->file->ledger.look_ns;
    if (!tei_link_is_in(&w->file->busy))
        tei_list_push_back(&n->busy, &w->file->busy);
}

/* ----------------------------------------------------------------------------------- pinned memory */

static size_t chunk_length(const struct nvmeof_region *r, size_t i)
{
    return tei_min(r->length - i * NVMEOF_CHUNK, NVMEOF_CHUNK);
}

/* The next chunk that is wanted; none if the region is to go. */
static bool next_wanted(struct nvmeof_region *r, size_t *at)
{
    bool dying;

    pthread_mutex_lock(&r->owner->lock);
    dying = r->dying || r->owner->closed;
    pthread_mutex_unlock(&r->owner->lock);
    while (!dying && *at < r->n &&
           atomic_load_explicit(&r->chunk[*at], memory_order_relaxed) != NVMEOF_WANTED)
        ++*at;
    return !dying && *at < r->n;
}

static void pin_wanted(struct nvmeof_region *r)
{
    struct nvmeof *n = r->owner;

    for (size_t i = 0; next_wanted(r, &i); i++) {
        int slot = n->device->pin(n, r->addr + i * NVMEOF_CHUNK, chunk_length(r, i));

        /* Release: partner of the acquire in memory_slot(). */
        atomic_store_explicit(&r->chunk[i], slot, memory_order_release);
    }
}

/* Whether there is one for the job to do. Lock held, under which the next job is posted if there is none. */
static bool is_wanted(const struct nvmeof_region *r)
{
    bool wanted = false;

    for (size_t i = 0; i < r->n && !wanted; i++)
        wanted = atomic_load_explicit(&r->chunk[i], memory_order_relaxed) == NVMEOF_WANTED;
    return wanted && !r->dying && !r->owner->closed;
}

static void pin_job(struct tei_job *j)
{
    struct nvmeof_region *r = tei_container_of(j, struct nvmeof_region, job);
    struct nvmeof *n = r->owner;

    do { /* some may have been marked behind it */
        pin_wanted(r);
        pthread_mutex_lock(&n->lock);
        r->pinning = is_wanted(r);
        if (r->pinning)
            pthread_mutex_unlock(&n->lock);
    } while (r->pinning);
    n->jobs--;
    pthread_cond_broadcast(&n->quiet);
    pthread_mutex_unlock(&n->lock);
}

/* What the work touches is to be pinned; whether any of it is not, nor is known to be impossible. */
static bool mark_wanted(struct nvmeof_region *r, const struct tei_work *w)
{
    size_t begin = (size_t)(w->local - r->addr);
    bool any = false;

    for (size_t i = begin / NVMEOF_CHUNK; i <= (begin + w->length - 1) / NVMEOF_CHUNK; i++) {
        int unpinned = NVMEOF_UNPINNED;

        if (atomic_load_explicit(&r->chunk[i], memory_order_relaxed) == NVMEOF_UNPINNED)
            any |= atomic_compare_exchange_strong_explicit(
                &r->chunk[i], &unpinned, NVMEOF_WANTED, memory_order_relaxed, memory_order_relaxed);
    }
    return any;
}

/* The first work of a chunk has it pinned, in the background; while a job runs, by that or a later one. */
static void want_pin(struct nvmeof *n, struct nvmeof_region *r, const struct tei_work *w)
{
    if (!r || !r->n || !n->device->pin || !n->conf->file_pin || !mark_wanted(r, w))
        return;
    pthread_mutex_lock(&n->lock);
    if (n->closed || r->pinning || r->dying) {
        r = NULL;
    } else {
        r->pinning = true;
        n->jobs++;
    }
    pthread_mutex_unlock(&n->lock);
    if (r)
        tei_jobs_post(n->base.host->jobs, &r->job, pin_job);
}

static void nvmeof_post(struct tei_transport *t, struct tei_list *work)
{
    struct nvmeof *n = tei_nvmeof_of(t);
    int64_t now = tei_now_ns();
    struct tei_list refused;
    struct tei_link *l;

    tei_list_init(&refused);
    for (l = tei_list_first(work); l; l = tei_list_next(work, l))
        want_pin(n, tei_nvmeof_work_of(l)->entry.base.region->keys[t->index],
                 &tei_nvmeof_work_of(l)->entry.base);
    pthread_mutex_lock(&n->lock);
    while ((l = tei_list_pop(work)))
        take(n, tei_nvmeof_work_of(l), now, &refused);
    pthread_mutex_unlock(&n->lock);
    tei_waker_ring(&n->waker);
    if (!tei_list_empty(&refused))
        t->host->work_done(t->host, &refused);
}

/* ---------------------------------------------------------------------------------------- regions */

static int nvmeof_region_add(struct tei_transport *t, struct tei_region *region)
{
    bool gpu = region->kind != TEI_MEM_HOST;
    size_t n = gpu ? 0 : (region->length - 1) / NVMEOF_CHUNK + 1;
    struct nvmeof_region *r = calloc(1, sizeof *r + n * sizeof r->chunk[0]);
    int rc = 0;

    if (!r)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a region");
    if (gpu)
        rc = tei_nvmeof_gpu_region_add(tei_nvmeof_of(t), region, &r->registered);
    if (rc) {
        free(r);
        return rc;
    }
    r->owner = tei_nvmeof_of(t);
    r->device = region->device;
    r->addr = (char *)region->addr;
    r->length = region->length;
    r->n = n;
    for (size_t i = 0; i < n; i++)
        atomic_init(&r->chunk[i], NVMEOF_UNPINNED);
    region->keys[t->index] = r;
    return 0;
}

/* Whether cuFile is at work in it. Lock held. */
static bool is_flying(const struct nvmeof *n, const struct tei_region *region)
{
    for (size_t i = 0; n->ios && i < NVMEOF_IOS; i++)
        if (n->ios[i].flying && n->ios[i].gpu && n->ios[i].work->entry.base.region == region)
            return true;
    return false;
}

/* Of a closed transport there may be work under way: who finds the region there holds the lock. */
static int nvmeof_region_del(struct tei_transport *t, struct tei_region *region)
{
    struct nvmeof_region *r = region->keys[t->index];
    struct nvmeof *n = tei_nvmeof_of(t);

    if (!r)
        return 0;
    pthread_mutex_lock(&n->lock);
    region->keys[t->index] = NULL;
    r->dying = true;
    while (r->pinning || is_flying(n, region))
        pthread_cond_wait(&n->quiet, &n->lock);
    pthread_mutex_unlock(&n->lock);
    for (size_t i = 0; i < r->n; i++) {
        int slot = atomic_load_explicit(&r->chunk[i], memory_order_relaxed);

        if (slot >= 0)
            n->device->unpin(n, slot);
    }
    if (r->registered)
        tei_nvmeof_gpu_region_del(r);
    free(r);
    return 0;
}

extern const struct tei_transport_ops tei_nvmeof_ops; /* named by transports.def */

const struct tei_transport_ops tei_nvmeof_ops = {
    .name = "nvmeof",
    .abi = TEI_TRANSPORT_ABI,
    .caps = TEI_CAP_FILE,
    .mem_kinds = TEI_MEM_BIT(TEI_MEM_HOST) | TEI_MEM_BIT(TEI_MEM_CUDA),
    .target_kinds = TEI_MEM_BIT(TEI_MEM_HOST),
    .size = sizeof(struct nvmeof),
    .work_size = sizeof(struct nvmeof_work),
    .attach_size = sizeof(struct nvmeof_attach),
    .beside = TEI_MEM_BIT(TEI_MEM_HOST),
    .open = nvmeof_open,
    .allow = nvmeof_allow,
    .admit = nvmeof_admit,
    .attach = nvmeof_attach,
    .detach = nvmeof_detach,
    .score = nvmeof_score,
    .post = nvmeof_post,
    .cancel = nvmeof_cancel,
    .region_add = nvmeof_region_add,
    .region_del = nvmeof_region_del,
    .close = nvmeof_close,
    .stop = nvmeof_stop,
    .fini = nvmeof_fini,
};
