/* SPDX-License-Identifier: Apache-2.0 */
#include "te_segment/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "base/os.h"
#include "te_segment/record.h"

#define NONE "-"

const char *print_clean(const char *text, char out[TEXT_MAX])
{
    json_t *utf8 = json_string(text);
    size_t i;

    for (i = 0; text[i] && i < TEXT_MAX - 1; i++) {
        unsigned char c = (unsigned char)text[i];

        out[i] = c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8) ? '?' : text[i];
    }
    out[i] = '\0';
    json_decref(utf8);
    return out;
}

/* "ram", or what stands before the slash. */
static const char *kind_of(const struct entry *e, char out[TEXT_MAX])
{
    const char *slash = strchr(e->name, '/');
    char name[TEXT_MAX];

    if (!slash)
        return "ram";
    print_clean(e->name, name);
    snprintf(out, TEXT_MAX, "%.*s", (int)(slash - e->name), name);
    return out;
}

static const char *where_of(const struct entry *e, char out[TEXT_MAX])
{
    char text[TEI_HOSTPORT_MAX];

    if (!e->where.port)
        return NONE;
    tei_hostport_format(e->where.host, e->where.port, text, sizeof text);
    return print_clean(text, out);
}

static const json_t *buffers_of(const struct entry *e)
{
    return json_object_get(e->root, "buffers");
}

/* Of all buffers, files and the like included; at most INT64_MAX. */
static uint64_t bytes_of(const struct entry *e)
{
    const json_t *buffer;
    uint64_t sum = 0;
    size_t i;

    json_array_foreach(buffers_of(e), i, buffer) {
        json_int_t length = json_integer_value(json_object_get(buffer, "length"));

        if (length > 0)
            sum += tei_min((uint64_t)length, INT64_MAX - sum);
    }
    return sum;
}

/* ---- age */

/* -1: the descriptor does not tell when it was written. Clocks of hosts may differ a little. */
static int64_t age_s(const struct entry *e)
{
    const json_t *ms = json_object_get(json_object_get(e->root, "te"), "written");
    int64_t now_ms = tei_wall_ms();

    if (!json_is_integer(ms) || json_integer_value(ms) <= 0)
        return -1;
    return json_integer_value(ms) < now_ms ? (now_ms - json_integer_value(ms)) / 1000 : 0;
}

/*
 * By the local time of whoever wrote it, as engines of other makes tell it: true where that is in our
 * time zone. -1: there is none, or it lies ahead.
 */
static int64_t rough_age_s(const struct entry *e)
{
    const char *when = json_string_value(json_object_get(e->root, "timestamp"));
    struct tm tm = {.tm_isdst = -1};
    time_t now = time(NULL), then;

    if (!when || !strptime(when, "%Y-%m-%d %H:%M:%S", &tm))
        return -1;
    then = mktime(&tm);
    return then > 0 && then <= now ? (int64_t)(now - then) : -1;
}

static void age_of(const struct entry *e, char out[TEXT_MAX])
{
    static const struct unit {
        int64_t seconds;
        char letter;
    } units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}};
    int64_t exact = age_s(e), age = exact >= 0 ? exact : rough_age_s(e);
    const struct unit *u = units;

    while (u->seconds > 1 && age < 2 * u->seconds)
        u++;
    if (age < 0)
        strcpy(out, NONE);
    else
        snprintf(out, TEXT_MAX, "%s%" PRId64 "%c", exact < 0 ? "~" : "", age / u->seconds,
                 u->letter);
}

/* ---- list */

static const char *const answers[] = {
    [ANSWER_NONE] = NONE, [ANSWER_YES] = "yes", [ANSWER_NO] = "no"};

enum { COLUMNS = 9 };

struct row {
    char cell[COLUMNS][TEXT_MAX];
    char wrong[TEXT_MAX];
};

static const char *const titles[COLUMNS] = {"NAME",  "KIND", "PROTOCOL", "BUFFERS", "BYTES",
                                            "HOSTS", "AGE",  "ENGINE",   "ANSWERS"};
static const bool is_number[COLUMNS] = {false, false, false, true, true, true, true, false, false};

static void fill_row(const struct entry *e, struct row *row)
{
    char text[TEXT_MAX];

    *row = (struct row){.cell = {"", "", NONE, NONE, NONE, NONE, "", "", ""}};
    print_clean(e->name, row->cell[0]);
    strcpy(row->cell[1], kind_of(e, text));
    if (e->segment) {
        print_clean(e->segment->protocol, row->cell[2]);
        snprintf(row->cell[3], TEXT_MAX, "%zu", json_array_size(buffers_of(e)));
        snprintf(row->cell[4], TEXT_MAX, "%" PRIu64, bytes_of(e));
    }
    if (e->is_files)
        snprintf(row->cell[5], TEXT_MAX, "%zu", record_hosts(e->root));
    age_of(e, row->cell[6]);
    strcpy(row->cell[7], where_of(e, text));
    strcpy(row->cell[8], answers[e->answer]);
    if (e->wrong)
        print_clean(e->wrong, row->wrong);
}

static void widen(int width[COLUMNS], const struct row *row)
{
    for (size_t i = 0; i < COLUMNS; i++) {
        int n = (int)strlen(row->cell[i]);

        if (n > width[i])
            width[i] = n;
    }
}

static void print_row(const int width[COLUMNS], const struct row *row)
{
    for (size_t i = 0; i < COLUMNS - 1; i++)
        printf("%*s  ", is_number[i] ? width[i] : -width[i], row->cell[i]);
    printf("%s%s%s\n", row->cell[COLUMNS - 1], row->wrong[0] ? "  malformed: " : "", row->wrong);
}

/* Rows are made twice, first for the widths: there may be many. */
void print_table(const struct entry *list, size_t n)
{
    int width[COLUMNS] = {0};
    struct row head = {0}, row;

    for (size_t i = 0; i < COLUMNS; i++)
        strcpy(head.cell[i], titles[i]);
    widen(width, &head);
    for (size_t i = 0; i < n; i++) {
        fill_row(&list[i], &row);
        widen(width, &row);
    }
    print_row(width, &head);
    for (size_t i = 0; i < n; i++) {
        fill_row(&list[i], &row);
        print_row(width, &row);
    }
}

/* Of its engine: where it is, and whether it answers. */
static void add_engine(json_t *j, const struct entry *e)
{
    char where[TEXT_MAX], silent[TEXT_MAX];
    bool known = e->answer != ANSWER_NONE;

    json_object_set_new(j, "rpc", e->where.port ? json_string(where_of(e, where)) : json_null());
    json_object_set_new(j, "answers", known ? json_boolean(e->answer == ANSWER_YES) : json_null());
    if (e->silent)
        json_object_set_new(j, "silent", json_string(print_clean(e->silent, silent)));
}

static json_t *entry_json(const struct entry *e)
{
    char name[TEXT_MAX], kind[TEXT_MAX], wrong[TEXT_MAX];
    json_t *j = json_pack("{ss ss}", "name", print_clean(e->name, name), "kind", kind_of(e, kind));

    if (e->segment)
        json_object_update_new(j, json_pack("{ss sI sI}", "protocol", e->segment->protocol,
                                            "buffers", (json_int_t)json_array_size(buffers_of(e)),
                                            "bytes", (json_int_t)bytes_of(e)));
    if (e->is_files)
        json_object_set_new(j, "hosts", json_integer((json_int_t)record_hosts(e->root)));
    if (e->wrong)
        json_object_set_new(j, "error", json_string(print_clean(e->wrong, wrong)));
    json_object_set_new(j, "age_s", age_s(e) >= 0 ? json_integer(age_s(e)) : json_null());
    add_engine(j, e);
    return j;
}

void print_json(const struct entry *list, size_t n)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(all, entry_json(&list[i]));
    json_dumpf(all, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(all);
}

/* ---- show */

void print_stored(const struct entry *e)
{
    fwrite(e->text.data, 1, e->text.len, stdout);
    if (!e->text.len || e->text.data[e->text.len - 1] != '\n')
        printf("\n");
}

void print_line(const char *key, const char *value)
{
    char a[TEXT_MAX], b[TEXT_MAX];

    printf("%-18s %s\n", print_clean(key, a), print_clean(value, b));
}

/* A value of any type; strings without their quotes. */
static const char *value_text(const json_t *value, char out[TEXT_MAX])
{
    size_t n;

    if (json_is_string(value))
        return print_clean(json_string_value(value), out);
    n = json_dumpb(value, out, TEXT_MAX - 1, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    if (n < TEXT_MAX)
        out[n] = '\0';
    else
        snprintf(out, TEXT_MAX, "(%zu bytes, which --json shows)", n);
    return out;
}

/* An object on one line. */
static void print_members(const json_t *object)
{
    char name[TEXT_MAX], text[TEXT_MAX];
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value) {
        printf("  %s %s", print_clean(key, name), value_text(value, text));
    }
    printf("\n");
}

static bool is_shown_apart(const char *key)
{
    static const char *const keys[] = {"name", "protocol", "buffers",
                                       "te",   "devices",  "priority_matrix"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

/* Ports and whatever else the transport of that protocol needs. */
static void print_other_keys(const struct entry *e)
{
    char text[TEXT_MAX];
    const char *key;
    json_t *value;

    json_object_foreach(e->root, key, value) {
        if (!is_shown_apart(key))
            print_line(key, value_text(value, text));
    }
}

static const char *rights_of(const struct tei_buffer *b)
{
    switch (b->access & TE_REMOTE_RW) {
    case TE_REMOTE_RW:
        return "read, write";
    case TE_REMOTE_READ:
        return "read";
    case TE_REMOTE_WRITE:
        return "write";
    default:
        return "none";
    }
}

/* Those with an address by address, then offsets and the like as they are. */
static void print_buffers(const struct entry *e)
{
    const struct tei_segment *s = e->segment;
    const json_t *buffer;
    size_t i;

    printf("%-18s %zu, %" PRIu64 " bytes\n", "buffers", json_array_size(buffers_of(e)),
           bytes_of(e));
    for (i = 0; i < s->n_buffers && !s->files; i++)
        printf("  0x%016" PRIx64 "  %20" PRIu64 "  %s\n", s->buffers[i].addr, s->buffers[i].length,
               rights_of(&s->buffers[i]));
    json_array_foreach(buffers_of(e), i, buffer) {
        if (!json_object_get(buffer, "addr") && !e->is_files)
            print_members(buffer);
    }
}

static void print_names(const char *title, const json_t *names)
{
    char text[TEXT_MAX];
    const json_t *one;
    size_t i;

    printf("  %s:", title);
    json_array_foreach(names, i, one) {
        printf(" %s", value_text(one, text));
    }
    printf("%s", json_array_size(names) ? "" : " none");
}

static void print_devices(const struct entry *e)
{
    const json_t *devices = json_object_get(e->root, "devices"), *one;
    size_t i;

    if (!devices)
        return;
    printf("%-18s %zu\n", "devices", json_array_size(devices));
    json_array_foreach(devices, i, one) {
        print_members(one);
    }
}

static void print_matrix(const struct entry *e)
{
    const char *location;
    char text[TEXT_MAX];
    json_t *lists;

    if (!json_object_size(json_object_get(e->root, "priority_matrix")))
        return;
    printf("priority matrix\n");
    json_object_foreach(json_object_get(e->root, "priority_matrix"), location, lists) {
        printf("  %-8s", print_clean(location, text));
        print_names("preferred", json_array_get(lists, 0));
        print_names("others", json_array_get(lists, 1));
        printf("\n");
    }
}

static void print_engine(const struct entry *e)
{
    char where[TEXT_MAX], text[2 * TEXT_MAX + 32];

    if (!e->where.port)
        print_line("engine", "none is up");
    snprintf(text, sizeof text, "%s, %s%s", where_of(e, where),
             e->answer == ANSWER_YES ? "answers" : "does not answer: ", e->silent ? e->silent : "");
    if (e->where.port)
        print_line("engine", text);
}

void print_segment(const struct entry *e, const char *host)
{
    char text[TEXT_MAX];

    print_line("name", e->segment->name);
    print_line("kind", kind_of(e, text));
    print_line("protocol", e->segment->protocol);
    if (!e->is_files || e->where.port)
        print_engine(e);
    age_of(e, text);
    print_line("age", text);
    if (e->segment->incarnation) {
        snprintf(text, sizeof text, "%016" PRIx64 ", version %" PRIu64, e->segment->incarnation,
                 e->segment->version);
        print_line("incarnation", text);
    }
    print_other_keys(e);
    print_buffers(e);
    if (e->is_files)
        print_files(e, host);
    print_devices(e);
    print_matrix(e);
    if (e->wrong)
        print_line("malformed", e->wrong);
}
