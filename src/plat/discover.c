/* SPDX-License-Identifier: Apache-2.0 */
/* discover.c - what the host looks like: its NUMA nodes. */
#include "plat/plat.h"

#include "base/err.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES "/sys/devices/system/node"

static int add_row(struct tei_topology *t, unsigned long node)
{
    struct tei_topology_row *rows = realloc(t->rows, (t->n_rows + 1) * sizeof(*rows));
    char name[32];

    if (!rows)
        return TE_ERR_MEMORY;
    t->rows = rows;
    snprintf(name, sizeof(name), "cpu:%lu", node);
    rows[t->n_rows] = (struct tei_topology_row){.location = strdup(name)};
    if (!rows[t->n_rows].location)
        return TE_ERR_MEMORY;
    t->n_rows++;
    return 0;
}

static int add_nodes(struct tei_topology *t, DIR *dir)
{
    const struct dirent *d;
    int rc = 0;

    while (!rc && (d = readdir(dir))) {
        char *end;
        unsigned long node;

        if (strncmp(d->d_name, "node", 4) != 0)
            continue;
        node = strtoul(d->d_name + 4, &end, 10);
        if (end != d->d_name + 4 && *end == '\0')
            rc = add_row(t, node);
    }
    return rc;
}

int tei_discover(struct tei_topology *out)
{
    struct tei_topology t = {0};
    DIR *dir = opendir(NODES);
    int rc = 0;

    if (dir) {
        rc = add_nodes(&t, dir);
        closedir(dir);
    }
    /* A kernel without NUMA has one node that it does not show. */
    if (!rc && t.n_rows == 0)
        rc = add_row(&t, 0);
    if (rc) {
        tei_topology_fini(&t);
        return TEI_FAIL(rc, "no memory to list NUMA nodes");
    }
    *out = t;
    return 0;
}
