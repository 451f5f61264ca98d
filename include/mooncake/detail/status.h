/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - what the calls of a batch return. See transfer_engine.hpp. */
#ifndef MOONCAKE_DETAIL_STATUS_H
#define MOONCAKE_DETAIL_STATUS_H

#include <string>
#include <string_view>
#include <type_traits>

#include "../../te.h"

namespace mooncake
{

/* Mooncake's name of a code, and the TE_ERR_ of te.h. */
#define MOONCAKE_STATUS_CODES(X)            \
    X(InvalidArgument, INVALID)             \
    X(TooManyRequests, TOO_MANY)            \
    X(AddressNotRegistered, NOT_REGISTERED) \
    X(BatchBusy, BUSY)                      \
    X(DeviceNotFound, NO_DEVICE)            \
    X(AddressOverlapped, OVERLAP)           \
    X(NotSupportedTransport, UNSUPPORTED)   \
    X(Dns, DNS)                             \
    X(Socket, SOCKET)                       \
    X(MalformedJson, JSON)                  \
    X(RejectHandshake, REJECTED)            \
    X(Metadata, METADATA)                   \
    X(Endpoint, ENDPOINT)                   \
    X(Context, CONTEXT)                     \
    X(Numa, NUMA)                           \
    X(Clock, CLOCK)                         \
    X(Memory, MEMORY)                       \
    X(NotImplemented, NOT_IMPLEMENTED)

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
#define MOONCAKE_STATUS_CODE(name, error) k##name = TE_ERR_##error,
        MOONCAKE_STATUS_CODES(MOONCAKE_STATUS_CODE)
#undef MOONCAKE_STATUS_CODE
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

    bool IsOk() const
    {
        return ok();
    }

    /*
     * Of each code a maker, Status::BatchBusy("why"), and a question, status.IsBatchBusy(). A Status has
     * no room for a text, so that of the maker is dropped; message() tells of calls of the engine only.
     */
#define MOONCAKE_STATUS_CODE(name, error)     \
    static Status name(std::string_view = {}) \
    {                                         \
        return Status(TE_ERR_##error);        \
    }                                         \
                                              \
    bool Is##name() const                     \
    {                                         \
        return rc_ == TE_ERR_##error;         \
    }
    MOONCAKE_STATUS_CODES(MOONCAKE_STATUS_CODE)
#undef MOONCAKE_STATUS_CODE

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

#undef MOONCAKE_STATUS_CODES

static_assert(std::is_trivially_copyable_v<Status> && sizeof(Status) == sizeof(int));

} /* namespace mooncake */

#endif
