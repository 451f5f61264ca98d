/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - what te_option_set() keeps. Private to src/conf. */
#ifndef TEI_CONF_OPTIONS_H
#define TEI_CONF_OPTIONS_H

#include "conf/table.h"

/* At most one per row. */
struct te_option_list {
    struct te_option_list *next;
    const struct tei_option_row *row;
    char value[];
};

#endif
