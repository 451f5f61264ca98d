/* SPDX-License-Identifier: Apache-2.0 */
/* Any text is refused, or is a host that ends within its room; the host is a part of the text. */
/* proof: --unsigned-overflow-check --unwind 10 */
#include "base/sock.c"
#include "libc.h"
#include "proof.h"

enum { MAX = 8 };

/* Whether it is an address is nothing that matters here. */
int inet_pton(int family, const char *text, void *out)
{
    int is_one;

    PROVE(family == AF_INET6 && strlen(text) < INET6_ADDRSTRLEN);
    __CPROVER_havoc_slice(out, sizeof(struct in6_addr));
    return is_one;
}

void proof(void)
{
    const char *text = any_text(MAX);
    struct tei_hostport hp;
    uint16_t port;

    if (tei_hostport_read(text, port, &hp))
        return;
    PROVE(strlen(hp.host) <= strlen(text));
    PROVE(tei_hostport_has_port(text) || hp.port == port);
}
