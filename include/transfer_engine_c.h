/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_engine_c.h - the C names of Mooncake's Transfer Engine, over te.h.
 *
 * A program written for those names builds and runs against this library unchanged. te.h is the
 * richer interface and the two may be mixed: a transfer_engine_t is a te_engine *, ids are the
 * same.
 *
 * Errors are negative enum te_err values. Every char * argument may be freed once the call returns.
 * All calls are thread-safe. NULL engines, stale batch ids and INVALID_BATCH are answered with an
 * error everywhere.
 */
#ifndef TRANSFER_ENGINE_C_H
#define TRANSFER_ENGINE_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TE_API
#if defined(__GNUC__)
#define TE_API __attribute__((visibility("default")))
#else
#define TE_API
#endif
#endif

#define segment_handle_t int32_t
#define segment_id_t     int32_t
#define batch_id_t       uint64_t
#define LOCAL_SEGMENT    (0)
#define INVALID_BATCH    UINT64_MAX

#define OPCODE_READ  (0)
#define OPCODE_WRITE (1)

struct transfer_request {
    int opcode;             /* OPCODE_READ: target to source, OPCODE_WRITE: source to target */
    void *source;           /* inside a registered range of this process */
    segment_id_t target_id; /* from openSegment(), or LOCAL_SEGMENT */
    uint64_t target_offset; /* virtual address in the target's process */
    uint64_t length;
};
typedef struct transfer_request transfer_request_t;

/*
 * getTransferStatus() shows WAITING while a request is unfinished, then COMPLETED or FAILED;
 * CANCELED and TIMEOUT only where te_cancel() or a deadline of te_submit() was used on the batch.
 * PENDING and INVALID are never shown: loops that wait for COMPLETED or FAILED end.
 */
#define STATUS_WAITING   (0)
#define STATUS_PENDING   (1)
#define STATUS_INVALID   (2)
#define STATUS_CANCELED  (3)
#define STATUS_COMPLETED (4)
#define STATUS_TIMEOUT   (5)
#define STATUS_FAILED    (6)

struct transfer_status {
    int status;
    uint64_t transferred_bytes;
};
typedef struct transfer_status transfer_status_t;

#define SEGMENT_TYPE_RAM    (0)
#define SEGMENT_TYPE_NVMEOF (1)

struct segment_desc {
    int type; /* RDMA / NVMEOF */
    union desc_ {
        struct {
            void *addr;
            uint64_t size;
            const char *location;
        } rdma;
        struct {
            const char *file_path;
            const char *subsystem_name;
            const char *proto;
            const char *ip;
            uint64_t port;
        } nvmeof;
    } desc_;
};
typedef struct segment_desc segment_desc_t;

struct buffer_entry {
    void *addr;
    size_t length;
};
typedef struct buffer_entry buffer_entry_t;

struct notify_msg {
    char *name;
    char *msg;
};
typedef struct notify_msg notify_msg_t;

struct nic_load_stat {
    char device_name[64];
    uint64_t inflight_bytes;
    double ewma_bandwidth_bps;
};
typedef struct nic_load_stat nic_load_stat_t;

typedef void *transfer_engine_t;
typedef void *transport_t;

/*
 * Makes an engine. NULL on failure; the log and te_errmsg() say why. See te_options in te.h for the
 * arguments.
 */
TE_API transfer_engine_t createTransferEngine(const char *metadata_conn_string,
                                              const char *local_server_name,
                                              const char *ip_or_host_name, uint64_t rpc_port,
                                              int auto_discover);

/* Finds out the machine's topology. It is also found when first needed. */
TE_API int discoverTopology(transfer_engine_t engine);

/* "ip:port" of the RPC listener as peers are told it; negative if it does not fit in buf_len. */
TE_API int getLocalIpAndPort(transfer_engine_t engine, char *buf_out, size_t buf_len);

/*
 * Installs a transport. `args` is NULL or {NIC priority matrix as JSON text, NULL}; for "nvmeof"
 * {path at or below which files may be opened, beside TE_FILE_PATHS, NULL}. Installed already: the same
 * again. NULL on failure. The result only tells success; do not look into it.
 */
TE_API transport_t installTransport(transfer_engine_t engine, const char *proto, void **args);
TE_API int uninstallTransport(transfer_engine_t engine, const char *proto);

/* The id, or -1; te_errmsg() says why. Leading '/' are ignored. One's own name gives 0. */
TE_API segment_id_t openSegment(transfer_engine_t engine, const char *segment_name);
/* The same with the descriptor fetched again first. */
TE_API segment_id_t openSegmentNoCache(transfer_engine_t engine, const char *segment_name);
TE_API int closeSegment(transfer_engine_t engine, segment_id_t segment_id);
/* Begins to connect to a segment that is open, by whatever transports there are; 0, whatever comes of it. */
TE_API int warmupEfaSegment(transfer_engine_t engine, const char *segment_name);
/* Replaces the descriptor of `segment_name`, if it is open, by a fresh one; blocks for that. */
TE_API int removeLocalSegment(transfer_engine_t engine, const char *segment_name);

TE_API void destroyTransferEngine(transfer_engine_t engine);

TE_API int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length,
                               const char *location, int remote_accessible);
TE_API int unregisterLocalMemory(transfer_engine_t engine, void *addr);
TE_API int registerLocalMemoryBatch(transfer_engine_t engine, buffer_entry_t *buffer_list,
                                    size_t buffer_len, const char *location);
TE_API int unregisterLocalMemoryBatch(transfer_engine_t engine, void **addr_list, size_t addr_len);

/* INVALID_BATCH on failure. */
TE_API batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size);
TE_API int submitTransfer(transfer_engine_t engine, batch_id_t batch_id,
                          struct transfer_request *entries, size_t count);
/* `notify_msg` goes to the first entry's target once all entries are COMPLETED. */
TE_API int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
                                    struct transfer_request *entries, size_t count,
                                    notify_msg_t notify_msg);
TE_API int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id, size_t task_id,
                             struct transfer_status *status);
TE_API int freeBatchID(transfer_engine_t engine, batch_id_t batch_id);

/*
 * The notifications received; *size of them, NULL when there are none. Release with
 * freeNotifsMsgBuf().
 */
TE_API notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size);
TE_API int freeNotifsMsgBuf(notify_msg_t *msg, int size);
TE_API int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id, notify_msg_t notify_msg);

TE_API int syncSegmentCache(transfer_engine_t engine);

/* Loads of the NICs that transfers are spread over: *count is the room in, the number out. */
TE_API int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *stats, size_t *count);

/* SIGTERM and SIGINT destroy the engine, then end the process with 128 + signal. */
TE_API void enableGracefulShutdown(transfer_engine_t engine);

/* NICs and topology as text, or JSON if `json` is not 0. */
TE_API int showLinks(transfer_engine_t engine, char *buf, size_t buf_len, int json);

#ifdef __cplusplus
}
#endif

#endif
