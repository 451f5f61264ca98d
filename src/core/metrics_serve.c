/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_serve.c - the metrics over HTTP: at TE_METRICS for Prometheus, and on a unix socket for te_top.
 *
 * HTTP is served on te/ctl. One connection has one request and one answer:
 *
 *     READING   accepted; until the head of the request is there
 *     ASKING    until te/aux has made the text
 *     WRITING   the answer goes out
 *     CLOSING   our side is shut; the client is to close
 *
 * From every state it also ends 5 s after the accept, or because there are SCRAPES_MAX others: then it
 * is the oldest. The text is made anew at most every 100 ms, so that a flood of requests costs little
 * more than its connections; by a job of te/aux, since it takes a while and te/ctl serves peers. A request is
 * a GET of /metrics; all else is answered with an error.
 *
 * The unix socket has an abstract name, by which te_top finds it: "transfer_engine.", the number of the
 * process, a dot and the engine's incarnation. Whoever is another user, and not root, is sent away.
 */
#include "core/metrics_serve.h"
#include "base/here.h"
#include "core/core.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SCRAPES_MAX     8
#define HEAD_MAX        4096 /* of a request */
#define HEADER_MAX      256  /* of an answer */
#define BACKLOG         16
#define PATIENCE_NS     (5 * TEI_NS_PER_S)
#define FRESH_NS        (100 * TEI_NS_PER_MS) /* how old a text may be */
#define ACCEPT_PAUSE_NS (100 * TEI_NS_PER_MS) /* after descriptors ran out */

enum state { FREE, READING, ASKING, WRITING, CLOSING };

struct scrape {
    enum state state;
    struct tei_watch watch;
    struct tei_timer timer;
    struct metrics_server *server;
    uint64_t number; /* in order of arrival */
    size_t n_in;
    char in[HEAD_MAX];
    char *out;
    size_t out_len, out_sent;
};

struct listener {
    struct metrics_server *server;
    int fd; /* -1: none */
    bool local;
    struct tei_watch watch;
    struct tei_timer pause;
};

struct metrics_server {
    te_engine *engine;
    struct listener port, local;
    uint64_t n_scrapes;
    struct scrape scrapes[SCRAPES_MAX];
    struct tei_job job;
    bool asked; /* the job is under way */
    char *text; /* NULL: none was made yet */
    int64_t made_ns;
};

/* ------------------------------------------------------------------------------- one connection */

static void drop(struct scrape *c)
{
    tei_timer_stop(&c->server->engine->ctl.loop, &c->timer);
    tei_watch_del(&c->watch);
    tei_fd_close(c->watch.fd);
    free(c->out);
    c->out = NULL;
    c->state = FREE;
}

static void on_late(struct tei_timer *t)
{
    drop(tei_container_of(t, struct scrape, timer));
}

/* Whether the head of the request begins so: "GET /metrics", and then a blank or a query. */
static bool begins(const struct scrape *c, const char *text)
{
    size_t n = strlen(text);

    return c->n_in > n && memcmp(c->in, text, n) == 0;
}

/* What is wrong with a request, and the status for it; NULL if nothing is. */
static const char *fault_of(const struct scrape *c, const char **status)
{
    static const char get[] = "GET /metrics";
    char after = begins(c, get) ? c->in[sizeof(get) - 1] : '\0';

    if (c->n_in == HEAD_MAX) {
        *status = "431 Request Header Fields Too Large";
        return "the request is too long\n";
    }
    if (!begins(c, "GET ")) {
        *status = "405 Method Not Allowed\r\nAllow: GET";
        return "there is only GET\n";
    }
    if (after != ' ' && after != '?') {
        *status = "404 Not Found";
        return "there is only /metrics\n";
    }
    return NULL;
}

static void send_some(struct scrape *c)
{
    ssize_t n = send(c->watch.fd, c->out + c->out_sent, c->out_len - c->out_sent, MSG_NOSIGNAL);

    if (n < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            drop(c);
        return;
    }
    c->out_sent += (size_t)n;
    if (c->out_sent < c->out_len)
        return;
    shutdown(c->watch.fd, SHUT_WR);
    c->state = CLOSING;
    tei_watch_set(&c->watch, EPOLLIN);
}

static void answer(struct scrape *c, const char *status, const char *type, const char *text)
{
    size_t len = strlen(text);

    c->out = malloc(HEADER_MAX + len);
    if (!c->out) {
        drop(c);
        return;
    }
    c->out_len = (size_t)snprintf(c->out, HEADER_MAX,
                                  "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                                  "Connection: close\r\n\r\n",
                                  status, type, len);
    memcpy(c->out + c->out_len, text, len);
    c->out_len += len;
    c->out_sent = 0;
    c->state = WRITING;
    tei_watch_set(&c->watch, EPOLLOUT);
    send_some(c);
}

static void answer_plain(struct scrape *c, const char *status, const char *text)
{
    answer(c, status, "text/plain; charset=utf-8", text);
}

static void answer_metrics(struct scrape *c)
{
    if (c->server->text)
        answer(c, "200 OK", "text/plain; version=0.0.4; charset=utf-8", c->server->text);
    else
        answer_plain(c, "503 Service Unavailable", "no memory\n");
}

/* On te/aux; in the end on te/ctl, when nobody waits for an answer any more. */
static void make_text(struct tei_job *j)
{
    struct metrics_server *s = tei_container_of(j, struct metrics_server, job);
    char *text;

    if (atomic_load_explicit(&s->engine->closing, memory_order_relaxed))
        return;
    text = tei_metrics_text(s->engine);
    pthread_mutex_lock(&s->engine->ctl.lock);
    free(s->text);
    s->text = text;
    s->made_ns = tei_now_ns();
    s->asked = false;
    for (size_t i = 0; i < SCRAPES_MAX; i++)
        if (s->scrapes[i].state == ASKING)
            answer_metrics(&s->scrapes[i]);
    pthread_mutex_unlock(&s->engine->ctl.lock);
}

/* The head of the request is there: a text of a moment ago will do, else one is asked for. */
static void serve(struct scrape *c)
{
    struct metrics_server *s = c->server;
    const char *status, *fault = fault_of(c, &status);

    if (fault) {
        answer_plain(c, status, fault);
    } else if (s->text && tei_now_ns() - s->made_ns < FRESH_NS) {
        answer_metrics(c);
    } else {
        c->state = ASKING;
        tei_watch_set(&c->watch, 0);
        if (!s->asked) {
            s->asked = true;
            tei_jobs_post(&s->engine->jobs, &s->job, make_text);
        }
    }
}

/* False: nothing has come, or the connection is gone. */
static bool receive(struct scrape *c, char *to, size_t room, size_t *got)
{
    ssize_t n = recv(c->watch.fd, to, room, 0);

    *got = n > 0 ? (size_t)n : 0;
    if (n > 0)
        return true;
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        drop(c);
    return false;
}

static void read_head(struct scrape *c)
{
    size_t got;

    if (!receive(c, c->in + c->n_in, HEAD_MAX - c->n_in, &got))
        return;
    c->n_in += got;
    if (c->n_in == HEAD_MAX || memmem(c->in, c->n_in, "\r\n\r\n", 4) ||
        memmem(c->in, c->n_in, "\n\n", 2))
        serve(c);
}

static void on_scrape(struct tei_watch *w, uint32_t events)
{
    struct scrape *c = tei_container_of(w, struct scrape, watch);
    char rest[1024];
    size_t got;

    if (c->state == READING)
        read_head(c);
    else if (c->state == ASKING)
        drop(c); /* only what is told unasked: the client is gone */
    else if (c->state == WRITING)
        (events & (EPOLLERR | EPOLLHUP)) ? drop(c) : send_some(c);
    else
        (void)receive(c, rest, sizeof(rest), &got);
}

/* ----------------------------------------------------------------------------------- the server */

/* A free place; where there is none, that of the oldest connection. */
static struct scrape *place_for(struct metrics_server *s)
{
    struct scrape *oldest = &s->scrapes[0];

    for (size_t i = 0; i < SCRAPES_MAX; i++) {
        if (s->scrapes[i].state == FREE)
            return &s->scrapes[i];
        if (s->scrapes[i].number < oldest->number)
            oldest = &s->scrapes[i];
    }
    drop(oldest);
    return oldest;
}

static void add_scrape(struct metrics_server *s, int fd)
{
    struct tei_loop *ctl = &s->engine->ctl.loop;
    struct scrape *c = place_for(s);

    c->server = s;
    c->number = ++s->n_scrapes;
    c->n_in = 0;
    c->watch = (struct tei_watch){0};
    if (tei_watch_add(ctl, &c->watch, fd, EPOLLIN, on_scrape)) {
        tei_fd_close(fd);
        return;
    }
    c->state = READING;
    if (tei_timer_start(ctl, &c->timer, tei_now_ns() + PATIENCE_NS, on_late))
        drop(c);
}

static bool is_admitted(int fd)
{
    struct ucred who;
    socklen_t n = sizeof(who);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && tei_here_admits(who.uid);
}

static void on_pause_over(struct tei_timer *t)
{
    tei_watch_set(&tei_container_of(t, struct listener, pause)->watch, EPOLLIN);
}

/* One at a time: the loop has other ports to look after. */
static void on_listen(struct tei_watch *w, uint32_t events)
{
    struct listener *l = tei_container_of(w, struct listener, watch);
    int fd = tei_accept(l->fd, NULL);

    (void)events;
    if (fd >= 0) {
        if (l->local && !is_admitted(fd))
            tei_fd_close(fd);
        else
            add_scrape(l->server, fd);
        return;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return;
    if (tei_timer_start(&l->server->engine->ctl.loop, &l->pause, tei_now_ns() + ACCEPT_PAUSE_NS,
                        on_pause_over) == 0)
        tei_watch_set(&l->watch, 0);
}

static bool watch_listener(struct metrics_server *s, struct listener *l)
{
    int rc;

    l->server = s;
    pthread_mutex_lock(&s->engine->ctl.lock);
    rc = tei_watch_add(&s->engine->ctl.loop, &l->watch, l->fd, EPOLLIN, on_listen);
    pthread_mutex_unlock(&s->engine->ctl.lock);
    return rc == 0;
}

/* A port that cannot be had is no reason to do without the engine. */
static void open_port(struct metrics_server *s, struct tei_hostport *at)
{
    char text[TEI_HOSTPORT_MAX];

    s->port.fd = tei_listen(at->host, &at->port, BACKLOG);
    if (s->port.fd < 0)
        TEI_WARN("TE_METRICS: %s cannot be listened on (%s): the metrics of this engine are not "
                 "served; give each process a port of its own, or file:PATH with %%p in it",
                 tei_hostport_format(at->host, at->port, text, sizeof(text)),
                 tei_errno_text(errno));
    else if (watch_listener(s, &s->port))
        TEI_INFO("metrics at http://%s/metrics",
                 tei_hostport_format(at->host, at->port, text, sizeof(text)));
}

/* Without it, te_top does not see the engine. */
static void open_local(struct metrics_server *s)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "transfer_engine.%d.%016llx",
                     (int)getpid(), (unsigned long long)s->engine->incarnation);
    int fd = tei_fd_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

    s->local.local = true;
    s->local.fd = fd;
    if (fd < 0 ||
        bind(fd, (struct sockaddr *)&a,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) != 0 ||
        listen(fd, BACKLOG) != 0)
        TEI_INFO("no unix socket for te_top: %s", tei_errno_text(errno));
    else
        watch_listener(s, &s->local);
}

/* -------------------------------------------------------------------------------- start and stop */

static int read_option(const char *text, struct tei_hostport *at)
{
    struct tei_addr unused;

    if (strncmp(text, TEI_METRICS_FILE, strlen(TEI_METRICS_FILE)) == 0) {
        if (text[strlen(TEI_METRICS_FILE)] == '/')
            return 0;
    } else if (!tei_hostport_read(text, 0, at) && tei_hostport_has_port(text)) {
        if (!at->host[0])
            snprintf(at->host, sizeof(at->host), "127.0.0.1");
        if (tei_resolve_numeric(at->host, at->port, &unused))
            return 0;
    }
    return TEI_FAIL(TE_ERR_INVALID,
                    "TE_METRICS: '%.64s' is neither ADDRESS:PORT, with the address in numbers, nor "
                    ":PORT, for this host alone, nor file:/PATH",
                    text);
}

int tei_metrics_serve_start(te_engine *e)
{
    const char *text = e->conf.metrics;
    struct tei_hostport at = {0};
    struct metrics_server *s;
    int rc = text[0] ? read_option(text, &at) : 0;

    if (!rc && text[0] && !at.host[0])
        rc = tei_metrics_file_start(e, text + strlen(TEI_METRICS_FILE));
    if (rc || (!at.host[0] && !e->conf.top))
        return rc;
    s = calloc(1, sizeof(*s));
    if (!s)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for serving the metrics");
    s->engine = e;
    s->port.fd = s->local.fd = -1;
    e->metrics_server = s;
    if (at.host[0])
        open_port(s, &at);
    if (e->conf.top)
        open_local(s);
    return 0;
}

static void stop_listener(te_engine *e, struct listener *l)
{
    tei_timer_stop(&e->ctl.loop, &l->pause);
    tei_watch_del(&l->watch);
    if (l->fd >= 0)
        tei_fd_close(l->fd);
}

void tei_metrics_serve_stop(te_engine *e)
{
    struct metrics_server *s = e->metrics_server;

    if (!s)
        return;
    for (size_t i = 0; i < SCRAPES_MAX; i++)
        if (s->scrapes[i].state != FREE)
            drop(&s->scrapes[i]);
    stop_listener(e, &s->port);
    stop_listener(e, &s->local);
}

void tei_metrics_serve_fini(te_engine *e)
{
    if (e->metrics_server)
        free(e->metrics_server->text);
    free(e->metrics_server);
}
