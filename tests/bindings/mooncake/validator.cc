/* SPDX-License-Identifier: Apache-2.0 */
/* In the manner of Mooncake's validator: what is written is read back and compared, in both places. */
#include <cstring>
#include <memory>
#include <thread>

#include "common/base/status.h"
#include "transfer_engine.h"

#include "check.h"

using namespace mooncake;

static constexpr size_t block = 65536 + 13, workers = 3, rounds = 10;

static Status transfer_all(TransferEngine &engine, TransferRequest request)
{
    BatchID batch = engine.allocateBatchID(1);
    TransferStatus status;
    Status s = engine.submitTransfer(batch, {request});

    if (!s.ok())
        return s;
    do {
        s = engine.getTransferStatus(batch, 0, status);
        if (!s.ok())
            return s;
        if (status.s == TransferStatusEnum::FAILED)
            return Status::Socket("the transfer failed");
    } while (status.s != TransferStatusEnum::COMPLETED);
    return engine.freeBatchID(batch);
}

int main()
{
    auto target = std::make_unique<TransferEngine>(true),
         initiator = std::make_unique<TransferEngine>(true);
    std::vector<char> remote(workers * block), local(2 * workers * block);
    std::vector<std::thread> threads;

    CHECK(target->init("P2PHANDSHAKE", "127.0.0.1") == 0 && target->getRpcPort() > 0);
    CHECK(initiator->init("P2PHANDSHAKE", "127.0.0.1") == 0);
    CHECK(target->registerLocalMemory(remote.data(), remote.size(), "cpu:0") == 0);
    CHECK(initiator->registerLocalMemory(local.data(), local.size(), "cpu:0") == 0);
    const SegmentID id = initiator->openSegment(target->getLocalIpAndPort());
    for (size_t t = 0; t < workers; ++t)
        threads.emplace_back([&, t] {
            char *out = &local[2 * t * block], *in = out + block, *there = &remote[t * block];
            for (size_t i = 0; i < rounds; ++i) {
                const std::vector<char> reference = random_bytes(block);
                memcpy(out, reference.data(), block);
                CHECK(transfer_all(*initiator,
                                   {TransferRequest::WRITE, out, id, (uint64_t)there, block})
                          .ok());
                memset(out, 0, block);
                CHECK(memcmp(there, reference.data(), block) == 0);
                CHECK(transfer_all(*initiator,
                                   {TransferRequest::READ, in, id, (uint64_t)there, block})
                          .ok());
                CHECK(memcmp(in, reference.data(), block) == 0);
            }
        });
    for (auto &thread : threads)
        thread.join();
    CHECK(initiator->probePeerAliveByID(id) == PeerLiveness::Alive);
    CHECK(initiator->CheckSegmentStatus(id).ok());
    CHECK(target->freeEngine() == 0);
    CHECK(initiator->probePeerAliveByID(id) == PeerLiveness::Unreachable);
    Status s = transfer_all(*initiator, {TransferRequest::READ, local.data(), id,
                                         (uint64_t)remote.data(), block});
    CHECK(s.IsSocket() && s.message() == "the transfer failed");
    return 0;
}
