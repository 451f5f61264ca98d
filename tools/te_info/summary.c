/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/summary.h"

#include <stdio.h>
#include <string.h>

#include "meta/meta.h"
#include "te.h"
#include "te_info/changed.h"
#include "te_info/text.h"
#include "transport/transport.h"

#define WHY_MAX  256
#define COLUMN   16 /* where what is told of a name begins */
#define LIST_MAX 128

/* Whether this host can run it; else why not. */
static bool runs(const struct tei_transport_ops *t, const struct tei_conf *conf, char why[WHY_MAX])
{
    why[0] = '\0';
    return !t->probe || t->probe(conf, why, WHY_MAX);
}

/* ------------------------------------------------------------------------------------------- JSON */

void summary_json(const struct check_host *h, json_t *out)
{
    json_t *transports = json_array(), *servers = json_array();
    const struct tei_transport_ops *t;
    const char *scheme;
    char why[WHY_MAX];

    for (size_t i = 0; (t = tei_transport_at(i)); i++) {
        bool here = runs(t, h->conf, why);

        json_array_append_new(transports, json_pack("{ss sb ss}", "name", t->name, "runs",
                                                    (int)here, "why", why));
    }
    for (size_t i = 0; (scheme = tei_store_scheme(i)); i++)
        json_array_append_new(servers, json_string(scheme));
    json_object_set_new(out, "transports", transports);
    json_object_set_new(out, "metadata_servers", servers);
}

/* ------------------------------------------------------------------------------------------- text */

static void print_servers(void)
{
    char list[LIST_MAX] = "P2PHANDSHAKE";
    const char *scheme;

    for (size_t i = 0; (scheme = tei_store_scheme(i)); i++) {
        size_t used = strlen(list);

        snprintf(list + used, sizeof list - used, ", %s", scheme);
    }
    printf("%-*s", COLUMN, "Metadata");
    text_cut(list, COLUMN);
}

/* The transport at `i`, and those behind it that are missing for the same reason. The next one's place. */
static size_t print_transport(const struct tei_conf *conf, size_t i)
{
    const struct tei_transport_ops *t = tei_transport_at(i);
    char why[WHY_MAX], same[WHY_MAX], nor[LIST_MAX] = "", line[WHY_MAX + LIST_MAX + 16];
    bool here = runs(t, conf, why);

    printf("  %-*s", COLUMN - 2, t->name);
    while (!here && (t = tei_transport_at(++i)) && !runs(t, conf, same) && strcmp(same, why) == 0) {
        size_t used = strlen(nor);

        snprintf(nor + used, sizeof nor - used, ", nor %s", t->name);
    }
    snprintf(line, sizeof line, "%s%s%s%s", here ? "yes" : "no", nor, here ? "" : ": ", why);
    text_cut(line, COLUMN);
    return here ? i + 1 : i;
}

static void print_transports(const struct tei_conf *conf)
{
    printf("Transports\n");
    for (size_t i = 0; tei_transport_at(i);)
        i = print_transport(conf, i);
}

static void print_host(const struct check *all, size_t n)
{
    static const char *const names[] = {"CPUs", "memory", "network", "RDMA NICs", "GPUs"};

    printf("This host\n");
    for (size_t i = 0; i < TEI_ARRAY_LEN(names); i++) {
        const struct check *c = check_find(all, n, names[i]);

        printf("  %-*s", COLUMN - 2, names[i]);
        text_cut(c->value, COLUMN);
    }
}

void summary_print(const struct check_host *h, const struct check *all, size_t n)
{
    size_t options, changed = changed_count(h->conf, &options);
    char sum[CHECK_TEXT];

    printf("Transfer Engine %s\n", te_version());
    print_servers();
    print_transports(h->conf);
    print_host(all, n);
    printf("%-*s%s: te_info --check\n", COLUMN, "Checks", check_sum(all, n, sum));
    printf("%-*s%zu of %zu differ from their defaults: te_info --changed\n", COLUMN, "Options",
           changed, options);
    printf("%-*s--links (interfaces, NICs), --topology (NICs by memory), --config (all options),\n",
           COLUMN, "More");
    printf("%*s--metadata_server=CONN --segment=NAME (the way to a segment), --help\n", COLUMN, "");
}
