/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snippets of the versions in between, completed to a program: init() takes four arguments, and
 * transports are installed by installTransport(): tcp, rdma and nvmeof.
 */
#include "topology.h"
#include "transfer_engine.h"

#include <fstream>
#include <iterator>

#include "two.h"

using namespace mooncake;

static_assert(TransferEngine::TaskStatus::CANNELED == 3); /* its spelling then */

static bool can_read(TransferEngine *engine, const std::string &name, unsigned char *memory)
{
    SegmentHandle segment_id = engine->openSegment(name);
    BatchID batch_id = engine->allocateBatchID(1);
    TransferStatus status = {TransferStatusEnum::WAITING, 0};

    CHECK(segment_id > 0);
    CHECK(engine->submitTransfer(batch_id, {{TransferRequest::READ, memory, segment_id, 0, 1}}) ==
          0);
    while (status.s == TransferStatusEnum::WAITING)
        CHECK(engine->getTransferStatus(batch_id, 0, status) == 0);
    CHECK(engine->freeBatchID(batch_id) == 0 && engine->closeSegment(segment_id) == 0);
    return status.s == TransferStatusEnum::COMPLETED;
}

/* A file of this host as a segment, opened below the path that the transport was given. */
static void use_file(TransferEngine *engine, const two::Job &job, unsigned char *memory)
{
    const std::string &path = job["file"];
    std::string matrix = "{\"cpu:0\": [[\"mlx0\", \"mlx1\"], [\"mlx2\", \"mlx3\"]]}";
    std::string folder = path.substr(0, path.rfind('/'));
    void **args = (void **)malloc(2 * sizeof(void *));

    args[0] = matrix.data(); /* as the snippet says it */
    args[1] = nullptr;
    CHECK(engine->installTransport("nvmeof", args));
    args[0] = folder.data(); /* as its text says it */
    CHECK(engine->installTransport("nvmeof", args));
    free(args);
    CHECK(engine->openSegment("file:///etc/passwd") == (SegmentHandle)-1);
    CHECK(can_read(engine, "file://" + path, memory));
    SegmentHandle segment_id = engine->openSegment("file://" + path);
    CHECK(segment_id > 0);
    std::memcpy(memory, two::bytes(job.number("seed") + 2, two::half).data(), two::half);
    two::move(*engine, TransferRequest::WRITE, memory, segment_id, 0, two::half, 1);
    two::move(*engine, TransferRequest::READ, memory + two::half, segment_id, 0, two::half, 2);
    CHECK(std::memcmp(memory, memory + two::half, two::half) == 0);
    CHECK(engine->closeSegment(segment_id) == 0);

    std::ifstream file(path, std::ios::binary);
    std::string found((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    CHECK(found.size() >= two::half && std::memcmp(found.data(), memory, two::half) == 0);
    CHECK(engine->uninstallTransport("nvmeof") == 0);
}

static void install_rdma(TransferEngine *engine, const two::Job &job)
{
    std::string topology_matrix = discoverTopologyMatrix();
    Topology topology;

    /* Each NIC of this side, and none of the other one. */
    CHECK(topology_matrix.find("\"" + job["nics"] + "0\"") != std::string::npos);
    CHECK(topology_matrix.find("\"" + job["nics"] + "3\"") != std::string::npos);
    CHECK(topology.parse(topology_matrix) == 0 && topology.toString() == topology_matrix);

    /* Some of them, in place of all, which init() has found. */
    topology_matrix = job["matrix"];
    void **args = (void **)malloc(2 * sizeof(void *));
    args[0] = topology_matrix.data();
    args[1] = nullptr;
    Transport *rdma = engine->installTransport("rdma", args);
    CHECK(rdma && rdma == engine->installTransport("rdma", args));
    free(args);
}

int main(int argc, char **argv)
{
    two::Job job(argc, argv);
    std::vector<unsigned char> memory = two::memory_of(job);
    const std::string &metadata_conn_string = job["metadata"];
    const std::string &local_server_name = job["name"];
    const std::string ip_or_host_name = "127.0.0.1";
    uint64_t rpc_port = job.number("port");
    auto engine = std::make_unique<TransferEngine>();
    int rc;

    if (rpc_port)
        rc = engine->init(metadata_conn_string, local_server_name, ip_or_host_name, rpc_port);
    else
        rc = engine->init(metadata_conn_string, local_server_name, ip_or_host_name);
    CHECK(rc == 0);
    CHECK(engine->init(metadata_conn_string, local_server_name, ip_or_host_name) == -1);
    CHECK(!rpc_port || engine->getLocalIpAndPort() == "127.0.0.1:" + job["port"]);
    if (job["protocol"] == "rdma")
        install_rdma(engine.get(), job);
    else
        CHECK(engine->installTransport("tcp", nullptr));
    rc = engine->registerLocalMemory(memory.data(), memory.size(), "cpu:0", true);
    CHECK(rc == 0);
    if (job.role == "target") {
        two::serve(metadata_conn_string == P2PHANDSHAKE ? engine->getLocalIpAndPort()
                                                        : local_server_name,
                   memory, job.number("seed"));
    } else {
        SegmentHandle segment_id = engine->openSegment(job["peer"]);
        CHECK(segment_id > 0);
        two::exchange(*engine, memory.data(), segment_id, job.number("address"),
                      job.number("seed"));
        CHECK(engine->closeSegment(segment_id) == 0);
        if (!job["file"].empty())
            use_file(engine.get(), job, memory.data());
    }
    rc = engine->unregisterLocalMemory(memory.data());
    CHECK(rc == 0);
    CHECK(engine->uninstallTransport(job["protocol"]) == 0);
    CHECK(engine->uninstallTransport(job["protocol"]) < 0);
    return 0;
}
