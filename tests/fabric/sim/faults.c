/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults.c - what goes wrong in a run, and comes back by itself.
 */
#include "world.h"

#include "load.h"
#include "sim.h"

#include <stdlib.h>
#include <unistd.h>

static void heal(void *arg)
{
    int *path = arg;

    sim_path_heal(path[0], path[1]);
    free(path);
}

void sim_cut(int from, int to, int64_t ns)
{
    int *path = sim_new(2 * sizeof(*path));

    path[0] = from, path[1] = to;
    sim_path_cut(from, to);
    sim_at(sim_now() + ns, heal, path);
}

static int any_host(void)
{
    return 1 + (int)sim_below((uint64_t)sim_world.knobs.hosts);
}

static int64_t a_while(void)
{
    return (int64_t)(SIM_MS << sim_below(15));
}

static void swap(int *a, int *b)
{
    int was = *a;

    *a = *b, *b = was;
}

/* Of a host, or of the metadata server. */
static void cut_some(void)
{
    int a = any_host();
    int b = sim_world.store && sim_one_in(6) ? sim_store_host() : any_host();
    int64_t ns = a_while();

    if (a == b)
        return;
    if (sim_one_in(2))
        swap(&a, &b);
    sim_cut(a, b, ns);
    if (!sim_one_in(3))
        sim_cut(b, a, ns);
}

/* Now and then for so long that everybody has given it up before it goes on. */
static void freeze_one(void)
{
    sim_freeze(any_host(), sim_one_in(16) ? (int64_t)(30 + sim_below(170)) * SIM_S : a_while());
}

static void go_on(void *arg)
{
    sim_continue((int)(intptr_t)arg);
}

void sim_freeze(int host, int64_t ns)
{
    struct host *h = &sim_world.hosts[host];

    sim_trace("host %d is frozen", host);
    if (h->stood_until < sim_now() + ns)
        h->stood_until = sim_now() + ns;
    sim_stop(host);
    sim_at(sim_now() + ns, go_on, (void *)(intptr_t)host);
}

bool sim_stood(int host, int64_t since)
{
    return !sim_is_running(host) || sim_world.hosts[host].stood_until >= since;
}

void sim_reset(int a, int b)
{
    unsigned i = sim_world.n_resets;

    if (!sim_net_reset(a, b))
        return;
    sim_world.resets[i % RESETS].at = sim_now();
    sim_world.resets[i % RESETS].a = a;
    sim_world.resets[i % RESETS].b = b;
    sim_world.n_resets = i + 1;
}

static void restart(void *arg)
{
    struct host *h = arg;

    sim_trace("host %d starts again", h->number);
    sim_net_power_on(h->number);
    sim_spawn(h->number, sim_host_main, h);
}

/* Its process is gone, or the machine is off, too. */
static void bury(struct host *h)
{
    struct life *l = h->life;

    sim_trace("host %d is dead", h->number);
    h->life = NULL;
    l->over = true;
    if (sim_one_in(2))
        sim_net_power_off(h->number);
    else
        sim_files_close(h->number);
    sim_allow(l->memory, sim_memory_size(), false);
    sim_at(sim_now() + a_while(), restart, h);
}

/* Locks of the library that all hosts of this process share must not be lost: it is waited for a
 * moment at which the host has none, while those of its threads that have none do not run. */
bool sim_kill_host(struct host *h)
{
    const struct life *l = h->life; /* somebody else may kill it meanwhile */
    bool dead = false;

    if (!l || h->lives == LIVES)
        return false;
    for (int tries = 0; tries < 20 && !dead && h->life == l; tries++) {
        sim_stop(h->number);
        usleep(50);
        dead = h->life == l && sim_kill(h->number);
    }
    sim_continue(h->number);
    if (dead)
        bury(h);
    return dead;
}

static void spoil_one(void)
{
    const struct life *l = sim_world.hosts[any_host()].life;
    size_t n = sim_memory_size(), at = (size_t)sim_below(n);

    for (size_t i = 0; l && i < n; i++, at = (at + 1) % n)
        if (l->slots[at / sim_world.slot].sure[at % sim_world.slot]) {
            *(char *)sim_view(l->memory + at) ^= 1;
            return;
        }
}

void sim_one_fault(void)
{
    int fault = 1 << sim_below(4);

    if (sim_world.knobs.faults & FAULT_SPOIL)
        spoil_one();
    if (!(fault & sim_world.knobs.faults))
        return;
    sim_world.counts.faults++;
    if (fault == FAULT_CUT)
        cut_some();
    else if (fault == FAULT_RESET)
        sim_reset(0, 0);
    else if (fault == FAULT_FREEZE)
        freeze_one();
    else
        sim_kill_host(&sim_world.hosts[any_host()]);
}

void sim_set_chances(bool on)
{
    int faults = on ? sim_world.knobs.faults : 0;

    sim_net.short_in = faults & FAULT_SHORT ? 3 : 0;
    sim_net.lost_in = faults & FAULT_LOST ? 5 : 0;
    sim_file_faults = faults & FAULT_FILES ? 50 : 0;
    sim_store_fault_in = faults & FAULT_STORE ? 12 : 0;
    sim_away_hosts = sim_world.knobs.hosts;
    sim_away_in = faults & FAULT_AWAY ? 256u << sim_below(8) : 0;
    sim_memory_faults = faults & FAULT_MEMORY ? 100 : 0;
    sim_net.no_room_in = faults & (FAULT_FILES | FAULT_MEMORY) ? 8 : 0;
}
