/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_engine.hpp - the C++ class of Mooncake's Transfer Engine, over te.h. Header only, C++17; its
 * parts are in mooncake/, by the names that programs for Mooncake include.
 *
 * A program written for Mooncake's C++ interface compiles with this header, whichever version of the
 * interface it was written for; where versions disagree, all of their calls are here. te.h is the
 * richer interface, and native() gives the engine for its functions: te_wait() instead of polling,
 * te_cancel(), deadlines, te_stats().
 *
 *     mooncake::TransferEngine engine;
 *     engine.init("etcd://10.0.0.1:2379", "node-a");
 *     engine.registerLocalMemory(buffer, length);
 *     auto peer = engine.openSegment("node-b");
 *     auto batch = engine.allocateBatchID(1);
 *     engine.submitTransfer(batch, {{mooncake::TransferRequest::WRITE, buffer, peer, remote, length}});
 *     mooncake::TransferStatus status;
 *     do
 *         engine.getTransferStatus(batch, 0, status);
 *     while (status.s == mooncake::TransferStatusEnum::WAITING);
 *     engine.freeBatchID(batch);
 *
 * Conventions
 *   Errors      Nothing here throws but std::bad_alloc, and std::system_error where a mutex cannot be
 *               locked. An int is 0 on success and a negative enum te_err otherwise, an id
 *               INVALID_SEGMENT_ID or INVALID_BATCH_ID, a pointer NULL. te_errmsg() says in the calling
 *               thread what was wrong. A call before init() is an error (TE_ERR_INVALID), never a crash.
 *   Status      What the calls of a batch return: an int to those who want an int, and an object with
 *               ok(), code() and message() to those who want that.
 *   Threads     Every method may be called from any thread at any time; only the destructor,
 *               freeEngine() and moves must not run while another call of the engine or of one of its
 *               transports does. For calls of its metadata object they wait.
 *   Symbols     The class has the name of Mooncake's, and so have the symbols of its methods. A process
 *               must not load both: one's methods would be called with the other's objects.
 *   Lifetimes   Strings, vectors and what they hold are read during the call and never after. Buffers
 *               named by a request are borrowed until it is shown terminal. Pointers and metadata
 *               objects got from an engine stay valid as long as they are said to below.
 *   Units       Lengths and offsets are bytes.
 *   fork        A child must not use its parent's engine: every call is an error there.
 */
#ifndef TRANSFER_ENGINE_HPP
#define TRANSFER_ENGINE_HPP

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mooncake/detail/engine.h"
#include "mooncake/detail/scatter.h"
#include "mooncake/detail/status.h"
#include "mooncake/detail/types.h"
#include "mooncake/multi_transport.h"
#include "mooncake/topology.h"
#include "mooncake/transfer_metadata.h"
#include "mooncake/transport/transport.h"
#include "te.h"

namespace mooncake
{

namespace detail
{

/* Engines of this process withdraw their segments on SIGTERM and SIGINT. */
inline std::atomic<bool> graceful_shutdown{false};

} /* namespace detail */

/*
 * An engine: threads, sockets, registered memory, and the segment by which others reach that memory.
 * Built idle, started by init(), which may fail. It may be moved and not copied: what it was moved from
 * is as built anew.
 */
class TransferEngine : public BatchTransfer
{
  public:
    using NotifyDesc = TransferTypes::NotifyDesc;
#if MOONCAKE_HAS_SCATTER
    using ScatterTransferRange = mooncake::ScatterTransferRange;
    using ScatterTransferOperation = mooncake::ScatterTransferOperation;
#endif

    /* init() picks and installs transports, by the machine's NICs and the environment. */
    TransferEngine() : TransferEngine(true)
    {
    }

    /*
     * auto_discover false: none but the one within this process is installed, installTransport()
     * installs others. `filter` names the only NICs to use; empty: all.
     */
    explicit TransferEngine(bool auto_discover, const std::vector<std::string> &filter = {})
        : BatchTransfer(std::make_shared<detail::Engine>())
    {
        te_options_init(&options_);
        options_.auto_discover = auto_discover;
        topology_->engine_ = engine_;
        if (!filter.empty())
            setWhitelistFilters(filter);
    }

    /* A pointer, such as a connection string, is no bool. */
    template <class T> explicit TransferEngine(T *, const std::vector<std::string> & = {}) = delete;

    /*
     * For init(server_name, connectable_name, rpc_port); takes a std::unique_ptr, too. Transports are
     * the caller's to install. From init() on the object tells of this engine's segments, unless it
     * does of another's.
     */
    explicit TransferEngine(const std::shared_ptr<TransferMetadata> &metadata_client)
        : TransferEngine(false)
    {
        built_with_metadata_ = true;
        if (metadata_client)
            metadata_ = metadata_client->attach(engine_)
                            ? metadata_client
                            : metadata_of(metadata_client->connectionString());
    }

    /* Ids, transports, the topology and the metadata object go along and stay valid. */
    TransferEngine(TransferEngine &&other) : TransferEngine(false)
    {
        swap(other);
    }

    /* What was here before ends as by freeEngine(). */
    TransferEngine &operator=(TransferEngine &&other)
    {
        if (this != &other) {
            TransferEngine fresh(std::move(other));
            swap(fresh);
        }
        return *this;
    }

    /* As freeEngine(). */
    ~TransferEngine()
    {
        freeEngine();
        te_options_fini(&options_);
    }

    /*
     * Before init(): as the constructors' arguments. Names that cannot be taken make init() fail until
     * others are given. None: those of the environment's MC_TE_FILTERS, and all if there is no such.
     */
    void setAutoDiscover(bool auto_discover)
    {
        if (is_c_handle())
            return;
        std::lock_guard<std::mutex> hold(lock_);

        options_.auto_discover = auto_discover;
    }

    void setAutoDiscover(const AutoDiscoverConfig &config)
    {
        setAutoDiscover(config.enabled);
        if (config.protocol == "tcp")
            setOption("MC_FORCE_TCP", "1");
    }

    void setWhitelistFilters(const std::vector<std::string> &filters)
    {
        if (is_c_handle())
            return;
        const char *others = filters.empty() ? std::getenv("MC_TE_FILTERS") : nullptr;
        std::string list = others ? others : "";

        for (const std::string &filter : filters)
            list += (list.empty() ? "" : ",") + filter;
        filters_rc_ = setOption("MC_TE_FILTERS", list);
    }

    /* Before init(): one option by the name of its environment variable, see te_option_set(). */
    int setOption(const std::string &name, const std::string &value)
    {
        if (is_c_handle())
            return refuse();
        std::lock_guard<std::mutex> hold(lock_);

        return te_option_set(&options_, name.c_str(), value.c_str());
    }

    /*
     * Starts the engine: binds its ports, starts its threads, publishes its segment. Blocks for as long
     * as the metadata server takes to answer. An engine that runs answers -1 (TE_ERR_INVALID), and so does
     * one that was built for the other form of init(), or whose filters could not be taken; te_errmsg() is
     * not to be asked then, since it speaks of an earlier failure. After a failure init() may be called
     * again.
     *
     * What two strings mean is decided by how the object was built. Without TransferMetadata:
     *   init(metadata_conn_string, local_server_name)
     * and with it, then with the port of the name or else 12345:
     *   init(server_name, connectable_name)
     *
     * metadata_conn_string   P2PHANDSHAKE, "etcd://host:port[,host:port]", "redis://host:port",
     *                        "http://host:port/path"; without a scheme it is etcd
     * local_server_name,     the name of this engine's segment, unique in the cluster, without '/'; with
     * server_name            P2PHANDSHAKE the name becomes host:port, see getLocalIpAndPort()
     */
    int init(const std::string &metadata_conn_string, const std::string &local_server_name)
    {
        if (is_c_handle())
            return refuse();
        if (built_with_metadata_)
            return init(metadata_conn_string, local_server_name,
                        default_port(metadata_conn_string));
        return start(metadata_conn_string, local_server_name, "", 0);
    }

    /*
     * The same with the address that peers are told ("": as with two arguments) and the port for RPC,
     * 0 for that of the name, or any; without it that of the name, or 12345. A port that is taken is
     * replaced by another of the range of ports, with a warning. For an object that was built without
     * TransferMetadata.
     */
    int init(const std::string &metadata_conn_string, const std::string &local_server_name,
             const std::string &ip_or_host_name)
    {
        return init(metadata_conn_string, local_server_name, ip_or_host_name,
                    default_port(local_server_name));
    }

    int init(const std::string &metadata_conn_string, const std::string &local_server_name,
             const std::string &ip_or_host_name, uint64_t rpc_port)
    {
        if (is_c_handle())
            return refuse();
        if (built_with_metadata_)
            return TE_ERR_INVALID;
        return start(metadata_conn_string, local_server_name, ip_or_host_name, rpc_port);
    }

    /* The oldest form, for an object that was built with TransferMetadata. */
    int init(const std::string &server_name, const std::string &connectable_name, uint64_t rpc_port)
    {
        std::shared_ptr<TransferMetadata> metadata = getMetadata();

        if (is_c_handle())
            return refuse();
        if (!built_with_metadata_ || !metadata)
            return TE_ERR_INVALID;
        return start(metadata->connectionString(), server_name, connectable_name, rpc_port);
    }

    /*
     * Ends all transfers, withdraws the segment from the metadata and joins all threads; batches,
     * segments and registrations are gone. When it returns no memory of the caller is touched again.
     * init() may follow.
     */
    int freeEngine()
    {
        if (is_c_handle())
            return refuse();
        std::lock_guard<std::mutex> hold(lock_);

        engine()->close();
        return 0;
    }

    /* "host:port" of the RPC listener as peers are told it, an IPv6 host in brackets. "" on an error. */
    std::string getLocalIpAndPort()
    {
        char text[512] = "";

        return te_engine_addr(native(), text, sizeof(text)) ? "" : text;
    }

    /* The port of that, or a negative error. */
    int getRpcPort()
    {
        std::string address = getLocalIpAndPort();
        size_t colon = address.rfind(':');
        int port = 0;

        if (colon == std::string::npos)
            return TE_ERR_INVALID;
        for (size_t i = colon + 1; i < address.size(); i++)
            port = port * 10 + (address[i] - '0');
        return port;
    }

    /* The object of the metadata server; NULL before init(), unless the engine was built with one. */
    std::shared_ptr<TransferMetadata> getMetadata()
    {
        if (is_c_handle())
            return nullptr;
        std::lock_guard<std::mutex> hold(lock_);

        return metadata_;
    }

    /*
     * The topology that this engine goes by, always the same object: what its parse() and disableDevice()
     * do, the engine does. Each call of this brings it up to date.
     */
    std::shared_ptr<Topology> getLocalTopology()
    {
        if (is_c_handle())
            return std::make_shared<Topology>();
        std::lock_guard<std::mutex> hold(lock_);

        topology_->look(*engine());
        return topology_;
    }

    std::string getLocalTopologyString()
    {
        return getLocalTopology()->toString();
    }

    /*
     * The NICs and the topology as text, or as JSON; see te_links(). Before init() those of the machine.
     * "" on an error.
     */
    std::string showLinks(bool json = false) const
    {
        detail::Engine alone;
        const bool runs = native();

        if (!runs)
            alone.open_alone();
        return detail::text_of([&](char *buf, size_t n) {
            return te_links(runs ? native() : alone.get(), json ? 1 : 0, buf, n);
        });
    }

    /* The number of NICs that "rdma" uses; 0 where that is not installed. */
    int numContexts() const
    {
        int used = 0;

        for (const detail::Json &nic : links())
            used += nic["used"].is_true();
        return used;
    }

    /* The NICs that "rdma" uses, none where that is not installed. */
    Status getNicLoadStats(std::vector<NicLoadStats> &stats) const
    {
        stats.clear();
        for (const detail::Json &nic : links())
            if (nic["inflight_bytes"].kind() == detail::Json::NUMBER)
                stats.push_back({nic["device"].text(), nic["inflight_bytes"].number(),
                                 nic["bandwidth_bps"].real()});
        return native() ? Status::OK() : Status(te_links(nullptr, 0, nullptr, 0));
    }

    /* Whether "tcp" is installed and "rdma" is not. */
    bool isTcpOnly() const
    {
        for (const detail::Json &nic : links())
            if (nic["source"].text() == "rdma_transport")
                return false;
        return is_installed("tcp");
    }

    /* There is one engine here, which is none of Mooncake's two. */
    bool isUsingTent() const
    {
        return false;
    }

    /* Of memory that only CXL has. */
    void *getBaseAddr() const
    {
        return nullptr;
    }

    /*
     * SIGTERM and SIGINT withdraw the segments of this process and end it, with 128 + signal; see
     * te_shutdown_on_signal(). From now on, also before init(), and for engines to come. Forked children
     * end so, too, and withdraw what they have themselves.
     */
    int enableGracefulShutdown()
    {
        detail::Engine
            alone; /* the signals are watched from the first engine on that asks for it */
        int rc = native() ? 0 : alone.open_alone();

        detail::graceful_shutdown = true;
        return rc ? rc : te_shutdown_on_signal(native() ? native() : alone.get());
    }

    /* ---- transports ---- */

    /*
     * Installs a transport: "tcp", "rdma", "nvmeof", "nvlink", ... (docs/transports.md). Installed
     * already: gives that one. NULL on an error. `args` is NULL, or {text, NULL}: the text is a NIC
     * priority matrix as JSON (class Topology), or for "nvmeof" the path at or below which files may be
     * opened, beside TE_FILE_PATHS.
     */
    Transport *installTransport(const std::string &proto, void **args = nullptr)
    {
        const char *arg = args ? static_cast<const char *>(args[0]) : nullptr;

        if (te_transport_install(native(), proto.c_str(), arg))
            return nullptr;
        std::lock_guard<std::mutex> hold(lock_);
        std::unique_ptr<Transport> &transport = transports_[proto];
        if (!transport)
            transport = Transport::make(engine(), proto);
        return transport.get();
    }

    Transport *installOrGetTransport(const std::string &proto, void **args)
    {
        return installTransport(proto, args);
    }

    /*
     * The transport of that name if it is installed, by whomever; else NULL. For the start of a program:
     * it takes some time to find out, and a page of memory is registered meanwhile.
     */
    Transport *getTransport(const std::string &proto)
    {
        return is_installed(proto) ? installTransport(proto) : nullptr;
    }

    /* TE_ERR_BUSY while transfers use it, TE_ERR_NOT_FOUND if it is not installed. */
    int uninstallTransport(const std::string &proto)
    {
        return te_transport_uninstall(native(), proto.c_str());
    }

    /* ---- memory ---- */

    /*
     * Registers [addr, addr + length), which must stay mapped until it is unregistered. `location` is
     * "cpu:N", "cuda:N", "hip:N" or "*": find out. Not remote_accessible: for the local sides of
     * requests only, peers neither see nor reach it. TE_ERR_OVERLAP if a byte of it is registered
     * already. What is registered is always published at once, whatever update_metadata says.
     */
    int registerLocalMemory(void *addr, size_t length,
                            const std::string &location = detail::any_location,
                            bool remote_accessible = true, bool update_metadata = true)
    {
        (void)update_metadata;
        int rc = te_register(native(), addr, length, location.c_str(),
                             remote_accessible ? TE_REMOTE_RW : TE_LOCAL_ONLY);

        if (rc == 0)
            engine()->add_regions({{addr, length}});
        return rc;
    }

    /*
     * Undoes the registration that begins at `addr`. TE_ERR_BUSY while requests of this engine use it.
     * When it returns 0, no peer can touch the memory any more.
     */
    int unregisterLocalMemory(void *addr, bool update_metadata = true)
    {
        (void)update_metadata;
        int rc = te_unregister(native(), addr);

        if (rc == 0)
            engine()->drop_regions({addr});
        return rc;
    }

    /* All or none, with one publish; remote_accessible. */
    int registerLocalMemoryBatch(const std::vector<BufferEntry> &buffer_list,
                                 const std::string &location = detail::any_location)
    {
        std::vector<te_buffer> buffers;

        for (const BufferEntry &b : buffer_list)
            buffers.push_back({b.addr, b.length});
        int rc = te_register_batch(native(), buffers.data(), buffers.size(), location.c_str(),
                                   TE_REMOTE_RW);
        if (rc == 0)
            engine()->add_regions(buffers);
        return rc;
    }

    /* Goes on after a failure, and returns the first; te_errmsg() may speak of another address. */
    int unregisterLocalMemoryBatch(const std::vector<void *> &addr_list)
    {
        int rc = te_unregister_batch(native(), addr_list.data(), addr_list.size());
        std::vector<void *> gone;

        /* Which of them failed is only told one by one. */
        for (void *addr : addr_list) {
            int left = rc ? te_unregister(native(), addr) : 0;
            if (left == 0 || left == TE_ERR_NOT_REGISTERED)
                gone.push_back(addr);
        }
        engine()->drop_regions(gone);
        return rc;
    }

    /* Whether any of these bytes is registered, by the calls above. */
    bool checkOverlap(void *addr, uint64_t length)
    {
        return engine()->overlaps(reinterpret_cast<uintptr_t>(addr), length);
    }

    /* ---- segments ---- */

    /*
     * Opens the segment of that name; INVALID_SEGMENT_ID, which is -1, if it cannot be had. Leading '/'
     * are ignored. One's own name gives LOCAL_SEGMENT_ID. Files: "nvmeof/NAME", "file:///path", and
     * "NAME" after installTransport("nvmeof", ...); which ones, installTransport() and TE_FILE_PATHS say
     * (docs/nvmeof.md).
     */
    SegmentHandle openSegment(const std::string &segment_name)
    {
        SegmentID id = detail::no_segment;

        return engine()->open_segment(segment_name, id) ? detail::no_segment : id;
    }

    /* Each open has its close; the last one makes the id invalid. TE_ERR_BUSY while transfers use it. */
    int closeSegment(SegmentHandle segment_id)
    {
        return engine()->close_segment(segment_id);
    }

    /* Whether a segment is open. */
    Status CheckSegmentStatus(SegmentID segment_id)
    {
        size_t total = 0;

        return Status(te_segment_buffers(native(), segment_id, nullptr, 0, &total));
    }

    /* Fetches a descriptor again ("": of every open segment). Not needed for correctness. */
    int syncSegmentCache(const std::string &segment_name = "")
    {
        return te_refresh(native(), segment_name.empty() ? nullptr : segment_name.c_str());
    }

    /* Replaces the descriptor of a segment, if it is open, by a fresh one. */
    int removeLocalSegment(const std::string &segment_name)
    {
        int rc =
            native() && !segment_name.empty() ? syncSegmentCache(segment_name) : TE_ERR_INVALID;

        /* What is not open, or not there any more, has nothing to forget. */
        return rc == TE_ERR_INVALID ? rc : 0;
    }

    /* Asks the engine of an open segment, or of that name, whether it lives. te_errmsg(): why not. */
    PeerLiveness probePeerAliveByID(SegmentID target_id)
    {
        return probePeerAliveByID(engine()->name_of(target_id));
    }

    PeerLiveness probePeerAliveByID(const std::string &segment_name)
    {
        return te_probe(native(), segment_name.c_str()) ? Unreachable : Alive;
    }

    /* ---- batches and notifications, beside those of BatchTransfer ---- */

    /*
     * submitTransfer(), and when all of `entries` are COMPLETED, and only then, the message goes to the
     * target of the first. One with a NUL waits for what the batch had before, too. Whatever is wrong
     * with the message the log tells, and the requests go on. No entries: TE_ERR_INVALID, which
     * message() explains and te_errmsg() does not.
     */
    Status submitTransferWithNotify(BatchID batch_id, const std::vector<TransferRequest> &entries,
                                    const NotifyDesc &notify_msg)
    {
        te_submit_opts opts = {};

        if (entries.empty())
            return Status::InvalidArgument("a notification goes to the target of the first entry: "
                                           "there is none");
        if (detail::has_nul(notify_msg)) {
            Status submitted = submitTransfer(batch_id, entries);
            if (submitted.ok())
                (void)sendNotifyAfter(batch_id, entries[0].target_id, notify_msg);
            return submitted;
        }
        opts.size = sizeof(opts);
        opts.notify_name = notify_msg.name.c_str();
        opts.notify_msg = notify_msg.notify_msg.c_str();
        opts.notify_target = entries[0].target_id;
        return submit(batch_id, entries, &opts);
    }

    /* The batch as one: WAITING while any request is, COMPLETED if all are, else as the first failed. */
    Status getBatchTransferStatus(BatchID batch_id, TransferStatus &status)
    {
        struct te_status st;
        int rc = te_batch_status(native(), batch_id, &st);

        if (rc == 0)
            status = detail::status_of(st);
        return Status(rc);
    }

    /* Appends the messages received so far, oldest first, with all the bytes that they were sent with. */
    int getNotifies(std::vector<NotifyDesc> &notifies)
    {
        return engine()->take_notifies(notifies);
    }

    /*
     * Sends a message of any bytes; returns when the receiver has it. TE_ERR_REJECTED: its inbox is
     * full. TE_ERR_UNSUPPORTED: it is no text (UTF-8 without NUL), and the receiver an engine of
     * another make, or of the first release, 0.1.0. TE_ERR_TOO_LARGE: as te_notify_bytes().
     */
    int sendNotifyByID(SegmentID target_id, const NotifyDesc &notify_msg)
    {
        const te_message message = detail::message_of(notify_msg);

        return te_notify_bytes(native(), target_id, &message);
    }

    /*
     * Sends it when all that the batch has got so far is COMPLETED; not if any is not. Returns at once:
     * what the receiver does not take is told in the log. The message is copied.
     */
    int sendNotifyAfter(BatchID batch_id, SegmentID target_id, const NotifyDesc &notify_msg)
    {
        const te_message message = detail::message_of(notify_msg);

        return te_notify_after(native(), batch_id, target_id, &message);
    }

    int sendNotifyByName(const std::string &remote_agent, const NotifyDesc &notify_msg)
    {
        SegmentID id = detail::no_segment;
        int rc = engine()->open_segment(remote_agent, id);

        if (rc)
            return rc;
        rc = sendNotifyByID(id, notify_msg);
        closeSegment(id);
        return rc;
    }

    /*
     * ---- several protocols ----
     * Which one carries a request the engine decides by what the target has, each time: what is said of
     * protocols here chooses nothing. A buffer that is named for several is registered once, for all
     * that the engine has. TE_MULTI_PROTOCOL publishes it for tcp and rdma beside each other. cxl, maca
     * and musa: TE_ERR_UNSUPPORTED; a name other than these, hip, rdma and tcp: TE_ERR_INVALID, which
     * message() explains and te_errmsg() does not. Then nothing is registered or submitted.
     */

    int mp_registerLocalMemory(
        std::unordered_map<std::string, std::vector<RegisteredBuffer>> &buffers)
    {
        std::vector<void *> done;

        for (const auto &of_protocol : buffers)
            if (Status refused = check_protocol(of_protocol.first); !refused.ok())
                return refused;
        for (const auto &of_protocol : buffers)
            for (const RegisteredBuffer &b : of_protocol.second) {
                if (std::find(done.begin(), done.end(), b.addr) != done.end())
                    continue;
                int rc = registerLocalMemory(b.addr, b.length, b.location, b.remote_accessible);
                if (rc) {
                    unregisterLocalMemoryBatch(done);
                    return rc;
                }
                done.push_back(b.addr);
            }
        return 0;
    }

    int mp_unregisterLocalMemory(
        std::unordered_map<std::string, std::vector<RegisteredBuffer>> &buffers)
    {
        std::vector<void *> all;

        for (const auto &of_protocol : buffers)
            for (const RegisteredBuffer &b : of_protocol.second)
                if (std::find(all.begin(), all.end(), b.addr) == all.end())
                    all.push_back(b.addr);
        return unregisterLocalMemoryBatch(all);
    }

    Status mp_submitTransfer(BatchID batch_id, const std::vector<TransferRequest> &entries,
                             std::string &proto)
    {
        if (Status refused = check_protocol(proto); !refused.ok())
            return refused;
        return submitTransfer(batch_id, entries);
    }

    Status mp_submitTransferWithNotify(BatchID batch_id,
                                       const std::vector<TransferRequest> &entries,
                                       NotifyDesc notify_msg, std::string &proto)
    {
        if (Status refused = check_protocol(proto); !refused.ok())
            return refused;
        return submitTransferWithNotify(batch_id, entries, notify_msg);
    }

#if MOONCAKE_HAS_SCATTER
    /* ---- scattered pieces (C++20): see detail/scatter.h ---- */

    /* Begins to move all fragments of all ranges; on an error none, which wait() tells. */
    ScatterTransferOperation submitScatter(const std::vector<ScatterTransferRange> &ranges)
    {
        return ScatterTransferOperation(engine(), ranges);
    }

    Status transferScatter(const std::vector<ScatterTransferRange> &ranges)
    {
        return submitScatter(ranges).wait();
    }
#endif

  private:
    /* The error of what is not asked of the engine: TE_ERR_INVALID. */
    int refuse() const
    {
        return te_close(native(), TE_LOCAL_SEGMENT);
    }

    /* Of those that a segment of several has; what is not built in has the text of installing it. */
    Status check_protocol(const std::string &name) const
    {
        if (name == "tcp" || name == "rdma" || name == "hip")
            return Status::OK();
        if (name == "cxl" || name == "maca" || name == "musa")
            return Status(te_transport_install(native(), name.c_str(), nullptr));
        return Status::InvalidArgument("a segment of several protocols has none that is called '" +
                                       name + "'");
    }

    /* Of an engine by that name: none where "host:port" or "[IPv6]:port" has one. */
    static uint64_t default_port(const std::string &name)
    {
        size_t colon = name.rfind(':');
        bool after_host =
            colon != std::string::npos && colon > 0 && colon + 1 < name.size() &&
            (name.find(':') == colon || (name.front() == '[' && name[colon - 1] == ']'));

        return after_host && name.find_first_not_of("0123456789", colon + 1) == std::string::npos
                   ? 0
                   : 12345;
    }

    std::vector<detail::Json> links() const
    {
        return native() ? engine()->links().items() : std::vector<detail::Json>();
    }

    /* As te_explain() says it of a request from memory of this engine to itself. */
    bool is_installed(const std::string &proto) const
    {
        std::vector<char> page(4096), text(size_t{1} << 16);
        te_request request = {TE_READ, page.data(), TE_LOCAL_SEGMENT,
                              reinterpret_cast<uintptr_t>(page.data()), page.size()};
        const std::string line = "\ntransport " + proto + ": ";
        int registered = te_register(native(), page.data(), page.size(), "*", TE_LOCAL_ONLY);

        /* TE_ERR_OVERLAP: the program has registered all of its heap. */
        if (registered && registered != TE_ERR_OVERLAP)
            return false;
        te_explain(native(), &request, text.data(), text.size());
        if (registered == 0)
            te_unregister(native(), page.data());
        const std::string all(text.data());
        size_t at = all.find(line);
        return at != std::string::npos && all.compare(at + line.size(), 13, "not installed") != 0;
    }

    std::shared_ptr<TransferMetadata> metadata_of(const std::string &server)
    {
        auto metadata = std::make_shared<TransferMetadata>(server);

        metadata->attach(engine_);
        return metadata;
    }

    int start(const std::string &metadata, const std::string &name, const std::string &host,
              uint64_t rpc_port)
    {
        std::lock_guard<std::mutex> hold(lock_);

        if (engine()->get() || filters_rc_)
            return TE_ERR_INVALID;
        options_.metadata = metadata.c_str();
        options_.local_server_name = name.c_str();
        options_.ip_or_host_name = host.empty() ? nullptr : host.c_str();
        options_.rpc_port = rpc_port > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(rpc_port);
        int rc = engine()->open(options_);
        if (rc == 0)
            rc = finish_start();
        if (rc == 0 && !built_with_metadata_)
            metadata_ = metadata_of(metadata);
        return rc;
    }

    /* What was asked for before there was an engine. */
    int finish_start()
    {
        int rc = topology_->join(*engine());

        if (rc)
            engine()->close();
        else if (detail::graceful_shutdown)
            te_shutdown_on_signal(
                native()); /* has told the log if it cannot: no reason not to run */
        return rc;
    }

    void swap(TransferEngine &other)
    {
        std::swap(engine_, other.engine_);
        std::swap(built_with_metadata_, other.built_with_metadata_);
        filters_rc_ = other.filters_rc_.exchange(filters_rc_);
        std::swap(options_, other.options_);
        std::swap(metadata_, other.metadata_);
        std::swap(transports_, other.transports_);
        std::swap(topology_, other.topology_);
    }

    bool built_with_metadata_ = false;
    std::atomic<int> filters_rc_{0};
    std::mutex lock_; /* of what follows */
    te_options options_;
    std::shared_ptr<TransferMetadata> metadata_;
    std::map<std::string, std::unique_ptr<Transport>> transports_; /* never taken out of it */
    std::shared_ptr<Topology> topology_ = std::make_shared<Topology>();
};

} /* namespace mooncake */

#endif
