/* SPDX-License-Identifier: Apache-2.0 */
/* prep.h - prepared lists. */
#ifndef TEI_PREP_H
#define TEI_PREP_H

#include "base/pool.h"

/* Frees what is left. */
void tei_preps_fini(struct tei_handles *preps);

#endif
