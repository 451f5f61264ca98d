/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_wire.h - the bytes of the TCP data port. Versions 1 and 2: a request header of 24 bytes, a
 * status of 8. The native framing: a greeting of 48 bytes, then frames, each a header of 32 bytes
 * and 16 for each of its blocks; options may follow either. All integers little-endian.
 * docs/protocol.md, "TCP data port" and "Native framing", says how they follow each other.
 */
#ifndef TEI_TCP_WIRE_H
#define TEI_TCP_WIRE_H

#include "base/base.h"

#include <assert.h>
#include <sys/uio.h>

#define TCP_HEAD_LEN   24
#define TCP_STATUS_LEN 8

#define TCP_OPCODE_WRITE 0x01
#define TCP_OPCODE_V2    0x80

#define TCP_STATUS_MAGIC    UINT32_C(0x4D435456) /* "MCTV" */
#define TCP_STATUS_OK       0u
#define TCP_STATUS_REJECTED 1u

/* The header as it lies on the wire. */
struct tcp_head_wire {
    uint8_t size[8];
    uint8_t addr[8];
    uint8_t opcode;
    uint8_t padding[7]; /* zero when sent, ignored when read */
};
static_assert(sizeof(struct tcp_head_wire) == TCP_HEAD_LEN, "a header is 24 bytes");
static_assert(offsetof(struct tcp_head_wire, opcode) == 16,
              "the opcode follows two 64-bit numbers");

struct tcp_status_wire {
    uint8_t code[4];
    uint8_t magic[4];
};
static_assert(sizeof(struct tcp_status_wire) == TCP_STATUS_LEN, "a status is 8 bytes");

/* What a header says. */
struct tcp_head {
    uint64_t size, addr;
    int opcode;  /* TE_READ, TE_WRITE */
    int version; /* 1, 2 */
};

void tei_tcp_head_encode(const struct tcp_head *h, uint8_t out[TCP_HEAD_LEN]);

/*
 * Every 24 bytes are a header: an opcode that is not WRITE means READ. Whether the range is good is
 * not looked at.
 */
void tei_tcp_head_decode(const uint8_t in[TCP_HEAD_LEN], struct tcp_head *out);
/* Whether its opcode is one that clients send. */
bool tei_tcp_head_is_known(const uint8_t in[TCP_HEAD_LEN]);

void tei_tcp_status_encode(uint32_t code, uint8_t out[TCP_STATUS_LEN]);

/* False if these are not the bytes of a status. */
bool tei_tcp_status_decode(const uint8_t in[TCP_STATUS_LEN], uint32_t *code);

/* ------------------------------------------------------------------------------- native framing */

#define TCP_NATIVE_FIRST   1 /* of 0.1: without options */
#define TCP_NATIVE_VERSION 2
#define TCP_HELLO_LEN      48
#define TCP_FRAME_LEN      32
#define TCP_BLOCK_LEN      16
#define TCP_TRAILER_LEN    4
#define TCP_FRAME_BLOCKS   128                    /* of one frame at most */
#define TCP_FRAME_BYTES    ((uint64_t)1 << 20)    /* of payload, that a sender aims at */
#define TCP_FRAME_MAX      (16 * TCP_FRAME_BYTES) /* that a receiver takes */
#define TCP_FRAME_HEAD_MAX (TCP_FRAME_LEN + TCP_FRAME_BLOCKS * TCP_BLOCK_LEN) /* without options */
#define TCP_OPTION_LEN     4                                                  /* before its value */
#define TCP_OPTION_UNIT    8       /* lists, and options in them, have a multiple of it */
#define TCP_OPTION_MUST    0x8000u /* of a kind: to be refused where it is not known */
#define TCP_OPTIONS_MAX    1024    /* bytes of a list */

#define TCP_OPTION_AUTH    0x0001u /* the proof of TE_AUTH: tcp_auth.c */
#define TCP_OPTION_TRACE   0x0002u /* of a request, a trace context: tcp_trace.c */
#define TCP_OPTION_LEASE   0x0003u /* of a request, the key of a lease: tcp_lease.c */
#define TCP_ANSWER_OPTIONS 72      /* bytes of it in the answer to a greeting, and in a PROVE */
#define TCP_PROVE_OPTIONS  40
#define TCP_TRACE_OPTIONS  32 /* bytes of it in a request */
#define TCP_LEASE_OPTIONS  32
#define TCP_KNOWN(kind)    (1u << (kind))

/* As the size of a version 1 or 2 header this would end beyond the address space. */
#define TCP_HELLO_MAGIC UINT64_C(0xff564954414e4554) /* "TENATIV" and a byte 0xff */

#define TCP_HELLO_CRC32C 0x0001u

enum tcp_frame_type {
    TCP_FRAME_READ = 1, /* to the server */
    TCP_FRAME_WRITE = 2,
    TCP_FRAME_DROP = 3,
    TCP_FRAME_PROVE = 4,
    TCP_FRAME_HELLO = 16, /* from it: the answer to the greeting, and to the four above */
    TCP_FRAME_DATA = 17,
    TCP_FRAME_ACK = 18,
    TCP_FRAME_DROPPED = 19,
    TCP_FRAME_PROVED = 20,
};

enum tcp_verdict {
    TCP_OK = 0,
    TCP_REFUSED = 1,  /* block number `index` is not there, or not open to this access */
    TCP_STRANGER = 2, /* the greeting was meant for another instance */
    TCP_UNKNOWN = 3,  /* a version, a flag, or the option of kind `index`, is not known here */
    TCP_CORRUPT = 4,  /* the payload's checksum is wrong */
    TCP_UNPROVED =
        5, /* the greeting has no proof that is good here; `index`: enum tei_auth_cause */
    TCP_NO_LEASE = 6,     /* the key of a request is that of no lease, or of one that was revoked */
    TCP_LEASE_LATE = 7,   /* of one whose time is over */
    TCP_OUT_OF_LEASE = 8, /* block number `index` is not in it, or not open to this access by it */
    TCP_NOT_YOURS = 9,    /* block number `index` is open to this access, for others alone */
    TCP_LEASE_OF_OTHERS = 10,
};

struct tcp_hello_wire {
    uint8_t magic[8];
    uint8_t version[2], flags[2];
    uint8_t options[2], zero[2]; /* in TCP_OPTION_UNIT */
    uint8_t target[8];           /* the instance that is greeted: "id" of its descriptor */
    uint8_t client[8];           /* the instance that greets */
    uint8_t connection[8];
    uint8_t spare[8];
};
static_assert(sizeof(struct tcp_hello_wire) == TCP_HELLO_LEN, "a greeting is 48 bytes");

struct tcp_frame_wire {
    uint8_t type;
    uint8_t options; /* in TCP_OPTION_UNIT */
    uint8_t count[2];
    uint8_t crc[4]; /* of header (this field 0), blocks, options; 0 where checksums are off */
    uint8_t id[8];
    uint8_t length[8];
    uint8_t verdict[4], index[4];
};
static_assert(sizeof(struct tcp_frame_wire) == TCP_FRAME_LEN, "a frame's header is 32 bytes");

struct tcp_block_wire {
    uint8_t addr[8];
    uint8_t length[4], zero[4];
};
static_assert(sizeof(struct tcp_block_wire) == TCP_BLOCK_LEN, "a block is 16 bytes");

struct tcp_option_wire {
    uint8_t kind[2], length[2]; /* of the value, which is padded */
};
static_assert(sizeof(struct tcp_option_wire) == TCP_OPTION_LEN, "an option begins with 4 bytes");

/* Those of the answer to a greeting lie where the client has kept the greeting. */
static_assert(TCP_FRAME_LEN + TCP_OPTIONS_MAX <= TCP_FRAME_HEAD_MAX, "a list of options fits");

struct tcp_hello {
    unsigned version, flags;
    uint64_t target, client, connection;
    size_t options; /* bytes of them that follow */
};

struct tcp_frame_head {
    unsigned type, count;
    uint32_t crc;
    uint64_t id;     /* of the request; an ACK answers all WRITEs up to it */
    uint64_t length; /* bytes of payload that follow */
    uint32_t verdict, index;
    size_t options; /* bytes of them behind the blocks */
};

struct tcp_range {
    uint64_t addr;
    uint32_t length;
};

void tei_tcp_hello_encode(const struct tcp_hello *h, uint8_t out[TCP_HELLO_LEN]);
/* Whether a connection that begins with these bytes speaks the native framing. */
bool tei_tcp_hello_begins(const uint8_t in[TCP_HEAD_LEN]);
void tei_tcp_hello_decode(const uint8_t in[TCP_HELLO_LEN], struct tcp_hello *out);

void tei_tcp_frame_encode(const struct tcp_frame_head *h, uint8_t out[TCP_FRAME_LEN]);
void tei_tcp_frame_decode(const uint8_t in[TCP_FRAME_LEN], struct tcp_frame_head *out);
void tei_tcp_range_encode(const struct tcp_range *r, uint8_t out[TCP_BLOCK_LEN]);
void tei_tcp_range_decode(const uint8_t in[TCP_BLOCK_LEN], struct tcp_range *out);

/*
 * Whether these bytes, a multiple of TCP_OPTION_UNIT, are a list of options. `known`: TCP_KNOWN() of the kinds that are
 * known here. *unknown: the kind of the first other one that must be known, 0: all may be passed over.
 */
bool tei_tcp_options_read(const uint8_t *list, size_t n, unsigned known, uint32_t *unknown);
/* The value of the first option of that kind in such a list, *len bytes; NULL: there is none. */
const uint8_t *tei_tcp_option_find(const uint8_t *list, size_t n, unsigned kind, size_t *len);
/* Writes an option, padded; `kind` with TCP_OPTION_MUST or without. Returns its length. */
size_t tei_tcp_option_put(uint8_t *to, unsigned kind, const void *value, size_t len);

static inline size_t tei_tcp_iov_len(const struct iovec *iov, int n)
{
    size_t len = 0;

    for (int i = 0; i < n; i++)
        len += iov[i].iov_len;
    return len;
}

/* The checksum of what `crc` is of followed by the first n bytes of these parts. */
uint32_t tei_tcp_sum(uint32_t crc, const struct iovec *parts, uint64_t n);
void tei_tcp_trailer_encode(uint32_t crc, uint8_t out[TCP_TRAILER_LEN]);
uint32_t tei_tcp_trailer_decode(const uint8_t in[TCP_TRAILER_LEN]);

/* Writes the checksum of a header, blocks and options, `n` bytes, into the header. */
void tei_tcp_frame_seal(uint8_t *head, size_t n);
/* Whether the checksum in the header is that of its `n` bytes. */
bool tei_tcp_frame_intact(const uint8_t *head, size_t n);

#endif
