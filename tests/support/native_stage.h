/* SPDX-License-Identifier: Apache-2.0 */
/*
 * native_stage.h - a client of the native framing whose target is the test: an instance of tcp, one
 * lane, a listener, and requests that are answered by hand (native.h).
 */
#ifndef TEST_NATIVE_STAGE_H
#define TEST_NATIVE_STAGE_H

#include "native.h"

#define STAGE_BYTES ((size_t)64 << 20) /* more than any socket holds */
#define TASKS       64
#define ID          0x0123456789abcdefu

struct stage {
    struct fake_host host;
    struct tei_transport *t;
    struct tei_attach *attach;
    char *memory;
    int listener;
    struct fake_task tasks[TASKS];
    struct tei_list list; /* works to be posted */
    bool crc;
    unsigned framing;       /* the version of it that the target announces */
    struct tcp_hello hello; /* the last one that came */
};

/* A request that has come. */
struct got {
    struct tcp_frame_head h;
    struct tcp_range r[TCP_FRAME_BLOCKS];
    uint8_t options[TCP_OPTIONS_MAX];
    uint64_t total;
};

void stage_open(struct stage *s, void (*configure)(struct tei_conf *));
void stage_open_as(struct stage *s, void (*configure)(struct tei_conf *), unsigned framing);
void stage_close(struct stage *s);
/* The remote address of byte `at` of the memory. */
uint64_t stage_remote(size_t at);
struct tei_work *stage_add(struct stage *s, unsigned task, int opcode, size_t at, size_t n);
void stage_post(struct stage *s);
void stage_request(struct stage *s, unsigned task, int opcode, size_t at, size_t n);
int stage_outcome(struct stage *s, unsigned task);
bool stage_is_done(struct stage *s, unsigned task);
uint64_t stage_connections(const struct stage *s); /* of the client, as it counts them */
/* A connection of the client's, and its greeting. */
struct native stage_take(struct stage *s);
void stage_answer(const struct native *c, unsigned type, uint64_t id, enum tcp_verdict verdict,
                  uint32_t index);
struct native stage_take_greeted(struct stage *s);
/* Its header, blocks and options, but not the payload of a WRITE. */
struct got stage_get_head(const struct native *c);
/* A whole request; the payload of a WRITE is what lies in the client's memory. */
struct got stage_get_request(struct stage *s, const struct native *c, unsigned type);
void stage_put_data(const struct native *c, const struct got *g, uint32_t seed);
void stage_expect_pattern(const char *p, size_t n, uint32_t seed);

#endif
