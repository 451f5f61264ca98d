/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_top - what the engines of this host do, again and again: rates by transport, NIC and peer, times, errors.
 *
 * It asks each engine over its unix socket (TE_TOP) for the metrics that Prometheus gets, and tells how they
 * have grown since the last look.
 *
 * Exit status: 0 all was told, 1 there is no engine that answers, 2 wrong usage.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "common_flags.h"
#include "te_top/rates.h"
#include "te_top/samples.h"
#include "te_top/screen.h"
#include "te_top/source.h"

#define PEERS_SHOWN 10
#define ON_SCREEN   "\x1b[?1049h\x1b[?25l"
#define OFF_SCREEN  "\x1b[?25h\x1b[?1049l"
#define FROM_TOP    "\x1b[H\x1b[J"

struct want {
    uint64_t pid;
    double interval_s;
    bool once, json;
};

static const struct flag want_flags[] = {
    {.name = "interval",
     .kind = FLAG_SECONDS,
     .offset = offsetof(struct want, interval_s),
     .initial = "1",
     .help = "Seconds from one look to the next."},
    {.name = "json",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct want, json),
     .initial = "false",
     .help = "Print JSON, a line for each look: quantities by second, times in seconds."},
    {.name = "once",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct want, once),
     .initial = "false",
     .help = "Look twice, tell what was in between, and end."},
    {.name = "pid",
     .kind = FLAG_COUNT,
     .offset = offsetof(struct want, pid),
     .initial = "0",
     .max = 1 << 30,
     .help = "Engines of this process alone. 0: all that are to be seen."},
};

/* An engine that was there at the last look. */
struct known {
    struct engine engine;
    struct samples was;
    double at_s;
    struct sparks sparks;
    bool seen; /* at this look */
};

struct top {
    const struct want *want;
    struct known known[ENGINES_MAX];
    size_t n;
    char why[200]; /* the last engine that did not answer */
};

static volatile sig_atomic_t ended;

static void on_end(int signo)
{
    (void)signo;
    ended = 1;
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ----------------------------------------------------------------------------------------- looks */

static struct known *known_as(struct top *top, const struct engine *e)
{
    for (size_t i = 0; i < top->n; i++)
        if (strcmp(top->known[i].engine.socket, e->socket) == 0)
            return &top->known[i];
    if (top->n == ENGINES_MAX)
        return NULL;
    top->known[top->n] = (struct known){.engine = *e};
    return &top->known[top->n++];
}

static void say_silent(struct top *top, int pid)
{
    snprintf(top->why, sizeof(top->why), "process %d: no answer: stopped, or about to end", pid);
}

/* What is told of it since the last look; NULL at the first one, or if it does not answer. */
static json_t *look_at(struct top *top, const struct engine *e)
{
    char *text = source_ask(e, &ended), program[32];
    struct samples now;
    struct known *k = text ? known_as(top, e) : NULL;
    json_t *told = NULL;
    double at_s = now_s();

    if (!text)
        say_silent(top, e->pid);
    if (!k || !samples_read(text, &now)) {
        if (!k)
            free(text);
        return NULL;
    }
    if (k->was.v)
        told = rates_of(&k->was, &now, at_s - k->at_s);
    samples_free(&k->was);
    k->was = now;
    k->at_s = at_s;
    k->seen = true;
    if (told) {
        const json_t *bytes = json_object_get(told, "bytes");

        source_program(e, program, sizeof(program));
        json_object_set_new(told, "program", json_string(program));
        json_object_set_new(told, "pid", json_integer(e->pid));
        sparks_add(&k->sparks, json_number_value(json_object_get(bytes, "read")) +
                                   json_number_value(json_object_get(bytes, "write")) +
                                   json_number_value(json_object_get(told, "served_sent")) +
                                   json_number_value(json_object_get(told, "served_received")));
    }
    return told;
}

static void forget_gone(struct top *top)
{
    for (size_t i = top->n; i-- > 0;) {
        if (!top->known[i].seen) {
            samples_free(&top->known[i].was);
            top->known[i] = top->known[--top->n];
        }
    }
}

/* An array of what the engines do; those that were not there at the last look are not in it. */
static json_t *look(struct top *top)
{
    static struct found found;
    json_t *all = json_array();

    source_find((int)top->want->pid, &found);
    top->why[0] = '\0';
    if (found.silent)
        say_silent(top, found.silent);
    if (found.stranger)
        snprintf(top->why, sizeof(top->why),
                 "process %d: another user's: run te_top as that user, or as root", found.stranger);
    for (size_t i = 0; i < top->n; i++)
        top->known[i].seen = false;
    for (size_t i = 0; i < found.n; i++) {
        json_t *one = look_at(top, &found.v[i]);

        if (one) {
            json_object_set_new(one, "socket", json_string(found.v[i].socket));
            json_array_append_new(all, one);
        }
    }
    forget_gone(top);
    return all;
}

/* --------------------------------------------------------------------------------------- telling */

static void time_text(char *buf, size_t n)
{
    time_t now = time(NULL);
    struct tm tm;

    strftime(buf, n, "%Y-%m-%dT%H:%M:%S%z", localtime_r(&now, &tm));
}

static void tell_json(const json_t *all)
{
    char when[40];
    json_t *whole;

    time_text(when, sizeof(when));
    whole = json_pack("{ss sO}", "time", when, "engines", all);
    json_dumpf(whole, stdout, JSON_COMPACT);
    printf("\n");
    fflush(stdout);
    json_decref(whole);
}

static const struct sparks *sparks_of(const struct top *top, const json_t *engine)
{
    static const struct sparks none;
    const char *socket = json_string_value(json_object_get(engine, "socket"));

    for (size_t i = 0; socket && i < top->n; i++)
        if (strcmp(top->known[i].engine.socket, socket) == 0)
            return &top->known[i].sparks;
    return &none;
}

/* What does not fit into the terminal is left out, or it would scroll. */
static void put_lines(const char *text, bool live)
{
    struct winsize size = {0};
    size_t rows;

    if (!live || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 2) {
        fputs(text, stdout);
        return;
    }
    rows = size.ws_row - 1U;
    for (; rows && *text; rows--) {
        size_t n = strcspn(text, "\n");

        fwrite(text, 1, n, stdout);
        text += n;
        if (*text == '\n') {
            putchar('\n');
            text++;
        }
    }
}

static void tell_screen(const struct top *top, const json_t *all, bool live)
{
    char *text = NULL, when[40];
    size_t len, i;
    FILE *f = open_memstream(&text, &len);
    const json_t *one;

    if (!f)
        return;
    time_text(when, sizeof(when));
    fprintf(f, "te_top  %s  %zu engines  %s\n\n", when, json_array_size(all),
            live ? "q: quit" : "");
    json_array_foreach(all, i, one)
        screen_engine(f, one, sparks_of(top, one), PEERS_SHOWN);
    if (top->why[0])
        fprintf(f, "%s\n", top->why);
    fclose(f);
    if (live)
        fputs(FROM_TOP, stdout);
    if (text)
        put_lines(text, live);
    fflush(stdout);
    free(text);
}

static int no_engine(const struct top *top)
{
    fprintf(stderr, "te_top: %s%s\n", top->why[0] ? top->why : "no engine of this host can be seen",
            top->why[0]
                ? ""
                : ": none runs in this network namespace, its user has set TE_TOP=0, or its "
                  "library is older than te_top");
    return 1;
}

/* ----------------------------------------------------------------------------------------- loops */

/* Waits for the time of the next look; false: the user wants no more. */
static bool rest(double seconds, bool keys)
{
    double until = now_s() + seconds;

    while (!ended) {
        struct pollfd p = {.fd = keys ? STDIN_FILENO : -1, .events = POLLIN};
        double left = until - now_s();
        char c;

        if (left <= 0)
            return true;
        if (poll(&p, 1, (int)(left * 1000) + 1) == 1 &&
            (read(STDIN_FILENO, &c, 1) != 1 || c == 'q' || c == 'Q'))
            return false;
    }
    return false;
}

static int look_once(struct top *top)
{
    json_t *all = look(top);
    bool some = top->n > 0;

    json_decref(all);
    if (!some)
        return no_engine(top);
    if (!rest(top->want->interval_s, false))
        return 0;
    all = look(top);
    some = json_array_size(all) > 0;
    if (some && top->want->json)
        tell_json(all);
    else if (some)
        tell_screen(top, all, false);
    json_decref(all);
    return some ? 0 : no_engine(top);
}

/* A key counts at once, and is not shown. */
static void set_keys(struct termios t)
{
    t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &t);
}

static int look_on(struct top *top)
{
    bool live = isatty(STDOUT_FILENO) && !top->want->json, keys = live && isatty(STDIN_FILENO);
    struct termios before;

    json_decref(look(top));
    keys = keys && tcgetattr(STDIN_FILENO, &before) == 0;
    if (keys)
        set_keys(before);
    if (live)
        fputs(ON_SCREEN, stdout);
    while (rest(top->want->interval_s, keys)) {
        json_t *all = look(top);

        if (top->want->json)
            tell_json(all);
        else
            tell_screen(top, all, live);
        json_decref(all);
    }
    if (live)
        fputs(OFF_SCREEN, stdout);
    fflush(stdout);
    if (keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    return 0;
}

int main(int argc, char **argv)
{
    static struct top top;
    struct want w = {0};
    struct sigaction act = {.sa_handler = on_end};
    const struct flag_table table = {
        .flags = want_flags, .count = sizeof(want_flags) / sizeof(want_flags[0]), .values = &w};
    struct flags flags = {
        .tool = "te_top",
        .about =
            "Shows what the engines of this host do: rates by transport, NIC and peer, times, errors.\n"
            "Engines of other users are seen by root alone, and none that has TE_TOP=0.",
        .tables = &table,
        .count = 1};
    int rc = flags_parse(&flags, argc, argv);

    if (rc >= 0)
        return rc;
    if (w.interval_s < 0.01) {
        fprintf(stderr, "te_top: --interval: at least 0.01 seconds\n");
        return 2;
    }
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    top.want = &w;
    rc = w.once ? look_once(&top) : look_on(&top);
    while (top.n)
        samples_free(&top.known[--top.n].was);
    return rc;
}
