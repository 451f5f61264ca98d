/* SPDX-License-Identifier: Apache-2.0 */
/* topology.h - class Topology. See transfer_engine.hpp. */
#ifndef MOONCAKE_TOPOLOGY_H
#define MOONCAKE_TOPOLOGY_H

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "../te.h"
#include "detail/engine.h"
#include "detail/json.h"

namespace mooncake
{

/* The NICs of one location of memory: those to use first, and the others. */
struct TopologyEntry {
    std::string name;
    std::vector<std::string> preferred_hca;
    std::vector<std::string> avail_hca;

    bool operator==(const TopologyEntry &other) const
    {
        return name == other.name && preferred_hca == other.preferred_hca &&
               avail_hca == other.avail_hca;
    }

    bool operator!=(const TopologyEntry &other) const
    {
        return !(*this == other);
    }
};

/*
 * A NIC priority matrix, {"cpu:0":[[preferred],[others]], ...}: which NICs memory of each location uses
 * first. That of TransferEngine::getLocalTopology() is the engine's: what is changed there the engine
 * goes by, at once, or from init() on. A copy is nobody's. Threads may read an object at the same time,
 * and not while one changes it.
 */
class Topology
{
  public:
    Topology() = default;

    Topology(const Topology &other)
        : rows_(other.rows_), index_(other.index_), hcas_(other.hcas_), text_(other.text_)
    {
    }

    Topology &operator=(const Topology &other)
    {
        if (this != &other)
            take(other.rows_);
        return *this;
    }

    /* What this machine shows (some milliseconds); `filter` names the only NICs to look at. */
    int discover(const std::vector<std::string> &filter = {})
    {
        detail::Engine engine;
        std::string text;
        int rc = open_briefly(engine, filter);

        if (rc == 0)
            text = detail::text_of(
                [&](char *buf, size_t n) { return rc = te_topology_json(engine.get(), buf, n); });
        return rc ? rc : change(rows_of(text));
    }

    /* Takes a matrix over. TE_ERR_JSON: it is none, and the old one stays. */
    int parse(const std::string &topology_json)
    {
        detail::Engine engine;
        int rc = open_briefly(engine, {});

        if (rc == 0)
            rc = te_transport_install(engine.get(), "local", topology_json.c_str());
        return rc ? rc : change(rows_of(topology_json));
    }

    /* Takes a NIC out of all lists. One that is in none is no error. */
    int disableDevice(const std::string &device_name)
    {
        std::vector<TopologyEntry> rows = rows_;
        const auto drop = [&](std::vector<std::string> &list) {
            list.erase(std::remove(list.begin(), list.end(), device_name), list.end());
        };

        if (std::find(hcas_.begin(), hcas_.end(), device_name) == hcas_.end())
            return 0;
        for (TopologyEntry &row : rows) {
            drop(row.preferred_hca);
            drop(row.avail_hca);
        }
        return change(rows);
    }

    /* The matrix as JSON; valid until it changes. "{}" of an empty one. */
    const std::string &toString() const
    {
        return text_;
    }

    bool empty() const
    {
        return rows_.empty();
    }

    /* Forgets the matrix; an engine goes on by what it has. */
    void clear()
    {
        take({});
    }

    /* By location. Valid until it changes, as what getHcaList() gives. */
    const std::unordered_map<std::string, TopologyEntry> &getMatrix() const
    {
        return index_;
    }

    /* All NICs, in the order in which the matrix names them first. */
    const std::vector<std::string> &getHcaList() const
    {
        return hcas_;
    }

    /*
     * The place in getHcaList() of a NIC for memory at that location, "*" being anywhere. First one of
     * the preferred in turn, or if there are none of the others; with retry_count k > 0 number (k - 1) of
     * all of them, around and around. TE_ERR_NO_DEVICE: the location has no NIC, or there is none such.
     */
    int selectDevice(const std::string &storage_type, int retry_count = 0) const
    {
        const TopologyEntry row = row_of(storage_type);
        const std::vector<std::string> &first =
            row.preferred_hca.empty() ? row.avail_hca : row.preferred_hca;
        std::vector<std::string> all = row.preferred_hca;

        all.insert(all.end(), row.avail_hca.begin(), row.avail_hca.end());
        if (all.empty() || retry_count < 0)
            return TE_ERR_NO_DEVICE;
        if (retry_count == 0)
            return place_of(first[turn_.fetch_add(1, std::memory_order_relaxed) % first.size()]);
        return place_of(all[static_cast<size_t>(retry_count - 1) % all.size()]);
    }

    /* At first the NIC of that name, if the location has it. */
    int selectDevice(const std::string &storage_type, const std::string &hint,
                     int retry_count = 0) const
    {
        const TopologyEntry row = row_of(storage_type);
        const auto has = [&](const std::vector<std::string> &list) {
            return std::find(list.begin(), list.end(), hint) != list.end();
        };

        if (retry_count == 0 && (has(row.preferred_hca) || has(row.avail_hca)))
            return place_of(hint);
        return selectDevice(storage_type, retry_count);
    }

    int selectDevice(const std::string &storage_type, const char *hint, int retry_count = 0) const
    {
        return selectDevice(storage_type, std::string(hint), retry_count);
    }

    /* The same, for a peer's matrix and the name of the NIC on this side. */
    int selectDeviceByLocalHca(const std::string &storage_type, const std::string &local_hca,
                               int retry_count = 0) const
    {
        return selectDevice(storage_type, local_hca, retry_count);
    }

    bool operator==(const Topology &other) const
    {
        return index_ == other.index_;
    }

    bool operator!=(const Topology &other) const
    {
        return !(*this == other);
    }

  private:
    friend class TransferEngine;
    friend class TransferMetadata;

    /* An engine that nobody is told of. */
    static int open_briefly(detail::Engine &engine, const std::vector<std::string> &filter)
    {
        std::string list;

        for (const std::string &name : filter)
            list += (list.empty() ? "" : ",") + name;
        return engine.open_alone(list);
    }

    static std::vector<TopologyEntry> rows_of(const detail::Json &matrix)
    {
        std::vector<TopologyEntry> rows;

        for (size_t i = 0; i < matrix.keys().size(); i++) {
            const std::vector<detail::Json> &lists = matrix.items()[i].items();
            rows.push_back({matrix.keys()[i], {}, {}});
            if (!lists.empty())
                rows.back().preferred_hca = lists[0].texts();
            if (lists.size() > 1)
                rows.back().avail_hca = lists[1].texts();
        }
        return rows;
    }

    static std::vector<TopologyEntry> rows_of(const std::string &text)
    {
        return rows_of(detail::Json::parse(text));
    }

    void note_hcas(const std::vector<std::string> &list)
    {
        for (const std::string &hca : list)
            if (std::find(hcas_.begin(), hcas_.end(), hca) == hcas_.end())
                hcas_.push_back(hca);
    }

    static std::string text_of(const std::vector<TopologyEntry> &rows)
    {
        std::string text = "{";

        for (const TopologyEntry &row : rows)
            text += (text.size() > 1 ? "," : "") + detail::Json::quoted(row.name) + ":[" +
                    detail::Json::list(row.preferred_hca) + "," +
                    detail::Json::list(row.avail_hca) + "]";
        return text += '}';
    }

    void take(const std::vector<TopologyEntry> &rows)
    {
        if (rows == rows_)
            return;
        rows_ = rows;
        text_ = text_of(rows_);
        index_.clear();
        hcas_.clear();
        for (const TopologyEntry &row : rows_) {
            index_[row.name] = row;
            note_hcas(row.preferred_hca);
            note_hcas(row.avail_hca);
        }
    }

    /* Takes the rows once the engine whose matrix this is has done so. */
    int change(const std::vector<TopologyEntry> &rows)
    {
        std::shared_ptr<detail::Engine> engine = engine_.lock();
        const bool runs = engine && engine->get();
        int rc = runs && rows != rows_ ? engine->take_matrix(text_of(rows)) : 0;

        if (rc == 0)
            take(rows);
        if (rc == 0 && engine && !runs)
            given_ = true;
        return rc;
    }

    /* From init() on: the engine takes what was given before, or tells what it goes by. */
    int join(detail::Engine &engine)
    {
        int rc = given_ && !rows_.empty() ? engine.take_matrix(text_) : 0;

        given_ = false;
        look(engine);
        return rc;
    }

    void look(detail::Engine &engine)
    {
        if (engine.get())
            take(rows_of(detail::text_of(
                [&](char *buf, size_t n) { return te_topology_json(engine.get(), buf, n); })));
    }

    TopologyEntry row_of(const std::string &location) const
    {
        const auto found = index_.find(location);

        if (found != index_.end())
            return found->second;
        return {
            location, location == detail::any_location ? hcas_ : std::vector<std::string>(), {}};
    }

    int place_of(const std::string &hca) const
    {
        return static_cast<int>(std::find(hcas_.begin(), hcas_.end(), hca) - hcas_.begin());
    }

    std::vector<TopologyEntry> rows_; /* in the order of the text */
    std::unordered_map<std::string, TopologyEntry> index_;
    std::vector<std::string> hcas_;
    std::string text_ = "{}";
    mutable std::atomic<size_t> turn_{0};
    std::weak_ptr<detail::Engine> engine_;
    bool given_ = false; /* for the engine, once it runs */
};

/*
 * The matrix of this machine, as args[0] of installTransport("rdma", args) takes it. "" on an error.
 */
inline std::string discoverTopologyMatrix()
{
    Topology topology;

    return topology.discover() ? "" : topology.toString();
}

} /* namespace mooncake */

#endif
