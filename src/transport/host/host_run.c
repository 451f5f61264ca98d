/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_run.c - one copy, in whatever thread: at most TEI_COPY_CHUNK bytes, so that who cancels or
 * unregisters does not wait long.
 *
 * A WRITE stands in a hazard word from before the epochs are looked at until the last byte is
 * there; a READ looks at the epochs again afterwards (host_table.c tells why).
 *
 * Before a WRITE by process_vm, and after any copy by it, it is looked whether the peer is still
 * there, so that its number was its own. Who is there afterwards was there all the time, so a READ
 * needs no look before.
 */
#include "transport/host/host.h"

#include "base/tsan.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

_Static_assert(TEI_COPY_PARTS <= IOV_MAX, "the pieces of a run go in one system call");

static bool is_current(const struct host_peer *p, const struct host_piece *x)
{
    return atomic_load(&p->table->slots[x->slot].epoch) == x->epoch;
}

static void check_epochs(struct host_run *run)
{
    for (size_t i = 0; i < run->n; i++) {
        struct host_piece *x = &run->pieces[i];

        if (!x->part->error && !is_current(run->peer, x))
            x->part->error = TE_ERR_STALE;
    }
}

static void fail(struct host_piece *x, int error, int sys_errno, const char *why)
{
    x->part->error = error;
    x->part->sys_errno = sys_errno;
    x->part->why = why;
}

/* ---------------------------------------------------------------------------------- process_vm */

static ssize_t move(const struct host_run *run, const struct iovec *local, size_t n_local,
                    const struct iovec *remote, size_t n_remote)
{
    ssize_t got;

    tei_tsan_ignore_begin();
    got = run->opcode == TE_READ
              ? process_vm_readv(run->peer->pid, local, n_local, remote, n_remote, 0)
              : process_vm_writev(run->peer->pid, local, n_local, remote, n_remote, 0);
    tei_tsan_ignore_end();
    return got;
}

/* One piece alone, and why if that fails. */
static void move_one(struct host_run *run, struct host_piece *x)
{
    struct iovec local = {x->part->local, x->part->length};
    struct iovec remote = {(void *)(uintptr_t)x->part->remote, x->part->length};
    ssize_t got = move(run, &local, 1, &remote, 1);
    int err = got < 0 ? errno : EFAULT;

    if (got == (ssize_t)x->part->length)
        return;
    if (!is_current(run->peer, x)) {
        x->part->error = TE_ERR_STALE;
    } else if (err == ESRCH || err == EPERM) {
        atomic_store_explicit(&run->peer->broken, err, memory_order_relaxed);
        fail(x, TE_ERR_PEER, err, "reaching the memory of its process");
    } else {
        tei_host_peer_refuse(run->peer, x->slot, x->epoch);
        fail(x, TE_ERR_PEER, err, "copying pages of its process");
    }
}

/*
 * Puts a range behind the others, or makes the last one longer: pages that follow each other are
 * faster reached as one range, and the two sides need not be cut alike.
 */
static void append(struct iovec *v, size_t *n, void *base, size_t len)
{
    struct iovec *last = *n ? &v[*n - 1] : NULL;

    if (last && (char *)last->iov_base + last->iov_len == (char *)base)
        last->iov_len += len;
    else
        v[(*n)++] = (struct iovec){base, len};
}

static void move_all(struct host_run *run)
{
    struct iovec local[TEI_COPY_PARTS], remote[TEI_COPY_PARTS];
    size_t n_local = 0, n_remote = 0;
    ssize_t want = 0;

    for (size_t i = 0; i < run->n; i++) {
        const struct host_piece *x = &run->pieces[i];

        if (x->part->error || x->mapped)
            continue;
        append(local, &n_local, x->part->local, x->part->length);
        append(remote, &n_remote, (void *)(uintptr_t)x->part->remote, x->part->length);
        want += (ssize_t)x->part->length;
    }
    if (n_local == 0 || move(run, local, n_local, remote, n_remote) == want)
        return;
    /* Which of them it was is found by doing each again. */
    for (size_t i = 0; i < run->n; i++)
        if (!run->pieces[i].part->error && !run->pieces[i].mapped)
            move_one(run, &run->pieces[i]);
}

/* -------------------------------------------------------------------------------------- memfds */

static void copy_mapped(const struct host_run *run)
{
    for (size_t i = 0; i < run->n; i++) {
        const struct host_piece *x = &run->pieces[i];

        if (x->part->error || !x->mapped)
            continue;
        tei_tsan_ignore_begin();
        if (run->opcode == TE_READ)
            memcpy(x->part->local, x->mapped, x->part->length);
        else
            memcpy(x->mapped, x->part->local, x->part->length);
        tei_tsan_ignore_end();
    }
}

static bool all_mapped(const struct host_run *run)
{
    for (size_t i = 0; i < run->n; i++)
        if (!run->pieces[i].mapped)
            return false;
    return true;
}

/* ----------------------------------------------------------------------------------------- run */

static void fail_all(struct host_run *run)
{
    int why = atomic_load_explicit(&run->peer->broken, memory_order_relaxed);

    for (size_t i = 0; i < run->n; i++)
        if (!run->pieces[i].part->error)
            fail(&run->pieces[i], TE_ERR_PEER, why > 0 ? why : 0, tei_host_broken_text(why));
}

static void copy(struct host_run *run)
{
    /* What is mapped stays where it is, so a look that costs no system call will do. */
    bool by_number = !all_mapped(run);
    bool gone = by_number && run->opcode == TE_WRITE
                    ? tei_host_peer_is_gone(run->peer)
                    : atomic_load_explicit(&run->peer->broken, memory_order_relaxed);

    if (!gone) {
        copy_mapped(run);
        move_all(run);
        gone = by_number && tei_host_peer_is_gone(run->peer);
    }
    if (gone)
        fail_all(run);
}

static void write_run(struct host_run *run)
{
    struct host_hazard *z = tei_host_peer_hazard(run->peer);
    uint32_t slot = run->n == 1 ? run->pieces[0].slot : HAZARD_ANY;

    /* Before the epochs are looked at, in the one order of all such accesses. */
    atomic_store(&z->word, HAZARD_BUSY | slot);
    check_epochs(run);
    copy(run);
    if (atomic_exchange(&z->word, 0) & HAZARD_WAITED)
        syscall(SYS_futex, &z->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    tei_host_peer_unhazard(run->peer, z);
}

void tei_host_copy(struct tei_transport *t, struct tei_copy_run *parts)
{
    struct host_run run; /* its fields one by one: the pieces are many, and most not used */

    (void)t;
    run.peer = ((const struct host_attach *)parts->attach)->peer;
    run.opcode = parts->opcode;
    run.n = parts->n;
    for (size_t i = 0; i < run.n; i++)
        run.pieces[i] = (struct host_piece){.part = &parts->parts[i]};
    tei_host_peer_find(run.peer, &run);
    if (run.opcode == TE_WRITE) {
        write_run(&run);
    } else {
        copy(&run);
        /* What was read before is compared with epochs that are read after. */
        atomic_thread_fence(memory_order_acquire);
        check_epochs(&run);
    }
    tei_host_peer_release(run.peer, &run);
}
