/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session of the data port, fed with anything, of all versions. The first byte says how many bytes
 * are sent at a time, the rest is sent. There is one worker without a thread, whose loop is turned
 * here, one instance whose id the corpus knows, and one region at an address that it knows. Whatever
 * came, once the client is gone the session is, nothing is held, no job is left, and no byte outside
 * the half of the region that is open and the quarter that there is a lease of has changed.
 */
#include "transport/tcp/tcp_session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define MEMORY    ((char *)(uintptr_t)0x7eb000000000) /* mapped: REGION and as much after it */
#define REGION    ((size_t)64 << 10)
#define OPEN      (REGION / 2) /* of it, to everybody */
#define INPUT_MAX ((size_t)64 << 10)
#define ID        UINT64_C(0x2b2a292827262521) /* "!%&'()*+" */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tcp tcp;
static struct tcp_worker worker;
static struct tei_conf conf;
static struct tei_jobs jobs;
static struct tei_region region = {.length = REGION, .access = TE_REMOTE_RW};
/* What lies right behind the part that is open is for other peers. */
static int hold(struct tei_host *h, uint64_t addr, uint64_t length, unsigned access,
                struct tei_who *who, struct tei_region **out)
{
    (void)h;
    (void)access;
    (void)who;
    if (length <= 16 && addr == region.addr + OPEN)
        return TE_ERR_REJECTED;
    if (addr < region.addr || length > OPEN || addr - region.addr > OPEN - length)
        return TE_ERR_NOT_REGISTERED;
    atomic_fetch_add(&region.remote_users, 1);
    *out = &region;
    return 0;
}

static void release(struct tei_host *h, struct tei_region *r)
{
    (void)h;
    assert(r == &region && atomic_load(&r->remote_users) > 0);
    atomic_fetch_sub(&r->remote_users, 1);
}

/* Of the quarter after that, for WRITE; its key is of 24 bytes '0'. */
static struct tei_lease lease = {
    .length = REGION / 4, .access = TE_REMOTE_WRITE, .region = &region};
static unsigned lease_holds;

static int hold_lease(struct tei_host *h, const te_lease_key *key, struct tei_who *who,
                      const struct tei_lease **out)
{
    (void)h;
    (void)who;
    for (size_t i = 0; i < sizeof(key->bytes); i++)
        if (key->bytes[i] != '0')
            return key->bytes[i] == '1'   ? TE_ERR_TIMEOUT
                   : key->bytes[i] == '2' ? TE_ERR_REJECTED
                                          : TE_ERR_NOT_FOUND;
    atomic_fetch_add(&region.remote_users, 1);
    lease_holds++;
    *out = &lease;
    return 0;
}

static void release_lease(struct tei_host *h, const struct tei_lease *l)
{
    (void)h;
    assert(l == &lease && lease_holds > 0);
    lease_holds--;
}

static struct tei_host host = {.conf = &conf,
                               .jobs = &jobs,
                               .region_hold = hold,
                               .region_release = release,
                               .lease_hold = hold_lease,
                               .lease_release = release_lease};

static void set_up(void)
{
    char *p = mmap(MEMORY, 2 * REGION, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    if (p != MEMORY || tei_conf_load(NULL, &conf) || tei_tcp_worker_init(&worker, &tcp, 0))
        abort();
    region.addr = (uintptr_t)MEMORY;
    lease.addr = region.addr + OPEN;
    tcp.base.host = &host;
    tcp.conf = &conf;
    tcp.workers = &worker;
    tcp.n_workers = 1;
    tcp.max_sessions = 4;
    tcp.no_progress_ns = TEI_NEVER;
    tcp.id = ID;
    pthread_mutex_init(&tcp.live_lock, NULL);
    tei_pool_init(&tcp.sessions, sizeof(struct tcp_session));
    tei_tcp_channels_init(&tcp.channels);
}

static void turn(int fd)
{
    char replies[4096];

    while (tei_loop_turn(&worker.loop)) {
        /* A job that ends another connection gets its turn. */
        tei_tcp_worker_leave(&worker);
        tei_tcp_worker_enter(&worker);
    }
    while (recv(fd, replies, sizeof replies, MSG_DONTWAIT) > 0) {}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t step, at = 1;
    int ends[2];

    if (!tcp.workers)
        set_up();
    if (size < 2 || size > INPUT_MAX || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
        return 0;
    step = data[0] ? (size_t)data[0] * data[0] : 1;
    tei_jobs_init(&jobs, 1);
    tei_tcp_worker_enter(&worker);
    tei_tcp_session_open(&worker, ends[1]);
    while (at < size) {
        ssize_t n = send(ends[0], data + at, tei_min(step, size - at), MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n <= 0)
            break;
        at += (size_t)n;
        turn(ends[0]);
    }
    while (worker.n_sessions > 0) {
        turn(ends[0]);
        shutdown(ends[0], SHUT_WR);
        tei_tcp_worker_leave(&worker);
        tei_tcp_worker_enter(&worker);
    }
    tei_tcp_worker_leave(&worker);
    tei_jobs_stop(&jobs);
    tei_jobs_fini(&jobs);
    close(ends[0]);
    assert(atomic_load(&region.remote_users) == 0 && lease_holds == 0);
    for (size_t i = OPEN + REGION / 4; i < 2 * REGION; i += 61)
        assert(MEMORY[i] == 0);
    return 0;
}
