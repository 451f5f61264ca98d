/* SPDX-License-Identifier: Apache-2.0 */
/* then.h - what goes on when requests have ended, te_submit_opts.then. */
#ifndef TEI_THEN_H
#define TEI_THEN_H

#include "core/group.h"

/*
 * A group of the `n` requests of one call, in the place of *group, NULL or not, which it ends with its own. On an error
 * *group stays as it is.
 */
int tei_then_make(const te_stream *then, size_t n, struct group **group);

#endif
