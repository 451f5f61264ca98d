/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of names as lines of text tell them: "eth0, eth1". */
#ifndef TOOLS_COMMON_NAMES_H
#define TOOLS_COMMON_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Appends `name`. A name that does not fit whole into the `size` bytes at `names` is left out. */
void names_add(char *names, size_t size, const char *name);

/* Whether `name` is one of `names`. */
bool names_have(const char *names, const char *name);

#endif
