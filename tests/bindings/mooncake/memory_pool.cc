/* SPDX-License-Identifier: Apache-2.0 */
/* In the manner of Mooncake's example with a memory pool: many registered pieces, found by the descriptor. */
#include <cstring>
#include <memory>
#include <set>

#include "error.h"
#include "memory_location.h"
#include "transfer_engine.h"
#include "transfer_metadata.h"

#include "check.h"

using namespace mooncake;

static constexpr size_t pieces = 40, piece = 64 << 10;

int main()
{
    auto target = std::make_unique<TransferEngine>(),
         initiator = std::make_unique<TransferEngine>();
    std::vector<char> pool = random_bytes(2 * pieces * piece), local(piece);
    std::vector<BufferEntry> entries;
    std::vector<void *> addresses;

    CHECK(target->init(P2PHANDSHAKE, "127.0.0.1") == 0);
    CHECK(initiator->init(P2PHANDSHAKE, "127.0.0.1") == 0);
    for (size_t i = 0; i < pieces; ++i) {
        entries.push_back(BufferEntry{.addr = &pool[2 * i * piece], .length = piece});
        addresses.push_back(entries.back().addr);
    }
    CHECK(target->registerLocalMemoryBatch(entries, kWildcardLocation) == 0);
    CHECK(target->registerLocalMemory(addresses[3], 1, "*", true) == ERR_ADDRESS_OVERLAPPED);
    CHECK(target->checkOverlap(addresses[0], 1) && !target->checkOverlap(&pool[piece], piece));
    CHECK(initiator->registerLocalMemory(local.data(), piece, "cpu:0", false) == 0);

    auto id = initiator->openSegment(target->getLocalIpAndPort());
    std::shared_ptr<TransferMetadata::SegmentDesc> desc =
        initiator->getMetadata()->getSegmentDescByID(id);
    CHECK(desc && desc->buffers.size() == pieces);
    for (const TransferMetadata::BufferDesc &buffer : desc->buffers) {
        CHECK(buffer.length == piece && !buffer.name.empty());
        auto batch = initiator->allocateBatchID(1);
        CHECK(initiator
                  ->submitTransfer(batch,
                                   {{TransferRequest::READ, local.data(), id, buffer.addr, piece}})
                  .ok());
        TransferStatus status{};
        while (status.s != TransferStatusEnum::COMPLETED)
            CHECK(initiator->getTransferStatus(batch, 0, status).ok() &&
                  status.s != TransferStatusEnum::FAILED);
        CHECK(initiator->freeBatchID(batch).ok());
        CHECK(memcmp(local.data(), (void *)buffer.addr, piece) == 0);
    }
    CHECK(target->unregisterLocalMemoryBatch(addresses) == 0);
    CHECK(initiator->syncSegmentCache(target->getLocalIpAndPort()) == 0);
    CHECK(initiator->getMetadata()->getSegmentDescByID(id)->buffers.empty());

    /* By protocol, as multi-protocol builds have it. */
    std::unordered_map<std::string, std::vector<RegisteredBuffer>> by_protocol;
    std::string chosen = "tcp";
    by_protocol["tcp"].push_back({pool.data(), piece, "*", true, true});
    by_protocol["rdma"].push_back({pool.data(), piece, "*", true, true});
    by_protocol["rdma"].push_back({&pool[2 * piece], piece, "*", true, true});
    CHECK(target->mp_registerLocalMemory(by_protocol) == 0);
    CHECK(target->mp_registerLocalMemory(by_protocol) == ERR_ADDRESS_OVERLAPPED);
    CHECK(target->checkOverlap(pool.data(), piece) &&
          target->checkOverlap(&pool[2 * piece], piece));
    auto batch = initiator->allocateBatchID(2);
    memset(local.data(), 0, piece);
    CHECK(initiator
              ->mp_submitTransfer(
                  batch, {{TransferRequest::READ, local.data(), id, (uint64_t)pool.data(), piece}},
                  chosen)
              .ok());
    TransferStatus status{};
    while (status.s != TransferStatusEnum::COMPLETED)
        CHECK(initiator->getTransferStatus(batch, 0, status).ok() &&
              status.s != TransferStatusEnum::FAILED);
    CHECK(initiator->closeSegment(77) < 0); /* the last error is another one */
    Status none = initiator->mp_submitTransferWithNotify(batch, {}, {"n", "m"}, chosen);
    CHECK(none.IsInvalidArgument() && none.message().find("first entry") != std::string::npos);
    for (std::string other : {"cxl", "maca", "musa", "nvlink", ""}) {
        std::unordered_map<std::string, std::vector<RegisteredBuffer>> refused;
        refused[other].push_back({&pool[4 * piece], piece, "*", true, true});
        CHECK(target->mp_registerLocalMemory(refused) < 0);
        CHECK(!target->checkOverlap(&pool[4 * piece], piece));
        Status one = initiator->mp_submitTransfer(batch, {{}}, other);
        CHECK(!one.ok() && one.message().find("'" + other + "'") != std::string::npos);
        CHECK(!initiator->mp_submitTransferWithNotify(batch, {{}}, {"n", "m"}, other).ok());
    }
    CHECK(initiator->freeBatchID(batch).ok() && memcmp(local.data(), pool.data(), piece) == 0);
    CHECK(target->mp_unregisterLocalMemory(by_protocol) == 0);
    CHECK(!target->checkOverlap(pool.data(), pool.size()));
    return 0;
}
