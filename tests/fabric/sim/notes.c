/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notes.c - messages behind submits: one that arrives says that all of its requests are COMPLETED, and
 * comes to the engine that it was sent to, once.
 */
#include "load.h"

#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTES 65536

enum fate { UNKNOWN, WHOLE, NOT_WHOLE };

static struct note {
    enum fate fate;
    int to;
    bool arrived;
} notes[NOTES];
static unsigned n_notes;

unsigned sim_note_new(int to, char text[16])
{
    unsigned id = n_notes++;

    if (n_notes == NOTES)
        sim_fail("more than %d messages", NOTES);
    notes[id].to = to;
    snprintf(text, 16, "%u", id);
    return id;
}

static void check(unsigned id)
{
    if (notes[id].arrived && notes[id].fate == NOT_WHOLE)
        sim_fail("message %u has arrived, and not all of its requests are COMPLETED", id);
}

void sim_note_conclude(unsigned id, bool whole)
{
    notes[id].fate = whole ? WHOLE : NOT_WHOLE;
    check(id);
}

static void take(const te_notification *n)
{
    unsigned id = (unsigned)strtoul(n->msg, NULL, 10);

    if (strcmp(n->name, "behind") != 0)
        return;
    if (id >= n_notes || notes[id].to != sim_host())
        sim_fail("message '%s' has arrived, which was not sent here", n->msg);
    if (notes[id].arrived)
        sim_fail("message %u has arrived twice", id);
    notes[id].arrived = true;
    check(id);
}

void sim_notes_take(te_engine *e)
{
    te_notification *all;
    size_t n;

    if (te_notify_recv(e, &all, &n) < 0)
        sim_fail("te_notify_recv: %s", te_errmsg());
    for (size_t i = 0; i < n; i++)
        take(&all[i]);
    te_notify_free(all, n);
}
