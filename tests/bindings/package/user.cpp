/* SPDX-License-Identifier: Apache-2.0 */
/* A program for Mooncake's C++ headers: reads random bytes from one vector into another. */
#include <topology.h>
#include <transfer_engine.h>
#include <transport/transport.h>

#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

using namespace mooncake;

int main()
{
    TransferEngine engine(false);
    std::vector<char> there(123457), here(there.size());
    std::random_device random;
    long polls = 0;

    for (char &byte : there)
        byte = static_cast<char>(random());
    if (engine.init("P2PHANDSHAKE", "127.0.0.1:0") ||
        engine.registerLocalMemory(there.data(), there.size()) ||
        engine.registerLocalMemory(here.data(), here.size()))
        return 1;
    BatchID batch = engine.allocateBatchID(1);
    TransferRequest read = {TransferRequest::READ, here.data(), LOCAL_SEGMENT_ID,
                            reinterpret_cast<uintptr_t>(there.data()), there.size()};
    TransferStatus status = {TransferStatusEnum::WAITING, 0};
    if (!engine.submitTransfer(batch, {read}).ok())
        return 2;
    while (status.s == TransferStatusEnum::WAITING && ++polls < 1000000000L)
        engine.getTransferStatus(batch, 0, status);
    if (status.s != TransferStatusEnum::COMPLETED || there != here)
        return 3;
    engine.freeBatchID(batch);
    std::puts("ok");
    return 0;
}
