/* SPDX-License-Identifier: Apache-2.0 */
/* Many files, many requests, many threads. Each case runs over io_uring and over threads. */
#include "conformance.h"
#include "file_rig.h"

#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LENGTH ((size_t)1 << 20)

static void works(struct file_rig *r, struct tei_attach *a, int opcode, uint64_t at, uint64_t n)
{
    struct fake_task t = file_rig_move(r, a, opcode, r->memory, at, n);

    if (t.error)
        fail_msg("%s: %s", te_strerror(t.error), t.note);
}

static struct tei_work *add_read(struct file_rig *r, struct tei_list *list, struct tei_attach *a,
                                 struct fake_task *t)
{
    return fake_work(list, r->t, a, t, TE_READ, r->memory, NULL, 100);
}

/* Of neighbours in one file, each a part of a page, one owner's are cancelled at any moment. */
static void cancel_spares_others(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    struct tei_attach *a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    static struct fake_task t[256];
    int mine, others;

    (void)state;
    file_rig_make(r, "f", LENGTH);
    works(r, a, TE_WRITE, 0, LENGTH);
    for (unsigned round = 0; round < 100; round++) {
        struct tei_list list;

        memset(t, 0, sizeof t);
        tei_list_init(&list);
        for (size_t i = 0; i < 256; i++)
            fake_work(&list, r->t, a, &t[i], TE_WRITE, r->memory + i * 4096,
                      (void *)(uintptr_t)(i * 4096), 100)
                ->owner = i % 2 ? &mine : &others;
        r->t->ops.post(r->t, &list);
        usleep(round * 37 % 3000);
        r->t->ops.cancel(r->t, &mine);
        assert_true(fake_wait(&r->host, NULL, t, 256, PATIENCE_MS));
        for (size_t i = 0; i < 256; i++)
            assert_true(t[i].error == 0 || (i % 2 && t[i].error == TE_ERR_CANCELED));
    }
    fake_detach(r->t, a);
    file_rig_close(r);
}

static void one_at_a_time(struct tei_conf *conf)
{
    conf->file_depth = 1;
    conf->file_threads = 1;
}

static void volley(struct file_rig *r, struct tei_attach *a, size_t n)
{
    static struct fake_task tasks[400];
    struct tei_list list;

    tei_list_init(&list);
    for (size_t i = 0; i < n; i++)
        fake_work(&list, r->t, a, &tasks[i], i % 2 ? TE_READ : TE_WRITE, r->memory + i * 10000,
                  (void *)(i * 10000), 10000);
    r->t->ops.post(r->t, &list);
    assert_true(fake_wait(&r->host, NULL, tasks, n, PATIENCE_MS));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(tasks[i].error, 0);
}

static void depth_of_one(void **state)
{
    struct file_rig *r = file_rig_open(one_at_a_time);
    struct tei_attach *a;
    char *bytes;

    (void)state;
    file_rig_make(r, "f", RIG_MEMORY);
    a = file_rig_attach(r, file_rig_path(r, "f"), RIG_MEMORY);
    fill_pattern(r->memory, RIG_MEMORY, 5);
    volley(r, a, 400);
    bytes = file_rig_bytes(file_rig_path(r, "f"), RIG_MEMORY);
    for (size_t i = 0; i < 400; i++)
        assert_memory_equal(bytes + i * 10000, r->memory + i * 10000, 10000);
    free(bytes);
    fake_detach(r->t, a);
    file_rig_close(r);
}

/* More files than there are I/O requests, each asked at once, and twice. */
static void many_files(void **state)
{
    enum { FILES = 300, EACH = 9000 };
    static struct fake_task tasks[2 * FILES];
    static char names[FILES][256];
    const char *paths[FILES];
    struct file_rig *r = file_rig_open(NULL);
    struct tei_attach *a;
    struct tei_list list;

    (void)state;
    for (size_t i = 0; i < FILES; i++) {
        char name[16];

        snprintf(name, sizeof name, "f%zu", i);
        file_rig_make(r, name, EACH);
        paths[i] = strcpy(names[i], file_rig_path(r, name));
    }
    a = file_rig_attach_row(r, paths, FILES, EACH);
    fill_pattern(r->memory, FILES * EACH, 9);
    tei_list_init(&list);
    for (size_t i = 0; i < 2 * FILES; i++)
        fake_work(&list, r->t, a, &tasks[i], TE_WRITE, r->memory + i * (EACH / 2),
                  (void *)(i * (EACH / 2)), EACH / 2);
    r->t->ops.post(r->t, &list);
    assert_true(fake_wait(&r->host, NULL, tasks, 2 * FILES, PATIENCE_MS));
    for (size_t i = 0; i < FILES; i++) {
        char *bytes = file_rig_bytes(paths[i], EACH);

        assert_int_equal(tasks[2 * i].error, 0);
        assert_int_equal(tasks[2 * i + 1].error, 0);
        assert_memory_equal(bytes, r->memory + i * EACH, EACH);
        free(bytes);
    }
    fake_detach(r->t, a);
    file_rig_close(r);
}

/* ----------------------------------------------------------------------------------------- fairness */

enum { FEED = 1000 };

static void deep(struct tei_conf *conf)
{
    conf->file_depth = 256;
}

static void feed(struct file_rig *r, struct tei_attach *a, struct fake_task *tasks)
{
    struct tei_list list;

    tei_list_init(&list);
    for (size_t i = 0; i < FEED; i++)
        fake_work(&list, r->t, a, &tasks[i], TE_READ, r->memory + i * 4096, (void *)(i * 4096),
                  4096);
    r->t->ops.post(r->t, &list);
}

/* A file that always has more to do than there may be under way does not keep others from theirs. */
static void no_file_starves(void **state)
{
    static struct fake_task fed[2][FEED], other;
    struct file_rig *r = file_rig_open(deep);
    struct tei_attach *busy, *a;
    struct tei_list list;
    int rounds = 0;

    (void)state;
    file_rig_make(r, "busy", RIG_MEMORY);
    file_rig_make(r, "f", LENGTH);
    busy = file_rig_attach(r, file_rig_path(r, "busy"), RIG_MEMORY);
    a = file_rig_attach(r, file_rig_path(r, "f"), LENGTH);
    works(r, busy, TE_READ, 0, 1);
    works(r, a, TE_READ, 0, 1); /* both are open */
    feed(r, busy, fed[0]);
    feed(r, busy, fed[1]);
    tei_list_init(&list);
    add_read(r, &list, a, &other);
    r->t->ops.post(r->t, &list);
    /* One of the two lots is always there, more than may be under way. */
    while (rounds < 40 && !fake_wait(&r->host, NULL, &other, 1, 0)) {
        assert_true(fake_wait(&r->host, NULL, fed[rounds % 2], FEED, PATIENCE_MS));
        feed(r, busy, fed[rounds++ % 2]);
    }
    assert_true(rounds < 5);
    for (int i = 0; i < 2; i++)
        assert_true(fake_wait(&r->host, NULL, fed[i], FEED, PATIENCE_MS));
    assert_true(fake_wait(&r->host, NULL, &other, 1, PATIENCE_MS));
    fake_detach(r->t, a);
    fake_detach(r->t, busy);
    file_rig_close(r);
}

/* ------------------------------------------------------------------------------------------- storm */

enum { STORMERS = 3, STORM_FILES = 4, STORM_WORK = 12, STORM_ROUNDS = 120 };

#define STORM_PART (LENGTH / (STORMERS * STORM_WORK))

struct stormer {
    struct file_rig *rig;
    uint32_t x;
    unsigned number;
    _Atomic size_t *well;
    bool failed;
};

static uint32_t draw(struct stormer *s)
{
    s->x = s->x * 1664525u + 1013904223u;
    return s->x >> 8;
}

static bool is_expected(int error)
{
    return error == 0 || error == TE_ERR_CANCELED || error == TE_ERR_NOT_FOUND ||
           error == TE_ERR_STALE || error == TE_ERR_INVALID;
}

/* Some requests to a file of the storm, perhaps cancelled, by an attachment of their own. */
static void storm_once(struct stormer *s)
{
    static struct fake_task tasks[STORMERS][STORM_WORK];
    struct fake_task *t = tasks[s->number];
    struct file_rig *r = s->rig;
    char path[256];
    struct tei_attach *a;
    struct tei_list list;

    snprintf(path, sizeof path, "%s/s%u", r->dir, draw(s) % STORM_FILES);
    a = file_rig_attach(r, path, LENGTH);
    tei_list_init(&list);
    for (size_t i = 0; i < STORM_WORK; i++) {
        /* Each has its own part, of which it uses some; most parts end inside a page. */
        uint64_t from = (s->number * STORM_WORK + i) * STORM_PART, skip = draw(s) % STORM_PART;
        uint64_t at = from + skip, n = 1 + draw(s) % (STORM_PART - skip);
        char *memory = r->memory + at;

        fake_work(&list, r->t, a, &t[i], i % 2 ? TE_READ : TE_WRITE, memory, (void *)(uintptr_t)at,
                  n)
            ->owner = s;
    }
    r->t->ops.post(r->t, &list);
    if (draw(s) % 3 == 0)
        r->t->ops.cancel(r->t, s);
    s->failed |= !fake_wait(&r->host, NULL, t, STORM_WORK, PATIENCE_MS);
    for (size_t i = 0; i < STORM_WORK; i++) {
        if (!is_expected(t[i].error)) {
            fprintf(stderr, "storm: %s: %s (errno %d)\n", te_strerror(t[i].error), t[i].note,
                    t[i].sys_errno);
            s->failed = true;
        }
        atomic_fetch_add(s->well, t[i].error == 0);
    }
    fake_detach(r->t, a);
}

static void *storm(void *arg)
{
    struct stormer *s = arg;

    for (int i = 0; i < STORM_ROUNDS && !s->failed; i++)
        storm_once(s);
    return NULL;
}

/* One of the files: whole, short, gone, or something else. */
static void upset(struct file_rig *r, uint32_t x)
{
    char name[8];

    snprintf(name, sizeof name, "s%u", x % STORM_FILES);
    unlink(file_rig_path(r, name));
    if (x / STORM_FILES % 5 == 0)
        return;
    if (x / STORM_FILES % 5 == 1)
        mkfifo(file_rig_path(r, name), 0600);
    else
        file_rig_make(r, name, x / STORM_FILES % 5 == 2 ? LENGTH / 2 + 77 : LENGTH);
}

/* Attachments, requests and cancels from several threads while the files change under them. */
static void everything_at_once(void **state)
{
    struct file_rig *r = file_rig_open(NULL);
    struct stormer s[STORMERS];
    pthread_t thread[STORMERS];
    _Atomic size_t well = 0;

    (void)state;
    for (uint32_t i = 0; i < STORM_FILES; i++)
        upset(r, 3 * STORM_FILES + i);
    for (unsigned i = 0; i < STORMERS; i++) {
        s[i] = (struct stormer){.rig = r, .x = i + 1, .number = i, .well = &well};
        assert_int_equal(pthread_create(&thread[i], NULL, storm, &s[i]), 0);
    }
    for (uint32_t i = 0, x = 7; i < 100; i++) {
        x = x * 1664525u + 1013904223u;
        upset(r, x >> 8);
        usleep(1000);
    }
    for (unsigned i = 0; i < STORMERS; i++) {
        pthread_join(thread[i], NULL);
        assert_false(s[i].failed);
    }
    assert_true(atomic_load(&well) > STORM_ROUNDS);
    file_rig_close(r);
}

/* ------------------------------------------------------------------------------------------- main */

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth_of_one),       cmocka_unit_test(many_files),
        cmocka_unit_test(no_file_starves),    cmocka_unit_test(cancel_spares_others),
        cmocka_unit_test(everything_at_once),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return FILE_RIG_RUN(tests);
}
