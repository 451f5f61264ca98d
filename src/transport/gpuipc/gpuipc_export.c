/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpuipc_export.c - the owner: which allocations it shares.
 *
 * A driver makes handles of whole allocations, so regions in one share its entry, and a region over
 * several (mappings in a row) has several. The tree's order makes any two ranges that touch equal.
 * The handle that was made last is the truth about an address: if it is another one than was made
 * for the same range before, it takes its place; where other memory lies now, the old one is gone.
 */
#include "transport/gpuipc/gpuipc.h"

#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --------------------------------------------------------------------------- tables of the process */

static pthread_mutex_t tables_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tei_list tables = {{&tables.head, &tables.head}};

struct gpuipc_table *tei_gpuipc_table_find(const uint8_t nonce[GPUIPC_NONCE])
{
    struct gpuipc_table *found = NULL;
    struct tei_link *link, *tmp;

    pthread_mutex_lock(&tables_lock);
    TEI_LIST_EACH(&tables, link, tmp) {
        struct gpuipc_table *t = tei_container_of(link, struct gpuipc_table, link);

        if (memcmp(t->keys.nonce, nonce, GPUIPC_NONCE) == 0 && t->pid == getpid())
            found = t;
    }
    if (found)
        atomic_fetch_add_explicit(&found->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&tables_lock);
    return found;
}

bool tei_gpuipc_table_wrote(const struct gpuipc_table *t, enum tei_mem_kind kind,
                            const struct gpuipc_keys *k, uint64_t incarnation)
{
    return t->kind == kind && t->incarnation == incarnation && t->keys.sort == k->sort &&
           k->version == GPUIPC_VERSION && strcmp(t->keys.here.process, k->here.process) == 0 &&
           t->keys.fd == k->fd;
}

static void enlist(struct gpuipc_table *t)
{
    pthread_mutex_lock(&tables_lock);
    tei_list_push_back(&tables, &t->link);
    pthread_mutex_unlock(&tables_lock);
}

static void free_table(struct gpuipc_table *t)
{
    struct tei_link *l;

    while ((l = tei_list_pop(&t->hidden)))
        free(tei_container_of(l, struct gpuipc_hidden, link));
    tdestroy(t->allocs, free);
    tei_gpuipc_page_unmap(t->page);
    if (t->fd >= 0)
        tei_fd_close(t->fd);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->drain);
    free(t->free);
    free(t->generation);
    free(t);
}

void tei_gpuipc_table_put(struct gpuipc_table *t)
{
    bool last;

    if (!t)
        return;
    /* Under the lock: who finds it in the list takes a reference there. */
    pthread_mutex_lock(&tables_lock);
    last = atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1;
    if (last && tei_link_is_in(&t->link))
        tei_list_del(&t->link);
    pthread_mutex_unlock(&tables_lock);
    if (last)
        free_table(t);
}

static void fill_keys(struct gpuipc_table *t, const struct gpuipc *g)
{
    t->kind = g->kind;
    t->incarnation = g->base.host->incarnation;
    t->keys.sort = g->sort;
    t->keys.version = GPUIPC_VERSION;
    tei_random(t->keys.nonce, GPUIPC_NONCE);
    tei_here(t->keys.nonce, &t->keys.here);
    t->keys.here.net_ns[0] = '\0'; /* no matter here */
}

int tei_gpuipc_table_make(struct gpuipc *g, struct gpuipc_table **out)
{
    struct gpuipc_table *t = calloc(1, sizeof(*t));

    if (!t)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a table of shared allocations");
    atomic_init(&t->refs, 1);
    t->pid = getpid();
    t->fd = -1;
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->drain, NULL);
    tei_list_init(&t->listed);
    tei_list_init(&t->hidden);
    t->free = calloc(GPUIPC_SLOTS, sizeof(t->free[0]));
    t->generation = calloc(GPUIPC_SLOTS, sizeof(t->generation[0]));
    fill_keys(t, g);
    t->page = t->free && t->generation ? tei_gpuipc_page_make(t->keys.nonce, &t->fd) : NULL;
    if (!t->page) {
        int kept = errno;

        tei_gpuipc_table_put(t);
        return TEI_FAIL(TE_ERR_SYSTEM, "no page to share with other processes: %s",
                        tei_errno_text(kept));
    }
    t->keys.fd = (uint64_t)t->fd;
    enlist(t);
    *out = t;
    return 0;
}

/* --------------------------------------------------------------------------------- allocations */

/* Ranges that touch are equal. */
static int compare(const void *a, const void *b)
{
    const struct gpuipc_entry *x = &((const struct gpuipc_alloc *)a)->entry;
    const struct gpuipc_entry *y = &((const struct gpuipc_alloc *)b)->entry;

    if (x->base + (x->length - 1) < y->base)
        return -1;
    return x->base > y->base + (y->length - 1);
}

static struct gpuipc_alloc *find(struct gpuipc_table *t, uint64_t base, uint64_t length)
{
    struct gpuipc_alloc key = {.entry = {.base = base, .length = length}};
    void *node = tfind(&key, &t->allocs, compare);

    return node ? *(struct gpuipc_alloc **)node : NULL;
}

/* What peers have read of the slot so far is of no use to them any more. */
static void move_on(struct gpuipc_table *t, struct gpuipc_alloc *a)
{
    uint32_t slot = a->entry.slot;

    a->entry.generation = ++t->generation[slot];
    atomic_store(&t->page->generation[slot], a->entry.generation);
}

/* Out of the tree: other memory has its place. */
static void retire(struct gpuipc_table *t, struct gpuipc_alloc *a)
{
    move_on(t, a);
    a->gone = true;
    tdelete(a, &t->allocs, compare);
    tei_list_del(&a->link);
}

static void put_alloc(struct gpuipc_table *t, struct gpuipc_alloc *a)
{
    if (--a->refs > 0)
        return;
    if (!a->gone)
        retire(t, a);
    tei_gpu_unexport(t->kind, t->keys.sort, a->entry.handle);
    t->free[t->n_free++] = a->entry.slot;
    t->n_allocs--;
    free(a);
}

static struct gpuipc_alloc *make_alloc(struct gpuipc_table *t, const struct gpuipc_entry *e)
{
    struct gpuipc_alloc *a = t->n_allocs < GPUIPC_SLOTS ? calloc(1, sizeof(*a)) : NULL;

    if (!a)
        return NULL;
    a->entry = *e;
    if (!tsearch(a, &t->allocs, compare)) {
        free(a);
        return NULL;
    }
    tei_list_push_back(&t->listed, &a->link);
    t->n_allocs++;
    a->entry.slot = t->n_free ? t->free[--t->n_free] : t->n_used++;
    move_on(t, a);
    return a;
}

/* There is a newer handle of the same range. */
static void export_again(struct gpuipc_table *t, struct gpuipc_alloc *a,
                         const struct gpuipc_entry *e)
{
    tei_gpu_unexport(t->kind, t->keys.sort, a->entry.handle);
    if (memcmp(a->entry.handle, e->handle, TEI_GPU_HANDLE) == 0)
        return;
    memcpy(a->entry.handle, e->handle, TEI_GPU_HANDLE);
    move_on(t, a);
}

/*
 * The allocation of that range with that handle, one more reference; the export is its own now.
 * NULL: no memory, or no slot.
 */
static struct gpuipc_alloc *get_alloc(struct gpuipc_table *t, const struct gpuipc_entry *e)
{
    struct gpuipc_alloc *a;

    while ((a = find(t, e->base, e->length)) &&
           (a->entry.base != e->base || a->entry.length != e->length))
        retire(t, a);
    if (!a)
        a = make_alloc(t, e);
    else
        export_again(t, a, e);
    if (a)
        a->refs++;
    return a;
}

bool tei_gpuipc_table_has(struct gpuipc_table *t, const struct gpuipc_entry *e)
{
    const struct gpuipc_alloc *a;
    bool has;

    pthread_mutex_lock(&t->lock);
    a = find(t, e->base, e->length);
    has = a && a->entry.base == e->base && a->entry.length == e->length &&
          a->entry.slot == e->slot && a->entry.generation == e->generation;
    pthread_mutex_unlock(&t->lock);
    return has;
}

/* -------------------------------------------------------------------------------------- regions */

/* The device as peers are told of it. */
static int name_device(struct gpuipc *g, int device, uint8_t out[GPUIPC_UUID])
{
    static const uint8_t none[GPUIPC_UUID];
    int rc = tei_gpu_uuid(g->kind, device, out);

    if (!rc && memcmp(out, none, sizeof(none)) != 0)
        tei_here_device(g->table->keys.nonce, out, out);
    return rc;
}

/* The allocation at `at`, with its handle. */
static int export_at(struct gpuipc *g, uint64_t at, struct gpuipc_entry *e)
{
    struct tei_mem_info m;
    int rc = tei_mem_inspect((void *)(uintptr_t)at, 1, &m);

    if (!rc && (m.kind != g->kind || !(g->sort == TEI_GPU_IPC ? m.ipc : m.fabric)))
        rc = tei_err_keep(TE_ERR_UNSUPPORTED, g->sort == TEI_GPU_IPC
                                                  ? "it has no IPC handle"
                                                  : "it has no handle for others; te_alloc() makes "
                                                    "memory that has");
    if (!rc)
        rc = tei_gpu_export(&m, g->sort, e->handle);
    if (!rc)
        rc = name_device(g, m.device, e->uuid);
    e->base = m.base;
    e->length = m.length;
    return rc;
}

/* All allocations that the region lies in: *n entries, malloc'ed. */
static int export_all(struct gpuipc *g, const struct tei_region *r, struct gpuipc_entry **out,
                      size_t *n)
{
    uint64_t at = r->addr, end = r->addr + r->length;

    *out = NULL;
    *n = 0;
    while (at < end) {
        struct gpuipc_entry *more = realloc(*out, (*n + 1) * sizeof(*more));
        int rc;

        if (!more)
            return TEI_FAIL(TE_ERR_MEMORY, "no memory to share a region");
        *out = more;
        memset(&more[*n], 0, sizeof(*more));
        rc = export_at(g, at, &more[*n]);
        if (rc)
            return rc;
        at = more[*n].base + more[*n].length;
        ++*n;
    }
    return 0;
}

/* Ranges that touch are equal. */
static int compare_regions(const void *a, const void *b)
{
    const struct gpuipc_share *x = a, *y = b;

    if (x->addr + (x->length - 1) < y->addr)
        return -1;
    return x->addr > y->addr + (y->length - 1);
}

static bool enter_region(struct gpuipc_table *t, struct gpuipc_share *s, const struct tei_region *r)
{
    struct gpuipc_share **in;

    s->addr = r->addr;
    s->length = r->length;
    s->access = r->access;
    in = tsearch(s, &t->regions, compare_regions);
    return in && *in == s;
}

bool tei_gpuipc_table_allows(struct gpuipc_table *t, uint64_t addr, uint64_t length,
                             unsigned access)
{
    bool good = true;

    pthread_mutex_lock(&t->lock);
    while (good && length) {
        struct gpuipc_share key = {.addr = addr, .length = 1}, **in;
        uint64_t part;

        in = tfind(&key, &t->regions, compare_regions);
        good = in && ((*in)->access & access) == access;
        if (!good)
            break;
        part = (*in)->length - (addr - (*in)->addr);
        part = part < length ? part : length;
        addr += part;
        length -= part;
    }
    pthread_mutex_unlock(&t->lock);
    return good;
}

static void put_share(struct gpuipc_table *t, struct gpuipc_share *s)
{
    tdelete(s, &t->regions, compare_regions);
    while (s->n)
        put_alloc(t, s->v[--s->n]);
    free(s);
}

/* NULL: no memory, or no slot. `*taken` of the exports are seen to. */
static struct gpuipc_share *make_share(struct gpuipc_table *t, const struct tei_region *r,
                                       const struct gpuipc_entry *v, size_t n, size_t *taken)
{
    struct gpuipc_share *s = calloc(1, sizeof(*s) + n * sizeof(struct gpuipc_alloc *));
    struct gpuipc_alloc *a = NULL;

    pthread_mutex_lock(&t->lock);
    while (s && s->n < n && (a = get_alloc(t, &v[s->n])))
        s->v[s->n++] = a;
    *taken = s ? s->n : 0;
    if (s && (s->n < n || !enter_region(t, s, r))) {
        put_share(t, s);
        s = NULL;
    }
    pthread_mutex_unlock(&t->lock);
    return s;
}

/*
 * Once for the engine: it may be meant so, and the region is of use on this side. Memory that fabrics
 * take has no IPC handle; another of these transports shares it.
 */
static void tell_once(struct gpuipc *g, const struct tei_region *r)
{
    struct tei_mem_info m;
    bool quiet = g->sort == TEI_GPU_IPC && tei_mem_inspect((void *)r->addr, 1, &m) == 0 &&
                 m.fabric && !m.ipc;

    quiet = quiet || atomic_exchange(&g->told, true);
    TEI_LOG(quiet ? TE_LOG_DEBUG : TE_LOG_WARN,
            "%s: %s memory at 0x%llx is not shared with peers, whose requests go another way: %s",
            g->base.ops.name, r->location, (unsigned long long)r->addr, te_errmsg());
}

static int share_region(struct gpuipc *g, struct tei_region *r)
{
    size_t n = 0, taken = 0;
    struct gpuipc_entry *v;
    struct gpuipc_share *s = NULL;
    int rc = export_all(g, r, &v, &n);

    if (!rc) {
        s = make_share(g->table, r, v, n, &taken);
        if (!s)
            rc = tei_err_keep(TE_ERR_TOO_MANY, "no memory, or as many allocations are shared as "
                                               "can be");
    }
    while (n > taken)
        tei_gpu_unexport(g->kind, g->sort, v[--n].handle);
    free(v);
    r->keys[g->base.index] = s;
    return rc;
}

/*
 * The transport is closed, and its engine goes, whatever peers do: one wait for them all. What is
 * still written to after that is not this library's to keep. `drain` is held.
 */
static void cut_off_all(struct gpuipc_table *t)
{
    if (t->ended)
        return;
    t->ended = true;
    pthread_mutex_lock(&t->lock);
    for (uint32_t slot = 0; slot < t->n_used; slot++)
        atomic_store(&t->page->generation[slot], ++t->generation[slot]);
    pthread_mutex_unlock(&t->lock);
    if (tei_gpuipc_page_drain(t->page, &t->phase))
        TEI_WARN("memory of a device is no longer registered, but a peer may still be writing to "
                 "it: %s",
                 te_errmsg());
}

/* The allocations of a region that is not shared, of which peers know by other regions. Whether there are any. */
static bool move_others_on(struct gpuipc_table *t, const struct tei_region *r)
{
    struct tei_link *link, *tmp;
    bool any = false;

    TEI_LIST_EACH(&t->listed, link, tmp) {
        struct gpuipc_alloc *a = tei_container_of(link, struct gpuipc_alloc, link);

        if (a->entry.base + (a->entry.length - 1) < r->addr ||
            a->entry.base > r->addr + (r->length - 1))
            continue;
        move_on(t, a);
        any = true;
    }
    return any;
}

/* As long as the engine lives, memory that a peer is at stays registered. `drain` is held. */
static int cut_off(struct gpuipc_table *t, const struct tei_region *r, const struct gpuipc_share *s,
                   bool *known)
{
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; s && i < s->n; i++)
        move_on(t, s->v[i]);
    *known = s || move_others_on(t, r);
    pthread_mutex_unlock(&t->lock);
    return *known ? tei_gpuipc_page_drain(t->page, &t->phase) : 0;
}

static void show_region(struct gpuipc *g, struct tei_region *r)
{
    struct gpuipc_hidden *h = r->keys[g->base.index];
    struct gpuipc_table *t = g->table;

    if (!h)
        return;
    pthread_mutex_lock(&t->lock);
    tei_list_del(&h->link);
    pthread_mutex_unlock(&t->lock);
    free(h);
    r->keys[g->base.index] = NULL;
    g->base.host->changed(g->base.host);
}

/* Memory for some peers only: who has the handle of an allocation that it lies in is told nothing more of that. */
static int hide_region(struct gpuipc *g, struct tei_region *r)
{
    struct gpuipc_hidden *h = calloc(1, sizeof(*h));
    struct gpuipc_table *t = g->table;
    bool known = false;
    int rc;

    if (!h)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to keep a region from peers");
    h->addr = r->addr;
    h->length = r->length;
    pthread_mutex_lock(&t->lock);
    tei_list_push_back(&t->hidden, &h->link);
    pthread_mutex_unlock(&t->lock);
    g->base.host->changed(
        g->base.host); /* who finds what it knows outdated is not to be told that again */
    pthread_mutex_lock(&t->drain);
    rc = cut_off(t, r, NULL, &known);
    pthread_mutex_unlock(&t->drain);
    r->keys[g->base.index] = h;
    if (rc)
        show_region(g, r);
    return rc;
}

int tei_gpuipc_region_add(struct tei_transport *t, struct tei_region *r)
{
    struct gpuipc *g = tei_gpuipc_of(t);

    if (r->kind != g->kind)
        return 0;
    if (r->allow)
        return hide_region(g, r);
    if (r->access && share_region(g, r) != 0)
        tell_once(g, r);
    return 0;
}

int tei_gpuipc_region_del(struct tei_transport *t, struct tei_region *r)
{
    struct gpuipc *g = tei_gpuipc_of(t);
    struct gpuipc_table *table = g->table;
    struct gpuipc_share *s = r->allow ? NULL : r->keys[t->index];
    bool closed, known = s != NULL;
    int rc = 0;

    if (r->kind == g->kind && r->allow)
        show_region(g, r);
    if (r->kind != g->kind || !r->access)
        return 0;
    pthread_mutex_lock(&g->lock);
    closed = g->closed;
    pthread_mutex_unlock(&g->lock);
    pthread_mutex_lock(&table->drain);
    if (closed)
        cut_off_all(table);
    else
        rc = cut_off(table, r, s, &known);
    if (!rc && s) {
        pthread_mutex_lock(&table->lock);
        put_share(table, s);
        pthread_mutex_unlock(&table->lock);
        r->keys[t->index] = NULL;
    }
    pthread_mutex_unlock(&table->drain);
    if (known)
        t->host->changed(t->host);
    return rc;
}

void tei_gpuipc_table_end(struct gpuipc_table *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->drain);
    if (t->regions)
        cut_off_all(t);
    pthread_mutex_lock(&t->lock);
    while (t->regions) /* the first thing in a tree's node is what is in it */
        put_share(t, *(struct gpuipc_share **)t->regions);
    pthread_mutex_unlock(&t->lock);
    pthread_mutex_unlock(&t->drain);
}

/* ----------------------------------------------------------------------------------- descriptor */

/* Whether memory for some peers only lies in it: whoever maps it reaches all of it. Under the lock. */
static bool is_hidden(struct gpuipc_table *t, const struct gpuipc_entry *e)
{
    struct tei_link *link, *tmp;

    TEI_LIST_EACH(&t->hidden, link, tmp) {
        const struct gpuipc_hidden *h = tei_container_of(link, struct gpuipc_hidden, link);

        if (h->addr <= e->base + (e->length - 1) && e->base <= h->addr + (h->length - 1))
            return true;
    }
    return false;
}

/* The allocations that peers may map. NULL: no memory. */
static json_t *allocs_json(struct gpuipc_table *t)
{
    json_t *list = json_array();
    struct tei_link *link, *tmp;

    pthread_mutex_lock(&t->lock);
    TEI_LIST_EACH(&t->listed, link, tmp) {
        struct gpuipc_alloc *a = tei_container_of(link, struct gpuipc_alloc, link);

        if (!is_hidden(t, &a->entry))
            tei_json_append(&list, tei_gpuipc_entry_json(&a->entry));
    }
    pthread_mutex_unlock(&t->lock);
    return list;
}

/* Under "gpu", and not by its own name in "te": there 0.1 looks for what it cannot read. */
int tei_gpuipc_describe(struct tei_transport *t, json_t *root)
{
    struct gpuipc_table *table = tei_gpuipc_of(t)->table;
    json_t *gpu = tei_json_member(tei_json_member(root, "te"), "gpu");
    json_t *keys = tei_gpuipc_keys_json(&table->keys);

    tei_json_set(&keys, "memory", allocs_json(table));
    if (json_object_set_new(gpu, t->ops.name, keys) != 0)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the keys of %s", t->ops.name);
    return 0;
}

/*
 * A reader of another make maps the handle and adds what the address is beyond the buffer's: so
 * this fits a buffer that begins where the allocation does, and no other. The driver gives whoever
 * has the handle all of the allocation, for both directions, and a reader of another make keeps to
 * no rights: so it gets none of memory that is not registered for both.
 */
int tei_gpuipc_describe_buffer(struct tei_transport *t, const struct tei_region *r, uint64_t addr,
                               json_t *object)
{
    struct gpuipc_table *table = tei_gpuipc_of(t)->table;
    const struct gpuipc_share *s = r->allow ? NULL : r->keys[t->index];
    char handle[2 * TEI_GPU_HANDLE + 1] = "";

    pthread_mutex_lock(&table->lock);
    if (s && s->n == 1 && (s->access & TE_REMOTE_RW) == TE_REMOTE_RW &&
        s->v[0]->entry.base == addr && !s->v[0]->gone && !is_hidden(table, &s->v[0]->entry))
        tei_gpuipc_hex(s->v[0]->entry.handle, TEI_GPU_HANDLE, handle);
    pthread_mutex_unlock(&table->lock);
    if (json_object_set_new(object, "shm_name", json_string(handle)) != 0)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the keys of a buffer");
    return 0;
}
