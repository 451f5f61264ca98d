/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process of this host may send on the unix socket, and the keys te.host of a descriptor. The
 * first byte says which, and with how many descriptors a packet came.
 */
#include "transport/host/host_wire.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_packet(const uint8_t *data, size_t size, size_t n_fds)
{
    struct host_msg m, n;
    bool owner = tei_host_msg_read(data, size, n_fds, true, &m);
    bool initiator = tei_host_msg_read(data, size, n_fds, false, &n);

    assert(!(owner && initiator));
    if (owner)
        assert(m.type == HOST_WELCOME || m.type == HOST_MEMORY || m.type == HOST_CHANGED ||
               m.type == HOST_PROVED);
    if (initiator)
        assert(n_fds == 0 && n.slot < HOST_SLOTS &&
               (n.type == HOST_HELLO || n.type == HOST_WANT || n.type == HOST_PROVE));
    if (owner || initiator)
        assert(size == sizeof m && n_fds <= HOST_FDS);
}

/* What was read is written and read again the same. */
static void try_keys(const uint8_t *data, size_t size)
{
    json_t *j = json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL), *again;
    struct host_keys a, b;
    int64_t version;

    if (tei_host_keys_read(j, &a, &version)) {
        assert(version == HOST_VERSION && strlen(a.socket) <= HOST_SOCKET);
        again = tei_host_keys_json(&a);
        assert(again && tei_host_keys_read(again, &b, &version));
        assert(memcmp(&a, &b, sizeof a) == 0);
        json_decref(again);
    }
    json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 4 == 3)
        try_keys(data + 1, size - 1);
    else
        try_packet(data + 1, size - 1, data[0] % 4);
    return 0;
}
