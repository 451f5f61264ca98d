/* SPDX-License-Identifier: Apache-2.0 */
#include "base/near.h"

#include <string.h>

#include "base/base.h"

size_t tei_near_distance(const char *a, const char *b)
{
    size_t row[TEI_NEAR_MAX + 1], n = strlen(b);

    for (size_t k = 0; k <= n; k++)
        row[k] = k;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t corner = row[0];

        row[0] = i;
        for (size_t k = 1; k <= n; k++) {
            size_t replaced = corner + (a[i - 1] != b[k - 1]);

            corner = row[k];
            row[k] = tei_min(replaced, tei_min(row[k], row[k - 1]) + 1);
        }
    }
    return row[n];
}

size_t tei_near_limit(const char *name)
{
    size_t n = strlen(name);

    return n ? tei_min(2, (n - 1) / 4) : 0;
}
