/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warmth.h - how far the connections to a peer are that te_warm() asks a transport for.
 *
 * A path is what the transport connects by itself: a lane of tcp, a pair of NICs of rdma. One struct is for one
 * te_warm() and one attachment; the transport is asked with it again and again, and writes the figures anew each time.
 */
#ifndef TEI_WARMTH_H
#define TEI_WARMTH_H

#include <stdbool.h>
#include <stdint.h>

#define TEI_WARM_PATHS 1024

/* The transport's own, from one time to the next; zeroed before the first. */
struct tei_warm_path {
    uint8_t state, seen, tries;
};

struct tei_warmth {
    bool begun;                      /* the core's: this is not the first time */
    unsigned ready, opening, failed; /* paths; all 0: there is nothing to connect */
    int error;                       /* why the first of `failed` is; 0: none is */
    char why[512];                   /* the same in words, after the name of the transport */
    struct tei_warm_path path[TEI_WARM_PATHS];
};

#endif
