/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rail_sim.h - NICs and slices in virtual time, to see what a choice of paths comes to.
 *
 * Flows send slices to peers. A slice is served first come, first served by its local NIC, then by its
 * rail where that has a rate of its own, then by the NIC of the peer, and is done half a round trip
 * later. Nothing depends on the machine that runs it: the same script gives the same figures.
 */
#ifndef RAIL_SIM_H
#define RAIL_SIM_H

#include "rail/rail.h"

#define SIM_MS    1000000LL
#define SIM_PEERS 2

enum sim_policy {
    SIM_PICK,  /* tei_paths_pick() */
    SIM_STRIPE /* slice k on rail k modulo their number, whatever has become of it */
};

struct sim_queue {
    double bps; /* 0: passes at once */
    int head, tail;
};

/* One peer, and what is sent to it. */
struct sim_flow {
    struct tei_paths paths;
    struct tei_path_route route;
    struct sim_queue nic[TEI_PATH_NICS];
    struct sim_queue rail[TEI_PATH_NICS * TEI_PATH_NICS];
    bool dead[TEI_PATH_NICS * TEI_PATH_NICS]; /* slices on it fail after sim.detect_ns */
    enum sim_policy policy;
    uint64_t slice;     /* bytes */
    uint64_t in_flight; /* bytes that may be on their way */
    uint64_t request;   /* not 0: so many bytes at a time, the next when all are done */
    bool stopped;

    uint64_t under_way, left; /* bytes; left of the request */
    uint64_t n_sent, n_failed, n_none;
    uint64_t done; /* bytes, since sim_reset() */
    uint64_t done_on[TEI_PATH_NICS * TEI_PATH_NICS];
    int64_t worst_ns; /* the slice that took the longest, failures included */
    int retry_head;   /* slices to send again */
    bool waking;
};

struct sim_slice {
    int flow, rail, avoid, next, stage;
    uint64_t len;
    int64_t born_ns;
};

struct sim_event {
    int64_t at;
    uint64_t order;
    int kind, what;
};

struct sim {
    int64_t now, reset_ns, latency_ns, detect_ns;
    int64_t poll_ns; /* completions are seen at multiples of it; 0: at once */
    struct tei_path_nics nics;
    struct sim_queue nic[TEI_PATH_NICS];
    struct sim_flow *flows;
    unsigned n_flows;
    struct sim_slice *slices;
    int n_slices, room_slices, free_slice;
    struct sim_event *heap;
    size_t n_events, room_events;
    uint64_t order;
};

/* `n_local` NICs of `bps` bytes per second, with a round trip of 10 us; faults show after 5 ms. */
void sim_init(struct sim *s, unsigned n_local, double bps);
void sim_fini(struct sim *s);

/* A peer of `n_peer` NICs; the flow goes over all NICs, 64 KiB slices, 8 MiB under way. */
struct sim_flow *sim_add(struct sim *s, unsigned n_peer, double bps,
                         const struct tei_path_conf *conf);

void sim_run(struct sim *s, int64_t until_ns);

/* Counters to 0 from now on. */
void sim_reset(struct sim *s);

/* Bytes per second since sim_reset(). */
double sim_rate(const struct sim *s, const struct sim_flow *f);
double sim_rail_rate(const struct sim *s, const struct sim_flow *f, unsigned local, unsigned peer);

/* All rails of a local NIC, of all flows. */
void sim_kill_local(struct sim *s, unsigned local, bool dead);

#endif
