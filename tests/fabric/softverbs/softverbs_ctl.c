/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softverbs_ctl FABRIC.json COMMAND [WORD]... - tells a fabric what to do; see README.md.
 */
#include "fabric/softverbs/softverbs.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static char reply[64 << 10];
    char line[512] = "";
    int rc;

    if (argc < 3) {
        fprintf(stderr,
                "usage: softverbs_ctl FABRIC.json setup | stats [NIC] | COMMAND NIC [WORD]...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        size_t used = strlen(line);

        snprintf(line + used, sizeof(line) - used, "%s%s", i > 2 ? " " : "", argv[i]);
    }
    rc = softverbs_control(argv[1], line, reply, sizeof(reply));
    if (rc) {
        fprintf(stderr, "softverbs_ctl: %s\n", reply[0] ? reply : strerror(rc));
        return 1;
    }
    fputs(reply, stdout);
    return 0;
}
