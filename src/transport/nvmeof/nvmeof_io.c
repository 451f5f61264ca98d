/* SPDX-License-Identifier: Apache-2.0 */
/* nvmeof_io.c - I/O requests: started, and taken back. */
#include "transport/nvmeof/nvmeof.h"

#include "base/os.h"

void tei_nvmeof_io_start(struct nvmeof *n, struct nvmeof_io *io)
{
    if (tei_nvmeof_gpu_has(io))
        tei_nvmeof_pool_start(tei_nvmeof_gpu_pool(n), io);
    else
        n->device->start(n, io);
}

void tei_nvmeof_io_done(struct nvmeof *n, struct nvmeof_io *io, int64_t result)
{
    struct tei_ledger *ledger = &io->file->ledger;
    int64_t now = tei_now_ns();

    if (result >= 0)
        tei_ledger_progress(ledger, &io->work->entry, now);
    if (!tei_nvmeof_settle(io, result)) {
        tei_nvmeof_io_start(n, io);
        return;
    }
    io->flying = false;
    io->file->ios--;
    n->flying--;
    tei_list_push_front(&n->idle, &io->link);
    if (io->gpu) /* who takes its memory back waits for it */
        pthread_cond_broadcast(&n->quiet);
    io->part.error = io->work->entry.base.error; /* of a work that has failed nothing more counts */
    tei_ledger_back(ledger, &io->part, now);
    tei_ledger_reap(ledger, &n->ended);
}
