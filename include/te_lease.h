/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_lease.h - leases: a range of registered memory that whoever has the key may reach, until it is revoked.
 * te.h includes this; its conventions hold.
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
 * [addr, addr + length), which lies in one registered region. `lifetime_ms` from now on, 0: until it is revoked. What
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

#ifdef __cplusplus
}
#endif

#endif
