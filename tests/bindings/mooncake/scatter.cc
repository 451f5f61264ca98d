/* SPDX-License-Identifier: Apache-2.0 */
/* In the manner of Mooncake's benchmark with scatter: fragments of one buffer to places in another. */
#include <chrono>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "transfer_engine.h"

#include "check.h"

using namespace mooncake;
using Range = TransferEngine::ScatterTransferRange;

static constexpr size_t length = 1 << 20;
static_assert(!std::is_copy_constructible_v<TransferEngine::ScatterTransferOperation>);
static_assert(std::is_move_constructible_v<TransferEngine::ScatterTransferOperation>);

int main()
{
    TransferEngine target, initiator;
    std::vector<char> local = random_bytes(length), remote(length), back(length);
    const std::vector<size_t> from = {0, 5000, 999}, to = {70000, 3, 200000}, n = {1000, 65537, 1};
    std::vector<size_t> done;

    CHECK(target.init(P2PHANDSHAKE, "127.0.0.1") == 0 &&
          initiator.init(P2PHANDSHAKE, "127.0.0.1") == 0);
    CHECK(target.registerLocalMemory(remote.data(), length) == 0);
    CHECK(initiator.registerLocalMemory(local.data(), length) == 0);
    CHECK(initiator.registerLocalMemory(back.data(), length) == 0);

    Range range;
    range.opcode = TransferRequest::WRITE;
    range.remote_segment = target.getLocalIpAndPort();
    range.remote_base_offset = (uint64_t)remote.data();
    range.remote_size = length;
    range.local_buffer = local.data();
    range.local_capacity = length;
    range.local_offsets = from;
    range.remote_offsets = to;
    range.lengths = n;
    range.on_fragment_complete = [&](size_t i, const Status &status) {
        CHECK(status.ok());
        done.push_back(i);
    };
    auto begun = initiator.submitScatter({range});
    TransferEngine::ScatterTransferOperation operation = std::move(begun);
    CHECK(!begun.wait().ok());
    Status status;
    do
        status = operation.waitFor(std::chrono::microseconds(100));
    while (status == TE_ERR_TIMEOUT);
    CHECK(status.ok() && operation.wait().ok() && operation.waitFor(std::chrono::seconds(0)).ok());
    CHECK((done == std::vector<size_t>{0, 1, 2}));
    for (size_t i = 0; i < n.size(); ++i)
        CHECK(memcmp(&remote[to[i]], &local[from[i]], n[i]) == 0);

    Range reverse = range;
    reverse.opcode = TransferRequest::READ;
    reverse.local_buffer = back.data();
    CHECK(initiator.transferScatter({reverse}).ok() && done.size() == 6);
    for (size_t i = 0; i < n.size(); ++i)
        CHECK(memcmp(&back[from[i]], &local[from[i]], n[i]) == 0);

    /* What leaves a bound, or is of two lengths, moves nothing. */
    Range wrong = range;
    wrong.remote_size = 200000;
    CHECK(initiator.transferScatter({wrong}).IsInvalidArgument());
    wrong = range;
    wrong.local_capacity = 70536;
    auto refused = initiator.submitScatter({range, wrong});
    CHECK(refused.wait().IsInvalidArgument() && refused.wait().message().find("fragment 1") == 0);
    wrong = range;
    wrong.lengths = std::span(n).first(2);
    CHECK(initiator.transferScatter({wrong}).IsInvalidArgument());
    wrong = range;
    wrong.remote_segment = "127.0.0.1:1";
    CHECK(!initiator.transferScatter({wrong}).ok());
    wrong = range;
    wrong.local_buffer = &wrong;
    CHECK(initiator.transferScatter({wrong}).IsAddressNotRegistered());
    CHECK(done.size() == 6);

    /* A range that the target does not have fails its fragments, each of which is told. */
    size_t failed = 0;
    wrong = range;
    wrong.remote_base_offset += 2 * length;
    wrong.on_fragment_complete = [&](size_t, const Status &one) { failed += !one.ok(); };
    CHECK(!initiator.transferScatter({wrong}).ok() && failed == 3);
    CHECK(initiator.transferScatter({}).ok());

    /* Nobody waits: the memory is free again once the object is gone. */
    {
        auto forgotten = initiator.submitScatter({range});
    }
    CHECK(initiator.unregisterLocalMemory(local.data()) == 0);
    return 0;
}
