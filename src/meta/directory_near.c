/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory_near.c - the names that may have been meant by one that a metadata server does not know.
 *
 * It costs a list of keys, so it is bounded: WAIT_MS of time, and KEYS_MAX keys, or of te_metad what one
 * answer may have; and engines make it only where the server lists cheaply. What keeps it from ending
 * well is logged and not told to the caller.
 */
#include "meta/directory.h"

#include "base/near.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 4096
#define WAIT_MS  500
#define SHOWN    3

struct near {
    const char *prefix, *name, *own;
    size_t keys, n;
    struct {
        char name[TEI_NEAR_MAX + 1];
        size_t distance;
    } best[SHOWN];
};

static bool is_plain(const char *name)
{
    for (; *name; name++)
        if (*name <= ' ' || *name > '~')
            return false;
    return true;
}

/* Nearest first; of those that are equally near, the one that was found first. */
static void keep_near(struct near *x, const char *name, size_t distance)
{
    size_t at = x->n;

    for (size_t i = 0; i < x->n; i++)
        if (strcmp(x->best[i].name, name) == 0)
            return;
    while (at > 0 && x->best[at - 1].distance > distance)
        at--;
    if (at == SHOWN)
        return;
    x->n = tei_min(x->n + 1, SHOWN);
    memmove(&x->best[at + 1], &x->best[at], (x->n - 1 - at) * sizeof x->best[0]);
    snprintf(x->best[at].name, sizeof x->best[at].name, "%s", name);
    x->best[at].distance = distance;
}

static int look_at_key(void *arg, const char *key)
{
    struct near *x = arg;
    const char *name = tei_keys_name(x->prefix, key);

    if (name && strcmp(name, x->own) != 0 && strlen(name) <= TEI_NEAR_MAX && is_plain(name)) {
        size_t distance = tei_near_distance(name, x->name);

        if (distance <= tei_near_limit(x->name))
            keep_near(x, name, distance);
    }
    return ++x->keys == KEYS_MAX;
}

static void write_near(const struct near *x, char *out, size_t n)
{
    size_t used = 0;

    for (size_t i = 0; i < x->n && used < n; i++)
        used += (size_t)snprintf(out + used, n - used, "%s'%s'", i ? ", " : "; did you mean ",
                                 x->best[i].name);
    if (!x->n)
        snprintf(out, n, "; te_segment list shows what is there");
    else if (used < n)
        snprintf(out + used, n - used, "?");
}

static bool has_near(const char *name)
{
    return tei_near_limit(name) > 0 && strlen(name) <= TEI_NEAR_MAX;
}

void tei_directory_near(struct tei_store *s, const struct tei_conf *conf, const char *own,
                        const char *name, bool may_list, char out[TEI_DIRECTORY_NEAR_MAX])
{
    char *prefix = may_list && has_near(name) ? tei_keys_prefix(conf) : NULL;
    const int64_t wait_ms =
        conf->metadata_timeout_ms < WAIT_MS ? conf->metadata_timeout_ms : WAIT_MS;
    struct near x = {.prefix = prefix, .name = name, .own = own};

    if (prefix)
        (void)s->ops->list(s, prefix, tei_deadline_ns(wait_ms), look_at_key, &x);
    free(prefix);
    write_near(&x, out, TEI_DIRECTORY_NEAR_MAX);
}
