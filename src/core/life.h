/* SPDX-License-Identifier: Apache-2.0 */
/* life.h - segments of one life of their engine, te_open_life(). */
#ifndef TEI_LIFE_H
#define TEI_LIFE_H

#include "core/view.h"

/*
 * Of a peer that is being opened: whether the descriptor is of the life that is wanted, which is noted where any will
 * do, and whether the engine that answers there says that it is of that life. Blocks. TE_ERR_STALE: it is of another.
 * TE_ERR_UNSUPPORTED: that cannot be told.
 */
int tei_life_admit(struct peer *p, const struct tei_segment *seg, const struct tei_hostport *where);
/* Whether one of the transports can tell lives apart, if any is there. TE_ERR_UNSUPPORTED with what they say. */
int tei_life_check_paths(const struct view *v);

/* What is over, why, and the remedy, of a view that is over; cut to fit. */
void tei_life_text(const struct view *v, char *buf, size_t n);
/* Each returns TE_ERR_STALE, with that text. */
int tei_life_fail_now(const struct peer *p, uint64_t instead);
int tei_life_fail_other(const char *name, uint64_t wanted, uint64_t found);
/* TE_ERR_UNSUPPORTED: files have no life. */
int tei_life_fail_files(const char *name);

#endif
