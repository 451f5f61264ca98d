/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_lease.h - memory for some peers only: leases, a range of registered memory that whoever has the key may reach, until
 * it is revoked; and lists of who may, by who they prove to be. te.h includes this; its conventions hold.
 *
 * What te_register() lets peers do it lets all of them do, until te_unregister(). A block of a KV cache is written by
 * one peer, for one request, and is then somebody else's: a lease is for that. It is made and revoked without
 * registering anything again, and once te_revoke() has returned no byte of whoever had it lands there any more, however
 * late it comes. Memory that is reached by leases alone is registered with access 0: then no descriptor tells of it.
 *
 *     te_register(e, pool, size, "cpu:0", 0);                                         the target, once
 *     te_lease_grant(e, block, length, TE_REMOTE_WRITE, 60000, &lease, &key);         for each request
 *     ... block, length and key to the peer, as a part of the request ...
 *     te_submit(e, batch, reqs, n, &(te_submit_opts){.size = sizeof(te_submit_opts), .lease = &key});   the peer
 *     ... done, or given up ...
 *     te_revoke(e, lease);                                                            the target
 *
 * The target looks at the key of each request, before the first byte. Requests that show one go by "tcp", in its native
 * framing, and fail with TE_ERR_UNSUPPORTED where that does not lead to the target: no other transport can have the
 * target look. So do those to this engine itself, which needs no lease of its own.
 */
#ifndef TE_LEASE_H
#define TE_LEASE_H

#include "te.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Never 0, below 2^63. Of the engine that made it, for te_revoke(). */
typedef uint64_t te_lease;

/*
 * What the holder shows. Whoever has it may do what the lease allows: send it where others do not read, and keep it
 * out of logs. Nobody can guess it: 128 of its bits are a secret. The bytes are all of it, on every machine; all
 * zeros are none, and te_submit() refuses them.
 */
typedef struct te_lease_key {
    uint8_t bytes[24];
} te_lease_key;

/*
 * Lets whoever has *key do `access` (TE_REMOTE_READ, TE_REMOTE_WRITE or both), which the memory's own may lack, in
 * [addr, addr + length), which lies in one registered region; also where that is for other peers alone: bind the key to
 * some by te_lease_grant_allow() below. `lifetime_ms` from now on, 0: until it is revoked. What
 * has begun by then goes on: only te_revoke() tells that it is over. Each lease is to be revoked, also one whose time
 * is over, or whose memory was unregistered, which ends what it allows. O(1) but for the look-up of the region.
 *
 * TE_ERR_NOT_REGISTERED: the range is not inside one region. TE_ERR_INVALID: length 0, a lifetime below 0, or no
 * access or one that there is not. TE_ERR_TOO_MANY: there are 2^20.
 */
TE_API int te_lease_grant(te_engine *e, void *addr, size_t length, unsigned access,
                          int64_t lifetime_ms, te_lease *out, te_lease_key *key);

/*
 * The lease allows nothing any more, and when this returns no byte is read or written by it, now or later. Requests
 * that are being served are ended, by closing the connections that they came on; what else was under way on these is
 * sent again by the peer, which counts as one of its MC_RETRY_CNT tries. Waits for no peer; for a copy from or to a
 * device that has begun, until the device has ended it. TE_ERR_NOT_FOUND: there is no such lease, or it was revoked;
 * if that was by another thread at the same time, it is over here, too.
 *
 * The holder's requests end INVALID with TE_ERR_ACCESS. One that was under way may have moved any part of its bytes.
 */
TE_API int te_revoke(te_engine *e, te_lease lease);

/*
 * Who a peer is can be told with TE_AUTH alone, so with TE_AUTH=off the following two are TE_ERR_UNSUPPORTED. `allow` is
 * "NAME,NAME", 64 names at most and no blanks. With psk a name is an id of the key file, and so of everybody whose own
 * file has its line: what tells two peers apart are ids of which neither has both keys. With mtls it is one that a peer's
 * certificate has, in its list of names (subjectAltName), also by a "*" there for one label; a "*" here is refused. It
 * is the host or address, or that with the port of a segment's name behind it, which does not count. Names need not be
 * known yet. Our own engine needs no name.
 *
 * As for leases, the target looks: such requests go by "tcp", in its native framing, also within the host and from a
 * peer that has RDMA; others find no way there. Whoever asks and is not named has TE_ERR_ACCESS, and is counted here, as
 * "denied" in transfer_engine_auth_refused_total. A peer that has connected is who it was then: a new certificate, or an
 * id that is taken out of the file, counts from its next connection on.
 */

/*
 * As te_register_batch(), for these peers alone, and for whom te_lease_grant() gives a key. An engine that is asked for
 * its descriptor tells them alone of it, so others have TE_ERR_STALE without asking the target, which hears nothing of
 * it. A metadata server tells everybody its address and length: who asks then has TE_ERR_ACCESS. Processes of the same
 * user can see both in the host's table of memory, too, from which te_explain() tells. It has no keys of
 * NICs or handles; of a device's allocation that any of it lies in this engine tells no handle any more, and whoever has
 * one keeps it: put such memory into allocations of its own. TE_ERR_INVALID as well: `access` is 0, or `allow` is NULL or
 * no such list. TE_ERR_BUSY: a process has been stopped for a second in the middle of copying from or to that engine's
 * memory of devices; nothing was registered.
 */
TE_API int te_register_allow(te_engine *e, const te_buffer *bufs, size_t n, const char *location,
                             unsigned access, const char *allow);

/*
 * As te_lease_grant(), and the key alone is of no use: who shows it must be one of these. TE_ERR_INVALID as well:
 * `allow` is NULL or no such list.
 */
TE_API int te_lease_grant_allow(te_engine *e, void *addr, size_t length, unsigned access,
                                int64_t lifetime_ms, const char *allow, te_lease *out,
                                te_lease_key *key);

#ifdef __cplusplus
}
#endif

#endif
