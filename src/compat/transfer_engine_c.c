/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_engine_c.c - Mooncake's C names: converts types, calls te_*, nothing else. */
#include "transfer_engine_c.h"

#include "te.h"

#include "base/err.h"
#include "model/model.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (1 << 18) /* bytes of te_links() and te_topology_json() */

/* Arrays are handed over as they are. */
static_assert(sizeof(struct transfer_request) == sizeof(te_request),
              "request layouts are the same");
static_assert(offsetof(struct transfer_request, source) == offsetof(te_request, source), "source");
static_assert(offsetof(struct transfer_request, target_id) == offsetof(te_request, target),
              "target");
static_assert(offsetof(struct transfer_request, target_offset) ==
                  offsetof(te_request, target_offset),
              "offset");
static_assert(offsetof(struct transfer_request, length) == offsetof(te_request, length), "length");
static_assert(sizeof(buffer_entry_t) == sizeof(te_buffer), "buffer layouts are the same");
static_assert(sizeof(notify_msg_t) == sizeof(te_notification), "notification layouts are the same");

transfer_engine_t createTransferEngine(const char *metadata_conn_string,
                                       const char *local_server_name, const char *ip_or_host_name,
                                       uint64_t rpc_port, int auto_discover)
{
    te_options o;
    te_engine *e = NULL;

    te_options_init(&o);
    o.metadata = metadata_conn_string;
    o.local_server_name = local_server_name;
    o.ip_or_host_name = ip_or_host_name;
    o.rpc_port = rpc_port > UINT32_MAX ? UINT32_MAX : (uint32_t)rpc_port;
    o.auto_discover = auto_discover;
    return te_engine_create(&o, &e) == 0 ? e : NULL;
}

int discoverTopology(transfer_engine_t engine)
{
    char *text = malloc(TEXT_MAX);
    int rc = text ? te_topology_json(engine, text, TEXT_MAX) : TE_ERR_MEMORY;

    free(text);
    return rc;
}

int getLocalIpAndPort(transfer_engine_t engine, char *buf_out, size_t buf_len)
{
    return te_engine_addr(engine, buf_out, buf_len);
}

transport_t installTransport(transfer_engine_t engine, const char *proto, void **args)
{
    return te_transport_install(engine, proto, args ? args[0] : NULL) == 0 ? engine : NULL;
}

int uninstallTransport(transfer_engine_t engine, const char *proto)
{
    return te_transport_uninstall(engine, proto);
}

/* Programs that hold ids in unsigned variables compare with -1: no other error may come back here. */
segment_id_t openSegment(transfer_engine_t engine, const char *segment_name)
{
    te_segment id;

    return te_open(engine, segment_name, &id) == 0 ? id : -1;
}

segment_id_t openSegmentNoCache(transfer_engine_t engine, const char *segment_name)
{
    segment_id_t id = openSegment(engine, segment_name);

    if (id > TE_LOCAL_SEGMENT && te_refresh(engine, segment_name) != 0) {
        te_close(engine, id);
        return -1;
    }
    return id;
}

int closeSegment(transfer_engine_t engine, segment_id_t segment_id)
{
    return te_close(engine, segment_id);
}

/* Without EFA it is 0, whatever comes of it. What is begun stays where the program has the segment open. */
int warmupEfaSegment(transfer_engine_t engine, const char *segment_name)
{
    te_segment id;

    if (te_open(engine, segment_name, &id) == 0) {
        (void)te_warm(engine, id, 0, NULL);
        (void)te_close(engine, id);
    }
    return 0;
}

int removeLocalSegment(transfer_engine_t engine, const char *segment_name)
{
    int rc = segment_name && segment_name[0] ? te_refresh(engine, segment_name)
                                             : TEI_FAIL(TE_ERR_INVALID, "segment name is empty");

    /* What is not open, or not there any more, has nothing to forget. */
    return rc == TE_ERR_INVALID ? rc : 0;
}

void destroyTransferEngine(transfer_engine_t engine)
{
    te_engine_destroy(engine);
}

int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length, const char *location,
                        int remote_accessible)
{
    return te_register(engine, addr, length, location,
                       remote_accessible ? TE_REMOTE_RW : TE_LOCAL_ONLY);
}

int unregisterLocalMemory(transfer_engine_t engine, void *addr)
{
    return te_unregister(engine, addr);
}

int registerLocalMemoryBatch(transfer_engine_t engine, buffer_entry_t *buffer_list,
                             size_t buffer_len, const char *location)
{
    return te_register_batch(engine, (const te_buffer *)buffer_list, buffer_len, location,
                             TE_REMOTE_RW);
}

int unregisterLocalMemoryBatch(transfer_engine_t engine, void **addr_list, size_t addr_len)
{
    return te_unregister_batch(engine, addr_list, addr_len);
}

batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size)
{
    te_batch id;

    return te_batch_alloc(engine, batch_size, &id) == 0 ? id : INVALID_BATCH;
}

int submitTransfer(transfer_engine_t engine, batch_id_t batch_id, struct transfer_request *entries,
                   size_t count)
{
    return te_submit(engine, batch_id, (const te_request *)entries, count, NULL);
}

int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
                             struct transfer_request *entries, size_t count,
                             notify_msg_t notify_msg)
{
    te_submit_opts o = {
        .size = sizeof(o), .notify_name = notify_msg.name, .notify_msg = notify_msg.msg};

    if (count == 0 || !entries)
        return TEI_FAIL(TE_ERR_INVALID, "a notification goes to the target of the first entry: "
                                        "there is none");
    if (!notify_msg.name || !notify_msg.msg)
        return TEI_FAIL(TE_ERR_INVALID, "name or message of the notification is NULL");
    o.notify_target = entries[0].target_id;
    return te_submit(engine, batch_id, (const te_request *)entries, count, &o);
}

static int old_status(int state)
{
    if (state == TE_PENDING)
        return STATUS_WAITING;
    return state == TE_INVALID ? STATUS_FAILED : state;
}

int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id, size_t task_id,
                      struct transfer_status *status)
{
    struct te_status st;
    int rc = status ? te_status(engine, batch_id, task_id, &st)
                    : TEI_FAIL(TE_ERR_INVALID, "status is NULL");

    if (rc)
        return rc;
    status->status = old_status(st.state);
    status->transferred_bytes = st.bytes;
    return 0;
}

int freeBatchID(transfer_engine_t engine, batch_id_t batch_id)
{
    return te_batch_free(engine, batch_id);
}

notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size)
{
    te_notification *arr = NULL;
    size_t n = 0;

    if (!size)
        return NULL;
    *size = 0;
    if (te_notify_recv(engine, &arr, &n) != 0)
        return NULL;
    *size = (int)n;
    return (notify_msg_t *)arr;
}

int freeNotifsMsgBuf(notify_msg_t *msg, int size)
{
    te_notify_free((te_notification *)msg, size > 0 ? (size_t)size : 0);
    return 0;
}

int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id, notify_msg_t notify_msg)
{
    if (target_id > INT32_MAX)
        return TEI_FAIL(TE_ERR_INVALID, "%" PRIu64 " is no id of a segment", target_id);
    return te_notify(engine, (te_segment)target_id, notify_msg.name, notify_msg.msg);
}

int syncSegmentCache(transfer_engine_t engine)
{
    return te_refresh(engine, NULL);
}

static void fill_load(nic_load_stat_t *out, const json_t *nic)
{
    snprintf(out->device_name, sizeof out->device_name, "%s",
             json_string_value(json_object_get(nic, "device")));
    out->inflight_bytes = (uint64_t)json_integer_value(json_object_get(nic, "inflight_bytes"));
    out->ewma_bandwidth_bps = json_number_value(json_object_get(nic, "bandwidth_bps"));
}

/* Those that a transport spreads load over, as te_links() tells them. */
int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *stats, size_t *count)
{
    char *text = NULL;
    json_t *root = NULL, *nic;
    size_t i, n = 0;
    int rc;

    if (!stats || !count)
        return TEI_FAIL(TE_ERR_INVALID, "stats or count is NULL");
    text = malloc(TEXT_MAX);
    rc = text ? te_links(engine, 1, text, TEXT_MAX) : TE_ERR_MEMORY;
    if (!rc)
        rc = tei_json_load(text, strlen(text), 0, &root, NULL);
    json_array_foreach(json_object_get(root, "local_nics"), i, nic)
        if (json_object_get(nic, "inflight_bytes") && n < *count)
            fill_load(&stats[n++], nic);
    if (!rc)
        *count = n;
    json_decref(root);
    free(text);
    return rc;
}

void enableGracefulShutdown(transfer_engine_t engine)
{
    te_shutdown_on_signal(engine);
}

int showLinks(transfer_engine_t engine, char *buf, size_t buf_len, int json)
{
    return te_links(engine, json, buf, buf_len);
}
