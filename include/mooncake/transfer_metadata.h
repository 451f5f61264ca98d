/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_metadata.h - class TransferMetadata. See transfer_engine.hpp. */
#ifndef MOONCAKE_TRANSFER_METADATA_H
#define MOONCAKE_TRANSFER_METADATA_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../te.h"
#include "detail/engine.h"
#include "detail/types.h"

namespace mooncake
{

/*
 * Where engines find each other, for the TransferEngine to be built with; and, as getMetadata() of an
 * engine gives it, what is known of the segments that are open. The engine takes a copy: an object may
 * be used for several engines.
 */
class TransferMetadata
{
  public:
    using NotifyDesc = TransferTypes::NotifyDesc;

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
        std::string name = engine_ ? engine_->name_of(segment_id) : "";
        std::vector<te_buffer> buffers;

        if (name.empty())
            return nullptr;
        if (segment_id == LOCAL_SEGMENT_ID)
            return describe(name, engine_->regions());
        if (force_update && te_refresh(engine_->get(), name.c_str()))
            return nullptr;
        /* Between the two calls the peer may have published more. */
        for (size_t n = 0, total = 1; n < total; n = total) {
            buffers.resize(total);
            if (te_segment_buffers(engine_->get(), segment_id, buffers.data(), total, &total))
                return nullptr;
            if (total <= buffers.size()) {
                buffers.resize(total);
                break;
            }
        }
        return describe(name, buffers);
    }

    /* The same of a segment that need not be open. */
    std::shared_ptr<SegmentDesc> getSegmentDescByName(const std::string &segment_name,
                                                      bool force_update = false) const
    {
        SegmentID id = INVALID_SEGMENT_ID;

        if (!engine_ || engine_->open_segment(segment_name, id))
            return nullptr;
        auto found = getSegmentDescByID(id, force_update);
        engine_->close_segment(id);
        return found;
    }

  private:
    friend class TransferEngine;

    static std::shared_ptr<SegmentDesc> describe(const std::string &name,
                                                 const std::vector<te_buffer> &buffers)
    {
        auto desc = std::make_shared<SegmentDesc>();

        desc->name = name;
        for (const te_buffer &b : buffers)
            desc->buffers.push_back({reinterpret_cast<uintptr_t>(b.addr), b.length});
        return desc;
    }

    std::string server_;
    std::shared_ptr<detail::Engine> engine_;
};

} /* namespace mooncake */

#endif
