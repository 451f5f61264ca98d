/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.c - what the parts of a run share: its hosts, and memory of which each byte may be sure.
 */
#include "world.h"

#include "sim.h"

#include <sys/mman.h>
#include <unistd.h>

#define PAGE        ((size_t)4096)
#define REGISTER_NS (600 * SIM_S) /* in which memory is registered, whatever is wrong meanwhile */

struct sim_world sim_world;

void sim_ok(int rc, const char *what)
{
    if (rc < 0)
        sim_fail("%s: %s: %s", what, te_errname(rc), te_errmsg());
}

/* With a gap behind them: a request may span regions that adjoin. */
char *sim_pages(size_t size)
{
    char *p = mmap(NULL, size + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED || mprotect(p, size, PROT_READ | PROT_WRITE) < 0)
        sim_fail("out of memory");
    return p;
}

void sim_allow(char *at, size_t size, bool yes)
{
    if (mprotect(sim_view(at), size, yes ? PROT_READ | PROT_WRITE : PROT_NONE) < 0)
        sim_fail("mprotect failed");
}

bool sim_may_try_again(int rc)
{
    /* A NIC has died, which its engine does not know yet. */
    if (rc == TE_ERR_MEMORY && (sim_world.knobs.fabrics & FABRIC_NIC_FAULTS) && !sim_world.is_quiet)
        return true;
    if ((rc == TE_ERR_MEMORY || rc == TE_ERR_CONTEXT) &&
        (sim_world.knobs.fabrics & FABRIC_GPU_FAULTS) && !sim_world.is_quiet)
        return true;
    if (sim_world.is_quiet || !sim_world.store)
        return rc == TE_ERR_BUSY;
    return rc == TE_ERR_BUSY || rc == TE_ERR_TIMEOUT || rc == TE_ERR_METADATA ||
           (rc == TE_ERR_MEMORY && (sim_world.knobs.faults & FAULT_MEMORY));
}

void sim_register(te_engine *e, void *at, size_t length, unsigned access)
{
    int64_t begin = sim_now();
    int rc;

    while ((rc = te_register(e, at, length, sim_location(at), access)) < 0 &&
           sim_may_try_again(rc) && sim_now() < begin + REGISTER_NS)
        usleep(100000);
    sim_ok(rc, "te_register");
}

void sim_unregister(te_engine *e, void *at)
{
    int rc;

    while ((rc = te_unregister(e, at)) < 0 && sim_may_try_again(rc))
        usleep(10000);
    sim_ok(rc, "te_unregister");
}

/* Each life has slots of its own: what an engine sent that is dead may still arrive. */
size_t sim_slot_number(const struct user *u, int slot)
{
    int life = (u->host->number - 1) * LIVES + u->host->lives - 1;

    return (size_t)((life * USERS + u->index) * SLOTS + slot);
}

size_t sim_memory_size(void)
{
    return (size_t)sim_world.knobs.hosts * LIVES * USERS * SLOTS * sim_world.slot;
}

/* What is sure is there. */
void sim_check_slot(const struct life *l, const struct user *u, int slot)
{
    size_t n = sim_slot_number(u, slot);
    const struct slot *s = &l->slots[n];
    const unsigned char *is = sim_view(l->memory + n * sim_world.slot);

    for (size_t i = 0; i < sim_world.slot && !s->busy && !l->over; i++) {
        sim_world.counts.bytes += s->sure[i];
        if (s->sure[i] && is[i] != s->want[i])
            sim_fail(
                "torn: byte %zu of slot %d of user %d of host %d in %s is %02x and was written as %02x",
                i, slot, u->index, u->host->number, l->name, is[i], s->want[i]);
    }
}

struct life *sim_any_life(void)
{
    return sim_world.hosts[1 + sim_below((uint64_t)sim_world.knobs.hosts)].life;
}
