/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance.h"

#include <sys/mman.h>

/* The native framing with a checksum for every frame. */
static void configure(struct tei_conf *c)
{
    c->tcp_crc32c = true;
}

static const struct conformance fixture = {.transport = "tcp", .configure = configure};
CONFORMANCE_REMOTE(fixture)

/* What cannot be read is not summed up either: the request fails, and both engines go on. */
static void pages_that_cannot_be_read(void **state)
{
    struct pair *p = pair_open(&fixture);
    size_t length = (size_t)3 << 20;
    struct tei_region *hole;
    char *mem = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_ptr_not_equal(mem, MAP_FAILED);
    hole = fake_region_add(&p->hb, p->b, mem, length, TE_REMOTE_RW);
    assert_true(fake_transfer(p->a, p->attach, TE_READ, p->am, mem, 10) < 0);
    assert_true(fake_transfer(p->a, p->attach, TE_READ, p->am, mem, 1000000) < 0);
    assert_true(fake_transfer(p->a, p->attach, TE_WRITE, mem, p->bm, 1000000) < 0);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_READ, p->am, p->bm, 1000000), 0);
    assert_int_equal(fake_transfer(p->a, p->attach, TE_WRITE, p->am, p->bm, 1000000), 0);
    fake_region_del(&p->hb, p->b, hole);
    munmap(mem, length);
    pair_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFORMANCE_REMOTE_TESTS,
        cmocka_unit_test(pages_that_cannot_be_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
