/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rail_fixture.h - one peer, one route and a clock of the test's own, for tests of the choice of
 * rails. One at a time: they are globals.
 */
#ifndef TEST_RAIL_FIXTURE_H
#define TEST_RAIL_FIXTURE_H

#include "rail/rail.h"

#define MS    INT64_C(1000000)
#define GB    UINT64_C(1000000000)
#define SLICE 65536

extern struct tei_path_nics nics;
extern struct tei_paths paths;
extern struct tei_path_route route;
extern int64_t now;

/* NICs by name, "a b c", of 10 GB/s each; what tei_paths_init() says. */
int begin(const char *local, const char *peer, struct tei_path_conf conf);
/* Makes the route between lists of NICs by number, "0 2 5": preferred and available of both sides. */
void lead(const char *lp, const char *la, const char *pp, const char *pa);
/* The rails in use as "0-0 1-1", sorted by local, then peer NIC. */
const char *rails(void);
enum tei_path_answer pick(uint64_t len, int avoid, struct tei_path_choice *out);
/* The rail that the next slice gets, and does get. */
int give(uint64_t len);

#endif
