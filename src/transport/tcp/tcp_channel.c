/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_channel.c - the serving end of the native framing.
 *
 *          frame read, all blocks held
 *   HEAD ------------------------------> OUT (READ: answer and payload) ---------------> HEAD
 *     |  \-----------------------------> IN (WRITE: payload into place) ---> HEAD, to be acked
 *     |   a block is refused: nothing of the frame is applied; the payload of a WRITE is thrown
 *     |   away, that of a READ is zeros, so that the shape of the stream depends on no answer; so is a
 *     |   frame with an option that must be known and is not
 *     \----- DROP -----> DROPPING -----> OUT (answer) --> HEAD
 *
 * Frames are served in the order in which they come. The greeting is the first; what follows it may
 * have been sent before it was answered. All blocks of a frame are held before its first byte is
 * moved and let go after the last, so unregistering memory finds the session and ends it.
 *
 * WRITEs are acknowledged once they are in place: one ACK answers all up to its id, and goes out when
 * no further frame has come, or after ACK_FRAMES of them, or before any other answer.
 *
 * Memory of a device is moved through a stage: tcp_device.c. Where a copy of it fails the connection is
 * closed without an answer, as for a region that is unregistered under a frame.
 *
 * What comes is read into `in` where a header is expected, a few frames at a time; payload goes
 * straight into its place, and the rest of the same call into `in` again.
 */
#include "transport/tcp/tcp_auth.h"
#include "transport/tcp/tcp_device.h"
#include "transport/tcp/tcp_lease.h"
#include "transport/tcp/tcp_trace.h"
#include "base/probe.h"

#include "base/tsan.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define IN_BYTES   4096
#define ACK_FRAMES 8
#define IOV        (TCP_FRAME_BLOCKS + 4)
#define OUT_BYTES  ((size_t)(2 * TCP_FRAME_LEN + TCP_ANSWER_OPTIONS))

static_assert(IN_BYTES >= TCP_FRAME_HEAD_MAX + TCP_OPTIONS_MAX, "the longest header fits");

enum channel_state { CHANNEL_HELLO, CHANNEL_HEAD, CHANNEL_IN, CHANNEL_OUT, CHANNEL_DROPPING };

struct tcp_channel {
    enum channel_state state;
    struct tcp_hello hello;
    bool crc;
    struct tei_proof *proof; /* of TE_AUTH, between the greeting and the PROVE */
    uint8_t in[IN_BYTES];    /* in_at..in_end is not looked at yet */
    size_t in_at, in_end;
    uint8_t out[OUT_BYTES]; /* answers to be sent, before the payload */
    size_t out_at, out_end;
    /* The frame being served. */
    struct tcp_frame_head head;
    struct tcp_range ranges[TCP_FRAME_BLOCKS];
    /* One for each block; NULL: in the same as the one before. All NULL between two frames. */
    struct tei_region *held[TCP_FRAME_BLOCKS];
    enum tcp_key shows; /* whether it shows a key of a lease */
    te_lease_key key;
    const struct tei_lease *lease; /* that key's, held as long as these; its region is held[0] */
    enum tcp_verdict refused;      /* why; TCP_OK: it is not */
    uint32_t refused_index;        /* the block, or the kind of the option */
    bool on_device;                /* of the blocks, one at least is */
    bool traced;                   /* it has a trace context */
    struct tei_traceparent trace;
    int64_t begun_ns; /* its header was there */
    unsigned block;   /* the payload is moved up to here */
    uint64_t off, left, payload;
    uint32_t sum; /* of the payload so far */
    uint8_t trailer[TCP_TRAILER_LEN];
    size_t trailer_got; /* or sent */
    uint64_t ack_id;    /* all WRITEs up to it are in place */
    unsigned unacked;
};

void tei_tcp_channels_init(struct tei_pool *pool)
{
    tei_pool_init(pool, sizeof(struct tcp_channel));
}

bool tei_tcp_channel_open(struct tcp_session *s, const uint8_t *bytes, size_t n)
{
    struct tcp_channel *c = tei_pool_get(&s->worker->t->channels);

    if (!c)
        return false;
    memset(c, 0, sizeof *c);
    memcpy(c->in, bytes, n);
    c->in_end = n;
    s->channel = c;
    return true;
}

static void release(struct tcp_session *s)
{
    struct tei_host *h = s->worker->t->base.host;
    struct tcp_channel *c = s->channel;

    tei_tcp_stage_close(s);
    for (unsigned i = 0; i < TCP_FRAME_BLOCKS && i < c->head.count; i++) {
        if (c->held[i])
            h->region_release(h, c->held[i]);
        c->held[i] = NULL;
    }
    if (c->lease)
        h->lease_release(h, c->lease);
    c->lease = NULL;
}

const struct tei_lease *tei_tcp_channel_lease(const struct tcp_session *s)
{
    return s->channel ? s->channel->lease : NULL;
}

void tei_tcp_channel_close(struct tcp_session *s)
{
    if (!s->channel)
        return;
    release(s);
    tei_proof_free(s->channel->proof);
    tei_pool_put(&s->worker->t->channels, s->channel);
    s->channel = NULL;
}

bool tei_tcp_channel_holds(const struct tcp_session *s, const struct tei_region *r)
{
    const struct tcp_channel *c = s->channel;

    for (unsigned i = 0; i < TCP_FRAME_BLOCKS && i < c->head.count; i++)
        if (c->held[i] == r)
            return true;
    return false;
}

bool tei_tcp_channel_is(const struct tcp_session *s, uint64_t client, uint64_t connection)
{
    const struct tcp_channel *c = s->channel;

    return c && c->state != CHANNEL_HELLO && c->hello.client == client &&
           c->hello.connection == connection;
}

int64_t tei_tcp_channel_late_at(const struct tcp_session *s)
{
    const struct tcp_channel *c = s->channel;
    int64_t limit = s->worker->t->no_progress_ns;

    if (c->state == CHANNEL_HELLO || (c->state == CHANNEL_HEAD && c->in_at < c->in_end))
        return s->since_ns + TCP_HEAD_NS;
    if (c->state == CHANNEL_HEAD)
        return TEI_NEVER;
    return limit == TEI_NEVER ? TEI_NEVER : s->since_ns + limit;
}

/* -------------------------------------------------------------------------------------- answers */

static void add_answer(struct tcp_channel *c, const struct tcp_frame_head *h)
{
    uint8_t *at = c->out + c->out_end;

    tei_tcp_frame_encode(h, at);
    if (c->crc)
        tei_tcp_frame_seal(at, TCP_FRAME_LEN);
    c->out_end += TCP_FRAME_LEN;
}

/* The ACK of what is in place, if one is due. Fits: see OUT_BYTES. */
static void add_ack(struct tcp_channel *c)
{
    if (c->unacked)
        add_answer(c, &(struct tcp_frame_head){.type = TCP_FRAME_ACK, .id = c->ack_id});
    c->unacked = 0;
}

/* An answer to the frame in hand: `verdict` of it; goes out before anything else happens. */
static enum tcp_step answer(struct tcp_channel *c, unsigned type, enum tcp_verdict verdict)
{
    struct tcp_frame_head h = {.type = type,
                               .id = c->head.id,
                               .verdict = verdict,
                               .index = verdict == TCP_CORRUPT ? 0 : c->refused_index};

    if (type == TCP_FRAME_DATA)
        h.length = c->payload;
    add_ack(c);
    add_answer(c, &h);
    c->state = CHANNEL_OUT;
    return STEP_MORE;
}

/* The frame is served. */
static enum tcp_step next_frame(struct tcp_session *s)
{
    struct tcp_channel *c = s->channel;

    release(s);
    c->head.count = 0;
    c->left = c->payload = 0;
    c->traced = false;
    c->state = CHANNEL_HEAD;
    return STEP_MORE;
}

/* -------------------------------------------------------------------------------------- a frame */

/* Adjacent blocks are mostly in one region, which is then held once. */
static enum tcp_verdict hold_block(struct tcp_session *s, unsigned i, unsigned access,
                                   struct tei_region **last)
{
    struct tei_host *h = s->worker->t->base.host;
    struct tcp_channel *c = s->channel;
    const struct tcp_range *r = &c->ranges[i];
    uint64_t end;
    int rc;

    c->held[i] = NULL;
    if (r->length == 0 || !tei_add_ok(r->addr, r->length, &end))
        return TCP_REFUSED;
    if (*last && tei_region_contains(*last, r->addr, r->length))
        return TCP_OK;
    rc = h->region_hold(h, r->addr, r->length, access, s->who, &c->held[i]);
    if (rc)
        return rc == TE_ERR_REJECTED ? TCP_NOT_YOURS : TCP_REFUSED;
    *last = c->held[i];
    c->on_device |= (*last)->kind != TEI_MEM_HOST;
    return TCP_OK;
}

struct tei_region *tei_tcp_channel_region(const struct tcp_session *s)
{
    const struct tcp_channel *c = s->channel;
    unsigned i = c->block;

    while (i > 0 && !c->held[i])
        i--;
    return c->held[i];
}

static enum tcp_verdict hold_blocks(struct tcp_session *s, unsigned access)
{
    struct tcp_channel *c = s->channel;
    struct tei_region *last = NULL;
    enum tcp_verdict verdict = TCP_OK;
    unsigned i;

    for (i = 0; i < c->head.count && !verdict; i++)
        verdict = hold_block(s, i, access, &last);
    if (!verdict)
        return TCP_OK;
    c->refused_index = --i;
    memset(&c->held[i], 0, (c->head.count - i) * sizeof c->held[0]);
    return verdict;
}

/* By the key that the frame shows, whatever its memory lets others do. */
static enum tcp_verdict hold_lease(struct tcp_session *s, unsigned access)
{
    struct tei_host *h = s->worker->t->base.host;
    struct tcp_channel *c = s->channel;
    int rc = h->lease_hold(h, &c->key, s->who, &c->lease);

    if (rc == TE_ERR_REJECTED)
        return TCP_LEASE_OF_OTHERS;
    if (rc)
        return rc == TE_ERR_TIMEOUT ? TCP_LEASE_LATE : TCP_NO_LEASE;
    c->held[0] = c->lease->region;
    c->on_device = c->lease->region->kind != TEI_MEM_HOST;
    for (unsigned i = 0; i < c->head.count; i++)
        if (!tei_tcp_lease_allows(c->lease, &c->ranges[i], access)) {
            c->refused_index = i;
            return TCP_OUT_OF_LEASE;
        }
    return TCP_OK;
}

/* Holds all or nothing. */
static void hold_all(struct tcp_session *s, unsigned access)
{
    struct tcp_channel *c = s->channel;

    c->refused = c->shows ? hold_lease(s, access) : hold_blocks(s, access);
    if (!c->refused)
        return;
    if (c->refused == TCP_NOT_YOURS || c->refused == TCP_LEASE_OF_OTHERS)
        tei_tcp_auth_denied(s);
    if (c->refused == TCP_NOT_YOURS && c->hello.version == TCP_NATIVE_FIRST)
        c->refused = TCP_REFUSED; /* which is what that version knows */
    else if (c->shows)
        tei_tcp_lease_tell(s, c->refused);
    c->on_device = false;
    release(s);
}

static bool open_stage(struct tcp_session *s, bool is_read)
{
    struct tcp_channel *c = s->channel;
    const struct tei_region *r = NULL;
    bool well = tei_tcp_stage_open(s, is_read);

    for (unsigned i = 0; well && i < c->head.count; i++) {
        r = c->held[i] ? c->held[i] : r;
        well = tei_tcp_stage_add(s, r, c->ranges[i].addr, c->ranges[i].length);
    }
    return well;
}

/* Reads the blocks; false if the frame cannot be one. */
static bool read_blocks(struct tcp_channel *c, const uint8_t *bytes)
{
    c->payload = 0;
    for (unsigned i = 0; i < c->head.count; i++) {
        tei_tcp_range_decode(bytes + TCP_FRAME_LEN + i * TCP_BLOCK_LEN, &c->ranges[i]);
        c->payload += c->ranges[i].length;
    }
    return c->payload <= TCP_FRAME_MAX &&
           c->head.length == (c->head.type == TCP_FRAME_WRITE ? c->payload : 0);
}

/* Options of `n` bytes, of which `known` are known (TCP_KNOWN()); false if they cannot be any. */
static bool read_options(struct tcp_channel *c, const uint8_t *list, size_t n, unsigned known)
{
    c->refused_index = 0;
    if (n > 0 && !tei_tcp_options_read(list, n, known, &c->refused_index))
        return false;
    c->refused = c->refused_index ? TCP_UNKNOWN : TCP_OK;
    return true;
}

static void tell_begun(struct tcp_session *s, int opcode)
{
    struct tcp_channel *c = s->channel;
    char trace[TEI_TRACEPARENT_TEXT];

    trace[0] = '\0';
    c->begun_ns = s->since_ns;
    if (c->traced)
        tei_traceparent_write(&c->trace, trace);
    TEI_PROBE5(serve, s->worker->t->base.ops.name, opcode, c->refused ? 0 : c->head.count,
               c->payload, trace);
}

static void tell_served(const struct tcp_session *s, int opcode)
{
    const struct tcp_channel *c = s->channel;

    if (c->traced && !c->refused)
        tei_tcp_trace_served(s, &(struct tcp_served){&c->trace, opcode, c->payload, c->begun_ns});
}

static enum tcp_step begin_transfer(struct tcp_session *s)
{
    struct tcp_channel *c = s->channel;
    bool is_read = c->head.type == TCP_FRAME_READ;

    if (c->head.count == 0 || c->payload == 0)
        return STEP_CLOSE;
    c->on_device = false;
    if (!c->refused)
        hold_all(s, is_read ? TE_REMOTE_READ : TE_REMOTE_WRITE);
    if (c->refused)
        s->worker->count.served_rejected++;
    else
        s->worker->count.served_requests += c->head.count;
    tell_begun(s, is_read ? TE_READ : TE_WRITE);
    c->block = 0;
    c->off = 0;
    c->left = c->payload;
    c->sum = 0;
    c->trailer_got = 0;
    if (c->on_device && !open_stage(s, is_read))
        return STEP_CLOSE;
    if (is_read)
        return answer(c, TCP_FRAME_DATA, c->refused);
    c->state = CHANNEL_IN;
    return STEP_MORE;
}

static enum tcp_step begin_drop(struct tcp_session *s)
{
    struct tcp_channel *c = s->channel;

    if (c->head.count != 1 || c->ranges[0].length != 0)
        return STEP_CLOSE;
    /* Relaxed: one more job than needed does no harm, but one after the other would: see stop(). */
    if (atomic_load_explicit(&s->worker->t->closed, memory_order_relaxed))
        return STEP_CLOSE;
    c->payload = 0;
    if (c->refused)
        return answer(c, TCP_FRAME_DROPPED, c->refused);
    c->state = CHANNEL_DROPPING;
    tei_tcp_session_pause(s);
    return tei_tcp_drop(s, c->hello.client, c->ranges[0].addr) ? STEP_WAIT : STEP_CLOSE;
}

void tei_tcp_channel_dropped(struct tcp_session *s)
{
    struct tcp_channel *c = s->channel;

    if (!c || c->state != CHANNEL_DROPPING)
        return;
    c->head.count = 0;
    answer(c, TCP_FRAME_DROPPED, TCP_OK);
    tei_tcp_session_resume(s, EPOLLOUT);
    tei_tcp_session_run(s);
}

/* The first frame of a client that is not known yet. */
static enum tcp_step begin_prove(struct tcp_session *s, const uint8_t *bytes)
{
    struct tcp_channel *c = s->channel;

    if (!tei_tcp_auth_proved(s, c->proof, &c->head, bytes))
        return STEP_CLOSE;
    tei_proof_free(c->proof);
    c->proof = NULL;
    return answer(c, TCP_FRAME_PROVED, TCP_OK);
}

/* A whole header, its blocks and options lie in `in`. */
static enum tcp_step begin(struct tcp_session *s, size_t len)
{
    struct tcp_channel *c = s->channel;
    const uint8_t *bytes = c->in + c->in_at;
    size_t options = c->head.options;
    bool stranger = tei_tcp_auth_is_stranger(s);

    s->since_ns = tei_now_ns();
    if ((c->crc && !tei_tcp_frame_intact(bytes, len)) || !read_blocks(c, bytes) ||
        !read_options(c, bytes + len - options, options,
                      stranger ? TCP_KNOWN(TCP_OPTION_AUTH)
                               : TCP_KNOWN(TCP_OPTION_TRACE) | TCP_KNOWN(TCP_OPTION_LEASE)))
        return STEP_CLOSE;
    c->traced = options > 0 && tei_tcp_trace_take(bytes + len - options, options, &c->trace);
    c->shows = tei_tcp_lease_take(bytes + len - options, options, &c->key);
    if (c->shows == KEY_MALFORMED)
        return STEP_CLOSE;
    c->in_at += len;
    if (stranger)
        return begin_prove(s, bytes);
    tei_tcp_session_serving(s, true);
    if (c->head.type == TCP_FRAME_READ || c->head.type == TCP_FRAME_WRITE)
        return begin_transfer(s);
    return c->head.type == TCP_FRAME_DROP ? begin_drop(s) : STEP_CLOSE;
}

/* The answer of one who proves, by it, who he is. */
static enum tcp_step answer_proving(struct tcp_channel *c)
{
    const struct tcp_frame_head h = {.type = TCP_FRAME_HELLO, .options = TCP_ANSWER_OPTIONS};
    uint8_t *at = c->out + c->out_end;

    tei_tcp_frame_encode(&h, at);
    if (!tei_tcp_auth_answer(c->proof, at))
        return STEP_CLOSE;
    if (c->crc)
        tei_tcp_frame_seal(at, TCP_FRAME_LEN + TCP_ANSWER_OPTIONS);
    c->out_end += TCP_FRAME_LEN + TCP_ANSWER_OPTIONS;
    c->state = CHANNEL_OUT;
    return STEP_MORE;
}

/* If it is refused the connection ends with the answer. */
static enum tcp_step greet(struct tcp_session *s)
{
    struct tcp_channel *c = s->channel;
    const struct tcp_hello *h = &c->hello;
    const uint8_t *greeting = c->in + c->in_at;
    bool stranger = tei_tcp_auth_is_stranger(s);

    if (!read_options(c, greeting + TCP_HELLO_LEN, h->options,
                      stranger ? TCP_KNOWN(TCP_OPTION_AUTH) : 0))
        return STEP_CLOSE;
    s->since_ns = tei_now_ns();
    c->in_at += TCP_HELLO_LEN + h->options;
    if (h->version < TCP_NATIVE_FIRST || h->version > TCP_NATIVE_VERSION ||
        (h->flags & ~TCP_HELLO_CRC32C))
        c->refused = TCP_UNKNOWN;
    if (!c->refused && stranger &&
        !(c->proof = tei_tcp_auth_greeted(s, h, greeting, &c->refused_index)))
        c->refused = TCP_UNPROVED;
    if (!c->refused && h->target != s->worker->t->id)
        c->refused = TCP_STRANGER;
    c->crc = !c->refused && (h->flags & TCP_HELLO_CRC32C);
    c->head = (struct tcp_frame_head){.type = TCP_FRAME_HELLO};
    return stranger && !c->refused ? answer_proving(c) : answer(c, TCP_FRAME_HELLO, c->refused);
}

/* ------------------------------------------------------------------------------------- receiving */

static size_t buffered(const struct tcp_channel *c)
{
    return c->in_end - c->in_at;
}

static void make_room(struct tcp_channel *c)
{
    memmove(c->in, c->in + c->in_at, buffered(c));
    c->in_end -= c->in_at;
    c->in_at = 0;
}

/* How many bytes the thing at the front of `in` has; 0: not to be told yet. */
static size_t length_of_next(struct tcp_channel *c)
{
    if (buffered(c) < (c->state == CHANNEL_HELLO ? TCP_HELLO_LEN : TCP_FRAME_LEN))
        return 0;
    if (c->state == CHANNEL_HELLO) {
        tei_tcp_hello_decode(c->in + c->in_at, &c->hello);
        return TCP_HELLO_LEN + c->hello.options;
    }
    tei_tcp_frame_decode(c->in + c->in_at, &c->head);
    if (c->hello.version == TCP_NATIVE_FIRST)
        c->head.options = 0; /* there it is a byte without a meaning */
    return TCP_FRAME_LEN + (size_t)c->head.count * TCP_BLOCK_LEN + c->head.options;
}

static bool is_too_long(const struct tcp_channel *c)
{
    return c->head.count > TCP_FRAME_BLOCKS || c->head.options > TCP_OPTIONS_MAX ||
           c->hello.options > TCP_OPTIONS_MAX;
}

/* No whole frame is there: what is in place is acknowledged before waiting for more. */
static enum tcp_step await_more(struct tcp_session *s)
{
    struct tcp_channel *c = s->channel;

    if (c->unacked) {
        add_ack(c);
        c->state = CHANNEL_OUT;
        return STEP_MORE;
    }
    tei_tcp_session_serving(s, buffered(c) > 0);
    tei_watch_set(&s->watch, EPOLLIN);
    return STEP_WAIT;
}

static enum tcp_step step_head(struct tcp_session *s)
{
    struct tcp_channel *c = s->channel;
    size_t len = length_of_next(c);
    ssize_t n;

    if (is_too_long(c))
        return STEP_CLOSE;
    if (len && buffered(c) >= len)
        return c->state == CHANNEL_HELLO ? greet(s) : begin(s, len);
    make_room(c);
    n = recv(s->watch.fd, c->in + c->in_end, IN_BYTES - c->in_end, MSG_DONTWAIT);
    if (n == 0)
        return STEP_CLOSE;
    if (n < 0 && errno == EAGAIN)
        return await_more(s);
    if (n < 0)
        return tei_tcp_session_stalled(s, EPOLLIN);
    if (c->in_end == 0) /* else the header has begun before */
        s->since_ns = tei_now_ns();
    c->in_end += (size_t)n;
    return STEP_MORE;
}

/* Bytes of one call. */
static uint64_t slice(const struct tcp_session *s)
{
    return s->worker->t->conf->tcp_slice_size;
}

/* The rest of the payload's places, as far as a call goes. */
static int add_places(struct tcp_session *s, struct iovec *iov, int room, uint64_t max)
{
    struct tcp_channel *c = s->channel;
    uint64_t off = c->off;
    int n = 0;

    if (c->refused) {
        iov[0] = (struct iovec){s->worker->sink, tei_min(c->left, TCP_SINK)};
        return c->left > 0;
    }
    if (s->stage)
        return tei_tcp_stage_places(s, iov, room, max);
    for (unsigned i = c->block; i < c->head.count && n < room && max > 0; i++, off = 0) {
        size_t len = (size_t)tei_min(c->ranges[i].length - off, max);

        iov[n++] = (struct iovec){(char *)(uintptr_t)c->ranges[i].addr + off, len};
        max -= len;
    }
    return n;
}

/* The first n bytes of these places were moved: only now it is sure that they can be read. */
static void moved(struct tcp_session *s, const struct iovec *iov, uint64_t n)
{
    struct tcp_channel *c = s->channel;

    if (c->crc)
        c->sum = tei_tcp_sum(c->sum, iov, n);
    c->left -= n;
    if (s->stage) {
        tei_tcp_stage_moved(s, n);
        return;
    }
    while (!c->refused && n > 0) {
        uint64_t here = tei_min(c->ranges[c->block].length - c->off, n);

        n -= here;
        c->off += here;
        if (c->off == c->ranges[c->block].length) {
            c->block++;
            c->off = 0;
        }
    }
}

static bool is_in_place(const struct tcp_channel *c)
{
    return c->left == 0 && (!c->crc || c->trailer_got == TCP_TRAILER_LEN);
}

/* Bytes of the payload, or of its checksum, that came with the header. */
static void take_buffered(struct tcp_session *s)
{
    struct tcp_channel *c = s->channel;
    struct iovec iov[IOV];
    int n_iov = add_places(s, iov, IOV, c->left);
    uint64_t n = tei_min(buffered(c), tei_tcp_iov_len(iov, n_iov)), at = 0;

    tei_tsan_ignore_begin();
    for (int i = 0; at < n; i++) {
        size_t len = (size_t)tei_min(iov[i].iov_len, n - at);

        memcpy(iov[i].iov_base, c->in + c->in_at + at, len);
        at += len;
    }
    moved(s, iov, n);
    tei_tsan_ignore_end();
    c->in_at += n;
    s->worker->count.served_bytes_in += c->refused ? 0 : n;
    if (c->left == 0 && c->crc) {
        size_t len = tei_min(buffered(c), TCP_TRAILER_LEN - c->trailer_got);

        memcpy(c->trailer + c->trailer_got, c->in + c->in_at, len);
        c->trailer_got += len;
        c->in_at += len;
    }
}

static enum tcp_step written(struct tcp_session *s)
{
    struct tcp_channel *c = s->channel;

    if (!tei_tcp_stage_close(s))
        return STEP_CLOSE;
    release(s);
    if (c->crc && tei_tcp_trailer_decode(c->trailer) != c->sum)
        return answer(c, TCP_FRAME_ACK, TCP_CORRUPT);
    if (c->refused)
        return answer(c, TCP_FRAME_ACK, c->refused);
    tell_served(s, TE_WRITE);
    c->ack_id = c->head.id;
    c->unacked++;
    next_frame(s);
    if (c->unacked >= ACK_FRAMES) {
        add_ack(c);
        c->state = CHANNEL_OUT;
    }
    return STEP_MORE;
}

static enum tcp_step step_in(struct tcp_session *s)
{
    struct tcp_channel *c = s->channel;
    struct iovec iov[IOV];
    size_t body, want;
    ssize_t n;
    int n_iov;

    if (buffered(c) > 0)
        take_buffered(s);
    if (tei_tcp_stage_failed(s))
        return STEP_CLOSE;
    if (is_in_place(c))
        return written(s);
    if (buffered(c) > 0)
        return STEP_MORE; /* the sink takes it by parts */
    c->in_at = c->in_end = 0;
    n_iov = add_places(s, iov, IOV - 1, c->crc ? tei_min(slice(s), TCP_SUM_BYTES) : slice(s));
    if (tei_tcp_stage_failed(s))
        return STEP_CLOSE;
    body = tei_tcp_iov_len(iov, n_iov);
    if (body == c->left) /* the checksum, and the next frame's header */
        iov[n_iov++] = (struct iovec){c->in, IN_BYTES};
    want = tei_tcp_iov_len(iov, n_iov);
    tei_tsan_ignore_begin();
    n = readv(s->watch.fd, iov, n_iov);
    if (n > 0)
        moved(s, iov, tei_min((size_t)n, body));
    tei_tsan_ignore_end();
    if (n == 0)
        return STEP_CLOSE;
    if (n < 0)
        return tei_tcp_session_stalled(s, EPOLLIN);
    s->since_ns = tei_now_ns();
    s->worker->count.served_bytes_in += c->refused ? 0 : tei_min((size_t)n, body);
    c->in_end = (size_t)n > body ? (size_t)n - body : 0;
    if ((size_t)n == want || is_in_place(c) || c->in_end > 0)
        return STEP_MORE;
    tei_watch_set(&s->watch, EPOLLIN);
    return STEP_WAIT;
}

/* --------------------------------------------------------------------------------------- sending */

static const char zeros[TCP_SINK];

static int add_data(struct tcp_session *s, struct iovec *iov, int room)
{
    struct tcp_channel *c = s->channel;

    if (c->head.type != TCP_FRAME_READ || c->left == 0)
        return 0;
    if (c->refused) {
        iov[0] = (struct iovec){(void *)(uintptr_t)zeros, tei_min(c->left, sizeof zeros)};
        return 1;
    }
    return add_places(s, iov, room, slice(s));
}

/* What goes before and after the payload is counted off; returns how much of n was payload. */
static uint64_t count_off(struct tcp_channel *c, uint64_t n, uint64_t body)
{
    uint64_t of_out = tei_min(n, c->out_end - c->out_at), of_body;

    c->out_at += of_out;
    n -= of_out;
    of_body = tei_min(n, body);
    c->trailer_got += n - of_body;
    return of_body;
}

static bool has_trailer(const struct tcp_channel *c)
{
    return c->crc && c->head.type == TCP_FRAME_READ && c->payload > 0;
}

static bool is_out(const struct tcp_channel *c)
{
    return c->out_at == c->out_end && (c->head.type != TCP_FRAME_READ || c->left == 0) &&
           (!has_trailer(c) || c->trailer_got == TCP_TRAILER_LEN);
}

/* The checksum of a READ's payload is known once all of it was sent. */
static int add_trailer(struct tcp_channel *c, struct iovec *iov)
{
    if (!has_trailer(c) || c->left > 0)
        return 0;
    tei_tcp_trailer_encode(c->sum, c->trailer);
    iov[0] = (struct iovec){c->trailer + c->trailer_got, TCP_TRAILER_LEN - c->trailer_got};
    return 1;
}

static enum tcp_step sent_all(struct tcp_session *s)
{
    struct tcp_channel *c = s->channel;
    bool farewell = c->head.type == TCP_FRAME_HELLO && c->refused;

    s->useful = !tei_tcp_auth_is_stranger(s);
    if (c->head.type == TCP_FRAME_READ)
        tell_served(s, TE_READ);
    c->out_at = c->out_end = 0;
    c->head.type = 0;
    if (farewell)
        return STEP_CLOSE;
    next_frame(s);
    return buffered(c) ? STEP_MORE : await_more(s);
}

static enum tcp_step step_out(struct tcp_session *s)
{
    struct tcp_channel *c = s->channel;
    struct iovec iov[IOV];
    struct msghdr m = {.msg_iov = iov};
    int n_iov = 0, first, flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    uint64_t body, of_body;
    size_t want;
    ssize_t n;

    if (c->out_at < c->out_end)
        iov[n_iov++] = (struct iovec){c->out + c->out_at, c->out_end - c->out_at};
    first = n_iov;
    n_iov += add_data(s, iov + n_iov, IOV - 2);
    if (tei_tcp_stage_failed(s))
        return STEP_CLOSE;
    body = tei_tcp_iov_len(iov + first, n_iov - first);
    n_iov += add_trailer(c, iov + n_iov);
    want = tei_tcp_iov_len(iov, n_iov);
    m.msg_iovlen = (size_t)n_iov;
    if (has_trailer(c) && c->left > 0) /* it is to share a segment with the end of the payload */
        flags |= MSG_MORE;
    tei_tsan_ignore_begin();
    n = sendmsg(s->watch.fd, &m, flags);
    of_body = n > 0 ? count_off(c, (uint64_t)n, body) : 0;
    moved(s, iov + first, of_body);
    tei_tsan_ignore_end();
    if (n < 0)
        return tei_tcp_session_stalled(s, EPOLLOUT);
    s->since_ns = tei_now_ns();
    s->worker->count.served_bytes_out += c->refused ? 0 : of_body;
    if (is_out(c))
        return sent_all(s);
    if ((size_t)n == want)
        return STEP_MORE;
    tei_watch_set(&s->watch, EPOLLOUT);
    return STEP_WAIT;
}

enum tcp_step tei_tcp_channel_step(struct tcp_session *s)
{
    switch (s->channel->state) {
    case CHANNEL_HELLO:
    case CHANNEL_HEAD:
        return step_head(s);
    case CHANNEL_IN:
        return step_in(s);
    case CHANNEL_OUT:
        return step_out(s);
    case CHANNEL_DROPPING:
        break; /* it waits for no event, so this is the client's end */
    }
    return STEP_CLOSE;
}
