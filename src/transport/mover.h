/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover.h - a thread that has devices copy work: cuts it, keeps a window of it under way on queues of
 * the driver, one for each device and direction, and gives it back as it ends.
 */
#ifndef TEI_MOVER_H
#define TEI_MOVER_H

#include "plat/plat.h"
#include "transport/ledger.h"

enum tei_flow { TEI_TO_DEVICE, TEI_FROM_DEVICE, TEI_WITHIN };

/*
 * Both sides of the work are memory of this process, one of them at least of a device. What a move
 * has of a work besides: owner, moved, local, remote, length, deadline_ns, opcode.
 */
struct tei_move {
    struct tei_entry entry;
    enum tei_mem_kind kind;
    int device;
    enum tei_flow flow;
};

struct tei_mover;
/*
 * ended() is called from the mover's thread, from post() and cancel() never; it empties the list of
 * tei_work.link. The list is empty when the owner is to look what is late: see tei_mover_look(), and now
 * and then while a device does not answer. Of `conf`: transfer_timeout_ms, gpu_kernel.
 */
int tei_mover_start(const char *thread, const struct tei_conf *conf,
                    void (*ended)(void *arg, struct tei_list *moves), void *arg,
                    struct tei_mover **out);
/* Takes all, never blocks, never fails. After close: they end TE_ERR_CANCELED, from the thread. */
void tei_mover_post(struct tei_mover *m, struct tei_list *moves);
/* Ends the owner's soon, TE_ERR_CANCELED; what the device is doing at this moment ends first. */
void tei_mover_cancel(struct tei_mover *m, const void *owner);
/* Has ended() called at that time, or earlier. */
void tei_mover_look(struct tei_mover *m, int64_t when_ns);
void tei_mover_close(struct tei_mover *m); /* cancels all, and whatever comes after */
/* close, wait for all to end, join, free; NULL is fine */
void tei_mover_destroy(struct tei_mover *m);

static inline struct tei_move *tei_move_of(struct tei_link *link)
{
    return tei_container_of(link, struct tei_move, entry.base.link);
}

#endif
