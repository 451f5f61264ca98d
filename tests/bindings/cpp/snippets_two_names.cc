/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snippets of the newest versions of the interface, completed to a program: init() takes the
 * metadata server and a name, and transports are found automatically.
 */
#include "transfer_engine.h"

#include <type_traits>

#include "two.h"

using namespace mooncake;
using std::string;

/* The types of the interface, in its words. */
static_assert(std::is_same_v<SegmentID, int32_t>);
static_assert(std::is_same_v<decltype(TransferRequest::source), void *>);
static_assert(std::is_same_v<decltype(TransferRequest::target_id), SegmentID>);
static_assert(std::is_same_v<decltype(TransferRequest::target_offset), size_t>);
static_assert(std::is_same_v<decltype(TransferRequest::length), size_t>);
static_assert(std::is_same_v<decltype(TransferRequest::opcode), TransferRequest::OpCode>);
static_assert(std::is_same_v<TransferRequest, TransferEngine::TransferRequest>);
static_assert(std::is_same_v<decltype(TransferStatus::s), TransferEngine::TaskStatus>);
static_assert(std::is_same_v<decltype(TransferStatus::transferred), size_t>);
static_assert(TransferRequest::READ == 0 && TransferRequest::WRITE == 1);
static_assert(TransferEngine::TaskStatus::WAITING == 0 &&
              TransferEngine::TaskStatus::PENDING == 1 && TransferEngine::TaskStatus::INVALID == 2);
static_assert(TransferEngine::TaskStatus::CANCELED == 3 &&
              TransferEngine::TaskStatus::COMPLETED == 4);
static_assert(TransferEngine::TaskStatus::TIMEOUT == 5 && TransferEngine::TaskStatus::FAILED == 6);

int main(int argc, char **argv)
{
    two::Job job(argc, argv);
    std::vector<unsigned char> memory = two::memory_of(job);
    const std::string &metadata_conn_string = job["metadata"];
    const std::string &local_server_name = job["name"];
    string location = "*";
    bool remote_accessible = true;
    TransferEngine engine;

    int rc = engine.init(metadata_conn_string, local_server_name);
    CHECK(rc == 0);
    CHECK(engine.init(metadata_conn_string, local_server_name) == -1);
    void *addr = memory.data();
    size_t size = memory.size();
    rc = engine.registerLocalMemory(addr, size, location, remote_accessible);
    CHECK(rc == 0);
    if (job.role == "target") {
        two::serve(metadata_conn_string == P2PHANDSHAKE ? engine.getLocalIpAndPort()
                                                        : local_server_name,
                   memory, job.number("seed"));
    } else {
        const std::string &segment_name = job["peer"];
        SegmentHandle segment_id = engine.openSegment(segment_name);
        CHECK(segment_id > 0);
        two::exchange(engine, memory.data(), segment_id, job.number("address"), job.number("seed"));
        rc = engine.closeSegment(segment_id);
        CHECK(rc == 0);
    }
    rc = engine.unregisterLocalMemory(addr);
    CHECK(rc == 0);
    return 0;
}
