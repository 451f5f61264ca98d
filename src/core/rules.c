/* SPDX-License-Identifier: Apache-2.0 */
/* rules.c - te_paths: read, and told. */
#include "core/rules.h"
#include "base/err.h"
#include "base/sized.h"
#include "core/install.h"

#include <stdio.h>

/* A bit for each transport that is built in. */
static uint32_t built_in(void)
{
    uint32_t bits = 0;

    for (size_t i = 0; tei_transport_at(i); i++)
        bits |= 1u << i;
    return bits;
}

/* The next name of a list, without blanks around it, copied to `name`; false: there is none. */
static bool next_name(const char **list, char *name, size_t n)
{
    size_t length;

    *list += strspn(*list, ", ");
    length = strcspn(*list, ", ");
    snprintf(name, n, "%.*s", (int)tei_min(length, n - 1), *list);
    *list += length;
    return length > 0;
}

static int place_of(const char *name, size_t *place)
{
    const struct tei_transport_ops *ops;
    int rc = tei_install_find(name, &ops);

    for (*place = 0; !rc && tei_transport_at(*place) != ops;)
        ++*place;
    return rc;
}

/* The bits of a list's names; with `rank` these are ranked in their order, too. */
static int read_list(const char *list, uint32_t *bits, uint8_t *rank)
{
    uint8_t worth = TEI_TRANSPORTS_MAX;
    char name[64];
    int rc = 0;

    *bits = 0;
    if (list && *list && !list[strspn(list, ", ")])
        return TEI_FAIL(TE_ERR_INVALID, "te_paths: '%.64s' names no transport", list);
    while (!rc && list && next_name(&list, name, sizeof(name))) {
        size_t place = 0;

        rc = place_of(name, &place);
        if (!rc && rank && !rank[place])
            rank[place] = worth--;
        if (!rc)
            *bits |= 1u << place;
    }
    return rc;
}

enum { PATHS_FIRST_SIZE = TEI_SIZE_UP_TO(te_paths, forbid) };
static_assert(PATHS_FIRST_SIZE <= sizeof(te_paths), "te_paths may only grow");

int tei_rules_read(const te_paths *given, struct rules *out, bool *said)
{
    te_paths known = {.size = sizeof(known)};
    uint32_t required = 0, preferred = 0, forbidden = 0;
    int rc = 0;

    *out = (struct rules){0};
    if (given)
        rc = tei_sized_take(&known, sizeof(known), PATHS_FIRST_SIZE, given, "te_paths");
    if (!rc)
        rc = read_list(known.require, &required, NULL);
    if (!rc)
        rc = read_list(known.prefer, &preferred, out->rank);
    if (!rc)
        rc = read_list(known.forbid, &forbidden, NULL);
    if (!rc && required && !(required & ~forbidden))
        rc = TEI_FAIL(TE_ERR_INVALID, "te_paths: all that is required, %s, is forbidden, too",
                      known.require);
    if (required)
        forbidden |= built_in() & ~required;
    out->forbidden = (uint16_t)forbidden;
    out->prefers = preferred != 0;
    *said = forbidden || preferred;
    return rc;
}

/* ------------------------------------------------------------------------------------------ told */

static size_t add_name(char *buf, size_t n, size_t used, const char *what, const char *name)
{
    if (used >= n)
        return used;
    return used + (size_t)snprintf(buf + used, n - used, "%s%s", what, name);
}

/* `what` and the names of those that are allowed. */
static size_t add_allowed(const struct rules *x, char *buf, size_t n)
{
    const struct tei_transport_ops *ops;
    const char *what = "only ";
    size_t used = 0;

    for (size_t i = 0; (ops = tei_transport_at(i)); i++)
        if (tei_rules_allow(x, i)) {
            used = add_name(buf, n, used, what, ops->name);
            what = ", ";
        }
    return used;
}

void tei_rules_text(const struct rules *x, char *buf, size_t n)
{
    const char *what;
    size_t used = 0;

    snprintf(buf, n, x && x->forbidden ? "none" : "any");
    if (!x)
        return;
    if (x->forbidden)
        used = add_allowed(x, buf, n);
    what = used ? "; rather " : "rather ";
    for (unsigned worth = TEI_TRANSPORTS_MAX; worth; worth--)
        for (size_t i = 0; tei_transport_at(i); i++)
            if (x->rank[i] == worth) {
                used = add_name(buf, n, used, what, tei_transport_at(i)->name);
                what = ", ";
            }
}
