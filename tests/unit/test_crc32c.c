/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc32c.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

/* Bit by bit, as the polynomial says. */
static uint32_t reference(uint32_t crc, const uint8_t *p, size_t n)
{
    crc = ~crc;
    while (n-- > 0) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
    }
    return ~crc;
}

static uint8_t *noise(size_t n)
{
    uint8_t *p = malloc(n);

    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(rand() >> 7);
    return p;
}

/* RFC 3720, B.4; and the check value of the catalogues. */
TEST(vectors_of_rfc_3720)
{
    static const uint8_t iscsi[48] = {[0] = 0x01,  [1] = 0xc0,  [16] = 0x14, [22] = 0x04,
                                      [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02};
    uint8_t b[32];

    memset(b, 0, sizeof b);
    assert_int_equal(tei_crc32c(0, b, sizeof b), 0x8a9136aa);
    memset(b, 0xff, sizeof b);
    assert_int_equal(tei_crc32c(0, b, sizeof b), 0x62a8ab43);
    for (unsigned i = 0; i < sizeof b; i++)
        b[i] = (uint8_t)i;
    assert_int_equal(tei_crc32c(0, b, sizeof b), 0x46dd794e);
    for (unsigned i = 0; i < sizeof b; i++)
        b[i] = (uint8_t)(31 - i);
    assert_int_equal(tei_crc32c(0, b, sizeof b), 0x113fdb5c);
    assert_int_equal(tei_crc32c(0, iscsi, sizeof iscsi), 0xd9963a56);
    assert_int_equal(tei_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(tei_crc32c(0, "", 0), 0);
}

/* Every short length at every alignment of 16; what lies around it does not count. */
TEST(short_lengths)
{
    uint8_t *p = noise(2100);

    for (size_t n = 0; n <= 2000; n++) {
        size_t off = n % 16;

        assert_int_equal(tei_crc32c(0, p + off, n), reference(0, p + off, n));
        assert_int_equal(tei_crc32c(0xdeadbeef, p + off, n), reference(0xdeadbeef, p + off, n));
    }
    free(p);
}

TEST(long_ones)
{
    size_t max = (size_t)3 << 20;
    uint8_t *p = noise(max);

    for (int i = 0; i < 30; i++) {
        size_t off = (size_t)rand() % 64, n = (size_t)rand() % (i < 25 ? 70000 : max - 64);

        assert_int_equal(tei_crc32c(0, p + off, n), reference(0, p + off, n));
    }
    free(p);
}

/* In parts as in one. */
TEST(chained)
{
    size_t n = 50000;
    uint8_t *p = noise(n);
    uint32_t whole = reference(0, p, n);

    for (int i = 0; i < 200; i++) {
        uint32_t crc = 0;

        for (size_t at = 0, part; at < n; at += part) {
            part = (size_t)rand() % (i % 2 ? 20000 : 700);
            part = part < n - at ? part : n - at;
            crc = tei_crc32c(crc, p + at, part);
        }
        assert_int_equal(crc, whole);
    }
    free(p);
}

/* Each method that this processor has, over lengths around the places where one goes another way. */
TEST(methods_agree)
{
    static const size_t around[] = {0,    256,   768,   1024,   1792,   2048,
                                    6144, 14336, 49152, 114688, 130000, 229376};
    uint8_t *p = noise(229376 + 256);

    assert_true(tei_crc32c_can(TEI_CRC32C_TABLES));
    for (int m = 0; m < TEI_CRC32C_METHODS; m++) {
        if (!tei_crc32c_can((enum tei_crc32c_method)m))
            continue;
        for (size_t i = 0; i < sizeof around / sizeof around[0]; i++)
            for (size_t n = around[i]; n < around[i] + 70; n += 1 + (size_t)rand() % 9) {
                size_t off = (size_t)rand() % 64;

                assert_int_equal(tei_crc32c_by((enum tei_crc32c_method)m, 0x1234567, p + off, n),
                                 reference(0x1234567, p + off, n));
            }
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_rfc_3720), cmocka_unit_test(short_lengths),
        cmocka_unit_test(long_ones),           cmocka_unit_test(chained),
        cmocka_unit_test(methods_agree),
    };

    srand(5);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
