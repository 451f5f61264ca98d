/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the memory of target.c and writes it back inverted, with the C++ class of Mooncake's Transfer Engine:
 * ./mooncake NAME, where NAME is what the target prints. A program for Mooncake's own class is compiled the same
 * way.
 */
#include "transfer_engine.h"

#include <iostream>

using namespace mooncake;

static constexpr size_t block = 64 << 10, blocks = 32;

static int failed(const std::string &what)
{
    std::cerr << "mooncake: " << what << ": " << te_errmsg() << "\n";
    return 1;
}

/* Submits all blocks, with a message behind them if there is one, and polls until each has ended. */
static int move(TransferEngine &engine, std::vector<TransferRequest> &requests,
                const TransferEngine::NotifyDesc *message)
{
    BatchID batch = engine.allocateBatchID(requests.size());
    if (batch == INVALID_BATCH_ID)
        return failed("allocateBatchID");
    Status submitted = message ? engine.submitTransferWithNotify(batch, requests, *message)
                               : engine.submitTransfer(batch, requests);
    if (!submitted.ok())
        return failed("submitTransfer");

    int rc = 0;
    for (size_t task = 0; task < requests.size(); task++) {
        TransferStatus status;
        do
            if (!engine.getTransferStatus(batch, task, status).ok())
                return failed("getTransferStatus");
        while (status.s == TransferStatusEnum::WAITING || status.s == TransferStatusEnum::PENDING);
        if (status.s != TransferStatusEnum::COMPLETED)
            rc = failed("request " + std::to_string(task));
    }
    return engine.freeBatchID(batch).ok() ? rc : failed("freeBatchID");
}

int main(int argc, char **argv)
{
    std::vector<unsigned char> memory(block * blocks);
    TransferEngine engine;
    size_t wrong = 0;

    if (argc != 2)
        return std::cerr << "usage: " << argv[0] << " NAME\n", 2;
    if (engine.init(P2PHANDSHAKE, "127.0.0.1"))
        return failed("init");
    if (engine.registerLocalMemory(memory.data(), memory.size()))
        return failed("registerLocalMemory");
    SegmentHandle segment = engine.openSegment(argv[1]);
    if (segment < 0)
        return failed("openSegment");
    auto there = engine.getMetadata()->getSegmentDescByID(segment);
    if (!there || there->buffers.empty())
        return failed("getSegmentDescByID");

    std::vector<TransferRequest> requests(blocks);
    for (size_t i = 0; i < blocks; i++) {
        requests[i].opcode = TransferRequest::READ;
        requests[i].source = memory.data() + i * block;
        requests[i].target_id = segment;
        requests[i].target_offset = there->buffers[0].addr + i * block;
        requests[i].length = block;
    }
    if (move(engine, requests, nullptr))
        return 1;
    for (size_t i = 0; i < memory.size(); i++) {
        wrong += memory[i] != static_cast<unsigned char>(i * 7 + i / 251);
        memory[i] = static_cast<unsigned char>(~memory[i]);
    }
    for (TransferRequest &request : requests)
        request.opcode = TransferRequest::WRITE;
    TransferEngine::NotifyDesc message{"written", "by mooncake.cc"};
    if (move(engine, requests, &message))
        return 1;
    if (engine.closeSegment(segment) || engine.unregisterLocalMemory(memory.data()))
        return failed("the end");
    std::cout << "mooncake: " << memory.size() << " bytes read, " << wrong
              << " of them wrong, and written back inverted\n";
    return wrong > 0;
}
