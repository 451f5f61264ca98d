/* SPDX-License-Identifier: Apache-2.0 */
/* In the manner of Mooncake's test of Status: a maker and a question for each code, texts, and printing. */
#include "common/base/status.h"

#include <sstream>
#include <string>

#include "check.h"

using mooncake::Status;

#define ONE(name)                                                                               \
    do {                                                                                        \
        Status s = Status::name("of " #name);                                                   \
        CHECK(!s.ok() && !s.IsOk() && s.Is##name() && s.code() == Status::Code::k##name);       \
        CHECK(s.message() == "of " #name && s == Status::name() && s != Status::OK());          \
        CHECK(Status::name().message().empty());                                                \
        count += s.IsInvalidArgument() + s.IsTooManyRequests() + s.IsAddressNotRegistered() +   \
                 s.IsBatchBusy() + s.IsDeviceNotFound() + s.IsAddressOverlapped() +             \
                 s.IsNotSupportedTransport() + s.IsDns() + s.IsSocket() + s.IsMalformedJson() + \
                 s.IsRejectHandshake() + s.IsMetadata() + s.IsEndpoint() + s.IsContext() +      \
                 s.IsNuma() + s.IsClock() + s.IsMemory() + s.IsNotImplemented();                \
        ones++;                                                                                 \
    } while (0)

int main()
{
    int count = 0, ones = 0;
    std::ostringstream out;

    ONE(InvalidArgument);
    ONE(TooManyRequests);
    ONE(AddressNotRegistered);
    ONE(BatchBusy);
    ONE(DeviceNotFound);
    ONE(AddressOverlapped);
    ONE(NotSupportedTransport);
    ONE(Dns);
    ONE(Socket);
    ONE(MalformedJson);
    ONE(RejectHandshake);
    ONE(Metadata);
    ONE(Endpoint);
    ONE(Context);
    ONE(Numa);
    ONE(Clock);
    ONE(Memory);
    ONE(NotImplemented);
    CHECK(ones == 18 && count == 18);

    Status first = Status::Numa("first"), second = Status::Numa("second"), copy = first;
    CHECK(first == second && copy.message() == "first" && second.message() == "second");
    out << Status::OK() << "|" << first;
    CHECK(out.str() == "OK|" + first.ToString() &&
          first.ToString().find(": first") != std::string::npos);
    first = Status::OK();
    CHECK(first.ok() && first.message().empty() && Status().ok());
    return 0;
}
