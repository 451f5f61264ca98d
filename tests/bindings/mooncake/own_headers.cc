/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with copies of its own of some of the headers, which knows no path but <prefix>/include. It is
 * built with its own ones first, and with -DOURS_FIRST the other way round.
 */
#ifdef OURS_FIRST
#include "transfer_engine.h"
#endif

#include "own/common.h"

#include "transfer_engine.h"

#include "check.h"

namespace mooncake
{

static TaskStatus of_namespace = {5};

} /* namespace mooncake */

int main()
{
    mooncake::TransferEngine engine;
    char memory[64];

    CHECK(engine.init(mooncake::P2PHANDSHAKE, "127.0.0.1") == 0);
    CHECK(engine.registerLocalMemory(memory, sizeof(memory), mooncake::kWildcardLocation) == 0);
    CHECK(engine.getMetadata()->getSegmentDescByID(LOCAL_SEGMENT_ID)->buffers.size() == 1);
    CHECK(engine.CheckSegmentStatus(LOCAL_SEGMENT_ID).ok());
    CHECK(mooncake::getHostname() == "mine" && mooncake::parseHostNameWithPort("a").second == 1);
    CHECK(mooncake::globalConfig().mine == 3 && mooncake::of_namespace.of_my_own == 5);
    CHECK(mooncake::INVALID_BATCH_ID == 7);
    return 0;
}
