/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of ofi in a descriptor, which a stranger wrote. */
#include "transport/ofi/ofi_keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <rdma/fabric.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HEAD "\"v\":1,\"provider\":\"tcp;ofi_rxm\",\"protocol\":[7,1],\"format\":2"
#define NIC \
    "{\"name\":\"lo\",\"addr\":\"02001f40\",\"virtual\":false,\"page\":[\"0123456789abcdef\",0]}"
#define REGION "[4096,100,3,5,\"00000000000000ff\",\"00000000000000aa\"]"

static const char *read_text(const char *text, struct ofi_keys *k)
{
    json_t *j;
    const char *why;

    assert_int_equal(tei_json_load(text, strlen(text), 0, &j, NULL), 0);
    why = tei_ofi_keys_read(j, k);
    json_decref(j);
    return why;
}

static void what_is_told_is_read(void **state)
{
    struct ofi_keys k, again;
    json_t *j;

    (void)state;
    assert_null(read_text("{" HEAD ",\"nics\":[" NIC "],\"regions\":[" REGION "]}", &k));
    j = tei_ofi_keys_json(&k);
    assert_null(tei_ofi_keys_read(j, &again));
    json_decref(j);
    assert_string_equal(again.provider, "tcp;ofi_rxm");
    assert_int_equal(again.nics[0].addr_len, 4);
    assert_int_equal(again.nics[0].page_key, 0x0123456789abcdef);
    assert_int_equal(again.n, 1);
    assert_memory_equal(&again.v[0], &k.v[0], sizeof k.v[0]);
    tei_ofi_keys_fini(&k);
    tei_ofi_keys_fini(&again);
}

static void hostile_keys_are_refused(void **state)
{
    static const char *const bad[] = {
        "[]",
        "{}",
        "{" HEAD "}",
        "{" HEAD ",\"nics\":[],\"regions\":[]}",
        "{" HEAD ",\"nics\":[" NIC "],\"regions\":{}}",
        "{" HEAD ",\"nics\":[" NIC "," NIC "],\"regions\":[" REGION "]}",
        "{" HEAD ",\"nics\":[" NIC "," NIC "," NIC "," NIC "," NIC "," NIC "," NIC "," NIC "," NIC
        "],\"regions\":[]}",
        "{" HEAD ",\"nics\":[" NIC "],\"regions\":[" REGION "," REGION "]}",
        "{" HEAD ",\"nics\":[" NIC
        "],\"regions\":[[0,100,3,5,\"00000000000000ff\",\"00000000000000aa\"]]}",
        "{" HEAD ",\"nics\":[" NIC
        "],\"regions\":[[-1,100,3,5,\"00000000000000ff\",\"00000000000000aa\"]]}",
        "{" HEAD ",\"nics\":[" NIC
        "],\"regions\":[[9,0,3,5,\"00000000000000ff\",\"00000000000000aa\"]]}",
        "{" HEAD ",\"nics\":[" NIC
        "],\"regions\":[[9,9223372036854775807,3,5,\"00000000000000ff\",\"00000000000000aa\"]]}",
        "{" HEAD ",\"nics\":[" NIC
        "],\"regions\":[[9,9,4,5,\"00000000000000ff\",\"00000000000000aa\"]]}",
        "{" HEAD ",\"nics\":[" NIC
        "],\"regions\":[[9,9,3,1024,\"00000000000000ff\",\"00000000000000aa\"]]}",
        "{" HEAD ",\"nics\":[" NIC "],\"regions\":[[9,9,3,5,\"00000000000000ff\",7]]}",
        "{" HEAD ",\"nics\":[{\"name\":\"lo\",\"addr\":\"\",\"virtual\":false,"
        "\"page\":[\"0123456789abcdef\",0]}],\"regions\":[]}",
        "{" HEAD ",\"nics\":[{\"name\":\"lo\",\"addr\":\"0g\",\"virtual\":false,"
        "\"page\":[\"0123456789abcdef\",0]}],\"regions\":[]}",
        "{" HEAD ",\"nics\":[{\"name\":\"lo\",\"addr\":\"020\",\"virtual\":false,"
        "\"page\":[\"0123456789abcdef\",0]}],\"regions\":[]}",
        "{" HEAD ",\"nics\":[{\"name\":\"lo\",\"addr\":\"02\",\"virtual\":0,"
        "\"page\":[\"0123456789abcdef\",0]}],\"regions\":[]}",
    };
    struct ofi_keys k;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (!read_text(bad[i], &k))
            fail_msg("taken: %s", bad[i]);
}

/* A provider reads as much as the family says: one of another family or length is not given to it. */
static void addresses_of_another_kind_are_refused(void **state)
{
    uint8_t own[16] = {AF_INET & 255}, other[28] = {AF_INET6 & 255};

    (void)state;
    assert_null(tei_ofi_addr_check(FI_SOCKADDR_IN, own, 16, own, 16));
    assert_non_null(tei_ofi_addr_check(FI_SOCKADDR_IN, own, 15, own, 16));
    assert_non_null(tei_ofi_addr_check(FI_SOCKADDR_IN, other, 16, own, 16));
    assert_non_null(tei_ofi_addr_check(FI_SOCKADDR_IN, other, 28, own, 16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_told_is_read),
                                       cmocka_unit_test(hostile_keys_are_refused),
                                       cmocka_unit_test(addresses_of_another_kind_are_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
