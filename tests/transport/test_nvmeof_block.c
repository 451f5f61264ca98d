/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: optional */
/*
 * A block device: a loop device over a sparse file, which the kernel takes away by itself when the last
 * descriptor is closed. Needs root and /dev/loop-control.
 */
#include "conformance.h"
#include "file_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LENGTH ((size_t)2 << 20)

static char device[32];

/* A descriptor that keeps the device, -1 if it cannot be had. */
static int make_device(const char *path, unsigned block_size)
{
    struct loop_config c = {.block_size = block_size, .info.lo_flags = LO_FLAGS_AUTOCLEAR};
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), number, fd = -1, rc = -1;
    int file = open(path, O_RDWR | O_CLOEXEC);

    /* Another process may take the free one first. */
    for (int i = 0; i < 20 && rc != 0 && control >= 0 && file >= 0; i++) {
        number = ioctl(control, LOOP_CTL_GET_FREE);
        snprintf(device, sizeof device, "/dev/loop%d", number);
        fd = number < 0 ? -1 : open(device, O_RDWR | O_CLOEXEC);
        c.fd = (unsigned)file;
        rc = fd < 0 ? -1 : ioctl(fd, LOOP_CONFIGURE, &c);
        if (rc != 0 && fd >= 0)
            close(fd);
    }
    if (control >= 0)
        close(control);
    if (file >= 0)
        close(file);
    return rc == 0 ? fd : -1;
}

static int make_sparse(char *path)
{
    int fd = mkstemp(path);

    return fd >= 0 && ftruncate(fd, (off_t)LENGTH) == 0 ? close(fd) : -1;
}

static void works(struct file_rig *r, struct tei_attach *a, int opcode, char *memory, uint64_t at,
                  uint64_t n)
{
    struct fake_task t = file_rig_move(r, a, opcode, memory, at, n);

    if (t.error)
        fail_msg("%llu + %llu: %s: %s", (unsigned long long)at, (unsigned long long)n,
                 te_strerror(t.error), t.note);
}

/* Compares with a model of the device, by ranges of any kind. */
static void check_ranges(struct file_rig *r, struct tei_attach *a, const char *path)
{
    char *model = calloc(1, LENGTH), *bytes;
    uint32_t x = 9;

    for (uint32_t i = 0; i < 150; i++) {
        size_t at, n, shift;

        x = x * 1664525u + 1013904223u;
        at = (x >> 8) % LENGTH;
        n = 1 + (x >> 3) % (i % 2 ? 9000 : LENGTH - at);
        n = n < LENGTH - at ? n : LENGTH - at;
        shift = i % 3 ? 0 : x >> 20;
        fill_pattern(r->memory + shift, n, i);
        memcpy(model + at, r->memory + shift, n);
        works(r, a, TE_WRITE, r->memory + shift, at, n);
        memset(r->memory, 0, n + shift + 1);
        works(r, a, TE_READ, r->memory + shift, at, n);
        assert_memory_equal(r->memory + shift, model + at, n);
        assert_int_equal(r->memory[shift + n], 0);
    }
    bytes = file_rig_bytes(path, LENGTH);
    assert_memory_equal(bytes, model, LENGTH);
    free(bytes);
    free(model);
}

/* The device over a sparse file made at `path`, or the end of the test. */
static int need_device(char *path, unsigned block_size)
{
    int fd;

    assert_int_equal(make_sparse(path), 0);
    fd = make_device(path, block_size);
    if (fd >= 0)
        return fd;
    fprintf(stderr, "no loop device: %s; needs root and /dev/loop-control\n", strerror(errno));
    unlink(path);
    exit(77);
}

static void check_device(unsigned block_size)
{
    char path[] = "te-block-XXXXXX";
    struct file_rig *r;
    struct tei_attach *a;
    struct fake_task t;
    int fd = need_device(path, block_size);

    r = file_rig_open(NULL);
    a = file_rig_attach(r, device, LENGTH + 4096);
    check_ranges(r, a, device);
    t = file_rig_move(r, a, TE_WRITE, r->memory, LENGTH - 1, 2);
    assert_int_equal(t.error, TE_ERR_STALE);
    assert_non_null(strstr(t.note, "is shorter than its record"));
    assert_non_null(strstr(t.note, device));
    fake_detach(r->t, a);
    file_rig_close(r);
    close(fd);
    unlink(path);
}

/* ------------------------------------------------------------------------- read by others meanwhile */

enum { PAGES = LENGTH / 4096, ROUNDS = 60 };

/* Through the page cache, as programs do that look what is on a device. */
static void *read_on(void *arg)
{
    _Atomic bool *over = arg;
    char *bytes = malloc(LENGTH);

    while (bytes && !atomic_load(over)) {
        int fd = open(device, O_RDONLY | O_CLOEXEC);

        while (fd >= 0 && read(fd, bytes, LENGTH) > 0)
            continue;
        close(fd);
    }
    free(bytes);
    return NULL;
}

/* Of each page nothing, all or a part is written, all at once. */
static void write_pages(struct file_rig *r, struct tei_attach *a, char *model, uint32_t *x)
{
    struct fake_task tasks[PAGES];
    struct tei_list list;
    size_t n = 0;

    tei_list_init(&list);
    for (size_t page = 0; page < PAGES; page++) {
        size_t at = page * 4096, length = 4096;

        *x = *x * 1664525u + 1013904223u;
        if (*x >> 30 == 0)
            continue;
        if (*x >> 30 == 1) {
            at += 1 + (*x >> 8) % 4000;
            length = 1 + (*x >> 4) % (page * 4096 + 4095 - at);
        }
        fill_pattern(r->memory + at, length, *x);
        memcpy(model + at, r->memory + at, length);
        fake_work(&list, r->t, a, &tasks[n++], TE_WRITE, r->memory + at, (void *)(uintptr_t)at,
                  length);
    }
    r->t->ops.post(r->t, &list);
    assert_true(fake_wait(&r->host, NULL, tasks, n, PATIENCE_MS));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(tasks[i].error, 0);
}

/*
 * What a part of a page is put into must be what direct I/O has written there before, also if others
 * have had the page in the cache since before that.
 */
static void read_meanwhile(void **state)
{
    char path[] = "te-block-XXXXXX", *model = calloc(1, LENGTH);
    int fd = need_device(path, 512);
    struct file_rig *r = file_rig_open(NULL);
    struct tei_attach *a = file_rig_attach(r, device, LENGTH);
    _Atomic bool over = false;
    pthread_t reader;
    uint32_t x = 5;

    (void)state;
    assert_int_equal(pthread_create(&reader, NULL, read_on, &over), 0);
    for (int i = 0; i < ROUNDS; i++) {
        write_pages(r, a, model, &x);
        works(r, a, TE_READ, r->memory, 0, LENGTH);
        assert_memory_equal(r->memory, model, LENGTH);
    }
    atomic_store(&over, true);
    pthread_join(reader, NULL);
    fake_detach(r->t, a);
    file_rig_close(r);
    close(fd);
    unlink(path);
    free(model);
}

static void sectors_of_512(void **state)
{
    (void)state;
    check_device(512);
}

static void sectors_of_4096(void **state)
{
    (void)state;
    check_device(4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sectors_of_512),
        cmocka_unit_test(sectors_of_4096),
        cmocka_unit_test(read_meanwhile),
    };

    return FILE_RIG_RUN(tests);
}
