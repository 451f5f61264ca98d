/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the manner of Mooncake's test of RDMA: the class of the transport, its NICs (a0 to a3 here), and the
 * engine's topology, whose changes it goes by.
 */
#include <cstring>
#include <memory>

#include "memory_location.h"
#include "topology.h"
#include "transfer_engine.h"
#include "transport/rdma_transport/rdma_transport.h"

#include "check.h"

using namespace mooncake;

static constexpr size_t length = 1 << 20;

/* Loops through the NICs that are left. */
static void move(TransferEngine &engine, char *from, char *to)
{
    SegmentID id = engine.openSegment(engine.getLocalIpAndPort());
    BatchID batch = engine.allocateBatchID(1);
    TransferStatus status{};

    memcpy(from, random_bytes(length).data(), length);
    CHECK(engine.submitTransfer(batch, {{TransferRequest::WRITE, from, id, (uint64_t)to, length}})
              .ok());
    while (status.s != TransferStatusEnum::COMPLETED)
        CHECK(engine.getTransferStatus(batch, 0, status).ok() &&
              status.s != TransferStatusEnum::FAILED);
    CHECK(engine.freeBatchID(batch).ok() && memcmp(from, to, length) == 0);
}

int main()
{
    TransferEngine engine(false);
    std::vector<char> memory(2 * length);
    std::vector<NicLoadStats> loads;

    CHECK(engine.init(P2PHANDSHAKE, "127.0.0.1") == 0);
    auto topology = engine.getLocalTopology();
    CHECK(topology->getHcaList().size() == 4 && !engine.isTcpOnly());
    RdmaTransport *rdma = dynamic_cast<RdmaTransport *>(engine.installTransport("rdma", nullptr));
    CHECK(rdma && engine.numContexts() == 4 && !engine.isTcpOnly());
    CHECK(engine.registerLocalMemory(memory.data(), memory.size()) == 0);
    CHECK(engine.getNicLoadStats(loads).ok() && loads.size() == 4);

    auto own = engine.getMetadata()->getSegmentDescByID(LOCAL_SEGMENT_ID);
    CHECK(own && own->protocol == "rdma" && own->devices.size() == 4 && own->buffers.size() == 1);
    CHECK(own->buffers[0].rkey.size() == 4 && own->buffers[0].lkey.size() == 4);
    CHECK(!own->devices[0].gid.empty() && own->topology.getHcaList().size() == 4);
    move(engine, memory.data(), &memory[length]);

    CHECK(topology->disableDevice("a0") == 0 && engine.numContexts() == 3);
    CHECK(engine.getLocalTopology() == topology && topology->getHcaList().size() == 3);
    CHECK(topology->parse("{\"cpu:0\":[[\"a2\"],[]]}") == 0 && engine.numContexts() == 1);
    CHECK(engine.getNicLoadStats(loads).ok() && loads.size() == 1 && loads[0].device_name == "a2");
    own = engine.getMetadata()->getSegmentDescByID(LOCAL_SEGMENT_ID);
    CHECK(own->devices.size() == 1 && own->devices[0].name == "a2");
    move(engine, memory.data(), &memory[length]);

    /* What cannot be leaves all as it was. */
    CHECK(topology->parse("{\"cpu:0\":[[\"nosuch_9\"],[]]}") < 0 && engine.numContexts() == 1);
    CHECK((topology->getHcaList() == std::vector<std::string>{"a2"}));
    return 0;
}
