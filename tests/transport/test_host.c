/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance.h"

#include "base/os.h"
#include "plat/plat.h"
#include "proc.h"
#include "transport/host/host.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct conformance fixture = {.transport = "host"};
CONFORMANCE_ONE_SIDED(fixture)

#define SHARED ((size_t)4 << 20)

static struct host_peer *peer_of(struct pair *p)
{
    return ((struct host_attach *)p->attach)->peer;
}

/* How many mappings of this process are of a file with that name. */
static int count_maps(const char *name)
{
    FILE *f = fopen("/proc/self/maps", "re");
    char line[512];
    int n = 0;

    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        n += strstr(line, name) != NULL;
    fclose(f);
    return n;
}

/* Waits for what another thread brings about. */
static bool comes(int want)
{
    for (int i = 0; i < PATIENCE_MS / 10 && count_maps("memfd:te_alloc") != want; i++)
        usleep(10000);
    return count_maps("memfd:te_alloc") == want;
}

static uint32_t slot_of(struct pair *p, const struct tei_region *r)
{
    return (uint32_t)(uintptr_t)r->keys[p->b->index] - 1;
}

static void there_and_back(struct pair *p, char *remote, size_t n, uint32_t seed)
{
    fill_pattern(p->am, n, seed);
    memset(p->am + SHARED, 0, n);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, remote, n), 0);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am + SHARED, remote, n), 0);
    assert_memory_equal(p->am, p->am + SHARED, n);
}

/* Memory of te_alloc() is mapped, one that is freed is unmapped without being asked for again. */
static void shareable_memory_is_mapped(void **state)
{
    struct pair *p = pair_open(&fixture);
    int before = count_maps("memfd:te_alloc");
    struct tei_region *r, *part;
    void *mem;

    (void)state;
    assert_int_equal(tei_mem_alloc(SHARED, NULL, false, &mem), 0);
    assert_int_equal(count_maps("memfd:te_alloc"), before + 1);
    r = fake_region_add(&p->hb, p->b, mem, SHARED / 2 - 99, TE_REMOTE_RW);
    part =
        fake_region_add(&p->hb, p->b, (char *)mem + SHARED / 2 - 99, SHARED / 2 + 99, TE_REMOTE_RW);
    there_and_back(p, (char *)mem + 4099, 1000001, 1);
    assert_true(comes(before + 2));
    there_and_back(p, (char *)mem + 4097, SHARED / 2 - 5000, 2);
    assert_memory_equal((char *)mem + 4097, p->am, SHARED / 2 - 5000);
    fake_region_del(&p->hb, p->b, r);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, (char *)mem + 8192, 10),
                     TE_ERR_STALE);
    there_and_back(p, (char *)mem + SHARED / 2 + 5, 1000, 3);
    fake_region_del(&p->hb, p->b, part);
    tei_mem_free(mem, SHARED);
    assert_true(comes(before));
    pair_close(p);
}

/* Asks for the memfd that the slot is in, as a program that means harm might. The status. */
static uint32_t ask_for_memory(int fd, uint32_t slot, int *memory)
{
    struct host_msg m = {
        .magic = HOST_MAGIC, .version = HOST_VERSION, .type = HOST_WANT, .slot = slot};
    struct pollfd f = {.fd = fd, .events = POLLIN};
    int fds[HOST_FDS] = {-1, -1};
    size_t n_fds = 0;
    pid_t sender;

    assert_true(tei_host_send(fd, &m, NULL, 0));
    do {
        assert_int_equal(poll(&f, 1, PATIENCE_MS), 1);
        assert_int_equal(tei_host_recv(fd, true, &m, fds, &n_fds, &sender), 1);
    } while (m.type != HOST_MEMORY);
    assert_int_equal(n_fds, m.status == HOST_OK);
    *memory = fds[0];
    return m.status;
}

/* A session of our own with b, that has said hello. */
static int join(struct pair *p)
{
    struct host_msg m = {.magic = HOST_MAGIC, .version = HOST_VERSION, .type = HOST_HELLO};
    struct host *b = tei_host_of(p->b);
    int fd = tei_host_connect(b->keys.socket, 1000), fds[HOST_FDS];
    struct pollfd f = {.fd = fd, .events = POLLIN};
    size_t n_fds = 0;
    pid_t sender;

    assert_true(fd >= 0);
    memcpy(m.nonce, b->keys.nonce, HOST_NONCE);
    assert_true(tei_host_send(fd, &m, NULL, 0));
    assert_int_equal(poll(&f, 1, PATIENCE_MS), 1);
    assert_int_equal(tei_host_recv(fd, true, &m, fds, &n_fds, &sender), 1);
    assert_int_equal(m.status, HOST_OK);
    while (n_fds)
        tei_fd_close(fds[--n_fds]);
    return fd;
}

/* A memfd is given away only while there is not a byte in it that has not those rights. */
static void what_is_not_registered_is_not_given(void **state)
{
    struct pair *p = pair_open(&fixture);
    int before = count_maps("memfd:te_alloc"), fd, memory;
    struct tei_region *r, *last;
    char *mem;

    (void)state;
    assert_int_equal(tei_mem_alloc(SHARED, NULL, false, (void **)&mem), 0);
    fd = join(p);
    r = fake_region_add(&p->hb, p->b, mem, SHARED - 1, TE_REMOTE_RW);
    there_and_back(p, mem + 1, 1000001, 1);
    assert_int_equal(ask_for_memory(fd, slot_of(p, r), &memory), HOST_WITHHELD);
    last = fake_region_add(&p->hb, p->b, mem + SHARED - 1, 1, TE_REMOTE_READ);
    assert_int_equal(ask_for_memory(fd, slot_of(p, r), &memory), HOST_WITHHELD);
    fake_region_del(&p->hb, p->b, last);
    last = fake_region_add(&p->hb, p->b, mem + SHARED - 1, 1, TE_REMOTE_WRITE);
    assert_int_equal(ask_for_memory(fd, slot_of(p, last), &memory), HOST_WITHHELD);
    assert_int_equal(count_maps("memfd:te_alloc"), before + 1);
    fake_region_del(&p->hb, p->b, last);
    last = fake_region_add(&p->hb, p->b, mem + SHARED - 1, 1, TE_REMOTE_RW);
    assert_int_equal(ask_for_memory(fd, slot_of(p, r), &memory), HOST_OK);
    tei_fd_close(memory);
    /* The peer asks again, since the table has changed, once it has the answer to what it asked before. */
    for (int i = 0; i < PATIENCE_MS / 10 && count_maps("memfd:te_alloc") != before + 2; i++) {
        there_and_back(p, mem + 1, 1000001, 2);
        usleep(10000);
    }
    assert_int_equal(count_maps("memfd:te_alloc"), before + 2);
    fake_region_del(&p->hb, p->b, r);
    assert_int_equal(ask_for_memory(fd, slot_of(p, last), &memory), HOST_WITHHELD);
    fake_region_del(&p->hb, p->b, last);
    tei_fd_close(fd);
    tei_mem_free(mem, SHARED);
    assert_true(comes(before));
    pair_close(p);
}

/* Memory that peers may only read is mapped, too, and the kernel keeps them from writing. */
static void memory_that_peers_read(void **state)
{
    struct pair *p = pair_open(&fixture);
    int before = count_maps("memfd:te_alloc"), fd, memory;
    struct tei_region *r;
    char *mem;

    (void)state;
    assert_int_equal(tei_mem_alloc(SHARED, NULL, true, (void **)&mem), 0);
    fill_pattern(mem, SHARED, 3);
    r = fake_region_add(&p->hb, p->b, mem, SHARED, TE_REMOTE_READ);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, mem, 1000001), 0);
    assert_true(comes(before + 2));
    memset(p->am, 0, SHARED);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, mem, SHARED), 0);
    assert_memory_equal(p->am, mem, SHARED);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, mem, 10), TE_ERR_STALE);
    fd = join(p);
    assert_int_equal(ask_for_memory(fd, slot_of(p, r), &memory), HOST_OK);
    assert_ptr_equal(mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0), MAP_FAILED);
    assert_int_equal(pwrite(memory, "x", 1, 0), -1);
    tei_fd_close(memory);
    tei_fd_close(fd);
    fake_region_del(&p->hb, p->b, r);
    r = fake_region_add(&p->hb, p->b, mem, SHARED, TE_REMOTE_RW);
    there_and_back(p, mem + 7, 1000001, 4); /* what is not to be written through the mapping */
    fake_region_del(&p->hb, p->b, r);
    tei_mem_free(mem, SHARED);
    assert_true(comes(before));
    pair_close(p);
}

static void frozen_peer_is_no_hindrance(void **state)
{
    struct pair *p = pair_fork(&fixture);

    (void)state;
    kill(p->child, SIGSTOP);
    waitpid(p->child, NULL, WUNTRACED);
    there_and_back(p, p->bm + 5, 3 * TEI_COPY_CHUNK + 7, 3);
    assert_memory_equal(p->bm + 5, p->am, 3 * TEI_COPY_CHUNK + 7);
    pair_close(p);
}

/* ------------------------------------------------------------------------------------ the fence */

/* A writer that never leaves: the region stands as before, and the owner is told who it is. */
static void stuck_writer(struct pair *p, uint32_t word)
{
    struct host_hazard *z = tei_host_peer_hazard(peer_of(p));
    int64_t start = tei_now_ns();
    char pid[32];

    snprintf(pid, sizeof pid, "process %d ", (int)getpid());
    atomic_store(&z->word, HAZARD_BUSY | word);
    assert_int_equal(p->b->ops.region_del(p->b, p->br), TE_ERR_BUSY);
    assert_true(tei_now_ns() - start > 900 * TEI_NS_PER_MS);
    assert_non_null(strstr(te_errmsg(), pid));
    there_and_back(p, p->bm, 100000, word);
    /* Once is enough to know it: else this took a second each time, longer than the test may. */
    for (int i = 0; i < 1000; i++)
        assert_int_equal(p->b->ops.region_del(p->b, p->br), TE_ERR_BUSY);
    there_and_back(p, p->bm, 100, word);
    atomic_store(&z->word, 0);
    tei_host_peer_unhazard(peer_of(p), z);
}

static void writers_that_never_leave(void **state)
{
    struct pair *p = pair_open(&fixture);

    (void)state;
    stuck_writer(p, slot_of(p, p->br));
    stuck_writer(p, HAZARD_ANY);
    pair_close(p);
}

/* Once it is waited for. */
static void *leave_late(void *arg)
{
    struct host_hazard *z = arg;

    while (!(atomic_load(&z->word) & HAZARD_WAITED))
        usleep(100);
    if (atomic_exchange(&z->word, 0) & HAZARD_WAITED)
        syscall(SYS_futex, &z->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return NULL;
}

static void writers_are_waited_for(void **state)
{
    struct pair *p = pair_open(&fixture);
    struct host_hazard *z = tei_host_peer_hazard(peer_of(p));
    pthread_t thread;

    (void)state;
    atomic_store(&z->word, HAZARD_BUSY | slot_of(p, p->br));
    assert_int_equal(pthread_create(&thread, NULL, leave_late, z), 0);
    fake_region_del(&p->hb, p->b, p->br);
    assert_int_equal(atomic_load(&z->word), 0);
    pthread_join(thread, NULL);
    tei_host_peer_unhazard(peer_of(p), z);
    p->br = fake_region_add(&p->hb, p->b, p->bm, PAIR_BYTES, TE_REMOTE_RW);
    pair_close(p);
}

/* One that was stopped and goes on is waited for again, as if nothing had been. */
static void writers_that_went_on(void **state)
{
    struct pair *p = pair_open(&fixture);
    struct host_hazard *z = tei_host_peer_hazard(peer_of(p));
    uint32_t word = HAZARD_BUSY | slot_of(p, p->br);
    pthread_t thread;

    (void)state;
    atomic_store(&z->word, word);
    assert_int_equal(p->b->ops.region_del(p->b, p->br), TE_ERR_BUSY);
    atomic_store(&z->word, 0);
    atomic_store(&z->word, word);
    assert_int_equal(pthread_create(&thread, NULL, leave_late, z), 0);
    fake_region_del(&p->hb, p->b, p->br);
    assert_int_equal(atomic_load(&z->word), 0);
    pthread_join(thread, NULL);
    tei_host_peer_unhazard(peer_of(p), z);
    p->br = fake_region_add(&p->hb, p->b, p->bm, PAIR_BYTES, TE_REMOTE_RW);
    pair_close(p);
}

/* Whatever a peer writes to its page of hazards, it costs no more than the wait. */
static void hazards_of_random_bytes(void **state)
{
    struct pair *p = pair_open(&fixture);
    struct host_hazards *all = peer_of(p)->hazards;

    (void)state;
    for (int i = 0; i < 20; i++) {
        struct tei_region *r =
            fake_region_add(&p->hb, p->b, p->am + 64 * i, 64, TE_REMOTE_READ); /* any address */
        int rc;

        fill_pattern((char *)all, sizeof *all, (uint32_t)i);
        rc = p->b->ops.region_del(p->b, r);
        assert_true(rc == 0 || rc == TE_ERR_BUSY);
        memset(all, 0, sizeof *all);
        fake_region_del(&p->hb, p->b, r);
    }
    pair_close(p);
}

/* A peer's process writes without end; once the region is gone not a byte changes any more. */
static void quiet_after_unregister(void **state)
{
    struct pair *p = pair_open(&fixture);
    char *copy = malloc(PAIR_BYTES);
    int64_t end = tei_now_ns() + TEI_NS_PER_S;

    (void)state;
    assert_non_null(copy);
    for (uint32_t round = 0; tei_now_ns() < end; round++) {
        struct fake_task tasks[8];
        struct tei_list list;

        tei_list_init(&list);
        for (size_t i = 0; i < 8; i++)
            fake_work(&list, p->a, p->attach, &tasks[i], TE_WRITE, p->am, p->bm, PAIR_BYTES);
        p->a->ops.post(p->a, &list);
        usleep(round % 7 * 300);
        fake_region_del(&p->hb, p->b, p->br);
        memcpy(copy, p->bm, PAIR_BYTES);
        usleep(2000);
        assert_memory_equal(copy, p->bm, PAIR_BYTES);
        assert_true(fake_wait(&p->ha, NULL, tasks, 8, PATIENCE_MS));
        p->br = fake_region_add(&p->hb, p->b, p->bm, PAIR_BYTES, TE_REMOTE_RW);
    }
    free(copy);
    pair_close(p);
}

/* ------------------------------------------------------------------------- memory out of reach */

/* Pages that process_vm cannot reach: the next transport is to carry them from then on. */
static void pages_out_of_reach(void **state)
{
    struct pair *p = pair_open(&fixture);
    te_request r = {.opcode = TE_READ, .length = 10};
    struct tei_region *hole;
    char *mem = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_ptr_not_equal(mem, MAP_FAILED);
    hole = fake_region_add(&p->hb, p->b, mem, 8192, TE_REMOTE_RW);
    r.target_offset = (uintptr_t)mem;
    assert_true(p->a->ops.score(p->a, p->attach, &r) > 50);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, mem, 10), TE_ERR_PEER);
    assert_int_equal(p->a->ops.score(p->a, p->attach, &r), 0);
    r.target_offset = (uintptr_t)p->bm;
    assert_true(p->a->ops.score(p->a, p->attach, &r) > 50);
    there_and_back(p, p->bm, 1000, 4);
    fake_region_del(&p->hb, p->b, hole);
    munmap(mem, 8192);
    pair_close(p);
}

static unsigned score_of(struct pair *p, const void *remote, uint64_t length)
{
    te_request r = {.opcode = TE_READ, .target_offset = (uintptr_t)remote, .length = length};

    return p->a->ops.score(p->a, p->attach, &r);
}

static void check_why_not(struct pair *p, const void *remote, const char *reason)
{
    te_request r = {.opcode = TE_READ, .target_offset = (uintptr_t)remote, .length = 10};
    char why[256];

    p->a->ops.why_not(p->a, p->attach, &r, why, sizeof why);
    if (!strstr(why, reason))
        fail_msg("'%s' does not say '%s'", why, reason);
}

/* Then no copy goes by it, not even while the memfd is on its way. */
static void process_vm_is_refused(void **state)
{
    struct pair *p = pair_open(&fixture);
    struct tei_region *r;
    void *mem;

    (void)state;
    peer_of(p)->memfd_only = true;
    assert_int_equal(tei_mem_alloc(SHARED, NULL, false, &mem), 0);
    r = fake_region_add(&p->hb, p->b, mem, SHARED, TE_REMOTE_RW);
    fill_pattern(p->am, 1000, 6);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, mem, 1000), TE_ERR_PEER);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(((char *)mem)[i], 0);
    WAIT_FOR(score_of(p, mem, SHARED) != TEI_SCORE_LATER);
    assert_int_equal(score_of(p, mem, SHARED), 80);
    there_and_back(p, (char *)mem + 13, 1000001, 7);
    assert_memory_equal((char *)mem + 13, p->am, 1000001);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 10), TE_ERR_PEER);
    assert_int_equal(score_of(p, p->bm, 10), 0);
    check_why_not(p, p->bm, "not shareable");
    fake_region_del(&p->hb, p->b, r);
    tei_mem_free(mem, SHARED);
    pair_close(p);
}

/* One bad piece of a volley spoils none of the others. */
static void one_of_a_list_fails(void **state)
{
    enum { N = 15 };
    struct pair *p = pair_open(&fixture);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), step = 2 * page;
    struct fake_task tasks[N];
    struct tei_list list;

    (void)state;
    fill_pattern(p->bm, PAIR_BYTES, 8);
    munmap(p->bm + 7 * step, page);
    tei_list_init(&list);
    for (size_t i = 0; i < N; i++)
        fake_work(&list, p->a, p->attach, &tasks[i], TE_READ, p->am + i * step, p->bm + i * step,
                  4096);
    p->a->ops.post(p->a, &list);
    assert_true(fake_wait(&p->ha, NULL, tasks, N, PATIENCE_MS));
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(tasks[i].error, i == 7 ? TE_ERR_PEER : 0);
        if (i != 7)
            assert_memory_equal(p->am + i * step, p->bm + i * step, 4096);
    }
    pair_close(p);
}

/* ------------------------------------------------------------------------------------ many of it */

#define MANY  100000
#define SMALL ((size_t)64)

static struct tei_region *add_many(struct pair *p, size_t from, size_t n)
{
    struct tei_region *r = calloc(n, sizeof *r);

    assert_non_null(r);
    for (size_t i = 0; i < n; i++) {
        r[i] = (struct tei_region){
            .addr = (uintptr_t)p->am + (from + i) * SMALL, .length = SMALL, .access = TE_REMOTE_RW};
        assert_int_equal(p->b->ops.region_add(p->b, &r[i]), 0);
    }
    return r;
}

static void del_many(struct pair *p, struct tei_region *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(p->b->ops.region_del(p->b, &r[i]), 0);
    free(r);
}

/* Each is found, also when more have changed than the log holds; none is, once it has gone. */
static void many_regions(void **state)
{
    struct pair *p = pair_open(&fixture);
    struct tei_region *few = add_many(p, 0, 500), *r;
    char *own = p->am + PAIR_BYTES / 2;

    (void)state;
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, own, p->am + 499 * SMALL, SMALL), 0);
    r = add_many(p, 500, MANY);
    for (size_t i = 0; i < 500 + MANY; i += 991)
        assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, own, p->am + i * SMALL, SMALL), 0);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, own, p->am + 1, SMALL), TE_ERR_STALE);
    del_many(p, few, 500);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, own, p->am + 5 * SMALL, SMALL),
                     TE_ERR_STALE);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, own, p->am + 500 * SMALL, SMALL), 0);
    del_many(p, r, MANY);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, own, p->am + 500 * SMALL, SMALL),
                     TE_ERR_STALE);
    there_and_back(p, p->bm, 1000, 5);
    pair_close(p);
}

/* One region where there were many, after more changes than the log holds. */
static void one_for_many(void **state)
{
    enum { N = 2 * HOST_LOG };
    struct pair *p = pair_open(&fixture);
    struct tei_region *r = add_many(p, 0, N);
    struct tei_region one = {.addr = (uintptr_t)p->am, .length = N * SMALL, .access = TE_REMOTE_RW};
    char *own = p->am + PAIR_BYTES / 2;

    (void)state;
    for (size_t i = 0; i < N; i += 100)
        assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, own, p->am + i * SMALL, SMALL), 0);
    for (size_t i = N; i-- > 0;)
        assert_int_equal(p->b->ops.region_del(p->b, &r[i]), 0);
    assert_int_equal(p->b->ops.region_add(p->b, &one), 0);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, own, p->am, N * SMALL), 0);
    assert_memory_equal(own, p->am, N * SMALL);
    assert_int_equal(p->b->ops.region_del(p->b, &one), 0);
    free(r);
    pair_close(p);
}

/* ------------------------------------------------------------------------- shortage, and forks */

/* A memfd that finds no descriptor is done without. */
static void without_descriptors(void **state)
{
    te_request r = {.opcode = TE_READ, .length = 10};
    struct pair *p = pair_open(&fixture);
    struct rlimit old, none;
    struct tei_region *region;
    void *mem;

    (void)state;
    assert_int_equal(tei_mem_alloc(SHARED, NULL, false, &mem), 0);
    region = fake_region_add(&p->hb, p->b, mem, SHARED, TE_REMOTE_RW);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    r.target_offset = (uintptr_t)mem;
    for (uint32_t i = 0; i < 20; i++) {
        there_and_back(p, mem, 100000, i);
        usleep(5000);
        assert_true(p->a->ops.score(p->a, p->attach, &r) > 50);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    there_and_back(p, mem, 100000, 99);
    fake_region_del(&p->hb, p->b, region);
    tei_mem_free(mem, SHARED);
    pair_close(p);
}

static void a_child_has_none_of_it(void **state)
{
    struct pair *p = pair_open(&fixture);
    int status;
    pid_t pid;

    (void)state;
    there_and_back(p, p->bm, 1000, 7);
    assert_true(count_maps("memfd:te_host") > 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(count_maps("memfd:te_host") == 0 ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    there_and_back(p, p->bm, 1000, 8);
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFORMANCE_ONE_SIDED_TESTS,
        cmocka_unit_test(shareable_memory_is_mapped),
        cmocka_unit_test(what_is_not_registered_is_not_given),
        cmocka_unit_test(memory_that_peers_read),
        cmocka_unit_test(frozen_peer_is_no_hindrance),
        cmocka_unit_test(writers_that_never_leave),
        cmocka_unit_test(writers_are_waited_for),
        cmocka_unit_test(writers_that_went_on),
        cmocka_unit_test(hazards_of_random_bytes),
        cmocka_unit_test(quiet_after_unregister),
        cmocka_unit_test(pages_out_of_reach),
        cmocka_unit_test(process_vm_is_refused),
        cmocka_unit_test(one_of_a_list_fails),
        cmocka_unit_test(many_regions),
        cmocka_unit_test(one_for_many),
        cmocka_unit_test(without_descriptors),
        cmocka_unit_test(a_child_has_none_of_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
