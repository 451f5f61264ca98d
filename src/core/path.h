/* SPDX-License-Identifier: Apache-2.0 */
/* path.h - what has carried a request: te_path(). */
#ifndef TEI_PATH_H
#define TEI_PATH_H

#include "core/batch.h"
#include "transport/transport.h"

#define TEI_NIC_NAMES 64

/* Of all NICs that transports of the engine have had: numbers stay when a transport is opened anew. */
struct nic_names {
    pthread_mutex_t lock;
    size_t n;
    char names[TEI_NIC_NAMES][64]; /* by number, from 1 on */
};

void tei_nic_names_init(struct nic_names *s);
void tei_nic_names_fini(struct nic_names *s);
/* nic() of struct tei_host. */
uint8_t tei_path_nic(struct tei_host *h, const char *name);

/*
 * task.path is a byte each for the carrier, the NIC of the last part that has ended (as host->nic() has it, 0:
 * not known) and the changes (UINT8_MAX at most): one word, so that who looks finds all of one moment.
 * The carrier is the transport's place in the table + 1, and this bit; 0: nothing has carried the task.
 */
#define TEI_PATH_STAGED 0x80
static_assert(TEI_TRANSPORTS_MAX < TEI_PATH_STAGED, "a place must fit beside the bit");

static inline uint8_t tei_path_carrier(const struct tei_transport *by, bool staged)
{
    return (uint8_t)((by->place + 1) | (staged ? TEI_PATH_STAGED : 0));
}
/* The task is cut for that carrier; `again`: after all of it had come back, so that another one is a change. */
void tei_path_by(struct task *t, uint8_t carrier, bool again);
/* A piece has ended that tells a NIC or changes. */
void tei_path_went(struct task *t, const struct tei_work *w);

#endif
