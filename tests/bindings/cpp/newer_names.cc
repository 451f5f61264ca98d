/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What newer programs use beside the snippets: transferred_bytes, advise_retry_cnt, getTransport(), the
 * makers and questions of Status, ERR_ constants, showLinks() and numContexts().
 */
#include "common/base/status.h"
#include "error.h"
#include "memory_location.h"
#include "transfer_engine.h"
#include "transport/transport.h"

#include <type_traits>

#include "two.h"

using namespace mooncake;

static_assert(ERR_INVALID_ARGUMENT == -1 && ERR_TOO_MANY_REQUESTS == -2);
static_assert(ERR_ADDRESS_NOT_REGISTERED == -3 && ERR_BATCH_BUSY == -4);
static_assert(ERR_DEVICE_NOT_FOUND == -6 && ERR_ADDRESS_OVERLAPPED == -7);
static_assert(ERR_DNS == -101 && ERR_SOCKET == -102 && ERR_MALFORMED_JSON == -103);
static_assert(ERR_REJECT_HANDSHAKE == -104 && ERR_METADATA == -200 && ERR_ENDPOINT == -201);
static_assert(ERR_CONTEXT == -202 && ERR_NUMA == -300 && ERR_CLOCK == -301);
static_assert(ERR_MEMORY == -302 && ERR_NOT_IMPLEMENTED == -303);

/* The C library's header of the same name is still there. */
static_assert(std::is_same_v<decltype(error_message_count), unsigned int>);

static Status check(size_t length)
{
    if (length == 0)
        return Status::InvalidArgument("length " + std::to_string(length));
    return Status::OK();
}

/* One request with each of the ways to fill it; what is moved is returned. */
static size_t move_one(TransferEngine *engine, const TransferRequest &request)
{
    BatchID batch_id = engine->allocateBatchID(1);
    TransferStatus status{TransferStatusEnum::WAITING, 0};

    CHECK(engine->submitTransfer(batch_id, {request}).ok());
    Status more = engine->submitTransfer(batch_id, {request});
    CHECK(more.IsTooManyRequests() && !more.IsInvalidArgument() && more == ERR_TOO_MANY_REQUESTS);
    do
        CHECK(engine->getTransferStatus(batch_id, 0, status).ok());
    while (status.s == TransferStatusEnum::WAITING);
    CHECK(status.s == TransferStatusEnum::COMPLETED);
    CHECK(status.transferred_bytes == status.transferred);
    CHECK(engine->freeBatchID(batch_id).ok());
    return status.transferred_bytes;
}

static void move_ends(TransferEngine *engine, const two::Job &job, unsigned char *memory)
{
    constexpr size_t n = 65537;
    const std::vector<unsigned char> wanted = two::bytes(job.number("seed"), two::half);
    SegmentHandle segment_id = engine->openSegment(job["peer"]);
    TransferRequest request;

    CHECK(segment_id > 0 && request.advise_retry_cnt == 0);
    CHECK(move_one(engine, {TransferRequest::READ, memory, segment_id, job.number("address"), n}) ==
          n);
    request.opcode = TransferRequest::READ;
    request.source = memory + two::half - n;
    request.target_id = segment_id;
    request.target_offset = job.number("address") + two::half - n;
    request.length = n;
    request.advise_retry_cnt = 3;
    CHECK(move_one(engine, request) == n);
    CHECK(std::memcmp(memory, wanted.data(), n) == 0);
    CHECK(std::memcmp(memory + two::half - n, &wanted[two::half - n], n) == 0);
    CHECK(engine->closeSegment(segment_id) == 0);
}

int main(int argc, char **argv)
{
    two::Job job(argc, argv);
    std::vector<unsigned char> memory = two::memory_of(job);
    const std::string &protocol = job["protocol"], &name = job["name"];
    auto engine = std::make_shared<TransferEngine>(true);

    CHECK(check(0).IsInvalidArgument() && check(1).IsOk());
    CHECK(engine->init(job["metadata"], name) == 0);
    Transport *transport = engine->getTransport(protocol);
    CHECK(transport && transport == engine->installTransport(protocol, nullptr));
    CHECK(!engine->getTransport("pigeon"));
    CHECK(engine->numContexts() == static_cast<int>(job.number("nics")));
    CHECK(engine->showLinks().size() > 1 && engine->showLinks(true)[0] == '{');
    CHECK(engine->registerLocalMemory(memory.data(), memory.size(), kWildcardLocation) == 0);
    CHECK(engine->registerLocalMemory(memory.data(), 1) == ERR_ADDRESS_OVERLAPPED);
    if (job.role == "target") {
        two::serve(job["metadata"] == P2PHANDSHAKE ? engine->getLocalIpAndPort() : name, memory,
                   job.number("seed"));
    } else {
        move_ends(engine.get(), job, memory.data());
        SegmentHandle segment_id = engine->openSegment(job["peer"]);
        two::exchange(*transport, memory.data(), segment_id, job.number("address"),
                      job.number("seed"));
    }
    CHECK(engine->unregisterLocalMemory(memory.data()) == 0);
    return 0;
}
