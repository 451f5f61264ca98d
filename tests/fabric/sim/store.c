/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c - a metadata server on a host of its own, which speaks HTTP and keeps keys for ever, or redis, where
 * they expire, or is an etcd (etcd.c), of which two members listen at two ports. Connections stay open;
 * one request at a time of each. By its faults it answers with an error, late, or closes all connections
 * and is away for a while: a redis has lost its keys then. A member of an etcd goes away by itself, and
 * all is lost now and then when both were away at once.
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

#define KEYS    8192
#define PLACES  (4 * KEYS)
#define CONNS   2048
#define MEMBERS 2                 /* at most */
#define MOST    ((size_t)1 << 18) /* of a request, and of what was not sent yet */
#define STAY_NS (10 * SIM_S)      /* between two times that one is away */
#define TICK_MS 500 /* an etcd looks so often at what expires, one of a fleet whether it is to go */

struct conn {
    int fd, member;
    char *in, *out;
    size_t got, queued;
    bool over;
};

struct member {
    int listener; /* -1: is away */
    bool leaves;
    int64_t back_at, stays_until; /* is not away again before */
};

static struct sim_key keys[KEYS];
static int n_keys;
static uint16_t places[PLACES]; /* by their names: 1 + the index of a key; 0: free */
static struct conn conns[CONNS];
static int n_conns;
static struct member members[MEMBERS];
static int64_t away_ns; /* the next time; 0: by chance */
unsigned sim_store_fault_in;
uint64_t sim_store_served;
int64_t sim_store_cost_ns;

static int n_members(void)
{
    return sim_world.store == STORE_ETCD ? MEMBERS : 1;
}

static struct sim_key *key_of(const char *name, bool make)
{
    uint32_t hash = 2166136261u; /* FNV-1a, by Fowler, Noll and Vo */
    uint16_t *place;

    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    while (*(place = &places[hash % PLACES]) && strcmp(keys[*place - 1].name, name) != 0)
        hash++;
    if (*place || !make)
        return *place ? &keys[*place - 1] : NULL;
    if (n_keys == KEYS)
        sim_fail("more than %d keys", KEYS);
    snprintf(keys[n_keys].name, sizeof(keys[n_keys].name), "%s", name);
    *place = (uint16_t)++n_keys;
    return &keys[n_keys - 1];
}

bool sim_store_has(const struct sim_key *k)
{
    return k && k->value && k->until > sim_now();
}

struct sim_key *sim_store_key(size_t i)
{
    return i < (size_t)n_keys ? &keys[i] : NULL;
}

struct sim_key *sim_store_find(const char *name)
{
    return key_of(name, false);
}

/* A later descriptor of an engine's life is not followed by an earlier one, but one that its engine has given up. */
static void check_version(struct sim_key *k, const char *value, bool is_late)
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
    const struct sim_key *k = key_of(name, false);

    if (!sim_store_has(k))
        return NULL;
    *n = k->length;
    return k->value;
}

void sim_store_put(int fd, const char *name, const char *value, size_t n, long ttl_s)
{
    struct sim_key *k = key_of(name, true);

    free(k->value);
    k->value = sim_new(n + 1);
    memcpy(k->value, value, n);
    k->length = n;
    k->until = ttl_s ? sim_now() + ttl_s * SIM_S : SIM_NEVER;
    check_version(k, k->value, fd >= 0 && sim_net_is_left(fd));
}

bool sim_store_del(const char *name)
{
    struct sim_key *k = key_of(name, false);
    bool was = sim_store_has(k);

    if (k)
        k->until = 0;
    return was;
}

bool sim_store_keep(const char *name, long ttl_s)
{
    struct sim_key *k = key_of(name, false);

    if (sim_store_has(k) && ttl_s)
        k->until = sim_now() + ttl_s * SIM_S;
    return sim_store_has(k);
}

static struct conn *conn_of(int fd)
{
    int i = 0;

    while (i < n_conns && conns[i].fd != fd)
        i++;
    if (i == n_conns)
        sim_fail("a connection of the metadata server is not there");
    return &conns[i];
}

static void flush(struct conn *c)
{
    ssize_t sent = send(c->fd, c->out, c->queued, 0);

    if (sent <= 0)
        return; /* there is no room, or nobody: that shows when it is read */
    c->queued -= (size_t)sent;
    memmove(c->out, c->out + sent, c->queued);
}

/* Who takes nothing of so much is left. */
void sim_store_say(int fd, const char *text, size_t n)
{
    struct conn *c = conn_of(fd);

    if (n > MOST - c->queued) {
        c->over = true;
        c->queued = 0;
        return;
    }
    memcpy(c->out + c->queued, text, n);
    c->queued += n;
    flush(c);
}

void sim_store_hang_up(int fd)
{
    conn_of(fd)->over = true;
}

bool sim_store_fails(int fd, const char *error)
{
    struct member *m = &members[conn_of(fd)->member];

    if (!sim_one_in(sim_store_fault_in))
        return false;
    if (sim_one_in(3) && sim_now() >= m->stays_until) {
        m->leaves = true;
    } else if (sim_one_in(2)) {
        usleep((useconds_t)sim_below(6000000));
        return false;
    } else {
        sim_store_say(fd, error, strlen(error));
    }
    return true;
}

static size_t serve(const struct conn *c)
{
    if (sim_world.store == STORE_ETCD)
        return sim_etcd_serve(c->fd, c->in, c->got);
    return sim_world.store == STORE_REDIS ? sim_redis_serve(c->fd, c->in, c->got)
                                          : sim_http_serve(c->fd, c->in, c->got);
}

/* Serves what is whole. */
static void look(struct conn *c)
{
    while (!members[c->member].leaves && !c->over) {
        size_t used;

        c->in[c->got] = '\0';
        used = serve(c);
        if (used == 0)
            return;
        sim_store_served++;
        sim_charge(sim_store_cost_ns);
        c->got -= used;
        memmove(c->in, c->in + used, c->got);
    }
}

static void drop(int i)
{
    sim_etcd_left(conns[i].fd);
    close(conns[i].fd);
    free(conns[i].in);
    free(conns[i].out);
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
static void admit(int member)
{
    int fd = accept4(members[member].listener, NULL, NULL, SOCK_NONBLOCK);

    if (fd >= 0 && n_conns == CONNS)
        drop(0);
    if (fd >= 0)
        conns[n_conns++] =
            (struct conn){.fd = fd, .member = member, .in = sim_new(MOST), .out = sim_new(MOST)};
}

static int open_listener(int member)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)(SIM_STORE_PORT + member))};
    int fd;

    while ((fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) < 0)
        usleep(1000); /* no descriptor is to be had */
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 64) < 0)
        sim_fail("the metadata server cannot listen");
    return fd;
}

static bool all_away(void)
{
    bool all = true;

    for (int i = 0; i < n_members(); i++)
        all = all && members[i].listener < 0;
    return all;
}

static void forget(void)
{
    for (int i = 0; i < n_keys; i++)
        keys[i].until = 0;
}

/* All its connections end, and none is taken for a while. */
static void go_away(struct member *m)
{
    for (int i = n_conns - 1; i >= 0; i--)
        if (&members[conns[i].member] == m)
            drop(i);
    close(m->listener);
    sim_trace("the metadata server is away");
    *m = (struct member){.listener = -1, .back_at = sim_now() + (int64_t)sim_below(8000) * SIM_MS};
    if (away_ns)
        m->back_at = sim_now() + away_ns;
    away_ns = 0;
    if (sim_world.store == STORE_REDIS)
        forget();
    if (sim_world.store != STORE_ETCD)
        return;
    sim_etcd_member_away();
    for (int i = sim_one_in(4) ? 0 : MEMBERS; i < MEMBERS; i++) /* one power supply */
        members[i].leaves = members[i].listener >= 0;
    if (all_away() && sim_one_in(2)) {
        forget();
        sim_etcd_forget();
    }
}

void sim_store_take_down(int64_t ns)
{
    away_ns = ns;
    members[0].leaves = true;
}

/* What members do, beside their connections. */
static void look_at_members(const struct pollfd *p)
{
    for (int i = 0; i < n_members(); i++) {
        struct member *m = &members[i];

        if (m->leaves) {
            go_away(m);
        } else if (m->listener < 0 && sim_now() >= m->back_at) {
            m->listener = open_listener(i);
            m->stays_until = sim_now() + STAY_NS;
        } else if (m->listener >= 0 && p[i].revents) {
            admit(i);
        }
    }
}

static int time_left(void)
{
    int64_t until = SIM_NEVER;

    for (int i = 0; i < n_members(); i++)
        if (members[i].listener < 0 && members[i].back_at < until)
            until = members[i].back_at;
    if (until != SIM_NEVER)
        until = until > sim_now() ? (until - sim_now()) / SIM_MS + 1 : 0;
    if (sim_world.store == STORE_ETCD || sim_store_cost_ns)
        return until < TICK_MS ? (int)until : TICK_MS;
    return until == SIM_NEVER ? -1 : (int)until;
}

static void look_at_conns(const struct pollfd *p, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        if (p[i].revents & POLLOUT)
            flush(&conns[i]);
        if (p[i].revents & ~POLLOUT)
            receive(i);
    }
    for (int i = n_conns - 1; i >= 0; i--)
        if (conns[i].over && conns[i].queued == 0)
            drop(i);
}

void *sim_store_main(void *arg)
{
    static struct pollfd p[MEMBERS + CONNS];

    for (int i = 0; i < n_members(); i++)
        members[i].listener = open_listener(i);
    for (;;) {
        int n = n_conns;

        for (int i = 0; i < MEMBERS; i++)
            p[i] =
                (struct pollfd){.fd = i < n_members() ? members[i].listener : -1, .events = POLLIN};
        for (int i = 0; i < n; i++)
            p[MEMBERS + i] = (struct pollfd){
                .fd = conns[i].fd, .events = (short)(POLLIN | (conns[i].queued ? POLLOUT : 0))};
        poll(p, MEMBERS + (nfds_t)n, time_left());
        look_at_conns(p + MEMBERS, n);
        look_at_members(p);
        if (sim_world.store == STORE_ETCD)
            sim_etcd_tick();
    }
    return arg;
}
