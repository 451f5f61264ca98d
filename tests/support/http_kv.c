/* SPDX-License-Identifier: Apache-2.0 */
#include "http_kv.h"
#include "patience.h"

#include "base/os.h"
#include "base/sock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD_MAX 8192

struct http_kv_pair {
    struct http_kv_pair *next;
    char *key, *value;
};

struct request {
    char head[HEAD_MAX];
    char method[16];
    char key[1024];
    char *body;
    size_t body_len;
};

/* ---- pairs; all but the first under the lock */

static struct http_kv_pair **find(struct http_kv *s, const char *key)
{
    struct http_kv_pair **at = &s->pairs;

    while (*at && strcmp((*at)->key, key))
        at = &(*at)->next;
    return at;
}

static bool del(struct http_kv *s, const char *key)
{
    struct http_kv_pair **at = find(s, key), *p = *at;

    if (!p)
        return false;
    *at = p->next;
    free(p->key);
    free(p->value);
    free(p);
    return true;
}

static void put(struct http_kv *s, const char *key, const char *value)
{
    struct http_kv_pair *p = calloc(1, sizeof *p);

    del(s, key);
    if (!p)
        return;
    p->key = strdup(key);
    p->value = strdup(value);
    p->next = s->pairs;
    s->pairs = p;
}

char *http_kv_get(struct http_kv *s, const char *key)
{
    struct http_kv_pair *p;
    char *value;

    pthread_mutex_lock(&s->lock);
    p = *find(s, key);
    value = p ? strdup(p->value) : NULL;
    pthread_mutex_unlock(&s->lock);
    return value;
}

void http_kv_set(struct http_kv *s, const char *key, const char *value)
{
    pthread_mutex_lock(&s->lock);
    if (value)
        put(s, key, value);
    else
        del(s, key);
    pthread_mutex_unlock(&s->lock);
}

size_t http_kv_count(struct http_kv *s)
{
    size_t n = 0;

    pthread_mutex_lock(&s->lock);
    for (struct http_kv_pair *p = s->pairs; p; p = p->next)
        n++;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static int read_count(struct http_kv *s, const int *count)
{
    int n;

    pthread_mutex_lock(&s->lock);
    n = *count;
    pthread_mutex_unlock(&s->lock);
    return n;
}

int http_kv_conns(struct http_kv *s)
{
    return read_count(s, &s->n_conns);
}

int http_kv_requests(struct http_kv *s)
{
    return read_count(s, &s->n_requests);
}

int http_kv_puts(struct http_kv *s)
{
    return read_count(s, &s->n_puts);
}

/* ---- reading */

static void decode_key(const char *from, char *to, size_t n)
{
    size_t len = 0;

    while (*from && *from != ' ' && *from != '&' && len + 1 < n) {
        unsigned c = (unsigned char)*from;

        if (*from == '%' && sscanf(from + 1, "%2x", &c) == 1)
            from += 2;
        to[len++] = (char)c;
        from++;
    }
    to[len] = '\0';
}

/* One byte at a time: nothing behind the head may be taken. Slow, and good enough for a test. */
static bool read_head(int fd, struct request *r)
{
    size_t n = 0;

    while (n < 4 || memcmp(r->head + n - 4, "\r\n\r\n", 4)) {
        if (n + 1 >= sizeof r->head || tei_read_full(fd, r->head + n, 1, TEI_NEVER))
            return false;
        n++;
    }
    r->head[n] = '\0';
    return true;
}

static bool read_request(int fd, struct request *r)
{
    const char *at;

    memset(r, 0, sizeof *r);
    if (!read_head(fd, r) || sscanf(r->head, "%15s", r->method) != 1)
        return false;
    at = strstr(r->head, "key=");
    if (at)
        decode_key(at + 4, r->key, sizeof r->key);
    at = strcasestr(r->head, "\r\nContent-Length:");
    r->body_len = at ? strtoul(at + strlen("\r\nContent-Length:"), NULL, 10) : 0;
    r->body = malloc(r->body_len + 1);
    if (!r->body || (r->body_len && tei_read_full(fd, r->body, r->body_len, TEI_NEVER)))
        return false;
    r->body[r->body_len] = '\0';
    return true;
}

/* ---- answering */

struct answer {
    int status;
    char *body; /* malloc'ed */
};

static struct answer say(int status, const char *body)
{
    return (struct answer){status, strdup(body)};
}

static struct answer answer_put(struct http_kv *s, const struct request *r)
{
    s->n_puts++;
    if (s->max_value && r->body_len > s->max_value)
        return say(413, "value too large\nsecond line");
    if (s->refuse_second_rpc_meta && strstr(r->key, "rpc_meta") && *find(s, r->key))
        return say(400, "Duplicate rpc_meta key not allowed");
    put(s, r->key, r->body);
    return say(200, "metadata updated");
}

static struct answer answer(struct http_kv *s, const struct request *r)
{
    const struct http_kv_pair *p = *find(s, r->key);

    if (s->status)
        return say(s->status, s->body ? s->body : "");
    if (strcmp(r->method, "PUT") == 0)
        return answer_put(s, r);
    if (strcmp(r->method, "GET") == 0)
        return p ? say(200, p->value) : say(404, "metadata not found");
    if (strcmp(r->method, "DELETE") == 0)
        return del(s, r->key) ? say(200, "metadata deleted") : say(404, "metadata not found");
    return say(405, "");
}

static bool send_answer(struct http_kv *s, int fd, const struct answer *a)
{
    char head[512], location[256] = "";

    if (s->location)
        snprintf(location, sizeof location, "Location: %s\r\n", s->location);
    snprintf(head, sizeof head, "HTTP/1.1 %d Status\r\nContent-Length: %zu\r\n%s\r\n", a->status,
             strlen(a->body), location);
    return !tei_write_full(fd, head, strlen(head), TEI_NEVER) &&
           !tei_write_full(fd, a->body, strlen(a->body), TEI_NEVER);
}

static void note(struct http_kv *s, const struct request *r)
{
    size_t line = strcspn(r->head, "\r");

    s->n_requests++;
    snprintf(s->request_line, sizeof s->request_line, "%.*s", (int)line, r->head);
    snprintf(s->headers, sizeof s->headers, "%s", r->head + line + 2);
}

static bool serve_one(struct http_kv *s, int fd, const struct request *r)
{
    struct answer a;
    bool go_on;

    pthread_mutex_lock(&s->lock);
    note(s, r);
    a = answer(s, r);
    pthread_mutex_unlock(&s->lock);
    if (s->hang) {
        struct pollfd p = {.fd = fd};

        poll(&p, 1, PATIENCE_MS); /* until the other side is gone, or http_kv_stop */
    }
    go_on = !s->hang && !s->hang_up && send_answer(s, fd, &a) && !s->hang_up_after;
    free(a.body);
    return go_on;
}

struct conn {
    struct http_kv *s;
    int slot;
};

static void *serve(void *arg)
{
    struct conn c = *(struct conn *)arg;
    int fd = c.s->conns[c.slot];
    bool go_on = true;

    free(arg);
    while (go_on) {
        struct request r;

        go_on = read_request(fd, &r) && serve_one(c.s, fd, &r);
        free(r.body);
    }
    shutdown(fd, SHUT_RDWR);
    return NULL;
}

static void start_conn(struct http_kv *s, int fd)
{
    struct conn *c = malloc(sizeof *c);

    if (!c)
        return;
    *c = (struct conn){s, s->n_conns};
    s->conns[s->n_conns] = fd;
    /* Counted before anything is served on it; who asks for the number waits meanwhile. */
    pthread_mutex_lock(&s->lock);
    if (!tei_thread_start(&s->threads[s->n_conns], "http_kv", serve, c))
        s->n_conns++;
    pthread_mutex_unlock(&s->lock);
}

static void *accept_all(void *arg)
{
    struct http_kv *s = arg;
    struct pollfd p = {.fd = s->fd, .events = POLLIN};

    while (poll(&p, 1, -1) > 0 && !(p.revents & (POLLHUP | POLLERR | POLLNVAL))) {
        int fd = tei_accept(s->fd, NULL);

        if (fd >= 0 && s->n_conns < HTTP_KV_CONNS)
            start_conn(s, fd);
        else if (fd >= 0)
            close(fd);
    }
    return NULL;
}

bool http_kv_start(struct http_kv *s)
{
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->fd = tei_listen("127.0.0.1", &s->port, 64);
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%u/metadata", (unsigned)s->port);
    return s->fd >= 0 && !tei_thread_start(&s->thread, "http_kv", accept_all, s);
}

void http_kv_stop(struct http_kv *s)
{
    shutdown(s->fd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->fd);
    for (int i = 0; i < s->n_conns; i++) {
        shutdown(s->conns[i], SHUT_RDWR);
        pthread_join(s->threads[i], NULL);
        close(s->conns[i]);
    }
    while (s->pairs)
        del(s, s->pairs->key);
    pthread_mutex_destroy(&s->lock);
}
