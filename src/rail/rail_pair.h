/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rail_pair.h - one rail, a pair of a local NIC and a NIC of a peer: what is on its way there, how
 * fast it is, and whether it may be used.
 *
 * Plain data under the lock of the peer that the rail leads to, but for struct tei_path_nic, which
 * the rails of all peers share. Times are nanoseconds of one monotonic clock, given by the caller;
 * rates are bytes per second. How the rate is measured: rail_pair.c.
 *
 * State.    ACTIVE --fault--> PAUSED --time, or a NIC that came back--> PROBATION --fault--> PAUSED
 *              ^                                                            |
 *              +------- TEI_RAIL_TRIALS slices or TEI_RAIL_TRIAL_BYTES -----+
 * Each pause is twice as long as the one before, unless the rail has worked for ten times as long
 * since, so that one which fails under its full share is not tried after each shortest pause.
 */
#ifndef TEI_RAIL_PAIR_H
#define TEI_RAIL_PAIR_H

#include "base/base.h"

#include <stdalign.h>
#include <stdatomic.h>

#define TEI_PATH_NICS        32      /* of either side */
#define TEI_PATH_NAME        64      /* a NIC's name with its NUL; longer ones are cut */
#define TEI_RAIL_WINDOW_NS   2000000 /* the shortest window of measurement */
#define TEI_RAIL_QUEUED_NS   20000   /* a slice under way for longer has waited for others */
#define TEI_RAIL_FIRST_NS    1000000 /* what may be on its way on a rail never measured, */
#define TEI_RAIL_FULL_NS     8000000 /* and on one that is as fast as thought, in its own time */
#define TEI_RAIL_TRIALS      2
#define TEI_RAIL_TRIAL_BYTES (1U << 20)
#define TEI_RAIL_COST_SHIFT  20

enum tei_rail_state { TEI_RAIL_ACTIVE, TEI_RAIL_PAUSED, TEI_RAIL_PROBATION };

/*
 * A NIC of this host. `outstanding` is written by all peers at once, each under a lock of its own,
 * so everything here is atomic, and relaxed: a choice made by a figure just gone stale is as good.
 */
struct tei_path_nic {
    alignas(64) _Atomic uint64_t outstanding; /* bytes on their way, to all peers */
    _Atomic uint64_t cost;                    /* of a byte, see tei_rail_cost_of() */
    _Atomic uint64_t bps;                     /* of the port */
    _Atomic uint32_t ups;                     /* how often it came up */
    _Atomic uint32_t faults;                  /* local faults since the last success */
    atomic_bool active;
    char name[TEI_PATH_NAME];
};

struct tei_rail {
    /* What a choice reads. */
    uint64_t outstanding; /* bytes posted and not done */
    uint64_t window;      /* full from here on */
    uint64_t cost;        /* of a byte, by the speed */
    struct tei_path_nic *nic;
    uint32_t n_out; /* slices posted and not done */
    uint8_t local, peer;
    uint8_t state; /* enum tei_rail_state */
    bool on_trial; /* a slice given on probation is on its way */
    int64_t given_ns;

    /* The measurement. */
    int64_t busy_since;  /* while outstanding > 0 */
    int64_t progress_ns; /* the last success, or the end of the last idle time */
    int64_t measured_ns; /* begin of the window */
    int64_t full_ns;     /* what may be on its way, in the rail's own time */
    uint64_t busy_ns, bytes, depth_sum;
    uint32_t n_done, longest; /* successes of the window; the longest slice ever */
    double rate, speed, nominal;
    double sample, depth, sample_busy; /* the last window: rate, mean of outstanding, length */
    int64_t sampled_ns;

    /* Faults. */
    int64_t until_ns, pause_ns, active_ns;
    int64_t failed_ns, ok_ns; /* the last fault, the last success; INT64_MIN: none */
    uint32_t n_faults;        /* in all, for people */
    uint32_t n_trial, trial_bytes;
};

/* Nanoseconds a byte takes at `bps`, times 2^TEI_RAIL_COST_SHIFT. */
uint64_t tei_rail_cost_of(double bps);

/*
 * To the rate of its ports, with nothing measured. Keeps what is on its way, and the state. Less
 * than 16 MB/s, or 0 for unknown, is taken for 16 MB/s.
 */
void tei_rail_set_nominal(struct tei_rail *r, uint64_t bps, uint64_t min_window);

void tei_rail_posted(struct tei_rail *r, uint64_t len, int64_t now);

/* Whether this success ended the probation. */
bool tei_rail_done(struct tei_rail *r, uint64_t len, int64_t now, bool ok);

/* Closes the window of measurement if it is long enough. False: nothing to measure until a post. */
bool tei_rail_measure(struct tei_rail *r, uint64_t min_window, int64_t now);

/* Whether its last sample is recent enough to compare others with. */
bool tei_rail_is_known(const struct tei_rail *r, int64_t now);

/*
 * After a sample: settles the speed. `others_s`: for a rail that meets another of this peer in a NIC,
 * the seconds that slices take on the other rails; else 0.
 */
void tei_rail_settle(struct tei_rail *r, double others_s);

/*
 * ACTIVE or PROBATION -> PAUSED, for `first_ns` or twice the last pause, at most `max_ns`. False if
 * the rail is paused already, or is on probation and the fault is that of an older slice: a burst of
 * faults is one fault.
 */
bool tei_rail_pause(struct tei_rail *r, int64_t first_ns, int64_t max_ns, int64_t now);

/* For the fault of another rail of the same NIC: pauses this one, idle as far as it matters, too. */
void tei_rail_hold(struct tei_rail *r, int64_t pause_ns, int64_t now);

/* PAUSED -> PROBATION; forgive: a NIC of the rail came back, and the next pause is a first one. */
void tei_rail_resume(struct tei_rail *r);
void tei_rail_forgive(struct tei_rail *r);

#endif
