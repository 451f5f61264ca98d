/* SPDX-License-Identifier: Apache-2.0 */
/* changed.h - the options that differ from their defaults, and variables without effect. */
#ifndef TE_INFO_CHANGED_H
#define TE_INFO_CHANGED_H

#include <jansson.h>

#include "conf/conf.h"

/* How many options have another value than their default; *all: how many there are. */
size_t changed_count(const struct tei_conf *c, size_t *all);

/* {"changed":[{"name","value","default","source"}, ...],"without_effect":TEXT}, a new reference. */
json_t *changed_json(const struct tei_conf *c);

/* The same on standard output. */
void changed_print(const struct tei_conf *c);

#endif
