/* SPDX-License-Identifier: Apache-2.0 */
/* Histories of a ledger of work: each work ends exactly once, when nothing of it is under way. */
#include "fuzz/ledger_history.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    history_run(data, size);
    return 0;
}
