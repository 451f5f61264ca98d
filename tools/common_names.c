/* SPDX-License-Identifier: Apache-2.0 */
#include "common_names.h"

#include <string.h>

static const char between[] = ", ";

void names_add(char *names, size_t size, const char *name)
{
    size_t used = strlen(names), gap = used ? sizeof(between) - 1 : 0, n = strlen(name);

    if (used + gap + n >= size)
        return;
    memcpy(names + used, between, gap);
    memcpy(names + used + gap, name, n + 1);
}

bool names_have(const char *names, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = names; at; at = strstr(at, between)) {
        at += at == names ? 0 : sizeof(between) - 1;
        if (strncmp(at, name, n) == 0 && (!at[n] || strncmp(at + n, between, 2) == 0))
            return true;
    }
    return false;
}
