/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c - a random program over the public interface on several hosts, and what must be true of it.
 *
 * Each host has an engine, memory that the others may write and read, and users. A user has slots of its
 * own in the memory of each host, so that it alone knows what must be there: a byte is sure once a WRITE
 * of it is COMPLETED, and is not from the submission of a WRITE until then. A byte that is sure and is
 * not what was written, there or in what a READ brought, is an error; so is a touch of a request's
 * memory after its end, for it cannot be touched then; so is a request that does not end in time, or an
 * engine that leaves a thread or a descriptor behind. Faults come for a while; once they have stopped
 * everything must succeed.
 */

#include "load.h"

#include "machine.h"
#include "sim.h"
#include "te.h"
#include "world.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define FAULTS     100
#define FEW        15 /* hosts, that of the store among them */
#define LONGEST_NS (3600 * SIM_S)

int sim_store_host(void)
{
    int hosts = sim_world.knobs.hosts;

    return hosts < FEW ? FEW : hosts < SIM_HOSTS - 1 ? SIM_HOSTS - 1 : SIM_LIMIT - 1;
}

static void lay_path(int a, int b)
{
    *sim_path(a, b) = (struct sim_path){.latency_ns = (int64_t)(5000 << sim_below(12)),
                                        .bytes_per_s = (int64_t)(1000000 << sim_below(12))};
}

/* Those of few hosts are the same ones however many there may be. */
static void lay_paths(void)
{
    for (int a = 0; a <= FEW; a++)
        for (int b = 0; b <= FEW; b++)
            lay_path(a, b);
    for (int a = 0; sim_world.knobs.hosts >= FEW && a < SIM_HOSTS; a++)
        for (int b = 0; b < SIM_HOSTS; b++)
            if (a > FEW || b > FEW)
                lay_path(a, b);
}

static void on_log(void *arg, enum te_log_level level, const char *line)
{
    (void)arg, (void)level;
    sim_trace("log: %s", line);
}

static void on_touch(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    sim_fail("memory was touched that is not the engine's: %p", info->si_addr);
}

static bool all_done(void)
{
    for (int h = 1; h <= sim_world.knobs.hosts; h++)
        for (int i = 0; i < USERS; i++)
            if (!sim_world.hosts[h].life || !sim_world.hosts[h].users[i].done)
                return false;
    return true;
}

/* Some thread waits for what never comes, as for a lock that nobody gives back; no run lasts nearly as long. */
static void on_endless(void *arg)
{
    (void)arg;
    for (int h = 1; h <= sim_world.knobs.hosts; h++)
        for (int i = 0; i < USERS; i++)
            if (sim_world.hosts[h].life && !sim_world.hosts[h].users[i].done)
                sim_fail("user %d of host %d has not come to his end in %lld s", i, h,
                         (long long)(LONGEST_NS / SIM_S));
    sim_fail("a host has not come to its end in %lld s", (long long)(LONGEST_NS / SIM_S));
}

static void await_users(void)
{
    for (int i = 0; !all_done(); i++) {
        usleep((useconds_t)(sim_below(600) * 1000));
        if (i < FAULTS)
            sim_one_fault();
    }
}

static void make_quiet(void)
{
    sim_set_chances(false);
    sim_files_quiet();
    sim_nics_quiet();
    sim_gpus_quiet();
    for (bool all = false; !all;) { /* what is cut, frozen or off comes back by itself */
        usleep(1000000);
        all = true;
        for (int h = 1; h <= sim_world.knobs.hosts; h++)
            all = all && sim_world.hosts[h].life && sim_is_running(h);
    }
    usleep(40000000);
    sim_world.quiet_since = sim_now();
    sim_world.is_quiet = true;
}

static void check_left(void)
{
    for (int h = 1; h <= sim_world.knobs.hosts; h++) {
        while (sim_world.hosts[h].life)
            usleep(10000);
        usleep(10000);
        if (sim_files_of(h))
            sim_fail("host %d has left %u descriptors open", h, sim_files_of(h));
        if (sim_threads_of(h))
            sim_fail("host %d has left %u threads", h, sim_threads_of(h));
    }
}

struct sim_counts sim_load(const struct sim_knobs *k)
{
    struct sigaction touch = {.sa_sigaction = on_touch, .sa_flags = SA_SIGINFO};
    int hosts = 2 + (int)sim_below(3), rounds = 4 + (int)sim_below(20);
    int faults = sim_one_in(6)   ? (sim_one_in(2) ? 0 : FAULT_SHORT)
                 : sim_one_in(3) ? 1 << sim_below(4) | (sim_one_in(3) ? FAULT_AWAY : 0)
                                 : (int)sim_below(FAULTS_ALL + 1) & FAULTS_ALL;

    sigaction(SIGSEGV, &touch, NULL);
    te_log_set_sink(on_log, NULL);
    te_log_set_level(TE_LOG_DEBUG);
    sim_world.knobs =
        (struct sim_knobs){k->hosts < 0 ? hosts : k->hosts, k->rounds < 0 ? rounds : k->rounds,
                           k->faults < 0 ? faults : k->faults, k->fabrics, k->store};
    sim_past_look();
    if (sim_is_past())
        sim_world.knobs.fabrics &= ~(FABRIC_GPUS | FABRIC_GPU_FAULTS | CALLS_PATHS | CALLS_STREAMS |
                                     CALLS_PAGES | CALLS_COUNTERS | CALLS_LEASES);
    if (sim_world.knobs.hosts >= FEW)
        sim_burns *= (unsigned)sim_world.knobs.hosts;
    sim_world.slot = sim_one_in(5) ? 96 * 1024 : 16 * 1024;
    lay_paths();
    sim_world.store = sim_one_in(2) ? STORE_NONE : STORE_HTTP + (unsigned)sim_below(3);
    sim_world.store = k->store < 0 ? sim_world.store : (unsigned)k->store;
    sim_is_v6 = sim_one_in(4);
    if (sim_world.store)
        sim_spawn(sim_store_host(), sim_store_main, NULL);
    if ((sim_world.knobs.fabrics & HOSTS_FOES) && sim_world.knobs.hosts < FEW - SIM_FOES)
        sim_foes_lay(FEW - SIM_FOES);
    sim_machines_lay(sim_world.knobs.hosts);
    sim_files_lay();
    sim_nics_lay();
    sim_gpus_lay();
    for (int h = 1; h <= sim_world.knobs.hosts; h++) {
        sim_world.hosts[h].number = h;
        sim_spawn(h, sim_host_main, &sim_world.hosts[h]);
    }
    for (int h = 1; h <= sim_world.knobs.hosts; h++)
        while (!sim_world.hosts[h].life)
            usleep(10000);
    sim_set_chances(true);
    sim_at(sim_now() + LONGEST_NS, on_endless, NULL);
    await_users();
    make_quiet();
    check_left();
    sim_files_check();
    return sim_world.counts;
}
