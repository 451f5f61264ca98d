/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - what the calls of a batch return. See transfer_engine.hpp. */
#ifndef MOONCAKE_DETAIL_STATUS_H
#define MOONCAKE_DETAIL_STATUS_H

#include <array>
#include <cstdint>
#include <mutex>
#include <ostream>
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

namespace detail
{

/*
 * The texts that programs give to a Status of their own. A Status is two numbers, so that it is an int
 * to the calling convention; the second is the number of its text, of which the last ones are kept.
 */
class StatusTexts
{
  public:
    static StatusTexts &all()
    {
        static StatusTexts texts;

        return texts;
    }

    uint32_t add(std::string_view text)
    {
        std::lock_guard<std::mutex> hold(lock_);
        uint32_t id = next_++;

        if (id == 0) /* means none */
            id = next_++;
        Entry &entry = entries_[id % entries_.size()];
        entry.id = id;
        entry.text.assign(text);
        return id;
    }

    std::string get(uint32_t id)
    {
        std::lock_guard<std::mutex> hold(lock_);
        const Entry &entry = entries_[id % entries_.size()];

        return entry.id == id ? entry.text : "";
    }

  private:
    struct Entry {
        uint32_t id = 0;
        std::string text;
    };

    std::mutex lock_;
    uint32_t next_ = 1;
    std::array<Entry, 1024> entries_;
};

} /* namespace detail */

/*
 * The outcome of a call: 0 or a negative enum te_err. It converts to int and takes one, so `int rc =
 * engine.submitTransfer(...)`, `status == 0`, `status < 0`, `status == Status::OK()`, `status ==
 * Status::Code::kBatchBusy`, `status = -1` and `if (!status.ok())` all mean what they say, and `std::cout
 * << status` prints ToString(). (`if (status)` is true on an error, as it is for an int.) It is an int to the calling
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

    /* With a text of the program's own, "" too. */
    Status(Code code, std::string_view text)
        : rc_(static_cast<int>(code)), text_(detail::StatusTexts::all().add(text))
    {
    }

    Status &operator=(int rc)
    {
        rc_ = rc;
        text_ = 0;
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

    /* Of each code a maker, Status::BatchBusy("why"), and a question, status.IsBatchBusy(). */
#define MOONCAKE_STATUS_CODE(name, error)          \
    static Status name(std::string_view text = {}) \
    {                                              \
        return Status(Code::k##name, text);        \
    }                                              \
                                                   \
    bool Is##name() const                          \
    {                                              \
        return rc_ == TE_ERR_##error;              \
    }
    MOONCAKE_STATUS_CODES(MOONCAKE_STATUS_CODE)
#undef MOONCAKE_STATUS_CODE

    Code code() const
    {
        return static_cast<Code>(rc_);
    }

    /*
     * What exactly was wrong, "" of what succeeded. Of a call of the engine te_errmsg(), so it is to be
     * asked in the thread of the call, before another one fails there; of a Status that the program made
     * the text it gave, until 1024 others were made.
     */
    std::string message() const
    {
        if (text_)
            return detail::StatusTexts::all().get(text_);
        return ok() ? "" : te_errmsg();
    }

    /* "OK", or the name of the error and the message. */
    std::string ToString() const
    {
        if (ok())
            return "OK";
        return std::string(te_errname(rc_)) + ": " + message();
    }

    friend std::ostream &operator<<(std::ostream &out, const Status &status)
    {
        return out << status.ToString();
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

    /* As ints: the text is not compared. */
    friend bool operator==(const Status &one, const Status &other)
    {
        return one.rc_ == other.rc_;
    }

    friend bool operator!=(const Status &one, const Status &other)
    {
        return one.rc_ != other.rc_;
    }

  private:
    int rc_ = 0;        /* first: what "%d" takes */
    uint32_t text_ = 0; /* 0: none of its own */
};

#undef MOONCAKE_STATUS_CODES

static_assert(std::is_trivially_copyable_v<Status> && sizeof(Status) == 2 * sizeof(int));

} /* namespace mooncake */

#endif
