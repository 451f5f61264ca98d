/* SPDX-License-Identifier: Apache-2.0 */
/* notify.h - messages that follow requests. */
#ifndef TEI_NOTIFY_H
#define TEI_NOTIFY_H

#include "core/group.h"

/* What te_submit() promises to send once its `n` requests are done; NULL: it is too large. */
int tei_notify_group(te_engine *e, const te_submit_opts *o, size_t n, struct group **out);

#endif
