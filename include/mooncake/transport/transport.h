/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h - class Transport, and the calls it has in common with TransferEngine. See
 * transfer_engine.hpp.
 */
#ifndef MOONCAKE_TRANSPORT_TRANSPORT_H
#define MOONCAKE_TRANSPORT_TRANSPORT_H

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../../te.h"
#include "../detail/engine.h"
#include "../detail/status.h"
#include "../detail/types.h"

namespace mooncake
{

/*
 * Groups of requests, submitted together and watched one by one. Both TransferEngine and Transport
 * have these calls, and do the same by them: each request goes by the best of the installed transports.
 */
class BatchTransfer : public TransferTypes
{
  public:
    BatchTransfer(const BatchTransfer &) = delete;
    BatchTransfer &operator=(const BatchTransfer &) = delete;

    /* A batch with room for `batch_size` requests in total. INVALID_BATCH_ID on an error. */
    BatchID allocateBatchID(size_t batch_size)
    {
        te_batch id = TE_INVALID_BATCH;

        return te_batch_alloc(native(), batch_size, &id) ? TE_INVALID_BATCH : id;
    }

    /*
     * Submits all of `entries` or, on an error, none; never waits for the network. They get the next
     * task numbers of the batch, from 0 on. TE_ERR_TOO_MANY: more than the batch has room for.
     * TE_ERR_NOT_REGISTERED: a source is in no registered range. TE_ERR_NOT_FOUND: no such batch or
     * segment. A range that the target does not have makes its request FAILED.
     */
    Status submitTransfer(BatchID batch_id, const std::vector<TransferRequest> &entries)
    {
        return submit(batch_id, entries, nullptr);
    }

    /* The state of request `task_id`. `status` is only written on success. */
    Status getTransferStatus(BatchID batch_id, size_t task_id, TransferStatus &status)
    {
        struct te_status st;
        int rc = te_status(native(), batch_id, task_id, &st);

        if (rc == 0)
            status = detail::status_of(st);
        return Status(rc);
    }

    /*
     * Frees a batch; its id is dead. TE_ERR_BUSY: a request is unfinished. It need not have been
     * polled.
     */
    Status freeBatchID(BatchID batch_id)
    {
        return Status(te_batch_free(native(), batch_id));
    }

    /* The engine, for the functions of te.h; not to be destroyed. NULL before init(). */
    te_engine *native() const
    {
        return engine()->get();
    }

  protected:
    /* Whether this is no object, but a handle of the C interface that a program took for one. */
    bool is_c_handle() const
    {
        return detail::begins_as_handle(engine_.get());
    }

    /* For all that is asked of the engine: in the place of a C handle one that refuses. */
    const std::shared_ptr<detail::Engine> &engine() const
    {
        return is_c_handle() ? detail::Engine::refusing() : engine_;
    }

    explicit BatchTransfer(std::shared_ptr<detail::Engine> engine) : engine_(std::move(engine))
    {
    }

    BatchTransfer(BatchTransfer &&) = default;

    ~BatchTransfer() = default;

    Status submit(BatchID batch_id, const std::vector<TransferRequest> &entries,
                  const te_submit_opts *opts)
    {
        detail::Requests requests(entries);

        return Status(te_submit(native(), batch_id, requests.get(), entries.size(), opts));
    }

    std::shared_ptr<detail::Engine> engine_; /* changes by a move of a TransferEngine only */
};

/*
 * An installed transport, as installTransport() gives it. It belongs to its TransferEngine and lives as
 * long, and a call of it counts as one of the engine where the destructor is concerned; when the
 * transport is uninstalled, requests go by those that are left.
 */
class Transport : public BatchTransfer
{
  public:
    virtual ~Transport() = default;

    const char *getName() const
    {
        return name_.c_str();
    }

  protected:
    Transport(std::shared_ptr<detail::Engine> engine, const std::string &name)
        : BatchTransfer(std::move(engine)), name_(name)
    {
    }

  private:
    friend class TransferEngine;

    static std::unique_ptr<Transport> make(const std::shared_ptr<detail::Engine> &engine,
                                           const std::string &name);

    const std::string name_;
};

/*
 * What installTransport() gives is of the class of its name, so a program may cast it to that. The classes
 * have the calls of Transport.
 */
#define MOONCAKE_TRANSPORTS(X)                  \
    X(TcpTransport, "tcp")                      \
    X(RdmaTransport, "rdma")                    \
    X(NVMeoFTransport, "nvmeof")                \
    X(NvlinkTransport, "nvlink")                \
    X(IntraNodeNvlinkTransport, "nvlink_intra") \
    X(HipTransport, "hip")

#define MOONCAKE_TRANSPORT(Class, proto) \
    class Class final : public Transport \
    {                                    \
        friend class Transport;          \
        using Transport::Transport;      \
    };
MOONCAKE_TRANSPORTS(MOONCAKE_TRANSPORT)
#undef MOONCAKE_TRANSPORT

inline std::unique_ptr<Transport> Transport::make(const std::shared_ptr<detail::Engine> &engine,
                                                  const std::string &name)
{
    Transport *made = nullptr;

#define MOONCAKE_TRANSPORT(Class, proto) \
    if (name == proto)                   \
        made = new Class(engine, name);
    MOONCAKE_TRANSPORTS(MOONCAKE_TRANSPORT)
#undef MOONCAKE_TRANSPORT
    return std::unique_ptr<Transport>(made ? made : new Transport(engine, name));
}

#undef MOONCAKE_TRANSPORTS

} /* namespace mooncake */

#endif
