/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c - a metadata server on a host of its own, which speaks HTTP and keeps keys for ever, or redis, where
 * they expire. Connections stay open; one request at a time of each. By its faults it answers with an
 * error, late, or closes all connections and is away for a while, and has lost its keys then if it is a redis.
 */
#include "store.h"

#include "load.h"
#include "sim.h"
#include "world.h"

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
    int64_t until;        /* is there */
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

static bool is_there(const struct key *k)
{
    return k && k->value && k->until > sim_now();
}

/* For the other side reads. */
void sim_store_say(int fd, const char *text, size_t n)
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

/* A later descriptor of an engine's life is not followed by an earlier one, but one that its engine has given up. */
static void check_version(struct key *k, const char *value, bool is_late)
{
    const char *incarnation = strstr(value, "\"incarnation\":"), *version;
    char engine[17] = "";
    long n;

    if (!incarnation)
        return;
    version = strstr(strstr(value, "\"te\":"), "\"version\":");
    sscanf(incarnation + 14, " \"%16[0-9a-f]", engine);
    n = version ? strtol(version + 10, NULL, 10) : 0;
    if (strcmp(engine, k->incarnation) == 0 && n < k->version && !is_late)
        sim_fail("%s reverts from version %ld to %ld", k->name, k->version, n);
    memcpy(k->incarnation, engine, sizeof(engine));
    k->version = n;
}

const char *sim_store_get(const char *name, size_t *n)
{
    const struct key *k = key_of(name, false);

    if (!is_there(k))
        return NULL;
    *n = k->length;
    return k->value;
}

void sim_store_put(int fd, const char *name, const char *value, size_t n, long ttl_s)
{
    struct key *k = key_of(name, true);

    free(k->value);
    k->value = sim_new(n + 1);
    memcpy(k->value, value, n);
    k->length = n;
    k->until = ttl_s ? sim_now() + ttl_s * SIM_S : SIM_NEVER;
    check_version(k, k->value, fd >= 0 && sim_net_is_left(fd));
}

bool sim_store_del(const char *name)
{
    struct key *k = key_of(name, false);
    bool was = is_there(k);

    if (k)
        k->until = 0;
    return was;
}

bool sim_store_keep(const char *name, long ttl_s)
{
    struct key *k = key_of(name, false);

    if (is_there(k) && ttl_s)
        k->until = sim_now() + ttl_s * SIM_S;
    return is_there(k);
}

bool sim_store_fails(int fd, const char *error)
{
    if (!sim_one_in(sim_store_fault_in))
        return false;
    if (sim_one_in(3) && sim_now() >= stays_until) {
        is_away = true;
    } else if (sim_one_in(2)) {
        usleep((useconds_t)sim_below(6000000));
        return false;
    } else {
        sim_store_say(fd, error, strlen(error));
    }
    return true;
}

/* Serves what is whole. */
static void look(struct conn *c)
{
    while (!is_away) {
        size_t used;

        c->in[c->got] = '\0';
        used = sim_world.store == STORE_REDIS ? sim_redis_serve(c->fd, c->in, c->got)
                                              : sim_http_serve(c->fd, c->in, c->got);
        if (used == 0)
            return;
        c->got -= used;
        memmove(c->in, c->in + used, c->got);
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
    for (int i = 0; sim_world.store == STORE_REDIS && i < KEYS; i++)
        keys[i].until = 0;
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
