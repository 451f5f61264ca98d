/* SPDX-License-Identifier: Apache-2.0 */
/* The C functions with the address of a C++ object in place of a handle: an error that says what to give. */
#include <cstring>
#include <memory>

#include "te.h"
#include "transfer_engine.h"
#include "transfer_engine_c.h"

#include "check.h"

static bool says_so()
{
    return strstr(te_errmsg(), "native()") != nullptr;
}

int main()
{
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
