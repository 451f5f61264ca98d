/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_path.h - which pair of NICs, a rail, carries the next slice to a peer.
 *
 * One struct tei_paths per peer holds all its rails; one struct tei_path_nics per engine holds the
 * NICs of this host, which the peers share. A struct tei_path_route tells which rails serve slices
 * between two locations; its owner makes it once with tei_paths_route() and keeps it, one for each
 * pair of locations in use. Then, for each slice:
 *
 *     switch (tei_paths_pick(p, route, &want, &choice)) {
 *     case TEI_PATH_RAIL:  post it, tei_paths_posted(p, choice.rail, len, now); at its completion
 *                          tei_paths_done(), and if it is the path's fault tei_paths_failed()
 *     case TEI_PATH_WAIT:  keep the slice until a completion to this peer, or choice.at_ns
 *     case TEI_PATH_NONE:  no rail may be tried before choice.at_ns
 *     }
 *
 * Threads: tei_paths_*() are called under one lock per peer; nothing here waits, does I/O or reads a
 * clock, and only tei_paths_init() takes memory. tei_path_nic_*() may be called from any thread, with
 * or without such a lock.
 *
 * Rails of a route, while all is well: the preferred NICs of both locations (the available ones where
 * none is preferred, all where neither is known) are paired by name, the others by position, the
 * shorter list beginning anew; so each is used, by as few connections as that takes. A local NIC may
 * have partners: all that MC_NIC_PEER_AFFINITY names for it, else with MC_ENABLE_DEST_DEVICE_AFFINITY
 * its namesake, preferred at the peer or not. It is paired with these and no others, and what the
 * peer prefers beyond them stays unused.
 *
 * After faults: a NIC that is down, or has no rail left to this peer, is replaced by one of the
 * available list, as long as there are any; a NIC that lost all its rails of the route but could use
 * another gets the next in order. So both lists are in use then, and no more than that takes. A NIC
 * with partners that cannot reach any of them counts as lost. When even that leaves nothing, any rail
 * that works is taken, those between partners first.
 *
 * Choice among those: the least predicted time to completion, which is the bytes under way and this
 * slice over the rate of the rail as measured, or all that is under way from its local NIC, to all
 * peers, over that of the port, whichever is longer. A rail that has had nothing for TEI_PATH_PROBE_NS
 * is given the next slice, so that it stays known. With `roundrobin` the rails take turns instead. A
 * slice that failed on a rail waits for one that shares no NIC with it, where the route has such.
 */
#ifndef TEI_RDMA_PATH_H
#define TEI_RDMA_PATH_H

#include "transport/rdma/rdma_rail.h"

#define TEI_PATH_SET        64 /* rails of one route in use at once, at most */
#define TEI_PATH_NO_RAIL    (-1)
#define TEI_PATH_PROBE_NS   20000000
#define TEI_PATH_STICKY     65536 /* short slices stay on a rail until it has been given so much */
#define TEI_PATH_PAUSE_NS   100000000 /* the first pause of a rail, */
#define TEI_PATH_LAST_NS    10000000  /* and of one without which nothing works */
#define TEI_PATH_REFUSED_NS 400000000 /* the longest after a refusal: the peer does not tell when */
#define TEI_PATH_MIN_WINDOW (256U << 10)

/* ---- The NICs of this host ------------------------------------------------------------------------ */

struct tei_path_nics {
    _Atomic uint32_t epoch; /* counts changes of any */
    unsigned n;
    struct tei_path_nic nic[TEI_PATH_NICS];
};

struct tei_path_port {
    const char *name; /* copied */
    uint64_t bps;     /* bytes per second; 0 if unknown, which for a NIC of a peer sets no bound */
    bool active;
};

/* `ports` in the order in which NICs are numbered; those after TEI_PATH_NICS are left out. */
void tei_path_nics_init(struct tei_path_nics *nics, const struct tei_path_port *ports, size_t n);

/*
 * The port came up (`bps` 0: as fast as before) or went down. Coming up puts its paused rails on
 * probation at once. Cheap when nothing changes. An index out of range is ignored.
 */
void tei_path_nic_up(struct tei_path_nics *nics, size_t nic, uint64_t bps);
void tei_path_nic_down(struct tei_path_nics *nics, size_t nic);

/* Local faults since the last success on this NIC, by whichever peer: a NIC in itself broken. */
uint32_t tei_path_nic_faults(const struct tei_path_nics *nics, size_t nic);

/* ---- The rails to one peer ------------------------------------------------------------------------ */

struct tei_path_conf {
    bool roundrobin;       /* MC_PATH_ROUNDROBIN */
    bool same_name;        /* MC_ENABLE_DEST_DEVICE_AFFINITY */
    const char *affinity;  /* MC_NIC_PEER_AFFINITY, NULL unless MC_ENABLE_HCA_PEER_AFFINITY */
    int64_t rail_pause_ns; /* the longest pause, MC_RDMA_RAIL_PAUSE_SECONDS */
    uint64_t min_window;   /* bytes a rail may have on its way however slow it is; 0: default */
    uint32_t max_slices;   /* a rail may have on its way, by its queues; 0: no bound */
};

struct tei_path_peer {
    char name[TEI_PATH_NAME];
    uint64_t bps;
    bool active;
};

struct tei_paths {
    struct tei_path_nics *nics;
    struct tei_rail *rails; /* n_local * n_peer, by local NIC */
    struct tei_path_peer *peers;
    unsigned n_local, n_peer;
    uint32_t epoch;      /* counts changes of what may be used: routes of another one are stale */
    uint32_t nics_epoch; /* that has been looked at */
    int64_t look_ns;     /* the next of the two times below */
    int64_t wake_ns;     /* the first pause ends; INT64_MAX: none */
    int64_t tick_ns;     /* rates are looked at */
    struct tei_path_conf conf;
    uint32_t ups[TEI_PATH_NICS]; /* of the local NICs, as last looked at */
    bool has_partners;           /* any local NIC */
    uint32_t
        partners[TEI_PATH_NICS]; /* of each local NIC, a bit per NIC of the peer; 0: all alike */
    uint64_t live[TEI_PATH_NICS * TEI_PATH_NICS / 64]; /* rails with something to measure */
};

/* NICs by number, of one side; the first `n` of nic[] count. */
struct tei_path_list {
    uint8_t n;
    uint8_t nic[TEI_PATH_NICS];
};

struct tei_path_pair {
    uint8_t local, peer;
};

/* Private to this module; one for each pair of locations, under the lock of its peer. */
struct tei_path_route {
    uint32_t epoch; /* of struct tei_paths when the rails below were chosen */
    uint16_t n_base, n_set, n_trials;
    uint16_t turn;       /* where the next choice begins */
    int stick;           /* rail, */
    uint64_t stick_left; /* and what it may yet be given without a choice */
    int64_t probe_ns;    /* when to look next for rails without traffic */
    int64_t at_ns;       /* while there is neither set nor trials: when one may be tried */
    uint16_t set[TEI_PATH_SET];
    uint16_t trials[TEI_PATH_SET];          /* on probation */
    struct tei_path_list local[2], peer[2]; /* preferred, available */
    struct tei_path_pair base[TEI_PATH_SET];
};

/*
 * `ports`: the NICs of the peer in the order of its descriptor. `nics` is kept. Neither side may be
 * empty or have more than TEI_PATH_NICS. 0, TE_ERR_INVALID or TE_ERR_MEMORY.
 */
int tei_paths_init(struct tei_paths *p, const struct tei_path_conf *conf,
                   struct tei_path_nics *nics, const struct tei_path_port *ports, size_t n);
/* Nothing may be on its way any more. Does nothing to a zeroed struct. */
void tei_paths_fini(struct tei_paths *p);

/*
 * "local=peer[,peer];...", spaces ignored; an empty text is fine. TE_ERR_INVALID says what is wrong.
 * Names that neither side has are no error: the map may be one for the whole cluster.
 */
int tei_path_affinity_check(const char *text);

/* The peer's descriptor says whether its NIC works; as tei_path_nic_up() and _down(). */
void tei_paths_peer_changed(struct tei_paths *p, size_t peer, bool active);

/*
 * A route between two locations. Lists may be NULL or empty; numbers out of range, and those already
 * in a list, are ignored.
 */
void tei_paths_route(struct tei_paths *p, const struct tei_path_list *local_preferred,
                     const struct tei_path_list *local_available,
                     const struct tei_path_list *peer_preferred,
                     const struct tei_path_list *peer_available, struct tei_path_route *out);

enum tei_path_answer { TEI_PATH_RAIL, TEI_PATH_WAIT, TEI_PATH_NONE };

struct tei_path_want {
    uint64_t len;
    int64_t now;
    int avoid; /* the rail of the attempt before, not taken if any other works; or NO_RAIL */
    /* NICs that do not have the memory, a bit each. If there are any, all other rails will do. */
    uint32_t local_without, peer_without;
};

struct tei_path_choice {
    int rail;
    uint8_t local, peer;
    int64_t at_ns; /* WAIT, NONE: ask again then; INT64_MAX: after a completion, or a NIC came up */
};

/* Takes no note of the slice: tei_paths_posted() does. */
enum tei_path_answer tei_paths_pick(struct tei_paths *p, struct tei_path_route *route,
                                    const struct tei_path_want *want, struct tei_path_choice *out);

/*
 * Posted means: given to the rail, be it that its connection is only being made. Between a pick and
 * its post no other pick, or both may get the one slice of a trial. Each post is followed by one done,
 * with the same length, whatever became of the slice.
 */
void tei_paths_posted(struct tei_paths *p, int rail, uint64_t len, int64_t now);
void tei_paths_done(struct tei_paths *p, int rail, uint64_t len, int64_t now, bool ok);

enum tei_path_fault {
    TEI_PATH_FAULT_RAIL,  /* either end, or what is between: the rail pauses */
    TEI_PATH_FAULT_LOCAL, /* the local NIC: all its rails to this peer, if there are any others */
    TEI_PATH_FAULT_PEER,  /* the peer's NIC: all rails to it, if there are any others */
    /* The peer lets nobody connect: as RAIL, but asking again costs nobody time, and is done soon. */
    TEI_PATH_FAULT_REFUSED
};

/*
 * A slice, or a try to connect, failed by the path's fault. Slices flushed in its wake are no faults
 * of their own, though naming them does no harm. Before or after tei_paths_done(). A RAIL fault is
 * taken for one of the NIC when another rail of that NIC failed too, and none has worked since.
 */
void tei_paths_failed(struct tei_paths *p, int rail, enum tei_path_fault fault, int64_t now);

/*
 * Why each rail is used or not, a line for each, as text for people. Rails of no concern to the
 * route are left out. Returns the length of the text, which was cut if that is not below `size`.
 */
size_t tei_paths_explain(struct tei_paths *p, struct tei_path_route *route, int64_t now, char *text,
                         size_t size);

/* ---- Within the module ---------------------------------------------------------------------------- */

/* Pairs the lists of a route, and chooses the rails of a route anew. rdma_path_route.c */
void tei_path_deal(const struct tei_paths *p, struct tei_path_route *route);
void tei_path_refresh(const struct tei_paths *p, struct tei_path_route *route);
/* Notes which NICs are partners by the configuration. rdma_path_map.c */
int tei_path_map(struct tei_paths *p, const struct tei_path_conf *conf);
/* The NICs of the peer that have the name of the local one, a bit each. */
uint32_t tei_path_namesakes(const struct tei_paths *p, unsigned local);

static inline unsigned tei_path_rail(const struct tei_paths *p, unsigned local, unsigned peer)
{
    return local * p->n_peer + peer;
}

/* Not two of which one has other partners. */
static inline bool tei_path_is_apt(const struct tei_paths *p, unsigned local, unsigned peer)
{
    return p->partners[local] == 0 || (p->partners[local] >> peer & 1);
}

static inline bool tei_path_has(const struct tei_path_list *l, unsigned nic)
{
    for (unsigned k = 0; k < l->n; k++) {
        if (l->nic[k] == nic)
            return true;
    }
    return false;
}

#endif
