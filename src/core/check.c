/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - whether what a call was given is an engine that it may use. */
#include "core/core.h"

const char *te_version(void)
{
    return TE_VERSION_STRING;
}

int tei_engine_check(const te_engine *e)
{
    if (!e)
        return TEI_FAIL(TE_ERR_INVALID,
                        "engine is NULL: it was not created, or its creation failed");
    if (e->mark == TEI_HANDLE_MARK)
        return TEI_FAIL(TE_ERR_INVALID,
                        "this is a handle of the C interface in the place of a C++ TransferEngine: "
                        "call the C functions with it, or make an object");
    if (e->mark != TEI_ENGINE_MARK)
        return TEI_FAIL(
            TE_ERR_INVALID,
            "this is no engine of the C interface: of a C++ TransferEngine give native(), "
            "and give none that was destroyed");
    if (e->fork_epoch != tei_fork_epoch())
        return TEI_FAIL(TE_ERR_CLOSED,
                        "engine belongs to the parent process; make one of your own after fork()");
    if (atomic_load_explicit(&e->closing, memory_order_relaxed))
        return TEI_FAIL(TE_ERR_CLOSED, "engine is being destroyed");
    return 0;
}
