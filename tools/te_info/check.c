/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/check.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common_colour.h"
#include "te_info/check_part.h"
#include "te_info/file.h"
#include "te_info/text.h"

#define VALUE_AT 22 /* column */

static const struct {
    const char *name;
    void (*look)(const struct check_host *h, struct check *c);
} table[] = {
    {"engine", check_engine},
    {"options", check_options},
    {"network", check_interfaces},
    {"ports", check_ports},
    {"congestion", check_congestion},
    {"TCP buffers", check_tcp_buffers},
    {"listen queue", check_listen_queue},
    {"RDMA NICs", check_rdma},
    {"locked memory", check_locked_memory},
    {"GPUs", check_gpus},
    {"process_vm", check_process_vm},
    {"namespaces", check_namespaces},
    {"shared memory", check_shared_memory},
    {"huge pages", check_huge_pages},
    {"open files", check_open_files},
    {"io_uring", check_io_uring},
    {"CPUs", check_cpus},
    {"memory", check_memory},
    {"clock source", check_clock_source},
    {"clock", check_clock},
};

static const struct {
    const char *mark, *json, *one, *many;
    enum colour colour;
} words[CHECK_RESULTS] = {
    [CHECK_ABSENT] = {"-", "absent", "not here", "not here", COLOUR_NONE},
    [CHECK_OK] = {"ok", "ok", "ok", "ok", COLOUR_GOOD},
    [CHECK_WARN] = {"warn", "warn", "warning", "warnings", COLOUR_WARN},
    [CHECK_FAIL] = {"FAIL", "fail", "failure", "failures", COLOUR_BAD},
};

/* --------------------------------------------------------------------------- what checks are made of */

void check_say(struct check *c, enum check_result result, const char *value, ...)
{
    va_list args;

    c->result = result;
    c->remedy[0] = '\0';
    va_start(args, value);
    vsnprintf(c->value, sizeof c->value, value, args);
    va_end(args);
}

void check_advise(struct check *c, const char *remedy, ...)
{
    va_list args;

    va_start(args, remedy);
    vsnprintf(c->remedy, sizeof c->remedy, remedy, args);
    va_end(args);
}

const char *check_size(uint64_t bytes, char text[CHECK_SIZE])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double size = (double)bytes;
    size_t i = 0;

    for (; size >= 1024 && i + 1 < TEI_ARRAY_LEN(units); i++)
        size /= 1024;
    if (bytes == UINT64_MAX)
        snprintf(text, CHECK_SIZE, "unlimited");
    else
        snprintf(text, CHECK_SIZE, size < 10 && i ? "%.1f %s" : "%.0f %s", size, units[i]);
    return text;
}

static uint64_t limit_of(const char *word)
{
    return strcmp(word, "unlimited") == 0 ? UINT64_MAX : strtoull(word, NULL, 10);
}

bool check_limit(const struct check_host *h, const char *name, uint64_t *soft, uint64_t *hard)
{
    char row[FILE_LINE], words_of[2][32];

    if (!file_row(row, name, "%s/self/limits", h->proc) ||
        sscanf(row, "%31s %31s", words_of[0], words_of[1]) != 2)
        return false;
    *soft = limit_of(words_of[0]);
    *hard = limit_of(words_of[1]);
    return true;
}

bool check_capable(const struct check_host *h, unsigned capability)
{
    char row[FILE_LINE];

    return file_row(row, "CapEff:", "%s/self/status", h->proc) &&
           (strtoull(row, NULL, 16) >> capability & 1);
}

/* The next range of a list; false past the end. */
static bool next_range(const char **list, unsigned long *first, unsigned long *last)
{
    int used;

    if (sscanf(*list, "%lu%n", first, &used) != 1)
        return false;
    *list += used;
    *last = *first;
    if (**list == '-' && sscanf(*list + 1, "%lu%n", last, &used) == 1)
        *list += used + 1;
    *list += **list == ',';
    return true;
}

bool check_list_has(const char *list, unsigned long number)
{
    unsigned long first, last;

    while (next_range(&list, &first, &last))
        if (number >= first && number <= last)
            return true;
    return false;
}

size_t check_list_count(const char *list)
{
    unsigned long first, last;
    size_t n = 0;

    while (next_range(&list, &first, &last))
        n += last >= first ? last - first + 1 : 0;
    return n;
}

/* ------------------------------------------------------------------------------------- all of them */

size_t check_run(const struct check_host *h, struct check out[CHECK_MAX])
{
    static_assert(TEI_ARRAY_LEN(table) <= CHECK_MAX, "there is room for all checks");

    for (size_t i = 0; i < TEI_ARRAY_LEN(table); i++) {
        out[i] = (struct check){.name = table[i].name};
        table[i].look(h, &out[i]);
    }
    return TEI_ARRAY_LEN(table);
}

const struct check *check_find(const struct check *all, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}

enum check_result check_worst(const struct check *all, size_t n)
{
    enum check_result worst = CHECK_ABSENT;

    for (size_t i = 0; i < n; i++)
        worst = all[i].result > worst ? all[i].result : worst;
    return worst;
}

const char *check_sum(const struct check *all, size_t n, char text[CHECK_TEXT])
{
    size_t count[CHECK_RESULTS] = {0}, used = 0;

    for (size_t i = 0; i < n; i++)
        count[all[i].result]++;
    for (size_t r = CHECK_OK; r < CHECK_RESULTS; r++)
        if (count[r] || r == CHECK_OK)
            used += (size_t)snprintf(text + used, CHECK_TEXT - used, "%s%zu %s", used ? ", " : "",
                                     count[r], count[r] == 1 ? words[r].one : words[r].many);
    return text;
}

json_t *check_json(const struct check *all, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{ss ss ss ss}", "name", all[i].name, "result",
                                              words[all[i].result].json, "value", all[i].value,
                                              "remedy", all[i].remedy));
    return list;
}

static void print_one(const struct check *c)
{
    enum colour colour = words[c->result].colour;

    printf("%s%-4s%s  %-14s  ", colour_on(stdout, colour), words[c->result].mark,
           colour ? colour_off(stdout) : "", c->name);
    text_wrap(c->value, VALUE_AT);
    if (!c->remedy[0])
        return;
    printf("%*sfix: ", VALUE_AT, "");
    text_wrap(c->remedy, VALUE_AT + 5);
}

void check_print(const struct check *all, size_t n)
{
    char sum[CHECK_TEXT];

    for (size_t i = 0; i < n; i++)
        print_one(&all[i]);
    printf("\n%s\n", check_sum(all, n, sum));
}
