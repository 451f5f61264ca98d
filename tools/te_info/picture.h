/* SPDX-License-Identifier: Apache-2.0 */
/* picture.h - the NICs of this host and the priority matrix, drawn. */
#ifndef TE_INFO_PICTURE_H
#define TE_INFO_PICTURE_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

/*
 * Prints what te_links() says as one SVG: a column for each NIC, those of a NUMA node side by side, and
 * a row for each location of memory. It follows its reader's choice of light or dark, and fetches
 * nothing. False where there is no memory for it.
 */
bool picture_print(FILE *out, const json_t *links);

#endif
