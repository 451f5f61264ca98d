/* SPDX-License-Identifier: Apache-2.0 */
/* host_wire.c - messages and keys, read and written without a socket. */
#include "transport/host/host_wire.h"

#include "base/hex.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

/* What a message of each type may have besides magic, version and type. */
struct form {
    bool from_owner, has_status, has_slot, has_memory, has_nonce;
    size_t fds; /* unless a status says why there are none */
};

static const struct form forms[] = {
    [HOST_HELLO] = {.has_nonce = true},
    [HOST_WELCOME] = {.from_owner = true, .has_status = true, .has_memory = true, .fds = 2},
    [HOST_WANT] = {.has_slot = true},
    [HOST_MEMORY] =
        {.from_owner = true, .has_status = true, .has_slot = true, .has_memory = true, .fds = 1},
    [HOST_CHANGED] = {.from_owner = true},
    [HOST_PROVE] = {.has_nonce = true},
    [HOST_PROVED] = {.from_owner = true},
};

static bool fits(const struct host_msg *m, const struct form *f, size_t n_fds)
{
    static const unsigned char none[HOST_NONCE];

    return (f->has_status || m->status == HOST_OK) && (f->has_slot || m->slot == 0) &&
           (f->has_memory || (m->memory == 0 && m->size == 0)) &&
           (f->has_nonce || memcmp(m->nonce, none, sizeof(none)) == 0) && m->slot < HOST_SLOTS &&
           n_fds == (m->status == HOST_OK ? f->fds : 0);
}

bool tei_host_msg_read(const void *packet, size_t n, size_t n_fds, bool from_owner,
                       struct host_msg *out)
{
    struct host_msg m;

    if (n != sizeof(m))
        return false;
    memcpy(&m, packet, sizeof(m));
    if (m.magic != HOST_MAGIC || m.version != HOST_VERSION || m.type < HOST_HELLO ||
        m.type > HOST_PROVED || forms[m.type].from_owner != from_owner ||
        !fits(&m, &forms[m.type], n_fds))
        return false;
    *out = m;
    return true;
}

/* ----------------------------------------------------------------------------------------- keys */

json_t *tei_host_keys_json(const struct host_keys *k)
{
    char nonce[2 * HOST_NONCE + 1];

    tei_hex_write(k->nonce, HOST_NONCE, nonce);
    return json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s}", "v", HOST_VERSION, "socket", k->socket,
                     "nonce", nonce, "host", k->here.host, "machine", k->here.machine, "pid_ns",
                     k->here.pid_ns, "net_ns", k->here.net_ns);
}

static bool read_place(const json_t *j, const char *key, char out[TEI_HERE_TEXT + 1])
{
    return tei_json_word(json_object_get(j, key), out, TEI_HERE_TEXT + 1) && tei_here_is_text(out);
}

bool tei_host_keys_read(const json_t *j, struct host_keys *k, int64_t *version)
{
    char nonce[2 * HOST_NONCE + 1];

    *version = json_integer_value(json_object_get(j, "v"));
    memset(k, 0, sizeof(*k));
    return *version == HOST_VERSION &&
           tei_json_word(json_object_get(j, "socket"), k->socket, sizeof(k->socket)) &&
           k->socket[0] && tei_json_word(json_object_get(j, "nonce"), nonce, sizeof(nonce)) &&
           tei_hex_is(nonce, 2 * HOST_NONCE) && tei_hex_read(nonce, k->nonce, HOST_NONCE) &&
           read_place(j, "host", k->here.host) && read_place(j, "machine", k->here.machine) &&
           read_place(j, "pid_ns", k->here.pid_ns) && read_place(j, "net_ns", k->here.net_ns);
}
