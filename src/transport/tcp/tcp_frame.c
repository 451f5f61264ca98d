/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_frame.c - frames of the native framing: how they are cut from the queue, and what becomes of
 * them when their connection breaks.
 *
 *              cut                    answered
 *   (queue) ---------> stream.flight ----------> its pieces are over
 *                        ^   |   |
 *                        |   |   | connection broken: a READ, or no byte of it was sent
 *                   sent |   |   +------------------------> peer.again --+
 *                        |   |                                           |
 *                        |   | broken: a WRITE of which bytes were sent  |
 *                        |   +----------------> peer.lost               |
 *                        |                          | DROPPED            |
 *                        |                          v                    |
 *                        +---------------------- peer.again <------------+
 *
 * A WRITE may be sent again only when the attempt before is known dead: its bytes may still lie in
 * the target's socket, to be applied after the second attempt was reported done. So the target is
 * asked to drop that connection, on any other one, and the frame waits in `lost` for the answer. A
 * READ is dead once its socket is closed.
 *
 * Pieces of works that have failed or were cancelled leave their frames: at once where the frame is
 * in a list of the peer, see sweep() of tcp_native.c for frames under way.
 *
 * Everything here wants the peer's lock; what has a lane in its arguments, the worker's too.
 */
#include "transport/tcp/tcp_auth.h"
#include "transport/tcp/tcp_lease.h"
#include "transport/tcp/tcp_trace.h"

#include <string.h>

#define EXACT_MAX 64 /* with more unsettled frames, blocks are not looked at one by one */

static bool is_data(const struct tcp_frame *f)
{
    return f->type == TCP_FRAME_READ || f->type == TCP_FRAME_WRITE;
}

/* ------------------------------------------------------------------------------- making a frame */

static struct tcp_frame *make(struct tcp *t, unsigned type)
{
    struct tcp_frame *f = tei_pool_get(&t->frames);

    if (f) {
        memset(f, 0, offsetof(struct tcp_frame, blocks));
        f->type = type;
        tei_list_init(&f->waiters);
    }
    return f;
}

void tei_tcp_frame_free(struct tcp *t, struct tcp_frame *f)
{
    assert(f->unsettled.end == 0);
    tei_pool_put(&t->frames, f);
}

/* Leaves out the blocks whose work has ended. */
static void compact(struct tcp_frame *f)
{
    unsigned n = 0;

    f->payload = 0;
    for (unsigned i = 0; i < f->n; i++) {
        if (!f->blocks[i].work)
            continue;
        f->payload += f->blocks[i].range.length;
        f->blocks[n++] = f->blocks[i];
    }
    f->n = n;
}

/* That of all its works; NULL: they have none. */
static const struct tei_traceparent *trace_of(const struct tcp_frame *f)
{
    return is_data(f) ? f->blocks[0].work->entry.base.trace : NULL;
}

/* Likewise. */
static const te_lease_key *key_of(const struct tcp_frame *f)
{
    return is_data(f) ? f->blocks[0].work->entry.base.key : NULL;
}

/* Writes what a request has beside its blocks; returns its length. */
static size_t put_options(const struct tcp_frame *f, uint8_t *to)
{
    const struct tei_traceparent *trace = trace_of(f);
    size_t n = trace ? tei_tcp_trace_put(to, trace) : 0;

    return key_of(f) ? n + tei_tcp_lease_put(to + n, key_of(f)) : n;
}

/* Writes the bytes of a frame for the connection that it is to go out on. */
static void seal(struct tcp_frame *f, struct tcp_lane *l)
{
    struct tcp_stream *s = l->stream;
    struct tcp_frame_head h = {.type = f->type, .count = f->n, .id = ++s->next_id};
    size_t blocks = (size_t)f->n * TCP_BLOCK_LEN;

    if (l->bundle->peer->framing > TCP_NATIVE_FIRST)
        h.options = put_options(f, f->head + TCP_FRAME_LEN + blocks);
    h.length = f->type == TCP_FRAME_WRITE ? f->payload : 0;
    f->id = h.id;
    f->is_keyed = key_of(f) && h.options;
    f->sent = 0;
    f->head_len = TCP_FRAME_LEN + blocks + h.options;
    f->total = f->head_len + h.length + (h.length && s->crc ? TCP_TRAILER_LEN : 0);
    f->crc = 0;
    f->zero_last = 0;
    tei_tcp_frame_encode(&h, f->head);
    for (unsigned i = 0; i < f->n; i++)
        tei_tcp_range_encode(&f->blocks[i].range, f->head + TCP_FRAME_LEN + i * TCP_BLOCK_LEN);
    if (s->crc)
        tei_tcp_frame_seal(f->head, f->head_len);
}

/* Adds a part of the queue's first work; false if it does not belong in this frame. */
static bool add_piece(struct tcp_frame *f, struct tcp_peer *p, struct tcp_work *work, uint64_t max,
                      int64_t now)
{
    const struct tei_conf *conf = p->t->conf;
    unsigned type = work->entry.base.opcode == TE_READ ? TCP_FRAME_READ : TCP_FRAME_WRITE;
    uint64_t len = tei_slice_len(work->entry.base.length - work->entry.next,
                                 tei_min(conf->tcp_piece_size, max), conf->fragment_ratio);
    struct tei_part part;

    if (f->n && (f->type != type || f->payload + len > max + max / 4 ||
                 !tei_traceparent_same(trace_of(f), work->entry.base.trace) ||
                 !tei_tcp_lease_same(key_of(f), work->entry.base.key)))
        return false;
    f->type = type;
    tei_tcp_queue_take(p, len, now, &part);
    f->blocks[f->n++] = (struct tcp_block){work, part.local, {part.remote, (uint32_t)len}};
    f->payload += len;
    return true;
}

static struct tcp_frame *cut(struct tcp_lane *l, int64_t now)
{
    uint64_t max = tei_tcp_window_frame(l);
    struct tcp_worker *w = l->bundle->worker;
    struct tcp_peer *p = l->bundle->peer;
    struct tcp_work *work = tei_tcp_queue_first(p, w, now);
    struct tcp_frame *f;

    if (!work)
        return NULL;
    f = make(p->t, 0);
    if (!f) {
        static const struct tcp_fault memory = {TE_ERR_MEMORY, 0, "making a frame"};

        tei_tcp_queue_fail(p, w, &memory);
        return NULL;
    }
    while (work && f->n < TCP_FRAME_BLOCKS && f->payload < max && add_piece(f, p, work, max, now))
        work = tei_tcp_queue_first(p, w, now);
    return f;
}

/* The first frame of a list that waits for a DROP which was not sent yet; any: whether or not somebody wants it. */
static const struct tcp_frame *first_unasked(const struct tei_list *frames, bool any)
{
    for (struct tei_link *n = tei_list_first(frames); n; n = tei_list_next(frames, n)) {
        const struct tcp_frame *f = tei_container_of(n, struct tcp_frame, link);

        if (!f->asked && (any || f->wanted))
            return f;
    }
    return NULL;
}

bool tei_tcp_frames_want_drop(const struct tcp_peer *p)
{
    return first_unasked(&p->lost, true) || first_unasked(&p->unsettled, tei_tcp_is_holding(p));
}

static void mark_asked(struct tei_list *frames, uint64_t connection)
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(frames, n, tmp) {
        struct tcp_frame *f = tei_container_of(n, struct tcp_frame, link);

        f->asked = f->asked || f->connection == connection;
    }
}

/* Asks the target to end a connection that may still bring lost frames, or unsettled ones. */
static struct tcp_frame *ask_drop(struct tcp_peer *p)
{
    const struct tcp_frame *lost = first_unasked(&p->lost, true);
    struct tcp_frame *f;
    uint64_t connection;

    if (!lost)
        lost = first_unasked(&p->unsettled, true);
    f = lost ? make(p->t, TCP_FRAME_DROP) : NULL;
    if (!f)
        return NULL;
    connection = lost->connection;
    mark_asked(&p->lost, connection);
    mark_asked(&p->unsettled, connection);
    f->connection = connection;
    f->n = 1;
    f->blocks[0] = (struct tcp_block){.range = {.addr = connection}};
    return f;
}

static struct tcp_frame *take_again(struct tcp_peer *p)
{
    struct tei_link *n = tei_list_pop(&p->again);
    struct tcp_frame *f;

    if (!n)
        return NULL;
    f = tei_container_of(n, struct tcp_frame, link);
    p->n_frames--;
    compact(f);
    return f;
}

/* For te_path() and the stories of its works: the way that it takes now. */
static void tell_way(struct tcp_frame *f, const struct tcp_lane *l)
{
    bool changed = f->left && f->left - 1 != l->path;

    for (unsigned i = 0; is_data(f) && i < f->n; i++) {
        struct tei_work *w = &f->blocks[i].work->entry.base;

        if (changed)
            tei_work_changed(w);
        if (w->story)
            tei_story_via(w->story, l->ends, changed);
    }
    f->left = 0;
}

struct tcp_frame *tei_tcp_frame_next(struct tcp_lane *l, int64_t now)
{
    struct tcp_peer *p = l->bundle->peer;
    struct tcp_frame *f = ask_drop(p);

    if (!f)
        f = take_again(p);
    if (!f)
        f = cut(l, now);
    if (f) {
        tell_way(f, l);
        seal(f, l);
    }
    return f;
}

struct tcp_frame *tei_tcp_frame_hello(struct tcp_lane *l)
{
    struct tcp *t = l->bundle->worker->t;
    struct tcp_hello h = {.version = l->bundle->peer->framing,
                          .flags = l->stream->crc ? TCP_HELLO_CRC32C : 0,
                          .target = l->bundle->peer->id,
                          .client = t->id,
                          .connection = l->stream->connection};
    struct tcp_frame *f = make(t, TCP_FRAME_HELLO);

    if (!f)
        return NULL;
    if (!tei_tcp_auth_hello(l, f->head + TCP_HELLO_LEN, &h.options)) {
        tei_tcp_frame_free(t, f);
        return NULL;
    }
    tei_tcp_hello_encode(&h, f->head);
    f->head_len = TCP_HELLO_LEN + h.options;
    f->total = f->head_len;
    if (l->stream->proof)
        tei_proof_add(l->stream->proof, f->head, f->head_len);
    return f;
}

struct tcp_frame *tei_tcp_frame_prove(struct tcp_lane *l)
{
    struct tcp_frame *f = make(l->bundle->worker->t, TCP_FRAME_PROVE);

    if (f) {
        f->head_len = TCP_FRAME_LEN + TCP_PROVE_OPTIONS;
        f->total = f->head_len;
    }
    return f;
}

/* -------------------------------------------------------------------------- what may still come */

/* Whether the target may apply it, now or later: bytes of it were sent, and not answered. */
static bool may_come(const struct tcp_frame *f)
{
    return f->type == TCP_FRAME_WRITE && f->sent > 0;
}

static struct tei_span span_of(const struct tcp_range *r)
{
    return (struct tei_span){r->addr, r->addr + r->length};
}

/* A block of it ends without the answer. */
static void unsettle(struct tcp_peer *p, struct tcp_frame *f, const struct tcp_range *r)
{
    struct tei_span *s = &f->unsettled;

    if (s->end == 0) {
        *s = span_of(r);
        f->doubt = ++p->n_doubts;
        tei_tcp_unsettled_add(p, 1);
        return;
    }
    s->begin = tei_min(s->begin, r->addr);
    s->end = tei_max(s->end, r->addr + r->length);
}

void tei_tcp_frame_settle(struct tcp_peer *p, struct tcp_frame *f)
{
    if (f->unsettled.end == 0)
        return;
    f->unsettled = (struct tei_span){0};
    tei_tcp_unsettled_add(p, -1);
    tei_tcp_fence_release(p, &f->waiters);
}

/* exact: by blocks; else by what they cover together. */
static bool frame_reaches(const struct tcp_frame *f, const struct tei_span *span, bool exact)
{
    if (f->unsettled.end == 0 || !tei_spans_overlap(*span, f->unsettled))
        return false;
    for (unsigned i = 0; exact && i < f->n; i++) {
        const struct tcp_range *r = &f->blocks[i].range;

        if (!f->blocks[i].work && tei_spans_overlap(*span, span_of(r)))
            return true;
    }
    return !exact;
}

struct tcp_frame *tei_tcp_frames_last(const struct tei_list *frames, const struct tei_span *span,
                                      uint64_t until, bool exact)
{
    struct tei_link *n;

    for (n = frames->head.prev; n != &frames->head; n = n->prev) {
        struct tcp_frame *f = tei_container_of(n, struct tcp_frame, link);

        if (f->doubt <= until && frame_reaches(f, span, exact))
            return f;
    }
    return NULL;
}

static bool is_exact(const struct tcp_peer *p)
{
    return tei_tcp_unsettled(p) <= EXACT_MAX;
}

/* Frames are answered in the order of their list, so who waits for the last one waits once. */
struct tcp_frame *tei_tcp_frames_reach(const struct tcp_peer *p, const struct tei_span *span,
                                       uint64_t until)
{
    bool exact = is_exact(p);
    struct tcp_frame *f;

    f = tei_tcp_frames_last(&p->unsettled, span, until, exact);
    if (!f)
        f = tei_tcp_frames_last(&p->lost, span, until, exact);
    for (unsigned i = 0; !f && i < p->n_bundles; i++)
        for (unsigned k = 0; !f && k < p->bundles[i].n_lanes; k++)
            f = p->exchange->reach(&p->bundles[i].lanes[k], span, until, exact);
    return f;
}

void tei_tcp_frames_ask(struct tcp_peer *p, const struct tei_span *span)
{
    bool exact = is_exact(p), any = false;
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&p->unsettled, n, tmp) {
        struct tcp_frame *f = tei_container_of(n, struct tcp_frame, link);

        f->wanted = f->wanted || frame_reaches(f, span, exact);
        any = any || f->wanted;
    }
    if (any)
        tei_tcp_bundle_call(&p->bundles[0]);
}

static void free_left_over(struct tcp_peer *p, struct tcp_frame *f)
{
    tei_list_del(&f->link);
    p->n_left_over--;
    tei_tcp_frame_settle(p, f);
    tei_tcp_frame_free(p->t, f);
    tei_tcp_fence_thin_out(p);
}

void tei_tcp_frames_settle(struct tcp_peer *p)
{
    struct tei_link *n;

    while ((n = tei_list_first(&p->unsettled)))
        free_left_over(p, tei_container_of(n, struct tcp_frame, link));
}

void tei_tcp_frames_refused(struct tcp_peer *p)
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&p->unsettled, n, tmp)
        if (tei_tcp_frame_of(n)->was_reset)
            free_left_over(p, tei_tcp_frame_of(n));
}

/* ------------------------------------------------------------------------------ ending a frame */

static void end_block(struct tcp_peer *p, struct tcp_frame *f, unsigned i,
                      const struct tcp_fault *fault)
{
    struct tcp_block *b = &f->blocks[i];
    struct tcp_work *work = b->work;

    if (!work)
        return;
    b->work = NULL;
    if (fault && may_come(f))
        unsettle(p, f, &b->range);
    tei_tcp_part_end(p, work, b->range.length, fault);
}

static void end_blocks(struct tcp_peer *p, struct tcp_worker *w, struct tcp_frame *f,
                       const struct tcp_fault *fault)
{
    for (unsigned i = 0; i < f->n; i++)
        end_block(p, f, i, fault);
    tei_tcp_reap(p, w);
}

void tei_tcp_frame_take_out(struct tcp_peer *p, struct tcp_worker *w, struct tcp_frame *f)
{
    static const struct tcp_fault ended = {TE_ERR_CANCELED, 0, NULL};

    for (unsigned i = 0; i < f->n; i++) {
        const struct tcp_work *work = f->blocks[i].work;

        if (work && tei_tcp_is_given_up(work))
            end_block(p, f, i, &ended);
    }
    tei_tcp_reap(p, w);
}

void tei_tcp_frame_done(struct tcp_lane *l, struct tcp_frame *f)
{
    end_blocks(l->bundle->peer, l->bundle->worker, f, NULL);
    tei_tcp_frame_free(l->bundle->worker->t, f);
}

static void to_again(struct tcp_peer *p, struct tcp_frame *f)
{
    tei_tcp_frame_settle(p, f);
    compact(f);
    if (f->n == 0) {
        tei_tcp_frame_free(p->t, f);
        return;
    }
    tei_list_push_back(&p->again, &f->link);
    p->n_frames++;
    tei_tcp_watch_queue(p); /* no lane does */
}

static bool has_work(const struct tcp_frame *f)
{
    for (unsigned i = 0; i < f->n; i++)
        if (f->blocks[i].work)
            return true;
    return false;
}

/*
 * Where a frame goes that is in no list: back to be sent once more, to wait for a DROP, or, if all its
 * works have ended, to be remembered until the target has ended its connection (`ended`: it has).
 */
static void shelve(struct tcp_peer *p, struct tcp_frame *f, bool ended)
{
    bool waits = has_work(f);

    if (!may_come(f) || (ended && !waits)) {
        to_again(p, f);
    } else if (waits) {
        tei_list_push_back(&p->lost, &f->link);
        p->n_frames++;
    } else if (p->gone) { /* nobody comes back to that range by this peer */
        tei_tcp_frame_settle(p, f);
        tei_tcp_frame_free(p->t, f);
    } else {
        f->tries = 0; /* of works that wait for it from now on */
        tei_list_push_back(&p->unsettled, &f->link);
        p->n_left_over++;
        if (tei_tcp_is_holding(p))
            tei_tcp_bundle_call(&p->bundles[0]);
    }
}

/* Of a frame in `again` or `lost`, works have ended. */
static void shelve_anew(struct tcp_peer *p, struct tcp_frame *f)
{
    if (has_work(f))
        return;
    tei_list_del(&f->link);
    p->n_frames--;
    shelve(p, f, false);
}

/* What a piece ends with whose work has its error already, which a piece not begun leaves alone. */
static const struct tcp_fault *own_fault(const struct tcp_frame *f)
{
    static const struct tcp_fault ended = {TE_ERR_STALE, 0, NULL}; /* gives way to what is there */
    static const struct tcp_fault under_way = {TE_ERR_LINK, 0, "sending the request"};

    /* A work that could come again must not, when bytes of it may still arrive. */
    return f->type == TCP_FRAME_WRITE && f->sent > 0 ? &under_way : &ended;
}

static void prune(struct tcp_peer *p, struct tcp_worker *w, struct tcp_frame *f)
{
    for (unsigned i = 0; i < f->n; i++)
        if (f->blocks[i].work && f->blocks[i].work->entry.base.error)
            end_block(p, f, i, own_fault(f));
    tei_tcp_reap(p, w);
}

void tei_tcp_frame_refused(struct tcp_lane *l, struct tcp_frame *f,
                           const struct tcp_frame_head *answer)
{
    static const struct tcp_fault stale = {TE_ERR_STALE, 0, "the target refused the address range"};
    const struct tcp_fault *why = tei_tcp_lease_fault(answer);

    f->sent = 0; /* to no effect */
    for (unsigned i = 0; i < f->n; i++)
        if (i == answer->index || !tei_tcp_verdict_is_of_block(answer->verdict))
            end_block(l->bundle->peer, f, i, why ? why : &stale);
    prune(l->bundle->peer, l->bundle->worker, f); /* the others of that work */
    to_again(l->bundle->peer, f);
}

void tei_tcp_frames_prune(struct tcp_peer *p, struct tcp_worker *w)
{
    struct tei_list *lists[] = {&p->again, &p->lost};
    struct tei_link *n, *tmp;

    for (unsigned i = 0; p->n_frames && i < TEI_ARRAY_LEN(lists); i++) {
        TEI_LIST_EACH(lists[i], n, tmp) {
            struct tcp_frame *f = tei_container_of(n, struct tcp_frame, link);

            prune(p, w, f);
            shelve_anew(p, f);
        }
    }
}

/* For the stories of its works: they are to go out again. */
static void tell_again(struct tcp_frame *f, const struct tcp_lane *l)
{
    f->left = l->path + 1;
    for (unsigned i = 0; i < f->n; i++)
        if (f->blocks[i].work && f->blocks[i].work->entry.base.story)
            tei_story_again(f->blocks[i].work->entry.base.story);
}

static const struct tcp_fault broken_too_often = {TE_ERR_LINK, 0, "the connection broke too often"};

/*
 * A frame that has left its stream: where it goes to be sent once more. A connection that breaks is
 * a try also of what was not sent on it yet: one that always breaks must not be tried for ever.
 */
void tei_tcp_frame_put_back(struct tcp_lane *l, struct tcp_frame *f, bool broke)
{
    struct tcp_peer *p = l->bundle->peer;
    struct tcp_worker *w = l->bundle->worker;
    bool waits;

    prune(p, w, f);
    f->tries += broke && !l->stream->forgive;
    if (f->tries > (unsigned)p->t->conf->retry_cnt)
        end_blocks(p, w, f, &broken_too_often);
    if (broke)
        tell_again(f, l);
    f->connection = l->stream->connection;
    f->was_reset = l->stream->closed;
    f->asked = false;
    waits = has_work(f);
    shelve(p, f, l->stream->ended);
    if (!waits)
        return; /* with no work left the peer may be gone, and its bundles with it */
    tei_tcp_watch_queue(p);
    tei_tcp_bundle_call(&p->bundles[0]);
}

/* The target does not answer. That counts as a try of what waits for it. */
static void asked_in_vain(struct tcp_lane *l, struct tcp_frame *f)
{
    static const struct tcp_fault silent = {
        TE_ERR_LINK, 0, "the target does not say that an earlier WRITE to this range is over"};
    struct tcp_peer *p = l->bundle->peer;

    f->asked = f->wanted = false;
    f->tries += !l->stream->forgive;
    if (f->tries <= (unsigned)p->t->conf->retry_cnt)
        return;
    if (has_work(f)) {
        end_blocks(p, l->bundle->worker, f, &broken_too_often);
        shelve_anew(p, f);
    } else {
        f->tries = 0;
        tei_tcp_fence_fail(p, &f->waiters, &silent);
    }
}

static void drop_not_answered(struct tcp_lane *l, uint64_t connection)
{
    struct tcp_peer *p = l->bundle->peer;
    struct tei_list *lists[] = {&p->unsettled, &p->lost};
    struct tei_link *n, *tmp;

    for (unsigned i = 0; i < TEI_ARRAY_LEN(lists); i++) {
        TEI_LIST_EACH(lists[i], n, tmp) {
            struct tcp_frame *f = tei_container_of(n, struct tcp_frame, link);

            if (f->asked && f->connection == connection)
                asked_in_vain(l, f);
        }
    }
}

/* The fault for one frame: one after which the core may try again holds only if nothing was sent. */
static struct tcp_fault fault_for(const struct tcp_frame *f, const struct tcp_fault *given)
{
    struct tcp_fault fault = *given;

    if (may_come(f) && tei_err_is_mild(given->error))
        fault.error = TE_ERR_LINK;
    return fault;
}

/* A frame of data leaves a connection that has ended for good. */
static void give_up(struct tcp_lane *l, struct tcp_frame *f, const struct tcp_fault *fault)
{
    struct tcp_peer *p = l->bundle->peer;
    struct tcp_fault own = fault_for(f, fault);

    end_blocks(p, l->bundle->worker, f, &own);
    f->connection = l->stream->connection;
    f->was_reset = l->stream->closed;
    f->asked = false;
    shelve(p, f, l->stream->ended);
}

void tei_tcp_frames_leave(struct tcp_lane *l, const struct tcp_fault *fault, bool never_applied)
{
    struct tcp_peer *p = l->bundle->peer;
    struct tei_link *n;

    /* These were applied, and with the socket the kernel has let go of them. */
    while ((n = tei_list_pop(&l->stream->pinned)))
        tei_tcp_frame_done(l, tei_container_of(n, struct tcp_frame, link));
    while ((n = tei_list_pop(&l->stream->flight))) {
        struct tcp_frame *f = tei_container_of(n, struct tcp_frame, link);

        tei_tcp_drive_ended(l, f->owner, f->noted);
        if (f->type == TCP_FRAME_DROP)
            drop_not_answered(l, f->connection);
        if (never_applied)
            f->sent = 0;
        if (!is_data(f))
            tei_tcp_frame_free(p->t, f);
        else if (fault)
            give_up(l, f, fault);
        else
            tei_tcp_frame_put_back(l, f, true);
    }
    tei_tcp_frames_prune(p, l->bundle->worker);
}

void tei_tcp_frames_dropped(struct tcp_peer *p, uint64_t connection)
{
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&p->lost, n, tmp) {
        struct tcp_frame *f = tei_container_of(n, struct tcp_frame, link);

        if (f->connection != connection)
            continue;
        tei_list_del(n);
        p->n_frames--;
        f->sent = 0;
        to_again(p, f);
    }
    TEI_LIST_EACH(&p->unsettled, n, tmp) {
        struct tcp_frame *f = tei_container_of(n, struct tcp_frame, link);

        if (f->connection == connection)
            free_left_over(p, f);
    }
}

void tei_tcp_frames_fail(struct tcp_peer *p, struct tcp_worker *w, const struct tcp_fault *fault)
{
    struct tei_list *lists[] = {&p->again, &p->lost};
    struct tei_link *n, *tmp;

    TEI_LIST_EACH(&p->unsettled, n, tmp)
        tei_container_of(n, struct tcp_frame, link)->wanted = false;
    for (unsigned i = 0; i < TEI_ARRAY_LEN(lists); i++) {
        while ((n = tei_list_pop(lists[i]))) {
            struct tcp_frame *f = tei_container_of(n, struct tcp_frame, link);
            struct tcp_fault own = fault_for(f, fault);

            p->n_frames--;
            end_blocks(p, w, f, &own);
            shelve(p, f, false);
        }
    }
}

/* ---------------------------------------------------------------------------- frames under way */

static const struct tcp_frame *frame_of(const struct tei_link *n)
{
    return n ? tei_container_of(n, struct tcp_frame, link) : NULL;
}

bool tei_tcp_frames_acked(const struct tcp_stream *s, uint64_t id)
{
    const struct tcp_frame *f = frame_of(tei_list_first(&s->flight));

    while (f && f->type == TCP_FRAME_WRITE && f->sent == f->total && f->id < id)
        f = frame_of(tei_list_next(&s->flight, &f->link));
    return f && f->type == TCP_FRAME_WRITE && f->sent == f->total && f->id == id;
}

bool tei_tcp_frame_is_half_sent(const struct tcp_stream *s, const struct tcp_frame *f)
{
    if (f->type != TCP_FRAME_WRITE || f->sent == 0 ||
        (f->sent == f->total && tei_tcp_zerocopy_is_over(&s->zero, f->zero_last)))
        return false;
    for (unsigned i = 0; i < f->n; i++)
        if (f->blocks[i].work && tei_tcp_is_given_up(f->blocks[i].work))
            return true;
    return false;
}
