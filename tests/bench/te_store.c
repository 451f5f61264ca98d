/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_store.c - what a metadata server does for engines, asked by the library's own client of it: how many
 * descriptors are put a second, how long it takes to fill it, how soon a change reaches those who follow
 * it, and for how long nothing can be put while it is away. scripts/bench_stores.py starts the servers.
 *
 * Each client, and each who follows, has a connection of its own, as an engine has. Keys stay: no time
 * to live is given with them.
 */
#include "bench.h"
#include "base/os.h"
#include "meta/meta.h"
#include "te.h"

#include <poll.h>

enum { GUARD_S = 1800, WATCHERS_MAX = 1000, TRY_AGAIN_NS = 1000000 };

static const char *url;
static int clients = 1, keys = 1000, watchers = 100, rounds = 20;
static size_t bytes = 4096;
static double seconds = 2;
static bool json;

static const struct bench_opt options[] = {
    {"store", BENCH_TEXT, &url, "the server, as TE_METADATA_SERVER names it"},
    {"clients", BENCH_INT, &clients, "that put at the same time (1)"},
    {"keys", BENCH_INT, &keys, "that are put, in turns or each once (1000)"},
    {"bytes", BENCH_SIZE, &bytes, "of a value (4K)"},
    {"seconds", BENCH_SECONDS, &seconds, "of put, at most of outage (2)"},
    {"watchers", BENCH_INT, &watchers, "that follow one key (100)"},
    {"rounds", BENCH_INT, &rounds, "changes of it (20)"},
    {"json", BENCH_FLAG, &json, "print lines of JSON"},
};

static struct tei_conf conf;
static char *value; /* of `bytes`, an object of JSON */

static void check(int rc, const char *what)
{
    if (rc < 0)
        bench_die("%s: %s: %s", what, te_errname(rc), te_errmsg());
}

static struct tei_store *store_open(void)
{
    struct tei_store *s = NULL;
    check(tei_store_open(url, &conf, &s), "the store");
    return s;
}

static void key_name(char out[64], int n)
{
    snprintf(out, 64, "mooncake/ram/bench-%d", n);
}

static int try_put(struct tei_store *s, int key, const char *text, size_t len)
{
    char name[64];
    key_name(name, key);
    return s->ops->put(s, name, text, len, 0, tei_deadline_ns(conf.metadata_timeout_ms));
}

static void make_value(void)
{
    const char head[] = "{\"x\":\"";
    if (bytes < sizeof head + 2)
        bench_die("a value has %zu bytes at least", sizeof head + 2);
    value = malloc(bytes + 1);
    if (value == NULL)
        bench_die("out of memory");
    memset(value, 'a', bytes);
    memcpy(value, head, sizeof head - 1);
    memcpy(value + bytes - 2, "\"}", 3);
}

/* ------------------------------------------------------------------------------------ put, fill */

struct client {
    struct tei_store *s;
    int first, step;
    int64_t end_ns;
    int64_t *took; /* room for `cap` */
    size_t n, cap;
};

static void note_time(struct client *c, int64_t ns)
{
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 1024;
        c->took = realloc(c->took, c->cap * sizeof *c->took);
        if (c->took == NULL)
            bench_die("out of memory");
    }
    c->took[c->n++] = ns;
}

static void put_timed(struct client *c, int key)
{
    int64_t start = bench_now_ns();
    check(try_put(c->s, key, value, bytes), "put");
    note_time(c, bench_now_ns() - start);
}

/* Its share of the keys, in turns, until the time is over. */
static void *put_until(void *arg)
{
    struct client *c = arg;
    int key = c->first;

    do {
        put_timed(c, key);
        key = key + c->step < keys ? key + c->step : c->first;
    } while (bench_now_ns() < c->end_ns);
    return NULL;
}

static void *put_once(void *arg)
{
    struct client *c = arg;
    for (int key = c->first; key < keys; key += c->step)
        put_timed(c, key);
    return NULL;
}

/* Runs all clients, and prints what they did together. */
static void run_clients(const char *name, void *(*run)(void *))
{
    struct client c[BENCH_THREADS_MAX] = {0};
    int64_t *all = NULL;
    size_t n = 0;
    for (int i = 0; i < clients; i++) {
        c[i] = (struct client){.s = store_open(), .first = i, .step = clients};
        check(try_put(c[i].s, i, value, bytes), "put"); /* connected before the clock runs */
    }
    int64_t start = bench_now_ns();
    for (int i = 0; i < clients; i++)
        c[i].end_ns = start + (int64_t)(seconds * 1e9);
    bench_threads((size_t)clients, run, c, sizeof *c);
    double took = (double)(bench_now_ns() - start) / 1e9;
    for (int i = 0; i < clients; i++) {
        all = realloc(all, (n + c[i].n + 1) * sizeof *all);
        if (all == NULL)
            bench_die("out of memory");
        for (size_t k = 0; k < c[i].n; k++)
            all[n++] = c[i].took[k];
        free(c[i].took);
        tei_store_close(c[i].s);
    }
    bench_sort(all, n);
    printf(json ? "{\"bench\": \"te_store\", \"what\": \"%s\", \"clients\": %d, \"keys\": %d, "
                  "\"seconds\": %.3f, \"puts_s\": %.1f, \"p50_ms\": %.3f, \"p99_ms\": %.3f}\n"
                : "%s by %d clients, %d keys: %.3f s, %.1f a second, p50 %.3f ms, p99 %.3f ms\n",
           name, clients, keys, took, (double)n / took, bench_quantile(all, n, 0.5) / 1e6,
           bench_quantile(all, n, 0.99) / 1e6);
    free(all);
}

static void do_put(void)
{
    run_clients("put", put_until);
}

static void do_fill(void)
{
    run_clients("fill", put_once);
}

/* ---------------------------------------------------------------------------------------- watch */

struct watcher {
    struct tei_store *s;
    struct tei_watched key;
    int told; /* the last round whose change it was told */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static pthread_cond_t all_told = PTHREAD_COND_INITIALIZER;
static int now_round, n_told;
static int64_t begin_ns;
static int64_t *delays; /* of each watcher in each round but the first */
static size_t n_delays;

static void on_change(void *arg, size_t i)
{
    struct watcher *w = arg;
    int64_t now = bench_now_ns();
    (void)i;
    pthread_mutex_lock(&lock);
    if (w->told < now_round) {
        w->told = now_round;
        if (now_round > 1)
            delays[n_delays++] = now - begin_ns;
        if (++n_told == watchers)
            pthread_cond_signal(&all_told);
    }
    pthread_mutex_unlock(&lock);
}

static void *follow(void *arg)
{
    struct watcher *w = arg;
    check(w->s->ops->watch(w->s, &w->key, 1, on_change, w), "watch");
    return NULL;
}

/* Puts the key once, and waits until everyone was told; the last one's delay. */
static int64_t one_round(struct tei_store *s)
{
    pthread_mutex_lock(&lock);
    now_round++;
    n_told = 0;
    begin_ns = bench_now_ns();
    pthread_mutex_unlock(&lock);
    check(try_put(s, 0, value, bytes), "put");
    pthread_mutex_lock(&lock);
    while (n_told < watchers)
        pthread_cond_wait(&all_told, &lock); /* bench_guard() bounds it */
    pthread_mutex_unlock(&lock);
    return bench_now_ns() - begin_ns;
}

static void watcher_start(struct watcher *w, pthread_t *id)
{
    struct tei_bytes b = {0};
    w->s = store_open();
    w->key.key = malloc(64);
    if (w->key.key == NULL)
        bench_die("out of memory");
    key_name(w->key.key, 0);
    check(w->s->ops->get(w->s, w->key.key, tei_deadline_ns(conf.metadata_timeout_ms), &b,
                         &w->key.revision),
          "get");
    tei_bytes_fini(&b);
    if (pthread_create(id, NULL, follow, w) != 0)
        bench_die("cannot start a thread");
}

static void watcher_stop(struct watcher *w, pthread_t id)
{
    w->s->ops->wake(w->s);
    pthread_join(id, NULL);
    tei_store_close(w->s);
    free(w->key.key);
}

static void do_watch(void)
{
    struct watcher *w = calloc((size_t)watchers, sizeof *w);
    pthread_t *ids = calloc((size_t)watchers, sizeof *ids);
    int64_t *last = calloc((size_t)rounds, sizeof *last);
    struct tei_store *s = store_open();
    delays = calloc((size_t)watchers * (size_t)rounds, sizeof *delays);
    if (w == NULL || ids == NULL || last == NULL || delays == NULL)
        bench_die("out of memory");
    if (s->ops->watch == NULL)
        bench_die("this store tells no changes");
    check(try_put(s, 0, value, bytes), "put");
    for (int i = 0; i < watchers; i++)
        watcher_start(&w[i], &ids[i]);
    one_round(s); /* until all are connected */
    for (int i = 0; i < rounds; i++)
        last[i] = one_round(s);
    for (int i = 0; i < watchers; i++)
        watcher_stop(&w[i], ids[i]);
    bench_sort(last, (size_t)rounds);
    bench_sort(delays, n_delays);
    printf(
        json
            ? "{\"bench\": \"te_store\", \"what\": \"watch\", \"watchers\": %d, \"told_ms\": %.3f, "
              "\"last_ms\": %.3f}\n"
            : "%d watchers: told %.3f ms after the put began, the last one after %.3f ms\n",
        watchers, bench_quantile(delays, n_delays, 0.5) / 1e6,
        bench_quantile(last, (size_t)rounds, 0.5) / 1e6);
    tei_store_close(s);
    free(w);
    free(ids);
    free(last);
    free(delays);
}

/* --------------------------------------------------------------------------------------- outage */

static bool input_ended(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

/* Puts numbers, one after the other, until standard input ends: the longest time between two that went well. */
static void do_outage(void)
{
    struct tei_store *s = store_open();
    int64_t end = bench_deadline_ns(seconds), longest = 0, before = bench_now_ns();
    int done = 0, failed = 0;
    while (!input_ended() && bench_now_ns() < end) {
        char text[32];
        int len = snprintf(text, sizeof text, "%d", done);
        if (try_put(s, 0, text, (size_t)len) < 0) {
            failed++;
            nanosleep(&(struct timespec){.tv_nsec = TRY_AGAIN_NS}, NULL);
            continue;
        }
        int64_t now = bench_now_ns();
        if (done++ > 0 && now - before > longest)
            longest = now - before;
        before = now;
    }
    printf(json ? "{\"bench\": \"te_store\", \"what\": \"outage\", \"puts\": %d, \"failed\": %d, "
                  "\"longest_s\": %.4f}\n"
                : "%d puts and %d that failed: none went well for %.4f s at most\n",
           done, failed, (double)longest / 1e9);
    tei_store_close(s);
}

/* ------------------------------------------------------------------------------------------ main */

static const struct {
    const char *name;
    void (*run)(void);
} whats[] = {{"put", do_put}, {"fill", do_fill}, {"watch", do_watch}, {"outage", do_outage}};

static size_t what_of(const char *name)
{
    size_t i = 0;
    while (i < sizeof whats / sizeof whats[0] && strcmp(whats[i].name, name) != 0)
        i++;
    if (i == sizeof whats / sizeof whats[0])
        bench_usage_error("there is no measure", name);
    return i;
}

int main(int argc, char **argv)
{
    const char *about =
        "[option...] put|fill|watch|outage...\n\n"
        "Asks a metadata server what engines ask of it, and prints how long it takes.\n"
        "  put     values are put for some seconds\n"
        "  fill    each key is put once\n"
        "  watch   from a put until all who follow its key are told\n"
        "  outage  values are put until standard input ends: the longest time in which none could be";
    int at = bench_options(argc, argv, about, options, sizeof options / sizeof options[0]);
    for (int i = at; i < argc; i++)
        what_of(argv[i]);
    if (url == NULL || at == argc)
        bench_usage_error("a store and a measure are needed, not", at < argc ? argv[at] : "");
    if (clients < 1 || clients > BENCH_THREADS_MAX || keys < clients || watchers < 1 ||
        watchers > WATCHERS_MAX || rounds < 1)
        bench_die("1 to %d clients, a key for each, 1 to %d watchers and a round, please",
                  BENCH_THREADS_MAX, WATCHERS_MAX);
    bench_guard(GUARD_S, false);
    check(tei_conf_load(NULL, &conf), "the options");
    make_value();
    for (int i = at; i < argc; i++) {
        whats[what_of(argv[i])].run();
        fflush(stdout);
    }
    free(value);
    return 0;
}
