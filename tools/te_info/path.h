/* SPDX-License-Identifier: Apache-2.0 */
/* path.h - which transport a request to a segment would take. */
#ifndef TE_INFO_PATH_H
#define TE_INFO_PATH_H

#include <jansson.h>

#include "conf/conf.h"

/*
 * Makes an engine with that metadata server, opens the segment, asks its engine whether it answers and
 * has a READ and a WRITE of its first buffer explained; nothing is moved. A new object: "segment",
 * "read", "write" (texts of te_explain()), and "why" nothing could be said, or what is said will not
 * be. "data_port": the TCP port that the descriptor names, "address", whether it "answers", or "why" not.
 * "possible": both could be submitted, the engine answers, and so does the data port where tcp would be
 * taken. `conf`: NULL with P2PHANDSHAKE.
 */
json_t *path_ask(const char *metadata, const struct tei_conf *conf, const char *segment);

void path_print(const json_t *found);

#endif
