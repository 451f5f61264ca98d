/* SPDX-License-Identifier: Apache-2.0 */
/* types.h - requests, their states, and other types without methods. See transfer_engine.hpp. */
#ifndef MOONCAKE_DETAIL_TYPES_H
#define MOONCAKE_DETAIL_TYPES_H

#include <cstddef>
#include <cstdint>
#include <string>

#include "../../te.h"

/*
 * Constants of the namespace mooncake. They are found there, and are not declared there: so a program may
 * declare one of these names in that namespace itself, and its own is meant then. It may have a macro
 * of the name, too.
 */
namespace mooncake_constants
{

/* As a metadata server: there is none, engines ask each other, and a segment's name is host:port. */
#ifndef P2PHANDSHAKE
inline constexpr char P2PHANDSHAKE[] = "P2PHANDSHAKE";
#endif

/* As a location of memory: find out. */
#ifndef kWildcardLocation
inline constexpr char kWildcardLocation[] = "*";
#endif

#ifndef LOCAL_SEGMENT_ID
inline constexpr int32_t LOCAL_SEGMENT_ID = TE_LOCAL_SEGMENT;
#endif
#ifndef INVALID_SEGMENT_ID
inline constexpr int32_t INVALID_SEGMENT_ID = -1;
#endif
#ifndef INVALID_BATCH_ID
inline constexpr uint64_t INVALID_BATCH_ID = TE_INVALID_BATCH;
#endif

} /* namespace mooncake_constants */

namespace mooncake
{

using namespace mooncake_constants;

namespace detail
{

/* For these headers, where a program may have other things of the names above. */
inline constexpr char p2p[] = "P2PHANDSHAKE";
inline constexpr char any_location[] = "*";
inline constexpr int32_t no_segment = -1;

} /* namespace detail */

/*
 * The types of requests, which TransferEngine and Transport have as members, and the namespace too:
 * TransferEngine::TransferRequest, Transport::TransferRequest and mooncake::TransferRequest are one
 * type, and Transport::COMPLETED, TransferEngine::COMPLETED and TransferStatusEnum::COMPLETED one value.
 */
struct TransferTypes {
    using SegmentID = int32_t; /* never negative when valid */
    using SegmentHandle = SegmentID;
    using BatchID = uint64_t; /* below 2^63 when valid, so that as an int64_t it is not negative */

#ifndef LOCAL_SEGMENT_ID
    static constexpr SegmentID LOCAL_SEGMENT_ID = TE_LOCAL_SEGMENT;
#endif
#ifndef INVALID_SEGMENT_ID
    static constexpr SegmentID INVALID_SEGMENT_ID = -1;
#endif
#ifndef INVALID_BATCH_ID
    static constexpr BatchID INVALID_BATCH_ID = TE_INVALID_BATCH;
#endif

    struct TransferRequest {
        enum OpCode { READ = TE_READ, WRITE = TE_WRITE };
        OpCode opcode;       /* READ: target to source, WRITE: source to target */
        void *source;        /* inside a registered range of this process */
        SegmentID target_id; /* of openSegment(), or LOCAL_SEGMENT_ID */
        size_t
            target_offset; /* in memory the virtual address in the target's process, else the offset */
        size_t length;
        int advise_retry_cnt = 0; /* read by nobody: the engine itself counts its tries */
    };

    /*
     * WAITING until a request has ended, then COMPLETED or FAILED. CANCELED and TIMEOUT appear only
     * where te_cancel() or a deadline of te_submit() was used on the batch. PENDING and INVALID are
     * never shown, so a loop that waits for COMPLETED or FAILED ends: what te.h calls PENDING is
     * WAITING here, and what it calls INVALID is FAILED.
     */
    enum TransferStatusEnum {
        WAITING = TE_WAITING,
        PENDING = TE_PENDING,
        INVALID = TE_INVALID,
        CANCELED = TE_CANCELED,
        CANNELED = CANCELED, /* so spelt in versions of the interface */
        COMPLETED = TE_COMPLETED,
        TIMEOUT = TE_TIMEOUT,
        FAILED = TE_FAILED,
    };
    using TaskStatus = TransferStatusEnum;

    /* Of two fields, though one of them has two names: hence the constructors, for {s, bytes}. */
    struct TransferStatus {
        TransferStatusEnum s;
        /* Bytes moved so far, a lower bound; all of them once COMPLETED. */
        union {
            size_t transferred;
            size_t transferred_bytes; /* so called in newer versions of the interface */
        };

        TransferStatus() = default;

        constexpr TransferStatus(TransferStatusEnum state, size_t bytes = 0)
            : s(state), transferred(bytes)
        {
        }
    };

    struct BufferEntry {
        void *addr;
        size_t length;
    };

    struct NotifyDesc {
        std::string name;
        std::string notify_msg;
    };

    /* For mp_registerLocalMemory(). What is registered is always published at once. */
    struct RegisteredBuffer {
        void *addr = nullptr;
        size_t length = 0;
        std::string location = detail::any_location;
        bool remote_accessible = true;
        bool update_metadata = true;
    };

    struct NicLoadStats {
        std::string device_name;
        uint64_t inflight_bytes = 0;
        double ewma_bandwidth_bps = 0; /* bits a second */
    };

    /* Unreachable is negative: taken for an int, Alive is 0 and the other an error. */
    enum PeerLiveness { Alive = 0, Unreachable = TE_ERR_PEER };

    /* enabled: as TransferEngine(true). `protocol` "tcp" leaves RDMA alone; another chooses nothing. */
    struct AutoDiscoverConfig {
        bool enabled = false;
        std::string protocol;
    };
};

using SegmentID = TransferTypes::SegmentID;
using SegmentHandle = TransferTypes::SegmentHandle;
using BatchID = TransferTypes::BatchID;
using TransferRequest = TransferTypes::TransferRequest;
using TransferStatusEnum = TransferTypes::TransferStatusEnum;
using TransferStatus = TransferTypes::TransferStatus;
using BufferEntry = TransferTypes::BufferEntry;
using NotifyDesc = TransferTypes::NotifyDesc;
using RegisteredBuffer = TransferTypes::RegisteredBuffer;
using NicLoadStats = TransferTypes::NicLoadStats;
using PeerLiveness = TransferTypes::PeerLiveness;
using AutoDiscoverConfig = TransferTypes::AutoDiscoverConfig;

} /* namespace mooncake */

#endif
