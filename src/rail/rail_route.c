/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rail_route.c - which rails serve a route: the pairs that its lists give while all is well, and
 * what takes their place after faults. Run once per route and once per change of a rail or NIC.
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
 */
#include "rail/rail.h"

#define NONE 0xff

/* A choice of rails in the making. */
struct draft {
    const struct tei_paths *p;
    struct tei_path_route *route;
    uint32_t local_up, peer_up;       /* NICs that are */
    uint32_t local_works, peer_works; /* and have an active rail to one that is, and apt */
    uint32_t local_tried, peer_tried; /* NICs with a rail among the trials */
    uint8_t local_used[TEI_PATH_NICS], peer_used[TEI_PATH_NICS]; /* rails in the set */
    uint8_t local_for[TEI_PATH_NICS], peer_for[TEI_PATH_NICS];   /* what stands in for a NIC */
};

static uint32_t bit(unsigned nic)
{
    return UINT32_C(1) << nic;
}

/* ---- The pairs of the lists ----------------------------------------------------------------------- */

static void add_pair(struct tei_path_route *route, unsigned local, unsigned peer)
{
    if (route->n_base == TEI_PATH_SET)
        return;
    route->base[route->n_base].local = (uint8_t)local;
    route->base[route->n_base].peer = (uint8_t)peer;
    route->n_base++;
}

static uint32_t mask_of(const struct tei_path_list *l)
{
    uint32_t mask = 0;

    for (unsigned k = 0; k < l->n; k++)
        mask |= bit(l->nic[k]);
    return mask;
}

/* The peer's NICs that this local one belongs to: its partners, or by name; 0: whichever is next. */
static uint32_t own_peers(const struct tei_paths *p, const struct tei_path_route *route,
                          unsigned local)
{
    if (p->partners[local])
        return p->partners[local];
    return tei_path_namesakes(p, local) & mask_of(&route->peer[0]);
}

/* The first NIC of the list, from position `from` around, of those least in use. */
static unsigned least_used(const struct tei_path_list *l, const uint8_t *used, unsigned from)
{
    unsigned best = l->nic[from % l->n];

    for (unsigned k = 1; k < l->n; k++) {
        unsigned nic = l->nic[(from + k) % l->n];

        if (used[nic] < used[best])
            best = nic;
    }
    return best;
}

void tei_path_deal(const struct tei_paths *p, struct tei_path_route *route)
{
    const struct tei_path_list *locals = &route->local[0], *peers = &route->peer[0];
    struct tei_path_list free_locals = {0, {0}};
    uint8_t local_used[TEI_PATH_NICS] = {0}, peer_used[TEI_PATH_NICS] = {0};

    route->n_base = 0;
    for (unsigned k = 0; k < locals->n; k++) {
        unsigned local = locals->nic[k];
        uint32_t with = own_peers(p, route, local);

        for (unsigned j = 0; j < p->n_peer; j++) {
            if (with & bit(j)) {
                add_pair(route, local, j);
                local_used[local]++;
                peer_used[j]++;
            }
        }
        if (!p->partners[local])
            free_locals.nic[free_locals.n++] = (uint8_t)local;
    }
    for (unsigned k = 0; k < free_locals.n; k++) {
        unsigned local = free_locals.nic[k], peer = least_used(peers, peer_used, 0);

        if (local_used[local] == 0) {
            add_pair(route, local, peer);
            local_used[local]++;
            peer_used[peer]++;
        }
    }
    for (unsigned k = 0; k < peers->n && free_locals.n > 0; k++) {
        unsigned peer = peers->nic[k], local = least_used(&free_locals, local_used, 0);

        if (peer_used[peer] == 0) {
            add_pair(route, local, peer);
            local_used[local]++;
            peer_used[peer]++;
        }
    }
}

/* ---- What works ----------------------------------------------------------------------------------- */

static const struct tei_rail *rail_of(const struct draft *d, unsigned local, unsigned peer)
{
    return &d->p->rails[tei_path_rail(d->p, local, peer)];
}

static bool is_in(const struct draft *d, unsigned local, unsigned peer, enum tei_rail_state state)
{
    return (d->local_up & bit(local)) && (d->peer_up & bit(peer)) &&
           rail_of(d, local, peer)->state == state;
}

static void look(struct draft *d)
{
    for (unsigned i = 0; i < d->p->n_local; i++) {
        if (atomic_load_explicit(&d->p->nics->nic[i].active, memory_order_relaxed))
            d->local_up |= bit(i);
    }
    for (unsigned j = 0; j < d->p->n_peer; j++) {
        if (d->p->peers[j].active)
            d->peer_up |= bit(j);
    }
    for (unsigned i = 0; i < d->p->n_local; i++) {
        for (unsigned j = 0; j < d->p->n_peer; j++) {
            if (is_in(d, i, j, TEI_RAIL_ACTIVE) && tei_path_is_apt(d->p, i, j)) {
                d->local_works |= bit(i);
                d->peer_works |= bit(j);
            }
        }
    }
}

/* For each NIC what stands in for it: itself, or if it is lost one of the available list, or NONE. */
static void stand_in(const struct tei_path_list list[2], uint32_t works, uint8_t *stands_for)
{
    unsigned next = 0;

    for (unsigned i = 0; i < TEI_PATH_NICS; i++)
        stands_for[i] = (uint8_t)i;
    for (unsigned k = 0; k < list[0].n; k++) {
        unsigned nic = list[0].nic[k];

        if (works & bit(nic))
            continue;
        while (next < list[1].n && !(works & bit(list[1].nic[next])))
            next++;
        stands_for[nic] = next < list[1].n ? list[1].nic[next++] : NONE;
    }
}

/* ---- The rails in use ----------------------------------------------------------------------------- */

static void use(struct draft *d, unsigned local, unsigned peer)
{
    struct tei_path_route *route = d->route;
    unsigned rail = tei_path_rail(d->p, local, peer);

    for (unsigned k = 0; k < route->n_set; k++) {
        if (route->set[k] == rail)
            return;
    }
    if (route->n_set == TEI_PATH_SET)
        return;
    route->set[route->n_set++] = (uint16_t)rail;
    d->local_used[local]++;
    d->peer_used[peer]++;
}

static void try_out(struct draft *d, unsigned local, unsigned peer)
{
    struct tei_path_route *route = d->route;

    if (route->n_trials == TEI_PATH_SET)
        return;
    route->trials[route->n_trials++] = (uint16_t)tei_path_rail(d->p, local, peer);
    d->local_tried |= bit(local);
    d->peer_tried |= bit(peer);
}

static void use_pairs(struct draft *d)
{
    for (unsigned k = 0; k < d->route->n_base; k++) {
        struct tei_path_pair pair = d->route->base[k];
        unsigned local = d->local_for[pair.local], peer = d->peer_for[pair.peer];

        if (local != NONE && peer != NONE && is_in(d, local, peer, TEI_RAIL_ACTIVE) &&
            tei_path_is_apt(d->p, local, peer))
            use(d, local, peer);
        if (is_in(d, pair.local, pair.peer, TEI_RAIL_PROBATION))
            try_out(d, pair.local, pair.peer);
    }
}

/*
 * The NIC of the other side that one without a rail turns to: of a list, from position `from` around,
 * of those with a rail in that state the one least in use. `of_local`: the one without is local.
 */
static unsigned turn_to(const struct draft *d, bool of_local, unsigned nic,
                        enum tei_rail_state state, const struct tei_path_list *others,
                        unsigned from)
{
    const uint8_t *used = of_local ? d->peer_used : d->local_used;
    const uint8_t *stands_for = of_local ? d->peer_for : d->local_for;
    unsigned best = NONE;

    for (unsigned k = 0; k < others->n; k++) {
        unsigned other = stands_for[others->nic[(from + k) % others->n]];
        unsigned local = of_local ? nic : other, peer = of_local ? other : nic;

        if (other == NONE || !is_in(d, local, peer, state) || !tei_path_is_apt(d->p, local, peer))
            continue;
        if (best == NONE || used[other] < used[best])
            best = other;
    }
    return best;
}

/* As above, in both lists of the other side, then among the partners. */
static unsigned turn_anywhere(const struct draft *d, bool of_local, unsigned nic,
                              enum tei_rail_state state, unsigned from)
{
    const struct tei_path_list *others = of_local ? d->route->peer : d->route->local;
    unsigned other = turn_to(d, of_local, nic, state, &others[0], from);

    if (other == NONE)
        other = turn_to(d, of_local, nic, state, &others[1], 0);
    for (unsigned j = 0; other == NONE && of_local && j < d->p->n_peer; j++) {
        if ((d->p->partners[nic] & bit(j)) && is_in(d, nic, j, state))
            other = j;
    }
    return other;
}

/*
 * Whether the NICs of that side are all to be used. A peer's NIC is none of the business of local
 * ones that have partners.
 */
static bool is_all_used(const struct draft *d, bool of_local)
{
    const struct tei_path_list *list = &d->route->local[0];

    for (unsigned k = 0; !of_local && k < list->n; k++) {
        if (d->p->partners[list->nic[k]] == 0)
            return true;
    }
    return of_local;
}

/* Rails for NICs that have none in the set, though they work. */
static void use_idle(struct draft *d, bool of_local)
{
    const struct tei_path_list *list = of_local ? &d->route->local[0] : &d->route->peer[0];
    const uint8_t *stands_for = of_local ? d->local_for : d->peer_for;
    const uint8_t *used = of_local ? d->local_used : d->peer_used;

    for (unsigned k = 0; k < list->n && is_all_used(d, of_local); k++) {
        unsigned nic = stands_for[list->nic[k]], other;

        if (nic == NONE || used[nic] > 0)
            continue;
        other = turn_anywhere(d, of_local, nic, TEI_RAIL_ACTIVE, k);
        if (other != NONE)
            use(d, of_local ? nic : other, of_local ? other : nic);
    }
}

/* Trials for NICs that nothing else would ever show to work again. */
static void try_lost(struct draft *d, bool of_local)
{
    const struct tei_path_list *list = of_local ? &d->route->local[0] : &d->route->peer[0];
    const uint8_t *used = of_local ? d->local_used : d->peer_used;

    for (unsigned k = 0; k < list->n && is_all_used(d, of_local); k++) {
        unsigned nic = list->nic[k], other;

        if (used[nic] > 0 || ((of_local ? d->local_tried : d->peer_tried) & bit(nic)))
            continue;
        other = turn_anywhere(d, of_local, nic, TEI_RAIL_PROBATION, k);
        if (other != NONE)
            try_out(d, of_local ? nic : other, of_local ? other : nic);
    }
}

/* ---- When the lists give nothing ------------------------------------------------------------------ */

/* One rail for each local NIC, of those that pass. */
static void use_any(struct draft *d, bool any_nic, bool any_pair)
{
    const struct tei_path_route *route = d->route;
    uint32_t locals = mask_of(&route->local[0]) | mask_of(&route->local[1]);
    uint32_t peers = mask_of(&route->peer[0]) | mask_of(&route->peer[1]);

    for (unsigned i = 0; i < d->p->n_local; i++) {
        for (unsigned j = 0; j < d->p->n_peer; j++) {
            if ((any_nic || ((locals & bit(i)) && (peers & bit(j)))) &&
                (any_pair || tei_path_is_apt(d->p, i, j)) && is_in(d, i, j, TEI_RAIL_ACTIVE)) {
                use(d, i, j);
                break;
            }
        }
    }
}

/* The rail on probation that failed the longest ago; and when the first of those paused may be tried. */
static void try_any(struct draft *d)
{
    const struct tei_rail *oldest = NULL;
    int64_t at = INT64_MAX;

    for (unsigned i = 0; i < d->p->n_local; i++) {
        for (unsigned j = 0; j < d->p->n_peer; j++) {
            const struct tei_rail *r = rail_of(d, i, j);

            if (is_in(d, i, j, TEI_RAIL_PROBATION) && (!oldest || r->failed_ns < oldest->failed_ns))
                oldest = r;
            if (is_in(d, i, j, TEI_RAIL_PAUSED) && r->until_ns < at)
                at = r->until_ns;
        }
    }
    if (oldest)
        try_out(d, oldest->local, oldest->peer);
    d->route->at_ns = at;
}

void tei_path_refresh(const struct tei_paths *p, struct tei_path_route *route)
{
    struct draft d = {.p = p, .route = route};

    route->epoch = p->epoch;
    route->n_set = 0;
    route->n_trials = 0;
    route->turn = 0;
    route->stick_left = 0;
    look(&d);
    stand_in(route->local, d.local_works, d.local_for);
    stand_in(route->peer, d.peer_works, d.peer_for);
    use_pairs(&d);
    use_idle(&d, true);
    use_idle(&d, false);
    try_lost(&d, true);
    try_lost(&d, false);
    if (route->n_set == 0)
        use_any(&d, false, false);
    if (route->n_set == 0)
        use_any(&d, true, false);
    if (route->n_set == 0)
        use_any(&d, true, true);
    if (route->n_set == 0 && route->n_trials == 0)
        try_any(&d);
}
