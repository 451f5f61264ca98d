/* SPDX-License-Identifier: Apache-2.0 */
/* topology.h - class Topology. See transfer_engine.hpp. */
#ifndef MOONCAKE_TOPOLOGY_H
#define MOONCAKE_TOPOLOGY_H

#include <cstddef>
#include <string>
#include <vector>

#include "../te.h"
#include "detail/engine.h"

namespace mooncake
{

/*
 * A NIC priority matrix as JSON text, {"cpu:0":[[preferred],[others]], ...}: which NICs memory of each
 * location uses first.
 */
class Topology
{
  public:
    /* What this machine shows (some milliseconds); `filter` names the only NICs to look at. */
    int discover(const std::vector<std::string> &filter = {})
    {
        detail::Engine engine;
        int rc = open_briefly(engine, filter);

        if (rc)
            return rc;
        matrix_ = detail::text_of(
            [&](char *buf, size_t n) { return rc = te_topology_json(engine.get(), buf, n); });
        return rc;
    }

    /* Takes a matrix over. TE_ERR_JSON: it is none, and the old one stays. */
    int parse(const std::string &topology_json)
    {
        detail::Engine engine;
        int rc = open_briefly(engine, {});

        if (rc == 0)
            rc = te_transport_install(engine.get(), "local", topology_json.c_str());
        if (rc == 0)
            matrix_ = topology_json;
        return rc;
    }

    const std::string &toString() const
    {
        return matrix_;
    }

    bool empty() const
    {
        return matrix_.empty() || matrix_ == "{}";
    }

    void clear()
    {
        matrix_.clear();
    }

  private:
    friend class TransferEngine;

    /* An engine that nobody is told of. */
    static int open_briefly(detail::Engine &engine, const std::vector<std::string> &filter)
    {
        te_options options;
        std::string list;

        for (const std::string &name : filter)
            list += (list.empty() ? "" : ",") + name;
        te_options_init(&options);
        options.local_server_name = "127.0.0.1";
        options.auto_discover = 0;
        int rc = list.empty() ? 0 : te_option_set(&options, "MC_TE_FILTERS", list.c_str());
        if (rc == 0)
            rc = engine.open(options);
        te_options_fini(&options);
        return rc;
    }

    std::string matrix_;
};

/*
 * The matrix of this machine, as args[0] of installTransport("rdma", args) takes it. "" on an error.
 */
inline std::string discoverTopologyMatrix()
{
    Topology topology;

    topology.discover();
    return topology.toString();
}

} /* namespace mooncake */

#endif
