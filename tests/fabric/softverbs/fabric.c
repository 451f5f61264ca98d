/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fabric.c - the state file, the slots of processes and tables, holds, fences and mail. The
 * protocol is told in shared.h.
 *
 * A process has at most one fabric open. The first device list or context opens it, by the
 * environment variable SOFTVERBS; when the last list and context are gone it is closed, engine
 * thread and all, and the next one may name another fabric.
 */
#include "fabric/softverbs/fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int64_t sv_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void sv_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t until)
{
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};

    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, until == SV_NEVER ? NULL : &t, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

void sv_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void nap(int64_t ns)
{
    struct timespec t = {.tv_nsec = ns};

    nanosleep(&t, NULL);
}

/* ----------------------------------------------------------------------------------- processes */

/* Whether the process that had this pid and began at `start` still runs (0: whatever began then).
 * `state` gets the letter of /proc/<pid>/stat. A zombie does not run. */
static bool proc_stat(const char *path, uint64_t *start, char *state)
{
    char text[1024];
    char *at;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    at = strrchr(text, ')');
    if (!at || at[1] != ' ')
        return false;
    *state = at[2];
    for (int field = 3; field < 22 && at; field++)
        at = strchr(at + (field == 3 ? 3 : 1), ' ');
    if (!at)
        return false;
    *start = strtoull(at, NULL, 10);
    return *state != 'Z' && *state != 'X';
}

bool sv_proc_alive(uint32_t pid, uint64_t start, char *state)
{
    char path[64], letter;
    uint64_t began;

    if (sv_world())
        return sv_world()->is_alive(pid);
    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    if (!proc_stat(path, &began, &letter))
        return false;
    if (state)
        *state = letter;
    return start == 0 || began == start;
}

static bool engine_stopped(const struct sv_proc *p)
{
    char path[64], letter;
    uint64_t began;

    if (sv_world()) /* a NIC goes on while its process is stopped */
        return false;
    snprintf(path, sizeof(path), "/proc/%u/task/%u/stat", p->pid, p->engine_tid);
    return proc_stat(path, &began, &letter) && letter == 'T';
}

bool sv_peer_alive(struct sv_fabric *f, uint32_t slot)
{
    struct sv_proc *p = &f->s->procs[slot];
    struct sv_peer *peer = &f->peers[slot];
    struct pollfd poller;
    int64_t now;

    if (slot == f->slot)
        return true;
    if (sv_world())
        return p->pid && sv_world()->is_alive(p->pid);
    now = sv_now();
    if (peer->pid != p->pid || peer->start != p->start) {
        if (peer->pidfd >= 0)
            close(peer->pidfd);
        peer->pid = p->pid;
        peer->start = p->start;
        peer->pidfd = peer->pid ? (int)syscall(SYS_pidfd_open, peer->pid, 0) : -1;
        peer->alive = peer->pidfd >= 0 && sv_proc_alive(peer->pid, peer->start, NULL);
        peer->checked = now;
    } else if (peer->alive && now - peer->checked > SV_MS) {
        poller = (struct pollfd){.fd = peer->pidfd, .events = POLLIN};
        peer->alive = poll(&poller, 1, 0) == 0;
        peer->checked = now;
    }
    return peer->alive;
}

/* --------------------------------------------------------------------------------- shared locks */

static void rebuild_free_lists(struct sv_state *s)
{
    s->qp_free = s->mr_free = UINT32_MAX;
    for (uint32_t i = 0; i < s->qp_used; i++)
        if (!s->qps[i].used) {
            s->qps[i].next_free = s->qp_free;
            s->qp_free = i;
        }
    for (uint32_t i = 0; i < s->mr_used; i++)
        if (!s->mrs[i].used) {
            s->mrs[i].next_free = s->mr_free;
            s->mr_free = i;
        }
}

bool sv_lock(struct sv_state *s)
{
    int rc = pthread_mutex_lock(&s->lock);

    if (rc == EOWNERDEAD) {
        rebuild_free_lists(s);
        pthread_mutex_consistent(&s->lock);
        rc = 0;
    }
    return rc == 0;
}

void sv_unlock(struct sv_state *s)
{
    pthread_mutex_unlock(&s->lock);
}

static void init_robust(pthread_mutex_t *m)
{
    pthread_mutexattr_t a;

    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(m, &a);
    pthread_mutexattr_destroy(&a);
}

/* ----------------------------------------------------------------------------------- the tables */

struct sv_mr *sv_mr_alloc(struct sv_fabric *f)
{
    struct sv_state *s = f->s;
    struct sv_mr *mr = NULL;

    sv_lock(s);
    if (s->mr_free == UINT32_MAX && s->mr_used == SV_MAX_MRS)
        sv_reap(s);
    if (s->mr_free != UINT32_MAX) {
        mr = &s->mrs[s->mr_free];
        s->mr_free = mr->next_free;
    } else if (s->mr_used < SV_MAX_MRS) {
        mr = &s->mrs[s->mr_used++];
    }
    if (mr) {
        mr->generation = mr->generation % ((1u << (32 - SV_MR_BITS)) - 1) + 1;
        mr->proc = f->slot;
        mr->used = 1;
    }
    sv_unlock(s);
    return mr;
}

static void mr_free_locked(struct sv_state *s, struct sv_mr *mr)
{
    atomic_store(&mr->key, 0);
    mr->used = 0;
    mr->next_free = s->mr_free;
    s->mr_free = (uint32_t)(mr - s->mrs);
}

void sv_mr_free(struct sv_state *s, struct sv_mr *mr)
{
    sv_lock(s);
    mr_free_locked(s, mr);
    sv_unlock(s);
}

struct sv_qp_slot *sv_qp_alloc(struct sv_fabric *f)
{
    struct sv_state *s = f->s;
    struct sv_qp_slot *q = NULL;

    sv_lock(s);
    if (s->qp_free == UINT32_MAX && s->qp_used == SV_MAX_QPS)
        sv_reap(s);
    if (s->qp_free != UINT32_MAX) {
        q = &s->qps[s->qp_free];
        s->qp_free = q->next_free;
    } else if (s->qp_used < SV_MAX_QPS) {
        q = &s->qps[s->qp_used++];
    }
    if (q) {
        q->generation = q->generation % ((1u << (24 - SV_QP_BITS)) - 1) + 1;
        q->proc = f->slot;
        q->used = 1;
    }
    sv_unlock(s);
    return q;
}

static void qp_free_locked(struct sv_state *s, struct sv_qp_slot *q)
{
    atomic_store(&q->id, 0);
    q->used = 0;
    q->next_free = s->qp_free;
    s->qp_free = (uint32_t)(q - s->qps);
}

void sv_qp_free(struct sv_state *s, struct sv_qp_slot *q)
{
    sv_lock(s);
    qp_free_locked(s, q);
    sv_unlock(s);
}

static void fold(struct sv_counters *into, struct sv_counters *from)
{
    sv_count_most(&into->reads, atomic_exchange(&from->reads, 0));
    atomic_fetch_add(&into->bytes, atomic_exchange(&from->bytes, 0));
    atomic_fetch_add(&into->wrs, atomic_exchange(&from->wrs, 0));
    atomic_fetch_add(&into->doorbells, atomic_exchange(&from->doorbells, 0));
    atomic_fetch_add(&into->completions, atomic_exchange(&from->completions, 0));
    atomic_store(&from->cqs, 0);
}

/* What a process had in the tables goes back; lock held. */
static void release_slot(struct sv_state *s, uint32_t slot)
{
    struct sv_proc *p = &s->procs[slot];

    for (uint32_t i = 0; i < s->qp_used; i++)
        if (s->qps[i].used && s->qps[i].proc == slot)
            qp_free_locked(s, &s->qps[i]);
    for (uint32_t i = 0; i < s->mr_used; i++)
        if (s->mrs[i].used && s->mrs[i].proc == slot)
            mr_free_locked(s, &s->mrs[i]);
    for (uint32_t i = 0; i < s->n_nics; i++)
        fold(&s->nics[i].gone, &p->counters[i]);
    atomic_store(&p->hold_qp, 0);
    atomic_store(&p->hold_mr[0], 0);
    atomic_store(&p->hold_mr[1], 0);
    atomic_store(&p->pid, 0);
}

void sv_reap(struct sv_state *s)
{
    for (uint32_t i = 0; i < s->proc_used; i++)
        if (s->procs[i].pid && !sv_proc_alive(s->procs[i].pid, s->procs[i].start, NULL))
            release_slot(s, i);
}

/* -------------------------------------------------------------------------------- bells, events */

void sv_ring(struct sv_proc *p)
{
    atomic_fetch_add(&p->bell, 1);
    if (atomic_load(&p->sleeping))
        sv_futex_wake(&p->bell);
}

void sv_ring_all(struct sv_state *s)
{
    for (uint32_t i = 0; i < s->proc_used; i++)
        if (s->procs[i].pid)
            sv_ring(&s->procs[i]);
}

void sv_event(struct sv_nic *nic, uint32_t type, uint32_t arg)
{
    struct sv_event *e = &nic->events[nic->event_seq % SV_EVENTS];

    atomic_store_explicit(&e->type, type, memory_order_relaxed);
    atomic_store_explicit(&e->arg, arg, memory_order_relaxed);
    atomic_fetch_add(&nic->event_seq, 1);
}

bool sv_denied(struct sv_nic *nic, enum sv_deny verb)
{
    _Atomic int64_t *left = &nic->deny_after[verb];

    if (atomic_load(left) == 0)
        return false;
    if (atomic_load(left) > 1) {
        atomic_fetch_sub(left, 1);
        return false;
    }
    errno = nic->deny_errno[verb];
    return true;
}

/* ----------------------------------------------------------------------------- holds and fences */

static bool holds(struct sv_proc *p, uint32_t qpn, uint32_t key)
{
    return (qpn && atomic_load(&p->hold_qp) == qpn) ||
           (key && (atomic_load(&p->hold_mr[0]) == key || atomic_load(&p->hold_mr[1]) == key));
}

/*
 * Waits until this process does not hold the thing. A stopped one gets its remote iovec emptied: if
 * it is still stopped afterwards, it was not inside the system call all the while, and whatever
 * call comes later moves nothing.
 */
static void wait_for(struct sv_fabric *f, uint32_t slot, uint32_t qpn, uint32_t key)
{
    struct sv_proc *p = &f->s->procs[slot];

    for (unsigned i = 0; holds(p, qpn, key); i++) {
        uint32_t pid = p->pid;

        nap(i < 100 ? 20 * SV_US : SV_MS);
        if (slot == f->slot || i % 100 != 99 || pid == 0)
            continue;
        if (!sv_proc_alive(pid, p->start, NULL))
            return;
        if (engine_stopped(p)) {
            __atomic_store_n(&p->remote_iov.iov_len, 0, __ATOMIC_SEQ_CST);
            if (engine_stopped(p))
                return;
        }
    }
}

static void fence(struct sv_fabric *f, uint32_t qpn, uint32_t key)
{
    for (uint32_t i = 0; i < f->s->proc_used; i++)
        if (f->s->procs[i].pid && holds(&f->s->procs[i], qpn, key))
            wait_for(f, i, qpn, key);
}

void sv_fence_qp(struct sv_fabric *f, uint32_t qpn)
{
    fence(f, qpn, 0);
}

void sv_fence_mr(struct sv_fabric *f, uint32_t key)
{
    fence(f, 0, key);
}

/* ----------------------------------------------------------------------------------------- mail */

/* Puts a letter into the mailbox of a process and counts `counter` up in the same breath. False
 * when the box is full. */
bool sv_mail_post(struct sv_proc *to, const struct sv_mail *mail, _Atomic uint32_t *counter)
{
    bool room;

    if (pthread_mutex_lock(&to->mail_lock) == EOWNERDEAD)
        pthread_mutex_consistent(&to->mail_lock);
    room = to->mail_tail - to->mail_head < SV_MAIL;
    if (room) {
        to->mail[to->mail_tail % SV_MAIL] = *mail;
        atomic_fetch_add(&to->mail_tail, 1);
        if (counter)
            atomic_fetch_add(counter, 1);
    }
    pthread_mutex_unlock(&to->mail_lock);
    sv_ring(to);
    return room;
}

static void deliver(struct sv_fabric *f, const struct sv_mail *m)
{
    struct sv_qp *qp;

    pthread_mutex_lock(&f->objects);
    qp = f->by_slot[m->qpn & (SV_MAX_QPS - 1)];
    if (qp && qp->x.qp_base.qp_num == m->qpn) {
        pthread_mutex_lock(&qp->lock);
        if (m->kind == SV_MAIL_RECV)
            sv_complete_recv(qp, m->rq_index, m);
        else if (m->kind == SV_MAIL_ESTABLISHED)
            sv_qp_event(qp, IBV_EVENT_COMM_EST);
        else if (qp->state >= IBV_QPS_RTR && qp->state < IBV_QPS_ERR) {
            if (m->status != UINT32_MAX)
                sv_qp_event(qp, (enum ibv_event_type)m->status);
            sv_qp_fail(qp);
        }
        pthread_mutex_unlock(&qp->lock);
    }
    pthread_mutex_unlock(&f->objects);
}

/* From any thread that holds no lock but the pause of a QP. */
void sv_mail_drain(struct sv_fabric *f)
{
    struct sv_proc *me = f->me;
    struct sv_mail m;

    if (atomic_load(&me->mail_head) == atomic_load(&me->mail_tail))
        return;
    pthread_mutex_lock(&f->mail_lock);
    while (atomic_load(&me->mail_head) != atomic_load(&me->mail_tail)) {
        m = me->mail[me->mail_head % SV_MAIL];
        deliver(f, &m);
        atomic_fetch_add(&me->mail_head, 1);
    }
    pthread_mutex_unlock(&f->mail_lock);
}

/* ------------------------------------------------------------------------------- the state file */

static bool in_use(struct sv_state *s)
{
    for (uint32_t i = 0; i < s->proc_used; i++)
        if (s->procs[i].pid && sv_proc_alive(s->procs[i].pid, s->procs[i].start, NULL))
            return true;
    return false;
}

static struct sv_state *map_fd(int fd)
{
    struct sv_state *s =
        mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

    return s == MAP_FAILED ? NULL : s;
}

static struct sv_state *map_old(const char *path, const struct sv_config *config)
{
    struct sv_state *s = NULL;
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && st.st_size == (off_t)sizeof(*s))
        s = map_fd(fd);
    close(fd);
    if (s && (s->magic != SV_MAGIC || (s->config_hash != config->hash && !in_use(s)))) {
        sv_state_unmap(s);
        return NULL;
    }
    return s;
}

static struct sv_state *map_new(const char *path, const struct sv_config *config)
{
    struct sv_state *s = NULL;
    int fd;

    unlink(path); /* who still has the old one mapped keeps it */
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return NULL;
    if (ftruncate(fd, sizeof(*s)) == 0)
        s = map_fd(fd);
    close(fd);
    if (!s)
        return NULL;
    s->n_nics = config->n_nics;
    s->config_hash = config->hash;
    s->qp_free = s->mr_free = UINT32_MAX;
    memcpy(s->nics, config->nics, sizeof(s->nics));
    init_robust(&s->lock);
    for (uint32_t i = 0; i < SV_MAX_PROCS; i++)
        init_robust(&s->procs[i].mail_lock);
    s->magic = SV_MAGIC;
    return s;
}

static struct sv_state *of_world; /* what all have mapped, for as long as the program runs */

int sv_state_map(const struct sv_config *config, bool fresh, struct sv_state **out)
{
    char path[4096];
    int guard, saved;

    *out = of_world;
    if (of_world)
        return 0;
    mkdir(config->dir, 0777);
    snprintf(path, sizeof(path), "%s/%s.lock", config->dir, SV_STATE_FILE);
    guard = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (guard < 0)
        return -1;
    flock(guard, LOCK_EX);
    path[strlen(path) - strlen(".lock")] = '\0';
    *out = fresh ? NULL : map_old(path, config);
    if (!*out) {
        *out = map_new(path, config);
        if (*out)
            sv_tree_make(config->dir, *out);
    }
    saved = errno;
    close(guard);
    errno = saved;
    of_world = sv_world() ? *out : NULL;
    return *out ? 0 : -1;
}

void sv_state_unmap(struct sv_state *s)
{
    if (s && s != of_world)
        munmap(s, sizeof(*s));
}

/* --------------------------------------------------------------------- the fabric of this process */

static pthread_mutex_t fabric_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sv_fabric *fabrics; /* one at most, but in a program that plays several processes */

/* Where it is in the list, or the list's end. */
static struct sv_fabric **own_fabric(void)
{
    struct sv_fabric **at = &fabrics;

    while (*at && (*at)->pid != (uint32_t)getpid())
        at = &(*at)->next;
    return at;
}

static int claim_slot(struct sv_fabric *f)
{
    uint64_t start = 0;
    char letter;
    uint32_t i;

    proc_stat("/proc/self/stat", &start, &letter);
    sv_lock(f->s);
    sv_reap(f->s);
    for (i = 0; i < SV_MAX_PROCS && f->s->procs[i].pid; i++)
        continue;
    if (i < SV_MAX_PROCS) {
        f->slot = i;
        f->me = &f->s->procs[i];
        f->me->mail_head = f->me->mail_tail = 0;
        f->me->start = start;
        f->me->pid = f->pid;
        if (i >= f->s->proc_used)
            f->s->proc_used = i + 1;
    }
    sv_unlock(f->s);
    return i < SV_MAX_PROCS ? 0 : -1;
}

static void free_fabric(struct sv_fabric *f)
{
    for (uint32_t i = 0; i < SV_MAX_PROCS; i++)
        if (f->peers[i].pidfd >= 0)
            close(f->peers[i].pidfd);
    pthread_mutex_destroy(&f->objects);
    pthread_mutex_destroy(&f->mail_lock);
    sv_state_unmap(f->s);
    free(f->by_slot);
    free(f);
}

static void give_slot(struct sv_fabric *f)
{
    sv_lock(f->s);
    release_slot(f->s, f->slot);
    sv_unlock(f->s);
}

static int fill_fabric(struct sv_fabric *f, const struct sv_config *config)
{
    const char *label = getenv("SOFTVERBS_HOST");

    snprintf(f->dir, sizeof(f->dir), "%s", config->dir);
    snprintf(f->label, sizeof(f->label), "%s", label ? label : "");
    f->by_slot = calloc(SV_MAX_QPS, sizeof(*f->by_slot));
    if (!f->by_slot || sv_state_map(config, false, &f->s) || claim_slot(f))
        return -1;
    /* Where Yama is set so, only those named may read and write this process's memory. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (sv_engine_start(f) == 0)
        return 0;
    give_slot(f);
    return -1;
}

static struct sv_fabric *open_fabric(void)
{
    const char *path = getenv("SOFTVERBS");
    struct sv_config *config = calloc(1, sizeof(*config));
    struct sv_fabric *f = calloc(1, sizeof(*f));
    bool ok = false;

    if (config && f && path && sv_config_load(path, config) == 0) {
        pthread_mutex_init(&f->objects, NULL);
        pthread_mutex_init(&f->mail_lock, NULL);
        for (uint32_t i = 0; i < SV_MAX_PROCS; i++)
            f->peers[i].pidfd = -1;
        f->pid = (uint32_t)getpid();
        ok = fill_fabric(f, config) == 0;
        if (!ok) {
            fprintf(stderr, "softverbs: cannot open the fabric %s: %s\n", path, strerror(errno));
            free_fabric(f);
            f = NULL;
        }
    }
    free(config);
    if (!ok)
        free(f);
    return ok ? f : NULL;
}

/* The child of a fork shares the map, but none of what is in it is the child's. */
static void after_fork(void)
{
    for (struct sv_fabric *f = fabrics; f; f = f->next)
        f->forked = true;
    fabrics = NULL;
    pthread_mutex_init(&fabric_lock, NULL);
}

struct sv_fabric *sv_fabric_get(void)
{
    static bool watching;
    struct sv_fabric *f;

    pthread_mutex_lock(&fabric_lock);
    if (!watching)
        watching = pthread_atfork(NULL, NULL, after_fork) == 0;
    if (!*own_fabric())
        *own_fabric() = open_fabric();
    f = *own_fabric();
    if (f)
        f->refs++;
    pthread_mutex_unlock(&fabric_lock);
    return f;
}

void sv_fabric_put(struct sv_fabric *f)
{
    if (f->forked)
        return;
    pthread_mutex_lock(&fabric_lock);
    if (--f->refs == 0) {
        sv_engine_stop(f);
        give_slot(f);
        *own_fabric() = f->next;
        free_fabric(f);
    }
    pthread_mutex_unlock(&fabric_lock);
}

bool sv_visible(const struct sv_fabric *f, const struct sv_nic *nic)
{
    return f->label[0] == '\0' || strcmp(f->label, nic->host) == 0;
}
