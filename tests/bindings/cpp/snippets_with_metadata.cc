/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snippets of the oldest version of the interface, completed to a program: the engine is built with
 * TransferMetadata, init() takes two names and a port, and requests are submitted by the Transport that
 * installOrGetTransport() gives.
 */
#include "topology.h"
#include "transfer_engine.h"
#include "transfer_metadata.h"
#include "transport/transport.h"

#include <type_traits>

#include "two.h"

using namespace mooncake;

static_assert(std::is_same_v<Transport::TransferRequest, TransferRequest>);
static_assert(std::is_same_v<Transport::TransferStatus, TransferStatus>);
static_assert(Transport::CANNELED == Transport::CANCELED);

int main(int argc, char **argv)
{
    two::Job job(argc, argv);
    std::vector<unsigned char> memory = two::memory_of(job);
    std::string server_name = job["name"];
    std::string connectable_name = "127.0.0.1";
    std::string matrix = job["matrix"];
    uint64_t rpc_port = job.number("port");
    void **args = nullptr;

    std::unique_ptr<TransferMetadata> metadata_client;
    if (job["kind"].empty())
        metadata_client = std::make_unique<TransferMetadata>(job["metadata"]);
    else
        metadata_client = std::make_unique<TransferMetadata>(job["metadata"], job["kind"]);
    auto engine = std::make_unique<TransferEngine>(std::move(metadata_client));
    int rc = rpc_port ? engine->init(server_name, connectable_name, rpc_port)
                      : engine->init(server_name, connectable_name);
    CHECK(rc == 0);
    CHECK(engine->init(server_name, connectable_name, rpc_port) == -1);
    CHECK(engine->init(server_name, connectable_name) == -1);

    if (!matrix.empty()) {
        args = (void **)malloc(2 * sizeof(void *));
        args[0] = matrix.data();
        args[1] = nullptr;
    }
    Transport *transport = engine->installOrGetTransport(job["protocol"], args);
    CHECK(transport);
    CHECK(transport == engine->installOrGetTransport(job["protocol"], nullptr));
    CHECK(transport->getName() == job["protocol"]);
    free(args);

    rc = engine->registerLocalMemory(memory.data(), memory.size(), "cpu:0", true);
    CHECK(rc == 0);
    if (job.role == "target") {
        two::serve(server_name, memory, job.number("seed"));
    } else {
        SegmentHandle segment_id = engine->openSegment(job["peer"]);
        CHECK(segment_id > 0);
        two::exchange(*transport, memory.data(), segment_id, job.number("address"),
                      job.number("seed"));
        CHECK(engine->closeSegment(segment_id) == 0);
    }
    rc = engine->unregisterLocalMemory(memory.data());
    CHECK(rc == 0);
    rc = engine->uninstallTransport(job["protocol"]);
    CHECK(rc == 0);
    return 0;
}
