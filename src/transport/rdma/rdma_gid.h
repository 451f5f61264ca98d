/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_gid.h - global identifiers (GIDs) of RDMA ports: their text, what a port has, and which of
 * them to speak from.
 *
 * A GID is 16 bytes in network order: an IPv6 address, or an IPv4 one mapped into IPv6. A RoCE port
 * has several, one for each address of its network interfaces and each version of RoCE, and the
 * wrong one does not fail at once: packets leave from an address that the peer cannot answer.
 *
 * Everything here may be called from any thread.
 */
#ifndef TEI_RDMA_GID_H
#define TEI_RDMA_GID_H

#include "base/base.h"

#define TEI_GID_BYTES 16
#define TEI_GID_TEXT  48   /* room for a GID as text */
#define TEI_GID_MAX   1024 /* entries of a table that are looked at */

/* ----------------------------------------------------------------------------------------- text */

/* "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01", as engines publish it. */
void tei_gid_text(const uint8_t gid[TEI_GID_BYTES], char out[TEI_GID_TEXT]);

/*
 * Reads that form, or the one of the kernel, "0000:0000:0000:0000:0000:ffff:0a4d:0001"; digits of
 * either case, nothing before or behind. false, with `gid` untouched, for anything else. Sets no
 * error: only the caller knows whose text it is.
 */
bool tei_gid_parse(const char *text, uint8_t gid[TEI_GID_BYTES]);

bool tei_gid_is_null(const uint8_t gid[TEI_GID_BYTES]);

/* What kind of address a GID is, for people: "private IPv4", "link-local IPv6". Static. */
const char *tei_gid_scope_name(const uint8_t gid[TEI_GID_BYTES]);

/* ---------------------------------------------------------------------------------------- table */

enum tei_gid_type { TEI_GID_IB, TEI_GID_ROCE_V1, TEI_GID_ROCE_V2 };

struct tei_gid_entry {
    uint8_t gid[TEI_GID_BYTES];
    int index;     /* in the table of the port; what a queue pair is given */
    int type;      /* enum tei_gid_type */
    char ndev[16]; /* the network interface; "" when it is not known or of another namespace */
};

/*
 * Reads the table of a port from its folder in sysfs ("/sys/class/infiniband/mlx5_0/ports/1"):
 * ascending by index, without null entries and without those whose GID or type cannot be read. At
 * most TEI_GID_MAX entries, malloc'ed in *out for the caller to free; NULL when there are none,
 * which is no error. TE_ERR_NO_DEVICE when the folder cannot be read. What the files hold is
 * believed only where it is well formed.
 */
int tei_gid_table_read(const char *port_dir, struct tei_gid_entry **out, size_t *n);

/* "10.0.0.2 (private IPv4 on eth0, RoCE v2, index 3)", cut to `n` bytes: for lines of the log. */
void tei_gid_describe(const struct tei_gid_entry *e, char *out, size_t n);

/* --------------------------------------------------------------------------------------- choice */

/*
 * How good an entry is when nothing is known of the peer, lower is better; negative: it is null and
 * of no use. In order: routable with an interface, routable, private IPv4 with an interface,
 * degraded (link-local, loopback, interfaces of overlay networks and containers) with an interface,
 * private IPv4, degraded, RoCE v1. "Private" are the ranges that pod networks use, 192.168.0.0/16
 * is not among them. The GIDs of InfiniBand are all routable: there a link-local prefix is the
 * usual one.
 */
int tei_gid_rank(const struct tei_gid_entry *e);

/* Sets of entries by their place in the array (which need not be their index). */
#define TEI_GID_WORDS (TEI_GID_MAX / 64)

static inline void tei_gid_mark(uint64_t set[TEI_GID_WORDS], size_t at)
{
    set[at / 64] |= UINT64_C(1) << at % 64;
}

/*
 * The entry to speak from, its place in `all` in *out. `peer` is the GID of the other side; NULL,
 * or a null one: not known. `tried` is a set as above of entries that are out of the question;
 * NULL: none. RoCE v1 counts only in a table without RoCE v2.
 *
 * With a peer, the first difference decides: the same kind of address (IPv4, global, unique-local
 * or link-local IPv6, subnet of InfiniBand), the longer common prefix, the better rank, the lower
 * index. Another kind of address is the last resort, not excluded: what the peer published need not
 * be all that it has. A prefix shorter than a likely network counts only roughly, because then a
 * bit in common says nothing about the way there.
 *
 * TE_ERR_NOT_FOUND, without a text or a line in the log, when no entry is left: the caller knows
 * the device. `n` is at most TEI_GID_MAX. O(n).
 */
int tei_gid_pick(const struct tei_gid_entry *all, size_t n, const uint8_t *peer,
                 const uint64_t *tried, size_t *out);

#endif
