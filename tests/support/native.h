/* SPDX-License-Identifier: Apache-2.0 */
/*
 * native.h - the native framing of the tcp transport spoken by hand over plain sockets: what tests
 * feed a server with, or answer a client with. Calls that fail end the test; a receive waits for
 * 10 s at most.
 */
#ifndef TEST_NATIVE_H
#define TEST_NATIVE_H

#include "fake_host.h"
#include "transport/tcp/tcp_wire.h"

/* A connection, and whether its frames have checksums. */
struct native {
    int fd;
    bool crc;
};

uint16_t native_port(struct tei_transport *t);
uint64_t native_id(struct tei_transport *t);

/* A socket connected to a port of 127.0.0.1. */
int native_dial(uint16_t port);
void native_put(int fd, const void *bytes, size_t n);
void native_get(int fd, void *bytes, size_t n);
/* The other side closes, or has; closes ours. */
void native_expect_end(int fd);
/* Nothing comes for a while. */
void native_expect_silence(int fd);

void native_put_hello(int fd, const struct tcp_hello *h);
/* Connects and greets an instance; the greeting is answered well. */
struct native native_greet(struct tei_transport *t, uint64_t client, uint64_t connection, bool crc);

/*
 * The bytes of a request: header, `n` blocks and, for a WRITE, all of `payload`. Returns how many.
 */
size_t native_request(uint8_t *out, bool crc, unsigned type, uint64_t id,
                      const struct tcp_range *blocks, unsigned n, const void *payload);
void native_send(const struct native *c, unsigned type, uint64_t id, const struct tcp_range *blocks,
                 unsigned n, const void *payload);

/* Adds an option to a list; returns how many bytes it has there. */
size_t native_option(uint8_t *out, unsigned kind, const void *value, size_t n);
/* The same as native_send(), with a list of `n_options` bytes. */
void native_send_with(const struct native *c, unsigned type, uint64_t id, struct tcp_range block,
                      const void *payload, const uint8_t *options, size_t n_options);

/* The next header that comes. */
struct tcp_frame_head native_head(const struct native *c);
void native_expect(const struct native *c, unsigned type, uint64_t id, enum tcp_verdict verdict,
                   uint32_t index, uint64_t length);
/* An answer of that kind, with its payload (of h->length bytes) and checksum. */
void native_answer(const struct native *c, const struct tcp_frame_head *h, const void *payload);

#endif
