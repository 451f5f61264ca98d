/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bans.h - sources (source.h) that do nothing but connect: who has had too many connections that ended
 * without being of use is ignored for a while, by the kernel, before it costs anything.
 *
 * A source may have TEI_BAN_BURST connections of no use at once, and one more each TEI_BAN_EACH_NS.
 * Who has had more is banned for TEI_BAN_NS, if others want to be served too: a filter of the listening
 * socket drops the packets that would open a connection. Its system sends them again after 1 s, 3 s and
 * so on, so that an honest program at such an address is late. Connections that are open, or in the queue
 * of the listening socket, are left alone.
 *
 * For TEI_BAN_MEMORY_NS after a ban the next one is twice as long, TEI_BAN_MAX_NS at most, and connections
 * count when they come, until they prove of use when they end: else thousands would be in before the first
 * is seen to be of none.
 *
 * All calls may come from any thread, but tei_bans_enforce() from one at a time.
 */
#ifndef TEI_BASE_BANS_H
#define TEI_BASE_BANS_H

#include "base/os.h"
#include "base/source.h"

#include <pthread.h>

#define TEI_BANS        64 /* sources that are remembered */
#define TEI_BAN_BURST   32
#define TEI_BAN_EACH_NS (TEI_NS_PER_S / 8)
#define TEI_BAN_NS      TEI_NS_PER_S
#define TEI_BAN_MAX_NS  (16 * TEI_NS_PER_S)
/* After its last connection a source still wants to be served; after its last ban it is known for it. */
#define TEI_BAN_MEMORY_NS (60 * TEI_NS_PER_S)

struct tei_ban {
    uint8_t key[TEI_SOURCE_KEY];
    size_t users;     /* connections that are open, of those known of */
    size_t counted;   /* those of them that count */
    int64_t seen_ns;  /* when the last one opened or ended; 0: the entry is free */
    int64_t clear_ns; /* when none of those that were of no use counts any more */
    int64_t until_ns; /* banned until then */
    int64_t ban_ns;   /* for so long */
};

struct tei_bans {
    pthread_mutex_t lock;
    struct tei_ban of[TEI_BANS];
    size_t users; /* of all sources */
    bool stale;   /* the filter lacks a ban */
    bool filters; /* there is one */
};

void tei_bans_init(struct tei_bans *b);
void tei_bans_fini(struct tei_bans *b);

/*
 * A connection of that source is open, or has ended; a key of zeros is nobody's. True: the source is banned
 * now, and tei_bans_enforce() is to be called, as no earlier `true` has led to it yet.
 */
bool tei_bans_enter(struct tei_bans *b, const uint8_t key[TEI_SOURCE_KEY], int64_t now_ns);
bool tei_bans_leave(struct tei_bans *b, const uint8_t key[TEI_SOURCE_KEY], bool useful,
                    int64_t now_ns);

/*
 * Has the kernel ignore those that are banned now. Returns when the first of them is not any more,
 * TEI_NEVER if there is none. A system without such filters goes without.
 */
int64_t tei_bans_enforce(struct tei_bans *b, int listen_fd, int64_t now_ns);

#endif
