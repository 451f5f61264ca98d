/* SPDX-License-Identifier: Apache-2.0 */
/* nics.h - what has gone through each NIC, or address, of a transport. */
#ifndef TEI_NICS_H
#define TEI_NICS_H

#include <stddef.h>
#include <stdint.h>

#define TEI_NIC_NAME 48
#define TEI_NICS_MAX 32

/* What went through a NIC; all but the last two only grow. */
struct tei_nic_figures {
    char name[TEI_NIC_NAME];
    uint64_t bytes[2];    /* sent, received */
    uint64_t resent;      /* packets, or slices, that went out again or came back with an error */
    uint64_t connections; /* open now */
    uint64_t up;          /* 0 or 1 */
};

/* The last one is called "other" where there are more. */
struct tei_nic_table {
    size_t n;
    struct tei_nic_figures v[TEI_NICS_MAX];
};
/* Adds to those of that name, or begins them. */
void tei_nics_add(struct tei_nic_table *to, const struct tei_nic_figures *f);

#endif
