/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_host.h"

#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        h->n_done++;
        free(w);
    }
    if (awaited)
        pthread_cond_broadcast(&h->cond);
    pthread_mutex_unlock(&h->lock);
}

static int region_hold(struct tei_host *base, uint64_t addr, uint64_t length, unsigned access,
                       struct tei_region **out)
{
    struct fake_host *h = host_of(base);
    int rc = TE_ERR_NOT_REGISTERED;

    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < FAKE_REGIONS_MAX; i++) {
        struct tei_region *r = h->regions[i];

        if (!r || addr < r->addr || length > r->length || addr - r->addr > r->length - length)
            continue;
        rc = (r->access & access) == access ? 0 : TE_ERR_ACCESS;
        if (!rc) {
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

void fake_host_init(struct fake_host *h)
{
    te_log_set_level(TE_LOG_ERROR); /* tests bring about what is worth a warning */
    memset(h, 0, sizeof *h);
    pthread_mutex_init(&h->lock, NULL);
    tei_cond_init(&h->cond);
    tei_jobs_init(&h->jobs, 4);
    if (tei_conf_load(NULL, &h->conf))
        DIE("the defaults do not load");
    h->base = (struct tei_host){.conf = &h->conf,
                                .jobs = &h->jobs,
                                .segment_name = "fake",
                                .bind_host = "127.0.0.1",
                                .work_done = work_done,
                                .region_hold = region_hold,
                                .region_release = region_release};
}

void fake_host_fini(struct fake_host *h)
{
    for (size_t i = 0; i < FAKE_REGIONS_MAX; i++)
        free(h->regions[i]);
    tei_jobs_stop(&h->jobs);
    tei_jobs_fini(&h->jobs);
    pthread_cond_destroy(&h->cond);
    pthread_mutex_destroy(&h->lock);
}

/* -------------------------------------------------------------------------------------- regions */

struct tei_region *fake_region_add(struct fake_host *h, struct tei_transport *t, void *addr,
                                   size_t length, unsigned access)
{
    struct tei_region *r = calloc(1, sizeof *r);
    size_t i = 0;

    if (!r)
        DIE("out of memory");
    r->addr = (uintptr_t)addr;
    r->length = length;
    r->access = access;
    strcpy(r->location, "*");
    if (t->ops.region_add(t, r))
        DIE("region_add failed");
    pthread_mutex_lock(&h->lock);
    while (i < FAKE_REGIONS_MAX && h->regions[i])
        i++;
    if (i == FAKE_REGIONS_MAX)
        DIE("too many regions");
    h->regions[i] = r;
    pthread_mutex_unlock(&h->lock);
    return r;
}

void fake_region_del(struct fake_host *h, struct tei_transport *t, struct tei_region *r)
{
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < FAKE_REGIONS_MAX; i++)
        if (h->regions[i] == r)
            h->regions[i] = NULL;
    pthread_mutex_unlock(&h->lock);
    if (t->ops.region_del(t, r))
        DIE("region_del failed: %s", te_errmsg());
    if (atomic_load_explicit(&r->remote_users, memory_order_acquire) != 0)
        DIE("region_del came back with users inside");
    free(r);
}

/* ----------------------------------------------------------------------------------- transports */

struct tei_transport *fake_open(struct fake_host *h, const char *transport)
{
    const struct tei_transport_ops *ops = tei_transport_find(transport);
    struct tei_transport *t;

    if (!ops || tei_transport_open(ops, &h->base, 0, &t))
        DIE("transport %s does not open: %s", transport, te_errmsg());
    return t;
}

void fake_close(struct tei_transport *t)
{
    t->ops.close(t);
    t->ops.stop(t);
    tei_transport_destroy(t);
}

int fake_attach_json(struct tei_transport *t, json_t *root, const char *host,
                     struct tei_attach **out)
{
    char name[] = "fake", protocol[] = "tcp";
    struct tei_segment s = {
        .name = name, .protocol = protocol, .incarnation = 1, .version = 1, .root = root};
    struct tei_hostport where = {.port = 1};
    struct tei_attach *a = calloc(1, t->ops.attach_size);
    int rc;

    if (!a)
        DIE("out of memory");
    snprintf(where.host, sizeof where.host, "%s", host);
    a->transport = t;
    rc = t->ops.attach(t, a, &s, &where);
    json_decref(root);
    if (rc)
        free(a);
    else
        *out = a;
    return rc;
}

struct tei_attach *fake_attach(struct tei_transport *t, struct tei_transport *target)
{
    struct tei_attach *a = NULL;
    json_t *root;

    if (!target)
        return NULL;
    root = json_object();
    if (target->ops.describe(target, root) || fake_attach_json(t, root, "127.0.0.1", &a))
        DIE("cannot attach");
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

struct tei_work *fake_work(struct tei_list *list, struct tei_transport *t, struct tei_attach *a,
                           struct fake_task *task, int opcode, void *local, const void *remote,
                           uint64_t length)
{
    struct tei_work *w = calloc(1, t->ops.work_size);

    if (!w)
        DIE("out of memory");
    memset(task, 0, sizeof *task);
    w->transport = t;
    w->attach = a;
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
    if (fake_wait(host_of(t->host), NULL, task, 1, 20000)) {
        rc = task->error;
        free(task);
    }
    return rc;
}
