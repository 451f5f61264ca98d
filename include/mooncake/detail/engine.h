/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - what the classes share. Not for programs. See transfer_engine.hpp. */
#ifndef MOONCAKE_DETAIL_ENGINE_H
#define MOONCAKE_DETAIL_ENGINE_H

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unistd.h>
#include <vector>

#include "../../te.h"
#include "json.h"
#include "types.h"

namespace mooncake
{

namespace detail
{

/* Text of a te.h function that says TE_ERR_TOO_LARGE when its buffer is too small; "" on an error. */
template <typename Function> std::string text_of(Function &&function)
{
    std::string text;
    int rc = TE_ERR_TOO_LARGE;

    for (size_t n = size_t{1} << 14; rc == TE_ERR_TOO_LARGE && n <= size_t{1} << 26; n *= 4) {
        text.assign(n, '\0');
        rc = function(&text[0], n);
    }
    text.resize(rc ? 0 : std::char_traits<char>::length(text.c_str()));
    return text;
}

/* Messages of any bytes: std::string has room for them. */
using NotifyDesc = TransferTypes::NotifyDesc;

inline bool has_nul(const NotifyDesc &m)
{
    return m.name.find('\0') != std::string::npos || m.notify_msg.find('\0') != std::string::npos;
}

/* Borrows the bytes. */
inline te_message message_of(const NotifyDesc &m)
{
    return {m.name.data(), m.name.size(), m.notify_msg.data(), m.notify_msg.size()};
}

inline NotifyDesc desc_of(const te_message &m)
{
    return {std::string(static_cast<const char *>(m.name), m.name_len),
            std::string(static_cast<const char *>(m.msg), m.msg_len)};
}

/*
 * With what an engine of the C interface begins, which is no address; and what the library knows for one
 * that a program took for an object of these classes.
 */
constexpr std::uint64_t handle_begin = UINT64_C(0x656e69676e45e754);
constexpr std::uint64_t handle_as_object = UINT64_C(0x656c646e6168e754);

/* The pointer that an object begins with is asked, and not what it points at. */
inline bool begins_as_handle(const void *first)
{
    return reinterpret_cast<std::uintptr_t>(first) == handle_begin;
}

/*
 * One engine, and what te.h does not tell again: the names of open segments, and what was registered.
 * A TransferEngine and its transports own it. Its metadata object may outlive them, and uses it only
 * between enter() and the end of what that returns.
 */
class Engine
{
  public:
    Engine() = default;
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    ~Engine()
    {
        close();
    }

    /* What takes the place of a handle of the C interface: each call of it is an error that says so. */
    static const std::shared_ptr<Engine> &refusing()
    {
        static std::uint64_t mark = handle_as_object;
        static const auto *one = [] {
            auto engine = std::make_shared<Engine>();

            engine->engine_ = reinterpret_cast<te_engine *>(&mark);
            return new std::shared_ptr<Engine>(engine); /* for the life of the process */
        }();

        return *one;
    }

    /* NULL while there is none; te.h answers that with TE_ERR_INVALID. */
    te_engine *get() const
    {
        return engine_.load(std::memory_order_acquire);
    }

    int open(const te_options &options)
    {
        te_engine *made = nullptr;
        int rc = te_engine_create(&options, &made);

        if (rc == 0) {
            opened_by_ = getpid();
            engine_.store(made, std::memory_order_release);
        }
        return rc;
    }

    /* One that nobody is told of and that reaches nobody, for what te.h tells by an engine only. */
    int open_alone(const std::string &filters = "")
    {
        te_options options;

        te_options_init(&options);
        options.local_server_name = "127.0.0.1";
        options.auto_discover = 0;
        int rc = filters.empty() ? 0 : te_option_set(&options, "MC_TE_FILTERS", filters.c_str());
        if (rc == 0)
            rc = open(options);
        te_options_fini(&options);
        return rc;
    }

    /* te_links() as JSON; nothing on an error. */
    Json links() const
    {
        return Json::parse(
            text_of([&](char *buf, size_t n) { return te_links(get(), 1, buf, n); }))["local_nics"];
    }

    /* A NIC priority matrix; rdma, where it is installed, opens its NICs by it. */
    int take_matrix(const std::string &matrix) const
    {
        bool rdma = false;

        for (const Json &nic : links().items())
            rdma = rdma || nic["source"].text() == "rdma_transport";
        return te_transport_install(get(), rdma ? "rdma" : "local", matrix.c_str());
    }

    /* Keeps the engine from being destroyed; there may be none. One per thread at a time. */
    std::shared_lock<std::shared_mutex> enter()
    {
        return std::shared_lock<std::shared_mutex>(in_use_);
    }

    /* Waits for those who have entered. */
    void close()
    {
        te_engine *engine = engine_.exchange(nullptr);
        std::unique_lock<std::shared_mutex> alone(in_use_, std::defer_lock);

        /* In a forked child nobody is left who would leave. */
        if (engine && opened_by_ == getpid())
            alone.lock();
        te_engine_destroy(engine);
        std::lock_guard<std::mutex> hold(lock_);
        segments_.clear();
        regions_.clear();
    }

    int open_segment(const std::string &name, SegmentID &id)
    {
        int rc = te_open(get(), name.c_str(), &id);

        if (rc)
            return rc;
        std::lock_guard<std::mutex> hold(lock_);
        Segment &segment = segments_[id];
        segment.name = name;
        segment.references++;
        return 0;
    }

    int close_segment(SegmentID id)
    {
        int rc = te_close(get(), id);

        std::lock_guard<std::mutex> hold(lock_);
        auto found = segments_.find(id);
        if (rc == 0 && found != segments_.end() && --found->second.references == 0)
            segments_.erase(found);
        return rc;
    }

    /* The name that an open segment was opened by; this engine's own is looked up. "": not open. */
    std::string name_of(SegmentID id) const
    {
        char own[512] = "";

        if (id == TE_LOCAL_SEGMENT)
            return te_engine_name(get(), own, sizeof(own)) ? "" : own;
        std::lock_guard<std::mutex> hold(lock_);
        auto found = segments_.find(id);
        return found == segments_.end() ? "" : found->second.name;
    }

    /* Appends what was received so far. */
    int take_notifies(std::vector<NotifyDesc> &notifies) const
    {
        te_message *list = nullptr;
        size_t n = 0;
        int rc = te_notify_recv_bytes(get(), &list, &n);

        if (rc)
            return rc;
        auto release = [n](te_message *p) { te_message_free(p, n); };
        std::unique_ptr<te_message, decltype(release)> owner(list, release);
        for (size_t i = 0; i < n; i++)
            notifies.push_back(desc_of(list[i]));
        return 0;
    }

    void add_regions(const std::vector<te_buffer> &buffers)
    {
        std::lock_guard<std::mutex> hold(lock_);
        for (const te_buffer &b : buffers)
            regions_[reinterpret_cast<uintptr_t>(b.addr)] = b.length;
    }

    void drop_regions(const std::vector<void *> &addrs)
    {
        std::lock_guard<std::mutex> hold(lock_);
        for (void *addr : addrs)
            regions_.erase(reinterpret_cast<uintptr_t>(addr));
    }

    bool overlaps(uintptr_t begin, uint64_t length) const
    {
        std::lock_guard<std::mutex> hold(lock_);
        auto next = regions_.lower_bound(begin);

        if (length > 0 && next != regions_.end() && next->first - begin < length)
            return true;
        return length > 0 && next != regions_.begin() &&
               begin - std::prev(next)->first < std::prev(next)->second;
    }

    std::vector<te_buffer> regions() const
    {
        std::vector<te_buffer> all;
        std::lock_guard<std::mutex> hold(lock_);

        for (const auto &region : regions_)
            all.push_back({reinterpret_cast<void *>(region.first), region.second});
        return all;
    }

  private:
    struct Segment {
        std::string name;
        size_t references = 0;
    };

    std::atomic<te_engine *> engine_{nullptr};
    std::shared_mutex in_use_;
    pid_t opened_by_ = 0;
    mutable std::mutex lock_; /* of what follows */
    std::map<SegmentID, Segment> segments_;
    std::map<uintptr_t, size_t> regions_;
};

/* Requests as te.h takes them; few of them without memory from the heap. */
class Requests
{
  public:
    explicit Requests(const std::vector<TransferRequest> &entries)
    {
        te_request *out = few_.data();

        if (entries.size() > few_.size()) {
            many_.resize(entries.size());
            out = many_.data();
        }
        list_ = out;
        for (const TransferRequest &r : entries)
            *out++ = te_request{r.opcode, r.source, r.target_id, r.target_offset, r.length};
    }

    Requests(const Requests &) = delete;
    Requests &operator=(const Requests &) = delete;

    const te_request *get() const
    {
        return list_;
    }

  private:
    std::array<te_request, 16> few_;
    std::vector<te_request> many_;
    const te_request *list_;
};

inline TransferStatus status_of(const struct te_status &st)
{
    int state = st.state;

    if (state == TE_PENDING)
        state = TE_WAITING;
    else if (state == TE_INVALID)
        state = TE_FAILED;
    return {static_cast<TransferStatusEnum>(state), static_cast<size_t>(st.bytes)};
}

} /* namespace detail */

} /* namespace mooncake */

#endif
