/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C functions with the address of a C++ object in place of a handle, and the object's methods with a handle
 * in place of the object: an error that says what to give, and nothing is touched.
 */
#include <cstring>
#include <memory>
#include <vector>

#include "te.h"
#include "transfer_engine.h"
#include "transfer_engine_c.h"

#include "check.h"

static bool says_so()
{
    return strstr(te_errmsg(), "native()") != nullptr;
}

static bool says_handle()
{
    return strstr(te_errmsg(), "handle of the C interface") != nullptr;
}

/* What a program does that knows of handles that are addresses of objects. */
static void handle_as_object()
{
    transfer_engine_t handle = createTransferEngine(mooncake::P2PHANDSHAKE, "127.0.0.1", "", 0, 1);
    auto *wrong = static_cast<mooncake::TransferEngine *>(handle);
    std::vector<mooncake::TransferEngine::NotifyDesc> notifies;
    mooncake::TransferStatus status;
    char memory[64], text[64];

    CHECK(handle);
    CHECK(wrong->init(mooncake::P2PHANDSHAKE, "127.0.0.1") < 0 && says_handle());
    CHECK(wrong->init(mooncake::P2PHANDSHAKE, "127.0.0.1", "127.0.0.1", 0) < 0 && says_handle());
    CHECK(wrong->setOption("MC_SLICE_SIZE", "4096") < 0 && says_handle());
    wrong->setAutoDiscover(false);
    wrong->setWhitelistFilters({"a"});
    CHECK(wrong->registerLocalMemory(memory, sizeof(memory)) < 0 && says_handle());
    CHECK(wrong->unregisterLocalMemory(memory) < 0 && says_handle());
    CHECK(wrong->unregisterLocalMemoryBatch({memory}) < 0 && says_handle());
    CHECK(!wrong->checkOverlap(memory, 1));
    CHECK(wrong->openSegment("node") == -1 && says_handle());
    CHECK(wrong->closeSegment(1) != 0 && !wrong->CheckSegmentStatus(0).ok());
    CHECK(wrong->allocateBatchID(1) == INVALID_BATCH && says_handle());
    CHECK(!wrong->submitTransfer(1, {}).ok() && !wrong->getTransferStatus(1, 0, status).ok());
    CHECK(wrong->getNotifies(notifies) < 0 && wrong->sendNotifyByName("node", {"a", "b"}) != 0);
    CHECK(!wrong->installTransport("tcp") && says_handle());
    CHECK(!wrong->getTransport("tcp") && wrong->uninstallTransport("tcp") < 0);
    CHECK(!wrong->getMetadata() && wrong->getLocalTopology() && wrong->showLinks().empty());
    CHECK(wrong->getLocalIpAndPort().empty() && wrong->numContexts() == 0 && !wrong->isTcpOnly());
    CHECK(wrong->freeEngine() < 0 && says_handle());
    /* The engine is as it was. */
    CHECK(getLocalIpAndPort(handle, text, sizeof(text)) == 0);
    CHECK(registerLocalMemory(handle, memory, sizeof(memory), "*", 1) == 0);
    destroyTransferEngine(handle);
}

int main()
{
    handle_as_object();
    auto engine = std::make_unique<mooncake::TransferEngine>();
    transfer_engine_t wrong = engine.get(), right;
    char memory[64], text[64];

    for (int i = 0; i < 2; ++i) { /* before init() and after it */
        CHECK(openSegment(wrong, "node") == -1 && says_so());
        CHECK(registerLocalMemory(wrong, memory, sizeof(memory), "*", 1) < 0 && says_so());
        CHECK(allocateBatchID(wrong, 1) == INVALID_BATCH && says_so());
        CHECK(getLocalIpAndPort(wrong, text, sizeof(text)) < 0 && says_so());
        CHECK(!installTransport(wrong, "tcp", nullptr) && says_so());
        destroyTransferEngine(wrong);
        CHECK(says_so());
        if (i == 0)
            CHECK(engine->init(mooncake::P2PHANDSHAKE, "127.0.0.1") == 0);
    }
    right = engine->native();
    CHECK(getLocalIpAndPort(right, text, sizeof(text)) == 0 && engine->getLocalIpAndPort() == text);
    CHECK(registerLocalMemory(right, memory, sizeof(memory), "*", 1) == 0);
    return 0;
}
