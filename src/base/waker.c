/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waker.c - an eventfd and whether it was written.
 */
#include "base/waker.h"

#include "base/err.h"
#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

int tei_waker_init(struct tei_waker *w)
{
    atomic_init(&w->rung, false);
    w->fd = tei_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (w->fd < 0)
        return TEI_FAIL(TE_ERR_SYSTEM, "eventfd: %s; raise the limit of open files",
                        tei_errno_text(errno));
    return 0;
}

void tei_waker_fini(struct tei_waker *w)
{
    tei_fd_close(w->fd);
}

void tei_waker_ring(struct tei_waker *w)
{
    const uint64_t one = 1;

    /* Both orders: a ringer that does not write is seen by the drain that it relies on. */
    if (atomic_exchange_explicit(&w->rung, true, memory_order_acq_rel))
        return;
    /* It can fail only when the counter is full, and it is 0 before the first ring. */
    if (write(w->fd, &one, sizeof one) < 0)
        assert(errno == EAGAIN);
}

void tei_waker_drain(struct tei_waker *w)
{
    uint64_t count;

    if (!atomic_load_explicit(&w->rung, memory_order_relaxed))
        return;
    if (read(w->fd, &count, sizeof count) < 0)
        assert(errno == EAGAIN);
    atomic_exchange_explicit(&w->rung, false, memory_order_acq_rel);
}
