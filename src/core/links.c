/* SPDX-License-Identifier: Apache-2.0 */
/*
 * links.c - the topology, and the NICs as far as discovery and the transports that use them know
 * them.
 */
#include "core/core.h"
#include "plat/plat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    return TEI_FAIL(TE_ERR_MEMORY, "no memory for the topology");
}

static int dump_out(const json_t *j, char *buf, size_t n)
{
    char *text = tei_json_text(j, NULL);
    int rc = text ? tei_text_give(text, buf, n) : no_memory();

    free(text);
    return rc;
}

/* ------------------------------------------------------------------------------------- topology */

/* The matrix that was given; NULL if none was. */
static int given_matrix(te_engine *e, json_t **out)
{
    bool given;

    pthread_mutex_lock(&e->admin);
    given = e->matrix.given != NULL;
    *out = given ? tei_topology_json(e->matrix.given) : NULL;
    pthread_mutex_unlock(&e->admin);
    return given && !*out ? no_memory() : 0;
}

/* The matrix that was given, else what the machine shows, whose NICs are told too. */
static int look_around(te_engine *e, struct tei_nics *nics, json_t **out)
{
    const struct tei_look look = tei_look_from(&e->conf, NULL);
    struct tei_topology found = {0};
    int rc = given_matrix(e, out);

    if (rc || (*out && !nics))
        return rc;
    rc = tei_discover(&look, nics, &found);
    if (!rc && !*out)
        *out = tei_topology_json(&found);
    tei_topology_fini(&found);
    if (!rc && *out)
        return 0;
    json_decref(*out);
    if (!rc && nics)
        tei_nics_fini(nics);
    return rc ? rc : no_memory();
}

int te_topology_json(te_engine *e, char *buf, size_t n)
{
    json_t *j;
    int rc = tei_engine_check(e);

    if (!rc)
        rc = look_around(e, NULL, &j);
    if (rc)
        return rc;
    rc = dump_out(j, buf, n);
    json_decref(j);
    return rc;
}

/* ----------------------------------------------------------------------------------------- NICs */

static json_t *nic_json(const struct tei_nic *nic)
{
    json_t *j =
        json_pack("{ss si ss si si sf ss ss ss sb ss}", "device", nic->name, "numa", nic->numa,
                  "gid", nic->gid, "gid_index", nic->gid_index, "port", nic->port, "speed_gbps",
                  nic->speed_gbps, "state", nic->state, "link_layer", nic->link_layer, "pci",
                  nic->pci, "usable", nic->usable, "source", "topology");

    if (!nic->usable)
        tei_json_set(&j, "why", json_string(nic->why));
    return j;
}

/* NULL when memory is out. */
static json_t *nics_json(const struct tei_nics *nics)
{
    json_t *all = json_array();

    for (size_t i = 0; i < nics->n; i++)
        tei_json_append(&all, nic_json(&nics->v[i]));
    return all;
}

/* The object of that device; a new one where discovery has not found it. NULL: no memory. */
static json_t *nic_of(json_t *all, const char *device)
{
    json_t *nic;
    size_t i;

    json_array_foreach(all, i, nic) {
        const char *name = json_string_value(json_object_get(nic, "device"));

        if (name && strcmp(name, device) == 0)
            return nic;
    }
    nic = json_pack("{ss}", "device", device);
    return json_array_append_new(all, nic) == 0 ? nic : NULL;
}

/* What a transport says of its NICs goes over what was found. */
static int take_links(struct tei_transport *t, json_t *all)
{
    json_t *told = json_array(), *one;
    char source[64];
    size_t i;
    int rc = told ? t->ops.links(t, told) : TE_ERR_MEMORY;

    snprintf(source, sizeof(source), "%s_transport", t->ops.name);
    json_array_foreach(told, i, one) {
        const char *device = json_string_value(json_object_get(one, "device"));
        json_t *nic = !rc && device ? nic_of(all, device) : NULL;

        if (!rc && device &&
            (!nic || json_object_update(nic, one) != 0 ||
             json_object_set_new(nic, "source", json_string(source)) != 0))
            rc = TE_ERR_MEMORY;
    }
    json_decref(told);
    return rc;
}

static int ask_transports(struct transports *s, json_t *all)
{
    int rc = 0;

    pthread_rwlock_rdlock(&s->lock);
    for (size_t i = 0; !rc && i < s->n; i++)
        if (s->list[i])
            rc = take_links(s->list[i], all);
    pthread_rwlock_unlock(&s->lock);
    return rc;
}

static int list_nics(te_engine *e, const struct tei_nics *nics, json_t **out)
{
    json_t *all = nics_json(nics);
    int rc = all ? ask_transports(&e->transports, all) : TE_ERR_MEMORY;

    if (rc) {
        json_decref(all);
        return rc == TE_ERR_MEMORY ? no_memory() : rc;
    }
    *out = all;
    return 0;
}

/* ----------------------------------------------------------------------------------------- text */

static const char *text_of(const json_t *nic, const char *key)
{
    const char *text = json_string_value(json_object_get(nic, key));

    return text ? text : "";
}

static long long number_of(const json_t *nic, const char *key, long long absent)
{
    const json_t *j = json_object_get(nic, key);

    return json_is_integer(j) ? json_integer_value(j) : absent;
}

static void print_load(const json_t *nic, FILE *f)
{
    if (json_object_get(nic, "inflight_bytes"))
        fprintf(f, "  inflight=%lldB", number_of(nic, "inflight_bytes", 0));
    if (json_object_get(nic, "bandwidth_bps"))
        fprintf(f, "  measured=%.2fGbps",
                json_number_value(json_object_get(nic, "bandwidth_bps")) / 1e9);
}

/* First what every version of this text has had, then what else there is to know. */
static void print_nic(const json_t *nic, FILE *f)
{
    const char *state = text_of(nic, "state"), *layer = text_of(nic, "link_layer");
    double speed = json_number_value(json_object_get(nic, "speed_gbps"));

    fprintf(f, "  %s  NUMA=%lld", text_of(nic, "device"), number_of(nic, "numa", -1));
    if (text_of(nic, "gid")[0])
        fprintf(f, "  GID=%s (idx=%lld)", text_of(nic, "gid"), number_of(nic, "gid_index", -1));
    fprintf(f, "  Port=%lld", number_of(nic, "port", -1));
    if (speed > 0)
        fprintf(f, "  %gGbps", speed);
    fprintf(f, "%s%s%s%s", state[0] ? "  " : "", state, layer[0] ? "  " : "", layer);
    print_load(nic, f);
    if (json_is_true(json_object_get(nic, "used")))
        fprintf(f, "  used");
    else if (json_is_false(json_object_get(nic, "usable")))
        fprintf(f, "  not usable: %s", text_of(nic, "why"));
    else if (json_is_false(json_object_get(nic, "used")))
        fprintf(f, "  not used: %s", text_of(nic, "why"));
    else if (strcmp(text_of(nic, "source"), "topology") == 0)
        fprintf(f, "  (topology only; RDMA transport not initialized)");
    fprintf(f, "\n");
}

static void print_devices(const char *title, const json_t *names, FILE *f)
{
    fprintf(f, "%s: [", title);
    for (size_t i = 0; i < json_array_size(names); i++)
        fprintf(f, "%s%s", i ? ", " : "", json_string_value(json_array_get(names, i)));
    fprintf(f, "]");
}

static void print_links(const json_t *nics, const json_t *topology, FILE *f)
{
    const char *location;
    json_t *row;

    fprintf(f, "=== Local NICs ===\n");
    for (size_t i = 0; i < json_array_size(nics); i++)
        print_nic(json_array_get(nics, i), f);
    if (json_array_size(nics) == 0)
        fprintf(f, "  (no RDMA devices found)\n");
    fprintf(f, "=== Topology (NIC Selection) ===\n");
    json_object_foreach((json_t *)topology, location, row) {
        fprintf(f, "  %s -> ", location);
        print_devices("preferred", json_array_get(row, 0), f);
        fprintf(f, "  ");
        print_devices("available", json_array_get(row, 1), f);
        fprintf(f, "\n");
    }
}

static int text_out(const json_t *nics, const json_t *topology, char *buf, size_t n)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    bool whole;
    int rc;

    if (!f)
        return no_memory();
    print_links(nics, topology, f);
    whole = !ferror(f);
    whole = fclose(f) == 0 && text && whole;
    rc = whole ? tei_text_give(text, buf, n) : no_memory();
    free(text);
    return rc;
}

static int json_out(json_t *nics, json_t *topology, char *buf, size_t n)
{
    json_t *all = json_pack("{sOsO}", "local_nics", nics, "topology", topology);
    int rc = all ? dump_out(all, buf, n) : no_memory();

    json_decref(all);
    return rc;
}

int te_links(te_engine *e, int json, char *buf, size_t n)
{
    json_t *topology, *nics = NULL;
    struct tei_nics found;
    int rc = tei_engine_check(e);

    if (!rc)
        rc = look_around(e, &found, &topology);
    if (rc)
        return rc;
    rc = list_nics(e, &found, &nics);
    if (!rc)
        rc = json ? json_out(nics, topology, buf, n) : text_out(nics, topology, buf, n);
    json_decref(nics);
    json_decref(topology);
    tei_nics_fini(&found);
    return rc;
}
