/* SPDX-License-Identifier: Apache-2.0 */
/* ofi_here.h - whether libfabric is here, and a provider of it on the loopback interface. */
#ifndef TEST_OFI_HERE_H
#define TEST_OFI_HERE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Asks fi_info, since a process that forks targets is to have no threads of libfabric's. Exits 77 if not. */
static inline void need_ofi(const char *provider)
{
    char command[128];

    snprintf(command, sizeof command,
             "fi_info -p '%s' -t FI_EP_RDM -c FI_RMA -d lo >/dev/null 2>&1", provider);
    if (system(command) != 0) {
        printf(
            "libfabric is not here, or has no provider %s for the interface lo: packages libfabric1 and "
            "libfabric-bin\n",
            provider);
        exit(77);
    }
}

#endif
