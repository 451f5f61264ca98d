/* SPDX-License-Identifier: Apache-2.0 */
/* segment_read.h - the parts of reading a descriptor; private to model/. */
#ifndef TEI_MODEL_SEGMENT_READ_H
#define TEI_MODEL_SEGMENT_READ_H

#include "model/json_read.h"
#include "model/model.h"

#include "base/err.h"

#define FAIL_KEY(fmt, ...) TEI_FAIL(TE_ERR_JSON, "segment descriptor: " fmt, __VA_ARGS__)

/*
 * "buffers", of which `list` is the array, if there is one, into a segment whose other members are
 * known; and then "te"."rights" into these buffers.
 */
int tei_segment_read_buffers(struct tei_segment *s, const struct tei_json_value *list,
                             const struct tei_segment_limits *limits);
int tei_segment_read_rights(struct tei_segment *s, const struct tei_json_value *list,
                            int64_t deadline_ns);

extern const char tei_protocol_of_files[]; /* the buffers are files, without addresses */
extern const char tei_protocol_keyless[];  /* no transport has keys of its own in them */

/* "protocol" that is an array: two or more names of those that stand beside each other. */
int tei_segment_read_protocols(struct tei_segment *s, const json_t *list);
/* "protocol" of buffer `index` of such a segment, as a bit of tei_buffer.by. */
int tei_segment_protocol_of(const struct tei_segment *s, const struct tei_json_value *v,
                            size_t index, uint8_t *by);
/* Of buffers in order makes pieces that do not overlap, each with all protocols that reach it. */
int tei_segment_cut_buffers(struct tei_segment *s, bool is_ours);

/* Puts them in order and takes out what is of an engine that died. */
int tei_segment_order_buffers(struct tei_segment *s);

/* Why a reader has stopped. */
int tei_segment_read_failed(const struct tei_json_reader *r);

#endif
