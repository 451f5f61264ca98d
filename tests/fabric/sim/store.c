/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c - a metadata server on a host of its own: keys by HTTP, as the plainest of servers has them, which
 * keeps them for ever. Connections stay open; one request at a time of each. By its faults it answers 500,
 * late, or closes all connections and is away for a while.
 */
#include "load.h"

#include "sim.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEYS    64
#define CONNS   256
#define MOST    ((size_t)1 << 17) /* of a request */
#define STAY_NS (10 * SIM_S)      /* between two times that it is away */

struct conn {
    int fd;
    char *in;
    size_t got;
};

static struct key {
    char name[256];
    char *value;
    size_t length;
    char incarnation[17]; /* of the engine that put a descriptor last, and its version */
    long version;
} keys[KEYS];
static struct conn conns[CONNS];
static int n_conns;
static bool is_away;
static int64_t stays_until; /* is not away again before */
unsigned sim_store_fault_in;

static struct key *key_of(const char *name, bool make)
{
    struct key *k = keys;

    while (k < keys + KEYS && k->name[0] && strcmp(k->name, name) != 0)
        k++;
    if (k == keys + KEYS)
        sim_fail("more than %d keys", KEYS);
    if (!k->name[0] && make)
        snprintf(k->name, sizeof(k->name), "%s", name);
    return k->name[0] ? k : NULL;
}

/* Waits until all of it is taken, for the other side reads. */
static void say(int fd, const char *text, size_t n)
{
    while (n) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        ssize_t sent = send(fd, text, n, 0);

        if (sent < 0 && poll(&p, 1, 10000) <= 0)
            return;
        if (sent < 0 && (p.revents & (POLLERR | POLLHUP)))
            return;
        text += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
    }
}

/* A later descriptor of an engine's life is not followed by an earlier one. */
static void check_version(struct key *k, const char *value)
{
    const char *incarnation = strstr(value, "\"incarnation\":"), *version;
    char engine[17] = "";
    long n;

    if (!incarnation)
        return;
    version = strstr(strstr(value, "\"te\":"), "\"version\":");
    sscanf(incarnation + 14, " \"%16[0-9a-f]", engine);
    n = version ? strtol(version + 10, NULL, 10) : 0;
    if (strcmp(engine, k->incarnation) == 0 && n < k->version)
        sim_fail("%s reverts from version %ld to %ld", k->name, k->version, n);
    memcpy(k->incarnation, engine, sizeof(engine));
    k->version = n;
}

static const char *reason_of(int status)
{
    return status == 200 ? "OK" : status == 404 ? "Not Found" : "Internal Server Error";
}

static void answer(int fd, int status, const char *body, size_t n)
{
    char head[128];
    int length = snprintf(head, sizeof(head), "HTTP/1.1 %d %s\r\nContent-Length: %zu\r\n\r\n",
                          status, reason_of(status), n);

    say(fd, head, (size_t)length);
    say(fd, body, n);
}

/* True if that is all that is said to a request. */
static bool has_failed(const struct conn *c)
{
    if (!sim_one_in(sim_store_fault_in))
        return false;
    if (sim_one_in(3) && sim_now() >= stays_until) {
        is_away = true;
    } else if (sim_one_in(2)) {
        usleep((useconds_t)sim_below(6000000));
        return false;
    } else {
        answer(c->fd, 500, "", 0);
    }
    return true;
}

static void serve(const struct conn *c, const char *body, size_t n)
{
    char method[8] = "", path[512] = "";
    const char *query;
    struct key *k;

    if (has_failed(c))
        return;
    sscanf(c->in, "%7s %511s", method, path);
    query = strstr(path, "key=");
    k = query ? key_of(query + 4, strcmp(method, "PUT") == 0) : NULL;
    if (strcmp(method, "PUT") == 0 && k) {
        free(k->value);
        k->value = sim_new(n + 1);
        memcpy(k->value, body, n);
        k->length = n;
        check_version(k, k->value);
        answer(c->fd, 200, "", 0);
    } else if (k && k->value && strcmp(method, "GET") == 0) {
        answer(c->fd, 200, k->value, k->length);
    } else if (k && k->value && strcmp(method, "DELETE") == 0) {
        free(k->value);
        k->value = NULL;
        answer(c->fd, 200, "", 0);
    } else {
        answer(c->fd, 404, "", 0);
    }
}

/* Serves what is whole. */
static void look(struct conn *c)
{
    char *end, *length;
    size_t head, body;

    while (!is_away && (c->in[c->got] = '\0', end = strstr(c->in, "\r\n\r\n"))) {
        head = (size_t)(end - c->in) + 4;
        length = strstr(c->in, "Content-Length: ");
        body = length && length < end ? strtoul(length + 16, NULL, 10) : 0;
        if (c->got < head + body)
            return;
        serve(c, c->in + head, body);
        c->got -= head + body;
        memmove(c->in, c->in + head + body, c->got);
    }
}

static void drop(int i)
{
    close(conns[i].fd);
    free(conns[i].in);
    memmove(conns + i, conns + i + 1, (size_t)(--n_conns - i) * sizeof(*conns));
}

static void receive(int i)
{
    struct conn *c = &conns[i];
    ssize_t n = recv(c->fd, c->in + c->got, MOST - c->got - 1, 0);

    if (n > 0) {
        c->got += (size_t)n;
        look(c);
        return;
    }
    drop(i);
}

/* In place of the oldest, if there are too many. */
static void admit(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);

    if (fd >= 0 && n_conns == CONNS)
        drop(0);
    if (fd >= 0)
        conns[n_conns++] = (struct conn){.fd = fd, .in = sim_new(MOST)};
}

static int open_listener(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(SIM_STORE_PORT)};
    int fd;

    while ((fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) < 0)
        usleep(1000); /* no descriptor is to be had */
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 64) < 0)
        sim_fail("the metadata server cannot listen");
    return fd;
}

/* All connections end, and none is taken for a while. */
static int go_away(int listener)
{
    while (n_conns)
        drop(0);
    close(listener);
    usleep((useconds_t)sim_below(8000000));
    is_away = false;
    stays_until = sim_now() + STAY_NS;
    return open_listener();
}

void *sim_store_main(void *arg)
{
    struct pollfd p[CONNS + 1];

    p[0] = (struct pollfd){.fd = open_listener(), .events = POLLIN};
    for (;;) {
        int n = n_conns;

        for (int i = 0; i < n; i++)
            p[i + 1] = (struct pollfd){.fd = conns[i].fd, .events = POLLIN};
        poll(p, (nfds_t)n + 1, -1);
        for (int i = n - 1; i >= 0; i--)
            if (p[i + 1].revents)
                receive(i);
        if (is_away)
            p[0].fd = go_away(p[0].fd);
        else if (p[0].revents)
            admit(p[0].fd);
    }
    return arg;
}
