/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpuipc_peer.c - the initiator: who its peers are, and what of their memory is mapped.
 *
 * A peer is an engine's life: what its keys say of it, or the segment's name for one of another
 * make. All attachments to it, one for each descriptor that is still in use, share its memory, which
 * is known by address, length and handle: an allocation that was freed and made anew is another one.
 *
 * One job maps and unmaps, one thing after the other, so that two of them never meet. It runs while
 * there is something to map, something that must go, or more is mapped than may be and some of it is
 * unused. When the transport is closed no job starts for that, and detach() unmaps by itself.
 */
#include "transport/gpuipc/gpuipc.h"

#include "base/err.h"
#include "base/os.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WHY 300

#define MEMORY_KEY (offsetof(struct gpuipc_entry, handle) + TEI_GPU_HANDLE)
_Static_assert(offsetof(struct gpuipc_entry, base) == 0 &&
                   offsetof(struct gpuipc_entry, handle) == 2 * sizeof(uint64_t),
               "base, length and handle are one key");

/* ----------------------------------------------------------------------------- map and unmap: the job */

void tei_gpuipc_want(struct gpuipc *g, struct gpuipc_memory *m)
{
    atomic_store_explicit(&m->state, GPUIPC_MAPPING, memory_order_relaxed);
    tei_list_push_back(&g->wanted, &m->link);
}

void tei_gpuipc_use(struct gpuipc *g, struct gpuipc_memory *m)
{
    (void)g;
    if (m->users++ == 0 && tei_link_is_in(&m->link))
        tei_list_del(&m->link);
}

static void make_idle(struct gpuipc *g, struct gpuipc_memory *m)
{
    if (!m->peer || m->peer->gone)
        tei_list_push_front(&g->idle, &m->link);
    else
        tei_list_push_back(&g->idle, &m->link);
}

void tei_gpuipc_unuse(struct gpuipc *g, struct gpuipc_memory *m)
{
    if (--m->users == 0 && atomic_load_explicit(&m->state, memory_order_relaxed) == GPUIPC_MAPPED)
        make_idle(g, m);
}

static void free_memory(struct gpuipc_memory *m)
{
    free(m->why);
    free(m);
}

/* The one to be unmapped next; NULL if nothing needs to be. */
static struct gpuipc_memory *find_spare(struct gpuipc *g)
{
    size_t room = (size_t)g->base.host->conf->gpu_mappings;
    struct tei_link *first = tei_list_first(&g->idle);
    struct gpuipc_memory *m = first ? tei_container_of(first, struct gpuipc_memory, link) : NULL;

    if (m && m->peer && !m->peer->gone && g->n_mapped + !tei_list_empty(&g->wanted) <= room)
        return NULL;
    return m;
}

/* Lock held, and dropped meanwhile. */
static void unmap(struct gpuipc *g, struct gpuipc_memory *m)
{
    bool orphan = !m->peer;
    char *at = m->at;

    tei_list_del(&m->link);
    m->at = NULL;
    atomic_store_explicit(&m->state, GPUIPC_UNMAPPED, memory_order_relaxed);
    g->n_mapped--;
    pthread_mutex_unlock(&g->lock);
    tei_gpu_unimport(g->kind, at);
    if (orphan)
        free_memory(m);
    pthread_mutex_lock(&g->lock);
}

void tei_gpuipc_unmap_all(struct gpuipc *g)
{
    struct tei_link *first;

    pthread_mutex_lock(&g->lock);
    while ((first = tei_list_first(&g->idle)))
        unmap(g, tei_container_of(first, struct gpuipc_memory, link));
    pthread_mutex_unlock(&g->lock);
}

/* Lock held, and dropped meanwhile: then nobody else frees it. */
static void map(struct gpuipc *g, struct gpuipc_memory *m, struct tei_list *done)
{
    char *why = NULL;
    void *at = NULL;
    int rc;

    if (!tei_gpuipc_is_awaited(g, m)) { /* all of that was cancelled, or is late */
        atomic_store_explicit(&m->state, GPUIPC_UNMAPPED, memory_order_relaxed);
        return;
    }
    g->mapping = m;
    pthread_mutex_unlock(&g->lock);
    rc = tei_gpu_import(g->kind, m->device, m->sort, m->entry.handle, m->entry.length, &at);
    if (rc) {
        why = strdup(te_errmsg());
        TEI_WARN("%s: memory of a peer cannot be mapped, another way is taken: %s",
                 g->base.ops.name, te_errmsg());
    }
    pthread_mutex_lock(&g->lock);
    g->mapping = NULL;
    m->at = at;
    m->why = why;
    g->n_mapped += !rc;
    /* Release: score() and why_not() look at it without the lock. */
    atomic_store_explicit(&m->state, rc ? GPUIPC_REFUSED : GPUIPC_MAPPED, memory_order_release);
    m->users++; /* or what goes on at once could not be told from what is idle */
    tei_gpuipc_go_on(g, m, done);
    tei_gpuipc_unuse(g, m);
    if (rc && !m->peer)
        free_memory(m);
}

/* Does one thing of what there is to do; false if there is nothing. Lock held, dropped meanwhile. */
static bool do_one(struct gpuipc *g, struct tei_list *done)
{
    struct gpuipc_memory *m = find_spare(g);
    struct tei_link *link;

    if (m) {
        unmap(g, m);
        return true;
    }
    link = tei_list_pop(&g->wanted);
    if (link)
        map(g, tei_container_of(link, struct gpuipc_memory, link), done);
    return link;
}

static void run_job(struct tei_job *j)
{
    struct gpuipc *g = tei_container_of(j, struct gpuipc, job);
    struct tei_list done;

    tei_list_init(&done);
    pthread_mutex_lock(&g->lock);
    while (do_one(g, &done)) {
        if (tei_list_empty(&done))
            continue;
        pthread_mutex_unlock(&g->lock);
        g->base.host->work_done(g->base.host, &done);
        pthread_mutex_lock(&g->lock);
    }
    g->job_is_out = false;
    pthread_cond_broadcast(&g->quiet);
    pthread_mutex_unlock(&g->lock);
}

static void run_tell(struct tei_job *j)
{
    struct gpuipc *g = tei_container_of(j, struct gpuipc, tell);
    struct tei_list done;

    tei_list_init(&done);
    pthread_mutex_lock(&g->lock);
    while (!tei_list_empty(&g->over)) {
        tei_list_splice(&done, &g->over);
        pthread_mutex_unlock(&g->lock);
        g->base.host->work_done(g->base.host, &done);
        pthread_mutex_lock(&g->lock);
    }
    g->tell_is_out = false;
    pthread_cond_broadcast(&g->quiet);
    pthread_mutex_unlock(&g->lock);
}

enum { MAP = 1, TELL = 2 };

unsigned tei_gpuipc_claim_jobs(struct gpuipc *g)
{
    bool map = !g->job_is_out && !g->closed && (!tei_list_empty(&g->wanted) || find_spare(g));
    bool tell = !g->tell_is_out && !tei_list_empty(&g->over);

    g->job_is_out |= map;
    g->tell_is_out |= tell;
    return (map ? MAP : 0u) | (tell ? TELL : 0u);
}

void tei_gpuipc_start_jobs(struct gpuipc *g, unsigned claimed)
{
    if (claimed & MAP)
        tei_jobs_post(g->base.host->jobs, &g->job, run_job);
    if (claimed & TELL)
        tei_jobs_post(g->base.host->jobs, &g->tell, run_tell);
}

/* ----------------------------------------------------------------------------------------- peers */

/* Finds the devices of ours that a peer of ours names. */
static void find_devices(const struct gpuipc *g, struct gpuipc_keys *k)
{
    static const uint8_t none[GPUIPC_UUID];

    for (size_t d = 0; k->ours && d < g->n_devices; d++) {
        uint8_t name[GPUIPC_UUID];

        memcpy(name, g->uuids[d], sizeof(name));
        if (memcmp(name, none, sizeof(name)) == 0)
            continue;
        if (k->version > 1)
            tei_here_device(k->nonce, name, name);
        for (size_t i = 0; i < k->n; i++)
            if (memcmp(none, k->v[i].uuid, sizeof(none)) != 0 &&
                memcmp(name, k->v[i].uuid, sizeof(name)) == 0)
                k->v[i].device = (int)d;
    }
}

/* The device of ours that it lies on. */
static int device_of(const struct gpuipc *g, const struct gpuipc_entry *e)
{
    if (e->device >= 0 && (size_t)e->device < g->n_devices)
        return e->device;
    return 0; /* one that this process does not see: the driver may map it all the same */
}

/* The memory, one more reference; NULL when there is no room. */
static struct gpuipc_memory *get_memory(struct gpuipc *g, struct gpuipc_peer *p,
                                        const struct gpuipc_entry *e, enum tei_gpu_sort sort)
{
    struct gpuipc_memory *m;

    HASH_FIND(hh, p->memory, e, MEMORY_KEY, m);
    if (!m) {
        m = calloc(1, sizeof(*m));
        if (!m)
            return NULL;
        m->entry = *e;
        if (!TEI_HASH_ADD(p->memory, &m->entry, MEMORY_KEY, m)) {
            free(m);
            return NULL;
        }
        m->peer = p;
        m->sort = sort;
        m->device = device_of(g, e);
        m->at = p->own ? (char *)(uintptr_t)e->base : NULL;
        atomic_init(&m->state, p->own ? GPUIPC_OWN : GPUIPC_UNMAPPED);
    }
    m->refs++;
    return m;
}

/* Nobody is attached to it: so no work waits for it or uses it, but the job may be mapping it. */
static void put_memory(struct gpuipc *g, struct gpuipc_peer *p, struct gpuipc_memory *m)
{
    if (--m->refs > 0)
        return;
    HASH_DEL(p->memory, m);
    m->peer = NULL;
    if (tei_link_is_in(&m->link))
        tei_list_del(&m->link);
    if (atomic_load_explicit(&m->state, memory_order_relaxed) == GPUIPC_MAPPED)
        make_idle(g, m);
    else if (g->mapping != m)
        free_memory(m);
}

static void free_peer(struct gpuipc_peer *p)
{
    if (!p)
        return;
    if (p->row)
        tei_gpuipc_row_give(p->row);
    if (p->own)
        tei_gpuipc_table_put(p->own);
    else
        tei_gpuipc_page_unmap(p->page);
    if (p->pidfd >= 0)
        tei_fd_close(p->pidfd);
    free(p->key);
    free(p);
}

static void put_peer(struct gpuipc *g, struct gpuipc_peer *p)
{
    if (--p->refs > 0)
        return;
    HASH_DEL(g->peers, p);
    free_peer(p);
}

/* Whether keys of 0.1, which name it, name another host; then with the reason. */
static bool names_another_host(const struct gpuipc_keys *k, char *why)
{
    char boot[sizeof(k->boot)], machine[sizeof(k->machine)];

    tei_file_word("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    tei_file_word("/etc/machine-id", machine, sizeof(machine));
    if (strcmp(boot, k->boot) != 0)
        snprintf(why, WHY, "the peer is on another host (boot id %s here, %s there)", boot,
                 k->boot);
    else if (machine[0] && k->machine[0] && strcmp(machine, k->machine) != 0)
        snprintf(why, WHY, "the peer is on another machine (machine id %s here, %s there)", machine,
                 k->machine);
    else
        return false;
    return true;
}

static bool is_elsewhere(const struct gpuipc_keys *k, char *why)
{
    struct tei_here own;
    const char *other;

    if (k->version == 1)
        return names_another_host(k, why);
    tei_here(k->nonce, &own);
    other = tei_here_differs(&own, &k->here);
    if (other)
        snprintf(why, WHY, "the peer is %s", other);
    return other;
}

/* The process first: its page cannot be found if it is another one by then. */
static void find_process(struct gpuipc_peer *p, const struct gpuipc_keys *k, char *why)
{
    pid_t pid = k->version == 1 ? (pid_t)k->pid : tei_here_find_process(k->nonce, k->here.process);

    if (!pid) {
        snprintf(why, WHY,
                 "no process of this pid namespace is the peer's: it has ended, or /proc "
                 "does not show it");
        return;
    }
    p->pidfd = tei_fd_own((int)syscall(SYS_pidfd_open, pid, 0));
    p->page = tei_gpuipc_page_find(k, pid, why, WHY);
}

/* A process that ends leaves its memory to those who have mapped it, and would never be missed. */
bool tei_gpuipc_has_ended(const struct gpuipc_peer *p)
{
    struct pollfd one = {.fd = p->pidfd, .events = POLLIN};

    return p->pidfd >= 0 && poll(&one, 1, 0) == 1;
}

/* Why the fence of an engine of ours cannot be had; true if it is, or need not be. */
static bool find_fence(const struct gpuipc *g, struct gpuipc_peer *p, const struct gpuipc_keys *k,
                       uint64_t incarnation, char *why)
{
    p->own = tei_gpuipc_table_find(k->nonce);
    if (p->own && !tei_gpuipc_table_wrote(p->own, g->kind, k, incarnation)) {
        snprintf(why, WHY, "it names an engine of this process, and is not that one's descriptor");
        return false;
    }
    if (p->own)
        p->page = p->own->page;
    else if (!is_elsewhere(k, why))
        find_process(p, k, why);
    if (!p->page)
        return k->sort == TEI_GPU_FABRIC;
    p->row = tei_gpuipc_row_take(p->page);
    if (!p->row)
        snprintf(why, WHY,
                 "as many processes are attached to the peer as can be, or /proc cannot be read");
    return p->row;
}

/* malloc'ed; NULL: no memory. */
static char *make_key(const struct tei_segment *s, const struct gpuipc_keys *k)
{
    char nonce[2 * GPUIPC_NONCE + 1], *key = NULL;
    int n;

    tei_gpuipc_hex(k->nonce, GPUIPC_NONCE, nonce);
    if (k->ours)
        n = asprintf(&key, "n:%s %llu %llu %d %016llx %s %s %s %s %s %s", nonce,
                     (unsigned long long)k->pid, (unsigned long long)k->fd, (int)k->sort,
                     (unsigned long long)s->incarnation, k->boot, k->machine, k->here.host,
                     k->here.machine, k->here.pid_ns, k->here.process);
    else
        n = asprintf(&key, "s:%s", s->name);
    return n < 0 ? NULL : key;
}

/* In no list; takes the key. NULL with the reason. Without the lock: much of /proc may be read. */
static struct gpuipc_peer *make_peer(const struct gpuipc *g, char *key, const struct gpuipc_keys *k,
                                     uint64_t incarnation, char *why)
{
    struct gpuipc_peer *p = calloc(1, sizeof(*p));

    if (!p) {
        snprintf(why, WHY, "no memory");
        free(key);
        return NULL;
    }
    p->key = key;
    p->pidfd = -1;
    if (!k->ours || find_fence(g, p, k, incarnation, why))
        return p;
    free_peer(p);
    return NULL;
}

static struct gpuipc_peer *find_peer(const struct gpuipc *g, const char *key)
{
    struct gpuipc_peer *p;

    HASH_FIND_STR(g->peers, key, p);
    return p;
}

/* One more reference; NULL with the reason. Lock held, and dropped meanwhile. */
static struct gpuipc_peer *get_peer(struct gpuipc *g, const struct tei_segment *s,
                                    const struct gpuipc_keys *k, char *why)
{
    char *key = make_key(s, k);
    struct gpuipc_peer *p = key ? find_peer(g, key) : NULL, *made;

    if (p || !key) {
        free(key);
    } else {
        pthread_mutex_unlock(&g->lock);
        made = make_peer(g, key, k, s->incarnation, why);
        pthread_mutex_lock(&g->lock);
        p = made ? find_peer(g, made->key) : NULL;
        if (p) /* somebody was faster */
            free_peer(made);
        else if (made && TEI_HASH_ADD(g->peers, made->key, strlen(made->key), made))
            p = made;
        else if (made)
            free_peer(made);
    }
    if (p) {
        p->gone = false;
        p->refs++;
    }
    return p;
}

/* ----------------------------------------------------------------------------------- attachments */

static void let_go(struct gpuipc *g, struct gpuipc_attach *a)
{
    while (a->n)
        put_memory(g, a->peer, a->v[--a->n].memory);
    put_peer(g, a->peer);
    free(a->v);
    free(a->ranges.buffers);
}

/* Takes references to all that the keys name. Lock held. */
static bool know(struct gpuipc *g, struct gpuipc_attach *a, const struct gpuipc_keys *k)
{
    a->v = k->n ? calloc(k->n, sizeof(a->v[0])) : NULL;
    if (k->n && !a->v)
        return false;
    for (; a->n < k->n; a->n++) {
        const struct gpuipc_entry *e = &k->v[a->n];
        struct gpuipc_known *known = &a->v[a->n];

        *known =
            (struct gpuipc_known){.base = e->base,
                                  .length = e->length,
                                  .slot = e->slot,
                                  .generation = e->generation,
                                  .stale = a->peer->own && !tei_gpuipc_table_has(a->peer->own, e),
                                  .memory = get_memory(g, a->peer, e, k->sort)};
        if (!known->memory)
            return false;
    }
    return true;
}

static bool copy_ranges(struct gpuipc_attach *a, const struct tei_segment *s)
{
    size_t size = s->n_buffers * sizeof(s->buffers[0]);

    a->ranges.buffers = malloc(size + 1);
    if (!a->ranges.buffers)
        return false;
    if (size)
        memcpy(a->ranges.buffers, s->buffers, size);
    a->ranges.n_buffers = s->n_buffers;
    return true;
}

/* What the peer publishes; false with the reason, and then nothing to free. */
static bool read_keys(struct gpuipc *g, const struct tei_segment *s, struct gpuipc_keys *k,
                      char *why)
{
    const char *name = g->base.ops.name, *bad;
    const json_t *te = json_object_get(s->root, "te");
    const json_t *j = json_object_get(json_object_get(te, "gpu"), name);

    if (!j) /* of 0.1 */
        j = json_object_get(te, name);
    if (!j && strcmp(s->protocol, name) != 0) {
        snprintf(why, WHY, "the peer shares no memory this way");
        return false;
    }
    bad = j ? tei_gpuipc_keys_read(j, k) : tei_gpuipc_keys_of_buffers(s, k);
    if (bad) {
        snprintf(why, WHY, "of the peer: %s", bad);
        return false;
    }
    find_devices(g, k);
    if (!k->ours)
        k->sort = g->sort;
    if (k->sort == TEI_GPU_FABRIC && !g->has_fabric)
        snprintf(why, WHY, "the peer has fabric handles, which no device of this process can map");
    else if (!k->ours && k->sort == TEI_GPU_IPC &&
             !tei_gpuipc_same_host_name(s->name, g->base.host->segment_name))
        snprintf(why, WHY, "the peer is on another host, by its name (%.64s here, %.64s there)",
                 g->base.host->segment_name, s->name);
    else
        return true;
    tei_gpuipc_keys_fini(k);
    return false;
}

int tei_gpuipc_attach(struct tei_transport *t, struct tei_attach *base, const struct tei_segment *s,
                      const struct tei_hostport *where)
{
    struct gpuipc_attach *a = (struct gpuipc_attach *)base;
    char why[WHY] = "no memory", text[WHY + 32];
    struct gpuipc *g = tei_gpuipc_of(t);
    struct gpuipc_keys k;
    bool good = read_keys(g, s, &k, why);

    (void)where;
    if (good && base->one_life && !k.ours) {
        snprintf(why, WHY,
                 "handles of an engine of another make, or of 0.1, are of no incarnation");
        tei_gpuipc_keys_fini(&k);
        good = false;
    }
    if (good) {
        pthread_mutex_lock(&g->lock);
        a->peer = get_peer(g, s, &k, why);
        good = a->peer && copy_ranges(a, s) && know(g, a, &k);
        if (a->peer && !good)
            let_go(g, a);
        pthread_mutex_unlock(&g->lock);
        tei_gpuipc_keys_fini(&k);
    }
    if (good)
        return 0;
    snprintf(text, sizeof(text), "%s: %s", t->ops.name, why);
    TEI_DEBUG("segment %s: %s", s->name, text);
    return tei_err_keep(TE_ERR_UNSUPPORTED, text);
}

/* After something may have to go. Lock held; released here. */
static void tidy(struct gpuipc *g)
{
    struct gpuipc_memory *m;
    unsigned jobs = tei_gpuipc_claim_jobs(g);

    while (g->closed && !g->job_is_out && (m = find_spare(g)))
        unmap(g, m);
    pthread_mutex_unlock(&g->lock);
    tei_gpuipc_start_jobs(g, jobs);
}

void tei_gpuipc_detach(struct tei_transport *t, struct tei_attach *a)
{
    struct gpuipc *g = tei_gpuipc_of(t);

    pthread_mutex_lock(&g->lock);
    let_go(g, (struct gpuipc_attach *)a);
    tidy(g);
}

void tei_gpuipc_peer_gone(struct tei_transport *t, struct tei_attach *base)
{
    const struct gpuipc_attach *a = (const struct gpuipc_attach *)base;
    struct gpuipc *g = tei_gpuipc_of(t);

    pthread_mutex_lock(&g->lock);
    a->peer->gone = true;
    for (size_t i = 0; i < a->n; i++) {
        struct gpuipc_memory *m = a->v[i].memory;

        if (m->users == 0 &&
            atomic_load_explicit(&m->state, memory_order_relaxed) == GPUIPC_MAPPED) {
            tei_list_del(&m->link);
            make_idle(g, m);
        }
    }
    tidy(g);
}

const struct gpuipc_known *tei_gpuipc_find(const struct gpuipc_attach *a, uint64_t addr,
                                           uint64_t length)
{
    size_t low = 0, high = a->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (a->v[mid].base <= addr)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == 0)
        return NULL;
    low--;
    return addr - a->v[low].base < a->v[low].length &&
                   length <= a->v[low].length - (addr - a->v[low].base)
               ? &a->v[low]
               : NULL;
}
