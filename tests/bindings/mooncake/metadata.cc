/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the manner of Mooncake's test of the metadata: keys of the server whose URL is argument 1, without an
 * engine and with one; and the same calls with P2PHANDSHAKE.
 */
#include <cstring>
#include <memory>

#include "transfer_engine.h"
#include "transfer_metadata.h"

#include "check.h"

using namespace mooncake;
using SegmentDesc = TransferMetadata::SegmentDesc;
using BufferDesc = TransferMetadata::BufferDesc;

static void without_engine(const std::string &url)
{
    TransferMetadata metadata(url);
    TransferMetadata::RpcMetaDesc where, found;
    SegmentDesc desc;

    where.ip_or_host_name = "10.0.0.2";
    where.rpc_port = 15321;
    CHECK(metadata.getRpcMetaEntry("node", found) != 0);
    CHECK(metadata.addRpcMetaEntry("node", where) == 0);
    CHECK(metadata.getRpcMetaEntry("node", found) == 0);
    CHECK(found.ip_or_host_name == "10.0.0.2" && found.rpc_port == 15321);
    CHECK(TransferMetadata(url).removeRpcMetaEntry("node") == 0);
    CHECK(metadata.getRpcMetaEntry("node", found) != 0);
    CHECK(metadata.rePublishRpcMetaEntry("node") == 0 &&
          metadata.getRpcMetaEntry("node", found) == 0);
    CHECK(metadata.rePublishRpcMetaEntry("another") != 0);
    CHECK(metadata.removeRpcMetaEntry("node") == 0 && metadata.rePublishRpcMetaEntry("node") != 0);

    desc.name = "node";
    desc.protocol = "rdma";
    desc.devices = {{"mlx5_0", 7, "00:11"}, {"mlx5_1", 8, "00:22"}};
    CHECK(desc.topology.parse("{\"cpu:0\":[[\"mlx5_0\"],[\"mlx5_1\"]]}") == 0);
    BufferDesc buffer;
    buffer.name = "cpu:0 \"quoted\"\n";
    buffer.addr = 0x7f0000000000;
    buffer.length = 4096;
    buffer.lkey = {1, 4000000000u};
    buffer.rkey = {3, 4};
    desc.buffers = {buffer};
    desc.timestamp = "2026-08-22 10:11:12.123456";
    CHECK(metadata.updateSegmentDesc("node", desc) == 0);
    std::shared_ptr<SegmentDesc> read = metadata.getSegmentDescByName("node", true);
    CHECK(read && read->name == "node" && read->protocol == "rdma" &&
          read->topology == desc.topology);
    CHECK(read->devices.size() == 2 && read->devices[1].name == "mlx5_1" &&
          read->devices[1].lid == 8);
    CHECK(read->devices[1].gid == "00:22" && read->timestamp == desc.timestamp);
    CHECK(read->buffers.size() == 1 && read->buffers[0].name == buffer.name);
    CHECK(read->buffers[0].addr == buffer.addr && read->buffers[0].length == 4096);
    CHECK(read->buffers[0].lkey == buffer.lkey && read->buffers[0].rkey == buffer.rkey);
    CHECK(read->tcp_proto_version == 1 && read->tcp_data_port == 0 &&
          read->rdma_server_name.empty());
    CHECK(metadata.removeSegmentDesc("node") == 0 && !metadata.getSegmentDescByName("node"));
    CHECK(!metadata.getSegmentDescByID(LOCAL_SEGMENT_ID) && metadata.getSegmentID("node") < 0);
    CHECK(metadata.addLocalMemoryBuffer(buffer, true) < 0);

    SegmentDesc files;
    files.protocol = "nvmeof";
    files.nvmeof_buffers = {{"/data/0", 1000, {{"node01", "/mnt/0"}}}, {"/data/1", 24, {}}};
    CHECK(metadata.updateSegmentDesc("nvmeof/kv", files) == 0);
    read = metadata.getSegmentDesc("nvmeof/kv");
    CHECK(read && read->name == "nvmeof/kv" && read->nvmeof_buffers.size() == 2);
    CHECK(read->nvmeof_buffers[0].local_path_map.at("node01") == "/mnt/0");
    CHECK(read->buffers[1].addr == 1000 && read->buffers[1].length == 24);
    CHECK(metadata.removeSegmentDesc("nvmeof/kv") == 0);
}

static void with_engine(const std::string &url)
{
    TransferEngine one(true), two(true);
    std::vector<char> memory(8192), more(4096);
    TransferMetadata::RpcMetaDesc where;
    TransferMetadata elsewhere(url);

    CHECK(one.init(url, "one", "127.0.0.1", 0) == 0 && two.init(url, "two", "127.0.0.1", 0) == 0);
    CHECK(one.registerLocalMemory(memory.data(), memory.size()) == 0);
    auto metadata = one.getMetadata();
    CHECK(metadata->getRpcMetaEntry("one", where) == 0 && where.rpc_port == one.getRpcPort());
    BufferDesc buffer;
    buffer.addr = (uint64_t)more.data();
    buffer.length = more.size();
    CHECK(metadata->addLocalMemoryBuffer(buffer, true) == 0);
    auto desc = metadata->getSegmentDescByID(LOCAL_SEGMENT_ID);
    CHECK(desc && desc->name == "one" && desc->buffers.size() == 2 && desc->tcp_data_port > 0);
    CHECK(desc->buffers[0].name == "one" && !desc->timestamp.empty());

    /* The other engine sees the same. */
    TransferMetadata::SegmentID id = two.getMetadata()->getSegmentID("one");
    CHECK(id > 0 && two.getMetadata()->syncSegmentCache("one") == 0);
    auto seen = two.getMetadata()->getSegmentDescByID(id);
    CHECK(seen->buffers.size() == 2 && seen->protocol == desc->protocol);
    CHECK(seen->tcp_data_port == desc->tcp_data_port &&
          seen->tcp_proto_version == desc->tcp_proto_version);
    CHECK(metadata->removeLocalMemoryBuffer(more.data(), true) == 0);
    CHECK(two.getMetadata()->getSegmentDescByName("one", true)->buffers.size() == 1);

    /* What the server has lost is put there again. */
    CHECK(elsewhere.removeSegmentDesc("one") == 0 && elsewhere.removeRpcMetaEntry("one") == 0);
    CHECK(!elsewhere.getSegmentDesc("one"));
    CHECK(metadata->updateLocalSegmentDesc() == 0 && elsewhere.getSegmentDesc("one"));
    CHECK(elsewhere.removeRpcMetaEntry("one") == 0);
    CHECK(metadata->rePublishRpcMetaEntry("one") == 0 &&
          elsewhere.getRpcMetaEntry("one", where) == 0);
    CHECK(where.rpc_port == one.getRpcPort());
}

static void peer_to_peer()
{
    TransferMetadata metadata(P2PHANDSHAKE);
    TransferMetadata::RpcMetaDesc where;
    TransferEngine engine(true);
    std::vector<char> memory(4096);

    CHECK(engine.init(P2PHANDSHAKE, "127.0.0.1") == 0);
    CHECK(engine.registerLocalMemory(memory.data(), memory.size()) == 0);
    CHECK(metadata.getRpcMetaEntry("[::1]:1234", where) == 0);
    CHECK(where.ip_or_host_name == "::1" && where.rpc_port == 1234);
    CHECK(metadata.getRpcMetaEntry("node", where) != 0);
    where = {"10.0.0.3", 7};
    CHECK(metadata.addRpcMetaEntry("node", where) == 0 &&
          metadata.getRpcMetaEntry("node", where) == 0);
    auto desc = metadata.getSegmentDescByName(engine.getLocalIpAndPort());
    CHECK(desc && desc->buffers.size() == 1 && desc->buffers[0].addr == (uint64_t)memory.data());
    CHECK(engine.getMetadata()->updateLocalSegmentDesc() == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    without_engine(argv[1]);
    with_engine(argv[1]);
    peer_to_peer();
    return 0;
}
