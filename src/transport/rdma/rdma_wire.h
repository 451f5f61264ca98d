/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_wire.h - what two RDMA engines tell each other: the messages by which queue pairs are
 * connected, and the keys of the segment descriptor. docs/protocol.md, "Type 0, connection" and
 * "Segment descriptor", tells the same. No I/O and no state: any call from any thread.
 *
 * Everything that is read is hostile until read. Errors are TE_ERR_JSON for what is no JSON or of a
 * wrong type, TE_ERR_PROTOCOL for a value that cannot be, both with a text that names the key, and
 * TE_ERR_MEMORY. Results are written on success only. Unknown keys are ignored.
 */
#ifndef TEI_RDMA_WIRE_H
#define TEI_RDMA_WIRE_H

#include "transport/rdma/rdma_gid.h"

#include <jansson.h>

#define TEI_RDMA_PATH    320 /* room for a NIC path */
#define TEI_RDMA_REPLY   256 /* room for the text of a refusal */
#define TEI_RDMA_QPS     255 /* queue pairs of an endpoint, at most */
#define TEI_RDMA_QPN_MAX 0xffffff
#define TEI_RDMA_NAME    64  /* room for the name of a device */
#define TEI_RDMA_DEVICES 256 /* devices of a descriptor, at most */
#define TEI_RDMA_PSN_MAX 0xffffff
#define TEI_RDMA_TICKET  16 /* bytes */

/* ------------------------------------------------------------------------------------ NIC paths */

/*
 * "server@device" names a NIC among all engines. It is parted at the first '@', both parts are not
 * empty. TE_ERR_PROTOCOL for another form or a part that does not fit.
 */
int tei_rdma_nic_path_split(const char *path, char *server, size_t server_size, char *device,
                            size_t device_size);

/* ----------------------------------------------------------------------------------- connection */

/*
 * All zero is the empty message, which is also the reply to a ready_ack that was in order. Bytes
 * behind the end of what is used are zero after decoding.
 */
struct tei_rdma_hello {
    char local_nic_path[TEI_RDMA_PATH]; /* the sender's, or "" */
    char peer_nic_path[TEI_RDMA_PATH];  /* the receiver's, or "" */
    char reply_msg[TEI_RDMA_REPLY];     /* why it was refused; "": it was not */
    uint32_t qp_num[TEI_RDMA_QPS];      /* of the sender */
    size_t n_qp;
    uint16_t lid;
    bool has_gid; /* else the one of the descriptor's devices counts */
    uint8_t gid[TEI_GID_BYTES];
    bool has_ready_ack; /* the sender knows the second message; older engines do not */
    bool ready_ack;     /* this is the second message */
    /* The rest is "te", which only engines of this project send. */
    uint64_t incarnation;       /* of the sender's life, as in its descriptor; 0: not given */
    bool has_psn;               /* else packets are numbered from 0 on both sides */
    uint32_t psn[TEI_RDMA_QPS]; /* of the first packet of each queue pair of the sender */
    bool has_ticket, has_replaced;
    uint8_t ticket[TEI_RDMA_TICKET];   /* a secret of this connection */
    uint8_t replaced[TEI_RDMA_TICKET]; /* the receiver's ticket of the connection before this one */
};

/*
 * Reads a request or a reply. A key that is missing means an empty or zero value, as older engines
 * leave keys out. reply_msg is cut to fit: a refusal of any length is a refusal. A member of "te" is
 * read if it is well formed, and else ignored.
 */
int tei_rdma_hello_decode(const char *text, size_t len, struct tei_rdma_hello *out);

/*
 * Compact JSON with sorted keys, NUL-terminated and malloc'ed, without a newline; its length in
 * *len unless that is NULL. Where reply_msg is no UTF-8, its bytes beyond ASCII become '?'. NULL,
 * with the error's text kept, when memory is out, a path is no UTF-8 or there are more than
 * TEI_RDMA_QPS queue pairs.
 */
char *tei_rdma_hello_encode(const struct tei_rdma_hello *h, size_t *len);

/* The reply that refuses: empty paths, no queue pairs, and why, cut to fit; "refused" for "". */
char *tei_rdma_refusal_encode(const char *why, size_t *len);

/* ----------------------------------------------------------------------- keys of the descriptor */

struct tei_rdma_device {
    char name[TEI_RDMA_NAME]; /* unique in its descriptor, not empty */
    uint16_t lid;
    uint8_t gid[TEI_GID_BYTES];
};

/*
 * Reads "devices" of a descriptor, malloc'ed in *out for the caller to free, in their order.
 * Without that key, or with none in it, *out is NULL and *n 0.
 */
int tei_rdma_devices_decode(const json_t *root, struct tei_rdma_device **out, size_t *n);
/* The value of "devices", a new reference; NULL when memory is out. */
json_t *tei_rdma_devices_json(const struct tei_rdma_device *devices, size_t n);

/*
 * Reads "rkey" of a descriptor's buffer: how many there are, n_devices, or 0 if it has none or an
 * empty list, when all of rkeys are set to 0: no peer may reach that buffer. Negative on errors.
 */
int tei_rdma_keys_decode(const json_t *buffer, size_t n_devices, uint32_t *rkeys);

/*
 * Sets "rkey" and "lkey" of a buffer, one of each for each device. rkeys NULL: peers may not reach
 * it, "rkey" is empty. Engines of other makes refuse a descriptor without "lkey", though no peer
 * has a use for it. TE_ERR_MEMORY.
 */
int tei_rdma_keys_encode(json_t *buffer, const uint32_t *rkeys, const uint32_t *lkeys, size_t n);

#endif
