/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmeof_io.c - I/O requests: started, and taken back.
 *
 * What the kernel says of pages that were not written back may be of those of another I/O, and come back
 * after that one. So what has come back without an error is unsure until all are back that were asked before.
 */
#include "transport/nvmeof/nvmeof.h"

#include "base/os.h"

static struct nvmeof_io *io_of(struct tei_link *asked)
{
    return tei_container_of(asked, struct nvmeof_io, asked);
}

void tei_nvmeof_io_start(struct nvmeof *n, struct nvmeof_io *io)
{
    if (tei_nvmeof_tells_of_pages(io)) {
        io->number = ++io->file->n_asked;
        tei_list_push_back(&io->file->asked, &io->asked);
    }
    if (tei_nvmeof_gpu_has(io))
        tei_nvmeof_pool_start(tei_nvmeof_gpu_pool(n), io);
    else
        n->device->start(n, io);
}

static void end(struct nvmeof *n, struct nvmeof_io *io, int64_t now)
{
    struct tei_ledger *ledger = &io->file->ledger;

    io->file->ios--;
    n->flying--;
    tei_list_push_front(&n->idle, &io->link);
    io->part.error = io->work->entry.base.error; /* of a work that has failed nothing more counts */
    tei_ledger_back(ledger, &io->part, now);
    tei_ledger_reap(ledger, &n->ended);
}

/* Whether all are back that it waits for. */
static bool is_sure(const struct nvmeof_file *f, const struct nvmeof_io *io)
{
    struct tei_link *first = tei_list_first(&f->asked);

    return !first || io_of(first)->number > io->number;
}

static void end_sure(struct nvmeof *n, struct nvmeof_file *f, int64_t now)
{
    struct tei_link *l;

    while ((l = tei_list_first(&f->unsure)) && is_sure(f, io_of(l))) {
        tei_list_del(l);
        tei_nvmeof_check_pages(io_of(l));
        end(n, io_of(l), now);
    }
}

/* An I/O of which the kernel has nothing any more. */
static void land(struct nvmeof *n, struct nvmeof_io *io, int64_t now)
{
    struct nvmeof_file *f = io->file;

    io->flying = false;
    if (io->gpu) /* who takes its memory back waits for it */
        pthread_cond_broadcast(&n->quiet);
    if (tei_nvmeof_tells_of_pages(io) && !io->work->entry.base.error) {
        io->number = f->n_asked;
        tei_list_push_back(&f->unsure, &io->asked);
    } else {
        end(n, io, now);
    }
}

void tei_nvmeof_io_done(struct nvmeof *n, struct nvmeof_io *io, int64_t result)
{
    struct nvmeof_file *f = io->file;
    bool asked = tei_link_is_in(&io->asked);
    int64_t now = tei_now_ns();

    if (result >= 0)
        tei_ledger_progress(&f->ledger, &io->work->entry, now);
    if (asked)
        tei_list_del(&io->asked);
    if (tei_nvmeof_settle(io, result))
        land(n, io, now);
    else
        tei_nvmeof_io_start(n, io);
    if (asked)
        end_sure(n, f, now);
}
