/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of pages of a file that were not written back, and in which order: to a device that a test is. */
#include "fake_host.h"
#include "test.h"

#include "base/os.h"
#include "transport/nvmeof/nvmeof.h"

#include <errno.h>
#include <string.h>

#define IOS  4
#define PAGE 4096u

/* A file with WRITEs of 100 bytes, each within the first page, of which each has one I/O. */
struct rig {
    struct fake_host host;
    struct nvmeof n;
    struct nvmeof_file file;
    struct tei_region region;
    struct nvmeof_work works[IOS];
    struct nvmeof_io ios[IOS];
    struct fake_task tasks[IOS];
    char memory[IOS * 100];
    unsigned started; /* steps */
};

static struct rig *rig_of(struct nvmeof *n)
{
    return tei_container_of(n, struct rig, n);
}

static void start(struct nvmeof *n, struct nvmeof_io *io)
{
    (void)io;
    rig_of(n)->started++;
}

static const struct nvmeof_device_ops device = {.name = "a test", .start = start};

static void post(struct rig *r, unsigned i)
{
    struct nvmeof_work *w = &r->works[i];
    struct nvmeof_io *io = &r->ios[i];

    w->file = &r->file;
    w->at = i * 100;
    w->entry.base = (struct tei_work){.opcode = TE_WRITE,
                                      .local = r->memory + i * 100,
                                      .length = 100,
                                      .region = &r->region,
                                      .task = &r->tasks[i],
                                      .moved = &r->tasks[i].moved,
                                      .deadline_ns = TEI_NEVER};
    tei_ledger_post(&r->file.ledger, &w->entry, 0);
    assert_true(tei_nvmeof_cut(w, io));
    io->flying = true;
    r->file.ios++;
    r->n.flying++;
    tei_nvmeof_io_start(&r->n, io);
}

/* `n` of them are with the device. */
static void begin(struct rig *r, bool flush, unsigned n)
{
    memset(r, 0, sizeof *r);
    fake_host_init(&r->host);
    r->host.conf.file_flush = flush;
    r->n.base.host = &r->host.base;
    r->n.conf = &r->host.conf;
    r->n.device = &device;
    tei_list_init(&r->n.ended);
    tei_list_init(&r->n.idle);
    r->region.kind = TEI_MEM_HOST;
    r->file.owner = &r->n;
    r->file.path = "/f";
    r->file.state = NVMEOF_OPEN;
    r->file.write_align = r->file.read_align = r->file.memory_align = PAGE;
    tei_list_init(&r->file.asked);
    tei_list_init(&r->file.unsure);
    tei_ledger_init(&r->file.ledger, 0);
    for (unsigned i = 0; i < n; i++)
        post(r, i);
}

static void end(struct rig *r)
{
    assert_int_equal(r->file.ios, 0);
    assert_int_equal(r->n.flying, 0);
    assert_true(tei_list_empty(&r->file.asked) && tei_list_empty(&r->file.unsure));
    fake_host_fini(&r->host);
}

static void back(struct rig *r, unsigned i, int64_t result)
{
    tei_nvmeof_io_done(&r->n, &r->ios[i], result);
}

/* What of the works is over, a bit each. */
static unsigned over(struct rig *r)
{
    unsigned bits = 0;

    for (struct tei_link *l = tei_list_first(&r->n.ended); l; l = tei_list_next(&r->n.ended, l))
        bits |= 1u << (tei_nvmeof_work_of(l) - r->works);
    return bits;
}

/* Up to the step by which the kernel tells. */
static void write_to_page(struct rig *r, unsigned i)
{
    back(r, i, 0); /* the page is forgotten */
    assert_int_equal(r->ios[i].step, NVMEOF_MOVE);
    if (r->host.conf.file_flush)
        return;
    back(r, i, 100);
    assert_int_equal(r->ios[i].step, NVMEOF_WRITE_BACK);
}

static int64_t success(const struct rig *r)
{
    return r->host.conf.file_flush ? 100 : 0;
}

/* A page is lost, and the kernel has told one of two; the other comes back first. */
static void fail_both(bool flush)
{
    static struct rig r;

    begin(&r, flush, 2);
    write_to_page(&r, 0);
    write_to_page(&r, 1);
    back(&r, 0, success(&r));
    assert_int_equal(over(&r), 0);
    back(&r, 1, -EIO);
    if (!flush)
        back(&r, 1, 0); /* it is written back once more */
    assert_int_equal(over(&r), 3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r.works[i].entry.base.error, TE_ERR_SYSTEM);
        assert_int_equal(r.works[i].entry.base.sys_errno, EIO);
    }
    assert_true(r.file.reopen);
    end(&r);
}

TEST(who_was_told_of_a_lost_page_may_come_back_last)
{
    fail_both(false);
    fail_both(true);
}

TEST(a_write_waits_for_those_that_the_kernel_had_and_no_others)
{
    static struct rig r;

    begin(&r, false, 3);
    for (unsigned i = 0; i < 3; i++)
        write_to_page(&r, i);
    back(&r, 1, 0);
    back(&r, 2, 0);
    post(&r, 3);
    write_to_page(&r, 3);
    assert_int_equal(over(&r), 0);
    back(&r, 0, 0); /* of which the last one may have been told */
    assert_int_equal(over(&r), 6);
    back(&r, 3, -EIO);
    back(&r, 3, 0);
    assert_int_equal(over(&r), 15);
    for (int i = 0; i < IOS; i++)
        assert_int_equal(r.works[i].entry.base.error, i == 1 || i == 2 ? 0 : TE_ERR_SYSTEM);
    end(&r);
}

/* Half of it is in the page cache: that is written back before the work is over. */
static void ends_half_done(int64_t result, bool canceled, int error)
{
    static struct rig r;

    begin(&r, false, 1);
    back(&r, 0, 0);
    back(&r, 0, 60);
    assert_int_equal(r.ios[0].step, NVMEOF_MOVE);
    if (canceled)
        tei_ledger_end(&r.file.ledger, &r.works[0].entry, TE_ERR_CANCELED, 0, NULL);
    back(&r, 0, result);
    assert_int_equal(r.ios[0].step, NVMEOF_WRITE_BACK);
    assert_int_equal(over(&r), 0);
    assert_int_equal(r.started, 4);
    back(&r, 0, 0);
    assert_int_equal(over(&r), 1);
    assert_int_equal(r.works[0].entry.base.error, error);
    end(&r);
}

TEST(what_is_in_the_page_cache_is_written_back_of_work_that_has_failed)
{
    ends_half_done(-ENOSPC, false, TE_ERR_SYSTEM);
    ends_half_done(-ECANCELED, true, TE_ERR_CANCELED);
    ends_half_done(-EAGAIN, true, TE_ERR_CANCELED);
    ends_half_done(20, true, TE_ERR_CANCELED);
}

/* Nothing of it is there. */
TEST(work_that_has_written_nothing_ends_at_once)
{
    static struct rig r;

    begin(&r, false, 2);
    back(&r, 0, 0);
    back(&r, 0, -EIO);
    assert_int_equal(over(&r), 1);
    tei_ledger_end(&r.file.ledger, &r.works[1].entry, TE_ERR_CANCELED, 0, NULL);
    back(&r, 1, 0);
    assert_int_equal(over(&r), 3);
    end(&r);
}

/* The kernel tells of other pages before it writes this one: it is asked until it has nothing to tell, but not for ever. */
TEST(a_page_is_written_back_also_after_the_kernel_has_told_of_others)
{
    static struct rig r;

    for (int told = 1; told < 4; told++) {
        begin(&r, false, 1);
        write_to_page(&r, 0);
        for (int i = 0; i < told; i++) {
            back(&r, 0, -EIO);
            assert_int_equal(over(&r), 0);
            assert_int_equal(r.ios[0].step, NVMEOF_WRITE_BACK);
        }
        back(&r, 0, 0);
        assert_int_equal(over(&r), 1);
        assert_int_equal(r.works[0].entry.base.error, TE_ERR_SYSTEM);
        end(&r);
    }
}

TEST(a_kernel_that_always_tells_of_lost_pages_is_not_asked_for_ever)
{
    enum { MANY = 100000 };
    static struct rig r;
    int told = 0;

    begin(&r, false, 1);
    write_to_page(&r, 0);
    while (!over(&r) && told++ < MANY)
        back(&r, 0, -EIO);
    assert_int_equal(over(&r), 1);
    assert_int_equal(r.works[0].entry.base.error, TE_ERR_SYSTEM);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_told_of_a_lost_page_may_come_back_last),
        cmocka_unit_test(a_write_waits_for_those_that_the_kernel_had_and_no_others),
        cmocka_unit_test(what_is_in_the_page_cache_is_written_back_of_work_that_has_failed),
        cmocka_unit_test(work_that_has_written_nothing_ends_at_once),
        cmocka_unit_test(a_page_is_written_back_also_after_the_kernel_has_told_of_others),
        cmocka_unit_test(a_kernel_that_always_tells_of_lost_pages_is_not_asked_for_ever),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
