/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.c - a transport that wraps tcp and goes wrong as it is told, so that tests can see that
 * what should notice does.
 *
 * It presents itself as "tcp", forwards every op to an inner instance, and gives that one a host of
 * its own, through which it sees work before it is posted and after it has ended. The environment
 * variable TE_FAULT is a comma list; works are numbered from 1 in the order posted:
 *
 *   flip=N        one byte of work N arrives inverted
 *   fail=N:NAME   work N is not posted and ends with that error ("LINK" or "TE_ERR_LINK")
 *   delay_ms=D    every work is told done D ms late
 *   early=1       breaks the quiet-memory rule: what is cancelled, or past its deadline, is told
 *                 done at once, while the inner transport goes on moving its bytes
 *   link=DEVICE   te_links() is told that this NIC is used, by GID 3, with 4096 bytes under way
 *
 * Each outer work has a job, which holds the inner work and lives until that one is given back;
 * `outer` is NULL once the outer work was told done. A thread, te/fault, looks at the jobs every
 * millisecond as long as there are any: it tells late what is delayed, early what is to be early,
 * and shows the progress of the inner work in the outer one.
 */
#include "base/err.h"
#include "base/os.h"
#include "transport/transport.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TICK_NS TEI_NS_PER_MS

extern const struct tei_transport_ops tei_tcp_ops;
extern const struct tei_transport_ops tei_fault_tcp_ops;

struct script {
    long flip, fail, delay_ms;
    int fail_error;
    bool early;
    char link[64];
};

/* The inner attachment outlives the outer one as long as a job uses it: with early=1 some may. */
struct bond {
    unsigned users; /* jobs, and the outer attachment */
    struct tei_attach *inner;
};

struct job {
    struct tei_link link;
    struct bond *bond;
    struct tei_work *outer;
    struct tei_work *inner;
    _Atomic uint64_t moved;
    uint64_t shown; /* of `moved`, in the outer work */
    char *copy;     /* what is sent instead of the outer work's memory */
    bool flip;
    int early_error; /* to be told at once */
    int64_t due_ns;  /* ended, to be told then; 0: not ended */
};

struct fault_attach {
    struct tei_attach base;
    struct bond *bond;
};

struct fault {
    struct tei_transport base;
    struct tei_host host; /* the inner instance's */
    struct tei_transport *inner;
    struct script script;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool ready, running, quit;
    long n_posted;
    struct tei_list jobs;
};

static struct fault *fault_of(struct tei_transport *t)
{
    return tei_container_of(t, struct fault, base);
}

static struct bond *bond_of(struct tei_attach *a)
{
    return ((struct fault_attach *)a)->bond;
}

/* Lock held. */
static void drop_bond(struct fault *f, struct bond *b)
{
    if (--b->users > 0)
        return;
    f->inner->ops.detach(f->inner, b->inner);
    free(b->inner);
    free(b);
}

/* ----------------------------------------------------------------------------------- the script */

static int error_by_name(const char *name)
{
    static const struct {
        const char *name;
        int error;
    } rows[] = {
#define ROW(name, number, class, text) {#name, number},
        TE_ERR_MAP(ROW)
#undef ROW
    };

    if (strncmp(name, "TE_ERR_", 7) == 0)
        name += 7;
    for (size_t i = 0; i < TEI_ARRAY_LEN(rows); i++)
        if (strcasecmp(name, rows[i].name) == 0)
            return rows[i].error;
    return 0;
}

static bool read_item(struct script *s, char *item)
{
    char *value = strchr(item, '='), *name;

    if (!value)
        return false;
    *value++ = '\0';
    if (strcmp(item, "flip") == 0) {
        s->flip = atol(value);
    } else if (strcmp(item, "delay_ms") == 0) {
        s->delay_ms = atol(value);
    } else if (strcmp(item, "early") == 0) {
        s->early = atol(value) != 0;
    } else if (strcmp(item, "link") == 0) {
        snprintf(s->link, sizeof s->link, "%s", value);
    } else if (strcmp(item, "fail") == 0 && (name = strchr(value, ':'))) {
        s->fail = atol(value);
        s->fail_error = error_by_name(name + 1);
        return s->fail_error != 0;
    } else {
        return false;
    }
    return true;
}

static int read_script(struct script *s)
{
    const char *text = getenv("TE_FAULT");
    char buf[256], *save = NULL;

    memset(s, 0, sizeof *s);
    if (!text || strlen(text) >= sizeof buf)
        return text ? TEI_FAIL(TE_ERR_INVALID, "TE_FAULT is too long") : 0;
    strcpy(buf, text);
    for (char *item = strtok_r(buf, ",", &save); item; item = strtok_r(NULL, ",", &save))
        if (!read_item(s, item))
            return TEI_FAIL(TE_ERR_INVALID, "TE_FAULT: '%s' is not understood", item);
    return 0;
}

/* -------------------------------------------------------------------------------------- telling */

/* Shows what the inner work has moved. Lock held, outer not NULL. */
static void show_progress(struct job *j)
{
    uint64_t moved = atomic_load(&j->moved);

    atomic_fetch_add(j->outer->moved, moved - j->shown);
    j->shown = moved;
}

/* Puts the outer work on the list of those to be told. Lock held. */
static void tell(struct job *j, int error, const char *why, struct tei_list *told)
{
    show_progress(j);
    j->outer->error = error;
    j->outer->why = why;
    tei_list_push_back(told, &j->outer->link);
    j->outer = NULL;
}

/* Lock held; the inner work has been given back. */
static void free_job(struct fault *f, struct job *j)
{
    tei_list_del(&j->link);
    drop_bond(f, j->bond);
    free(j->copy);
    free(j->inner);
    free(j);
}

static void tell_ended(struct fault *f, struct job *j, struct tei_list *told)
{
    if (j->outer) {
        j->outer->sys_errno = j->inner->sys_errno;
        tell(j, j->inner->error, j->inner->why, told);
    }
    free_job(f, j);
}

static void give_back(struct fault *f, struct tei_list *told)
{
    if (!tei_list_empty(told))
        f->base.host->work_done(f->base.host, told);
}

/* The inner host's work_done. */
static void inner_done(struct tei_host *h, struct tei_list *done)
{
    struct fault *f = tei_container_of(h, struct fault, host);
    struct tei_list told;
    struct tei_link *n;

    tei_list_init(&told);
    pthread_mutex_lock(&f->lock);
    while ((n = tei_list_pop(done))) {
        struct tei_work *w = tei_container_of(n, struct tei_work, link);
        struct job *j = w->task;

        if (j->flip && w->opcode == TE_READ && !w->error)
            w->local[w->length / 2] = (char)~w->local[w->length / 2];
        if (f->script.delay_ms > 0)
            j->due_ns = tei_now_ns() + f->script.delay_ms * TEI_NS_PER_MS;
        else
            tell_ended(f, j, &told);
    }
    pthread_mutex_unlock(&f->lock);
    give_back(f, &told);
}

static void look_at_jobs(struct fault *f, struct tei_list *told)
{
    int64_t now = tei_now_ns();
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&f->jobs, n, tmp) {
        struct job *j = tei_container_of(n, struct job, link);

        if (j->due_ns && (j->due_ns <= now || f->quit)) {
            tell_ended(f, j, told);
            continue;
        }
        if (!j->outer)
            continue;
        if (f->script.early && j->outer->deadline_ns <= now)
            j->early_error = TE_ERR_TIMEOUT;
        if (j->early_error)
            tell(j, j->early_error, "told early on purpose", told);
        else
            show_progress(j);
    }
}

static void *run(void *arg)
{
    struct fault *f = arg;
    struct tei_list told;

    tei_list_init(&told);
    pthread_mutex_lock(&f->lock);
    while (!f->quit || !tei_list_empty(&f->jobs)) {
        look_at_jobs(f, &told);
        if (!tei_list_empty(&told)) {
            pthread_mutex_unlock(&f->lock);
            give_back(f, &told);
            pthread_mutex_lock(&f->lock);
            continue; /* it may be told to quit by now */
        }
        tei_cond_wait_until(&f->wake, &f->lock,
                            tei_list_empty(&f->jobs) ? TEI_NEVER : tei_now_ns() + TICK_NS);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* -------------------------------------------------------------------------------------- posting */

/* Lock held. */
static struct job *make_job(struct fault *f, struct tei_work *outer)
{
    struct job *j = calloc(1, sizeof *j);
    struct tei_work *w = calloc(1, f->inner->ops.work_size);

    if (!j || !w)
        abort();
    w->owner = outer->owner;
    w->task = j;
    w->transport = f->inner;
    j->bond = bond_of(outer->attach);
    j->bond->users++;
    w->attach = j->bond->inner;
    w->region = outer->region;
    w->target_region = outer->target_region;
    w->moved = &j->moved;
    w->local = outer->local;
    w->remote = outer->remote;
    w->length = outer->length;
    w->deadline_ns = f->script.early ? TEI_NEVER : outer->deadline_ns;
    w->opcode = outer->opcode;
    j->outer = outer;
    j->inner = w;
    return j;
}

/* A WRITE is bent before it is sent, a READ after it has come. */
static void bend(struct job *j)
{
    struct tei_work *w = j->inner;

    j->flip = true;
    if (w->opcode != TE_WRITE)
        return;
    j->copy = malloc(w->length);
    if (!j->copy)
        abort();
    memcpy(j->copy, w->local, w->length);
    j->copy[w->length / 2] = (char)~j->copy[w->length / 2];
    w->local = j->copy;
}

static void fault_post(struct tei_transport *t, struct tei_list *work)
{
    struct fault *f = fault_of(t);
    struct tei_list inner, told;
    struct tei_link *n;

    tei_list_init(&inner);
    tei_list_init(&told);
    pthread_mutex_lock(&f->lock);
    while ((n = tei_list_pop(work))) {
        struct job *j = make_job(f, tei_container_of(n, struct tei_work, link));

        tei_list_push_back(&f->jobs, &j->link);
        f->n_posted++;
        if (f->n_posted == f->script.flip)
            bend(j);
        if (f->n_posted == f->script.fail) {
            j->inner->error = f->script.fail_error;
            tell_ended(f, j, &told);
        } else {
            tei_list_push_back(&inner, &j->inner->link);
        }
    }
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->lock);
    if (!tei_list_empty(&inner))
        f->inner->ops.post(f->inner, &inner);
    give_back(f, &told);
}

static void fault_cancel(struct tei_transport *t, const void *owner)
{
    struct fault *f = fault_of(t);
    struct tei_link *n, *tmp;

    if (!f->script.early) {
        f->inner->ops.cancel(f->inner, owner);
        return;
    }
    pthread_mutex_lock(&f->lock);
    TEI_LIST_EACH(&f->jobs, n, tmp) {
        struct job *j = tei_container_of(n, struct job, link);

        if (j->outer && j->outer->owner == owner)
            j->early_error = TE_ERR_CANCELED;
    }
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->lock);
}

/* ----------------------------------------------------------------------------------- forwarding */

static int hold(struct tei_host *h, uint64_t addr, uint64_t length, unsigned access,
                struct tei_who *who, struct tei_region **out)
{
    struct tei_host *outer = tei_container_of(h, struct fault, host)->base.host;

    return outer->region_hold(outer, addr, length, access, who, out);
}

static void release(struct tei_host *h, struct tei_region *r)
{
    struct tei_host *outer = tei_container_of(h, struct fault, host)->base.host;

    outer->region_release(outer, r);
}

static int hold_lease(struct tei_host *h, const te_lease_key *key, struct tei_who *who,
                      const struct tei_lease **out)
{
    struct tei_host *outer = tei_container_of(h, struct fault, host)->base.host;

    return outer->lease_hold(outer, key, who, out);
}

static void release_lease(struct tei_host *h, const struct tei_lease *l)
{
    struct tei_host *outer = tei_container_of(h, struct fault, host)->base.host;

    outer->lease_release(outer, l);
}

static int fault_open(struct tei_transport *t)
{
    struct fault *f = fault_of(t);
    int rc = read_script(&f->script);

    if (rc)
        return rc;
    pthread_mutex_init(&f->lock, NULL);
    tei_cond_init(&f->wake);
    tei_list_init(&f->jobs);
    f->ready = true;
    f->host = *t->host;
    f->host.work_done = inner_done;
    f->host.region_hold = hold;
    f->host.region_release = release;
    f->host.lease_hold = hold_lease;
    f->host.lease_release = release_lease;
    rc = tei_transport_open(&tei_tcp_ops, &f->host, t->index, &f->inner);
    if (rc)
        return rc;
    rc = tei_thread_start(&f->thread, "te/fault", run, f);
    f->running = rc == 0;
    if (rc)
        f->inner->ops.stop(f->inner);
    return rc;
}

static int fault_describe(struct tei_transport *t, json_t *root)
{
    struct tei_transport *inner = fault_of(t)->inner;

    return inner->ops.describe(inner, root);
}

static int fault_attach(struct tei_transport *t, struct tei_attach *a, const struct tei_segment *s,
                        const struct tei_hostport *where)
{
    struct tei_transport *inner = fault_of(t)->inner;
    struct bond *b = calloc(1, sizeof *b);
    int rc;

    if (!b)
        return TE_ERR_MEMORY;
    b->users = 1;
    b->inner = calloc(1, inner->ops.attach_size);
    if (!b->inner)
        abort();
    b->inner->transport = inner;
    b->inner->peer = a->peer;
    b->inner->one_life = a->one_life;
    rc = inner->ops.attach(inner, b->inner, s, where);
    if (rc) {
        free(b->inner);
        free(b);
    } else {
        ((struct fault_attach *)a)->bond = b;
    }
    return rc;
}

static void fault_detach(struct tei_transport *t, struct tei_attach *a)
{
    struct fault *f = fault_of(t);

    pthread_mutex_lock(&f->lock);
    drop_bond(f, bond_of(a));
    pthread_mutex_unlock(&f->lock);
}

static void fault_peer_gone(struct tei_transport *t, struct tei_attach *a)
{
    struct tei_transport *inner = fault_of(t)->inner;

    inner->ops.peer_gone(inner, bond_of(a)->inner);
}

static unsigned fault_score(struct tei_transport *t, const struct tei_attach *a,
                            const te_request *r)
{
    struct tei_transport *inner = fault_of(t)->inner;

    return inner->ops.score(inner, a ? ((const struct fault_attach *)a)->bond->inner : NULL, r);
}

static bool fault_poll(struct tei_transport *t)
{
    struct tei_transport *inner = fault_of(t)->inner;

    return inner->ops.poll(inner);
}

static int fault_region_del(struct tei_transport *t, struct tei_region *r)
{
    struct tei_transport *inner = fault_of(t)->inner;

    return inner->ops.region_del(inner, r);
}

static void fault_stats(struct tei_transport *t, struct te_stats *s)
{
    struct tei_transport *inner = fault_of(t)->inner;

    inner->ops.stats(inner, s);
}

static int fault_links(struct tei_transport *t, json_t *nics)
{
    const char *device = fault_of(t)->script.link;

    if (!device[0])
        return 0;
    return json_array_append_new(nics, json_pack("{ss ss si sb si sf}", "device", device, "gid",
                                                 "::3", "gid_index", 3, "used", 1, "inflight_bytes",
                                                 4096, "bandwidth_bps", 12.5e9)) == 0
               ? 0
               : TE_ERR_MEMORY;
}

/* --------------------------------------------------------------------------------------- ending */

static void fault_close(struct tei_transport *t)
{
    struct tei_transport *inner = fault_of(t)->inner;

    inner->ops.close(inner);
}

static void fault_stop(struct tei_transport *t)
{
    struct fault *f = fault_of(t);

    f->inner->ops.stop(f->inner);
    pthread_mutex_lock(&f->lock);
    f->quit = true;
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->lock);
    if (f->running)
        pthread_join(f->thread, NULL);
    f->running = false;
}

static void fault_fini(struct tei_transport *t)
{
    struct fault *f = fault_of(t);

    if (!f->ready)
        return;
    tei_transport_destroy(f->inner);
    pthread_cond_destroy(&f->wake);
    pthread_mutex_destroy(&f->lock);
}

const struct tei_transport_ops tei_fault_tcp_ops = {
    .name = "tcp",
    .abi = TEI_TRANSPORT_ABI,
    .caps = TEI_CAP_REMOTE,
    .mem_kinds = TEI_MEM_BIT(TEI_MEM_HOST),
    .target_kinds = TEI_MEM_ANY,
    .size = sizeof(struct fault),
    .work_size = sizeof(struct tei_work),
    .attach_size = sizeof(struct fault_attach),
    .open = fault_open,
    .describe = fault_describe,
    .attach = fault_attach,
    .detach = fault_detach,
    .score = fault_score,
    .post = fault_post,
    .poll = fault_poll,
    .cancel = fault_cancel,
    .region_del = fault_region_del,
    .peer_gone = fault_peer_gone,
    .stats = fault_stats,
    .links = fault_links,
    .close = fault_close,
    .stop = fault_stop,
    .fini = fault_fini,
};
