/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

uint64_t tei_slice_len(uint64_t left, uint64_t slice, uint64_t ratio)
{
    uint64_t whole;

    if (!slice || !tei_add_ok(slice, ratio ? slice / ratio : 0, &whole))
        return left;
    return left <= whole ? left : slice;
}
