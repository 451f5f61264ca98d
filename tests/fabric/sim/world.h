/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h - what the parts of a run share: its hosts, and memory of which each byte may be sure.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "load.h"
#include "sim.h"
#include "te.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIVES 6 /* of a host, at most */
#define USERS 2 /* of a host */
#define SLOTS 3 /* of a user, in the memory of each host */
#define EXTRA (64 * 1024)

struct slot {
    unsigned char *want;
    bool *sure;
    bool busy; /* a WRITE of it is under way */
};

/* A batch, by what te_done() may say of it. */
struct run {
    te_batch batch;
    unsigned submits, told;
    struct run *next;
};

/* A host's life: a new one begins with each start. */
struct life {
    te_engine *engine;
    char name[64];
    char *memory, *extra;
    struct slot *slots;
    bool over;
    int host;
    unsigned there;   /* odd while `extra` is registered, another number each time */
    struct run *runs; /* all that ever were, the newest first */
};

struct user {
    struct host *host;
    int index;
    pthread_t thread;
    char *local; /* for each slot as much */
    bool done;   /* with its rounds */
};

struct host {
    int number;
    struct life *life; /* NULL: is not up */
    struct user users[USERS];
    int lives;    /* that have begun */
    bool through; /* all that it was to do is done */
};

extern struct sim_world {
    struct sim_knobs knobs;
    size_t slot; /* its bytes */
    struct host hosts[SIM_HOSTS];
    bool is_quiet; /* faults have stopped, and what they did is over */
    int64_t quiet_since;
    struct sim_counts counts;
} sim_world;

/* world.c. A call of the library that must succeed; memory with a gap behind it, for a request may
 * span regions that adjoin; whether anybody may touch it. */
void sim_ok(int rc, const char *what);
char *sim_pages(size_t size);
void sim_allow(char *at, size_t size, bool yes);

/* Of a host: all slots; that of a user of this life; what is sure of it must be there. */
size_t sim_memory_size(void);
size_t sim_slot_number(const struct user *u, int slot);
void sim_check_slot(const struct life *l, const struct user *u, int slot);

/* Of any host, NULL if that is not up. */
struct life *sim_any_life(void);

/* user.c, host.c: threads. `arg` is the user, or the host that starts. */
void *sim_user_main(void *arg);
void *sim_host_main(void *arg);

/* faults.c. One of those that the run has, now; and what may go wrong at any time. */
void sim_one_fault(void);
void sim_set_chances(bool on);

#endif
