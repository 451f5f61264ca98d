/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf.c - loading: defaults, then the environment, then the options given in code.
 *
 * A value can be good by itself and wrong beside another one, so there are rules that span rows.
 * They are checked twice: after the environment, where what breaks one goes back to its default,
 * and after the options, where it is an error. An option is thus never blamed for the environment.
 */
#include "conf/conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "conf/options.h"
#include "conf/table.h"

#define EXPECTED_MAX 128
/*
 * What the kernel gives to outgoing connections; a listener there finds its port taken at random.
 */
#define EPHEMERAL_MIN 32768
#define EPHEMERAL_MAX 60999

enum source { SOURCE_DEFAULT, SOURCE_ENVIRONMENT, SOURCE_OPTION };

static const char *const source_names[] = {"default", "environment", "option"};

static size_t index_of(const struct tei_option_row *r)
{
    return (size_t)(r - tei_option_rows);
}

static void set_default(const struct tei_option_row *r, struct tei_conf *c)
{
    tei_value_parse(r, r->fallback, c);
    c->sources[index_of(r)] = SOURCE_DEFAULT;
}

/* --------------------------------------------------------------------------- rules that span rows */

static bool ports_hold(const struct tei_conf *c)
{
    return c->min_rpc_port <= c->max_rpc_port &&
           (c->max_rpc_port < EPHEMERAL_MIN || c->min_rpc_port > EPHEMERAL_MAX);
}

/* Nobody who only made slices small needs to know of the ratio. */
static bool ratio_holds(const struct tei_conf *c)
{
    const struct tei_option_row *r = tei_option_find("MC_FRAGMENT_RATIO");

    return c->fragment_ratio < c->slice_size || c->sources[index_of(r)] == SOURCE_DEFAULT;
}

#define HOLDS(name, one, other)                \
    static bool name(const struct tei_conf *c) \
    {                                          \
        return !c->one || !c->other;           \
    }
HOLDS(nvlink_holds, intra_nvlink, force_mnnvl)
HOLDS(tcp_or_hca_holds, force_tcp, force_hca)
HOLDS(tcp_or_mnnvl_holds, force_tcp, force_mnnvl)
HOLDS(hca_or_mnnvl_holds, force_hca, force_mnnvl)
HOLDS(tcp_or_musa_holds, force_tcp, force_musa)
HOLDS(hca_or_musa_holds, force_hca, force_musa)
HOLDS(mnnvl_or_musa_holds, force_mnnvl, force_musa)

#define ONE_OF_TWO "only one of them may be on; unset the other"

static const struct rule {
    const char *names[2];
    size_t resets; /* so many of the names go back to their defaults; 0: nothing is to be guessed */
    bool (*holds)(const struct tei_conf *c);
    const char *text;
} rules[] = {
    {.names = {"MC_MIN_RPC_PORT", "MC_MAX_RPC_PORT"},
     .resets = 2,
     .holds = ports_hold,
     .text = "the first must not exceed the second, and the range must not touch 32768-60999"},
    {.names = {"MC_FRAGMENT_RATIO", "MC_SLICE_SIZE"},
     .resets = 1,
     .holds = ratio_holds,
     .text = "the first must be less than the second"},
    {.names = {"MC_INTRA_NVLINK", "MC_FORCE_MNNVL"}, .holds = nvlink_holds, .text = ONE_OF_TWO},
    {.names = {"MC_FORCE_TCP", "MC_FORCE_HCA"}, .holds = tcp_or_hca_holds, .text = ONE_OF_TWO},
    {.names = {"MC_FORCE_TCP", "MC_FORCE_MNNVL"}, .holds = tcp_or_mnnvl_holds, .text = ONE_OF_TWO},
    {.names = {"MC_FORCE_HCA", "MC_FORCE_MNNVL"}, .holds = hca_or_mnnvl_holds, .text = ONE_OF_TWO},
    {.names = {"MC_FORCE_TCP", "MC_FORCE_MUSA"}, .holds = tcp_or_musa_holds, .text = ONE_OF_TWO},
    {.names = {"MC_FORCE_HCA", "MC_FORCE_MUSA"}, .holds = hca_or_musa_holds, .text = ONE_OF_TWO},
    {.names = {"MC_FORCE_MNNVL", "MC_FORCE_MUSA"},
     .holds = mnnvl_or_musa_holds,
     .text = ONE_OF_TWO},
};

/* "MC_MIN_RPC_PORT is 20 and MC_MAX_RPC_PORT is 10: the first must not ..." */
static void describe(const struct rule *rule, const struct tei_conf *c, char *buf, size_t n)
{
    char values[2][32];

    for (size_t i = 0; i < 2; i++)
        tei_value_format(tei_option_find(rule->names[i]), c, values[i], sizeof values[i]);
    snprintf(buf, n, "%s is %s and %s is %s: %s", rule->names[0], values[0], rule->names[1],
             values[1], rule->text);
}

static void forgive(struct tei_conf *c)
{
    char why[256];

    for (size_t i = 0; i < TEI_ARRAY_LEN(rules); i++) {
        if (rules[i].resets == 0 || rules[i].holds(c))
            continue;
        describe(&rules[i], c, why, sizeof why);
        TEI_WARN("%s; using the default of %s%s%s", why, rules[i].names[0],
                 rules[i].resets == 2 ? " and " : "",
                 rules[i].resets == 2 ? rules[i].names[1] : "");
        for (size_t k = 0; k < rules[i].resets; k++)
            set_default(tei_option_find(rules[i].names[k]), c);
    }
}

static int insist(const struct tei_conf *c)
{
    char why[256];

    for (size_t i = 0; i < TEI_ARRAY_LEN(rules); i++) {
        if (rules[i].holds(c))
            continue;
        describe(&rules[i], c, why, sizeof why);
        return TEI_FAIL(TE_ERR_INVALID, "%s", why);
    }
    return 0;
}

/* ---------------------------------------------------------------------------------------- loading */

const char *tei_conf_variable(const char *name)
{
    return getenv(name);
}

static bool is_set(const char *text, const struct tei_option_row *r)
{
    return text && tei_value_is_set(r, text);
}

/* The alias counts where the name itself is not set. NULL if neither is. */
static const char *environment_of(const struct tei_option_row *r, const char **name)
{
    const char *text = getenv(r->name);

    *name = r->name;
    if (is_set(text, r) || !r->alias)
        return is_set(text, r) ? text : NULL;
    *name = r->alias;
    text = getenv(r->alias);
    return is_set(text, r) ? text : NULL;
}

static int read_environment(struct tei_conf *c)
{
    char expected[EXPECTED_MAX];

    for (size_t i = 0; i < tei_option_count; i++) {
        const struct tei_option_row *r = &tei_option_rows[i];
        const char *name, *text = environment_of(r, &name);

        if (!text)
            continue;
        if (tei_value_parse(r, text, c)) {
            c->sources[i] = SOURCE_ENVIRONMENT;
            continue;
        }
        tei_value_expected(r, expected, sizeof expected);
        if (r->strict)
            return TEI_FAIL(TE_ERR_INVALID, "%s in the environment is '%.64s': it must be %s", name,
                            text, expected);
        TEI_WARN("%s in the environment is '%.64s', which must be %s; using the default, '%s'",
                 name, r->secret ? "***" : text, expected, r->fallback);
    }
    return 0;
}

static bool has_proxy(void)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
                                        "ALL_PROXY"};

    for (size_t i = 0; i < TEI_ARRAY_LEN(names); i++) {
        const char *text = getenv(names[i]);

        if (text && *text)
            return true;
    }
    return false;
}

/* What follows from values rather than being one. */
static void settle(struct tei_conf *c)
{
    c->proxied = has_proxy();
    if (c->log_level < 0 && c->verbose)
        c->log_level = TE_LOG_TRACE;
}

int tei_conf_load(const struct te_option_list *set, struct tei_conf *out)
{
    int rc;

    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < tei_option_count; i++)
        set_default(&tei_option_rows[i], out);
    rc = read_environment(out);
    if (rc)
        return rc;
    forgive(out);
    for (; set; set = set->next) {
        /* It was checked when it was added. */
        if (tei_value_parse(set->row, set->value, out))
            out->sources[index_of(set->row)] = SOURCE_OPTION;
    }
    rc = insist(out);
    if (rc)
        return rc;
    settle(out);
    return 0;
}

static int unknown(const char *name)
{
    return TEI_FAIL(TE_ERR_NOT_FOUND, "there is no option %.64s: te_info --config lists all", name);
}

/* Warns of nothing: who makes an engine is told what is wrong with the environment. */
static void load_row(const struct tei_option_row *r, const struct te_option_list *set,
                     struct tei_conf *c)
{
    const char *name, *text = environment_of(r, &name);

    set_default(r, c);
    if (text)
        tei_value_parse(r, text, c);
    for (; set; set = set->next)
        if (set->row == r)
            tei_value_parse(r, set->value, c);
}

int tei_conf_get(const struct te_option_list *set, const char *name, char *buf, size_t n)
{
    const struct tei_option_row *r = tei_option_find(name);
    struct tei_conf *c = r ? calloc(1, sizeof(*c)) : NULL;

    if (!r)
        return unknown(name);
    if (!c)
        return TEI_FAIL(TE_ERR_MEMORY, "option %s: out of memory", name);
    load_row(r, set, c);
    tei_value_format(r, c, buf, n);
    if (r->secret && buf[0])
        snprintf(buf, n, "***");
    free(c);
    return 0;
}

int tei_conf_check(const char *name, const char *value)
{
    const struct tei_option_row *r = tei_option_find(name);
    char expected[EXPECTED_MAX];
    struct tei_conf scratch;

    if (!r)
        return unknown(name);
    if (tei_value_parse(r, value, &scratch))
        return 0;
    tei_value_expected(r, expected, sizeof expected);
    return TEI_FAIL(TE_ERR_INVALID, "%s is '%.64s': it must be %s", name, r->secret ? "***" : value,
                    expected);
}

/* ----------------------------------------------------------------------------------- rows as text */

bool tei_conf_row(const struct tei_conf *c, size_t i, struct tei_conf_row *out)
{
    const struct tei_option_row *r, *first;

    if (i >= tei_option_count)
        return false;
    first = r = &tei_option_rows[i];
    while (!first->section)
        first--;
    *out = (struct tei_conf_row){.section = first->section,
                                 .about = r->about,
                                 .name = r->name,
                                 .alias = r->alias,
                                 .unit = r->unit,
                                 .help = r->help,
                                 .source = source_names[c->sources[i]],
                                 .fallback = r->fallback,
                                 .secret = r->secret,
                                 .idle = r->idle};
    tei_value_format(r, c, out->value, sizeof out->value);
    if (r->secret && out->value[0])
        snprintf(out->value, sizeof out->value, "***");
    tei_value_expected(r, out->range, sizeof out->range);
    return true;
}
