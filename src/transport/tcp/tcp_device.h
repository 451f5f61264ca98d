/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_device.h - requests of peers for memory of devices; worker's lock held. */
#ifndef TEI_TCP_DEVICE_H
#define TEI_TCP_DEVICE_H

#include "transport/tcp/tcp_session.h"

void tei_tcp_stages_init(struct tei_pool *pool);
/* False when memory is out. */
bool tei_tcp_stage_open(struct tcp_session *s, bool is_read);
/*
 * The next of at most TCP_FRAME_BLOCKS ranges of the request, of any kind, in region `r`. False: its
 * device cannot be reached.
 */
bool tei_tcp_stage_add(struct tcp_session *s, const struct tei_region *r, uint64_t addr,
                       uint64_t length);
/*
 * Where the next bytes of the payload are, or are to be put, `max` at most; 0: the stage has failed.
 * Good until the next call.
 */
int tei_tcp_stage_places(struct tcp_session *s, struct iovec *iov, int room, uint64_t max);
/* The first n of those bytes have been sent or received. */
void tei_tcp_stage_moved(struct tcp_session *s, uint64_t n);
/* Whether there is a stage that has. */
bool tei_tcp_stage_failed(const struct tcp_session *s);
/*
 * Waits for the copies under way; after it no memory of the request is touched. Whether all went well.
 * No stage is accepted.
 */
bool tei_tcp_stage_close(struct tcp_session *s);
/* Frees what was not used for long; returns when there is more to free. */
int64_t tei_tcp_staging_tick(struct tcp_worker *w, int64_t now);
/* No session has a stage any more. */
void tei_tcp_staging_fini(struct tcp_worker *w);

#endif
