/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.c - what has carried a request: te_path().
 *
 * A task has a word for it: the transport is written when it is cut, the NIC and the changes are told by
 * transports with work that has ended.
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

enum { NIC_SHIFT = 8, CHANGES_SHIFT = 16 };

static uint32_t pack(unsigned carrier, unsigned nic, unsigned changes)
{
    return carrier | nic << NIC_SHIFT | (uint32_t)tei_min(changes, UINT8_MAX) << CHANGES_SHIFT;
}

static unsigned carrier_of(uint32_t path)
{
    return path & UINT8_MAX;
}

/* Of what has carried it: there is one. */
static size_t place_of(uint32_t path)
{
    return (carrier_of(path) & ~(unsigned)TEI_PATH_STAGED) - 1;
}

static unsigned nic_of(uint32_t path)
{
    return path >> NIC_SHIFT & UINT8_MAX;
}

static unsigned changes_of(uint32_t path)
{
    return path >> CHANGES_SHIFT & UINT8_MAX;
}

/* Pieces of a task may end in several threads at a time, and those of pages while others are cut. */
static bool change(struct task *t, uint32_t *was, uint32_t now)
{
    return *was == now || atomic_compare_exchange_weak_explicit(
                              &t->path, was, now, memory_order_relaxed, memory_order_relaxed);
}

void tei_path_by(struct task *t, uint8_t carrier, bool again)
{
    uint32_t was = atomic_load_explicit(&t->path, memory_order_relaxed), now;
    bool other;

    if (!was) { /* nothing of it is out */
        atomic_store_explicit(&t->path, carrier, memory_order_relaxed);
        return;
    }
    do {
        other = again && carrier_of(was) && carrier_of(was) != carrier;
        now = pack(carrier, carrier_of(was) == carrier ? nic_of(was) : 0, changes_of(was) + other);
    } while (!change(t, &was, now));
    if (other)
        tei_metrics_path_changed(t->batch->engine, place_of(was), place_of(now));
}

void tei_path_went(struct task *t, const struct tei_work *w)
{
    uint32_t was = atomic_load_explicit(&t->path, memory_order_relaxed), now;

    do {
        now = pack(carrier_of(was), w->nic ? w->nic : nic_of(was), changes_of(was) + w->changes);
    } while (!change(t, &was, now));
}

static void read_path(struct nic_names *s, const struct task *t, struct te_path *out)
{
    uint32_t path = atomic_load_explicit(&t->path, memory_order_relaxed);
    unsigned nic = nic_of(path);

    out->changes = changes_of(path);
    out->staged = (carrier_of(path) & TEI_PATH_STAGED) != 0;
    if (carrier_of(path))
        snprintf(out->transport, sizeof(out->transport), "%s",
                 tei_transport_at(place_of(path))->name);
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
