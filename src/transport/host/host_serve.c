/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_serve.c - the owner's end of the unix socket, on te/host.
 *
 * A session is an initiator that has connected. It says hello with the nonce of our descriptor and
 * is given the table and a page for its hazards; then it may have a nonce of its own written into our
 * memory, which proves that this process is the one that it reaches under our number, and ask for the
 * memfd of a slot.
 *
 * Whoever connects must run as our user, or as root, and in our namespaces, which must be known: the same
 * user in a container of its own is somebody else. It must be the process that has said hello itself which is looked at, and
 * not one that has the number of who has connected once: each packet tells its sender.
 *
 * A session that sends anything else, or nothing for a second, is closed. One that does not read
 * loses what it was sent: the answer that it has asked for is then missing, and it goes on without.
 */
#include "transport/host/host.h"

#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SESSIONS_MAX 256
#define HELLO_NS     (1 * TEI_NS_PER_S)

/* --------------------------------------------------------------------------------- sessions */

void tei_host_session_put(struct host_session *s)
{
    if (--s->refs)
        return;
    tei_list_del(&s->link);
    s->h->n_sessions--;
    tei_host_auth_end(s);
    if (s->hazards)
        munmap(s->hazards, sizeof(*s->hazards));
    if (s->pidfd >= 0)
        tei_fd_close(s->pidfd);
    free(s);
}

static void close_session(struct host_session *s)
{
    int fd = s->watch.fd;

    if (!s->watch.loop)
        return;
    tei_timer_stop(&s->h->loop, &s->timer);
    tei_watch_del(&s->watch);
    tei_fd_close(fd);
    tei_host_session_put(s);
}

static bool reply(struct host_session *s, enum host_type type, enum host_status status,
                  const struct host_msg *more, const int *fds, size_t n_fds)
{
    struct host_msg m = {.magic = HOST_MAGIC,
                         .version = HOST_VERSION,
                         .type = (uint16_t)type,
                         .status = status,
                         .slot = more->slot,
                         .memory = more->memory,
                         .size = more->size};

    return tei_host_send(s->watch.fd, &m, fds, n_fds);
}

/* Whether who says hello may be let in; HOST_OK, or what he is told. */
static enum host_status look_at(struct host_session *s, const struct host_msg *m, pid_t sender)
{
    char why[160];
    bool by_number;

    if (s->hazards || memcmp(m->nonce, s->h->keys.nonce, HOST_NONCE) != 0)
        return HOST_REFUSED;
    s->pidfd = tei_host_who_pidfd(s->watch.fd, s->pid, &by_number);
    if (s->h->conf->host_any_namespace)
        return HOST_OK;
    snprintf(why, sizeof(why), "process %d has connected, and process %d says hello", (int)s->pid,
             (int)sender);
    if (sender == s->pid && tei_host_who_is_among_us(s->pid, why, sizeof(why)) &&
        !tei_host_who_has_ended(s->pidfd))
        return HOST_OK;
    TEI_DEBUG("host: refused: %s", why);
    return HOST_FOREIGN;
}

/* False: the session is to be closed. */
static bool on_hello(struct host_session *s, const struct host_msg *m, pid_t sender)
{
    enum host_status status = look_at(s, m, sender);
    struct host_msg more = {.proof_at = (uintptr_t)s->proof, .began = s->h->began};
    static const struct host_msg none;
    int fds[2] = {s->h->table_fd, -1};
    bool sent;

    if (status != HOST_OK) {
        reply(s, HOST_WELCOME, status, &none, NULL, 0);
        return false;
    }
    fds[1] = tei_pages_make("te_host", sizeof(*s->hazards));
    if (fds[1] >= 0)
        s->hazards = tei_pages_map(fds[1], sizeof(*s->hazards), true);
    if (s->hazards)
        sent = reply(s, HOST_WELCOME, HOST_OK, &more, fds, 2);
    else
        sent = reply(s, HOST_WELCOME, HOST_FULL, &none, NULL, 0);
    if (fds[1] >= 0)
        tei_fd_close(fds[1]);
    tei_timer_stop(&s->h->loop, &s->timer);
    return sent && s->hazards;
}

static void on_want(struct host_session *s, const struct host_msg *m)
{
    struct host_msg more = {.slot = m->slot};
    enum host_status status;
    struct tei_share *share = tei_host_table_share(s->h, m->slot, &more.memory, &status);

    if (!share) {
        reply(s, HOST_MEMORY, status, &more, NULL, 0);
        return;
    }
    more.size = share->size;
    s->has_memory |= reply(s, HOST_MEMORY, HOST_OK, &more, &share->fd, 1);
    tei_share_put(share);
}

static void on_prove(struct host_session *s, const struct host_msg *m)
{
    static const struct host_msg none;

    memcpy(s->proof, m->nonce, sizeof(s->proof));
    reply(s, HOST_PROVED, HOST_OK, &none, NULL, 0);
}

/* False: the session is to be closed. */
static bool on_message(struct host_session *s, const struct host_msg *m, pid_t sender)
{
    if (m->type == HOST_HELLO)
        return on_hello(s, m, sender);
    if (!s->hazards)
        return false;
    if (m->type == HOST_WANT)
        on_want(s, m);
    else
        on_prove(s, m);
    return true;
}

static void on_session(struct tei_watch *w, uint32_t events)
{
    struct host_session *s = tei_container_of(w, struct host_session, watch);
    int fds[HOST_FDS];
    struct host_msg m;
    pid_t sender;
    size_t n_fds;
    int got;

    (void)events;
    if (tei_host_auth_needed(s)) {
        if (!tei_host_auth_read(s))
            close_session(s);
        return;
    }
    got = tei_host_recv(w->fd, false, &m, fds, &n_fds, &sender);
    if (got < 0 || (got > 0 && !on_message(s, &m, sender)))
        close_session(s);
}

static void on_silent(struct tei_timer *t)
{
    struct host_session *s = tei_container_of(t, struct host_session, timer);

    tei_host_auth_late(s);
    close_session(s);
}

/* -------------------------------------------------------------------------------- listening */

static bool may_connect(int fd, pid_t *pid)
{
    uid_t uid;

    if (!tei_host_credentials(fd, pid, &uid))
        return false;
    if (tei_here_admits(uid))
        return true;
    TEI_DEBUG("host: process %d of user %u is refused", (int)*pid, (unsigned)uid);
    return false;
}

/* Takes over the fd. */
static void open_session(struct host *h, int fd, pid_t pid)
{
    struct host_session *s = calloc(1, sizeof(*s));

    if (!s || tei_watch_add(&h->loop, &s->watch, fd, EPOLLIN, on_session) != 0) {
        free(s);
        tei_fd_close(fd);
        return;
    }
    s->h = h;
    s->pid = pid;
    s->pidfd = -1;
    s->refs = 1;
    tei_list_push_back(&h->sessions, &s->link);
    h->n_sessions++;
    if (tei_timer_start(&h->loop, &s->timer, tei_now_ns() + HELLO_NS, on_silent) != 0)
        close_session(s);
}

static void rest_over(struct tei_timer *t);

/* Without descriptors or memory for one more: waits, instead of being woken again and again. */
static void rest(struct host *h)
{
    TEI_WARN("host: a process of this host cannot be let in: %s", tei_errno_text(errno));
    tei_watch_set(&h->listener, 0);
    if (tei_timer_start(&h->loop, &h->rest, tei_now_ns() + 100 * TEI_NS_PER_MS, rest_over) != 0)
        tei_watch_set(&h->listener, EPOLLIN);
}

static void rest_over(struct tei_timer *t)
{
    struct host *h = tei_container_of(t, struct host, rest);

    tei_watch_set(&h->listener, EPOLLIN);
}

/*
 * Whether one more may stand beside those that are here. If not, the oldest that has not said hello gives
 * way: whoever connects and says nothing keeps nobody out.
 */
static bool make_room(struct host *h)
{
    struct tei_link *link, *tmp;

    if (h->n_sessions < SESSIONS_MAX)
        return true;
    TEI_LIST_EACH(&h->sessions, link, tmp) {
        struct host_session *s = tei_container_of(link, struct host_session, link);

        if (s->hazards)
            continue;
        close_session(s);
        return true;
    }
    return false;
}

static void on_listener(struct tei_watch *w, uint32_t events)
{
    struct host *h = tei_container_of(w, struct host, listener);
    int fd = tei_fd_own(accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    pid_t pid;

    (void)events;
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            rest(h);
        return;
    }
    if (may_connect(fd, &pid) && make_room(h))
        open_session(h, fd, pid);
    else
        tei_fd_close(fd);
}

int tei_host_serve_open(struct host *h)
{
    int fd, rc = tei_loop_init(&h->loop, &h->loop_lock);

    if (rc)
        return rc;
    fd = tei_host_listen(h->keys.socket);
    if (fd < 0)
        return TEI_FAIL(TE_ERR_SOCKET, "host: no unix socket to listen on: %s",
                        tei_errno_text(errno));
    rc = tei_watch_add(&h->loop, &h->listener, fd, EPOLLIN, on_listener);
    if (rc) {
        tei_fd_close(fd);
        return rc;
    }
    return tei_loop_start(&h->loop, "te/host");
}

void tei_host_serve_close(struct host *h)
{
    struct tei_link *link, *tmp;

    tei_loop_join(&h->loop);
    pthread_mutex_lock(&h->loop_lock);
    if (h->listener.loop) {
        int fd = h->listener.fd;

        tei_watch_del(&h->listener);
        tei_fd_close(fd);
    }
    if (h->loop.open)
        tei_timer_stop(&h->loop, &h->rest);
    TEI_LIST_EACH(&h->sessions, link, tmp)
        close_session(tei_container_of(link, struct host_session, link));
    TEI_LIST_EACH(&h->peers, link, tmp)
        tei_host_peer_unwatch(tei_container_of(link, struct host_peer, link));
    pthread_mutex_unlock(&h->loop_lock);
}

void tei_host_serve_changed(struct host *h)
{
    static const struct host_msg none;
    struct tei_link *link, *tmp;

    pthread_mutex_lock(&h->loop_lock);
    TEI_LIST_EACH(&h->sessions, link, tmp) {
        struct host_session *s = tei_container_of(link, struct host_session, link);

        /* One that has not read what it was sent before will look at the table then. */
        if (s->has_memory && s->watch.loop)
            reply(s, HOST_CHANGED, HOST_OK, &none, NULL, 0);
    }
    pthread_mutex_unlock(&h->loop_lock);
}
