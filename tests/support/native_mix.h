/* SPDX-License-Identifier: Apache-2.0 */
/*
 * native_mix.h - random requests of the native framing over one connection, READs and WRITEs of blocks
 * that lie anywhere, and what must come back.
 */
#ifndef TEST_NATIVE_MIX_H
#define TEST_NATIVE_MIX_H

#include "native.h"

/* Memory of the target, and what is in it: kept up with the WRITEs. */
struct native_area {
    const char *mem; /* never touched here */
    char *model;
};

struct native_mix {
    const struct native_area *areas;
    unsigned n_areas;
    size_t bytes;      /* of each area */
    unsigned longest;  /* block */
    unsigned n_frames; /* at most 64 */
    unsigned most;     /* bytes of one send; 0: all at once */
};

/* A number drawn by rand(). */
unsigned native_draw(unsigned below);
void native_mix(const struct native *c, const struct native_mix *mix);

#endif
