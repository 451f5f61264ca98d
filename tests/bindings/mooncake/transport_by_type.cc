/* SPDX-License-Identifier: Apache-2.0 */
/* In the manner of Mooncake's tests of one transport: its class by name, and the calls of a batch by it. */
#include <cstring>
#include <memory>

#include "multi_transport.h"
#include "transfer_engine.h"
#include "transport/rdma_transport/rdma_transport.h"
#include "transport/tcp_transport/tcp_transport.h"
#include "transport/transport.h"

#include "check.h"

using namespace mooncake;

static constexpr size_t length = 300000;

/* By whatever has the calls: an engine, a transport of any class, all transports. */
template <class Calls> static void write(Calls &calls, SegmentID id, char *from, char *to)
{
    typename Calls::BatchID batch = calls.allocateBatchID(1);
    typename Calls::TransferRequest request{Calls::TransferRequest::WRITE, from, id, (uint64_t)to,
                                            length};
    typename Calls::TransferStatus status{};

    memcpy(from, random_bytes(length).data(), length);
    CHECK(calls.submitTransfer(batch, {request}).ok());
    while (status.s != Transport::COMPLETED)
        CHECK(calls.getTransferStatus(batch, 0, status).ok() && status.s != Transport::FAILED);
    CHECK(calls.freeBatchID(batch).ok() && memcmp(from, to, length) == 0);
}

int main()
{
    auto target = std::make_unique<TransferEngine>(),
         initiator = std::make_unique<TransferEngine>(false);
    std::vector<char> local(length), remote(length);

    CHECK(target->init(P2PHANDSHAKE, "127.0.0.1") == 0 &&
          initiator->init(P2PHANDSHAKE, "127.0.0.1") == 0);
    CHECK(target->registerLocalMemory(remote.data(), length) == 0);
    CHECK(initiator->registerLocalMemory(local.data(), length) == 0);
    Transport *transport = initiator->installTransport("tcp", nullptr);
    TcpTransport *tcp = dynamic_cast<TcpTransport *>(transport);
    CHECK(tcp && tcp == (TcpTransport *)transport && std::string(tcp->getName()) == "tcp");
    CHECK(!dynamic_cast<RdmaTransport *>(transport) && !dynamic_cast<NVMeoFTransport *>(transport));
    CHECK(!dynamic_cast<NvlinkTransport *>(transport) && !dynamic_cast<HipTransport *>(transport));
    CHECK(!dynamic_cast<IntraNodeNvlinkTransport *>(transport));
    Transport *files = initiator->installTransport("nvmeof", nullptr);
    CHECK(!files || dynamic_cast<NVMeoFTransport *>(files));

    MultiTransport all(initiator->getMetadata());
    SegmentID id = initiator->openSegment(target->getLocalIpAndPort());
    write(*initiator, id, local.data(), remote.data());
    write(*transport, id, local.data(), remote.data());
    write(*tcp, id, local.data(), remote.data());
    write(all, id, local.data(), remote.data());
    return 0;
}
