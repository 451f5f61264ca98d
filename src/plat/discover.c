/* SPDX-License-Identifier: Apache-2.0 */
/*
 * discover.c - what the host looks like: its NICs, and the matrix that says which of them to prefer
 * for the memory of each NUMA node and GPU.
 */
#include "plat/discover.h"

#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What goes into one row: the names of the usable NICs, sorted into the two lists. */
struct draft {
    const struct tei_machine *machine;
    const struct tei_nics *nics;
    const struct tei_place *places; /* of each NIC */
    bool *prefer;                   /* scratch of each NIC */
    const char **preferred, **available;
};

/* Writes the row of draft->prefer. */
static int write_row(struct draft *d, struct tei_topology *t, const char *location)
{
    size_t n_preferred = 0, n_available = 0;

    for (size_t i = 0; i < d->nics->n; i++) {
        const struct tei_nic *nic = &d->nics->v[i];

        if (nic->usable && d->prefer[i])
            d->preferred[n_preferred++] = nic->name;
        else if (nic->usable)
            d->available[n_available++] = nic->name;
    }
    return tei_topology_add(t, location, d->preferred, n_preferred, d->available, n_available);
}

/* ------------------------------------------------------------------------------------ NUMA nodes */

/* Prefers the NICs at that distance or nearer; whether there is one. */
static bool prefer_within(struct draft *d, size_t node, uint64_t limit)
{
    bool any = false;

    for (size_t i = 0; i < d->nics->n; i++) {
        d->prefer[i] = d->nics->v[i].usable && limit != TEI_FAR &&
                       tei_machine_distance(d->machine, node, &d->places[i]) <= limit;
        any = any || d->prefer[i];
    }
    return any;
}

static bool prefer_own(struct draft *d, size_t node)
{
    bool any = false;

    for (size_t i = 0; i < d->nics->n; i++) {
        d->prefer[i] = d->nics->v[i].usable &&
                       hwloc_bitmap_isset(d->places[i].nodes, (unsigned)d->machine->nodes[node]);
        any = any || d->prefer[i];
    }
    return any;
}

static void prefer_for_node(struct draft *d, size_t node)
{
    uint64_t best = TEI_FAR;

    if (prefer_own(d, node))
        return;
    for (size_t i = 0; i < d->nics->n; i++) {
        if (d->nics->v[i].usable) {
            uint64_t far = tei_machine_distance(d->machine, node, &d->places[i]);

            best = far < best ? far : best;
        }
    }
    prefer_within(d, node, best);
}

static int write_nodes(struct draft *d, struct tei_topology *t)
{
    char location[32];
    int rc = 0;

    for (size_t i = 0; !rc && i < d->machine->n_nodes; i++) {
        snprintf(location, sizeof(location), "cpu:%d", d->machine->nodes[i]);
        prefer_for_node(d, i);
        rc = write_row(d, t, location);
    }
    return rc;
}

/* ------------------------------------------------------------------------------------------ GPUs */

/* Below 0: `a` is nearer. */
static int compare(const struct tei_nearness *a, const struct tei_nearness *b)
{
    if (a->shared != b->shared)
        return a->shared > b->shared ? -1 : 1;
    return (a->distance > b->distance) - (a->distance < b->distance);
}

static void prefer_for_gpu(struct draft *d, const struct tei_gpu *gpu)
{
    struct tei_nearness best = {.distance = TEI_FAR}, near;

    for (size_t i = 0; i < d->nics->n; i++)
        if (d->nics->v[i].usable && tei_machine_nearness(d->machine, gpu, &d->places[i], &near) &&
            compare(&near, &best) < 0)
            best = near;
    for (size_t i = 0; i < d->nics->n; i++)
        d->prefer[i] = d->nics->v[i].usable &&
                       tei_machine_nearness(d->machine, gpu, &d->places[i], &near) &&
                       compare(&near, &best) == 0;
}

static int write_gpus(struct draft *d, struct tei_topology *t)
{
    int rc = 0;

    for (size_t i = 0; !rc && i < d->machine->n_gpus; i++) {
        prefer_for_gpu(d, &d->machine->gpus[i]);
        rc = write_row(d, t, d->machine->gpus[i].location);
    }
    return rc;
}

/* ------------------------------------------------------------------------------------ the matrix */

static int write_matrix(const struct tei_machine *m, const struct tei_nics *nics,
                        const struct tei_place *places, struct tei_topology *out)
{
    struct tei_topology t = {0};
    struct draft d = {.machine = m, .nics = nics, .places = places};
    int rc = TE_ERR_MEMORY;

    d.prefer = calloc(nics->n + 1, sizeof(*d.prefer));
    d.preferred = calloc(nics->n + 1, sizeof(*d.preferred));
    d.available = calloc(nics->n + 1, sizeof(*d.available));
    if (d.prefer && d.preferred && d.available)
        rc = write_nodes(&d, &t);
    if (!rc)
        rc = write_gpus(&d, &t);
    free(d.prefer);
    free(d.preferred);
    free(d.available);
    if (rc) {
        tei_topology_fini(&t);
        return TEI_FAIL(rc, "no memory for a topology");
    }
    *out = t;
    return 0;
}

/* Finds the place of each NIC, and with it a better word on its NUMA node. */
static int place_nics(const struct tei_machine *m, struct tei_nics *nics, struct tei_place *places)
{
    int rc = 0;

    for (size_t i = 0; !rc && i < nics->n; i++) {
        rc = tei_machine_place(m, &nics->v[i], &places[i]);
        if (!rc)
            nics->v[i].numa = hwloc_bitmap_first(places[i].nodes);
    }
    return rc;
}

static int discover(const struct tei_look *look, struct tei_nics *nics, struct tei_topology *out)
{
    struct tei_machine m;
    struct tei_place *places;
    int rc = tei_machine_open(look, &m);

    if (rc)
        return rc;
    places = calloc(nics->n + 1, sizeof(*places));
    rc =
        places ? place_nics(&m, nics, places) : TEI_FAIL(TE_ERR_MEMORY, "no memory for a topology");
    if (!rc && out)
        rc = write_matrix(&m, nics, places, out);
    for (size_t i = 0; places && i < nics->n; i++)
        tei_place_fini(&places[i]);
    free(places);
    tei_machine_close(&m);
    return rc;
}

int tei_discover(const struct tei_look *look, struct tei_nics *nics, struct tei_topology *out)
{
    struct tei_nics all;
    int rc = tei_nics_list(look, &all);

    if (rc)
        return rc;
    rc = discover(look, &all, out);
    if (!rc && nics)
        *nics = all;
    else
        tei_nics_fini(&all);
    return rc;
}
