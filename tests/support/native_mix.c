/* SPDX-License-Identifier: Apache-2.0 */
#include "native_mix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* What was sent, to compare what comes with. */
struct sent {
    const struct native_mix *mix;
    uint8_t *bytes; /* all requests */
    size_t n, room;
    struct {
        unsigned type;
        uint64_t length;
    } frames[64];
    unsigned n_frames;
    char *expected; /* what all READs bring */
    size_t n_expected;
};

struct block {
    struct tcp_range range;
    char *model;
};

unsigned native_draw(unsigned below)
{
    return (unsigned)rand() % below;
}

/* Blocks that do not overlap, in any order. */
static unsigned draw_blocks(const struct native_mix *mix, struct block *b)
{
    unsigned n = 1 + native_draw(native_draw(4) ? 5 : TCP_FRAME_BLOCKS);
    size_t share = mix->bytes / n;

    for (unsigned i = 0; i < n; i++) {
        const struct native_area *a = &mix->areas[native_draw(mix->n_areas)];
        size_t len = 1 + native_draw(native_draw(3) ? 50 : (unsigned)tei_min(share, mix->longest)),
               at;

        len = tei_min(len, share);
        at = i * share + native_draw((unsigned)(share - len + 1));
        b[i].range = (struct tcp_range){(uintptr_t)a->mem + at, (uint32_t)len};
        b[i].model = a->model + at;
    }
    for (unsigned i = n; i > 1; i--) {
        unsigned k = native_draw(i);
        struct block swap = b[i - 1];

        b[i - 1] = b[k];
        b[k] = swap;
    }
    return n;
}

static void fill(char *p, size_t n)
{
    uint32_t x = (uint32_t)rand();

    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (char)(x >> 24);
    }
}

static void add_frame(struct sent *s, bool crc, char *payload)
{
    struct block b[TCP_FRAME_BLOCKS];
    struct tcp_range r[TCP_FRAME_BLOCKS];
    unsigned n = draw_blocks(s->mix, b), type = native_draw(2) ? TCP_FRAME_READ : TCP_FRAME_WRITE;
    uint64_t total = 0;

    fill(payload, s->mix->bytes);
    for (unsigned i = 0; i < n; i++) {
        r[i] = b[i].range;
        if (type == TCP_FRAME_WRITE)
            memcpy(b[i].model, payload + total, r[i].length);
        else
            memcpy(s->expected + s->n_expected + total, b[i].model, r[i].length);
        total += r[i].length;
    }
    s->n_expected += type == TCP_FRAME_READ ? total : 0;
    s->frames[s->n_frames].type = type;
    s->frames[s->n_frames++].length = total;
    s->n += native_request(s->bytes + s->n, crc, type, s->n_frames, r, n, payload);
    assert_true(s->n <= s->room);
}

struct feed {
    int fd;
    const uint8_t *bytes;
    size_t n;
    unsigned most;
};

static void *feed(void *arg)
{
    const struct feed *f = arg;
    unsigned seed = (unsigned)f->n;

    for (size_t i = 0; i < f->n;) {
        size_t part = f->most ? 1 + (size_t)rand_r(&seed) % f->most : f->n;

        part = tei_min(part, f->n - i);
        if (send(f->fd, f->bytes + i, part, MSG_NOSIGNAL) != (ssize_t)part)
            break;
        i += part;
    }
    return NULL;
}

/* Answers come in the order of the requests; an ACK may stand for several WRITEs in a row. */
static void check_answers(const struct native *c, const struct sent *s)
{
    char *got = malloc(s->mix->bytes), trailer[TCP_TRAILER_LEN];
    size_t from = 0;

    assert_non_null(got);
    for (unsigned i = 0; i < s->n_frames;) {
        struct tcp_frame_head h = native_head(c);

        assert_int_equal(h.verdict, TCP_OK);
        if (s->frames[i].type == TCP_FRAME_WRITE) {
            assert_int_equal(h.type, TCP_FRAME_ACK);
            assert_true(h.id > i && h.id <= s->n_frames);
            while (i < h.id)
                assert_int_equal(s->frames[i++].type, TCP_FRAME_WRITE);
            continue;
        }
        assert_int_equal(h.type, TCP_FRAME_DATA);
        assert_int_equal(h.id, i + 1);
        assert_int_equal(h.length, s->frames[i].length);
        native_get(c->fd, got, h.length);
        assert_memory_equal(got, s->expected + from, h.length);
        from += h.length;
        if (c->crc)
            native_get(c->fd, trailer, sizeof trailer);
        i++;
    }
    free(got);
}

void native_mix(const struct native *c, const struct native_mix *mix)
{
    struct sent s = {.mix = mix,
                     .room = mix->n_frames * (mix->bytes + TCP_FRAME_HEAD_MAX + TCP_TRAILER_LEN)};
    char *payload = malloc(mix->bytes);
    struct feed f;
    pthread_t thread;

    s.bytes = malloc(s.room);
    s.expected = malloc(s.room);
    assert_true(s.bytes && s.expected && payload);
    while (s.n_frames < mix->n_frames)
        add_frame(&s, c->crc, payload);
    f = (struct feed){c->fd, s.bytes, s.n, mix->most};
    assert_int_equal(pthread_create(&thread, NULL, feed, &f), 0);
    check_answers(c, &s);
    pthread_join(thread, NULL);
    free(s.bytes);
    free(s.expected);
    free(payload);
}
