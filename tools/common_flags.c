/* SPDX-License-Identifier: Apache-2.0 */
#include "common_flags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/near.h"
#include "common_units.h"
#include "te.h"

/* One argument taken apart. */
struct arg {
    const char *name;
    size_t len;
    const char *value; /* NULL: none was written */
};

static bool same_name(const char *flag, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i] == '-' ? '_' : text[i];
        if (!flag[i] || flag[i] != c)
            return false;
    }
    return flag[len] == '\0';
}

/* Finds a flag by name; writes its number over all tables and the struct its value lives in. */
static const struct flag *find(const struct flags *f, const char *name, size_t len, size_t *number,
                               void **value)
{
    size_t base = 0;
    for (size_t t = 0; t < f->count; t++) {
        const struct flag_table *table = &f->tables[t];
        for (size_t i = 0; i < table->count; i++) {
            if (!same_name(table->flags[i].name, name, len))
                continue;
            *number = base + i;
            *value = (char *)table->values + table->flags[i].offset;
            return &table->flags[i];
        }
        base += table->count;
    }
    return NULL;
}

/* The flag that may have been meant; NULL if none is so near. */
static const char *nearest(const struct flags *f, const struct arg *a)
{
    char name[TEI_NEAR_MAX + 1] = "";
    const char *found = NULL;
    size_t best;

    for (size_t i = 0; i < a->len && a->len <= TEI_NEAR_MAX; i++)
        name[i] = a->name[i] == '-' ? '_' : a->name[i];
    best = tei_near_limit(name) + 1;
    for (size_t t = 0; t < f->count; t++)
        for (size_t i = 0; i < f->tables[t].count; i++) {
            size_t d = tei_near_distance(f->tables[t].flags[i].name, name);

            if (d < best) {
                best = d;
                found = f->tables[t].flags[i].name;
            }
        }
    return found;
}

static bool parse_switch(const char *text, bool *out)
{
    static const char *const words[] = {"false", "true", "0", "1", "no", "yes", "n", "y", "f", "t"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return true;
        }
    }
    return false;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t len = strlen(text);
    for (const char *at = choices; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strcspn(at, "|") == len && strncmp(at, text, len) == 0)
            return true;
    }
    return false;
}

static bool parse_real(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0) || value > 1e9)
        return false;
    *out = value;
    return true;
}

static bool parse_number(const struct flag *flag, const char *text, uint64_t *out)
{
    bool ok = flag->kind == FLAG_SIZE ? units_parse_size(text, out) : units_parse_count(text, out);
    return ok && *out >= flag->min && (flag->max == 0 || *out <= flag->max);
}

static bool parse_index(const struct flag *flag, const char *text, int64_t *out)
{
    uint64_t count = 0;
    bool all = strcmp(text, "-1") == 0;
    if (!all && (!parse_number(flag, text, &count) || count > INT64_MAX))
        return false;
    *out = all ? -1 : (int64_t)count;
    return true;
}

static bool store(const struct flag *flag, void *value, const char *text)
{
    switch (flag->kind) {
    case FLAG_SWITCH:
        return parse_switch(text, value);
    case FLAG_SECONDS:
    case FLAG_FACTOR:
        return parse_real(text, value);
    case FLAG_COUNT:
    case FLAG_SIZE:
        return parse_number(flag, text, value);
    case FLAG_INDEX:
        return parse_index(flag, text, value);
    case FLAG_TEXT:
        break;
    }
    if (flag->choices && !is_choice(flag->choices, text))
        return false;
    *(const char **)value = text;
    return true;
}

static void set_defaults(const struct flags *f)
{
    for (size_t t = 0; t < f->count; t++) {
        const struct flag_table *table = &f->tables[t];
        for (size_t i = 0; i < table->count; i++) {
            void *value = (char *)table->values + table->flags[i].offset;
            store(&table->flags[i], value, table->flags[i].initial);
        }
    }
}

static const char *kind_text(const struct flag *flag)
{
    switch (flag->kind) {
    case FLAG_SWITCH:
        return "true|false";
    case FLAG_COUNT:
        return "NUMBER";
    case FLAG_INDEX:
        return "NUMBER|-1";
    case FLAG_SIZE:
        return "BYTES";
    case FLAG_SECONDS:
        return "SECONDS";
    case FLAG_FACTOR:
        return "FACTOR";
    case FLAG_TEXT:
        break;
    }
    return flag->choices ? flag->choices : "TEXT";
}

static void print_help(const struct flags *f)
{
    printf("usage: %s [--FLAG=VALUE]...%s%s\n\n%s\n\nFlags:\n", f->tool, f->words_help ? " " : "",
           f->words_help ? f->words_help : "", f->about);
    for (size_t t = 0; t < f->count; t++) {
        for (size_t i = 0; i < f->tables[t].count; i++) {
            const struct flag *flag = &f->tables[t].flags[i];
            printf("  --%s=%s\n      %s (default: %s)\n", flag->name, kind_text(flag), flag->help,
                   flag->initial[0] ? flag->initial : "none");
        }
    }
    printf(
        "  --help\n      Print this text.\n  --version\n      Print the version.\n\n"
        "BYTES may end in K, M, G or T (powers of 1024, also KiB ...) or KB, MB, GB, TB (powers of "
        "1000).\n");
}

static void complain(const struct flags *f, const struct flag *flag, const char *text)
{
    char least[UNITS_SIZE_MAX], most[UNITS_SIZE_MAX];

    fprintf(stderr, "%s: bad value '%s' for --%s: expected ", f->tool, text, flag->name);
    if (flag->kind == FLAG_SIZE)
        fprintf(stderr, "bytes, as 65536 or 64K (K, M, G, T), of at least %s",
                units_size(flag->min, least));
    else if (flag->kind == FLAG_COUNT)
        fprintf(stderr, "a number of at least %llu", (unsigned long long)flag->min);
    else
        fprintf(stderr, "%s", kind_text(flag));
    if (flag->max && flag->kind == FLAG_SIZE)
        fprintf(stderr, " and at most %s", units_size(flag->max, most));
    else if (flag->max && flag->kind == FLAG_COUNT)
        fprintf(stderr, " and at most %llu", (unsigned long long)flag->max);
    fprintf(stderr, "\n");
}

static void complain_of_name(const struct flags *f, const struct arg *a)
{
    const char *meant = nearest(f, a);

    fprintf(stderr, "%s: unknown flag --%.*s (%s%s%s--help lists all)\n", f->tool, (int)a->len,
            a->name, meant ? "--" : "", meant ? meant : "", meant ? "? " : "");
}

/* The switch that --noname means; NULL if it is none. */
static const struct flag *find_negated(const struct flags *f, const struct arg *a, size_t *number,
                                       void **value)
{
    const struct flag *flag;
    size_t skip;
    if (a->value || a->len < 3 || strncmp(a->name, "no", 2) != 0)
        return NULL;
    skip = a->name[2] == '-' || a->name[2] == '_' ? 3 : 2;
    flag = find(f, a->name + skip, a->len - skip, number, value);
    return flag && flag->kind == FLAG_SWITCH ? flag : NULL;
}

/* Puts a text behind those that the flag has had before. */
static bool append(struct flags *f, const char **value, size_t number, const char *text)
{
    char *joined = malloc(strlen(*value) + strlen(text) + 2);

    if (!joined) {
        fprintf(stderr, "%s: no memory for the flags\n", f->tool);
        return false;
    }
    sprintf(joined, "%s,%s", *value, text);
    free(f->joined[number]);
    f->joined[number] = joined;
    *value = joined;
    return true;
}

static bool put(struct flags *f, const struct flag *flag, size_t number, void *value,
                const char *text)
{
    if (f->given[number] && flag->appends)
        return append(f, value, number, text);
    if (f->given[number] && f->once) {
        fprintf(stderr, "%s: --%s is given twice\n", f->tool, flag->name);
        return false;
    }
    if (store(flag, value, text)) {
        f->given[number] = true;
        return true;
    }
    complain(f, flag, text);
    return false;
}

/* Takes one flag, and its value if that stands apart; how many arguments were used, 0: an error. */
static int take(struct flags *f, char **argv)
{
    struct arg a = {.name = argv[0] + (argv[0][1] == '-' ? 2 : 1)};
    a.len = strcspn(a.name, "=");
    a.value = a.name[a.len] ? a.name + a.len + 1 : NULL;
    size_t number;
    void *value;
    int used = 1;

    const struct flag *flag = find(f, a.name, a.len, &number, &value);
    if (!flag && (flag = find_negated(f, &a, &number, &value)))
        a.value = "false";
    if (!flag) {
        complain_of_name(f, &a);
        return 0;
    }
    if (!a.value && flag->kind == FLAG_SWITCH) {
        a.value = "true";
    } else if (!a.value) {
        a.value = argv[1];
        used = 2;
    }
    if (!a.value) {
        fprintf(stderr, "%s: flag --%s needs a value\n", f->tool, flag->name);
        return 0;
    }
    return put(f, flag, number, value, a.value) ? used : 0;
}

static bool is_word(const char *arg, const char *word)
{
    return strcmp(arg + (arg[0] == '-' && arg[1] == '-' ? 1 : 0), word) == 0;
}

int flags_parse(struct flags *f, int argc, char **argv)
{
    set_defaults(f);
    for (int i = 1; i < argc;) {
        if (is_word(argv[i], "-help") || is_word(argv[i], "-h")) {
            print_help(f);
            return 0;
        }
        if (is_word(argv[i], "-version")) {
            printf("%s %s\n", f->tool, te_version());
            return 0;
        }
        if (argv[i][0] != '-' || argv[i][1] == '\0') {
            if (f->word_count < f->words_max) {
                f->words[f->word_count++] = argv[i++];
                continue;
            }
            fprintf(stderr, "%s: unexpected argument '%s' (--help lists all flags)\n", f->tool,
                    argv[i]);
            return 2;
        }
        int used = take(f, argv + i);
        if (!used)
            return 2;
        i += used;
    }
    return -1;
}

bool flags_given(const struct flags *f, const char *name)
{
    size_t number;
    void *value;
    return find(f, name, strlen(name), &number, &value) && f->given[number];
}

void flags_fini(struct flags *f)
{
    for (size_t i = 0; i < FLAGS_MAX; i++)
        free(f->joined[i]);
}
