/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_stream.c - the native framing on a lane: sending frames and receiving answers.
 *
 * A connection begins with the greeting. READs may follow at once; a WRITE waits for the answer, so
 * that none is ever sent to a stranger, and what breaks before the answer may be tried elsewhere.
 *
 * Answers come in the order of the frames, so the first frame of `flight` is the one that the next
 * bytes belong to: a READ's header and payload are received with one call, straight into place. What
 * nobody waits for any more (a cancelled READ) goes to the worker's sink, so that the connection
 * need not be given up. A WRITE of which a part was sent cannot be taken back; if its work is
 * cancelled the connection is closed, and the other frames go out again on the next.
 *
 * A lane takes frames while fewer bytes than its window (tcp_window.c) are under way and nearly all
 * it has was handed to the kernel, so that what the socket cannot take yet is left to other lanes.
 */
#include "transport/tcp/tcp_auth.h"
#include "transport/tcp/tcp_lease.h"
#include "transport/tcp/tcp_warm.h"

#include "base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define IOV        160                  /* parts of one socket call */
#define UNSENT_MAX ((uint64_t)64 << 10) /* of frames that wait for the socket */
#define ZERO_MIN   ((size_t)64 << 10)   /* of a call for which pinning pages pays */

static struct tcp_frame *first_frame(const struct tcp_stream *s)
{
    return tei_tcp_frame_of(tei_list_first(&s->flight));
}

/* ---------------------------------------------------------------------------------- room for more */

/* Bytes of one call. */
static uint64_t slice(const struct tcp_lane *l)
{
    return tei_tcp_worker_of(l)->t->conf->tcp_slice_size;
}

bool tei_tcp_stream_has_room(const struct tcp_lane *l)
{
    const struct tcp_stream *s = l->stream;

    return !l->drop && s->n_flight < TCP_FRAMES_MAX && s->bytes_flight < s->window &&
           atomic_load_explicit(&s->unsent, memory_order_relaxed) <= UNSENT_MAX;
}

/* ------------------------------------------------------------------------------------ the flight */

/* Tells who might drive the lane that it carries the frame's blocks. */
static void note(struct tcp_lane *l, struct tcp_frame *f)
{
    unsigned n = 0;

    f->owner = f->n && f->blocks[0].work ? f->blocks[0].work->entry.base.owner : NULL;
    for (unsigned i = 0; f->owner && i < f->n; i++)
        n += f->blocks[i].work && f->blocks[i].work->entry.base.owner == f->owner;
    f->noted = n ? tei_tcp_drive_took(l, f->owner, n) : 0;
}

void tei_tcp_stream_add(struct tcp_lane *l, struct tcp_frame *f)
{
    struct tcp_stream *s = l->stream;

    note(l, f);
    assert(s->next != f || f->sent == f->total || f->sent == 0);
    tei_list_push_back(&s->flight, &f->link);
    s->n_flight++;
    s->bytes_flight += f->payload;
    atomic_fetch_add_explicit(&s->unsent, f->total, memory_order_relaxed);
    for (unsigned i = 0; i < f->n; i++)
        if (f->blocks[i].work && f->blocks[i].work->entry.base.deadline_ns < s->deadline_ns)
            s->deadline_ns = f->blocks[i].work->entry.base.deadline_ns;
    if (!s->next) {
        s->next = f;
        s->out = (struct tcp_cursor){0};
    }
}

static void land(struct tcp_lane *l, struct tcp_frame *f)
{
    struct tcp_stream *s = l->stream;

    tei_tcp_drive_ended(l, f->owner, f->noted);
    tei_list_del(&f->link);
    s->n_flight--;
    s->bytes_flight -= f->payload;
    s->delivered += f->payload;
    s->head_got = s->trailer_got = 0;
    if (s->n_flight == 0)
        s->deadline_ns = TEI_NEVER;
}

/*
 * READs are small to send, so several are taken at a time; they are spread over the lanes by what
 * each has under way.
 */
bool tei_tcp_stream_fill(struct tcp_lane *l, unsigned frames, int64_t now)
{
    bool any = false;

    for (; frames > 0 && tei_tcp_stream_has_room(l); frames--) {
        struct tcp_frame *f = tei_tcp_frame_next(l, now);

        if (!f)
            break;
        tei_tcp_stream_add(l, f);
        any = true;
    }
    if (any)
        tei_tcp_lane_set(l, LANE_BUSY);
    return any;
}

void tei_tcp_stream_pull_back(struct tcp_lane *l, struct tcp_frame *f)
{
    struct tcp_stream *s = l->stream;

    if (s->next == f) {
        s->next = tei_tcp_frame_of(tei_list_next(&s->flight, &f->link));
        s->out = (struct tcp_cursor){0};
    }
    tei_tcp_drive_ended(l, f->owner, f->noted);
    tei_list_del(&f->link);
    s->n_flight--;
    s->bytes_flight -= f->payload;
    atomic_fetch_sub_explicit(&s->unsent, f->total, memory_order_relaxed);
    tei_tcp_frame_put_back(l, f, false);
}

/* -------------------------------------------------------------------------------------- parts */

/*
 * Adds the payload of a frame from a place on, at most `max` bytes, to the parts of a call. What
 * has no work any more goes to `sink`, if there is one, and ends the list.
 */
static int add_payload(const struct tcp_frame *f, struct tcp_cursor at, char *sink, uint64_t max,
                       struct iovec *iov, int room)
{
    int n = 0;

    for (; at.block < f->n && n < room && max > 0; at.block++, at.off = 0) {
        const struct tcp_block *b = &f->blocks[at.block];
        size_t len = (size_t)tei_min(b->range.length - at.off, max);

        if (sink && !b->work) {
            iov[n++] = (struct iovec){sink, tei_min(len, TCP_SINK)};
            break;
        }
        iov[n++] = (struct iovec){b->local + at.off, len};
        max -= len;
    }
    return n;
}

static void advance(const struct tcp_frame *f, struct tcp_cursor *at, uint64_t n)
{
    while (n > 0) {
        uint64_t here = f->blocks[at->block].range.length - at->off;

        if (n < here) {
            at->off += n;
            return;
        }
        n -= here;
        at->block++;
        at->off = 0;
    }
}

/* -------------------------------------------------------------------------------------- sending */

/*
 * Adds the next n bytes of payload, which were sent just now. Not before: the kernel fails where
 * memory cannot be read, and this would end the process.
 */
static void sum_up(struct tcp_frame *f, struct tcp_cursor at, uint64_t n)
{
    struct iovec parts[TCP_FRAME_BLOCKS];

    add_payload(f, at, NULL, n, parts, TCP_FRAME_BLOCKS);
    f->crc = tei_tcp_sum(f->crc, parts, n);
    tei_tcp_trailer_encode(f->crc, f->trailer);
}

/* The rest of one frame, as far as `max` bytes of payload and the room go. */
static int add_frame(struct tcp_stream *s, struct tcp_frame *f, struct tcp_cursor at, uint64_t max,
                     struct iovec *iov, int room)
{
    uint64_t done = f->sent > f->head_len ? f->sent - f->head_len : 0; /* of payload and trailer */
    int n = 0;

    if (f->sent < f->head_len)
        iov[n++] = (struct iovec){f->head + f->sent, f->head_len - f->sent};
    if (f->type != TCP_FRAME_WRITE)
        return n;
    if (done < f->payload)
        n += add_payload(f, at, NULL, max, iov + n, room - n);
    else if (s->crc)
        iov[n++] = (struct iovec){f->trailer + (done - f->payload), f->total - f->sent};
    return n;
}

/* A WRITE waits until the target has said that it is the one; all do until it has proved it, with TE_AUTH. */
static bool may_go(const struct tcp_lane *l, const struct tcp_frame *f)
{
    return l->proven || f->type == TCP_FRAME_HELLO ||
           (f->type == TCP_FRAME_READ && !l->stream->proof);
}

/* All frames that wait, as far as one call takes them. */
static int gather(struct tcp_lane *l, struct iovec *iov)
{
    struct tcp_stream *s = l->stream;
    struct tcp_cursor at = s->out;
    uint64_t max = slice(l);
    int n = 0;

    for (struct tcp_frame *f = s->next; f && may_go(l, f) && n + 3 < IOV && max > 0;
         f = tei_tcp_frame_of(tei_list_next(&s->flight, &f->link))) {
        int added = add_frame(s, f, at, max, iov + n, IOV - n);
        uint64_t len = tei_tcp_iov_len(iov + n, added);

        n += added;
        if (len < f->total - f->sent)
            break;
        max -= tei_min(len, max);
        at = (struct tcp_cursor){0};
    }
    return n;
}

/* The kernel has taken n bytes. */
static void sent(struct tcp_stream *s, uint64_t n, uint32_t zero, int64_t now)
{
    atomic_fetch_sub_explicit(&s->unsent, n, memory_order_relaxed);
    while (n > 0) {
        struct tcp_frame *f = s->next;
        uint64_t part = tei_min(n, f->total - f->sent);
        uint64_t before = f->sent > f->head_len ? f->sent - f->head_len : 0, after;

        if (f->sent == 0) {
            if (f == first_frame(s))
                s->busy_since_ns = now;
            f->sent_ns = now;
            f->delivered = s->delivered;
        }
        f->zero_last = zero ? zero : f->zero_last;
        f->sent += part;
        n -= part;
        after = f->sent > f->head_len ? f->sent - f->head_len : 0;
        if (f->type == TCP_FRAME_WRITE) {
            uint64_t moved = tei_min(after, f->payload) - tei_min(before, f->payload);

            if (s->crc && moved > 0)
                sum_up(f, s->out, moved);
            advance(f, &s->out, moved);
        }
        if (f->sent < f->total)
            return;
        s->next = tei_tcp_frame_of(tei_list_next(&s->flight, &f->link));
        s->out = (struct tcp_cursor){0};
    }
}

static void moved(struct tcp_lane *l, int64_t now)
{
    l->progress_ns = now;
    /* Relaxed: the watchdog alone reads it. */
    atomic_store_explicit(&tei_tcp_peer_of(l)->progress_ns, now, memory_order_relaxed);
}

/* Whether a checksum follows what goes out with this call: the two are to share a segment. */
static int more_follows(const struct tcp_stream *s, size_t total)
{
    bool more = s->crc && s->next->type == TCP_FRAME_WRITE &&
                total < atomic_load_explicit(&s->unsent, memory_order_relaxed);

    return more ? MSG_MORE : 0;
}

/* Sends until all is sent or the socket is full; false if the connection is lost. */
static bool send_some(struct tcp_lane *l, int64_t now)
{
    struct tcp_stream *s = l->stream;
    struct iovec iov[IOV];

    while (s->next && may_go(l, s->next) && !s->blocked) {
        int n = gather(l, iov);
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};
        size_t total = tei_tcp_iov_len(iov, n);
        bool zero = s->zero.on && s->next->type == TCP_FRAME_WRITE && total >= ZERO_MIN;
        int flags =
            MSG_NOSIGNAL | MSG_DONTWAIT | (zero ? MSG_ZEROCOPY : 0) | more_follows(s, total);
        ssize_t got = sendmsg(l->watch.fd, &m, flags);

        if (got < 0 && zero && errno == ENOBUFS) { /* no more pages may be pinned */
            s->zero.on = false;
            continue;
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno != EAGAIN) {
            l->sys_errno = errno;
            s->closed = tei_tcp_is_end(errno);
            return false;
        }
        if (got > 0) {
            sent(s, (uint64_t)got, zero ? tei_tcp_zerocopy_sent(&s->zero) : 0, now);
            moved(l, now);
        }
        s->blocked = got < 0 || (size_t)got < total;
    }
    return true;
}

bool tei_tcp_stream_pump(struct tcp_lane *l, int64_t now)
{
    struct tcp_peer *p = tei_tcp_peer_of(l);
    bool any = true;

    for (int calls = TCP_CALLS; calls > 0 && any; calls--) {
        if (!send_some(l, now))
            return false;
        pthread_mutex_lock(&p->lock);
        any = tei_tcp_stream_fill(l, TCP_FRAMES_MAX, now);
        pthread_mutex_unlock(&p->lock);
    }
    return !any || send_some(l, now);
}

/* ------------------------------------------------------------------------------------ receiving */

static bool is_read(const struct tcp_frame *f)
{
    return f && f->type == TCP_FRAME_READ;
}

/* Where the next bytes go. */
static int to_receive(struct tcp_lane *l, struct tcp_frame *f, struct iovec *iov)
{
    struct tcp_stream *s = l->stream;
    uint64_t max = s->crc ? tei_min(slice(l), TCP_SUM_BYTES) : slice(l);
    int n = 0, first;

    if (s->head_got < TCP_FRAME_LEN) {
        iov[n++] = (struct iovec){s->head + s->head_got, TCP_FRAME_LEN - s->head_got};
        if (s->head_got == 0) {
            s->in = (struct tcp_cursor){0};
            s->left = is_read(f) ? f->payload : 0;
            s->crc_in = 0;
        }
    }
    first = n;
    if (s->left > 0 && f->type == TCP_FRAME_HELLO)
        iov[n++] = (struct iovec){f->head + TCP_FRAME_LEN + s->in.off, s->left};
    else if (s->left > 0)
        n += add_payload(f, s->in, tei_tcp_worker_of(l)->sink, max, iov + n, IOV - n - 1);
    if (s->crc && is_read(f) && tei_tcp_iov_len(iov + first, n - first) == s->left)
        iov[n++] = (struct iovec){s->trailer + s->trailer_got, TCP_TRAILER_LEN - s->trailer_got};
    return n;
}

/* n bytes have come, of which `head` at most belong to the header. */
static void received(struct tcp_stream *s, const struct tcp_frame *f, const struct iovec *iov,
                     size_t n)
{
    size_t head = tei_min(n, TCP_FRAME_LEN - s->head_got), body;
    const struct iovec *payload = iov + (s->head_got < TCP_FRAME_LEN);

    s->head_got += head;
    n -= head;
    body = tei_min(n, s->left);
    if (s->crc)
        s->crc_in = tei_tcp_sum(s->crc_in, payload, body);
    if (f->type == TCP_FRAME_HELLO)
        s->in.off += body; /* of the options */
    else if (body > 0)
        advance(f, &s->in, body);
    s->left -= body;
    s->trailer_got += n - body;
}

static bool is_whole(const struct tcp_stream *s, const struct tcp_frame *f)
{
    return s->head_got == TCP_FRAME_LEN && s->left == 0 &&
           (!s->crc || !is_read(f) || s->trailer_got == TCP_TRAILER_LEN);
}

static void read_head(const struct tcp_lane *l, struct tcp_frame_head *h)
{
    tei_tcp_frame_decode(l->stream->head, h);
    if (tei_tcp_peer_of(l)->framing == TCP_NATIVE_FIRST)
        h->options = 0; /* there it is a byte without a meaning */
}

/* Whether a header can be the answer to the first frame under way. */
static bool is_answer(const struct tcp_stream *s, const struct tcp_frame *f,
                      const struct tcp_frame_head *h)
{
    static const unsigned answers[] = {[TCP_FRAME_READ] = TCP_FRAME_DATA,
                                       [TCP_FRAME_WRITE] = TCP_FRAME_ACK,
                                       [TCP_FRAME_DROP] = TCP_FRAME_DROPPED,
                                       [TCP_FRAME_PROVE] = TCP_FRAME_PROVED,
                                       [TCP_FRAME_HELLO] = TCP_FRAME_HELLO};

    if (!f || f->sent < f->total || h->type != answers[f->type] || h->count != 0)
        return false;
    if (h->options > (f->type == TCP_FRAME_HELLO ? TCP_OPTIONS_MAX : 0))
        return false;
    /* A refused greeting has no checksum; that of options is looked at once they are there. */
    if (s->crc && !(f->type == TCP_FRAME_HELLO && (h->verdict != TCP_OK || h->options)) &&
        !tei_tcp_frame_intact(s->head, TCP_FRAME_LEN))
        return false;
    if (h->length != (is_read(f) ? f->payload : 0))
        return false;
    if (tei_tcp_verdict_is_of_block(h->verdict) && h->index >= f->n)
        return false;
    return f->type == TCP_FRAME_WRITE && h->verdict == TCP_OK ? tei_tcp_frames_acked(s, h->id)
                                                              : h->id == f->id;
}

/* The frames that one ACK answers. */
static void acknowledged(struct tcp_lane *l, uint64_t id, int64_t now)
{
    struct tcp_stream *s = l->stream;
    struct tcp_frame *f;

    while ((f = first_frame(s)) && f->id <= id) {
        tei_tcp_window_learn(l, f, now);
        land(l, f);
        tei_tcp_frame_settle(tei_tcp_peer_of(l), f);
        if (tei_tcp_zerocopy_is_over(&s->zero, f->zero_last))
            tei_tcp_frame_done(l, f);
        else
            tei_list_push_back(&s->pinned, &f->link);
    }
}

void tei_tcp_stream_unpin(struct tcp_lane *l)
{
    struct tcp_stream *s = l->stream;
    struct tei_link *n, *tmp;

    if (s->zero.done == s->zero.sent)
        return;
    tei_tcp_zerocopy_reap(&s->zero, l->watch.fd);
    pthread_mutex_lock(&tei_tcp_peer_of(l)->lock);
    TEI_LIST_EACH(&s->pinned, n, tmp) {
        if (!tei_tcp_zerocopy_is_over(&s->zero, tei_tcp_frame_of(n)->zero_last))
            break;
        tei_list_del(n);
        tei_tcp_frame_done(l, tei_tcp_frame_of(n));
    }
    pthread_mutex_unlock(&tei_tcp_peer_of(l)->lock);
}

/* Peer's lock held. */
static void answered(struct tcp_lane *l, struct tcp_frame *f, const struct tcp_frame_head *h,
                     int64_t now)
{
    if (!l->proven) {
        tei_tcp_peer_of(l)->greeted = true;
        tei_tcp_lane_ready(l);
        tei_tcp_bundle_call(l->bundle); /* other lanes may follow */
    }
    l->proven = true;
    l->tries = 0;
    if (f->type == TCP_FRAME_WRITE && h->verdict == TCP_OK) {
        acknowledged(l, h->id, now);
        return;
    }
    tei_tcp_window_learn(l, f, now);
    land(l, f);
    if (h->verdict != TCP_OK) {
        tei_tcp_frame_refused(l, f, h);
    } else if (is_read(f)) {
        tei_tcp_frame_done(l, f);
    } else {
        if (f->type == TCP_FRAME_DROP)
            tei_tcp_frames_dropped(tei_tcp_peer_of(l), f->connection);
        tei_tcp_frame_free(tei_tcp_worker_of(l)->t, f);
    }
}

/* A request is, with nothing wrong with its frame. */
static bool is_refused(const struct tcp_frame *f, const struct tcp_frame_head *h)
{
    bool is_data = is_read(f) || f->type == TCP_FRAME_WRITE;

    return is_data && (h->verdict == TCP_REFUSED || h->verdict == TCP_NOT_YOURS ||
                       (f->is_keyed && tei_tcp_lease_fault(h)));
}

static enum tcp_reply why_wrong(const struct tcp_frame *f, const struct tcp_frame_head *h)
{
    if (h->verdict == TCP_STRANGER || h->verdict == TCP_UNKNOWN || h->verdict == TCP_UNPROVED)
        return f->type != TCP_FRAME_HELLO   ? REPLY_WRONG
               : h->verdict == TCP_STRANGER ? REPLY_STRANGER
                                            : tei_tcp_auth_verdict(h);
    return h->verdict == TCP_CORRUPT ? REPLY_CORRUPT : REPLY_WRONG;
}

static enum tcp_reply verdict_of(const struct tcp_stream *s, const struct tcp_frame *f,
                                 const struct tcp_frame_head *h)
{
    if (h->verdict != TCP_OK && !is_refused(f, h))
        return why_wrong(f, h);
    return s->crc && is_read(f) && tei_tcp_trailer_decode(s->trailer) != s->crc_in ? REPLY_CORRUPT
                                                                                   : REPLY_NONE;
}

/* Options of a good answer to the greeting, behind its header in f->head; no checksum but of them all. */
static enum tcp_reply check_options(const struct tcp_lane *l, const struct tcp_frame *f, size_t n)
{
    uint32_t unknown;

    if ((l->stream->crc && !tei_tcp_frame_intact(f->head, TCP_FRAME_LEN + n)) ||
        !tei_tcp_options_read(f->head + TCP_FRAME_LEN, n,
                              l->stream->proof ? TCP_KNOWN(TCP_OPTION_AUTH) : 0, &unknown))
        return REPLY_FOREIGN;
    return unknown ? REPLY_DEMANDING : REPLY_NONE;
}

/* An answer is there, whole. */
static enum tcp_reply settle(struct tcp_lane *l, struct tcp_frame *f, int64_t now)
{
    struct tcp_frame_head h;
    enum tcp_reply v;

    read_head(l, &h);
    v = verdict_of(l->stream, f, &h);
    if (v == REPLY_NONE && h.options)
        v = check_options(l, f, h.options);
    if (v == REPLY_NONE && f->type == TCP_FRAME_HELLO && l->stream->proof)
        v = tei_tcp_auth_answered(l->stream, f, h.options);
    if (v != REPLY_NONE)
        return v;
    pthread_mutex_lock(&tei_tcp_peer_of(l)->lock);
    answered(l, f, &h, now);
    pthread_mutex_unlock(&tei_tcp_peer_of(l)->lock);
    return REPLY_NONE;
}

/*
 * Looks at a header as soon as it is complete: payload of a wrong one is not waited for. Options of an
 * answer to the greeting take the place of the greeting, which was sent.
 */
static enum tcp_reply check_head(struct tcp_lane *l, struct tcp_frame *f, size_t had)
{
    struct tcp_stream *s = l->stream;
    struct tcp_frame_head h;

    if (had == TCP_FRAME_LEN || s->head_got < TCP_FRAME_LEN)
        return REPLY_NONE;
    read_head(l, &h);
    if (!is_answer(s, f, &h))
        return l->proven ? REPLY_WRONG : REPLY_FOREIGN;
    if (h.options) {
        memcpy(f->head, s->head, TCP_FRAME_LEN);
        s->left = h.options;
    }
    return REPLY_NONE;
}

enum tcp_reply tei_tcp_stream_receive(struct tcp_lane *l, int64_t now, bool *more)
{
    struct tcp_stream *s = l->stream;
    struct tcp_frame *f = first_frame(s);
    struct iovec iov[IOV];
    int n_iov = to_receive(l, f, iov);
    size_t total = tei_tcp_iov_len(iov, n_iov), had = s->head_got;
    ssize_t n = readv(l->watch.fd, iov, n_iov);
    enum tcp_reply v;

    *more = n == (ssize_t)total || (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return REPLY_NONE;
    l->sys_errno = n < 0 ? errno : 0;
    s->ended = n == 0;
    s->closed = n <= 0 && tei_tcp_is_end(l->sys_errno);
    if (n <= 0)
        return REPLY_LOST;
    s->heard = true;
    if (!f)
        return REPLY_WRONG; /* nobody asked for it */
    if (l->proven)          /* until then the whole answer to the greeting has one limit */
        moved(l, now);
    received(s, f, iov, (size_t)n);
    v = check_head(l, f, had);
    if (v != REPLY_NONE || !is_whole(s, f))
        return v;
    v = settle(l, f, now);
    *more = *more && !tei_list_empty(&s->flight);
    return v;
}
