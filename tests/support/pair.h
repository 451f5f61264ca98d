/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.h - two engines in one process, joined over loopback by the P2P handshake: the usual
 * fixture.
 */
#ifndef TEST_PAIR_H
#define TEST_PAIR_H

#include "te.h"

#define PAIR_SIZE ((size_t)8 << 20)

struct pair {
    te_engine *a, *b;       /* a asks, b is asked */
    unsigned char *am, *bm; /* registered memory of each, PAIR_SIZE bytes */
    char bname[300];
    te_segment seg; /* b, as opened by a */
};

/* For cmocka_unit_test_setup_teardown(): *state is a struct pair. */
int pair_setup(void **state);
int pair_setup_tcp(void **state); /* with TCP between them, although they are on one host */
int pair_teardown(void **state);
/* One more engine, as those of pair_setup_tcp(), with this option; the caller destroys it. */
te_engine *pair_third(const char *option, const char *value);

/* Submits one request, waits for its end and frees the batch. */
struct te_status transfer(te_engine *e, int opcode, void *local, te_segment seg, const void *remote,
                          size_t n);

#endif
