/* SPDX-License-Identifier: Apache-2.0 */
/* In whatever order the kernel tells of calls: none is over before it was told of, and all are in the end. */
/* proof: --unwind 5 */
#include "transport/tcp/tcp_zerocopy.c"
#include "proof.h"

enum { MAX = 4 };

void proof(void)
{
    struct tcp_zerocopy z = {0};
    uint32_t before, n = (uint32_t)any_size(MAX), k = (uint32_t)any_size(MAX - 1);
    bool told[MAX] = {false};

    ASSUME(before < UINT32_MAX - MAX); /* no call has the number 0, which stands for none */
    z.done = z.sent = before;
    for (uint32_t i = 0; i < n; i++)
        tei_tcp_zerocopy_sent(&z);
    ASSUME(k < n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = (uint32_t)any_size(MAX - 1);
        struct sock_extended_err e = {.ee_info = before + at, .ee_data = before + at};

        ASSUME(at < n && !told[at]);
        told[at] = true;
        take(&z, &e);
        PROVE(told[k] || !tei_tcp_zerocopy_is_over(&z, before + 1 + k));
    }
    PROVE(z.done == z.sent && z.early == 0);
}
