/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - what the calls of a batch return. See transfer_engine.hpp. */
#ifndef MOONCAKE_DETAIL_STATUS_H
#define MOONCAKE_DETAIL_STATUS_H

#include <ostream>
#include <string>
#include <utility>

#include "../../te.h"

namespace mooncake
{

/*
 * The outcome of a call: 0 or a negative enum te_err, with what te_errmsg() said of it. It converts to
 * int, so `int rc = engine.submitTransfer(...)`, `status == 0`, `status < 0`, `status ==
 * Status::OK()` and `if (!status.ok())` all mean what they say. (`if (status)` is true on an error, as
 * it is for an int.)
 */
class Status
{
  public:
    /* Mooncake's names. The numbers are those of te.h: negative. An error that has no name here, such
     * as TE_ERR_CLOSED, keeps its number. */
    enum class Code : int {
        kOk = TE_ERR_OK,
        kInvalidArgument = TE_ERR_INVALID,
        kTooManyRequests = TE_ERR_TOO_MANY,
        kAddressNotRegistered = TE_ERR_NOT_REGISTERED,
        kBatchBusy = TE_ERR_BUSY,
        kDeviceNotFound = TE_ERR_NO_DEVICE,
        kAddressOverlapped = TE_ERR_OVERLAP,
        kNotSupportedTransport = TE_ERR_UNSUPPORTED,
        kDns = TE_ERR_DNS,
        kSocket = TE_ERR_SOCKET,
        kMalformedJson = TE_ERR_JSON,
        kRejectHandshake = TE_ERR_REJECTED,
        kMetadata = TE_ERR_METADATA,
        kEndpoint = TE_ERR_ENDPOINT,
        kContext = TE_ERR_CONTEXT,
        kNuma = TE_ERR_NUMA,
        kClock = TE_ERR_CLOCK,
        kMemory = TE_ERR_MEMORY,
        kNotImplemented = TE_ERR_NOT_IMPLEMENTED,
    };

    Status() = default;

    /* The outcome of a call of te.h that has just returned in this thread. */
    explicit Status(int rc) : rc_(rc), message_(rc ? te_errmsg() : "")
    {
    }

    Status(Code code, std::string message)
        : rc_(static_cast<int>(code)), message_(std::move(message))
    {
    }

    static Status OK()
    {
        return Status();
    }

    bool ok() const
    {
        return rc_ == 0;
    }

    Code code() const
    {
        return static_cast<Code>(rc_);
    }

    /* What exactly was wrong; "" of what succeeded. */
    const std::string &message() const
    {
        return message_;
    }

    /* "OK", or the name of the error and the message. */
    std::string ToString() const
    {
        if (ok())
            return "OK";
        return std::string(te_errname(rc_)) + (message_.empty() ? "" : ": ") + message_;
    }

    operator int() const
    {
        return rc_;
    }

  private:
    int rc_ = 0;
    std::string message_;
};

inline std::ostream &operator<<(std::ostream &out, const Status &status)
{
    return out << status.ToString();
}

} /* namespace mooncake */

#endif
