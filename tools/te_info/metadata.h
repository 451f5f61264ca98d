/* SPDX-License-Identifier: Apache-2.0 */
/* metadata.h - whether a metadata server can be asked, and what it knows. */
#ifndef TE_INFO_METADATA_H
#define TE_INFO_METADATA_H

#include <jansson.h>

#include "base/sock.h"
#include "conf/conf.h"

/*
 * Asks the server of a connection string. A new object: "answers" and, by that, "ms" (one read),
 * "engines" and "segments" (numbers), or a "note" where the server gives no list; or "why".
 */
json_t *metadata_ask(const char *conn, const struct tei_conf *conf);

/*
 * Whether the engine of a segment of that server answers now, as te_segment(1) asks it. 0, too, where
 * there is none to ask: files, or an engine without a key that says where it is. A te_err with
 * te_errmsg() set. `where`: its handshake port, left as it is where that is not known.
 */
int metadata_ask_engine(const char *conn, const struct tei_conf *conf, const char *segment,
                        struct tei_hostport *where);

void metadata_print(const char *conn, const json_t *found);

#endif
