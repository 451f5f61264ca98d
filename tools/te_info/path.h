/* SPDX-License-Identifier: Apache-2.0 */
/* path.h - which transport a request to a segment would take. */
#ifndef TE_INFO_PATH_H
#define TE_INFO_PATH_H

#include <jansson.h>

/*
 * Makes an engine with that metadata server, opens the segment and has a READ and a WRITE of its
 * first buffer explained; nothing is moved. A new object: "segment", "read", "write" (texts of
 * te_explain()), or "why" nothing could be said. "possible": both could be submitted.
 */
json_t *path_ask(const char *metadata, const char *segment);

void path_print(const json_t *found);

#endif
