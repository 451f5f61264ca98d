/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rail.h - which pair of NICs, a rail, carries the next slice to a peer.
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
 */
#ifndef TEI_RAIL_H
#define TEI_RAIL_H

#include "rail/rail_state.h"

/* `ports` in the order in which NICs are numbered; those after TEI_PATH_NICS are left out. */
void tei_path_nics_init(struct tei_path_nics *nics, const struct tei_path_port *ports, size_t n);

/*
 * The port came up (`bps` 0: as fast as before) or went down. Coming up puts its paused rails on
 * probation at once. Cheap when nothing changes. An index out of range is ignored.
 */
void tei_path_nic_up(struct tei_path_nics *nics, size_t nic, uint64_t bps);
void tei_path_nic_down(struct tei_path_nics *nics, size_t nic);

/* What is on its way from this NIC to all peers. */
uint64_t tei_path_nic_bytes(const struct tei_path_nics *nics, size_t nic);

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
bool tei_paths_peer_works(const struct tei_paths *p, size_t peer);
/* The rail has failed and is not known to work again. */
bool tei_paths_is_on_trial(const struct tei_paths *p, int rail);

/*
 * A route between two locations. Lists may be NULL or empty; numbers out of range, and those already
 * in a list, are ignored.
 */
void tei_paths_route(struct tei_paths *p, const struct tei_path_list *local_preferred,
                     const struct tei_path_list *local_available,
                     const struct tei_path_list *peer_preferred,
                     const struct tei_path_list *peer_available, struct tei_path_route *out);

/*
 * The rails that the first slices of a route may go by, 2 * TEI_PATH_SET at most; how many, 0: none may
 * be tried now.
 */
size_t tei_paths_first(struct tei_paths *p, struct tei_path_route *route, int64_t now,
                       uint16_t *rails);

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

#endif
