/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unused.c - variables of the environment that look like options and change nothing.
 *
 * A misspelt name does no harm that anybody sees, so it is said. Only the names are: a value may be a
 * secret. Names come from whoever starts the process, and are shown without what is no letter, digit
 * or underscore.
 */
#include "conf/conf.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/near.h"
#include "conf/table.h"

#define NAME_LEN TEI_NEAR_MAX /* longer ones are cut, and like no option */

/* Names so far, and how many there was no room for. */
struct text {
    char *buf;
    size_t size, used, count, left_out;
};

/* ------------------------------------------------------------------------------- the nearest name */

/* NULL if none is so near that it may be meant. */
static const char *nearest(const char *name)
{
    size_t best = tei_near_limit(name) + 1;
    const char *found = NULL;

    for (size_t i = 0; i < tei_option_count; i++) {
        const char *both[] = {tei_option_rows[i].name, tei_option_rows[i].alias};

        for (size_t k = 0; k < 2 && both[k]; k++) {
            size_t d = tei_option_rows[i].idle ? best : tei_near_distance(both[k], name);

            if (d < best) {
                best = d;
                found = both[k];
            }
        }
    }
    return found;
}

/* ------------------------------------------------------------------------------------------- text */

/* As much of a name as is shown, and where it may be told apart from one that is shown whole. */
static void show(const char *name, size_t len, char *out, size_t n)
{
    size_t used = 0;

    for (size_t i = 0; i < tei_min(len, NAME_LEN) && used + 5 < n; i++) {
        unsigned char c = (unsigned char)name[i];
        bool plain = c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');

        used += (size_t)snprintf(out + used, n - used, plain ? "%c" : "\\x%02x", c);
    }
    if (len > NAME_LEN)
        snprintf(out + used, n - used, "...");
}

static void add(struct text *t, const char *name, const char *fmt, const char *arg)
{
    char note[NAME_LEN + 48], part[sizeof note + 4 * NAME_LEN + 8];
    int n;

    snprintf(note, sizeof note, fmt, arg);
    n = snprintf(part, sizeof part, "%s%s%s", t->count ? ", " : "", name, note);
    t->count++;
    if (t->left_out || t->used + (size_t)n >= t->size) {
        t->left_out++;
        return;
    }
    memcpy(t->buf + t->used, part, (size_t)n + 1);
    t->used += (size_t)n;
}

/* ------------------------------------------------------------------------------------- one of them */

static bool counts(const struct tei_option_row *r, const char *value)
{
    return value && tei_value_is_set(r, value);
}

/* One that an option has: it has no effect if nothing reads it, or its other name is set, too. */
static void look_at_known(struct text *t, const struct tei_option_row *r, const char *name,
                          const char *value)
{
    if (!counts(r, value))
        return;
    if (r->idle)
        add(t, name, " (known, but nothing reads it)%s", "");
    else if (strcmp(r->name, name) != 0 && counts(r, tei_conf_variable(r->name)))
        add(t, name, " (%s is set)", r->name);
}

static void look_at(struct text *t, const char *entry)
{
    size_t len = strcspn(entry, "=");
    char name[4 * NAME_LEN + 8] = "";
    const struct tei_option_row *r;
    const char *near;

    if ((strncmp(entry, "MC_", 3) != 0 && strncmp(entry, "TE_", 3) != 0) || !entry[len])
        return;
    show(entry, len, name, sizeof name);
    r = tei_option_find(name);
    if (r) {
        look_at_known(t, r, name, entry + len + 1);
        return;
    }
    if (!entry[len + 1] || tei_option_is_others(name))
        return;
    near = strlen(name) < NAME_LEN ? nearest(name) : NULL;
    add(t, name, near ? " (%s?)" : "%s", near ? near : "");
}

size_t tei_conf_unused(char *buf, size_t n)
{
    struct text t = {.buf = buf, .size = n - 32};

    buf[0] = '\0';
    for (char **at = environ; at && *at; at++)
        look_at(&t, *at);
    if (t.left_out)
        snprintf(buf + t.used, n - t.used, " and %zu more", t.left_out);
    return t.count;
}

void tei_conf_tell_unused(void)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    char names[1024];

    if (!atomic_flag_test_and_set(&told) && tei_conf_unused(names, sizeof names))
        TEI_WARN("variables of the environment without effect: %s; te_info --config lists those "
                 "that have one",
                 names);
}
