/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rail_state.h - what the choice of rails keeps: the NICs of this host, the rails to one peer, and a
 * route between two locations. Users embed the structs and leave the members of tei_path_nics,
 * tei_paths and tei_path_route to this folder.
 */
#ifndef TEI_RAIL_STATE_H
#define TEI_RAIL_STATE_H

#include "rail/rail_pair.h"

#define TEI_PATH_SET        64 /* rails of one route in use at once, at most */
#define TEI_PATH_NO_RAIL    (-1)
#define TEI_PATH_PROBE_NS   20000000
#define TEI_PATH_STICKY     65536 /* short slices stay on a rail until it has been given so much */
#define TEI_PATH_PAUSE_NS   100000000 /* the first pause of a rail, */
#define TEI_PATH_LAST_NS    10000000  /* and of one without which nothing works */
#define TEI_PATH_REFUSED_NS 400000000 /* the longest after a refusal: the peer does not tell when */
#define TEI_PATH_MIN_WINDOW (256U << 10)

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

struct tei_path_conf {
    bool roundrobin;       /* MC_PATH_ROUNDROBIN */
    bool same_name;        /* MC_ENABLE_DEST_DEVICE_AFFINITY */
    const char *affinity;  /* MC_NIC_PEER_AFFINITY, NULL unless MC_ENABLE_HCA_PEER_AFFINITY */
    int64_t rail_pause_ns; /* the longest pause, MC_RDMA_RAIL_PAUSE_SECONDS */
    uint64_t min_window;   /* bytes a rail may have on its way however slow it is; 0: default */
    uint32_t max_slices;   /* a rail may have on its way, by its queues; 0: no bound */
};

/* NICs by number, of one side; the first `n` of nic[] count. */
struct tei_path_list {
    uint8_t n;
    uint8_t nic[TEI_PATH_NICS];
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

struct tei_path_pair {
    uint8_t local, peer;
};

/* One for each pair of locations, under the lock of its peer. */
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

/* Pairs the lists of a route, and chooses the rails of a route anew. rail_route.c */
void tei_path_deal(const struct tei_paths *p, struct tei_path_route *route);
void tei_path_refresh(const struct tei_paths *p, struct tei_path_route *route);
/* Notes which NICs are partners by the configuration. rail_map.c */
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
