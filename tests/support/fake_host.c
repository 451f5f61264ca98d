/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_host.h"
#include "segment_text.h"

#include "base/err.h"
#include "base/os.h"
#include "plat/plat.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIE(...)                                    \
    do {                                            \
        fprintf(stderr, "fake host: " __VA_ARGS__); \
        fputc('\n', stderr);                        \
        abort();                                    \
    } while (0)

static struct fake_host *host_of(struct tei_host *h)
{
    return tei_container_of(h, struct fake_host, base);
}

/* ------------------------------------------------------------------------------------- the host */

static bool is_on_shelf(const struct fake_host *h, const struct tei_work *w)
{
    return (uintptr_t)w - (uintptr_t)h->shelf < h->shelf_used;
}

static void work_done(struct tei_host *base, struct tei_list *done)
{
    struct fake_host *h = host_of(base);
    struct tei_link *link;
    bool awaited = false;

    pthread_mutex_lock(&h->lock);
    while ((link = tei_list_pop(done))) {
        struct tei_work *w = tei_container_of(link, struct tei_work, link);
        struct fake_task *task = w->task;

        if (task->done)
            DIE("work ended twice");
        if (!w->error && atomic_load(&task->moved) != w->length)
            DIE("work ended well after %llu of %llu bytes",
                (unsigned long long)atomic_load(&task->moved), (unsigned long long)w->length);
        task->done = true;
        awaited |= task->awaited;
        task->error = w->error;
        task->sys_errno = w->sys_errno;
        task->why = w->why;
        task->nic = w->nic;
        task->changes = w->changes;
        h->n_done++;
        if (!is_on_shelf(h, w))
            free(w);
    }
    if (awaited)
        pthread_cond_broadcast(&h->cond);
    pthread_mutex_unlock(&h->lock);
}

static int region_hold(struct tei_host *base, uint64_t addr, uint64_t length, unsigned access,
                       struct tei_who *who, struct tei_region **out)
{
    struct fake_host *h = host_of(base);
    int rc = TE_ERR_NOT_REGISTERED;

    (void)who; /* nobody is known here */
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < FAKE_REGIONS_MAX; i++) {
        struct tei_region *r = h->regions[i];

        if (!r || addr < r->addr || length > r->length || addr - r->addr > r->length - length)
            continue;
        rc = (r->allowed & access) == access ? TE_ERR_REJECTED : TE_ERR_ACCESS;
        if ((r->access & access) == access) {
            rc = 0;
            atomic_fetch_add(&r->remote_users, 1);
            *out = r;
        }
    }
    pthread_mutex_unlock(&h->lock);
    return rc;
}

static void region_release(struct tei_host *base, struct tei_region *r)
{
    (void)base;
    if (atomic_fetch_sub_explicit(&r->remote_users, 1, memory_order_acq_rel) == 0)
        DIE("a region was released that nobody held");
}

static int lease_hold(struct tei_host *base, const te_lease_key *key, struct tei_who *who,
                      const struct tei_lease **out)
{
    struct fake_host *h = host_of(base);
    int rc = TE_ERR_NOT_FOUND;

    (void)who;
    pthread_mutex_lock(&h->lock);
    if (h->lease.region && memcmp(key, &h->lease_key, sizeof *key) == 0)
        rc = h->lease_error;
    if (!rc) {
        atomic_fetch_add(&h->lease.region->remote_users, 1);
        h->lease_holds++;
        *out = &h->lease;
    }
    pthread_mutex_unlock(&h->lock);
    return rc;
}

static void lease_release(struct tei_host *base, const struct tei_lease *l)
{
    struct fake_host *h = host_of(base);

    pthread_mutex_lock(&h->lock);
    if (l != &h->lease || h->lease_holds-- == 0)
        DIE("a lease was released that nobody held");
    pthread_mutex_unlock(&h->lock);
}

/* Every NIC under sysfs, which is what discovery finds on a host with one NUMA node. */
static int find_nics(const struct fake_host *h, struct tei_topology *out)
{
    char dir[TEI_CONF_TEXT + 32];
    struct dirent **found = NULL;
    const char *names[64];
    size_t n = 0;
    int count, rc;

    snprintf(dir, sizeof dir, "%s/class/infiniband", h->conf.sysfs_path);
    count = scandir(dir, &found, NULL, alphasort);
    for (int i = 0; i < count; i++)
        if (found[i]->d_name[0] != '.' && n < TEI_ARRAY_LEN(names))
            names[n++] = found[i]->d_name;
    *out = (struct tei_topology){0};
    rc = tei_topology_add(out, "cpu:0", names, n, NULL, 0);
    for (int i = 0; i < count; i++)
        free(found[i]);
    free(found);
    return rc;
}

static int topology(struct tei_host *base, struct tei_topology *out)
{
    const struct fake_host *h = host_of(base);

    return h->topology ? tei_topology_decode(h->topology, strlen(h->topology), out)
                       : find_nics(h, out);
}

static void changed(struct tei_host *base)
{
    atomic_fetch_add(&host_of(base)->n_changed, 1);
}

static void refused(struct tei_host *base, const struct tei_attach *a)
{
    (void)a;
    atomic_fetch_add(&host_of(base)->n_refused, 1);
}

static int ask(struct tei_host *base, const struct tei_hostport *where, const char *body,
               size_t len, char **answer, size_t *answer_len)
{
    const struct tei_conf *c = base->conf;
    int64_t until = tei_deadline_ns(c->handshake_connect_timeout_s * 1000);
    struct tei_bytes reply = {0};
    int rc = tei_rpc_request(c->identity, where, TEI_RPC_CONNECTION, body, len,
                             c->handshake_max_length, until, &reply);

    if (rc)
        return rc;
    *answer = reply.data;
    *answer_len = reply.len;
    return 0;
}

static const char *note(struct tei_host *base, const struct tei_work *w, const char *text)
{
    struct fake_task *t = w->task;

    (void)base;
    snprintf(t->note, sizeof t->note, "%s", text);
    return t->note;
}

/* By the last character, as names in fabrics of tests differ in that: "left0" is 1. */
static uint8_t nic_number(struct tei_host *base, const char *name)
{
    (void)base;
    return (uint8_t)(name[strlen(name) - 1] - '0' + 1);
}

static void answer(struct tei_host *base, struct tei_rpc_call *call, const char *text, size_t len)
{
    (void)base;
    tei_rpc_reply(call, text, len);
}

void fake_host_init(struct fake_host *h)
{
    static _Atomic unsigned n_hosts;

    te_log_set_level(TE_LOG_ERROR); /* tests bring about what is worth a warning */
    memset(h, 0, sizeof *h);
    pthread_mutex_init(&h->lock, NULL);
    tei_cond_init(&h->cond);
    tei_jobs_init(&h->jobs, 4);
    tei_jobs_init(&h->waits, 4);
    if (tei_conf_load(NULL, &h->conf))
        DIE("the defaults do not load");
    h->conf.host_timeout_ms =
        PATIENCE_MS; /* the defaults are too short for a machine that stalls */
    h->conf.handshake_connect_timeout_s = PATIENCE_MS / 1000;
    h->conf.transfer_timeout_ms = h->conf.tcp_status_timeout_ms = FAKE_NEVER_MS;
    snprintf(h->name, sizeof h->name, "fake.%d.%u", (int)getpid(), atomic_fetch_add(&n_hosts, 1));
    h->incarnation = tei_random_u64() | 1;
    h->base = (struct tei_host){.conf = &h->conf,
                                .jobs = &h->jobs,
                                .waits = &h->waits,
                                .incarnation = h->incarnation,
                                .segment_name = h->name,
                                .bind_host = "127.0.0.1",
                                .work_done = work_done,
                                .note = note,
                                .nic = nic_number,
                                .region_hold = region_hold,
                                .region_release = region_release,
                                .lease_hold = lease_hold,
                                .lease_release = lease_release,
                                .topology = topology,
                                .changed = changed,
                                .refused = refused,
                                .connect = ask,
                                .answer = answer};
}

void fake_host_fini(struct fake_host *h)
{
    for (size_t i = 0; i < FAKE_REGIONS_MAX; i++)
        free(h->regions[i]);
    tei_jobs_stop(&h->waits);
    tei_jobs_stop(&h->jobs);
    tei_jobs_fini(&h->waits);
    tei_jobs_fini(&h->jobs);
    pthread_cond_destroy(&h->cond);
    pthread_mutex_destroy(&h->lock);
}

/* -------------------------------------------------------------------------------------- regions */

/* As the core does it. */
static void tell_kind(struct tei_region *r)
{
    struct tei_mem_info m;

    if (tei_mem_inspect((void *)r->addr, r->length, &m))
        DIE("tei_mem_inspect failed: %s", te_errmsg());
    r->kind = (uint8_t)m.kind;
    r->device = m.device;
    snprintf(r->location, sizeof r->location, "%s:%d", tei_mem_word(m.kind),
             m.device < 0 ? 0 : m.device);
}

static void join(struct tei_transport *t, struct tei_region *r)
{
    int rc = t->ops.mem_kinds & TEI_MEM_BIT(r->kind) ? t->ops.region_add(t, r) : TE_ERR_UNSUPPORTED;

    if (rc == 0)
        r->direct |= 1u << t->index;
    else if (r->kind == TEI_MEM_HOST || rc != TE_ERR_UNSUPPORTED)
        DIE("region_add failed: %s", te_errmsg());
}

static struct tei_region *add_region(struct fake_host *h, struct tei_transport *t,
                                     const struct tei_region *as)
{
    struct tei_region *r = malloc(sizeof *r);
    size_t i = 0;

    if (!r)
        DIE("out of memory");
    *r = *as;
    tell_kind(r);
    join(t, r);
    pthread_mutex_lock(&h->lock);
    while (i < FAKE_REGIONS_MAX && h->regions[i])
        i++;
    if (i == FAKE_REGIONS_MAX)
        DIE("too many regions");
    h->regions[i] = r;
    pthread_mutex_unlock(&h->lock);
    return r;
}

struct tei_region *fake_region_add(struct fake_host *h, struct tei_transport *t, void *addr,
                                   size_t length, unsigned access)
{
    const struct tei_region r = {.addr = (uintptr_t)addr, .length = length, .access = access};

    return add_region(h, t, &r);
}

struct tei_region *fake_region_for_others(struct fake_host *h, struct tei_transport *t, void *addr,
                                          size_t length, unsigned access)
{
    static char list;
    const struct tei_region r = {.addr = (uintptr_t)addr,
                                 .length = length,
                                 .allow = (struct tei_allow *)(void *)&list,
                                 .allowed = access};

    return add_region(h, t, &r);
}

te_lease_key fake_lease(struct fake_host *h, struct tei_region *r, const void *addr, size_t length,
                        unsigned access)
{
    static _Atomic unsigned n;
    te_lease_key key;

    memset(&key, 0xa5, sizeof key);
    key.bytes[0] = (uint8_t)atomic_fetch_add(&n, 1);
    pthread_mutex_lock(&h->lock);
    if (h->lease_holds)
        DIE("the lease is held");
    h->lease = (struct tei_lease){(uintptr_t)addr, length, access, r};
    h->lease_key = key;
    h->lease_error = 0;
    pthread_mutex_unlock(&h->lock);
    return key;
}

unsigned fake_lease_holds(struct fake_host *h)
{
    unsigned holds;

    pthread_mutex_lock(&h->lock);
    holds = h->lease_holds;
    pthread_mutex_unlock(&h->lock);
    return holds;
}

unsigned fake_lease_over(struct fake_host *h, int error)
{
    unsigned holds;

    pthread_mutex_lock(&h->lock);
    h->lease_error = error;
    holds = h->lease_holds;
    pthread_mutex_unlock(&h->lock);
    return holds;
}

/* Again where a peer is inside, which may be one that gets no processor. */
static int leave(struct tei_transport *t, struct tei_region *r)
{
    int64_t end = tei_now_ns() + PATIENCE_MS * TEI_NS_PER_MS;
    int rc = t->ops.region_del(t, r);

    while (rc == TE_ERR_BUSY && tei_now_ns() < end) {
        usleep(1000);
        rc = t->ops.region_del(t, r);
    }
    return rc;
}

void fake_region_del(struct fake_host *h, struct tei_transport *t, struct tei_region *r)
{
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < FAKE_REGIONS_MAX; i++)
        if (h->regions[i] == r)
            h->regions[i] = NULL;
    pthread_mutex_unlock(&h->lock);
    if (leave(t, r))
        DIE("region_del failed: %s", te_errmsg());
    if (atomic_load_explicit(&r->remote_users, memory_order_acquire) != 0)
        DIE("region_del came back with users inside");
    free(r);
}

/* ---------------------------------------------------------------------------- handshake server */

/* The call is kept, and it is for later to answer it. */
static bool is_kept(struct fake_host *h, struct tei_rpc_call *call)
{
    bool deaf;

    pthread_mutex_lock(&h->lock);
    deaf = h->deaf;
    if (deaf && h->n_kept == FAKE_KEPT_MAX)
        DIE("too many connection messages for one that is deaf");
    if (deaf)
        h->kept[h->n_kept++] = call;
    pthread_mutex_unlock(&h->lock);
    return deaf;
}

void fake_host_deafen(struct fake_host *h, bool deaf)
{
    pthread_mutex_lock(&h->lock);
    h->deaf = deaf;
    while (!deaf && h->n_kept > 0)
        tei_rpc_reply(h->kept[--h->n_kept], "null", 4);
    pthread_mutex_unlock(&h->lock);
}

static void on_message(void *arg, struct tei_rpc_call *call, enum tei_rpc_type type,
                       const char *body, size_t len)
{
    struct fake_host *h = arg;

    atomic_fetch_add(&h->n_handshakes, 1);
    if (type != TEI_RPC_CONNECTION)
        tei_rpc_reply(call, "null", 4);
    else if (!is_kept(h, call))
        h->served->ops.handshake(h->served, call, body, len);
}

static void listen_for_peers(struct fake_host *h, struct tei_transport *t)
{
    int fd = tei_listen("127.0.0.1", &h->where.port, 128);

    strcpy(h->where.host, "127.0.0.1");
    if (fd < 0 || tei_loop_init(&h->loop, NULL) ||
        tei_rpc_server_open(&h->loop, fd, &h->conf,
                            &(struct tei_rpc_service){.handler = on_message, .arg = h}, &h->server))
        DIE("no handshake server: %s", te_errmsg());
    h->served = t;
    if (tei_loop_start(&h->loop, "fake/ctl"))
        DIE("no thread for the handshake server");
}

static void listen_no_more(struct fake_host *h)
{
    tei_loop_join(&h->loop);
    tei_rpc_server_close(h->server);
    tei_loop_fini(&h->loop);
    h->served = NULL;
}

/* ----------------------------------------------------------------------------------- transports */

struct tei_transport *fake_open(struct fake_host *h, const char *transport)
{
    const struct tei_transport_ops *ops = tei_transport_find(transport);
    struct tei_transport *t;

    if (!ops || tei_transport_open(ops, &h->base, 0, &t))
        DIE("transport %s does not open: %s", transport, te_errmsg());
    if (t->has & TEI_HAS_HANDSHAKE)
        listen_for_peers(h, t);
    return t;
}

void fake_close(struct tei_transport *t)
{
    struct fake_host *h = host_of(t->host);

    t->ops.close(t);
    t->ops.stop(t);
    if (h->served == t)
        listen_no_more(h);
    tei_transport_destroy(t);
}

/* ---------------------------------------------------------------------------------- descriptors */

static int by_addr(const void *a, const void *b)
{
    const struct tei_published *x = a, *y = b;

    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* The regions of the host in parts of at most `max` bytes, by address. */
static struct tei_published *list_buffers(struct fake_host *h, uint64_t max, size_t *n)
{
    struct tei_published *list = NULL;

    *n = 0;
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < FAKE_REGIONS_MAX; i++) {
        const struct tei_region *r = h->regions[i];

        for (uint64_t from = 0; r && from < r->length; from += tei_min(max, r->length - from)) {
            list = realloc(list, (*n + 1) * sizeof *list);
            if (!list)
                DIE("out of memory");
            list[(*n)++] = (struct tei_published){.addr = r->addr + from,
                                                  .length = tei_min(max, r->length - from),
                                                  .access = r->access | r->allowed,
                                                  .location = r->location,
                                                  .region = r};
        }
    }
    pthread_mutex_unlock(&h->lock);
    if (*n > 0)
        qsort(list, *n, sizeof *list, by_addr);
    return list;
}

static int fill_buffer(void *arg, const char *protocol, const struct tei_published *b,
                       json_t *object)
{
    struct tei_transport *t = arg;

    (void)protocol;
    return t->ops.describe_buffer(t, b->region, b->addr, object);
}

char *fake_describe(struct tei_transport *t)
{
    struct fake_host *h = host_of(t->host);
    struct tei_encode e = {
        .name = h->name, .incarnation = h->incarnation, .version = 1, .base = json_object()};
    struct tei_published *list = list_buffers(h, t->ops.buffer_max(t), &e.n_buffers);
    char *text;
    size_t len;

    e.buffers = list;
    e.fill = t->has & TEI_HAS_BUFFER_KEYS ? fill_buffer : NULL;
    e.arg = t;
    json_object_set_new(e.base, "protocol", json_string(t->ops.name));
    json_object_set_new(e.base, "fake_port", json_integer(h->served ? h->where.port : 1));
    if (t->ops.describe(t, e.base) || segment_text(&e, &text, &len))
        DIE("no descriptor: %s", te_errmsg());
    json_decref(e.base);
    free(list);
    return text;
}

static int attach_segment(struct tei_transport *t, const struct tei_segment *s,
                          const struct tei_hostport *where, struct tei_attach **out)
{
    struct tei_attach *a = calloc(1, t->ops.attach_size);
    int rc;

    if (!a)
        DIE("out of memory");
    a->transport = t;
    rc = t->ops.attach(t, a, s, where);
    if (rc)
        free(a);
    else
        *out = a;
    return rc;
}

int fake_attach_json(struct tei_transport *t, json_t *root, const char *host,
                     struct tei_attach **out)
{
    char name[] = "fake", protocol[] = "tcp";
    struct tei_segment s = {
        .name = name, .protocol = protocol, .incarnation = 1, .version = 1, .root = root};
    struct tei_hostport where = {.port = 1};
    int rc;

    snprintf(where.host, sizeof where.host, "%s", host);
    rc = attach_segment(t, &s, &where, out);
    json_decref(root);
    return rc;
}

int fake_attach_segment(struct tei_transport *t, const struct tei_segment *s,
                        struct tei_attach **out)
{
    struct tei_hostport nowhere = {0};

    return attach_segment(t, s, &nowhere, out);
}

struct tei_attach *fake_attach_text(struct tei_transport *t, const char *text)
{
    struct tei_hostport where = {.host = "127.0.0.1"};
    struct tei_attach *a = NULL;
    struct tei_segment *s;

    if (tei_segment_decode(text, strlen(text), &tei_segment_unlimited, &s))
        DIE("a descriptor cannot be read: %s", te_errmsg());
    where.port = (uint16_t)json_integer_value(json_object_get(s->root, "fake_port"));
    if (attach_segment(t, s, &where, &a))
        DIE("cannot attach: %s", te_errmsg());
    tei_segment_put(s);
    return a;
}

struct tei_attach *fake_attach(struct tei_transport *t, struct tei_transport *target)
{
    struct tei_attach *a;
    char *text;

    if (!target)
        return NULL;
    text = fake_describe(target);
    a = fake_attach_text(t, text);
    free(text);
    return a;
}

void fake_detach(struct tei_transport *t, struct tei_attach *a)
{
    if (!a)
        return;
    t->ops.detach(t, a);
    free(a);
}

/* ----------------------------------------------------------------------------------------- work */

static struct tei_region *region_of(struct fake_host *h, const void *addr, uint64_t length)
{
    struct tei_region *found = NULL;

    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < FAKE_REGIONS_MAX && !found; i++)
        if (h->regions[i] && tei_region_contains(h->regions[i], (uintptr_t)addr, length))
            found = h->regions[i];
    pthread_mutex_unlock(&h->lock);
    return found;
}

static struct tei_work *work_new(struct fake_host *h, size_t size)
{
    struct tei_work *w = h->shelf ? (void *)(h->shelf + h->shelf_used) : calloc(1, size);

    if (!w)
        DIE("out of memory");
    if (!h->shelf)
        return w;
    h->shelf_used += size;
    if (h->shelf_used > h->shelf_size)
        DIE("the shelf is too small");
    return memset(w, 0, size);
}

struct tei_work *fake_work(struct tei_list *list, struct tei_transport *t, struct tei_attach *a,
                           struct fake_task *task, int opcode, void *local, const void *remote,
                           uint64_t length)
{
    struct tei_work *w = work_new(host_of(t->host), t->ops.work_size);

    memset(task, 0, sizeof *task);
    w->transport = t;
    w->attach = a;
    w->region = region_of(host_of(t->host), local, length);
    w->target_region = a ? NULL : region_of(host_of(t->host), remote, length);
    w->task = task;
    w->moved = &task->moved;
    w->opcode = opcode;
    w->local = local;
    w->remote = (uintptr_t)remote;
    w->length = length;
    w->deadline_ns = TEI_NEVER;
    tei_list_push_back(list, &w->link);
    return w;
}

static bool all_done(struct fake_host *h, struct fake_task *tasks, size_t n)
{
    bool done = true;

    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < n && done; i++)
        done = tasks[i].done;
    pthread_mutex_unlock(&h->lock);
    return done;
}

bool fake_wait(struct fake_host *h, struct tei_transport *poll, struct fake_task *tasks, size_t n,
               int64_t timeout_ms)
{
    int64_t deadline = tei_deadline_ns(timeout_ms);
    bool in_time = true;

    while (poll && !all_done(h, tasks, n) && tei_now_ns() < deadline)
        poll->ops.poll(poll);
    pthread_mutex_lock(&h->lock);
    /* The last one first: what was posted before is mostly done by then, and wakes nobody. */
    while (n > 0 && in_time) {
        tasks[n - 1].awaited = true;
        if (tasks[n - 1].done)
            n--;
        else
            in_time = tei_cond_wait_until(&h->cond, &h->lock, deadline);
    }
    pthread_mutex_unlock(&h->lock);
    return n == 0;
}

int fake_transfer(struct tei_transport *t, struct tei_attach *a, int opcode, void *local,
                  const void *remote, uint64_t length)
{
    struct fake_task *task = calloc(1, sizeof *task);
    struct tei_list list;
    int rc = TE_ERR_BUSY;

    if (!task)
        DIE("out of memory");
    tei_list_init(&list);
    fake_work(&list, t, a, task, opcode, local, remote, length);
    t->ops.post(t, &list);
    /* What does not end keeps its task: it may still be told. */
    if (fake_wait(host_of(t->host), NULL, task, 1, PATIENCE_MS)) {
        rc = task->error;
        free(task);
    }
    return rc;
}
