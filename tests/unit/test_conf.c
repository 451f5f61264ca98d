/* SPDX-License-Identifier: Apache-2.0 */
#include "conf/conf.h"
#include "test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "conf/table.h"

struct captured {
    int lines;
    char line[2048];
};

static struct captured log_lines;
static struct tei_conf conf;

static void capture(void *arg, enum te_log_level level, const char *line)
{
    struct captured *c = arg;

    (void)level;
    c->lines++;
    strncpy(c->line, line, sizeof c->line - 1);
}

/* Each test begins with an environment that says nothing. */
static int quiet(void **state)
{
    (void)state;
    for (size_t i = 0; i < tei_option_count; i++) {
        unsetenv(tei_option_rows[i].name);
        if (tei_option_rows[i].alias)
            unsetenv(tei_option_rows[i].alias);
    }
    log_lines = (struct captured){0};
    te_log_set_level(TE_LOG_WARN);
    te_log_set_sink(capture, &log_lines);
    return 0;
}

static void load(void)
{
    assert_int_equal(tei_conf_load(NULL, &conf), 0);
}

static void env(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

static struct tei_conf_row row_of(const char *name)
{
    struct tei_conf_row row;

    for (size_t i = 0; tei_conf_row(&conf, i, &row); i++)
        if (strcmp(row.name, name) == 0)
            return row;
    fail_msg("no row %s", name);
    return row;
}

/* Loads with one option set in code. */
static int load_with(const char *name, const char *value)
{
    te_options o;
    int rc;

    te_options_init(&o);
    rc = te_option_set(&o, name, value);
    if (rc == 0)
        rc = tei_conf_load(o.set, &conf);
    te_options_fini(&o);
    return rc;
}

static void check_row(const struct tei_option_row *r)
{
    char text[TEI_CONF_LONG];
    int64_t scale = r->scale ? r->scale : 1;

    tei_value_format(r, &conf, text, sizeof text);
    assert_string_equal(text, r->fallback);
    assert_non_null(r->help);
    assert_null(strpbrk(r->help, "|\n"));
    assert_ptr_equal(tei_option_find(r->name), r);
    assert_true(!r->alias || tei_option_find(r->alias) == r);
    assert_true(r->as != TEI_AS_INT || r->max * scale <= INT_MAX);
    assert_true(r->as != TEI_AS_U16 || r->max <= UINT16_MAX);
    assert_true(r->as != TEI_AS_BOOL || r->kind == TEI_KIND_SWITCH || r->kind == TEI_KIND_WORD);
    assert_int_equal(r->as == TEI_AS_TEXT, r->kind == TEI_KIND_TEXT);
    assert_int_equal(r->words != NULL, r->kind == TEI_KIND_WORD);
    assert_true(r->min <= r->max);
}

TEST(every_row_is_sound)
{
    load();
    for (size_t i = 0; i < tei_option_count; i++) {
        check_row(&tei_option_rows[i]);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(tei_option_rows[i].name, tei_option_rows[k].name);
            assert_int_not_equal(tei_option_rows[i].offset, tei_option_rows[k].offset);
        }
    }
    assert_int_equal(log_lines.lines, 0);
    assert_null(tei_option_find("MC_NO_SUCH_THING"));
}

TEST(defaults)
{
    load();
    assert_int_equal(conf.slice_size, 65536);
    assert_int_equal(conf.retry_cnt, 9);
    assert_int_equal(conf.transfer_timeout_ms, 30000);
    assert_int_equal(conf.sync_timeout_ms, 30000);
    assert_int_equal(conf.log_level, -1);
    assert_int_equal(conf.min_rpc_port, 15000);
    assert_int_equal(conf.max_rpc_port, 17000);
    assert_int_equal(conf.gid_index, -1);
    assert_int_equal(conf.tcp_slice_size, 1 << 20);
    assert_int_equal(conf.tcp_piece_size, 4 << 20);
    assert_int_equal(conf.tcp_status_timeout_ms, 30000);
    assert_int_equal(conf.tcp_threads, 0);
    assert_int_equal(conf.spin_us, 20);
    assert_int_equal(conf.mtu, 4096);
    assert_true(conf.tcp_pool);
    assert_false(conf.tcp_force_v1);
    assert_false(conf.endpoint_store_fifo);
    assert_true(conf.max_mr_size == (size_t)1 << 40);
}

TEST(switches)
{
    static const char *const off[] = {"", "0", "false", "FALSE", "No", "off", " off "};
    static const char *const on[] = {"1", "true", "yes", "on", "2", "00", "x"};

    for (size_t i = 0; i < TEI_ARRAY_LEN(off); i++) {
        env("MC_TCP_ENABLE_CONNECTION_POOL", off[i]);
        load();
        assert_false(conf.tcp_pool);
    }
    for (size_t i = 0; i < TEI_ARRAY_LEN(on); i++) {
        env("MC_FORCE_TCP", on[i]);
        load();
        assert_true(conf.force_tcp);
    }
    assert_int_equal(log_lines.lines, 0);
}

TEST(numbers)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "0",
                                      "256",
                                      "-1",
                                      "1x",
                                      "0x1",
                                      "1 2",
                                      "+",
                                      "-",
                                      "1.5",
                                      "1k",
                                      "99999999999999999999999"};

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++) {
        assert_int_equal(tei_conf_check("MC_NUM_CQ_PER_CTX", bad[i]), TE_ERR_INVALID);
        assert_non_null(strstr(te_errmsg(), "MC_NUM_CQ_PER_CTX"));
        assert_non_null(strstr(te_errmsg(), "1 to 255"));
    }
    assert_int_equal(tei_conf_check("MC_NUM_CQ_PER_CTX", "255"), 0);
    assert_int_equal(tei_conf_check("MC_IB_TC", "-1"), 0);
    assert_int_equal(load_with("MC_NUM_CQ_PER_CTX", " +17\n"), 0);
    assert_int_equal(conf.num_cq_per_ctx, 17);
    assert_int_equal(load_with("MC_TCP_STATUS_TIMEOUT_SEC", "7"), 0);
    assert_int_equal(conf.tcp_status_timeout_ms, 7000);
    assert_string_equal(row_of("MC_TCP_STATUS_TIMEOUT_SEC").value, "7");
}

TEST(sizes)
{
    static const struct {
        const char *text;
        size_t bytes;
    } good[] = {{"1", 1},         {"64k", 65536},   {"64K", 65536},
                {"3m", 3u << 20}, {"1G", 1u << 30}, {"1048576k", 1u << 30}};

    for (size_t i = 0; i < TEI_ARRAY_LEN(good); i++) {
        assert_int_equal(load_with("MC_TCP_SLICE_SIZE", good[i].text), 0);
        assert_int_equal(conf.tcp_slice_size, good[i].bytes);
    }
    assert_int_equal(tei_conf_check("MC_SLICE_SIZE", "k"), TE_ERR_INVALID);
    assert_int_equal(tei_conf_check("MC_SLICE_SIZE", "1kk"), TE_ERR_INVALID);
    assert_int_equal(tei_conf_check("MC_SLICE_SIZE", "-1k"), TE_ERR_INVALID);
    assert_int_equal(tei_conf_check("MC_SLICE_SIZE", "2g"), TE_ERR_INVALID);
    assert_int_equal(tei_conf_check("MC_MAX_MR_SIZE", "9223372036854775807"), 0);
    assert_int_equal(tei_conf_check("MC_MAX_MR_SIZE", "9223372036854775807k"), TE_ERR_INVALID);
    assert_int_equal(tei_conf_check("MC_HANDSHAKE_MAX_LENGTH", "129m"), TE_ERR_INVALID);
    assert_int_equal(tei_conf_check("MC_HANDSHAKE_MAX_LENGTH", "1048575"), TE_ERR_INVALID);
}

TEST(words_and_texts)
{
    char text[TEI_CONF_TEXT + 1];

    assert_int_equal(load_with("MC_ENDPOINT_STORE_TYPE", "fifo"), 0);
    assert_true(conf.endpoint_store_fifo);
    assert_string_equal(row_of("MC_ENDPOINT_STORE_TYPE").value, "FIFO");
    assert_int_equal(load_with("MC_ENDPOINT_STORE_TYPE", "LRU"), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "SIEVE, FIFO"));
    assert_int_equal(load_with("MC_TCP_PROTO", "1"), 0);
    assert_true(conf.tcp_force_v1);
    assert_int_equal(load_with("MC_MTU", "1024"), 0);
    assert_int_equal(conf.mtu, 1024);
    assert_int_equal(load_with("MC_MTU", "1500"), TE_ERR_INVALID);

    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(load_with("MC_TE_FILTERS", text), TE_ERR_INVALID);
    text[sizeof text - 2] = '\0';
    assert_int_equal(load_with("MC_TE_FILTERS", text), 0);
    assert_string_equal(conf.filters, text);
    assert_int_equal(load_with("MC_METADATA_CLUSTER_ID", " kept as it is "), 0);
    assert_string_equal(conf.cluster_id, " kept as it is ");
}

TEST(log_level_and_verbose)
{
    env("MC_VERBOSE", "1");
    load();
    assert_int_equal(conf.log_level, TE_LOG_TRACE);
    env("MC_LOG_LEVEL", "error");
    load();
    assert_int_equal(conf.log_level, TE_LOG_ERROR);
    assert_string_equal(row_of("MC_LOG_LEVEL").value, "ERROR");
    env("MC_LOG_LEVEL", "");
    env("MC_VERBOSE", "0");
    load();
    assert_int_equal(conf.log_level, -1);
    assert_int_equal(load_with("MC_LOG_LEVEL", "warn"), 0);
    assert_string_equal(row_of("MC_LOG_LEVEL").value, "WARNING");
    assert_int_equal(load_with("MC_LOG_LEVEL", "LOUD"), TE_ERR_INVALID);
    assert_int_equal(load_with("MC_LOG_LEVEL", "a word of more than 16 bytes"), TE_ERR_INVALID);
}

TEST(a_bad_environment_is_a_warning)
{
    env("MC_MTU", "1500");
    load();
    assert_int_equal(conf.mtu, 4096);
    assert_int_equal(log_lines.lines, 1);
    assert_non_null(strstr(log_lines.line, "MC_MTU"));
    assert_non_null(strstr(log_lines.line, "1500"));
    assert_string_equal(row_of("MC_MTU").source, "default");
}

TEST(an_option_beats_the_environment)
{
    env("MC_SLICE_SIZE", "4096");
    load();
    assert_int_equal(conf.slice_size, 4096);
    assert_string_equal(row_of("MC_SLICE_SIZE").source, "environment");
    assert_int_equal(load_with("MC_SLICE_SIZE", "8192"), 0);
    assert_int_equal(conf.slice_size, 8192);
    assert_string_equal(row_of("MC_SLICE_SIZE").source, "option");
    assert_string_equal(row_of("MC_SLICE_SIZE").value, "8192");
    assert_string_equal(row_of("MC_SLICE_SIZE").fallback, "65536");
}

TEST(an_empty_variable_is_none)
{
    env("MC_SLICE_SIZE", "");
    env("MC_MIN_RPC_PORT", "");
    env("MC_MIN_PRC_PORT", "16000");
    load();
    assert_int_equal(conf.slice_size, 65536);
    assert_int_equal(conf.min_rpc_port, 16000);
    assert_int_equal(log_lines.lines, 0);
}

TEST(aliases)
{
    env("NCCL_IB_GID_INDEX", "5");
    load();
    assert_int_equal(conf.gid_index, 5);
    env("MC_GID_INDEX", "3");
    load();
    assert_int_equal(conf.gid_index, 3);
    assert_int_equal(load_with("NCCL_IB_GID_INDEX", "7"), 0);
    assert_int_equal(conf.gid_index, 7);
    env("MC_MAX_PRC_PORT", "20000");
    load();
    assert_int_equal(conf.max_rpc_port, 20000);
}

static void check_ports(const char *min, const char *max, bool good)
{
    te_options o;

    te_log_set_level(TE_LOG_OFF); /* so many lines in a row would use up the site's share */
    env("MC_MIN_RPC_PORT", min);
    env("MC_MAX_RPC_PORT", max);
    load();
    assert_int_equal(conf.min_rpc_port == 15000 && conf.max_rpc_port == 17000, !good);
    quiet(NULL);
    te_log_set_level(TE_LOG_OFF);
    te_options_init(&o);
    if (te_option_set(&o, "MC_MIN_RPC_PORT", min) == 0 &&
        te_option_set(&o, "MC_MAX_RPC_PORT", max) == 0)
        assert_int_equal(tei_conf_load(o.set, &conf), good ? 0 : TE_ERR_INVALID);
    else
        assert_false(good);
    te_options_fini(&o);
}

TEST(port_ranges)
{
    check_ports("16000", "16000", true);
    check_ports("1024", "32767", true);
    check_ports("61000", "65535", true);
    check_ports("16001", "16000", false);
    check_ports("1023", "14000", false);
    check_ports("20000", "32768", false);
    check_ports("60999", "65535", false);
    check_ports("2000", "65535", false);
    check_ports("40000", "41000", false);
    check_ports("20000", "65536", false);
}

TEST(a_port_range_may_come_from_both)
{
    env("MC_MIN_RPC_PORT", "20000");
    env("MC_MAX_RPC_PORT", "20100");
    assert_int_equal(load_with("MC_MIN_RPC_PORT", "20050"), 0);
    assert_int_equal(conf.min_rpc_port, 20050);
    assert_int_equal(conf.max_rpc_port, 20100);
    assert_int_equal(load_with("MC_MIN_RPC_PORT", "20101"), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "20101"));
    assert_non_null(strstr(te_errmsg(), "20100"));
    env("MC_MAX_RPC_PORT", "19000");
    load();
    assert_int_equal(conf.min_rpc_port, 15000);
    assert_int_equal(conf.max_rpc_port, 17000);
    assert_non_null(strstr(log_lines.line, "MC_MAX_RPC_PORT"));
}

TEST(the_ratio_is_less_than_the_slice)
{
    assert_int_equal(load_with("MC_SLICE_SIZE", "2"), 0);
    assert_int_equal(load_with("MC_FRAGMENT_RATIO", "65536"), TE_ERR_INVALID);
    assert_int_equal(load_with("MC_FRAGMENT_RATIO", "65535"), 0);
    env("MC_SLICE_SIZE", "16");
    env("MC_FRAGMENT_RATIO", "16");
    load();
    assert_int_equal(conf.slice_size, 16);
    assert_int_equal(conf.fragment_ratio, 4);
    assert_int_equal(load_with("MC_FRAGMENT_RATIO", "16"), TE_ERR_INVALID);
}

TEST(two_nvlinks_exclude_each_other)
{
    env("MC_FORCE_MNNVL", "1");
    env("MC_INTRANODE_NVLINK", "1");
    assert_int_equal(load_with("MC_SLICE_SIZE", "4096"), TE_ERR_INVALID);
    assert_non_null(strstr(te_errmsg(), "MC_FORCE_MNNVL"));
    assert_non_null(strstr(te_errmsg(), "MC_INTRA_NVLINK"));
    assert_int_equal(load_with("MC_INTRA_NVLINK", "0"), 0);
    assert_true(conf.force_mnnvl);
}

/* Wherever they are set, nothing is to be guessed: neither counts. */
TEST(forced_transports_exclude_each_other)
{
    static const char *const pairs[][2] = {
        {"MC_FORCE_TCP", "MC_FORCE_HCA"},   {"MC_FORCE_TCP", "MC_FORCE_MNNVL"},
        {"MC_FORCE_HCA", "MC_FORCE_MNNVL"}, {"MC_FORCE_TCP", "MC_FORCE_MUSA"},
        {"MC_FORCE_HCA", "MC_FORCE_MUSA"},  {"MC_FORCE_MNNVL", "MC_FORCE_MUSA"}};

    for (size_t i = 0; i < TEI_ARRAY_LEN(pairs); i++) {
        env(pairs[i][0], "1");
        assert_int_equal(load_with(pairs[i][1], "1"), TE_ERR_INVALID);
        assert_non_null(strstr(te_errmsg(), pairs[i][0]));
        assert_non_null(strstr(te_errmsg(), pairs[i][1]));
        env(pairs[i][1], "1");
        assert_int_equal(load_with("MC_SLICE_SIZE", "4096"), TE_ERR_INVALID);
        assert_int_equal(load_with(pairs[i][1], "0"), 0);
        unsetenv(pairs[i][0]);
        unsetenv(pairs[i][1]);
    }
}

TEST(secrets_are_not_told)
{
    char longer[TEI_CONF_LONG + 8];

    assert_int_equal(load_with("MC_REDIS_PASSWORD", "hunter2"), 0);
    assert_string_equal(conf.redis_password, "hunter2");
    assert_string_equal(row_of("MC_REDIS_PASSWORD").value, "***");
    load();
    assert_string_equal(row_of("MC_REDIS_PASSWORD").value, "");

    memset(longer, 's', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(load_with("MC_REDIS_PASSWORD", longer), TE_ERR_INVALID);
    assert_null(strstr(te_errmsg(), "sss"));
    env("MC_REDIS_PASSWORD", longer);
    load();
    assert_non_null(strstr(log_lines.line, "MC_REDIS_PASSWORD"));
    assert_null(strstr(log_lines.line, "sss"));
}

TEST(options_are_checked_when_set)
{
    te_options o;

    te_options_init(&o);
    assert_int_equal(o.size, sizeof o);
    assert_string_equal(o.metadata, "P2PHANDSHAKE");
    assert_int_equal(o.auto_discover, 1);
    assert_null(o.local_server_name);
    assert_int_equal(te_option_set(&o, "MC_NO_SUCH_THING", "1"), TE_ERR_NOT_FOUND);
    assert_non_null(strstr(te_errmsg(), "MC_NO_SUCH_THING"));
    assert_int_equal(te_option_set(&o, "", "1"), TE_ERR_NOT_FOUND);
    assert_int_equal(te_option_set(&o, "MC_RETRY_CNT", "many"), TE_ERR_INVALID);
    assert_int_equal(te_option_set(&o, NULL, "1"), TE_ERR_INVALID);
    assert_int_equal(te_option_set(&o, "MC_RETRY_CNT", NULL), TE_ERR_INVALID);
    assert_int_equal(te_option_set(NULL, "MC_RETRY_CNT", "1"), TE_ERR_INVALID);
    assert_null(o.set);
    te_options_fini(&o);
    te_options_fini(&o);
    te_options_fini(NULL);
    te_options_init(NULL);
}

static void check_option(const te_options *o, const char *name, const char *wanted)
{
    char text[64];

    assert_int_equal(te_option_get(o, name, text, sizeof(text)), 0);
    assert_string_equal(text, wanted);
}

/* The option before the environment, that before the default; nothing is said of what is wrong there. */
TEST(options_can_be_asked)
{
    te_options o;
    char text[4];

    te_options_init(&o);
    check_option(NULL, "MC_SLICE_SIZE", "65536");
    check_option(&o, "MC_SLICE_SIZE", "65536");
    env("MC_SLICE_SIZE", "128k");
    env("MC_RETRY_CNT", "many");
    check_option(NULL, "MC_SLICE_SIZE", "131072");
    check_option(NULL, "MC_RETRY_CNT", "9");
    assert_int_equal(te_option_set(&o, "MC_SLICE_SIZE", "1m"), 0);
    assert_int_equal(te_option_set(&o, "MC_REDIS_PASSWORD", "sesame"), 0);
    check_option(&o, "MC_SLICE_SIZE", "1048576");
    check_option(&o, "MC_REDIS_PASSWORD", "***");
    check_option(NULL, "MC_REDIS_PASSWORD", "");
    check_option(NULL, "MC_DISABLE_METACACHE", "off");
    assert_int_equal(te_option_get(&o, "MC_SLICE_SIZE", text, sizeof(text)), TE_ERR_TOO_LARGE);
    assert_int_equal(te_option_get(&o, "MC_NO_SUCH_THING", text, sizeof(text)), TE_ERR_NOT_FOUND);
    assert_int_equal(te_option_get(&o, NULL, text, sizeof(text)), TE_ERR_INVALID);
    te_options_fini(&o);
}

TEST(the_last_value_of_an_option_counts)
{
    te_options o;

    te_options_init(&o);
    assert_int_equal(te_option_set(&o, "MC_RETRY_CNT", "3"), 0);
    assert_int_equal(te_option_set(&o, "MC_MIN_RPC_PORT", "16000"), 0);
    assert_int_equal(te_option_set(&o, "MC_RETRY_CNT", "5"), 0);
    assert_int_equal(te_option_set(&o, "MC_MIN_PRC_PORT", "16500"), 0);
    assert_int_equal(te_option_set(&o, "MC_RETRY_CNT", "-1"), TE_ERR_INVALID);
    assert_int_equal(tei_conf_load(o.set, &conf), 0);
    assert_int_equal(conf.retry_cnt, 5);
    assert_int_equal(conf.min_rpc_port, 16500);
    te_options_fini(&o);
}

/* Whatever the suite was started with; then the variables given, "NAME=text" each. */
static const char *unused_of(const char *const *entries, size_t n)
{
    static char text[512];
    static char *only[16];
    size_t count;

    assert_true(n < TEI_ARRAY_LEN(only));
    for (size_t i = 0; i <= n; i++)
        only[i] = i < n ? (char *)(uintptr_t)entries[i] : NULL;
    environ = only;
    count = tei_conf_unused(text, sizeof text);
    assert_int_equal(count > 0, text[0] != '\0');
    return text;
}

#define UNUSED(...)                               \
    unused_of((const char *const[]){__VA_ARGS__}, \
              sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

TEST(names_without_effect)
{
    char **saved = environ;

    assert_string_equal(UNUSED("MC_FORCE_TCP=1", "TE_SPIN_US=1", "PATH=/", "NCCL_IB_TC=3"), "");
    assert_string_equal(UNUSED("MC_NOTHING_LIKE_IT=1", "TE_NOTHING_LIKE_IT=2"),
                        "MC_NOTHING_LIKE_IT, TE_NOTHING_LIKE_IT");
    /* Those that only look set, and those of the tests, scripts and builds around the library. */
    assert_string_equal(UNUSED("MC_NOTHING=", "MC_CXL_DEV_PATH=", "TE_NO", "TE_TEST_X=1"), "");
    assert_string_equal(UNUSED("TE_FAULT=x", "TE_BIN=/b", "TE_TEST_BUILD=/b", "TE_NETNS=a"), "");
    assert_string_equal(UNUSED("TE_FAULTS=x", "TE_BINARY=/b"), "TE_FAULTS, TE_BINARY");
    environ = saved;
}

TEST(names_that_are_nearly_right)
{
    char **saved = environ;

    assert_string_equal(UNUSED("MC_GID_INDX=3"), "MC_GID_INDX (MC_GID_INDEX?)");
    assert_string_equal(UNUSED("MC_SLICE_SIZES=1"), "MC_SLICE_SIZES (MC_SLICE_SIZE?)");
    assert_string_equal(UNUSED("TE_SLICE_SIZE=1"), "TE_SLICE_SIZE (MC_SLICE_SIZE?)");
    assert_string_equal(UNUSED("MC_FORCETCP=1"), "MC_FORCETCP (MC_FORCE_TCP?)");
    assert_string_equal(UNUSED("mc_force_tcp=1"), "");
    assert_string_equal(UNUSED("MC_Force_Tcp=1"), "MC_Force_Tcp");
    assert_string_equal(UNUSED("MC_FORCE_UB=1"), "MC_FORCE_UB"); /* which there is, elsewhere */
    assert_string_equal(UNUSED("MC_A=1"), "MC_A");
    assert_string_equal(UNUSED("MC_=1"), "MC_");
    environ = saved;
}

TEST(names_of_options_without_effect)
{
    char **saved = environ;

    assert_string_equal(UNUSED("MC_CXL_DEV_PATH=/dev/dax0.0"),
                        "MC_CXL_DEV_PATH (known, but nothing reads it)");
    assert_string_equal(UNUSED("MC_MIN_PRC_PORT=15000"), "");
    assert_string_equal(UNUSED("MC_MIN_PRC_PORT=15000", "MC_MIN_RPC_PORT=15001"),
                        "MC_MIN_PRC_PORT (MC_MIN_RPC_PORT is set)");
    assert_string_equal(UNUSED("MC_MIN_PRC_PORT=15000", "MC_MIN_RPC_PORT="), "");
    environ = saved;
}

TEST(hostile_names)
{
    char **saved = environ, entry[600] = "MC_", crowd[12][80];
    const char *all[12], *text;

    assert_string_equal(UNUSED("MC_\x1b[2J\nW1124=1", "TE_\xff%s%n=1"),
                        "MC_\\x1b\\x5b2J\\x0aW1124, TE_\\xff\\x25s\\x25n");
    memset(entry + 3, 'A', sizeof entry - 6);
    memcpy(entry + sizeof entry - 3, "=1", 3);
    text = UNUSED(entry);
    assert_int_equal(strlen(text), 64 + 3);
    assert_non_null(strstr(text, "AAA..."));
    for (size_t i = 0; i < 12; i++) {
        snprintf(crowd[i], sizeof crowd[i], "MC_%02zu%050d=1", i, 0);
        all[i] = crowd[i];
    }
    text = unused_of(all, 12);
    assert_true(strlen(text) < 512);
    assert_non_null(strstr(text, "MC_07"));
    assert_null(strstr(text, "MC_08"));
    assert_string_equal(strstr(text, " and"), " and 4 more");
    environ = saved;
}

/* Once, in one line, and without a value. */
TEST(names_are_told_once)
{
    env("TE_NO_SUCH_THING", "secret");
    env("MC_NO_SUCH_THING", "secret");
    load();
    assert_int_equal(log_lines.lines, 0);
    for (int i = 0; i < 3; i++)
        tei_conf_tell_unused();
    assert_int_equal(log_lines.lines, 1);
    assert_non_null(strstr(log_lines.line, "TE_NO_SUCH_THING"));
    assert_non_null(strstr(log_lines.line, "MC_NO_SUCH_THING"));
    assert_non_null(strstr(log_lines.line, "te_info --config"));
    assert_null(strstr(log_lines.line, "secret"));
    unsetenv("TE_NO_SUCH_THING");
    unsetenv("MC_NO_SUCH_THING");
}

TEST(rows_end_and_have_sections)
{
    struct tei_conf_row row;
    size_t n = 0, sections = 0;

    load();
    for (; tei_conf_row(&conf, n, &row); n++) {
        sections += row.about != NULL;
        assert_non_null(row.section);
        assert_string_equal(row.source, "default");
        assert_string_equal(row.value, row.fallback);
        assert_true(row.range[0] != '\0');
    }
    assert_int_equal(n, tei_option_count);
    assert_true(sections >= 6);
    assert_false(tei_conf_row(&conf, SIZE_MAX, &row));
}

#define QUIET(f) cmocka_unit_test_setup(f, quiet)

int main(void)
{
    const struct CMUnitTest tests[] = {
        QUIET(every_row_is_sound),
        QUIET(defaults),
        QUIET(switches),
        QUIET(numbers),
        QUIET(sizes),
        QUIET(words_and_texts),
        QUIET(log_level_and_verbose),
        QUIET(a_bad_environment_is_a_warning),
        QUIET(an_option_beats_the_environment),
        QUIET(an_empty_variable_is_none),
        QUIET(aliases),
        QUIET(port_ranges),
        QUIET(a_port_range_may_come_from_both),
        QUIET(the_ratio_is_less_than_the_slice),
        QUIET(two_nvlinks_exclude_each_other),
        QUIET(forced_transports_exclude_each_other),
        QUIET(secrets_are_not_told),
        QUIET(options_are_checked_when_set),
        QUIET(options_can_be_asked),
        QUIET(the_last_value_of_an_option_counts),
        QUIET(names_without_effect),
        QUIET(names_that_are_nearly_right),
        QUIET(names_of_options_without_effect),
        QUIET(hostile_names),
        QUIET(names_are_told_once),
        QUIET(rows_end_and_have_sections),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
