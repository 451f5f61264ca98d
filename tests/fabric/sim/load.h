/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h - a random program over the public interface on several hosts, and what must be true of it.
 */
#ifndef SIM_LOAD_H
#define SIM_LOAD_H

#include "te.h"

#include <stdbool.h>
#include <stdint.h>

enum sim_fault {
    FAULT_CUT = 1,
    FAULT_RESET = 2,
    FAULT_FREEZE = 4,
    FAULT_KILL = 8,
    FAULT_SHORT = 16,
    FAULT_LOST = 32,
    FAULT_FILES = 64,
    FAULT_SPOIL =
        128, /* a byte of a host's memory changes: a run that does not fail by it checks nothing */
    FAULT_STORE = 256,
    FAULT_MEMORY = 512,
    FAULT_AWAY = 1024,
    FAULTS_ALL = 1919, /* but FAULT_SPOIL */
};

/* What there is beside the transports tcp, host and local; from 256 on, beside the calls that are always made. */
enum sim_fabric {
    FABRIC_FILES = 1,
    FABRIC_FILE_FAULTS = 2, /* EIO, a full disc, a disc that does not answer for seconds */
    FABRIC_NICS = 4,
    FABRIC_NIC_FAULTS =
        8, /* ports that are down, NICs that die, work requests that fail or vanish */
    FABRIC_NIC_CUTS = 16,   /* paths that are cut are so for NICs, too */
    FABRIC_FILE_SIZES = 32, /* files become shorter and longer */
    FABRIC_GPUS = 64,
    FABRIC_GPU_FAULTS =
        128,             /* copies that fail, devices that stand still, contexts that are lost */
    CALLS_PATHS = 256,   /* paths asked for, connecting ahead */
    CALLS_STREAMS = 512, /* requests that wait for a descriptor, or signal one */
    CALLS_PAGES = 1024,  /* requests of pages */
    CALLS_COUNTERS = 2048,
    CALLS_LEASES = 4096,
    HOSTS_FOES = 8192, /* three that mean harm */
    FABRICS_ALL = 16383,
};

/* Where the NICs of a run are described, which is a process; main.c takes it away. */
void sim_nics_folder(int pid, char out[64]);
/* Links a stand-in, "FOLDER/FILE" beside this program's own folder, into `in`; `out`: the name of the link.
   Where there is none the run ends, and says that there are runs `without`. */
void sim_link_library(const char *in, const char *name, const char *without, char out[96]);

/* What a run is made of beside its seed; -1: the seed chooses. */
struct sim_knobs {
    int hosts, rounds, faults;
    int fabrics; /* enum sim_fabric */
    int store;   /* STORE_NONE and so on */
};

struct sim_counts {
    uint64_t batches, completed, ended, notified, faults, bytes, counted, hostile;
    /* bytes: sure ones that were looked at; counted: additions that counters were seen to have; hostile: frames */
};

/* A message to a host behind requests, whether they were all COMPLETED, and what has arrived. */
unsigned sim_note_new(int to, char text[16]);
void sim_note_conclude(unsigned id, bool whole);
void sim_notes_take(te_engine *e);

/* A metadata server, of a host by itself, which never ends. */
/* The host of the metadata server. */
int sim_store_host(void);
#define SIM_STORE_PORT 8080
void *sim_store_main(void *arg);
extern unsigned sim_store_fault_in;   /* one in so many requests fails, is slow, or finds nobody */
extern uint64_t sim_store_served;     /* requests */
extern int64_t sim_store_cost_ns;     /* of each, beside the calls that it makes */
void sim_store_take_down(int64_t ns); /* for so long, from now on */

/* Runs it all; ends by sim_fail() if anything is wrong. */
struct sim_counts sim_load(const struct sim_knobs *k);

#endif
