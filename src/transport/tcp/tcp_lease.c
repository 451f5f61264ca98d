/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_lease.c - the keys of leases on the wire, and what is said of those that are refused. */
#include "transport/tcp/tcp_lease.h"
#include "base/log.h"

#include <string.h>

size_t tei_tcp_lease_put(uint8_t *to, const te_lease_key *key)
{
    return tei_tcp_option_put(to, TCP_OPTION_LEASE | TCP_OPTION_MUST, key->bytes,
                              sizeof(key->bytes));
}

bool tei_tcp_lease_same(const te_lease_key *a, const te_lease_key *b)
{
    return a == b || (a && b && memcmp(a, b, sizeof(*a)) == 0);
}

bool tei_tcp_lease_is_heeded(const struct tcp_peer *p)
{
    return p->exchange == &tei_tcp_native && p->framing >= TCP_NATIVE_VERSION;
}

size_t tei_tcp_lease_refuse(struct tcp *t, struct tei_list *work)
{
    struct tei_list refused;
    struct tei_link *n, *tmp;
    size_t count = 0;

    tei_list_init(&refused);
    TEI_LIST_EACH(work, n, tmp) {
        struct tei_work *w = tei_container_of(n, struct tei_work, link);

        if (!w->key)
            continue;
        w->error = TE_ERR_UNSUPPORTED;
        w->why = "the native framing is off, here or at the target, or is that of release 0.1: "
                 "nobody would look at the key of the lease";
        tei_list_del(n);
        tei_list_push_back(&refused, n);
        count++;
    }
    if (count)
        t->base.host->work_done(t->base.host, &refused);
    return count;
}

const struct tcp_fault *tei_tcp_lease_fault(const struct tcp_frame_head *answer)
{
    static const struct tcp_fault unknown = {TE_ERR_UNSUPPORTED, 0,
                                             "the target's release does not know leases"};
    static const struct tcp_fault none = {
        TE_ERR_ACCESS, 0,
        "the target has no lease with this key: it was revoked, or its memory "
        "unregistered, or the key is of another engine; ask the target's program for a new one"};
    static const struct tcp_fault late = {
        TE_ERR_ACCESS, 0, "the time of the lease is over; ask the target's program for a new one"};
    static const struct tcp_fault outside = {
        TE_ERR_ACCESS, 0,
        "the lease does not reach all of the range, or does not allow this direction; ask the "
        "target's program for one that does"};
    static const struct tcp_fault others = {
        TE_ERR_ACCESS, 0,
        "the target lets others alone do this: its list of peers does not name whom this engine "
        "proves to be (TE_AUTH_KEYS, TE_AUTH_CERT); have that name put into the list"};

    switch (answer->verdict) {
    case TCP_UNKNOWN:
        return answer->index == TCP_OPTION_LEASE ? &unknown : NULL;
    case TCP_NO_LEASE:
        return &none;
    case TCP_LEASE_LATE:
        return &late;
    case TCP_OUT_OF_LEASE:
        return &outside;
    case TCP_NOT_YOURS:
    case TCP_LEASE_OF_OTHERS:
        return &others;
    default:
        return NULL;
    }
}

enum tcp_key tei_tcp_lease_take(const uint8_t *list, size_t n, te_lease_key *out)
{
    size_t len = 0;
    const uint8_t *value = tei_tcp_option_find(list, n, TCP_OPTION_LEASE, &len);

    if (!value)
        return KEY_NONE;
    if (len != sizeof(out->bytes))
        return KEY_MALFORMED;
    memcpy(out->bytes, value, len);
    return KEY_SHOWN;
}

void tei_tcp_lease_tell(const struct tcp_session *s, enum tcp_verdict verdict)
{
    char who[TEI_HOSTPORT_MAX];

    if (!tei_log_wants(TE_LOG_INFO))
        return;
    tei_addr_format(&s->from, who, sizeof(who));
    TEI_INFO("tcp: a request of %s is refused: %s", who,
             verdict == TCP_NO_LEASE     ? "there is no lease with its key"
             : verdict == TCP_LEASE_LATE ? "the time of its lease is over"
                                         : "its lease does not allow it");
}
