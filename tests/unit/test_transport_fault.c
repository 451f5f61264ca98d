/* SPDX-License-Identifier: Apache-2.0 */
/* What options ask for, with a list of transports in which not all of it is. */
#include "te.h"
#include "transport/transport.h"
#include "test.h"

#include <string.h>

TEST(the_first_that_is_on_counts)
{
    const char *option;

    assert_null(tei_transport_asked(&(struct tei_conf){0}, &option));
    assert_string_equal(tei_transport_asked(&(struct tei_conf){.force_hca = true}, &option),
                        "rdma");
    assert_string_equal(option, "MC_FORCE_HCA");
    assert_string_equal(
        tei_transport_asked(&(struct tei_conf){.force_hca = true, .force_tcp = true}, &option),
        "tcp");
    assert_string_equal(option, "MC_FORCE_TCP");
}

TEST(what_is_asked_for_must_be_built_in)
{
    te_engine *e = NULL;
    te_options o;

    te_options_init(&o);
    o.ip_or_host_name = "127.0.0.1";
    assert_int_equal(te_option_set(&o, "MC_FORCE_HCA", "1"), 0);
    assert_int_equal(te_engine_create(&o, &e), TE_ERR_UNSUPPORTED);
    assert_string_equal(te_errmsg(), "transport 'rdma' is not built in; there are: local, tcp");
    te_options_fini(&o);
}

/* By its capability, whatever its name is. */
TEST(the_way_to_own_memory_stays)
{
    te_engine *e = NULL;
    te_options o;

    te_options_init(&o);
    o.ip_or_host_name = "127.0.0.1";
    assert_int_equal(te_engine_create(&o, &e), 0);
    for (size_t i = 0; tei_transport_at(i); i++) {
        bool stays = tei_transport_at(i)->caps & TEI_CAP_LOCAL_ONLY;

        assert_int_equal(te_transport_uninstall(e, tei_transport_at(i)->name),
                         stays ? TE_ERR_INVALID : 0);
    }
    te_engine_destroy(e);
    te_options_fini(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_is_on_counts),
        cmocka_unit_test(what_is_asked_for_must_be_built_in),
        cmocka_unit_test(the_way_to_own_memory_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
