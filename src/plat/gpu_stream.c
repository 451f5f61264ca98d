/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_stream.c - a program's own streams: whether what it has submitted to one is done, and having what it
 * submits next wait.
 *
 * For the first an event is recorded, which belongs to the device's primary context, and so the stream has to. For
 * the second the stream waits until a word of pinned host memory has a value. A word is used again at once, for
 * the next value, since a stream waits for that value or a later one. So words are never given back: a stream that has
 * been let go may get to its wait much later.
 */
#include "plat/gpu.h"

#include "base/err.h"
#include "base/os.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, WORD_BYTES = 64 }; /* of a word, with a line of the cache to itself */

struct tei_gpu_event {
    enum tei_mem_kind kind;
    int device;
    void *event;
};

struct tei_gpu_flag {
    struct tei_gpu_flag *next; /* of those that nobody has */
    enum tei_mem_kind kind;
    _Atomic uint32_t *word;
    uint32_t value; /* that a stream was last told to wait for */
};

/* ---------------------------------------------------------------------------------------- events */

static int record(struct tei_gpu_event *e, void *stream)
{
    const struct tei_driver *row = tei_driver_open(e->kind);
    int was, status, rc = tei_gpu_enter(e->kind, e->device, &was);

    if (rc)
        return rc;
    status = row->api->event_open(row, &e->event);
    if (!status) {
        status = row->api->event_record(row, e->event, stream);
        if (status)
            (void)row->api->event_close(row, e->event);
    }
    row->api->leave(row, was);
    if (status)
        return TEI_FAIL(TE_ERR_CONTEXT, "stream %p of %s:%d: %s", stream, row->name, e->device,
                        tei_gpu_why(row, status));
    return 0;
}

int tei_gpu_event_record(enum tei_mem_kind kind, int device, void *stream,
                         struct tei_gpu_event **out)
{
    struct tei_gpu_event *e = malloc(sizeof(*e));
    int rc;

    if (!e)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for an event");
    *e = (struct tei_gpu_event){.kind = kind, .device = device};
    rc = record(e, stream);
    if (rc)
        free(e);
    else
        *out = e;
    return rc;
}

int tei_gpu_event_poll(struct tei_gpu_event *e)
{
    const struct tei_driver *row = tei_driver_open(e->kind);
    int was, status, rc = tei_gpu_enter(e->kind, e->device, &was);

    if (rc)
        return rc;
    status = row->api->event_query(row, e->event);
    row->api->leave(row, was);
    if (status == TEI_GPU_NOT_READY)
        return TE_ERR_BUSY;
    if (status)
        return TEI_FAIL(TE_ERR_CONTEXT, "work of a stream of %s:%d: %s", row->name, e->device,
                        tei_gpu_why(row, status));
    return 0;
}

void tei_gpu_event_close(struct tei_gpu_event *e)
{
    const struct tei_driver *row = tei_driver_open(e->kind);
    int was;

    if (tei_gpu_enter(e->kind, e->device, &was) == 0) {
        (void)row->api->event_close(row, e->event);
        row->api->leave(row, was);
    }
    free(e);
}

/* ----------------------------------------------------------------------------------------- flags */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tei_gpu_flag *idle[TEI_MEM_KINDS];

static struct tei_gpu_flag *take_idle(enum tei_mem_kind kind)
{
    struct tei_gpu_flag *f;

    pthread_mutex_lock(&lock);
    f = idle[kind];
    if (f)
        idle[kind] = f->next;
    pthread_mutex_unlock(&lock);
    return f;
}

static void put_idle(struct tei_gpu_flag *f)
{
    pthread_mutex_lock(&lock);
    f->next = idle[f->kind];
    idle[f->kind] = f;
    pthread_mutex_unlock(&lock);
}

/* Makes a page of them; *out is one, and the others are idle. The device is entered. */
static int make_flags(const struct tei_driver *row, enum tei_mem_kind kind,
                      struct tei_gpu_flag **out)
{
    enum { N = PAGE / WORD_BYTES };
    struct tei_gpu_flag *flags = calloc(N, sizeof(*flags));
    char *page = flags
                     ? mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                     : MAP_FAILED;
    int status = TEI_GPU_OUT_OF_MEMORY;

    if (page != MAP_FAILED) {
        /* After a fork this process would write to a copy, and the device read what was there. */
        madvise(page, PAGE, MADV_DONTFORK);
        status = row->api->pin(row, page, PAGE);
    }
    if (status) {
        if (page != MAP_FAILED)
            munmap(page, PAGE);
        free(flags);
        return status;
    }
    for (size_t i = 0; i < N; i++) {
        flags[i].kind = kind;
        flags[i].word = (_Atomic uint32_t *)(void *)(page + i * WORD_BYTES);
        if (i)
            put_idle(&flags[i]);
    }
    *out = flags;
    return 0;
}

int tei_gpu_flag_wait(enum tei_mem_kind kind, int device, void *stream, struct tei_gpu_flag **out)
{
    const struct tei_driver *row = tei_driver_open(kind);
    struct tei_gpu_flag *f;
    int was, status = 0, rc;

    if (!row->api->wait_value)
        return TEI_FAIL(TE_ERR_UNSUPPORTED, "streams of %s cannot wait for the host", row->title);
    rc = tei_gpu_enter(kind, device, &was);
    if (rc)
        return rc;
    f = take_idle(kind);
    if (!f)
        status = make_flags(row, kind, &f);
    if (!status)
        status = row->api->wait_value(row, device, stream, f->word, ++f->value);
    row->api->leave(row, was);
    if (!status)
        *out = f;
    else if (f)
        tei_gpu_flag_set(f);
    if (status == TEI_GPU_NOT_SUPPORTED)
        return TEI_FAIL(TE_ERR_UNSUPPORTED, "streams of %s:%d cannot wait for the host: %s",
                        row->name, device, tei_gpu_why(row, status));
    return status ? TEI_FAIL(TE_ERR_CONTEXT, "stream %p of %s:%d: %s", stream, row->name, device,
                             tei_gpu_why(row, status))
                  : 0;
}

void tei_gpu_flag_set(struct tei_gpu_flag *f)
{
    /* Release: bytes that the host has brought are seen before it. */
    atomic_store_explicit(f->word, f->value, memory_order_release);
    put_idle(f);
}
