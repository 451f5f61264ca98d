/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_wire.h - what two engines of one host share: the messages on the unix socket, the pages that
 * both have mapped, and the keys of the descriptor. docs/protocol.md tells the same byte by byte.
 */
#ifndef TEI_HOST_WIRE_H
#define TEI_HOST_WIRE_H

#include "base/base.h"
#include "base/here.h"

#include <jansson.h>
#include <stdatomic.h>

#define HOST_VERSION   2
#define HOST_NONCE     TEI_HERE_NONCE
#define HOST_SOCKET    40 /* characters of a socket's name, at most */
#define HOST_FDS       2  /* descriptors with one message, at most */
#define HOST_NO_MEMORY 0  /* struct host_slot.memory: of the process, not shareable */

/* ------------------------------------------------------------------------------------- messages */

#define HOST_MAGIC 0x54534854u /* "THST" */

enum host_type {
    HOST_HELLO = 1, /* initiator: nonce of the descriptor */
    HOST_WELCOME,   /* owner: address of its proof, its beginning, 2 descriptors; or a status */
    HOST_WANT,      /* initiator: slot */
    HOST_MEMORY,    /* owner: memory, size, 1 descriptor, or a status and none */
    HOST_CHANGED,   /* owner: shared memory has left the table */
    HOST_PROVE,     /* initiator: nonce that it has just made */
    HOST_PROVED,    /* owner: that nonce stands in its proof */
};

/* Why there is none: the nonce is another's, no room, no such region any more, the initiator is in
 * another namespace, not all of the memory is registered, the initiator has not proved who it is. */
enum host_status {
    HOST_OK,
    HOST_REFUSED,
    HOST_FULL,
    HOST_GONE,
    HOST_FOREIGN,
    HOST_WITHHELD,
    HOST_UNPROVED
};

/* Each message is one packet of this form; what its type does not use is 0. */
struct host_msg {
    uint32_t magic;
    uint16_t version, type;
    uint32_t status, slot;
    union {
        struct {
            uint64_t memory, size; /* HOST_MEMORY */
        };
        struct {
            uint64_t proof_at, began; /* HOST_WELCOME */
        };
    };
    unsigned char nonce[HOST_NONCE];
};
_Static_assert(sizeof(struct host_msg) == 48, "a message has 48 bytes");

/*
 * Reads a packet of n bytes that came with n_fds descriptors from the owner, or else from the
 * initiator; false unless it is exactly what that side may send.
 */
bool tei_host_msg_read(const void *packet, size_t n, size_t n_fds, bool from_owner,
                       struct host_msg *out);

/* ---------------------------------------------------------------------------------------- pages */

#define HOST_SLOTS   (1U << 20)
#define HOST_LOG     1024
#define HOST_HAZARDS 64

/* A region that peers may see. `epoch` is odd while it is one. */
struct host_slot {
    _Atomic uint32_t epoch;
    _Atomic uint32_t access; /* te_access */
    _Atomic uint64_t addr, length;
    _Atomic uint64_t memory; /* id of the memfd it lies in, and where */
    _Atomic uint64_t offset;
    uint64_t unused[3];
};
_Static_assert(sizeof(struct host_slot) == 64, "a slot has 64 bytes");

/* The owner's table: it alone writes. Which slots have changed stands in the log, a ring. */
struct host_table {
    uint32_t magic, version, n_slots, n_log;
    _Atomic uint32_t high; /* slots from here on were never used */
    _Atomic uint32_t lost; /* regions that found no slot */
    _Atomic uint64_t log_end;
    uint64_t unused[4];
    _Atomic uint32_t log[HOST_LOG];
    unsigned char pad[8192 - 64 - 4 * HOST_LOG];
    struct host_slot slots[HOST_SLOTS];
};
_Static_assert(offsetof(struct host_table, log) == 64, "the log begins at 64");
_Static_assert(offsetof(struct host_table, slots) == 8192, "the slots begin at 8192");

/*
 * What one thread of the initiator is writing: 0, or HAZARD_BUSY and the slot or HAZARD_ANY. The
 * owner adds HAZARD_WAITED when it sleeps on the word (futex) until it changes.
 */
#define HAZARD_WAITED (1U << 31)
#define HAZARD_BUSY   (1U << 30)
#define HAZARD_ANY    (HOST_SLOTS) /* several slots */
#define HAZARD_SLOT   (2 * HOST_SLOTS - 1)

struct host_hazard {
    _Atomic uint32_t word;
    uint32_t unused[15];
};
struct host_hazards {
    struct host_hazard at[HOST_HAZARDS];
};
_Static_assert(sizeof(struct host_hazards) == 4096, "the hazards are a page");

/* ----------------------------------------------------------------------------------- descriptor */

/* The object te.host. */
struct host_keys {
    char socket[HOST_SOCKET + 1];
    unsigned char nonce[HOST_NONCE];
    struct tei_here here; /* told with that nonce; without `process` */
};

json_t *tei_host_keys_json(const struct host_keys *k); /* NULL: no memory */
/* False unless every key is there and well formed; `version` is set in any case, 0 if there is none. */
bool tei_host_keys_read(const json_t *j, struct host_keys *out, int64_t *version);

#endif
