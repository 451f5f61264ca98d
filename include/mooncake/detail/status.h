/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - what the calls of a batch return. See transfer_engine.hpp. */
#ifndef MOONCAKE_DETAIL_STATUS_H
#define MOONCAKE_DETAIL_STATUS_H

#include <string>
#include <type_traits>

#include "../../te.h"

namespace mooncake
{

/*
 * The outcome of a call: 0 or a negative enum te_err. It converts to int and takes one, so `int rc =
 * engine.submitTransfer(...)`, `status == 0`, `status < 0`, `status == Status::OK()`, `status ==
 * Status::Code::kBatchBusy`, `status = -1`, `std::cout << status` and `if (!status.ok())` all mean what
 * they say. (`if (status)` is true on an error, as it is for an int.) It is an int to the calling
 * convention as well, for printf("%d").
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

    explicit Status(int rc) : rc_(rc)
    {
    }

    Status &operator=(int rc)
    {
        rc_ = rc;
        return *this;
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

    /*
     * What exactly was wrong, "" of what succeeded: te_errmsg(), so it is to be asked in the thread of
     * the call, before another one fails there.
     */
    std::string message() const
    {
        return ok() ? "" : te_errmsg();
    }

    /* "OK", or the name of the error and the message. */
    std::string ToString() const
    {
        if (ok())
            return "OK";
        return std::string(te_errname(rc_)) + ": " + message();
    }

    operator int() const
    {
        return rc_;
    }

    friend bool operator==(const Status &status, Code code)
    {
        return status.code() == code;
    }

    friend bool operator==(Code code, const Status &status)
    {
        return status.code() == code;
    }

    friend bool operator!=(const Status &status, Code code)
    {
        return status.code() != code;
    }

    friend bool operator!=(Code code, const Status &status)
    {
        return status.code() != code;
    }

  private:
    int rc_ = 0;
};

static_assert(std::is_trivially_copyable_v<Status> && sizeof(Status) == sizeof(int));

} /* namespace mooncake */

#endif
