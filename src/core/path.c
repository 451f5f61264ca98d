/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.c - what has carried a request: te_path().
 *
 * A task has a byte for the transport, written when it is cut; one for the NIC and one for the changes, which
 * transports tell with work that has ended.
 */
#include "core/path.h"
#include "core/core.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void tei_nic_names_init(struct nic_names *s)
{
    pthread_mutex_init(&s->lock, NULL);
}

void tei_nic_names_fini(struct nic_names *s)
{
    pthread_mutex_destroy(&s->lock);
}

uint8_t tei_path_nic(struct tei_host *h, const char *name)
{
    struct nic_names *s = &tei_host_engine(h)->nics;
    size_t i = 0;

    pthread_mutex_lock(&s->lock);
    while (i < s->n && strcmp(s->names[i], name) != 0)
        i++;
    if (i == s->n && i < TEI_NIC_NAMES)
        snprintf(s->names[s->n++], sizeof(s->names[0]), "%s", name);
    pthread_mutex_unlock(&s->lock);
    return i < TEI_NIC_NAMES ? (uint8_t)(i + 1) : 0;
}

/* Pieces of a task may end in several threads at a time. */
static void add_changes(struct task *t, unsigned n)
{
    uint8_t was = atomic_load_explicit(&t->changes, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&t->changes, &was,
                                                  (uint8_t)tei_min(was + n, UINT8_MAX),
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
}

void tei_path_went(struct task *t, const struct tei_work *w)
{
    if (w->nic)
        atomic_store_explicit(&t->nic, w->nic, memory_order_relaxed);
    if (w->changes)
        add_changes(t, w->changes);
}

void tei_path_again(struct task *t, uint8_t was)
{
    if (!was || was == atomic_load_explicit(&t->carrier, memory_order_relaxed))
        return;
    atomic_store_explicit(&t->nic, 0, memory_order_relaxed);
    add_changes(t, 1);
}

static void read_path(struct nic_names *s, const struct task *t, struct te_path *out)
{
    uint8_t carrier = atomic_load_explicit(&t->carrier, memory_order_relaxed);
    uint8_t nic = atomic_load_explicit(&t->nic, memory_order_relaxed);

    out->changes = atomic_load_explicit(&t->changes, memory_order_relaxed);
    out->staged = (carrier & TEI_PATH_STAGED) != 0;
    carrier &= (uint8_t)~TEI_PATH_STAGED;
    if (carrier)
        snprintf(out->transport, sizeof(out->transport), "%s",
                 tei_transport_at(carrier - 1U)->name);
    if (!nic)
        return;
    pthread_mutex_lock(&s->lock);
    memcpy(out->nic, s->names[nic - 1], sizeof(s->names[0]));
    pthread_mutex_unlock(&s->lock);
}

enum { PATH_FIRST_SIZE = TEI_SIZE_UP_TO(struct te_path, staged) };
static_assert(PATH_FIRST_SIZE <= sizeof(struct te_path), "te_path may only grow");
static_assert(sizeof(((struct te_path *)NULL)->nic) == sizeof(((struct nic_names *)NULL)->names[0]),
              "a name of a NIC is given whole");

int te_path(te_engine *e, te_batch id, size_t task, struct te_path *out)
{
    struct te_path found = {.size = sizeof(found)};
    int rc;
    struct batch *b = tei_batch_pin_checked(e, id, &rc);

    if (!b)
        return rc;
    rc = tei_task_check(b, task, out);
    if (!rc) {
        read_path(&e->nics, &b->tasks[task], &found);
        rc = tei_sized_give(out, sizeof(found), PATH_FIRST_SIZE, &found, "struct te_path");
    }
    tei_batch_unpin(&e->batches, id);
    return rc;
}
