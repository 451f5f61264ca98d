/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the manner of Mooncake's benchmark: an engine whose transport the program installs, one buffer for
 * each NUMA node, workers that submit batches to a segment and ask for each task.
 */
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common.h"
#include "cuda_alike.h"
#include "transfer_engine.h"
#include "transport/transport.h"

#include "check.h"

using namespace mooncake;

static constexpr size_t block_size = 4096, batch_size = 32, threads = 4, rounds = 20;
static constexpr size_t buffer_size = block_size * batch_size * threads;

static std::unique_ptr<TransferEngine> make_engine(const std::string &local_server_name)
{
    auto engine = std::make_unique<TransferEngine>(false);
    auto hostname_port = parseHostNameWithPort(local_server_name);

    engine->getLocalTopology()->discover({});
    CHECK(engine->init("P2PHANDSHAKE", local_server_name.c_str(), hostname_port.first.c_str(),
                       hostname_port.second) == 0);
    Transport *xport = engine->installTransport("tcp", nullptr);
    CHECK(xport != nullptr);
    return engine;
}

static void worker(TransferEngine *engine, SegmentID segment_id, int thread_id, char *addr,
                   std::atomic<size_t> &total_batches)
{
    bindToSocket(0);
    auto segment_desc = engine->getMetadata()->getSegmentDescByID(segment_id);
    CHECK(segment_desc && segment_desc->protocol == "tcp" && segment_desc->tcp_data_port > 0);
    uint64_t remote_base = (uint64_t)segment_desc->buffers[0].addr;

    for (size_t round = 0; round < rounds; ++round) {
        auto batch_id = engine->allocateBatchID(batch_size);
        std::vector<TransferRequest> requests;
        for (size_t i = 0; i < batch_size; ++i) {
            TransferRequest entry;
            const size_t at = block_size * (i * threads + (size_t)thread_id);
            entry.opcode = TransferRequest::READ;
            entry.length = block_size;
            entry.source = (uint8_t *)(addr) + at;
            entry.target_id = segment_id;
            entry.target_offset = remote_base + at;
            requests.emplace_back(entry);
        }
        Status s = engine->submitTransfer(batch_id, requests);
        CHECK(s.ok());
        for (size_t task_id = 0; task_id < batch_size; ++task_id) {
            bool completed = false;
            TransferStatus status;
            while (!completed) {
                s = engine->getTransferStatus(batch_id, task_id, status);
                CHECK(s.ok() && status.s != TransferStatusEnum::FAILED);
                completed = status.s == TransferStatusEnum::COMPLETED;
            }
        }
        s = engine->freeBatchID(batch_id);
        CHECK(s.ok());
    }
    total_batches.fetch_add(rounds);
}

int main()
{
    auto target = make_engine("127.0.0.1"), initiator = make_engine("127.0.0.1");
    std::vector<char> remote = random_bytes(buffer_size), local(buffer_size);
    std::vector<std::thread> workers;
    std::atomic<size_t> total_batches{0};

    CHECK(target->registerLocalMemory(remote.data(), buffer_size, "cpu:0") == 0);
    CHECK(initiator->registerLocalMemory(local.data(), buffer_size, kWildcardLocation) == 0);
    auto segment_id = initiator->openSegment(target->getLocalIpAndPort());
    CHECK(segment_id != (SegmentID)-1);

    int64_t start = getCurrentTimeInNano();
    for (int i = 0; i < (int)threads; ++i)
        workers.emplace_back(worker, initiator.get(), segment_id, i, local.data(),
                             std::ref(total_batches));
    for (auto &one : workers)
        one.join();
    double seconds = (double)(getCurrentTimeInNano() - start) / 1e9;

    CHECK(total_batches == threads * rounds && seconds > 0);
    CHECK(memcmp(local.data(), remote.data(), buffer_size) == 0);
    std::printf("Test completed: duration %.2f, batch count %zu\n", seconds, total_batches.load());
    CHECK(initiator->unregisterLocalMemory(local.data()) == 0);
    CHECK(target->unregisterLocalMemory(remote.data()) == 0);
    return 0;
}
