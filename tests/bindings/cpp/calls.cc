/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call of transfer_engine.hpp with two engines of one process, those that the snippets do not
 * make, and misuse of all.
 */
#include "transfer_engine.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <netinet/in.h>
#include <sstream>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <unistd.h>

#include "transfer_engine_c.h"
#include "two.h"

using namespace mooncake;

static_assert(!std::is_copy_constructible_v<TransferEngine>);
static_assert(std::is_move_constructible_v<TransferEngine>);
static_assert(std::is_move_assignable_v<TransferEngine>);
static_assert(!std::is_copy_assignable_v<Transport> && !std::is_default_constructible_v<Transport>);
static_assert(!std::is_convertible_v<bool, TransferEngine>);
static_assert(std::is_constructible_v<TransferEngine, std::unique_ptr<TransferMetadata>>);
static_assert(std::is_constructible_v<TransferEngine, std::shared_ptr<TransferMetadata>>);
static_assert(std::is_constructible_v<TransferEngine, std::nullptr_t>);
static_assert(!std::is_constructible_v<TransferEngine, const char *>);
static_assert(!std::is_constructible_v<TransferEngine, const char (&)[7]>);
static_assert(!std::is_constructible_v<TransferEngine, TransferMetadata *>);
static_assert(std::is_same_v<TransferMetadata::NotifyDesc, NotifyDesc>);
static_assert(std::is_same_v<TransferMetadata::SegmentID, SegmentID>);
static_assert(std::is_trivially_copyable_v<Status>);
static_assert(INVALID_BATCH_ID == INVALID_BATCH && LOCAL_SEGMENT_ID == LOCAL_SEGMENT);

namespace
{

constexpr size_t length = (size_t{1} << 20) + 3;

struct Pair {
    std::vector<unsigned char> am =
        std::vector<unsigned char>(length); /* the buffers outlive the engines */
    std::vector<unsigned char> bm = am;
    TransferEngine a, b;
    SegmentHandle seg;

    Pair()
    {
        CHECK(a.init(P2PHANDSHAKE, "127.0.0.1") == 0);
        CHECK(b.init(P2PHANDSHAKE, "127.0.0.1", "", 0) == 0);
        CHECK(a.registerLocalMemory(am.data(), length) == 0);
        CHECK(b.registerLocalMemory(bm.data(), length) == 0);
        seg = a.openSegment(b.getLocalIpAndPort());
        CHECK(seg > 0);
    }

    TransferRequest request(TransferRequest::OpCode opcode, size_t at = 0, size_t n = length)
    {
        return {opcode, am.data() + at, seg, reinterpret_cast<uintptr_t>(bm.data()) + at, n};
    }
};

TransferStatus wait_for(TransferEngine &engine, BatchID batch, size_t task)
{
    TransferStatus status = {TransferStatusEnum::WAITING, 0};

    while (status.s == TransferEngine::WAITING)
        CHECK(engine.getTransferStatus(batch, task, status).ok());
    return status;
}

/* Every call, of an engine or transport that is not, or no more, there. */
void all_fail(TransferEngine &engine, Transport *transport)
{
    static unsigned char memory[64];
    std::vector<NotifyDesc> notifies;
    TransferStatus status = {TransferEngine::FAILED, 7};

    CHECK(engine.native() == nullptr);
    CHECK(engine.openSegment("x") < 0);
    CHECK(std::string(te_errmsg()).find("not created") != std::string::npos);
    CHECK(!engine.getTransport("tcp") && engine.numContexts() == 0 && !engine.isTcpOnly());
    CHECK(engine.getLocalIpAndPort().empty() && engine.getRpcPort() < 0);
    CHECK(!engine.installTransport("tcp") && !engine.installOrGetTransport("tcp", nullptr));
    CHECK(engine.uninstallTransport("tcp") == TE_ERR_INVALID);
    CHECK(engine.registerLocalMemory(memory, sizeof(memory)) == TE_ERR_INVALID);
    CHECK(engine.unregisterLocalMemory(memory) == TE_ERR_INVALID);
    CHECK(engine.registerLocalMemoryBatch({{memory, 1}}, "*") == TE_ERR_INVALID);
    CHECK(engine.unregisterLocalMemoryBatch({memory}) == TE_ERR_INVALID);
    CHECK(!engine.checkOverlap(memory, sizeof(memory)));
    CHECK(engine.openSegment("x") == INVALID_SEGMENT_ID &&
          engine.closeSegment(1) == TE_ERR_INVALID);
    CHECK(!engine.CheckSegmentStatus(0).ok() && !engine.CheckSegmentStatus(1).ok());
    CHECK(engine.syncSegmentCache() == TE_ERR_INVALID);
    CHECK(engine.removeLocalSegment("x") == TE_ERR_INVALID);
    CHECK(engine.allocateBatchID(1) == INVALID_BATCH_ID);
    CHECK(engine.submitTransfer(1, {}) == TE_ERR_INVALID);
    CHECK(engine.submitTransferWithNotify(1, {{}}, {"n", "m"}) == TE_ERR_INVALID);
    CHECK(engine.getTransferStatus(1, 0, status) == TE_ERR_INVALID);
    CHECK(engine.getBatchTransferStatus(1, status) == TE_ERR_INVALID);
    CHECK(engine.freeBatchID(1) == TE_ERR_INVALID);
    CHECK(status.s == TransferEngine::FAILED && status.transferred == 7);
    CHECK(engine.getNotifies(notifies) < 0 && notifies.empty());
    CHECK(engine.sendNotifyByID(1, {}) < 0 && engine.sendNotifyByName("x", {}) < 0);
    CHECK(engine.sendNotifyAfter(1, 1, {}) == TE_ERR_INVALID);
    CHECK(engine.probePeerAliveByID(1) < 0 && engine.probePeerAliveByID(0) < 0);
    CHECK(engine.showLinks().find("Local NICs") != std::string::npos);
    if (transport) {
        CHECK(transport->allocateBatchID(1) == INVALID_BATCH_ID);
        CHECK(transport->submitTransfer(1, {}).code() == Status::Code::kInvalidArgument);
        CHECK(transport->freeBatchID(1) < 0 && !transport->native());
    }
}

void before_and_after()
{
    TransferEngine engine(false);

    all_fail(engine, nullptr);
    CHECK(!engine.getMetadata() && engine.getLocalTopology()->empty());
    for (int i = 0; i < 2; i++) {
        CHECK(engine.init(P2PHANDSHAKE, "127.0.0.1") == 0);
        CHECK(engine.init(P2PHANDSHAKE, "127.0.0.1") == -1);
        Transport *transport = engine.installTransport("tcp");
        CHECK(transport && engine.native());
        auto metadata = engine.getMetadata();
        CHECK(metadata->connectionString() == P2PHANDSHAKE);
        CHECK(metadata->getSegmentDescByID(LOCAL_SEGMENT_ID)->name == engine.getLocalIpAndPort());
        CHECK(engine.freeEngine() == 0);
        all_fail(engine, transport);
        CHECK(!metadata->getSegmentDescByID(LOCAL_SEGMENT_ID));
        CHECK(!metadata->getSegmentDescByName("127.0.0.1:1"));
    }
}

/* Metadata that outlives its engine, calls of the other version, and what cannot be had. */
void wrong_init()
{
    std::shared_ptr<TransferMetadata> metadata;
    {
        TransferEngine engine;
        CHECK(engine.init("carrier-pigeon://here", "a") < 0);
        CHECK(std::string(te_errmsg()).find("carrier-pigeon") != std::string::npos);
        CHECK(engine.init("", "a") < 0);
        CHECK(engine.init(P2PHANDSHAKE, "a/b", "127.0.0.1") < 0);
        CHECK(engine.init(P2PHANDSHAKE, "127.0.0.1", "127.0.0.1", 65536) < 0);
        CHECK(engine.init("a", "127.0.0.1", 0) == -1);
        CHECK(engine.init(P2PHANDSHAKE, "127.0.0.1") == 0);
        metadata = engine.getMetadata();
    }
    CHECK(metadata && !metadata->getSegmentDescByID(LOCAL_SEGMENT_ID));

    TransferEngine none(std::unique_ptr<TransferMetadata>{});
    CHECK(none.init("a", "127.0.0.1") == -1 && none.init("a", "127.0.0.1", 0) == -1);

    TransferEngine old(std::make_shared<TransferMetadata>(P2PHANDSHAKE));
    CHECK(old.init(P2PHANDSHAKE, "127.0.0.1", "127.0.0.1", 0) == -1);
    CHECK(old.init("127.0.0.1", "127.0.0.1", 0) == 0 && old.getRpcPort() > 0);
    CHECK(!old.installTransport("pigeon") && !old.installTransport(""));
    CHECK(old.uninstallTransport("tcp") == TE_ERR_NOT_FOUND);

    CHECK(TransferMetadata("h:1").connectionString() == "etcd://h:1");
    CHECK(TransferMetadata("h:1/metadata", "http").connectionString() == "http://h:1/metadata");
    CHECK(TransferMetadata("http://h:1/m", "http").connectionString() == "http://h:1/m");
}

/* Who installed a transport does not matter, and asking for it leaves nothing behind. */
void installed_transports()
{
    Pair p;
    TransferEngine bare(false);
    struct te_stats stats = {};

    stats.size = sizeof(stats);
    CHECK(bare.init(P2PHANDSHAKE, "127.0.0.1") == 0);
    CHECK(!bare.getTransport("tcp") && !bare.getTransport("pigeon") && !bare.getTransport(""));
    CHECK(!bare.getTransport("tc") && bare.getTransport("local"));
    Transport *tcp = bare.installTransport("tcp");
    CHECK(tcp && bare.getTransport("tcp") == tcp);
    CHECK(bare.uninstallTransport("tcp") == 0 && !bare.getTransport("tcp"));
    CHECK(bare.installTransport("tcp") == tcp && bare.getTransport("tcp") == tcp);
    CHECK(te_stats(bare.native(), &stats) == 0 && stats.regions == 0);
    CHECK(p.a.getTransport("tcp") && std::string(p.a.getTransport("tcp")->getName()) == "tcp");

    CHECK(bare.showLinks().find("Local NICs") != std::string::npos);
    CHECK(bare.showLinks(true).find("\"local_nics\"") != std::string::npos);
    CHECK(bare.numContexts() == 0);
}

/* SIGTERM of a process that asked for it: forked before there are threads here. */
void graceful_shutdown()
{
    int state = 0;
    pid_t child = fork();

    if (child == 0) {
        TransferEngine engine(false);
        if (engine.init(P2PHANDSHAKE, "127.0.0.1") == 0 && engine.enableGracefulShutdown() == 0 &&
            kill(getpid(), SIGTERM) == 0)
            std::this_thread::sleep_for(std::chrono::seconds(60));
        _exit(1);
    }
    CHECK(child > 0 && waitpid(child, &state, 0) == child);
    CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 128 + SIGTERM);
}

void options()
{
    TransferEngine engine(true, {"mlx5_0", "mlx5_1"});

    CHECK(engine.setOption("MC_SLICE_SIZE", "131072") == 0);
    CHECK(engine.setOption("MC_SLICE_SIZE", "many") < 0);
    CHECK(engine.setOption("MC_NO_SUCH", "1") == TE_ERR_NOT_FOUND);
    engine.setWhitelistFilters({"mlx5_2"});
    engine.setAutoDiscover(false);
    CHECK(engine.init(P2PHANDSHAKE, "127.0.0.1") == 0);
    CHECK(engine.uninstallTransport("tcp") == TE_ERR_NOT_FOUND);
    engine.freeEngine();
    engine.setAutoDiscover(true);
    CHECK(engine.init(P2PHANDSHAKE, "127.0.0.1") == 0);
    CHECK(engine.uninstallTransport("tcp") == 0);

    TransferEngine endless(false, {std::string(1 << 20, 'x')});
    CHECK(endless.init(P2PHANDSHAKE, "127.0.0.1") < 0);
    endless.setWhitelistFilters({"mlx5_0"});
    CHECK(endless.init(P2PHANDSHAKE, "127.0.0.1") == 0);
    endless.freeEngine();
    endless.setWhitelistFilters({std::string(1 << 20, 'x')});
    CHECK(endless.init(P2PHANDSHAKE, "127.0.0.1") < 0);
    endless.setWhitelistFilters({});
    CHECK(endless.init(P2PHANDSHAKE, "127.0.0.1") == 0);
}

/* A port that nobody has at any address; another process may take it any time. */
std::string free_port()
{
    sockaddr_in address = {};
    socklen_t n = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY); /* as engines do */
    CHECK(fd >= 0 && bind(fd, reinterpret_cast<sockaddr *>(&address), n) == 0);
    CHECK(getsockname(fd, reinterpret_cast<sockaddr *>(&address), &n) == 0 && close(fd) == 0);
    return std::to_string(ntohs(address.sin_port));
}

/* Whether `init` of an engine whose name has a port gets that one. */
template <class Init> bool keeps_port(Init init)
{
    for (int i = 0; i < 10; i++) {
        std::string name = "127.0.0.1:" + free_port();
        if (init(name) == name)
            return true;
    }
    return false;
}

void ports_of_names()
{
    CHECK(keeps_port([](const std::string &name) {
        TransferEngine engine(false);
        CHECK(engine.init(P2PHANDSHAKE, name) == 0);
        return engine.getLocalIpAndPort();
    }));
    CHECK(keeps_port([](const std::string &name) {
        TransferEngine engine(false);
        CHECK(engine.init(P2PHANDSHAKE, name, "127.0.0.1") == 0);
        return engine.getLocalIpAndPort();
    }));
    CHECK(keeps_port([](const std::string &name) {
        TransferEngine engine(std::make_unique<TransferMetadata>(P2PHANDSHAKE));
        CHECK(engine.init(name, "127.0.0.1") == 0);
        return engine.getLocalIpAndPort();
    }));
    CHECK(keeps_port([](const std::string &name) {
        TransferEngine engine(false);
        CHECK(engine.init(P2PHANDSHAKE, "127.0.0.1:1", "127.0.0.1",
                          std::stoull(name.substr(name.find(':') + 1))) == 0);
        return engine.getLocalIpAndPort();
    }));
}

/* The program's own object is its engine's; of a second engine only once the first is gone. */
void own_metadata_object()
{
    auto own = std::make_shared<TransferMetadata>(P2PHANDSHAKE);

    CHECK(!own->getSegmentDescByID(LOCAL_SEGMENT_ID));
    for (int i = 0; i < 2; i++) {
        TransferEngine first(own), second(own);
        CHECK(!own->getSegmentDescByID(LOCAL_SEGMENT_ID));
        CHECK(first.init("127.0.0.1", "127.0.0.1", 0) == 0);
        CHECK(second.init("127.0.0.1", "127.0.0.1", 0) == 0);
        CHECK(first.getMetadata() == own && second.getMetadata() != own);
        CHECK(own->getSegmentDescByID(LOCAL_SEGMENT_ID)->name == first.getLocalIpAndPort());
        CHECK(second.getMetadata()->getSegmentDescByID(LOCAL_SEGMENT_ID)->name ==
              second.getLocalIpAndPort());
    }
    CHECK(!own->getSegmentDescByID(LOCAL_SEGMENT_ID));
}

/* Calls of metadata objects while their engines go. */
void metadata_against_destructor()
{
    for (int i = 0; i < 20; i++) {
        auto engine = std::make_unique<TransferEngine>(false);
        CHECK(engine->init(P2PHANDSHAKE, "127.0.0.1") == 0);
        auto metadata = engine->getMetadata();
        std::atomic<bool> gone{false}, begun{false};
        std::thread caller([&] {
            while (!gone) {
                CHECK(!metadata->getSegmentDescByName("127.0.0.1:1"));
                metadata->getSegmentDescByID(LOCAL_SEGMENT_ID);
                begun = true;
            }
        });
        while (!begun)
            std::this_thread::yield();
        if (i % 2)
            CHECK(engine->freeEngine() == 0);
        engine.reset();
        gone = true;
        caller.join();
        CHECK(!metadata->getSegmentDescByID(LOCAL_SEGMENT_ID));
    }
}

void topology()
{
    Topology t;
    TransferEngine engine(false);

    CHECK(t.empty() && t.discover() == 0 && t.discover({"none"}) == 0);
    CHECK(t.parse("{\"cpu:0\":[[\"m0\"],[]]}") == 0 && !t.empty());
    CHECK(t.parse("nonsense") < 0);
    CHECK(t.toString() == "{\"cpu:0\":[[\"m0\"],[]]}");
    CHECK(engine.init(P2PHANDSHAKE, "127.0.0.1") == 0);
    void *args[] = {const_cast<char *>(t.toString().c_str()), nullptr};
    CHECK(engine.installTransport("tcp", args));
    CHECK(engine.getLocalTopology()->toString() == t.toString());
    t.clear();
    CHECK(t.empty());
}

void status()
{
    Pair p;
    std::ostringstream out;
    Status bad = p.a.freeBatchID(12345);
    int as_int = bad;

    CHECK(!bad.ok() && bad && bad < 0 && bad != 0 && bad != Status::OK() && as_int == bad);
    CHECK(bad == TE_ERR_NOT_FOUND && bad.message().find("12345") != std::string::npos);
    CHECK(bad.ToString() == "TE_ERR_NOT_FOUND: " + bad.message());
    out << bad << " " << Status::OK();
    CHECK(out.str() == bad.ToString() + " OK");
    CHECK(Status().ok() && Status::OK() == 0 && Status::OK().code() == Status::Code::kOk);
    CHECK(Status::OK().ToString() == "OK" && Status::OK().message().empty());
    CHECK(Status::OK() == Status::Code::kOk && Status::Code::kBatchBusy != Status::OK());
    CHECK(Status(TE_ERR_BUSY) == Status::Code::kBatchBusy);
    /* What was deduced from one call takes the result of another, and is an int to printf(). */
    auto rc = p.a.freeBatchID(12345);
    char text[32];
    const std::string format = "%d %d %d";
    std::snprintf(text, sizeof(text), format.c_str(), 1, rc, 3);
    CHECK(text == "1 " + std::to_string(as_int) + " 3");
    rc = p.a.registerLocalMemory(nullptr, 1);
    CHECK(rc == TE_ERR_INVALID && (rc = Status::OK()).ok() && (rc = -1) < 0);
    CHECK(Status::BatchBusy("why").IsBatchBusy() && !Status::BatchBusy().IsOk());
    CHECK(Status::Memory(text).code() == Status::Code::kMemory && Status::Dns() == TE_ERR_DNS);
    CHECK(Status::NotSupportedTransport(format).IsNotSupportedTransport());
    CHECK(Status::OK().IsOk() && !Status::OK().IsInvalidArgument());
    CHECK((p.seg > 0 ? p.a.freeBatchID(12345) : -1) == bad);

    BatchID batch = p.a.allocateBatchID(1);
    CHECK(p.a.submitTransfer(batch, {p.request(TransferRequest::READ), {}}).code() ==
          Status::Code::kTooManyRequests);
    TransferRequest r = p.request(TransferRequest::READ);
    r.source = &r;
    CHECK(p.a.submitTransfer(batch, {r}).code() == Status::Code::kAddressNotRegistered);
    r = p.request(TransferRequest::READ);
    r.target_id = p.seg + 1000;
    CHECK(p.a.submitTransfer(batch, {r}) == TE_ERR_NOT_FOUND);
    r = p.request(TransferRequest::READ);
    r.target_offset += length;
    CHECK(p.a.submitTransfer(batch, {r}).ok());
    CHECK(wait_for(p.a, batch, 0).s == TransferStatusEnum::FAILED);
    TransferStatus st;
    CHECK(p.a.getBatchTransferStatus(batch, st).ok() && st.s == TransferEngine::FAILED);
    CHECK(p.a.getTransferStatus(batch, 1, st) < 0);
    CHECK(p.a.freeBatchID(batch).ok() && p.a.freeBatchID(batch) < 0);
    CHECK(p.a.submitTransfer(batch, {}) < 0 && p.a.submitTransfer(INVALID_BATCH_ID, {}) < 0);
}

/* More requests than are converted without memory from the heap; the batch as one. */
void batches()
{
    Pair p;
    const std::vector<unsigned char> content = two::bytes(7, length);
    std::vector<TransferRequest> entries;
    BatchID batch = p.a.allocateBatchID(100);
    TransferStatus st = {TransferStatusEnum::WAITING, 0};

    std::copy(content.begin(), content.end(), p.am.begin());
    for (const two::Piece &piece : two::cut(3, length / 40))
        for (size_t k = 0; k < 40 && entries.size() < 100; k++)
            entries.push_back(
                p.request(TransferRequest::WRITE, k * (length / 40) + piece.offset, piece.length));
    CHECK(entries.size() > 16 && p.a.submitTransfer(batch, entries) == 0);
    CHECK(te_wait(p.a.native(), batch, -1) == 0);
    CHECK(p.a.getBatchTransferStatus(batch, st) == 0 && st.s == TransferEngine::COMPLETED);
    CHECK(p.a.freeBatchID(batch) == 0);
    for (const TransferRequest &r : entries) {
        size_t at = r.target_offset - reinterpret_cast<uintptr_t>(p.bm.data());
        CHECK(std::memcmp(&p.bm[at], &content[at], r.length) == 0);
    }

    batch = p.a.allocateBatchID(1);
    te_submit_opts opts = {};
    opts.size = sizeof(opts);
    CHECK(p.a.submitTransfer(batch, {p.request(TransferRequest::READ)}) == 0);
    CHECK(te_cancel(p.a.native(), batch) == 0); /* without polling: */
    while (p.a.freeBatchID(batch) != 0)
        std::this_thread::yield();
}

void memory()
{
    Pair p;
    unsigned char *at = p.am.data();
    std::vector<unsigned char> one(4096), other(4096), hidden(4096);

    CHECK(p.a.registerLocalMemory(at + 1, 1) == TE_ERR_OVERLAP);
    CHECK(p.a.checkOverlap(at, 1) && p.a.checkOverlap(at + length - 1, 100));
    CHECK(p.a.checkOverlap(at - 1, 2) && !p.a.checkOverlap(at - 1, 1));
    CHECK(!p.a.checkOverlap(at + length, 1) && !p.a.checkOverlap(at, 0));
    CHECK(p.a.registerLocalMemoryBatch({{one.data(), 4096}, {at, 1}}, "*") == TE_ERR_OVERLAP);
    CHECK(!p.a.checkOverlap(one.data(), 4096));
    CHECK(p.a.registerLocalMemoryBatch({{one.data(), 4096}, {other.data(), 4096}}) == 0);
    CHECK(p.a.checkOverlap(one.data() + 1, 1) && p.a.checkOverlap(other.data(), 1));
    CHECK(p.a.unregisterLocalMemoryBatch({one.data(), other.data()}) == 0);
    CHECK(!p.a.checkOverlap(one.data(), 4096));
    CHECK(p.a.unregisterLocalMemoryBatch({one.data()}) == TE_ERR_NOT_REGISTERED);
    CHECK(p.a.unregisterLocalMemory(one.data()) == TE_ERR_NOT_REGISTERED);

    /* What went of a batch that failed does not count any more. */
    CHECK(p.a.registerLocalMemoryBatch({{one.data(), 4096}, {other.data(), 4096}}) == 0);
    CHECK(p.a.unregisterLocalMemoryBatch({one.data(), one.data() + 1, other.data()}) ==
          TE_ERR_NOT_REGISTERED);
    CHECK(!p.a.checkOverlap(one.data(), 4096) && !p.a.checkOverlap(other.data(), 4096));
    CHECK(p.a.checkOverlap(at, length));

    /* Memory for this side only is neither seen nor reached. */
    CHECK(p.b.registerLocalMemory(hidden.data(), 4096, "cpu:0", false, false) == 0);
    auto desc = p.a.getMetadata()->getSegmentDescByID(p.seg, true);
    CHECK(desc && desc->name == p.b.getLocalIpAndPort() && desc->buffers.size() == 1);
    CHECK(desc->buffers[0].addr == reinterpret_cast<uintptr_t>(p.bm.data()));
    CHECK(desc->buffers[0].length == length);
    CHECK(p.b.getMetadata()->getSegmentDescByID(LOCAL_SEGMENT_ID)->buffers.size() == 2);
    TransferRequest r = p.request(TransferRequest::READ, 0, 100);
    r.target_offset = reinterpret_cast<uintptr_t>(hidden.data());
    BatchID batch = p.a.allocateBatchID(1);
    CHECK(p.a.submitTransfer(batch, {r}).ok());
    CHECK(wait_for(p.a, batch, 0).s == TransferStatusEnum::FAILED);
    CHECK(p.a.freeBatchID(batch).ok());
    CHECK(p.b.unregisterLocalMemory(hidden.data(), false) == 0);
}

/* All buffers of a segment, of one's own and of another engine. */
void descriptions()
{
    Pair p;
    std::vector<unsigned char> more(9 * 8192);
    std::map<uint64_t, uint64_t> wanted = {{reinterpret_cast<uintptr_t>(p.bm.data()), length}};

    for (size_t i = 0; i < 9; i++) {
        CHECK(p.b.registerLocalMemory(&more[i * 8192], 4096 + i) == 0);
        wanted[reinterpret_cast<uintptr_t>(&more[i * 8192])] = 4096 + i;
    }
    for (auto &desc : {p.a.getMetadata()->getSegmentDescByID(p.seg, true),
                       p.a.getMetadata()->getSegmentDescByName(p.b.getLocalIpAndPort()),
                       p.b.getMetadata()->getSegmentDescByID(LOCAL_SEGMENT_ID)}) {
        std::map<uint64_t, uint64_t> found;
        CHECK(desc && desc->buffers.size() == wanted.size());
        for (const auto &b : desc->buffers)
            found[b.addr] = b.length;
        CHECK(found == wanted && desc->buffers[0].addr == wanted.begin()->first);
    }
}

void segments()
{
    Pair p;
    const std::string name = p.b.getLocalIpAndPort();
    auto metadata = p.a.getMetadata();

    CHECK(p.a.openSegment("") == -1 && p.a.openSegment("127.0.0.1:1") == -1);
    CHECK(std::string(te_errmsg()).find("127.0.0.1:1") != std::string::npos);
    CHECK(p.a.openSegment(p.a.getLocalIpAndPort()) == LOCAL_SEGMENT_ID);
    CHECK(p.a.openSegment("/" + name) == p.seg && p.a.closeSegment(p.seg) == 0);
    CHECK(p.a.CheckSegmentStatus(p.seg).ok() && p.a.CheckSegmentStatus(LOCAL_SEGMENT_ID).ok());
    CHECK(!p.a.CheckSegmentStatus(p.seg + 1).ok() && !p.a.CheckSegmentStatus(-1).ok());
    CHECK(p.a.syncSegmentCache() == 0 && p.a.syncSegmentCache(name) == 0);
    CHECK(p.a.removeLocalSegment(name) == 0 && p.a.removeLocalSegment("nobody") == 0);
    CHECK(p.a.removeLocalSegment("") == TE_ERR_INVALID);
    CHECK(metadata->getSegmentDescByName(name)->buffers.size() == 1);
    CHECK(!metadata->getSegmentDescByName("127.0.0.1:1") && !metadata->getSegmentDescByID(99));
    CHECK(p.a.probePeerAliveByID(p.seg) == 0 && p.a.probePeerAliveByID(name) == 0);
    CHECK(p.a.probePeerAliveByID("127.0.0.1:1") < 0 && p.a.probePeerAliveByID(p.seg + 1) < 0);
    CHECK(p.a.closeSegment(p.seg) == 0 && p.a.closeSegment(p.seg) < 0);
    CHECK(!p.a.CheckSegmentStatus(p.seg).ok() && p.a.probePeerAliveByID(p.seg) < 0);
}

void notifications()
{
    Pair p;
    std::vector<NotifyDesc> got;

    CHECK(p.b.getNotifies(got) == 0 && got.empty());
    CHECK(p.a.sendNotifyByID(p.seg, {"one", "1"}) == 0);
    CHECK(p.a.sendNotifyByName(p.b.getLocalIpAndPort(), {"two", std::string(3000, 'x')}) == 0);
    CHECK(p.a.sendNotifyByName("127.0.0.1:1", {"three", "3"}) < 0);
    BatchID batch = p.a.allocateBatchID(1);
    CHECK(p.a.submitTransferWithNotify(batch, {}, {"n", "m"}) == TE_ERR_INVALID);
    CHECK(p.a.submitTransferWithNotify(batch, {p.request(TransferRequest::WRITE)}, {"", "done"})
              .ok());
    CHECK(wait_for(p.a, batch, 0).s == TransferStatusEnum::COMPLETED);
    for (int i = 0; i < 6000 && got.size() < 3; i++) {
        CHECK(p.b.getNotifies(got) == 0);
        if (got.size() < 3)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(got.size() == 3 && got[0].name == "one" && got[0].notify_msg == "1");
    CHECK(got[1].name == "two" && got[1].notify_msg.size() == 3000);
    CHECK(got[2].name.empty() && got[2].notify_msg == "done");
    CHECK(p.a.freeBatchID(batch) == 0);
}

std::vector<NotifyDesc> receive(TransferEngine &engine, size_t n)
{
    std::vector<NotifyDesc> got;

    while (got.size() < n) {
        CHECK(engine.getNotifies(got) == 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(got.size() == n);
    return got;
}

/* Every value of a byte, NUL first, last and in the middle, in both directions and behind transfers. */
void notifications_of_any_bytes()
{
    Pair p;
    std::string all(513, '\0');

    for (size_t i = 0; i < all.size(); i++)
        all[i] = static_cast<char>(i);
    const NotifyDesc bytes = {all, std::string(all.rbegin(), all.rend())}, name_only = {all, ""};
    const auto same = [](const NotifyDesc &x, const NotifyDesc &y) {
        return x.name == y.name && x.notify_msg == y.notify_msg;
    };
    SegmentHandle back = p.b.openSegment(p.a.getLocalIpAndPort());

    CHECK(p.a.sendNotifyByID(p.seg, bytes) == 0);
    CHECK(p.a.sendNotifyByName(p.b.getLocalIpAndPort(), name_only) == 0);
    std::vector<NotifyDesc> got = receive(p.b, 2);
    CHECK(same(got[0], bytes) && same(got[1], name_only));
    CHECK(p.b.sendNotifyByID(back, bytes) == 0);
    CHECK(p.b.sendNotifyByID(LOCAL_SEGMENT_ID, name_only) == 0);
    got = receive(p.b, 1);
    CHECK(same(got[0], name_only));

    BatchID batch = p.a.allocateBatchID(1);
    CHECK(p.a.submitTransferWithNotify(batch, {p.request(TransferRequest::WRITE)}, bytes).ok());
    got = receive(p.b, 1);
    CHECK(same(got[0], bytes));
    CHECK(p.a.sendNotifyAfter(batch, p.seg, name_only) == 0);
    got = receive(p.b, 1);
    CHECK(same(got[0], name_only));
    CHECK(wait_for(p.a, batch, 0).s == TransferStatusEnum::COMPLETED);
    CHECK(p.a.freeBatchID(batch) == 0);
    CHECK(p.a.sendNotifyAfter(batch, p.seg, name_only) == TE_ERR_NOT_FOUND);
    CHECK(p.a.sendNotifyByID(p.seg, {std::string(size_t{64} << 20, '\0'), ""}) == TE_ERR_TOO_LARGE);
    got = receive(p.a, 1);
    CHECK(same(got[0], bytes));
}

/* Calls of one engine from many threads. */
void threads()
{
    Pair p;
    std::vector<std::thread> all;
    const size_t share = length / 8;

    std::copy_n(two::bytes(11, length).begin(), length, p.bm.begin());
    for (size_t t = 0; t < 8; t++)
        all.emplace_back([&, t] {
            Transport *transport = p.a.installTransport("tcp");
            SegmentHandle seg = p.a.openSegment(p.b.getLocalIpAndPort());
            CHECK(transport && seg == p.seg);
            for (uint64_t i = 0; i < 4; i++)
                two::move(p.a, TransferRequest::READ, p.am.data() + t * share, seg,
                          reinterpret_cast<uintptr_t>(p.bm.data()) + t * share, share, t + i);
            CHECK(!p.a.checkOverlap(&p, 1) && p.a.getMetadata() && p.a.closeSegment(seg) == 0);
        });
    for (std::thread &t : all)
        t.join();
    CHECK(std::memcmp(p.am.data(), p.bm.data(), 8 * share) == 0);
}

/* An engine, its ids and the C names are the same things. */
void mixed_with_c()
{
    Pair p;
    transfer_engine_t e = p.a.native();
    batch_id_t batch = allocateBatchID(e, 1);
    TransferRequest r = p.request(TransferRequest::WRITE);
    transfer_request_t entry = {OPCODE_WRITE, r.source, r.target_id, r.target_offset, r.length};

    std::copy_n(two::bytes(5, length).begin(), length, p.am.begin());
    CHECK(submitTransfer(e, batch, &entry, 1) == 0);
    CHECK(wait_for(p.a, batch, 0).s == TransferStatusEnum::COMPLETED);
    CHECK(p.am == p.bm && freeBatchID(e, batch) == 0);
}

/* A child has no engine, and its destructors do no harm. */
void forked()
{
    Pair p;
    int state = 0;
    pid_t child = fork();

    if (child == 0) {
        bool refused = p.a.openSegment("x") < 0 &&
                       p.a.registerLocalMemory(&state, 1) == TE_ERR_CLOSED &&
                       p.a.freeEngine() == 0 && p.b.freeEngine() == 0;
        _exit(refused ? 0 : 1);
    }
    CHECK(child > 0 && waitpid(child, &state, 0) == child && state == 0);
    std::copy_n(two::bytes(13, length).begin(), length, p.am.begin());
    two::move(p.a, TransferRequest::WRITE, p.am.data(), p.seg,
              reinterpret_cast<uintptr_t>(p.bm.data()), length, 1);
    CHECK(p.am == p.bm);
}

} /* namespace */

int main()
{
    te_log_set_level(TE_LOG_OFF);
    graceful_shutdown();
    before_and_after();
    wrong_init();
    installed_transports();
    options();
    ports_of_names();
    own_metadata_object();
    metadata_against_destructor();
    topology();
    status();
    batches();
    memory();
    descriptions();
    segments();
    notifications();
    notifications_of_any_bytes();
    threads();
    mixed_with_c();
    forked();
    std::puts("ok");
    return 0;
}
