/* SPDX-License-Identifier: Apache-2.0 */
/* scatter.h - transfers of many fragments, for C++20 and newer. See transfer_engine.hpp. */
#ifndef MOONCAKE_DETAIL_SCATTER_H
#define MOONCAKE_DETAIL_SCATTER_H

#include "engine.h"
#include "status.h"
#include "types.h"

#if __cplusplus >= 202002L && __has_include(<span>)
#include <span>
#endif

#ifdef __cpp_lib_span
#define MOONCAKE_HAS_SCATTER 1
#else
#define MOONCAKE_HAS_SCATTER 0
#endif

#if MOONCAKE_HAS_SCATTER

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace mooncake
{

/*
 * Fragment i moves lengths[i] bytes between local_buffer + local_offsets[i], which is in registered memory,
 * and remote_base_offset + remote_offsets[i] in the segment of that name. Neither leaves its
 * local_capacity and remote_size bytes. The three spans are read by submitScatter() and never after.
 */
struct ScatterTransferRange {
    TransferRequest::OpCode opcode = TransferRequest::READ;
    std::string remote_segment;
    uint64_t remote_base_offset = 0;
    size_t remote_size = 0;
    void *local_buffer = nullptr;
    size_t local_capacity = 0;
    std::span<const size_t> local_offsets, remote_offsets, lengths;
    /* May be empty. Called once for each fragment, by the thread that waits, with its place in `lengths`. */
    std::function<void(size_t, const Status &)> on_fragment_complete;
};

/*
 * What submitScatter() has begun. The memory of the fragments is borrowed until wait() has returned, or
 * waitFor() other than by TE_ERR_TIMEOUT, or the object is gone: the destructor cancels what is left, and
 * waits for that. Not to be used by two threads at a time, nor once the engine is gone.
 */
class ScatterTransferOperation
{
  public:
    ScatterTransferOperation(ScatterTransferOperation &&other) noexcept
        : state_(std::move(other.state_))
    {
    }

    ScatterTransferOperation &operator=(ScatterTransferOperation &&other) noexcept
    {
        state_ = std::move(other.state_);
        return *this;
    }

    /* Until all fragments have ended: OK, or how the first that failed did. Asked again: the same. */
    Status wait()
    {
        return wait_ms(-1);
    }

    /* The same; TE_ERR_TIMEOUT while some go on. */
    Status waitFor(std::chrono::nanoseconds timeout)
    {
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();

        return wait_ms(ms > 0 ? ms : 0);
    }

  private:
    friend class TransferEngine;

    struct Callback {
        size_t first = 0, n = 0; /* its tasks in the batch */
        std::function<void(size_t, const Status &)> call;
    };

    /* Where it stays while the operation is moved. */
    struct State {
        explicit State(std::shared_ptr<detail::Engine> of) : engine(std::move(of))
        {
        }

        State(const State &) = delete;
        State &operator=(const State &) = delete;

        ~State()
        {
            if (batch != TE_INVALID_BATCH) {
                te_cancel(engine->get(), batch);
                te_wait(engine->get(), batch, -1);
            }
            release();
        }

        void release()
        {
            if (batch != TE_INVALID_BATCH)
                te_batch_free(engine->get(), batch);
            batch = TE_INVALID_BATCH;
            for (SegmentID id : segments)
                engine->close_segment(id);
            segments.clear();
        }

        std::shared_ptr<detail::Engine> engine;
        te_batch batch = TE_INVALID_BATCH; /* none once it has ended */
        std::vector<SegmentID> segments;
        std::vector<Callback> callbacks;
        Status result;
    };

    ScatterTransferOperation(std::shared_ptr<detail::Engine> engine,
                             const std::vector<ScatterTransferRange> &ranges)
        : state_(std::make_unique<State>(std::move(engine)))
    {
        std::vector<te_request> requests;

        for (const ScatterTransferRange &range : ranges)
            if (state_->result.ok())
                state_->result = add(range, requests);
        if (state_->result.ok())
            state_->result = submit(requests);
        if (!state_->result.ok())
            end();
    }

    /* Whether [offset, offset + length) is within `size`. */
    static bool fits(size_t offset, size_t length, size_t size)
    {
        return length <= size && offset <= size - length;
    }

    Status add(const ScatterTransferRange &range, std::vector<te_request> &requests)
    {
        const size_t n = range.lengths.size();
        SegmentID id = detail::no_segment;

        if (range.local_offsets.size() != n || range.remote_offsets.size() != n)
            return Status::InvalidArgument(
                "a scatter range has other numbers of local_offsets, remote_offsets and lengths");
        int rc = state_->engine->open_segment(range.remote_segment, id);
        if (rc)
            return own(rc);
        state_->segments.push_back(id);
        for (size_t i = 0; i < n; i++) {
            if (!fits(range.local_offsets[i], range.lengths[i], range.local_capacity) ||
                !fits(range.remote_offsets[i], range.lengths[i], range.remote_size))
                return Status::InvalidArgument(
                    "fragment " + std::to_string(i) +
                    " of a scatter range leaves its local_capacity or its remote_size");
            requests.push_back(
                {range.opcode, static_cast<char *>(range.local_buffer) + range.local_offsets[i], id,
                 range.remote_base_offset + range.remote_offsets[i], range.lengths[i]});
        }
        state_->callbacks.push_back({requests.size() - n, n, range.on_fragment_complete});
        return Status::OK();
    }

    Status submit(const std::vector<te_request> &requests)
    {
        te_engine *engine = state_->engine->get();
        int rc = te_batch_alloc(engine, requests.empty() ? 1 : requests.size(), &state_->batch);

        if (rc == 0)
            rc = te_submit(engine, state_->batch, requests.data(), requests.size(), nullptr);
        return own(rc);
    }

    /* With the text of now, which other calls change. */
    static Status own(int rc)
    {
        return rc ? Status(static_cast<Status::Code>(rc), te_errmsg()) : Status::OK();
    }

    Status outcome(size_t task) const
    {
        struct te_status st = {};
        char why[512] = "";

        if (te_status(state_->engine->get(), state_->batch, task, &st))
            return own(TE_ERR_CLOSED);
        te_status_msg(state_->engine->get(), state_->batch, task, why, sizeof(why));
        return st.state == TE_COMPLETED ? Status::OK()
                                        : Status(static_cast<Status::Code>(st.error), why);
    }

    void tell()
    {
        for (const Callback &callback : state_->callbacks)
            for (size_t i = 0; i < callback.n; i++) {
                const Status one = outcome(callback.first + i);
                if (state_->result.ok())
                    state_->result = one;
                if (callback.call)
                    callback.call(i, one);
            }
    }

    void end()
    {
        state_->release();
        state_->callbacks.clear();
    }

    Status wait_ms(int64_t ms)
    {
        if (!state_)
            return Status::InvalidArgument("this scatter operation was moved from");
        if (state_->batch == TE_INVALID_BATCH)
            return state_->result;
        if (int rc = te_wait(state_->engine->get(), state_->batch, ms))
            return own(rc);
        tell();
        end();
        return state_->result;
    }

    std::unique_ptr<State> state_;
};

} /* namespace mooncake */

#endif

#endif
