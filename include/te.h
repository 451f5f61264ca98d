/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te.h - the Transfer Engine's native interface.
 *
 * An engine moves bytes between memory that this process has registered and memory that other
 * engines have registered. The model has four nouns:
 *
 *   engine    one per process (more are allowed); owns threads, sockets, registered memory.
 *   region    a range of this process's memory, registered with te_register(); the source of every
 *             request lies in one.
 *   segment   everything one engine lets others reach, opened by name with te_open(); addressed by
 *             the owner's virtual addresses.
 *   batch     a bag of requests submitted with te_submit() and watched with te_status(), te_wait()
 *             or te_event_fd().
 *
 * Conventions
 *   Return values   int: 0 on success, a negative enum te_err otherwise; te_strerror() names it,
 *                   te_errmsg() says in the calling thread what exactly was wrong with the last
 *                   call that failed there.
 *   Threads         every function may be called from any thread at any time; te_engine_destroy()
 *                   must be the last call on its engine. A forked child must not use the parent's
 *                   engine: every call returns TE_ERR_CLOSED there.
 *   Lifetimes       arrays, strings and structs given to a call are read during the call and never
 *                   after. Data buffers named by a request are borrowed until that request is in a
 *                   terminal state (see te_state).
 *   Units           lengths and offsets are bytes; times carry their unit in their name.
 */
#ifndef TE_H
#define TE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
/* te_status and te_stats are a struct and a function each, as is usual in C. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#endif

#define TE_VERSION_MAJOR  0
#define TE_VERSION_MINOR  1
#define TE_VERSION_PATCH  0
#define TE_VERSION_STRING "0.1.0"

#if defined(__GNUC__)
#define TE_API __attribute__((visibility("default")))
#else
#define TE_API
#endif

/* The version of the library that is linked at run time, "major.minor.patch". Never NULL; static. */
TE_API const char *te_version(void);

/* --------------------------------------------------------------------------------------- errors */

/*
 * One row per error: name, number, class, text. The class says what a caller may do about it:
 *   OK       no error
 *   REQUEST  the call or request is wrong or refused; the same again fails again
 *   PATH     a link, connection or peer failed; another path or a later try may work
 *   FATAL    the engine or the host is at fault
 */
#define TE_ERR_MAP(X)                                                         \
    X(OK, 0, OK, "success")                                                   \
    X(INVALID, -1, REQUEST, "invalid argument")                               \
    X(TOO_MANY, -2, REQUEST, "too many requests for this batch")              \
    X(NOT_REGISTERED, -3, REQUEST, "address range is not registered")         \
    X(BUSY, -4, REQUEST, "still in use by unfinished transfers")              \
    X(NO_DEVICE, -6, FATAL, "device not found")                               \
    X(OVERLAP, -7, REQUEST, "address range overlaps a registered one")        \
    X(DNS, -101, PATH, "host name cannot be resolved")                        \
    X(SOCKET, -102, PATH, "socket operation failed")                          \
    X(JSON, -103, REQUEST, "malformed JSON")                                  \
    X(REJECTED, -104, REQUEST, "rejected by the peer")                        \
    X(METADATA, -200, PATH, "metadata operation failed")                      \
    X(ENDPOINT, -201, PATH, "endpoint operation failed")                      \
    X(CONTEXT, -202, FATAL, "device context failed")                          \
    X(NUMA, -300, FATAL, "NUMA operation failed")                             \
    X(CLOCK, -301, FATAL, "clock is unusable")                                \
    X(MEMORY, -302, FATAL, "out of memory")                                   \
    X(NOT_IMPLEMENTED, -303, REQUEST, "not implemented")                      \
    X(TIMEOUT, -400, PATH, "deadline passed")                                 \
    X(CANCELED, -401, REQUEST, "canceled")                                    \
    X(CLOSED, -402, REQUEST, "engine is closed")                              \
    X(NOT_FOUND, -403, REQUEST, "not found")                                  \
    X(PROTOCOL, -404, PATH, "peer broke the protocol")                        \
    X(LINK, -405, PATH, "connection lost during the transfer")                \
    X(PEER, -406, PATH, "peer cannot be reached")                             \
    X(STALE, -407, REQUEST, "target does not have this address range")        \
    X(ACCESS, -408, REQUEST, "target does not allow this access")             \
    X(UNSUPPORTED, -409, REQUEST, "not supported by this build or transport") \
    X(TOO_LARGE, -410, REQUEST, "too large for its channel")                  \
    X(EXISTS, -411, REQUEST, "exists already")                                \
    X(SYSTEM, -412, FATAL, "system call failed")

enum te_err {
#define TE_ERR_ENUM(name, number, class, text) TE_ERR_##name = (number),
    TE_ERR_MAP(TE_ERR_ENUM)
#undef TE_ERR_ENUM
};

/* The text of an error code, "unknown error" for a number that is none. Never NULL; static. */
TE_API const char *te_strerror(int err);

/* The name of an error code, "TE_ERR_TIMEOUT" for instance. Never NULL; static. */
TE_API const char *te_errname(int err);

/*
 * What exactly went wrong in the last call that failed in the calling thread, with names, numbers
 * and the remedy. "" when none did. Valid until the next call of this library in the same thread.
 */
TE_API const char *te_errmsg(void);

/* -------------------------------------------------------------------------------------- logging */

enum te_log_level {
    TE_LOG_TRACE,
    TE_LOG_DEBUG,
    TE_LOG_INFO,
    TE_LOG_WARN,
    TE_LOG_ERROR,
    TE_LOG_OFF
};

/*
 * Receives one line without newline. Called from any thread, the engine's own included: must not
 * block for long and must not call this library.
 */
typedef void (*te_log_sink)(void *arg, enum te_log_level level, const char *line);

/*
 * Sends log lines to `sink` (NULL: back to the default, stderr or the file that MC_LOG_DIR asks
 * for). Process-wide. The old sink may still be running in another thread when this returns.
 */
TE_API void te_log_set_sink(te_log_sink sink, void *arg);

/*
 * A sink for programs that read the log from a descriptor, such as a pipe, whose number is `arg`. Each
 * line is one write(): the number of its level, that of the thread (gettid), the line, with a space
 * between them, and a newline. No lock is taken; what a full pipe that does not block refuses is
 * dropped.
 */
TE_API void te_log_to_fd(void *arg, enum te_log_level level, const char *line);

/* Lines below `level` are dropped. The default is WARN, or what MC_LOG_LEVEL says. Process-wide. */
TE_API void te_log_set_level(enum te_log_level level);

/* -------------------------------------------------------------------------------------- options */

typedef struct te_engine te_engine;

/*
 * How to make an engine. Call te_options_init() first: it sets `size`, by which this library knows
 * what the program was compiled with. An older struct has the defaults beyond its end; of a newer
 * one, bytes beyond what this library knows must be zero. All strings are copied by
 * te_engine_create().
 */
typedef struct te_options {
    size_t size;
    /*
     * Where engines find each other: "P2PHANDSHAKE" (no server: a segment's name is its engine's
     * host:port), "http://host:port/path", "etcd://host:port[,host:port]", "redis://host:port"; a
     * bare "host:port" means etcd (docs/metadata.md). te_options_init() sets "P2PHANDSHAKE"; NULL is
     * refused.
     */
    const char *metadata;
    /*
     * Name of this engine's segment; must be unique in the cluster and hold no '/'. "host:port"
     * also asks for that RPC port. With P2PHANDSHAKE the name becomes host:port, whatever port was
     * got. Default: this machine's host name.
     */
    const char *local_server_name;
    /*
     * Address told to peers. Default: the host of local_server_name if given, else the address that
     * routes to the metadata.
     */
    const char *ip_or_host_name;
    /*
     * RPC (handshake) port, 0 for any of MC_MIN_RPC_PORT..MC_MAX_RPC_PORT. If taken, another of the
     * range is used, with a WARN.
     */
    uint32_t rpc_port;
    /*
     * Not 0: pick and install transports at create. 0: only "local"; the caller installs others.
     * Beside one to other hosts come those that go with it, by themselves: within this host, to
     * files, and, once memory of a device is registered, into such memory. Default: 1.
     */
    int auto_discover;
    /* Owned by the library: what te_option_set() added. */
    struct te_option_list *set;
} te_options;

/* What te_options_init() calls with the caller's idea of the struct: writes no more than `size`. */
TE_API void te_options_init_size(te_options *o, size_t size);

/*
 * Fills in the defaults. `o` must be released with te_options_fini() if te_option_set() was called
 * on it. A NULL `o` is accepted.
 */
static inline void te_options_init(te_options *o)
{
    te_options_init_size(o, sizeof(*o));
}

/*
 * Sets one option by the name of its environment variable ("MC_SLICE_SIZE", "65536"); beats the
 * environment. The full table is docs/config.md, or `te_info --config`. TE_ERR_NOT_FOUND for an
 * unknown name, TE_ERR_INVALID for a value out of range.
 */
TE_API int te_option_set(te_options *o, const char *name, const char *value);

/*
 * Writes what an option is in this process, as te_option_set() takes it: what was set in `o` (may be
 * NULL), else what the environment says, else the default. "***" for a secret that is given.
 * TE_ERR_NOT_FOUND for an unknown name, TE_ERR_TOO_LARGE when `n` is too small.
 */
TE_API int te_option_get(const te_options *o, const char *name, char *buf, size_t n);

/* Releases what te_option_set() added. `o` may be used again after te_options_init(). NULL is accepted. */
TE_API void te_options_fini(te_options *o);

/* --------------------------------------------------------------------------------------- engine */

/*
 * Makes and starts an engine: binds its ports, starts its threads, publishes its (empty) segment.
 * May block for as long as the metadata server takes to answer, MC_HANDSHAKE_CONNECT_TIMEOUT at
 * most a try. `o` NULL means the defaults. On failure *out is untouched and nothing is left behind.
 */
TE_API int te_engine_create(const te_options *o, te_engine **out);

/*
 * Ends all transfers (CANCELED), withdraws the segment, joins all threads, frees everything. Ids of
 * this engine are dead after it. When it returns no memory of the caller is touched again, unless a
 * process of this host was stopped in the middle of writing to it (see te_unregister()) and goes on
 * later. NULL is accepted.
 */
TE_API void te_engine_destroy(te_engine *e);

/*
 * Writes "host:port" of the RPC listener as peers are told it, an IPv6 host in brackets.
 * TE_ERR_INVALID if `n` is too small.
 */
TE_API int te_engine_addr(te_engine *e, char *buf, size_t n);

/* Writes the name of this engine's segment, the one peers pass to te_open(). */
TE_API int te_engine_name(te_engine *e, char *buf, size_t n);

/* ----------------------------------------------------------------------------------- transports */

/*
 * Installs a transport ("tcp", ...) that auto_discover did not. Regions registered before become
 * reachable through it. Installing one twice is no error. `arg` is NULL, or what the transport is to
 * use: a NIC priority matrix as JSON; for "nvmeof", which auto_discover always installs, an absolute
 * path: from then on files may be opened at or below it, as below those of TE_FILE_PATHS, and no others.
 * Naming "nvmeof", with a path or without, also lets te_open() take a bare name for one of files.
 * A transport of NICs that runs by another matrix is opened anew, TE_ERR_BUSY while transfers use
 * it: the new one takes its place at once, requests submitted meanwhile go by one or the other, and
 * those that begin just then are waited for. Peers connect again. If it cannot be opened, all is as
 * it was.
 * TE_ERR_UNSUPPORTED when it is not built in or cannot run on this host; te_errmsg() says which and
 * why.
 */
TE_API int te_transport_install(te_engine *e, const char *name, const char *arg);

/*
 * Removes one and publishes the segment without it. TE_ERR_BUSY while transfers use it: requests that
 * come meanwhile may find that it is gone. TE_ERR_BUSY, too, while a WRITE that was cancelled, late or
 * broken off may still be applied at its target, for which only this transport can have later ones wait.
 * TE_ERR_NOT_FOUND if not installed.
 */
TE_API int te_transport_uninstall(te_engine *e, const char *name);

/*
 * Writes the NIC priority matrix, {"cpu:0":[[preferred],[others]], ...}, NUL-terminated: the one
 * given with te_transport_install() or MC_CUSTOM_TOPO_JSON, else what the machine shows, which is
 * looked at anew each time (some milliseconds).
 * TE_ERR_TOO_LARGE when `n` is too small; te_errmsg() says how much is needed.
 */
TE_API int te_topology_json(te_engine *e, char *buf, size_t n);

/* --------------------------------------------------------------------------------------- memory */

/* What peers may do with a region. 0 means nothing: the region serves local sides of requests only. */
enum te_access {
    TE_REMOTE_READ = 1,
    TE_REMOTE_WRITE = 2,
    TE_REMOTE_RW = 3,
    TE_LOCAL_ONLY = 0,
};

typedef struct te_buffer {
    void *addr;
    size_t length;
} te_buffer;

/*
 * Registers [addr, addr + length). `location` is "cpu:N", "cuda:N", "hip:N", "npu:N" (also
 * "ascend:N"), "musa:N", "maca:N", "supa:N" or "*" (also NULL): detect. Memory of a device is
 * recognised if its driver is in use here; requests name its addresses as `source` and
 * `target_offset` like any others. The engine orders nothing with kernels and streams of the
 * program: synchronise before a request reads what they wrote. `access` is a mask of te_access. The
 * memory must stay mapped until te_unregister(). TE_ERR_OVERLAP if any byte is registered already,
 * TE_ERR_INVALID for length 0, a range that wraps, is not mapped (a reservation, PROT_NONE, is;
 * only a device's need not be) or leaves its allocation on a device or, unless it is TE_LOCAL_ONLY,
 * ends beyond address 2^63 - 1, or a location where the memory is not; TE_ERR_NUMA for a "cpu:N"
 * that is neither a NUMA node of this machine nor a row of the NIC priority matrix that was given.
 * Another word, as in "mlu:0", is taken for host memory. With a metadata server, peers can see the
 * region when this returns, as long as the descriptor is small (about 2,000 regions); beyond that
 * publishes are put together in the background. A peer that misses a region asks again by itself.
 * Where the server cannot be asked (TE_ERR_METADATA, TE_ERR_TIMEOUT) the call fails and registers
 * nothing; but if requests use the region by then, which cannot be taken back, it stays, the call returns
 * 0, and the server is told later. Where it fails for another reason, as TE_ERR_TOO_LARGE, and requests
 * use the region by then, it stays registered, too: te_errmsg() says so then, and te_unregister() is due.
 */
TE_API int te_register(te_engine *e, void *addr, size_t length, const char *location,
                       unsigned access);

/*
 * The same for `n` buffers, all or none, with one publish. Where it fails, and requests use one of them
 * already, which cannot be taken back, te_errmsg() says how many stay registered.
 */
TE_API int te_register_batch(te_engine *e, const te_buffer *bufs, size_t n, const char *location,
                             unsigned access);

/*
 * Undoes the registration whose range begins at `addr`. When it returns 0, no peer can touch the
 * range any more, transfers of peers in progress on it included. TE_ERR_BUSY while requests of this
 * engine use it, or, after a second, when a process of this host is stopped in the middle of writing
 * to it (te_errmsg() names it); the range stays registered then. TE_ERR_NOT_REGISTERED if none begins
 * there.
 */
TE_API int te_unregister(te_engine *e, void *addr);

/* The same for `n` ranges, with one publish; goes on after a failure and returns the first error. */
TE_API int te_unregister_batch(te_engine *e, void *const *addrs, size_t n);

/*
 * Allocates page-aligned zeroed memory on NUMA node `location` ("cpu:N"), on a device ("cuda:N",
 * "npu:N", as its driver counts them) or on any node ("*" or NULL), not registered. Release with
 * te_free(), after te_unregister() if it was registered. TE_ERR_NO_DEVICE or TE_ERR_UNSUPPORTED:
 * there is no such device, or no driver. Engines of other processes of this host reach host memory
 * got so fastest, since they can map it (from 64 KiB on) while all of it is registered to be read and
 * written, also where the kernel does not let them read other memory of this process. One that has
 * mapped it can keep it: a part that is unregistered later is out of reach for engines of this
 * library, and not for a program that means harm. A forked child does not have it.
 */
TE_API int te_alloc(te_engine *e, size_t length, const char *location, void **out);

/*
 * Engines of other processes of this host may map such memory, but for reading alone: the kernel lets
 * nobody but this process write through a mapping, for as long as the memory exists. Of other memory of
 * te_alloc() a peer is given a mapping only while every byte of it is registered for both directions;
 * of this, while every byte is registered for reading. Host memory only, else TE_ERR_UNSUPPORTED.
 */
#define TE_ALLOC_PEERS_READ 1u

/*
 * Set `size` to sizeof(te_alloc_opts) and zero the rest first; other releases' are accepted as those
 * of te_submit_opts are.
 */
typedef struct te_alloc_opts {
    size_t size;
    const char *location; /* as of te_alloc() */
    unsigned flags;       /* TE_ALLOC_ */
} te_alloc_opts;

/* te_alloc() with more to say. NULL `opts`: as te_alloc() anywhere. */
TE_API int te_alloc_with(te_engine *e, size_t length, const te_alloc_opts *opts, void **out);

/*
 * Releases memory of te_alloc(). NULL is accepted. TE_ERR_BUSY while a region overlaps it,
 * of whichever engine of this process, TE_ERR_NOT_FOUND if not from te_alloc() of this one.
 */
TE_API int te_free(te_engine *e, void *addr);

/* ------------------------------------------------------------------------------------- segments */

typedef int32_t te_segment;
#define TE_LOCAL_SEGMENT 0 /* this engine itself */

/*
 * Opens the segment of that name and fetches its descriptor; blocks up to
 * MC_HANDSHAKE_CONNECT_TIMEOUT a try. Leading '/' are ignored. One's own name gives
 * TE_LOCAL_SEGMENT. A name that is open gives the same id at once, whether its engine still lives
 * or not, and counts one more reference.
 *
 * "nvmeof/NAME" is a segment of files (docs/nvmeof.md), which a record of the metadata server names.
 * So is "NAME" where no engine is called that, if te_transport_install() was called for "nvmeof". Its
 * files must be at or below paths in TE_FILE_PATHS, or given to te_transport_install(): else
 * TE_ERR_ACCESS, which names one. "file:///path" is one file or block device of this host, for which
 * nobody is asked; the same holds for it, unless there are no such paths. target_offset is then the
 * offset in the row of its files.
 */
TE_API int te_open(te_engine *e, const char *name, te_segment *out);

/*
 * Drops a reference; the last one makes the id invalid. TE_ERR_BUSY while transfers use it. Closing
 * TE_LOCAL_SEGMENT is a no-op.
 */
TE_API int te_close(te_engine *e, te_segment seg);

/*
 * Fetches the descriptor of `name` again (NULL: of every open segment). Not needed for correctness,
 * unless the path of a file leads to another file now. First error wins. The name of this engine
 * itself: puts its keys into the metadata server again.
 */
TE_API int te_refresh(te_engine *e, const char *name);

/*
 * The buffers of an open segment, or of this engine those that peers may see, in address order:
 * writes at most `n` to `bufs` and the number there are to *total. With `bufs` NULL only counts. Of
 * files `addr` is the offset at which each begins: NULL for the first.
 */
TE_API int te_segment_buffers(te_engine *e, te_segment seg, te_buffer *bufs, size_t n,
                              size_t *total);

/*
 * Writes the descriptor of an open segment, or of this engine, as JSON text: what its owner has
 * published, as it was fetched last (docs/protocol.md, "Segment descriptor"); of a peer without
 * te.rights, and with buffers in address order unless it has several protocols. TE_ERR_TOO_LARGE when
 * `n` is too small; te_errmsg() says how much is needed.
 */
TE_API int te_segment_json(te_engine *e, te_segment seg, char *buf, size_t n);

/*
 * Reads a key of the metadata server that `o` names, with its other options: "ram/NAME" has the
 * descriptor of a segment, "rpc_meta/NAME" where its engine answers (docs/protocol.md, "Metadata
 * keys"); what all keys of the cluster begin with is put in front. Blocks for TE_METADATA_TIMEOUT_MS
 * at most. TE_ERR_NOT_FOUND: there is no such key. TE_ERR_TOO_LARGE as above. TE_ERR_UNSUPPORTED with
 * P2PHANDSHAKE, where there is no server.
 */
TE_API int te_metadata_get(const te_options *o, const char *key, char *buf, size_t n);

/*
 * Writes such a key, which stays until somebody removes it; `value` NULL removes it, and succeeds
 * where there is none. For keys of others: an engine looks after its own.
 */
TE_API int te_metadata_put(const te_options *o, const char *key, const char *value);

/* ------------------------------------------------------------------------------------ transfers */

enum te_opcode { TE_READ = 0, TE_WRITE = 1 };

/*
 * WAITING    handed to a transport or queued for it
 * PENDING    accepted, not yet handed to a transport: the target's descriptor is being fetched
 *            again, or what te_submit_opts.after names is not done
 * INVALID    refused by the target: range not there, or access not allowed    (terminal)
 * CANCELED   by te_cancel() or te_engine_destroy()                            (terminal)
 * COMPLETED  READ: the bytes are in `source`. WRITE: they are in the target's memory (terminal)
 * TIMEOUT    the deadline of its te_submit() passed                             (terminal)
 * FAILED     anything else                                                    (terminal)
 *
 * Quiet memory: once a request is terminal the engine never reads or writes its `source` again. The
 * target's memory of a WRITE that is terminal but not COMPLETED holds any mix of old and new bytes;
 * bytes still on the way may arrive later. Over TCP they never arrive in a later WRITE of this engine
 * to that place of the same segment: one that is submitted after the other is terminal waits until
 * the target can bring nothing of it any more, and is FAILED where that cannot be found out. Over
 * RDMA the queue pairs that carried it are dead on this side by then, and nothing more is sent
 * (docs/failure-model.md). te_fence() tells when the target's memory is quiet, too.
 */
enum te_state {
    TE_WAITING = 0,
    TE_PENDING = 1,
    TE_INVALID = 2,
    TE_CANCELED = 3,
    TE_COMPLETED = 4,
    TE_TIMEOUT = 5,
    TE_FAILED = 6,
};

typedef uint64_t te_batch;
#define TE_INVALID_BATCH UINT64_MAX

typedef struct te_request {
    int opcode;             /* enum te_opcode */
    void *source;           /* local side: where a READ puts bytes, where a WRITE takes them */
    te_segment target;      /* remote side */
    uint64_t target_offset; /* for memory: the virtual address in the target's process */
    uint64_t length;
} te_request;

struct te_status {
    int state;      /* enum te_state */
    int error;      /* enum te_err, TE_ERR_OK unless the state is a failed one */
    uint64_t bytes; /* moved so far, a lower bound; `length` once COMPLETED */
};

/*
 * Set `size` to sizeof(te_submit_opts) and zero the rest first. As with te_options, that of an older or of a newer
 * release is accepted, of the latter if what this library does not know is zero.
 */
typedef struct te_submit_opts {
    size_t size;
    /* The requests end within this time, 0: only TE_TRANSFER_TIMEOUT_MS without any progress ends them. */
    int64_t deadline_ms;
    /*
     * If name is not NULL: sent to `notify_target` after every request of this call is COMPLETED;
     * not if any is not. One that is too large is left out, which the log tells: the requests are
     * submitted all the same. te_notify_after() tells its caller.
     */
    const char *notify_name;
    const char *notify_msg;
    te_segment notify_target;
    /*
     * If not NULL: the trace context of W3C that the requests belong to, as in the header of that name: "00-", the
     * trace in 32 digits, "-", the parent span in 16, "-", flags in 2; of 0-9 and a-f, neither id all zeros. The
     * line of TE_SLOW_MS has it. Targets reached by "tcp", of this library and later than 0.1, are told, and have it in
     * their log and probes; nobody is told by other transports (docs/tracing.md).
     */
    const char *traceparent;
    const struct te_paths *paths;  /* which transports may carry them, see te_paths.h; NULL: any */
    const struct te_stream *after; /* they are begun when this is done, see te_stream.h */
    const struct te_stream *then;  /* this goes on when all have ended */
    const struct te_lease_key *lease; /* the key that they show, see te_lease.h; NULL: none */
} te_submit_opts;

/* Makes a batch with room for `capacity` requests in total. The id is never 0 and below 2^63. */
TE_API int te_batch_alloc(te_engine *e, size_t capacity, te_batch *out);

/*
 * Submits `n` requests; they get the next `n` task numbers of the batch. All or none: on an error nothing was
 * started. Never waits for the network. Requests carry no order between each other. TE_ERR_TOO_MANY: no room left.
 * TE_ERR_NOT_REGISTERED: a source is outside every region. TE_ERR_NOT_FOUND: no such batch or segment. A target range
 * that the peer has not published is no error here: it ends INVALID after the descriptor was fetched again.
 */
TE_API int te_submit(te_engine *e, te_batch b, const te_request *reqs, size_t n,
                     const te_submit_opts *opts);

/*
 * A prepared list: requests of one segment that are checked and looked up once and then submitted again and again, by
 * number; for programs that move the same pieces often, such as the blocks of a cache. What a submit costs does not
 * depend on how many regions and buffers there are. Item i joins `length[i]` bytes at local[i] with those at
 * remote[i] in the target. Ids are never 0 and below 2^63.
 */
typedef uint64_t te_prep;
#define TE_INVALID_PREP UINT64_MAX

/*
 * Makes a list of `n` items, at most 2^24; the three arrays are copied. TE_ERR_NOT_REGISTERED: a local range is not
 * inside one region. TE_ERR_NOT_FOUND: the segment is not open. TE_ERR_INVALID: a range wraps around the address
 * space. A remote range that the peer has not published is no error: te_prep_submit() asks again, as te_submit()
 * does.
 *
 * The list holds neither its regions nor its segment: they may be unregistered and closed while no request uses them.
 * Nor is it ever out of date: when regions, the peer's descriptor or the transports have changed, te_prep_submit()
 * looks up anew by itself.
 */
TE_API int te_prep_create(te_engine *e, te_segment target, void *const *local,
                          const uint64_t *remote, const size_t *length, size_t n, te_prep *out);

/*
 * Submits items index[0] .. index[n - 1] of a list, in that order and each as often as it is named, or with `index`
 * NULL the first `n` items. What they become is what te_submit() makes of the same requests: the next `n` tasks of
 * the batch, all or none. Threads may submit from one list at the same time. TE_ERR_NOT_FOUND: no such batch or list,
 * or its segment was closed. TE_ERR_INVALID: an index is not below the list's length. TE_ERR_NOT_REGISTERED: the
 * memory of an item that is named is registered no more. TE_ERR_TOO_MANY: no room left in the batch.
 */
TE_API int te_prep_submit(te_engine *e, te_batch b, te_prep prep, int opcode, const uint32_t *index,
                          size_t n, const te_submit_opts *opts);

/*
 * Frees a list; its id is dead. Requests submitted from it go on. TE_ERR_BUSY while another thread
 * is in a call with it, TE_ERR_NOT_FOUND if there is none.
 */
TE_API int te_prep_destroy(te_engine *e, te_prep prep);

/* State of request `task` (0-based, in order of submission). O(1), no lock. */
TE_API int te_status(te_engine *e, te_batch b, size_t task, struct te_status *out);

/*
 * State of the whole batch: WAITING while any is unfinished, COMPLETED if all are, else the first
 * failure's state and error. `bytes` is the sum. O(1). May say WAITING for a moment after
 * te_status() has shown the last request terminal; te_wait() waits for both.
 */
TE_API int te_batch_status(te_engine *e, te_batch b, struct te_status *out);

/*
 * Writes why request `task` did not complete, in one line: what, with whom, errno text, remedy. ""
 * while unfinished or COMPLETED. Cut to fit `n`.
 */
TE_API int te_status_msg(te_engine *e, te_batch b, size_t task, char *buf, size_t n);

/*
 * Which path has carried a request. Set `size` to sizeof(struct te_path) first; a newer library fills no
 * more than that, an older one sets to 0 what it does not know.
 */
struct te_path {
    size_t size;
    /* That had it last, or has it: "tcp". "": none, as when nothing is to be moved, or before it was handed to one. */
    char transport[32];
    /* This side's NIC that moved the last part that has ended: "mlx5_0". "": none has, or a transport without. */
    char nic[64];
    /*
     * How often, at most 255, it or a part of it had failed and went another way then: by another NIC or
     * address, told once the part has ended, or by another transport. The metric
     * transfer_engine_transport_path_changes_total has them all.
     */
    uint32_t changes;
    uint32_t
        staged; /* 1: some of it is this side's memory of a device, copied through host memory on its way */
};

/*
 * Tells how request `task` goes, or has gone, in whatever state it is. A request that is cut into parts may
 * go by many NICs at a time, pages in memory of several sorts also by several transports: the last one is
 * told. All that is told is of one moment. te_explain() says which would be taken, and why.
 */
TE_API int te_path(te_engine *e, te_batch b, size_t task, struct te_path *out);

/*
 * Waits until every request submitted so far is terminal, `timeout_ms` at most (negative: for
 * ever). 0 when they are, whatever their outcome; TE_ERR_TIMEOUT if not. Does not cancel anything.
 * The calling thread may move the batch's data itself, which is the quickest way for short requests:
 * wait in the thread that submits. Any number of threads may wait, for one batch too.
 */
TE_API int te_wait(te_engine *e, te_batch b, int64_t timeout_ms);

/*
 * Asks that the unfinished requests of the batch end CANCELED soon; returns at once. Some may still
 * complete. Wait for the batch, then the memory is quiet.
 */
TE_API int te_cancel(te_engine *e, te_batch b);

/* Bytes of a target's memory, as a request names them. */
typedef struct te_range {
    te_segment target;
    uint64_t target_offset;
    uint64_t length;
} te_range;

/*
 * Waits until nothing of the batch comes to its targets any more, `timeout_ms` at most (negative: for
 * ever; 0: not at all, but has the targets asked, so that who polls gets an answer later). Ranges are
 * waited for one after the other, each as it stands when its turn comes: a WRITE that ends later does not prolong
 * that. 0 is a certificate: whatever its WRITEs that are not COMPLETED have sent was
 * applied or never will be, so the targets' owners may use that memory for something else. Else not
 * known: writes at most `n` ranges that may still change to `unsafe` (NULL if n is 0) and the number
 * there are to *total (may be NULL), and returns why of the first:
 *   TE_ERR_TIMEOUT  the target has not said so yet, as when it is stopped: ask again
 *   TE_ERR_PEER     the target cannot be asked now; one that has ended changes nothing
 *   TE_ERR_LINK     nobody can tell, now or later; so it is where the segment was closed since. Where the
 *                   target was started again or has another port, until the segment is closed
 *   others          TE_ERR_MEMORY, TE_ERR_CANCELED (the transport is being closed)
 * Where several transports have something of a range, TE_ERR_TIMEOUT is told if none of them has another reason, and
 * TE_ERR_PEER if none but these two.
 * What gives the certificate: over TCP to engines of this project, the target's word that it has dropped
 * the connection, or the end of that (a reset is one only where connections to its port, at its one address, are
 * refused then); to others, the connection's end alone. Within this process and this host, and where a device
 * copies into memory of another process or host, nothing is left once a request has ended. A WRITE that failed over
 * RDMA or into a file is TE_ERR_LINK, whatever its error, as a part of it may have been sent; so is one whose device
 * has failed (TE_ERR_CONTEXT).
 * Where a request of te_submit_pages() did not complete, all WRITEs to its segment count.
 * TE_ERR_BUSY: a request of the batch is unfinished; te_cancel() and te_wait() come first. TE_ERR_NOT_FOUND
 * if there is no such batch. *total and `unsafe` are written for 0 and for what is not known. Any number of
 * threads may ask at a time; meanwhile the batch cannot be freed, nor its segments closed: TE_ERR_BUSY.
 */
TE_API int te_fence(te_engine *e, te_batch b, int64_t timeout_ms, te_range *unsafe, size_t n,
                    size_t *total);

/*
 * The same for all WRITEs to a segment that had ended before this was called, of whatever batch, freed
 * ones too. Of many a range is told that holds several, and what lies between; of what was on the way
 * when the segment was closed, and opened again, all of the address space between the other ranges. What
 * nobody can tell of (TE_ERR_LINK) is forgotten when the segment is closed; so is, where there are 64 such
 * peers already, what was on the way then: close no segment that is to be fenced.
 */
TE_API int te_fence_segment(te_engine *e, te_segment seg, int64_t timeout_ms, te_range *unsafe,
                            size_t n, size_t *total);

/* Frees the batch; its id is dead. TE_ERR_BUSY while a request is unfinished or a thread waits on it. */
TE_API int te_batch_free(te_engine *e, te_batch b);

/*
 * A descriptor that polls readable when at least one batch has finished since te_done() last took
 * it. Owned by the engine: never read, write or close it. Negative te_err on failure. Batches
 * finished before the first call of this are not counted.
 */
TE_API int te_event_fd(te_engine *e);

/*
 * Takes the ids of batches that finished (all submitted requests terminal), at most `n`; returns
 * how many, or a negative te_err. Each finish is told once; a batch that gets new requests
 * afterwards is told again, one that was freed is not told. Requires te_event_fd() before.
 */
TE_API int te_done(te_engine *e, te_batch *ids, size_t n);

/* ---------------------------------------------------------------------------------------- pages */

/*
 * One side of te_pages: a pool of pages of equal distance, as a cache has them. Part h of page k in layer
 * l begins at base + k * stride + h * part_stride + l * layer_stride.
 */
typedef struct te_page_side {
    uint64_t base;         /* an address: in this process, or in the target's as target_offset is */
    uint64_t pages;        /* that the pool has: every page number is below */
    uint64_t stride;       /* bytes from a page to the next, with index NULL or not */
    uint64_t part_stride;  /* bytes from a part of a page to the next */
    uint64_t layer_stride; /* bytes from a layer to the next */
    const void *index;     /* te_pages.n page numbers; NULL: 0, 1, 2, ... */
} te_page_side;

/*
 * Pages to be moved: entry i of the local side's index and entry i of the remote one's name two pages,
 * whose parts are joined in every layer. The two sides may differ in all their strides.
 *
 * Set `size` to sizeof(te_pages) and zero the rest first. As with te_options, that of an older or of a
 * newer release is accepted, of the latter if what this library does not know is zero.
 */
typedef struct te_pages {
    size_t size;
    int opcode;          /* enum te_opcode */
    te_segment target;   /* remote side */
    uint64_t length;     /* bytes of a part: of a page, if it has only one */
    size_t n;            /* pages to be moved: entries of each index */
    size_t parts;        /* of a page, heads for instance; 0: 1 */
    size_t layers;       /* 0: 1 */
    unsigned index_bits; /* 32 or 64: what each entry of an index has, unsigned */
    te_page_side local;  /* for TE_READ where the bytes are put, for TE_WRITE where they are from */
    te_page_side remote;
} te_pages;

/*
 * Submits pages as one request: the next task of the batch, whose `bytes` are those of all pages. It is
 * COMPLETED when each page is moved; if one fails the others may have been moved or not. The arrays are
 * copied. What adjoins on both sides, from one part or page to the next, is moved in one piece. The first
 * 2,048 pieces are handed to the transports by the caller, the others 1,024 at a time by a thread of the engine,
 * and fewer where more than 65,536 parts of pages make up that many: so no more than that takes up the caller's
 * time and memory. Never waits for the network.
 *
 * `n` or `length` may be 0: such a request completes at once, and nothing else of it is looked at but
 * opcode, index_bits and target. On the side that is read pages may overlap and may be named twice. On the
 * side that is written each stride of more than one part, page of the pool or layer must be at least all that
 * the smaller strides span, named or not, so that one lies within the other, though others might keep the bytes
 * apart, too. A page that is named twice there ends with a mix of what was to be written.
 *
 * TE_ERR_INVALID: a page number is not below its side's `pages`, which te_errmsg() tells with its place in
 * the index; strides that make the pages of the written side overlap, or a pool wrap around the address
 * space; the sum of all bytes is 2^64 or more; index_bits. TE_ERR_NOT_REGISTERED: the local pool, from
 * `base` to the end of its last page in the last layer, is not inside one region. TE_ERR_UNSUPPORTED: no
 * transport reaches the target. Others as of te_submit(), also for `opts`. The remote pool may have holes:
 * a page that the peer has not published is no error here, and ends the request INVALID after the
 * descriptor was fetched again. These errors are of the first pieces: what is found wrong with later ones, a
 * lack of memory too, ends the request, with that error in its status, and not the call.
 */
TE_API int te_submit_pages(te_engine *e, te_batch b, const te_pages *pages,
                           const te_submit_opts *opts);

/* -------------------------------------------------------------------------------- notifications */

typedef struct te_notification {
    char *name;
    char *msg;
} te_notification;

/*
 * Sends a message to the engine behind `seg`; returns when that engine has it. TE_ERR_REJECTED if
 * its inbox is full: it holds 65,536 messages and 64 MiB, of which one sender's address may have half.
 */
TE_API int te_notify(te_engine *e, te_segment seg, const char *name, const char *msg);

/*
 * Takes all messages received so far, oldest first, as one array for te_notify_free(). *n may be 0,
 * then *out is NULL.
 */
TE_API int te_notify_recv(te_engine *e, te_notification **out, size_t *n);

TE_API void te_notify_free(te_notification *arr, size_t n);

/*
 * The same of any bytes. A part of length 0 may be NULL. Of a message that was received each part has a
 * NUL behind it, which is not counted.
 */
typedef struct te_message {
    const void *name;
    size_t name_len;
    const void *msg;
    size_t msg_len;
} te_message;

/*
 * Sends a message as te_notify() does. Text, which is UTF-8 without NUL, every engine takes. Of anything
 * else the peer is asked first whether it takes that: TE_ERR_UNSUPPORTED, and nothing is sent, if it is
 * an engine of another make, or of the first release, 0.1.0. TE_ERR_TOO_LARGE: it is longer than
 * MC_HANDSHAKE_MAX_LENGTH as JSON; bytes that are no text take 4/3 of their number.
 */
TE_API int te_notify_bytes(te_engine *e, te_segment seg, const te_message *m);

/*
 * Sends a message when every request that the batch has got so far is COMPLETED; not if any is not.
 * Returns at once, and does not wait for the network: a peer that does not take it is told in the log.
 * The message is copied. It concerns no request: whatever is wrong with it, these go on. Several of
 * these may arrive in any order.
 */
TE_API int te_notify_after(te_engine *e, te_batch b, te_segment seg, const te_message *m);

/*
 * As te_notify_recv(), which sees of the same messages what is in front of the first NUL of each part;
 * a message is given once, by whichever of the two is called first. For te_message_free().
 */
TE_API int te_notify_recv_bytes(te_engine *e, te_message **out, size_t *n);

TE_API void te_message_free(te_message *arr, size_t n);

/* Asks the engine of that name whether it lives. 0 if it answered within MC_HANDSHAKE_CONNECT_TIMEOUT. */
TE_API int te_probe(te_engine *e, const char *name);

/* How a transport is connected. No paths: it has nothing to connect, or its peer closes each connection after use. */
struct te_warmed {
    char transport[32]; /* "tcp" */
    int error;          /* enum te_err: why the first path that failed did; 0: none has */
    uint32_t ready, opening, failed; /* paths: connections or, over RDMA, pairs of NICs */
    uint64_t time_ns, reserved[2];   /* until none was opening, or the call ended; 0 */
};

/* Set `size` to sizeof(struct te_warm) first; as of struct te_path. */
struct te_warm {
    size_t size, n; /* n: transports that reach the segment, the preferred one first */
    uint64_t time_ns;
    struct te_warmed by[16];
};

/*
 * Connects to a segment ahead: every path that its first requests may take, by each transport that reaches it, all at
 * once. Waits for them, `timeout_ms` at most (negative: until none is opening; 0: only begins). What was begun goes on.
 * Meanwhile te_close() and te_transport_uninstall() return TE_ERR_BUSY. 0: by each transport that has paths one is
 * ready, and none is opening, unless the call only begins. Else TE_ERR_UNSUPPORTED: no transport reaches it; or why all
 * paths of one failed, though others may be opening: TE_ERR_PEER, its descriptor fetched again, _LINK, _DNS, _REJECTED,
 * _ENDPOINT, _PROTOCOL, _CONTEXT, _MEMORY, _CANCELED; or TE_ERR_TIMEOUT: some are opening. TE_ERR_NOT_FOUND. *out may be
 * NULL, and is written also where it fails.
 */
TE_API int te_warm(te_engine *e, te_segment seg, int64_t timeout_ms, struct te_warm *out);

/* -------------------------------------------------------------------------------------- observe */

/* Counters since create. Set `size` to sizeof(struct te_stats) first; as of struct te_path. */
struct te_stats {
    size_t size;
    uint64_t requests_submitted, requests_completed, requests_failed;
    uint64_t bytes_read, bytes_written; /* by requests of this engine, COMPLETED ones */
    /* for peers, but for those of this host, which help themselves (TE_HOST_PATH) */
    uint64_t served_requests, served_bytes_out, served_bytes_in, served_rejected;
    uint64_t retries, reconnects, refreshes;
    uint64_t connections;            /* open now, both roles */
    uint64_t regions, segments_open; /* now */
    uint64_t notifications_sent, notifications_received;
    uint64_t metadata_failures; /* times that the metadata server could not be asked */
    uint64_t metadata_down;     /* 1 since the last one of these, until it answers again */
};

TE_API int te_stats(te_engine *e, struct te_stats *out);

/*
 * Writes the metrics of the engine, NUL-terminated, in the text format of Prometheus, version 0.0.4:
 * what te_stats() counts and more, by transport, error and segment, and histograms of the time that
 * requests took, waited and moved. docs/metrics.md lists them; releases add metrics and labels, and take
 * none away. At most some 400 KiB, however many segments are open; TE_ERR_TOO_LARGE when `n` is too small, and te_errmsg()
 * says how much is needed now, which may grow until the next call. TE_METRICS (docs/config.md) has the
 * engine serve the same text over HTTP, or write it to a file.
 */
TE_API int te_stats_text(te_engine *e, char *buf, size_t n);

/*
 * Says in text which transport would carry `req`, and of each other that is built in why it would
 * not: a lower score, what the target lacks, not installed. Nothing is started.
 * The text is cut to fit `n`; the return value is the one te_submit() would give.
 */
TE_API int te_explain(te_engine *e, const te_request *req, char *buf, size_t n);

/*
 * Writes the NICs and the topology as text, or as JSON if `json` is not 0:
 * {"local_nics":[...],"topology":{...}}. Each NIC is an object with "device", "numa" (-1: unknown),
 * "gid" (maybe empty), "gid_index", "port", "speed_gbps", "state", "link_layer", "pci", "usable",
 * "why" if it is not usable, and "source": "topology", or "rdma_transport" for a NIC that this
 * transport knows, which adds "used", "inflight_bytes" and "bandwidth_bps". TE_ERR_TOO_LARGE when
 * `n` is too small.
 */
TE_API int te_links(te_engine *e, int json, char *buf, size_t n);

/*
 * From now on SIGTERM and SIGINT take the segments of this engine, and of every other that asked,
 * out of the metadata, and then end the process with status 128 + signal number, without atexit
 * handlers. For programs that have no shutdown of their own. A forked child, which has no engine to
 * withdraw, ends with that status at once.
 */
TE_API int te_shutdown_on_signal(te_engine *e);

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif

#include "te_counter.h"
#include "te_lease.h"
#include "te_paths.h"
#include "te_stream.h"

#endif
