/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_frame.h - frames of the native client. */
#ifndef TEI_TCP_FRAME_H
#define TEI_TCP_FRAME_H

#include "transport/tcp/tcp_lane.h"

struct tcp_stream;

/* A part of one work, as a frame carries it. */
struct tcp_block {
    struct tcp_work *work; /* NULL: it has ended meanwhile */
    char *local;
    struct tcp_range range;
};

/*
 * A request of the native framing. It is on a lane's stream, or in one of its peer's lists `again`
 * and `lost`.
 */
struct tcp_frame {
    struct tei_link link;
    unsigned type; /* enum tcp_frame_type */
    unsigned n;    /* blocks */
    unsigned tries;
    bool asked;          /* lost: a DROP for its connection is under way */
    bool wanted;         /* unsettled: who does not wait wants to know when that is over */
    bool was_reset;      /* its connection was, with it under way */
    bool is_keyed;       /* it shows the key of a lease */
    uint64_t id;         /* on the connection */
    uint64_t connection; /* lost: the one that may still bring it; DROP: the one to drop */
    uint64_t payload;    /* bytes of all blocks */
    size_t head_len;
    uint64_t sent, total; /* of head, payload and trailer, on this connection */
    uint32_t crc;         /* of the payload sent so far */
    uint8_t trailer[TCP_TRAILER_LEN];
    uint32_t zero_last; /* the last call without a copy that carried a part of it, 0: none */
    int64_t sent_ns;    /* when the last byte was handed over; before: when the first was */
    uint64_t delivered; /* stream.delivered at that time */
    struct tei_span
        unsettled;  /* WRITE: covers the blocks whose work ended before the answer, end 0: none */
    uint64_t doubt; /* peer.n_doubts when the first of them did */
    struct tei_list waiters; /* works that are held until that is empty */
    const void *owner;       /* of the first block */
    unsigned noted;          /* blocks of that owner that tcp_drive.c knows of */
    unsigned left;           /* lane.path + 1 of the lane that broke with it; 0: none did */
    struct tcp_block blocks[TCP_FRAME_BLOCKS];
    uint8_t head[TCP_FRAME_HEAD_MAX + TCP_TRACE_OPTIONS + TCP_LEASE_OPTIONS];
};

/* NULL of NULL. */
static inline struct tcp_frame *tei_tcp_frame_of(struct tei_link *n)
{
    return n ? tei_container_of(n, struct tcp_frame, link) : NULL;
}

/* The next frame for a lane, sealed; NULL if there is none. */
struct tcp_frame *tei_tcp_frame_next(struct tcp_lane *l, int64_t now);
struct tcp_frame *tei_tcp_frame_hello(struct tcp_lane *l);
/* The one behind it, where stream.proof is. */
struct tcp_frame *tei_tcp_frame_prove(struct tcp_lane *l);
void tei_tcp_frame_free(struct tcp *t, struct tcp_frame *f);
/* All of it was applied; frees it. */
void tei_tcp_frame_done(struct tcp_lane *l, struct tcp_frame *f);
/* The target refused one block, or all, and applied none; the others go out again. */
void tei_tcp_frame_refused(struct tcp_lane *l, struct tcp_frame *f,
                           const struct tcp_frame_head *answer);
/* Ends the pieces of works that have failed, but for patient ones; it stays under way. */
void tei_tcp_frame_take_out(struct tcp_peer *p, struct tcp_worker *w, struct tcp_frame *f);
/* Nothing of the frame may come late any more. */
void tei_tcp_frame_settle(struct tcp_peer *p, struct tcp_frame *f);
/* A frame that has left its stream: what has not failed of it goes out again. */
void tei_tcp_frame_put_back(struct tcp_lane *l, struct tcp_frame *f, bool broke);
/*
 * The connection is closed: its frames end for the reason `fault`, NULL: go out again.
 * never_applied: what was sent on it had no effect.
 */
void tei_tcp_frames_leave(struct tcp_lane *l, const struct tcp_fault *fault, bool never_applied);
/* The target has ended that connection: its frames may go out again. */
void tei_tcp_frames_dropped(struct tcp_peer *p, uint64_t connection);
/*
 * The last frame of a list that may still bring a WRITE that has ended to that range, or NULL. Of those whose
 * `doubt` is at most `until`; exact: by its blocks, not by what they cover together.
 */
struct tcp_frame *tei_tcp_frames_last(const struct tei_list *frames, const struct tei_span *span,
                                      uint64_t until, bool exact);
/* Whether the WRITEs up to that one were sent, with nothing else between them. */
bool tei_tcp_frames_acked(const struct tcp_stream *s, uint64_t id);
/* Whether a work with an error has a part in a WRITE that is being sent, or read by the kernel. */
bool tei_tcp_frame_is_half_sent(const struct tcp_stream *s, const struct tcp_frame *f);

/* ---- frames in the peer's lists; peer's lock held, worker NULL: see part_end */
/* Ends the pieces whose work has an error. */
void tei_tcp_frames_prune(struct tcp_peer *p, struct tcp_worker *w);
/* Ends them all. */
void tei_tcp_frames_fail(struct tcp_peer *p, struct tcp_worker *w, const struct tcp_fault *fault);
/* Frees those in p->unsettled. */
void tei_tcp_frames_settle(struct tcp_peer *p);
/* Nobody listens at the one address of the target's port: those whose connection was reset, too, are over. */
void tei_tcp_frames_refused(struct tcp_peer *p);
/* Whether a frame waits for a DROP that was not sent yet. */
bool tei_tcp_frames_want_drop(const struct tcp_peer *p);
/* The last frame that may still bring a WRITE that has ended to that range, or NULL; see tei_tcp_frames_last(). */
struct tcp_frame *tei_tcp_frames_reach(const struct tcp_peer *p, const struct tei_span *span,
                                       uint64_t until);
/* Has the target asked, once, for those of a range that it is to be asked for, though nobody waits. */
void tei_tcp_frames_ask(struct tcp_peer *p, const struct tei_span *span);

#endif
