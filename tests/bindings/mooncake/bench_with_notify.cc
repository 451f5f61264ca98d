/* SPDX-License-Identifier: Apache-2.0 */
/* In the manner of Mooncake's benchmark with notifications: the target learns of each batch that is done. */
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "transfer_engine.h"

#include "check.h"

using namespace mooncake;

static constexpr size_t length = 100003, batches = 8;

int main()
{
    auto target = std::make_shared<TransferEngine>(true);
    auto initiator = std::make_shared<TransferEngine>(true);
    std::vector<char> local = random_bytes(length), remote(length);
    std::vector<TransferMetadata::NotifyDesc> got;
    std::set<std::string> names;

    CHECK(target->init(P2PHANDSHAKE, "127.0.0.1") == 0);
    CHECK(initiator->init(P2PHANDSHAKE, "127.0.0.1") == 0);
    CHECK(target->registerLocalMemory(remote.data(), length) == 0);
    CHECK(initiator->registerLocalMemory(local.data(), length) == 0);
    SegmentHandle segment = initiator->openSegment(target->getLocalIpAndPort());

    for (size_t i = 0; i < batches; ++i) {
        BatchID batch = initiator->allocateBatchID(1);
        TransferMetadata::NotifyDesc notify{"batch " + std::to_string(i), "is done"};
        Status s = initiator->submitTransferWithNotify(
            batch,
            {{TransferRequest::WRITE, local.data(), segment, (uint64_t)remote.data(), length}},
            notify);
        CHECK(s.IsOk());
        TransferStatus status;
        do
            CHECK(initiator->getBatchTransferStatus(batch, status).ok());
        while (status.s == TransferStatusEnum::WAITING);
        CHECK(status.s == TransferStatusEnum::COMPLETED && status.transferred_bytes == length);
        CHECK(initiator->freeBatchID(batch).ok());
    }
    CHECK(initiator->sendNotifyByID(segment, {"by id", ""}) == 0);
    CHECK(initiator->sendNotifyByName(target->getLocalIpAndPort(), {"by name", ""}) == 0);
    while (got.size() < batches + 2) {
        CHECK(target->getNotifies(got) == 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (const auto &notify : got)
        names.insert(notify.name);
    CHECK(names.size() == batches + 2 && names.count("batch 7") && names.count("by name"));
    CHECK(initiator->sendNotifyByID(segment, {"by metadata", "m"}) == 0);
    got.clear();
    CHECK(target->getMetadata()->getNotifies(got) == 0 && got.size() == 1);
    CHECK(got[0].name == "by metadata" && memcmp(local.data(), remote.data(), length) == 0);
    return 0;
}
