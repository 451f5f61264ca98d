/* SPDX-License-Identifier: Apache-2.0 */
/* nics.c - what went through each NIC, or address, as transports tell it. */
#include "transport/transport.h"

#include <stdio.h>
#include <string.h>

void tei_nics_add(struct tei_nic_table *to, const struct tei_nic_figures *f)
{
    struct tei_nic_figures *at;
    size_t i = 0;

    while (i < to->n && strcmp(to->v[i].name, f->name) != 0)
        i++;
    i = i < TEI_NICS_MAX ? i : TEI_NICS_MAX - 1;
    at = &to->v[i];
    if (i == to->n) {
        to->n++;
        memcpy(at->name, f->name, sizeof(at->name));
    }
    if (to->n == TEI_NICS_MAX && strcmp(at->name, f->name) != 0)
        snprintf(at->name, sizeof(at->name), "other");
    at->bytes[0] += f->bytes[0];
    at->bytes[1] += f->bytes[1];
    at->resent += f->resent;
    at->connections += f->connections;
    at->up |= f->up;
}
