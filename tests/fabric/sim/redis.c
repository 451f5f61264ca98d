/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redis.c - what a redis answers to the few commands that the library sends: GET, SET, DEL, EXPIRE, EXISTS.
 */
#include "store.h"

#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 8

struct command {
    char *words[WORDS];
    size_t length[WORDS];
    int n;
};

static void free_command(struct command *c)
{
    while (c->n)
        free(c->words[--c->n]);
}

static char *copy(const char *from, size_t n)
{
    char *p = sim_new(n + 1);

    return memcpy(p, from, n);
}

/* A number and the end of its line, behind a letter; NULL: that is not there yet. */
static const char *read_number(const char *at, const char *end, char letter, size_t *out)
{
    const char *line = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;

    if (!line)
        return NULL;
    if (*at != letter)
        sim_fail("a command of redis has '%c' instead of '%c'", *at, letter);
    *out = strtoul(at + 1, NULL, 10);
    return line + 1;
}

/* "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"; returns where it ends, NULL: it is not whole. */
static const char *read_command(const char *at, const char *end, struct command *c)
{
    size_t words, length;

    at = read_number(at, end, '*', &words);
    if (at && words > WORDS)
        sim_fail("a command of redis of %zu words", words);
    for (size_t i = 0; at && i < words; i++) {
        at = read_number(at, end, '$', &length);
        if (!at || (size_t)(end - at) < length + 2)
            return NULL;
        c->words[c->n] = copy(at, length);
        c->length[c->n++] = length;
        at += length + 2;
    }
    return at;
}

static void say_value(int fd, const char *value, size_t n)
{
    char head[32];

    sim_store_say(fd, head, (size_t)snprintf(head, sizeof(head), "$%zu\r\n", n));
    sim_store_say(fd, value, n);
    sim_store_say(fd, "\r\n", 2);
}

static void say_number(int fd, bool one)
{
    sim_store_say(fd, one ? ":1\r\n" : ":0\r\n", 4);
}

static long number_of(const struct command *c, int word)
{
    return c->n > word ? strtol(c->words[word], NULL, 10) : 0;
}

static void run(int fd, const struct command *c)
{
    const char *verb = c->words[0], *key = c->words[1], *value;
    size_t n;

    if (strcmp(verb, "SET") == 0) {
        sim_store_put(fd, key, c->words[2], c->length[2], number_of(c, 4));
        sim_store_say(fd, "+OK\r\n", 5);
    } else if (strcmp(verb, "DEL") == 0) {
        say_number(fd, sim_store_del(key));
    } else if (strcmp(verb, "EXPIRE") == 0 || strcmp(verb, "EXISTS") == 0) {
        say_number(fd, sim_store_keep(key, number_of(c, 2)));
    } else if (strcmp(verb, "GET") != 0) {
        sim_fail("redis is asked to %s", verb);
    } else if ((value = sim_store_get(key, &n))) {
        say_value(fd, value, n);
    } else {
        sim_store_say(fd, "$-1\r\n", 5);
    }
}

size_t sim_redis_serve(int fd, const char *in, size_t got)
{
    struct command c = {0};
    const char *end = read_command(in, in + got, &c);

    if (end && !sim_store_fails(fd, "-LOADING Redis is loading the dataset in memory\r\n"))
        run(fd, &c);
    free_command(&c);
    return end ? (size_t)(end - in) : 0;
}
