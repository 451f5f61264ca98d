/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_metadata.h - class TransferMetadata. See transfer_engine.hpp. */
#ifndef MOONCAKE_TRANSFER_METADATA_H
#define MOONCAKE_TRANSFER_METADATA_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../te.h"
#include "detail/engine.h"
#include "detail/types.h"

namespace mooncake
{

/*
 * Where engines find each other, for the TransferEngine to be built with; and what is known of the
 * segments that this engine has open. An object tells of one engine, the first that was built with it
 * and is still there; others that are built with it make an object of their own, see getMetadata(). It
 * may outlive the engine and then knows of no segment; an engine's destructor waits for the calls made
 * through it.
 */
class TransferMetadata
{
  public:
    using NotifyDesc = TransferTypes::NotifyDesc;
    using SegmentID = TransferTypes::SegmentID;

    struct BufferDesc {
        uint64_t
            addr; /* the virtual address in its process; of a file the offset where it begins */
        uint64_t length;
    };

    struct SegmentDesc {
        std::string name;
        std::vector<BufferDesc> buffers; /* in address order */
    };

    /*
     * `metadata_server` is P2PHANDSHAKE, a connection string with a scheme ("http://host:port/path"),
     * or an address ("10.0.0.1:2379") of the kind that `protocol` says: "etcd", "redis" or "http".
     */
    explicit TransferMetadata(const std::string &metadata_server,
                              const std::string &protocol = "etcd")
        : server_(metadata_server)
    {
        if (server_ != P2PHANDSHAKE && server_.find("://") == std::string::npos)
            server_ = protocol + "://" + server_;
    }

    const std::string &connectionString() const
    {
        return server_;
    }

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
        SegmentID id = INVALID_SEGMENT_ID;

        if (!engine)
            return nullptr;
        auto inside = engine->enter();
        if (engine->open_segment(segment_name, id))
            return nullptr;
        auto found = describe(*engine, id, force_update);
        engine->close_segment(id);
        return found;
    }

  private:
    friend class TransferEngine;

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

    static int buffers_of(detail::Engine &engine, SegmentID segment_id,
                          std::vector<te_buffer> &buffers)
    {
        size_t total = 1;

        do {
            buffers.resize(total);
            int rc = te_segment_buffers(engine.get(), segment_id, buffers.data(), total, &total);
            if (rc)
                return rc;
        } while (total > buffers.size());
        buffers.resize(total);
        return 0;
    }

    static std::shared_ptr<SegmentDesc> describe(detail::Engine &engine, SegmentID segment_id,
                                                 bool force_update)
    {
        auto desc = std::make_shared<SegmentDesc>();
        std::vector<te_buffer> buffers;

        desc->name = engine.name_of(segment_id);
        if (desc->name.empty())
            return nullptr;
        if (segment_id == LOCAL_SEGMENT_ID)
            buffers = engine.regions();
        else if ((force_update && te_refresh(engine.get(), desc->name.c_str())) ||
                 buffers_of(engine, segment_id, buffers))
            return nullptr;
        for (const te_buffer &b : buffers)
            desc->buffers.push_back({reinterpret_cast<uintptr_t>(b.addr), b.length});
        return desc;
    }

    std::string server_;
    mutable std::mutex lock_; /* of what follows */
    std::weak_ptr<detail::Engine> engine_;
};

} /* namespace mooncake */

#endif
