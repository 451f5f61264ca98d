/* SPDX-License-Identifier: Apache-2.0 */
/* Of any packet no byte beyond its end is read, and what is taken has a type that this side may send. */
/* proof: --unsigned-overflow-check --unwind 50 */
#include "transport/host/host_wire.c"
#include "proof.h"

enum { MAX = 64 };

void proof(void)
{
    size_t n, n_fds;
    bool from_owner = any_bool();
    struct host_msg m;

    ASSUME(n <= MAX);
    const void *packet = any_bytes(n);
    if (!tei_host_msg_read(packet, n, n_fds, from_owner, &m))
        return;
    PROVE(n == sizeof(m) && memcmp(&m, packet, sizeof(m)) == 0);
    PROVE(m.slot < HOST_SLOTS && n_fds <= HOST_FDS);
    PROVE(from_owner == (m.type == HOST_WELCOME || m.type == HOST_MEMORY ||
                         m.type == HOST_CHANGED || m.type == HOST_PROVED));
}
