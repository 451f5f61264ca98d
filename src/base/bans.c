/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bans.c - read bans.h first.
 *
 * Sources have entries of a table. A new one takes that of the source which has been quiet, and clear, for
 * longest, whether that one has connections or not: of those it is forgotten that they are its own.
 *
 * What counts against a source is one moment, `clear_ns`: each connection of no use puts it off by
 * TEI_BAN_EACH_NS, from now on if it has passed. A source whose moment is more than TEI_BAN_BURST of them
 * ahead is banned. After that it may have as many again as have stopped counting meanwhile.
 *
 * Where more than TEI_BANS sources come and go, connections that one of them still has may be taken for
 * those of others, and one that is alone be banned.
 *
 * The filter looks at packets with SYN alone. Sockets that are accepted inherit it, and it lets all of
 * theirs pass.
 */
#include "base/bans.h"

#include <linux/filter.h>
#include <string.h>
#include <sys/socket.h>

#define FLAGS    13 /* of the TCP header, where a filter of such a socket begins */
#define SYN      0x02
#define VERSION  (SKF_NET_OFF + 0)
#define SOURCE_4 (SKF_NET_OFF + 12)
#define SOURCE_6 (SKF_NET_OFF + 8)
#define PASS     0xffffffffu
#define EACH     5 /* instructions for a source, at most */

void tei_bans_init(struct tei_bans *b)
{
    *b = (struct tei_bans){0};
    pthread_mutex_init(&b->lock, NULL);
}

void tei_bans_fini(struct tei_bans *b)
{
    pthread_mutex_destroy(&b->lock);
}

static bool is_nobody(const uint8_t key[TEI_SOURCE_KEY])
{
    static const uint8_t nobody[TEI_SOURCE_KEY];

    return memcmp(key, nobody, TEI_SOURCE_KEY) == 0;
}

/* Until when an entry is worth keeping. */
static int64_t worth(const struct tei_ban *e)
{
    int64_t until_ns = e->clear_ns > e->seen_ns ? e->clear_ns : e->seen_ns;

    return until_ns > e->until_ns ? until_ns : e->until_ns;
}

/* The entry of that source, a new one if it has none. */
static struct tei_ban *entry_of(struct tei_bans *b, const uint8_t key[TEI_SOURCE_KEY])
{
    struct tei_ban *least = &b->of[0];

    for (struct tei_ban *e = b->of; e < b->of + TEI_BANS; e++) {
        if (memcmp(e->key, key, TEI_SOURCE_KEY) == 0)
            return e;
        if (worth(e) < worth(least))
            least = e;
    }
    *least = (struct tei_ban){0};
    memcpy(least->key, key, TEI_SOURCE_KEY);
    return least;
}

static struct tei_ban *seen_now(struct tei_bans *b, const uint8_t key[TEI_SOURCE_KEY],
                                int64_t now_ns)
{
    struct tei_ban *e = entry_of(b, key);

    e->seen_ns = now_ns;
    return e;
}

static bool has_others(const struct tei_bans *b, const struct tei_ban *than, int64_t now_ns)
{
    if (b->users > than->users)
        return true;
    for (const struct tei_ban *e = b->of; e < b->of + TEI_BANS; e++)
        if (e != than && e->seen_ns && e->seen_ns > now_ns - TEI_BAN_MEMORY_NS)
            return true;
    return false;
}

static bool was_banned(const struct tei_ban *e, int64_t now_ns)
{
    return e->until_ns && now_ns < e->until_ns + TEI_BAN_MEMORY_NS;
}

static void ban(struct tei_ban *e, int64_t now_ns)
{
    e->ban_ns = was_banned(e, now_ns) ? 2 * e->ban_ns : TEI_BAN_NS;
    if (e->ban_ns > TEI_BAN_MAX_NS)
        e->ban_ns = TEI_BAN_MAX_NS;
    e->until_ns = now_ns + e->ban_ns;
}

/* One more counts; true: that leads to a ban, which nobody has been told of yet. */
static bool count(struct tei_bans *b, struct tei_ban *e, int64_t now_ns)
{
    bool stale = b->stale;

    e->clear_ns = (e->clear_ns > now_ns ? e->clear_ns : now_ns) + TEI_BAN_EACH_NS;
    if (e->clear_ns <= now_ns + TEI_BAN_BURST * TEI_BAN_EACH_NS)
        return false;
    e->clear_ns = now_ns + TEI_BAN_BURST * TEI_BAN_EACH_NS;
    if (!has_others(b, e, now_ns))
        return false;
    ban(e, now_ns);
    b->stale = true;
    return !stale;
}

bool tei_bans_enter(struct tei_bans *b, const uint8_t key[TEI_SOURCE_KEY], int64_t now_ns)
{
    struct tei_ban *e;
    bool news = false;

    if (is_nobody(key))
        return false;
    pthread_mutex_lock(&b->lock);
    e = seen_now(b, key, now_ns);
    e->users++;
    b->users++;
    if (was_banned(e, now_ns) && e->until_ns <= now_ns) {
        e->counted++;
        news = count(b, e, now_ns);
    }
    pthread_mutex_unlock(&b->lock);
    return news;
}

bool tei_bans_leave(struct tei_bans *b, const uint8_t key[TEI_SOURCE_KEY], bool useful,
                    int64_t now_ns)
{
    struct tei_ban *e;
    bool news = false;

    if (is_nobody(key))
        return false;
    pthread_mutex_lock(&b->lock);
    e = seen_now(b, key, now_ns);
    e->users -= e->users > 0;
    b->users--;
    if (e->counted) {
        e->counted--;
        e->clear_ns -= useful ? TEI_BAN_EACH_NS : 0;
    } else if (!useful && e->until_ns <= now_ns) { /* else it was let in before */
        news = count(b, e, now_ns);
    }
    pthread_mutex_unlock(&b->lock);
    return news;
}

/* ------------------------------------------------------------------------------------ the filter */

struct program {
    struct sock_filter at[10 + EACH * TEI_BANS];
    unsigned short n;
};

static void say(struct program *p, unsigned code, unsigned yes, unsigned no, uint32_t k)
{
    p->at[p->n++] = (struct sock_filter){(uint16_t)code, (uint8_t)yes, (uint8_t)no, k};
}

static uint32_t word(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* An IPv4 address, or one that is mapped into IPv6: packets of both have the header of IPv4. */
static bool is_ipv4(const uint8_t key[TEI_SOURCE_KEY])
{
    return !word(key) && !word(key + 4);
}

static void drop_ipv4(struct program *p, const struct tei_ban *e)
{
    say(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, word(e->key + 12));
    say(p, BPF_RET | BPF_K, 0, 0, 0);
}

static void drop_ipv6(struct program *p, const struct tei_ban *e)
{
    say(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)SOURCE_6);
    say(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 3, word(e->key));
    say(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)SOURCE_6 + 4);
    say(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, word(e->key + 4));
    say(p, BPF_RET | BPF_K, 0, 0, 0);
}

/* Drops the SYNs of those of one family that are banned; to be passed by all others. */
static void drop_family(const struct tei_bans *b, int64_t now_ns, bool ipv4, struct program *p)
{
    for (const struct tei_ban *e = b->of; e < b->of + TEI_BANS; e++)
        if (e->until_ns > now_ns && is_ipv4(e->key) == ipv4)
            (ipv4 ? drop_ipv4 : drop_ipv6)(p, e);
    say(p, BPF_RET | BPF_K, 0, 0, PASS);
}

static void write_program(const struct tei_bans *b, int64_t now_ns, struct program *p)
{
    unsigned short jump;

    say(p, BPF_LD | BPF_B | BPF_ABS, 0, 0, FLAGS);
    say(p, BPF_JMP | BPF_JSET | BPF_K, 1, 0, SYN);
    say(p, BPF_RET | BPF_K, 0, 0, PASS);
    say(p, BPF_LD | BPF_B | BPF_ABS, 0, 0, (uint32_t)VERSION);
    say(p, BPF_ALU | BPF_RSH | BPF_K, 0, 0, 4);
    say(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 4);
    jump = p->n;
    say(p, BPF_JMP | BPF_JA, 0, 0, 0);
    say(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)SOURCE_4);
    drop_family(b, now_ns, true, p);
    p->at[jump].k = p->n - jump - 1u;
    drop_family(b, now_ns, false, p);
}

static void set_filter(struct tei_bans *b, int fd, int64_t now_ns)
{
    struct program p = {.n = 0};
    struct sock_fprog prog = {.filter = p.at};

    write_program(b, now_ns, &p);
    prog.len = p.n;
    /* Where that fails, the filter before it stays. */
    b->filters |= setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof prog) == 0;
}

int64_t tei_bans_enforce(struct tei_bans *b, int listen_fd, int64_t now_ns)
{
    int64_t next = TEI_NEVER;
    int none = 0;

    pthread_mutex_lock(&b->lock);
    b->stale = false;
    for (const struct tei_ban *e = b->of; e < b->of + TEI_BANS; e++)
        if (e->until_ns > now_ns && e->until_ns < next)
            next = e->until_ns;
    if (next != TEI_NEVER) {
        set_filter(b, listen_fd, now_ns);
    } else if (b->filters) {
        b->filters = setsockopt(listen_fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none) < 0;
        if (b->filters) /* it cannot be had everywhere: one that lets all pass does as well */
            set_filter(b, listen_fd, now_ns);
    }
    pthread_mutex_unlock(&b->lock);
    return next;
}
