/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_serve.c - TE_METRICS: the metrics over HTTP, or in a file for node_exporter.
 *
 * HTTP is served on te/ctl. One connection has one request and one answer:
 *
 *     READING   accepted; until the head of the request is there
 *     WRITING   the answer goes out
 *     CLOSING   our side is shut; the client is to close
 *
 * From every state it also ends 5 s after the accept, or because there are SCRAPES_MAX others: then it
 * is the oldest. The text is made anew at most every 100 ms, so that a flood of requests costs little
 * more than its connections. A request is a GET of /metrics; all else is answered with an error.
 *
 * The file is written by a job of te/aux, since a disk may block, under another name first, so that a
 * reader finds a whole one. The engine removes it when it ends.
 */
#include "core/metrics_serve.h"
#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SCRAPES_MAX     8
#define HEAD_MAX        4096 /* of a request */
#define HEADER_MAX      256  /* of an answer */
#define BACKLOG         16
#define PATIENCE_NS     (5 * TEI_NS_PER_S)
#define FRESH_NS        (100 * TEI_NS_PER_MS) /* how old a text may be */
#define ACCEPT_PAUSE_NS (100 * TEI_NS_PER_MS) /* after descriptors ran out */
#define FILE_NS         (10 * TEI_NS_PER_S)
#define FILE_PREFIX     "file:"

enum state { FREE, READING, WRITING, CLOSING };

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

struct metrics_server {
    te_engine *engine;
    int fd; /* -1: a file */
    struct tei_watch watch;
    struct tei_timer accept_timer;
    uint64_t n_scrapes;
    struct scrape scrapes[SCRAPES_MAX];
    char *text; /* NULL: none was made yet */
    int64_t made_ns;

    char path[TEI_CONF_LONG + 16], other[TEI_CONF_LONG + 48];
    struct tei_timer file_timer;
    struct tei_job file_job;
    bool written;    /* the file is this engine's */
    bool file_fails; /* that was told */
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

/* The text of now, or of a moment ago; NULL when memory is out. */
static const char *fresh_text(struct metrics_server *s)
{
    int64_t now_ns = tei_now_ns();

    if (s->text && now_ns - s->made_ns < FRESH_NS)
        return s->text;
    free(s->text);
    s->text = tei_metrics_text(s->engine);
    s->made_ns = now_ns;
    return s->text;
}

/* Whether the head of the request begins so: "GET /metrics", and then a blank or a query. */
static bool begins(const struct scrape *c, const char *text)
{
    size_t n = strlen(text);

    return c->n_in > n && memcmp(c->in, text, n) == 0;
}

static const char *answer_to(struct scrape *c, const char **status, const char **type)
{
    static const char get[] = "GET /metrics";
    char after = begins(c, get) ? c->in[sizeof(get) - 1] : '\0';
    const char *text;

    *type = "text/plain; charset=utf-8";
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
    text = fresh_text(c->server);
    *status = text ? "200 OK" : "503 Service Unavailable";
    if (text)
        *type = "text/plain; version=0.0.4; charset=utf-8";
    return text ? text : "no memory\n";
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

static void answer(struct scrape *c)
{
    const char *status, *type, *text = answer_to(c, &status, &type);
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
        answer(c);
}

static void on_scrape(struct tei_watch *w, uint32_t events)
{
    struct scrape *c = tei_container_of(w, struct scrape, watch);
    char rest[1024];
    size_t got;

    if (c->state == READING)
        read_head(c);
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

static void on_pause_over(struct tei_timer *t)
{
    struct metrics_server *s = tei_container_of(t, struct metrics_server, accept_timer);

    tei_watch_set(&s->watch, EPOLLIN);
}

/* One at a time: the loop has other ports to look after. */
static void on_listen(struct tei_watch *w, uint32_t events)
{
    struct metrics_server *s = tei_container_of(w, struct metrics_server, watch);
    int fd = tei_accept(s->fd, NULL);

    (void)events;
    if (fd >= 0) {
        add_scrape(s, fd);
        return;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return;
    if (tei_timer_start(&s->engine->ctl.loop, &s->accept_timer, tei_now_ns() + ACCEPT_PAUSE_NS,
                        on_pause_over) == 0)
        tei_watch_set(&s->watch, 0);
}

/* A port that cannot be had is no reason to do without the engine. */
static void open_port(struct metrics_server *s, struct tei_hostport *at)
{
    char text[TEI_HOSTPORT_MAX];
    int rc;

    s->fd = tei_listen(at->host, &at->port, BACKLOG);
    if (s->fd < 0) {
        TEI_WARN("TE_METRICS: %s cannot be listened on (%s): the metrics of this engine are not "
                 "served; give each process a port of its own, or file:PATH with %%p in it",
                 tei_hostport_format(at->host, at->port, text, sizeof(text)),
                 tei_errno_text(errno));
        return;
    }
    pthread_mutex_lock(&s->engine->ctl.lock);
    rc = tei_watch_add(&s->engine->ctl.loop, &s->watch, s->fd, EPOLLIN, on_listen);
    pthread_mutex_unlock(&s->engine->ctl.lock);
    if (rc == 0)
        TEI_INFO("metrics at http://%s/metrics",
                 tei_hostport_format(at->host, at->port, text, sizeof(text)));
}

/* ------------------------------------------------------------------------------------- the file */

static bool write_all(int fd, const char *text, size_t n)
{
    while (n) {
        ssize_t got = write(fd, text, n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        text += got;
        n -= (size_t)got;
    }
    return true;
}

static bool replace_file(const struct metrics_server *s, const char *text)
{
    bool ok;
    int fd, error;

    unlink(s->other); /* of a process that was killed in the middle of it, or planted by somebody */
    fd = open(s->other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    ok = fd >= 0 && write_all(fd, text, strlen(text));
    error = errno;

    if (fd >= 0 && close(fd) && ok) {
        ok = false;
        error = errno;
    }
    if (ok && rename(s->other, s->path) == 0)
        return true;
    error = ok ? errno : error;
    if (fd >= 0)
        unlink(s->other);
    errno = error;
    return false;
}

static void write_file(struct metrics_server *s)
{
    char *text = tei_metrics_text(s->engine);

    if (!text)
        return;
    if (replace_file(s, text)) {
        s->written = true;
        if (s->file_fails)
            TEI_WARN("TE_METRICS: %s is written again", s->path);
        s->file_fails = false;
    } else if (!s->file_fails) {
        TEI_WARN("TE_METRICS: %s cannot be written: %s", s->path, tei_errno_text(errno));
        s->file_fails = true;
    }
    free(text);
}

static void start_file_timer(struct metrics_server *s);

/* On te/aux; in the end on te/ctl, when there is nothing to be done any more. */
static void file_job(struct tei_job *j)
{
    struct metrics_server *s = tei_container_of(j, struct metrics_server, file_job);

    if (atomic_load_explicit(&s->engine->closing, memory_order_relaxed))
        return;
    write_file(s);
    pthread_mutex_lock(&s->engine->ctl.lock);
    start_file_timer(s);
    pthread_mutex_unlock(&s->engine->ctl.lock);
}

static void on_file_timer(struct tei_timer *t)
{
    struct metrics_server *s = tei_container_of(t, struct metrics_server, file_timer);

    tei_jobs_post(&s->engine->jobs, &s->file_job, file_job);
}

/* ctl.lock is held. */
static void start_file_timer(struct metrics_server *s)
{
    if (!atomic_load_explicit(&s->engine->closing, memory_order_relaxed))
        tei_timer_start(&s->engine->ctl.loop, &s->file_timer, tei_now_ns() + FILE_NS,
                        on_file_timer);
}

/* "%p" stands for the number of the process. */
static void take_path(struct metrics_server *s, const char *path)
{
    const char *mark = strstr(path, "%p");

    if (mark)
        snprintf(s->path, sizeof(s->path), "%.*s%d%s", (int)(mark - path), path, (int)getpid(),
                 mark + 2);
    else
        snprintf(s->path, sizeof(s->path), "%s", path);
    snprintf(s->other, sizeof(s->other), "%s.%016llx.tmp", s->path,
             (unsigned long long)s->engine->incarnation);
}

static void open_file(struct metrics_server *s, const char *path)
{
    take_path(s, path);
    write_file(s);
    pthread_mutex_lock(&s->engine->ctl.lock);
    start_file_timer(s);
    pthread_mutex_unlock(&s->engine->ctl.lock);
}

/* -------------------------------------------------------------------------------- start and stop */

static int read_option(const char *text, struct tei_hostport *at)
{
    struct tei_addr unused;

    if (strncmp(text, FILE_PREFIX, strlen(FILE_PREFIX)) == 0) {
        if (text[strlen(FILE_PREFIX)] == '/')
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

    if (rc || !text[0])
        return rc;
    s = calloc(1, sizeof(*s));
    if (!s)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for serving the metrics");
    s->engine = e;
    s->fd = -1;
    e->metrics_server = s;
    if (at.host[0])
        open_port(s, &at);
    else
        open_file(s, text + strlen(FILE_PREFIX));
    return 0;
}

void tei_metrics_serve_stop(te_engine *e)
{
    struct metrics_server *s = e->metrics_server;

    if (!s)
        return;
    tei_timer_stop(&e->ctl.loop, &s->accept_timer);
    tei_timer_stop(&e->ctl.loop, &s->file_timer);
    for (size_t i = 0; i < SCRAPES_MAX; i++)
        if (s->scrapes[i].state != FREE)
            drop(&s->scrapes[i]);
    tei_watch_del(&s->watch);
    if (s->fd >= 0)
        tei_fd_close(s->fd);
    if (s->written)
        unlink(s->path);
}

void tei_metrics_serve_fini(te_engine *e)
{
    if (e->metrics_server)
        free(e->metrics_server->text);
    free(e->metrics_server);
}
