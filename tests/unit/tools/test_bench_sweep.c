/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the bench that draw: text, limits, axes, points, the page and its file. */
#include "tools/common_hist.c"
#include "tools/common_units.c"
#include "tools/common_xml.c"
#include "tools/transfer_engine_bench/chart.c"
#include "tools/transfer_engine_bench/html.c"
#include "tools/transfer_engine_bench/limits.c"
#include "tools/transfer_engine_bench/sweep.c"
#include "test.h"

static char folder[] = "/tmp/te-sweep-XXXXXX";

/* In place of those of common_setup.c, which would need an engine. */
bool setup_fail(struct setup *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(s->error, sizeof(s->error), fmt, args);
    va_end(args);
    return false;
}

void setup_carriers(const struct setup *s, enum te_opcode opcode, uint64_t block,
                    char names[SETUP_NAMES_MAX])
{
    (void)s;
    (void)opcode;
    (void)block;
    snprintf(names, SETUP_NAMES_MAX, "none");
}

static const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* How often a text has another in it. */
static size_t occurs(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

/* ---- Text ------------------------------------------------------------------------------------ */

static void check_text(const char *text, const char *want)
{
    char *got = NULL;
    size_t n;
    FILE *out = open_memstream(&got, &n);
    xml_text(out, text);
    fclose(out);
    assert_string_equal(got, want);
    free(got);
}

TEST(text_is_never_markup)
{
    check_text("", "");
    check_text("a:1", "a:1");
    check_text("<b a=\"x\">&'", "&#60;b a=&#34;x&#34;&#62;&#38;&#39;");
    check_text("Gr\xC3\xB6\xC3\x9F"
               "e \xE2\x82\xAC \xF0\x9F\x98\x80",
               "Gr\xC3\xB6\xC3\x9F"
               "e \xE2\x82\xAC \xF0\x9F\x98\x80");
    check_text("a\tb\x01"
               "c\x1B",
               "a\tb&#xFFFD;c&#xFFFD;");
    check_text("\xC3", "&#xFFFD;");                                     /* cut off */
    check_text("\xFFz", "&#xFFFD;z");                                   /* never a first byte */
    check_text("\xC0\xAF", "&#xFFFD;&#xFFFD;");                         /* too long a form */
    check_text("\xED\xA0\x80", "&#xFFFD;&#xFFFD;&#xFFFD;");             /* a surrogate */
    check_text("\xEF\xBF\xBF", "&#xFFFD;&#xFFFD;&#xFFFD;");             /* U+FFFF */
    check_text("\xF4\x90\x80\x80", "&#xFFFD;&#xFFFD;&#xFFFD;&#xFFFD;"); /* above U+10FFFF */
}

/* ---- Limits ---------------------------------------------------------------------------------- */

static bool read_text(struct limits *l, const char *text, char error[256])
{
    const char *path = in_folder("limits");
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    return limits_read(l, path, error, 256);
}

TEST(lines_of_the_raw_programs)
{
    struct limits l = {.count = 0};
    char error[256];
    assert_true(read_text(
        &l,
        "{\"bench\": \"raw_stream\", \"streams\": 1, \"cc\": \"bbr\", \"gb_s\": 2.5}\n"
        "{\"bench\": \"raw_stream\", \"streams\": 4, \"cc\": \"reno\", \"gb_s\": 6}\n"
        "{\"bench\": \"raw_pingpong\", \"size\": 4096, \"p50_us\": 80.5, \"p99_us\": 120}\n"
        "{\"bench\": \"raw_process_vm\", \"gb_s\": 5.0, \"threads\": 2}\n"
        "{\"bench\": \"raw_stream\", \"streams\": 1, \"cc\": \"bbr\", \"gb_s\": 2.75}\n",
        error));
    assert_int_equal(l.count, 5);
    assert_string_equal(l.at[0].label, "raw_stream, 1 stream, bbr");
    assert_true(l.at[0].value == 2.75); /* the later line counts */
    assert_string_equal(l.at[1].label, "raw_stream, 4 streams, reno");
    assert_int_equal(l.at[2].kind, LIMIT_P50);
    assert_string_equal(l.at[3].label, "raw_pingpong, p99");
    assert_int_equal(l.at[3].kind, LIMIT_P99);
    assert_string_equal(l.at[4].label, "raw_process_vm, 2 threads");
    assert_true(limits_have(&l, LIMIT_NETWORK));
    assert_false(limits_have(&l, LIMIT_MEMORY));
    assert_true(read_text(&l, "{\"bench\": \"raw_memcpy\", \"gb_s\": 7}", error));
    assert_true(limits_have(&l, LIMIT_MEMORY));
}

TEST(limits_by_hand)
{
    struct limits l = {.count = 0};
    char error[256];
    assert_true(read_text(&l,
                          "\n {\"stream_GBps\": 1.5,\n \"memcpy_GBps\": 8,\n"
                          "\"pingpong_us\": 40}  \n",
                          error));
    assert_int_equal(l.count, 3);
    assert_true(l.at[0].value == 1.5 && l.at[1].value == 8 && l.at[2].value == 40);
}

TEST(limits_refused)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "is empty"},
        {" \n", "is empty"},
        {"2.5", "no JSON"},
        {"{\"stream_GBps\": 1} {", "object 2"},
        {"{}", "no figure"},
        {"[1]", "no figure"},
        {"{\"stream_GBps\": 0}", "no figure"},
        {"{\"stream_GBps\": -1}", "no figure"},
        {"{\"stream_GBps\": \"2\"}", "no figure"},
        {"{\"memcpy_GBps\": 1e300}", "no figure"},
        {"{\"bench\": \"te_micro\", \"gb_s\": 1}", "no figure"},
    };
    char error[256];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct limits l = {.count = 0};
        assert_false(read_text(&l, bad[i].text, error));
        assert_non_null(strstr(error, bad[i].says));
        assert_non_null(strstr(error, folder));
    }
    struct limits l = {.count = 0};
    assert_false(limits_read(&l, "/nonexistent/limits", error, sizeof(error)));
    assert_non_null(strstr(error, "/nonexistent/limits"));
}

TEST(limits_are_bounded)
{
    struct limits l = {.count = 0};
    char line[128], error[256];
    for (int i = 1; i <= LIMITS_MAX; i++) {
        snprintf(line, sizeof(line), "{\"bench\": \"raw_stream\", \"streams\": %d, \"gb_s\": 1}",
                 i);
        assert_true(read_text(&l, line, error));
    }
    assert_false(read_text(&l, "{\"pingpong_us\": 1}", error));
    assert_non_null(strstr(error, "more than"));
}

TEST(memcpy_has_a_rate)
{
    struct limits l = {.count = 0};
    assert_true(limits_measure_copy(&l, 0.01));
    assert_int_equal(l.count, 1);
    assert_true(l.at[0].value > 0 && l.at[0].kind == LIMIT_RATE);
}

/* ---- Axes ------------------------------------------------------------------------------------ */

static void assert_near(double got, double want)
{
    assert_true(fabs(got - want) <= 1e-9 * (1 + fabs(want)));
}

TEST(round_numbers)
{
    static const struct {
        double value, down, up;
    } want[] = {
        {1, 1, 1},       {1.5, 1, 2},     {2, 2, 2},     {4.9, 2, 5},        {5, 5, 5},
        {7, 5, 10},      {10, 10, 10},    {99, 50, 100}, {0.03, 0.02, 0.05}, {0.001, 0.001, 0.001},
        {1e6, 1e6, 1e6}, {3e8, 2e8, 5e8}, {11, 10, 20},  {0.2, 0.2, 0.2},
    };
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        assert_near(round_down(want[i].value), want[i].down);
        assert_near(round_up(want[i].value), want[i].up);
    }
    assert_near(round_next(2), 5);
    assert_near(round_next(5), 10);
    assert_near(round_next(1000), 2000);
}

/* ---- Points and the page --------------------------------------------------------------------- */

static struct load_result result;

static void add_result(struct sweep *s, uint64_t block, uint64_t batch, uint64_t threads,
                       uint64_t batches)
{
    struct load load = {.tool = "test", .block = block, .batch = batch, .threads = threads};
    memset(&result, 0, sizeof(result));
    result.seconds = 2;
    result.batches = batches;
    result.requests = batches * batch;
    result.bytes = batches * batch * block;
    hist_add(&result.batch, 1000 * block, batches);
    hist_add(&result.request, 1000 * block / batch, batches);
    assert_true(sweep_add(s, &load, &result));
}

/* A sweep of 3 sizes, not in order, by 2 batches by 2 numbers of threads. */
static struct sweep whole_sweep(void)
{
    struct sweep s = {
        .block = {.at = {4096, 1048576, 65536}, .count = 3},
        .batch = {.at = {1, 16}, .count = 2},
        .threads = {.at = {1, 4}, .count = 2},
    };
    for (size_t t = 0; t < 2; t++) {
        for (size_t n = 0; n < 2; n++) {
            for (size_t i = 0; i < 3; i++)
                add_result(&s, s.block.at[i], s.batch.at[n], s.threads.at[t], 100);
        }
    }
    return s;
}

static char *page_of(const struct sweep *s, const char *target)
{
    struct html_fact fact = {.name = "Target"};
    char *text = NULL;
    size_t n;
    snprintf(fact.value, sizeof(fact.value), "%s", target);
    FILE *out = open_memstream(&text, &n);
    html_print(out, s, &fact, 1);
    fclose(out);
    return text;
}

TEST(batches_that_fit)
{
    assert_int_equal(sweep_fit(1 << 20, 4096, 16, 4), 16);
    assert_int_equal(sweep_fit(1 << 20, 65536, 16, 4), 4);
    assert_int_equal(sweep_fit(1 << 20, 1 << 20, 16, 1), 1);
    assert_int_equal(sweep_fit(1 << 20, 1 << 20, 16, 2), 0);

    static struct setup setup = {.length = 1 << 20, .remote_count = 2};
    setup.remotes[0].length = 1 << 20;
    setup.remotes[1].length = 1 << 19;
    struct load load = {.setup = &setup, .tool = "test", .block = 65536, .batch = 16, .threads = 2};
    sweep_fit_load(&load);
    assert_int_equal(load.batch, 4);
}

TEST(points_have_their_places)
{
    struct sweep s = whole_sweep();
    assert_int_equal(sweep_total(&s), 12);
    const struct sweep_point *p = sweep_at(&s, 2, 1, 0);
    assert_true(p->block == 65536 && p->batch == 16 && p->threads == 1 && p->measured);
    assert_near(p->gb_s, 100 * 16 * 65536 / 2.0 / 1e9);
    assert_near(p->iops, 800);
    assert_near(p->p50_us, 65536);
    assert_near(p->request_p50_us, 4096);
    s.count = 11;
    assert_non_null(sweep_at(&s, 1, 1, 1));
    assert_null(sweep_at(&s, 2, 1, 1));
    sweep_free(&s);
}

TEST(page_has_every_curve_and_point)
{
    struct sweep s = whole_sweep();
    assert_true(add(&s.limits, LIMIT_P50, 1000, LIMIT_NETWORK, "raw_pingpong, p50"));
    assert_true(add(&s.limits, LIMIT_RATE, 1e6, LIMIT_MEMORY, "far above"));
    char *page = page_of(&s, "<evil> & \"co\"");
    assert_int_equal(occurs(page, "<svg class=\"chart\""), 6);
    assert_int_equal(occurs(page, "class=\"curve\""), 12);
    assert_int_equal(occurs(page, "class=\"dot\""), 36);
    assert_int_equal(occurs(page, "<g class=\"limit\">"),
                     2); /* in the chart of p50 of each batch */
    assert_int_equal(occurs(page, "not drawn"), 1);
    assert_int_equal(occurs(page, "evil"), 1);
    assert_int_equal(occurs(page, "<evil"), 0);
    assert_int_equal(occurs(page, "nan"), 0);
    assert_int_equal(occurs(page, "inf\""), 0);
    assert_int_equal(occurs(page, "http"), 0);
    assert_int_equal(occurs(page, "No limit of the network"), 0);
    free(page);
    sweep_free(&s);
}

TEST(curves_run_from_left_to_right)
{
    struct sweep s = whole_sweep();
    char *page = page_of(&s, "a");
    const char *points = strstr(page, "points=\"");
    double x[3], y[3];
    assert_int_equal(sscanf(points, "points=\"%lf,%lf %lf,%lf %lf,%lf", &x[0], &y[0], &x[1], &y[1],
                            &x[2], &y[2]),
                     6);
    assert_true(x[0] < x[1] && x[1] < x[2]);
    assert_true(y[0] > y[1] && y[1] > y[2]); /* more is higher */
    free(page);
    sweep_free(&s);
}

TEST(one_point_or_none)
{
    struct sweep s = {.block = {.at = {1}, .count = 1},
                      .batch = {.at = {1}, .count = 1},
                      .threads = {.at = {1}, .count = 1}};
    for (uint64_t batches = 0; batches < 2; batches++) {
        s.count = 0;
        add_result(&s, 1, 1, 1, batches);
        char *page = page_of(&s, "a");
        assert_int_equal(occurs(page, "class=\"curve\""), 3);
        assert_int_equal(occurs(page, "class=\"dot\""), 3 * batches);
        assert_int_equal(occurs(page, "not measured"), batches == 0);
        assert_int_equal(occurs(page, "nan"), 0);
        assert_int_equal(occurs(page, "No limit of the network"), 1);
        free(page);
    }
    sweep_free(&s);
}

TEST(file_is_replaced_whole)
{
    struct sweep s = whole_sweep();
    char error[256], target[128];
    struct stat st;
    const char *path = in_folder("page.html");
    assert_true(html_try(path, error, sizeof(error)));
    assert_int_equal(lstat(path, &st), -1); /* a try leaves nothing */
    for (int i = 0; i < 2; i++)
        assert_true(html_write(path, &s, NULL, 0, error, sizeof(error)));
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode) && st.st_size > 1000);
    unlink(path);

    snprintf(target, sizeof(target), "%s", path);
    assert_int_equal(symlink("/dev/null", target), 0);
    assert_false(html_write(target, &s, NULL, 0, error, sizeof(error)));
    assert_non_null(strstr(error, target));
    unlink(target);
    assert_false(html_try("/nonexistent/page.html", error, sizeof(error)));
    assert_non_null(strstr(error, "/nonexistent/page.html"));
    assert_false(html_try(folder, error, sizeof(error)));
    sweep_free(&s);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(in_folder("limits"));
    return rmdir(folder); /* and so nothing else was left in it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_never_markup),
        cmocka_unit_test(lines_of_the_raw_programs),
        cmocka_unit_test(limits_by_hand),
        cmocka_unit_test(limits_refused),
        cmocka_unit_test(limits_are_bounded),
        cmocka_unit_test(memcpy_has_a_rate),
        cmocka_unit_test(round_numbers),
        cmocka_unit_test(batches_that_fit),
        cmocka_unit_test(points_have_their_places),
        cmocka_unit_test(page_has_every_curve_and_point),
        cmocka_unit_test(curves_run_from_left_to_right),
        cmocka_unit_test(one_point_or_none),
        cmocka_unit_test(file_is_replaced_whole),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
