/* SPDX-License-Identifier: Apache-2.0 */
/* multi_transport.h - class MultiTransport. See transfer_engine.hpp. */
#ifndef MOONCAKE_MULTI_TRANSPORT_H
#define MOONCAKE_MULTI_TRANSPORT_H

#include <memory>

#include "transfer_metadata.h"
#include "transport/transport.h"

namespace mooncake
{

/* All transports of an engine as one: the calls of a batch, of the engine whose metadata this is. */
class MultiTransport final : public BatchTransfer
{
  public:
    explicit MultiTransport(const std::shared_ptr<TransferMetadata> &metadata)
        : BatchTransfer(metadata->engine_or_none())
    {
    }
};

} /* namespace mooncake */

#endif
