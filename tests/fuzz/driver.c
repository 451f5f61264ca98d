/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target without libFuzzer: once over each file of the given folders, then over a fixed
 * number of mutations of each. The mutations depend on the file's bytes alone, so that a failure
 * comes again.
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_SIZE (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    uint8_t *data;
    size_t size;
};

static const char usage_text[] =
    "usage: %s [--mutations N] [--seconds S] [FILE|FOLDER]...\n"
    "Runs the fuzz target over each file, then over N mutations of each (default 256),\n"
    "for at most S seconds (default 10). Folders that do not exist count as empty.\n";

static uint64_t deadline_ms;
static uint64_t runs;

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t seed_of(const struct input *in)
{
    uint64_t h = 1469598103934665603u;

    for (size_t i = 0; i < in->size; i++)
        h = (h ^ in->data[i]) * 1099511628211u;
    return h ? h : 1;
}

/* The target gets a block of exactly its size, so that a sanitizer sees the first byte past it. */
static void run_once(const uint8_t *data, size_t size)
{
    uint8_t *current = malloc(size ? size : 1);

    if (!current) {
        fputs("fuzz driver: out of memory\n", stderr);
        exit(1);
    }
    memcpy(current, data, size);
    LLVMFuzzerTestOneInput(current, size);
    free(current);
    runs++;
}

static size_t mutate(uint8_t *buf, size_t size, size_t room, uint64_t *state)
{
    static const uint8_t telling[] = {0x00, 0xff, 0x7f, 0x80, '"', '{',
                                      '}',  '[',  ']',  ':',  '/', '%'};
    size_t at = size ? (size_t)(draw(state) % size) : 0;
    size_t n = 1 + (size_t)(draw(state) % 16);

    switch (draw(state) % 6) {
    case 0:
        if (size)
            buf[at] ^= (uint8_t)(1u << (draw(state) % 8));
        return size;
    case 1:
        if (size)
            buf[at] = telling[draw(state) % sizeof(telling)];
        return size;
    case 2:
        return size ? at : 0;
    case 3:
        n = n < size - at ? n : size - at;
        memmove(buf + at, buf + at + n, size - at - n);
        return size - n;
    case 4:
        if (size + n > room)
            return size;
        memmove(buf + at + n, buf + at, size - at);
        for (size_t i = 0; i < n; i++)
            buf[at + i] = (uint8_t)draw(state);
        return size + n;
    default:
        for (size_t i = at; i < size && i < at + n; i++)
            buf[i] = (uint8_t)draw(state);
        return size;
    }
}

static void run_mutations(const struct input *in, long mutations)
{
    uint64_t state = seed_of(in);
    size_t room = in->size + 256;
    uint8_t *buf = malloc(room);

    if (!buf)
        return;
    for (long i = 0; i < mutations && now_ms() < deadline_ms; i++) {
        size_t size = in->size;
        size_t steps = 1 + (size_t)(draw(&state) % 4);

        memcpy(buf, in->data, in->size);
        for (size_t s = 0; s < steps; s++)
            size = mutate(buf, size, room, &state);
        run_once(buf, size);
    }
    free(buf);
}

static bool read_file(const char *path, struct input *in)
{
    FILE *f = fopen(path, "rb");

    if (!f)
        return false;
    in->data = malloc(MAX_SIZE);
    if (!in->data) {
        fclose(f);
        return false;
    }
    in->size = fread(in->data, 1, MAX_SIZE, f);
    fclose(f);
    return true;
}

static void run_file(const char *path, long mutations)
{
    struct input in;

    if (!read_file(path, &in)) {
        fprintf(stderr, "fuzz driver: %s: %s\n", path, strerror(errno));
        exit(1);
    }
    run_once(in.data, in.size);
    run_mutations(&in, mutations);
    free(in.data);
}

static int is_shown(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void run_path(const char *path, long mutations)
{
    struct dirent **names;
    struct stat st;
    char file[4096];
    int n;

    if (stat(path, &st))
        return;
    if (!S_ISDIR(st.st_mode)) {
        run_file(path, mutations);
        return;
    }
    n = scandir(path, &names, is_shown, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
        run_file(file, mutations);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"mutations", required_argument, NULL, 'm'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    uint8_t nothing = 0;
    struct input empty = {&nothing, 0};
    long mutations = 256;
    long seconds = 10;
    int opt;

    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (opt == 'm') {
            mutations = atol(optarg);
        } else if (opt == 's') {
            seconds = atol(optarg);
        } else {
            fprintf(opt == 'h' ? stdout : stderr, usage_text, argv[0]);
            return opt == 'h' ? 0 : 2;
        }
    }
    deadline_ms = now_ms() + (uint64_t)(seconds > 0 ? seconds : 1) * 1000;
    run_once(&nothing, 0);
    run_mutations(&empty, mutations);
    for (int i = optind; i < argc; i++)
        run_path(argv[i], mutations);
    printf("%llu runs, no failure\n", (unsigned long long)runs);
    return 0;
}
