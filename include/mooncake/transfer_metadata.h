/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_metadata.h - class TransferMetadata. See transfer_engine.hpp. */
#ifndef MOONCAKE_TRANSFER_METADATA_H
#define MOONCAKE_TRANSFER_METADATA_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "../te.h"
#include "detail/engine.h"
#include "detail/json.h"
#include "detail/types.h"
#include "topology.h"

namespace mooncake
{

/*
 * Where engines find each other, for the TransferEngine to be built with; what is known of the segments
 * that this engine has open; and the keys of the metadata server. An object tells of one engine, the
 * first that was built with it and is still there; others that are built with it make an object of their
 * own, see getMetadata(). It may outlive the engine and then knows of no open segment; an engine's
 * destructor waits for the calls made through it. Without an engine it still reads and writes keys.
 *
 * An int is 0 or a negative enum te_err, as everywhere.
 */
class TransferMetadata
{
  public:
    using NotifyDesc = TransferTypes::NotifyDesc;
    using SegmentID = TransferTypes::SegmentID;

    struct DeviceDesc {
        std::string name;
        uint16_t lid = 0;
        std::string gid;
    };

    struct BufferDesc {
        std::string name; /* where it is; of "tcp" the name of the segment */
        uint64_t addr =
            0; /* the virtual address in its process; of a file the offset where it begins */
        uint64_t length = 0;
        std::string protocol;             /* where a segment has several */
        std::vector<uint32_t> lkey, rkey; /* one of each for each of the devices */
        std::string shm_name;
        uint64_t offset = 0;
    };

    struct NVMeoFBufferDesc {
        std::string file_path;
        uint64_t length = 0;
        std::unordered_map<std::string, std::string> local_path_map;
    };

    struct SegmentDesc {
        std::string name;
        std::string protocol; /* "tcp,rdma" where there are several */
        std::vector<DeviceDesc> devices;
        Topology topology;
        std::vector<BufferDesc> buffers; /* in address order */
        std::vector<NVMeoFBufferDesc> nvmeof_buffers;
        std::string timestamp;
        int tcp_data_port = 0;
        int tcp_proto_version = 1;
        std::string rdma_server_name;
    };

    struct RpcMetaDesc {
        std::string ip_or_host_name;
        uint16_t rpc_port = 0;
    };

    /*
     * `metadata_server` is P2PHANDSHAKE, a connection string with a scheme ("http://host:port/path"),
     * or an address ("10.0.0.1:2379") of the kind that `protocol` says: "etcd", "redis" or "http".
     */
    explicit TransferMetadata(const std::string &metadata_server,
                              const std::string &protocol = "etcd")
        : server_(metadata_server)
    {
        if (server_ != detail::p2p && server_.find("://") == std::string::npos)
            server_ = protocol + "://" + server_;
    }

    const std::string &connectionString() const
    {
        return server_;
    }

    /* ---- segments */

    /*
     * What the owner of an open segment has published, or of LOCAL_SEGMENT_ID what was registered with
     * this object's engine; `force_update` fetches it again first. NULL: not open, or not of an engine.
     */
    std::shared_ptr<SegmentDesc> getSegmentDescByID(SegmentID segment_id,
                                                    bool force_update = false) const
    {
        std::shared_ptr<detail::Engine> engine = engine_of();

        if (!engine)
            return nullptr;
        auto inside = engine->enter();
        return describe(*engine, segment_id, force_update);
    }

    /* The same of a segment that need not be open. */
    std::shared_ptr<SegmentDesc> getSegmentDescByName(const std::string &segment_name,
                                                      bool force_update = false) const
    {
        std::shared_ptr<detail::Engine> engine = engine_of();

        if (!engine)
            return getSegmentDesc(segment_name);
        auto inside = engine->enter();
        return describe(*engine, segment_name, force_update);
    }

    /* What the metadata server has of a segment now, or with P2PHANDSHAKE its engine. */
    std::shared_ptr<SegmentDesc> getSegmentDesc(const std::string &segment_name) const
    {
        std::string text;

        if (server_ == detail::p2p) {
            detail::Engine engine;
            return engine.open_alone() ? nullptr : describe(engine, segment_name, true);
        }
        if (get(segment_key(segment_name), text))
            return nullptr;
        return desc_of(text);
    }

    /* Opens a segment, as TransferEngine::openSegment() does. */
    SegmentID getSegmentID(const std::string &segment_name) const
    {
        std::shared_ptr<detail::Engine> engine = engine_of();
        SegmentID id = detail::no_segment;

        if (!engine)
            return detail::no_segment;
        auto inside = engine->enter();
        return engine->open_segment(segment_name, id) ? detail::no_segment : id;
    }

    /* Fetches the descriptor of an open segment again, "" of each. */
    int syncSegmentCache(const std::string &segment_name = "") const
    {
        std::shared_ptr<detail::Engine> engine = engine_of();

        if (!engine)
            return TE_ERR_INVALID;
        auto inside = engine->enter();
        return te_refresh(engine->get(), segment_name.empty() ? nullptr : segment_name.c_str());
    }

    /* Puts what this engine publishes into the metadata server again. It is done by itself, too. */
    int updateLocalSegmentDesc(SegmentID segment_id = TE_LOCAL_SEGMENT) const
    {
        std::shared_ptr<detail::Engine> engine = engine_of();

        if (!engine || segment_id != TE_LOCAL_SEGMENT)
            return TE_ERR_INVALID;
        auto inside = engine->enter();
        return te_refresh(engine->get(), engine->name_of(segment_id).c_str());
    }

    /* For segments of others than this engine. With P2PHANDSHAKE nothing is kept: 0. */
    int updateSegmentDesc(const std::string &segment_name, const SegmentDesc &desc) const
    {
        const std::string text = text_of(segment_name, desc);

        return put(segment_key(segment_name), text.c_str());
    }

    int removeSegmentDesc(const std::string &segment_name) const
    {
        return put(segment_key(segment_name), nullptr);
    }

    /* ---- memory of this engine: as its registerLocalMemory(), desc.name being the location */

    int addLocalMemoryBuffer(const BufferDesc &desc, bool update_metadata) const
    {
        std::shared_ptr<detail::Engine> engine = engine_of();
        void *addr = reinterpret_cast<void *>(static_cast<uintptr_t>(desc.addr));

        (void)update_metadata;
        if (!engine)
            return TE_ERR_INVALID;
        auto inside = engine->enter();
        const char *location = desc.name.empty() ? detail::any_location : desc.name.c_str();
        int rc = te_register(engine->get(), addr, desc.length, location, TE_REMOTE_RW);
        if (rc == 0)
            engine->add_regions({{addr, desc.length}});
        return rc;
    }

    int removeLocalMemoryBuffer(void *addr, bool update_metadata) const
    {
        std::shared_ptr<detail::Engine> engine = engine_of();

        (void)update_metadata;
        if (!engine)
            return TE_ERR_INVALID;
        auto inside = engine->enter();
        int rc = te_unregister(engine->get(), addr);
        if (rc == 0)
            engine->drop_regions({addr});
        return rc;
    }

    /* ---- where engines answer: with P2PHANDSHAKE this object knows what was added to it */

    int addRpcMetaEntry(const std::string &server_name, const RpcMetaDesc &desc)
    {
        const std::string text =
            "{\"ip_or_host_name\":" + detail::Json::quoted(desc.ip_or_host_name) +
            ",\"rpc_port\":" + std::to_string(desc.rpc_port) + "}";
        int rc = put("rpc_meta/" + server_name, text.c_str());

        std::lock_guard<std::mutex> hold(lock_);
        if (rc == 0)
            rpc_metas_[server_name] = desc;
        return rc;
    }

    int removeRpcMetaEntry(const std::string &server_name)
    {
        int rc = put("rpc_meta/" + server_name, nullptr);

        std::lock_guard<std::mutex> hold(lock_);
        if (rc == 0)
            rpc_metas_.erase(server_name);
        return rc;
    }

    /* Puts an entry again that was added here, or that of this object's engine. */
    int rePublishRpcMetaEntry(const std::string &server_name)
    {
        std::shared_ptr<detail::Engine> engine = engine_of();
        RpcMetaDesc desc;

        if (engine) {
            auto inside = engine->enter();
            if (engine->name_of(TE_LOCAL_SEGMENT) == server_name)
                return te_refresh(engine->get(), server_name.c_str());
        }
        return added(server_name, desc) ? addRpcMetaEntry(server_name, desc) : TE_ERR_NOT_FOUND;
    }

    /* With P2PHANDSHAKE a name is its own address, "host:port". TE_ERR_NOT_FOUND. */
    int getRpcMetaEntry(const std::string &server_name, RpcMetaDesc &desc) const
    {
        std::string text;

        if (server_ == detail::p2p)
            return added(server_name, desc) || split(server_name, desc) ? 0 : TE_ERR_NOT_FOUND;
        int rc = get("rpc_meta/" + server_name, text);
        if (rc)
            return rc;
        const detail::Json entry = detail::Json::parse(text);
        desc.ip_or_host_name = entry["ip_or_host_name"].text();
        desc.rpc_port = static_cast<uint16_t>(entry["rpc_port"].number());
        return desc.ip_or_host_name.empty() ? TE_ERR_JSON : 0;
    }

    /* ---- notifications: as TransferEngine::getNotifies() */

    int getNotifies(std::vector<NotifyDesc> &notifies) const
    {
        std::shared_ptr<detail::Engine> engine = engine_of();

        if (!engine)
            return TE_ERR_INVALID;
        auto inside = engine->enter();
        return engine->take_notifies(notifies);
    }

  private:
    friend class TransferEngine;
    friend class MultiTransport;

    using Json = detail::Json;

    /* False: it is another engine's, which is still there. */
    bool attach(const std::shared_ptr<detail::Engine> &engine)
    {
        std::lock_guard<std::mutex> hold(lock_);

        if (!engine_.expired())
            return false;
        engine_ = engine;
        return true;
    }

    std::shared_ptr<detail::Engine> engine_of() const
    {
        std::lock_guard<std::mutex> hold(lock_);

        return engine_.lock();
    }

    std::shared_ptr<detail::Engine> engine_or_none() const
    {
        std::shared_ptr<detail::Engine> engine = engine_of();

        return engine ? engine : std::make_shared<detail::Engine>();
    }

    /* ---- keys */

    static std::string segment_key(const std::string &name)
    {
        return name.find('/') == std::string::npos ? "ram/" + name : name;
    }

    int get(const std::string &key, std::string &value) const
    {
        te_options options;
        int rc = TE_ERR_INVALID;

        te_options_init(&options);
        options.metadata = server_.c_str();
        value = detail::text_of([&](char *buf, size_t n) {
            return rc = te_metadata_get(&options, key.c_str(), buf, n);
        });
        return rc;
    }

    int put(const std::string &key, const char *value) const
    {
        te_options options;

        if (server_ == detail::p2p)
            return 0;
        te_options_init(&options);
        options.metadata = server_.c_str();
        return te_metadata_put(&options, key.c_str(), value);
    }

    bool added(const std::string &server_name, RpcMetaDesc &desc) const
    {
        std::lock_guard<std::mutex> hold(lock_);
        auto found = rpc_metas_.find(server_name);

        if (found != rpc_metas_.end())
            desc = found->second;
        return found != rpc_metas_.end();
    }

    static bool split(const std::string &name, RpcMetaDesc &desc)
    {
        const size_t colon = name.rfind(':');
        const bool brackets = !name.empty() && name.front() == '[';

        if (colon == std::string::npos || colon == 0 || colon + 1 == name.size() ||
            name.find_first_not_of("0123456789", colon + 1) != std::string::npos)
            return false;
        desc.ip_or_host_name = brackets ? name.substr(1, colon - 2) : name.substr(0, colon);
        desc.rpc_port = static_cast<uint16_t>(std::strtoul(name.c_str() + colon + 1, nullptr, 10));
        return true;
    }

    /* ---- descriptors */

    static BufferDesc buffer_of(const Json &object)
    {
        BufferDesc buffer;

        buffer.name = object["name"].text();
        buffer.addr = object["addr"].number();
        buffer.length = object["length"].number();
        buffer.protocol = object["protocol"].text();
        buffer.lkey = object["lkey"].numbers<uint32_t>();
        buffer.rkey = object["rkey"].numbers<uint32_t>();
        buffer.shm_name = object["shm_name"].text();
        buffer.offset = object["offset"].number();
        return buffer;
    }

    static NVMeoFBufferDesc file_of(const Json &object)
    {
        const Json &paths = object["local_path_map"];
        NVMeoFBufferDesc file;

        file.file_path = object["file_path"].text();
        file.length = object["length"].number();
        for (size_t i = 0; i < paths.keys().size(); i++)
            file.local_path_map[paths.keys()[i]] = paths.items()[i].text();
        return file;
    }

    /* Files follow each other from address 0 on. */
    static void read_buffers(const Json &list, SegmentDesc &desc)
    {
        uint64_t end = 0;

        for (const Json &object : list.items()) {
            desc.buffers.push_back(buffer_of(object));
            if (object["file_path"].kind() == Json::NONE)
                continue;
            desc.nvmeof_buffers.push_back(file_of(object));
            desc.buffers.back().addr = end;
            end += desc.buffers.back().length;
        }
        std::stable_sort(desc.buffers.begin(), desc.buffers.end(),
                         [](const BufferDesc &a, const BufferDesc &b) { return a.addr < b.addr; });
    }

    static std::string protocol_of(const Json &protocol)
    {
        std::string all = protocol.text();

        for (const std::string &one : protocol.texts())
            all += (all.empty() ? "" : ",") + one;
        return all;
    }

    /* The reverse: "tcp,rdma" is an array. */
    static std::string protocol_text(const std::string &protocol)
    {
        std::string text = Json::quoted(protocol);

        if (protocol.find(',') == std::string::npos)
            return text;
        for (size_t at = 0; (at = text.find(',', at)) != std::string::npos; at += 3)
            text.replace(at, 1, "\",\"");
        return "[" + text + "]";
    }

    /* NULL: the text is no descriptor. */
    static std::shared_ptr<SegmentDesc> desc_of(const std::string &text)
    {
        const Json root = Json::parse(text);
        auto desc = std::make_shared<SegmentDesc>();

        if (root.kind() != Json::OBJECT)
            return nullptr;
        desc->name = root[root["name"].kind() == Json::NONE ? "server_name" : "name"].text();
        desc->protocol = protocol_of(root["protocol"]);
        for (const Json &device : root["devices"].items())
            desc->devices.push_back({device["name"].text(),
                                     static_cast<uint16_t>(device["lid"].number()),
                                     device["gid"].text()});
        desc->topology.take(Topology::rows_of(root["priority_matrix"]));
        read_buffers(root["buffers"], *desc);
        desc->timestamp = root["timestamp"].text();
        desc->tcp_data_port = static_cast<int>(root["tcp_data_port"].number());
        if (root["tcp_proto_version"].kind() == Json::NUMBER)
            desc->tcp_proto_version = static_cast<int>(root["tcp_proto_version"].number());
        desc->rdma_server_name = root["rdma_server_name"].text();
        return desc;
    }

    static std::string text_of(const BufferDesc &buffer, bool rdma)
    {
        std::string text = "{\"addr\":" + std::to_string(buffer.addr) +
                           ",\"length\":" + std::to_string(buffer.length) +
                           ",\"name\":" + Json::quoted(buffer.name);

        if (rdma || !buffer.rkey.empty())
            text += ",\"lkey\":" + Json::list(buffer.lkey) + ",\"rkey\":" + Json::list(buffer.rkey);
        if (!buffer.protocol.empty())
            text += ",\"protocol\":" + Json::quoted(buffer.protocol);
        if (!buffer.shm_name.empty())
            text += ",\"shm_name\":" + Json::quoted(buffer.shm_name);
        if (buffer.offset)
            text += ",\"offset\":" + std::to_string(buffer.offset);
        return text += '}';
    }

    static std::string text_of(const NVMeoFBufferDesc &file)
    {
        std::string paths;

        for (const auto &path : file.local_path_map)
            paths += (paths.empty() ? "" : ",") + Json::quoted(path.first) + ":" +
                     Json::quoted(path.second);
        return "{\"file_path\":" + Json::quoted(file.file_path) +
               ",\"length\":" + std::to_string(file.length) + ",\"local_path_map\":{" + paths +
               "}}";
    }

    static std::string buffers_of(const SegmentDesc &desc)
    {
        std::string list;

        for (const NVMeoFBufferDesc &file : desc.nvmeof_buffers)
            list += (list.empty() ? "" : ",") + text_of(file);
        for (size_t i = 0; desc.nvmeof_buffers.empty() && i < desc.buffers.size(); i++)
            list += (i ? "," : "") + text_of(desc.buffers[i], !desc.devices.empty());
        return list;
    }

    static std::string text_of(const std::string &name, const SegmentDesc &desc)
    {
        std::string devices;

        for (const DeviceDesc &device : desc.devices)
            devices += (devices.empty() ? "" : ",") + ("{\"gid\":" + Json::quoted(device.gid)) +
                       ",\"lid\":" + std::to_string(device.lid) +
                       ",\"name\":" + Json::quoted(device.name) + "}";
        std::string text = "{\"buffers\":[" + buffers_of(desc) + "]";
        if (!devices.empty())
            text +=
                ",\"devices\":[" + devices + "],\"priority_matrix\":" + desc.topology.toString();
        text += ",\"name\":" + Json::quoted(desc.name.empty() ? name : desc.name) +
                ",\"protocol\":" + protocol_text(desc.protocol);
        if (!desc.rdma_server_name.empty())
            text += ",\"rdma_server_name\":" + Json::quoted(desc.rdma_server_name);
        return text + ",\"tcp_data_port\":" + std::to_string(desc.tcp_data_port) +
               ",\"tcp_proto_version\":" + std::to_string(desc.tcp_proto_version) +
               ",\"timestamp\":" + Json::quoted(desc.timestamp) + "}";
    }

    /* One that is not published. In a descriptor of several protocols each buffer has one. */
    static BufferDesc own_buffer(const SegmentDesc &desc)
    {
        const size_t comma = desc.protocol.find(',');
        BufferDesc buffer;

        if (comma != std::string::npos)
            buffer.protocol = desc.protocol.substr(0, comma);
        return buffer;
    }

    /* Of this engine itself also what is for its own use only, which is not published. */
    static void add_regions(const detail::Engine &engine, SegmentDesc &desc)
    {
        std::map<uint64_t, std::vector<BufferDesc>>
            published; /* one for each of several protocols */

        for (BufferDesc &buffer : desc.buffers)
            published[buffer.addr].push_back(std::move(buffer));
        desc.buffers.clear();
        for (const te_buffer &region : engine.regions()) {
            auto &of_region = published[reinterpret_cast<uintptr_t>(region.addr)];
            if (of_region.empty())
                of_region.push_back(own_buffer(desc));
            for (BufferDesc &buffer : of_region) {
                buffer.addr = reinterpret_cast<uintptr_t>(region.addr);
                buffer.length = region.length;
                desc.buffers.push_back(std::move(buffer));
            }
        }
    }

    static std::shared_ptr<SegmentDesc> describe(detail::Engine &engine, SegmentID segment_id,
                                                 bool force_update)
    {
        const std::string name = engine.name_of(segment_id);

        if (name.empty() || (force_update && segment_id != TE_LOCAL_SEGMENT &&
                             te_refresh(engine.get(), name.c_str())))
            return nullptr;
        auto desc = desc_of(detail::text_of([&](char *buf, size_t n) {
            return te_segment_json(engine.get(), segment_id, buf, n);
        }));
        if (!desc)
            return nullptr;
        desc->name = name;
        if (segment_id == TE_LOCAL_SEGMENT)
            add_regions(engine, *desc);
        return desc;
    }

    static std::shared_ptr<SegmentDesc> describe(detail::Engine &engine, const std::string &name,
                                                 bool force_update)
    {
        SegmentID id = detail::no_segment;

        if (engine.open_segment(name, id))
            return nullptr;
        auto found = describe(engine, id, force_update);
        engine.close_segment(id);
        return found;
    }

    std::string server_;
    mutable std::mutex lock_; /* of what follows */
    std::weak_ptr<detail::Engine> engine_;
    std::map<std::string, RpcMetaDesc> rpc_metas_; /* that were added here */
};

} /* namespace mooncake */

#endif
