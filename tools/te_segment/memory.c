/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - what can be known of a segment of memory before its engine is up: its protocol, and of
 * rdma its NICs, with the addresses they have, and which memory prefers which of them.
 */
#include "te_segment/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "plat/plat.h"
#include "te_segment/text.h"

#define DEVICES_MAX 256        /* of a descriptor */
#define DEVICE_NAME 63         /* bytes of its name */
#define MATRIX_MAX  (1u << 20) /* bytes of a file */
#define GID_BYTES   16
#define GID_TEXT    48
#define LID_MAX     65535

/* What is gathered. */
struct advance {
    const struct job *job;
    struct tei_nics nics; /* of this host */
    struct tei_topology matrix;
    json_t *devices;
};

/* ---- one device */

static bool gid_of_bytes(const char *text, unsigned char gid[GID_BYTES])
{
    for (size_t i = 0; i < GID_BYTES; i++, text += 3) {
        char end = i + 1 < GID_BYTES ? ':' : '\0';

        if (strspn(text, "0123456789abcdefABCDEF") != 2 || text[2] != end)
            return false;
        gid[i] = (unsigned char)strtoul(text, NULL, 16);
    }
    return true;
}

/* "fe:80:..", 16 bytes, or an address of IPv6 in any of its forms; written as the former. Not of zeros alone. */
static bool read_gid(const char *text, char out[GID_TEXT])
{
    static const unsigned char none[GID_BYTES];
    unsigned char gid[GID_BYTES];

    if (!gid_of_bytes(text, gid) && inet_pton(AF_INET6, text, gid) != 1)
        return false;
    if (memcmp(gid, none, sizeof gid) == 0)
        return false;
    for (size_t i = 0; i < GID_BYTES; i++)
        snprintf(out + 3 * i, 4, i + 1 < GID_BYTES ? "%02x:" : "%02x", gid[i]);
    return true;
}

static int find_nic(const struct advance *a, const char *name, int *lid, const char **gid)
{
    for (size_t i = 0; i < a->nics.n; i++) {
        const struct tei_nic *nic = &a->nics.v[i];

        if (strcmp(nic->name, name) != 0)
            continue;
        if (!nic->gid[0])
            return fail(
                FAILED,
                "device '%s' of this host has no GID at its port %d: give --devices=%s/LID/GID",
                name, nic->port, name);
        *lid = nic->lid;
        *gid = nic->gid;
        return 0;
    }
    return fail(FAILED,
                "this host has no device '%s': for an engine of another host give "
                "--devices=%s/LID/GID",
                name, name);
}

static bool is_known(const json_t *devices, const char *name)
{
    const json_t *one;
    size_t i;

    json_array_foreach(devices, i, one) {
        if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0)
            return true;
    }
    return false;
}

static int add_device(struct advance *a, const char *name, int lid, const char *gid)
{
    char text[GID_TEXT];

    if (!text_is_plain(name, DEVICE_NAME))
        return fail(USAGE, "--devices: '%.100s' is no name of a device", name);
    if (is_known(a->devices, name))
        return fail(USAGE, "--devices names '%s' twice", name);
    if (json_array_size(a->devices) == DEVICES_MAX)
        return fail(USAGE, "--devices names more than %d devices", DEVICES_MAX);
    if (!gid) {
        int rc = find_nic(a, name, &lid, &gid);

        if (rc)
            return rc;
    }
    if (!read_gid(gid, text))
        return fail(USAGE,
                    "--devices: '%.100s' is no GID: it is an IPv6 address, or 16 hexadecimal bytes "
                    "with colons, and not all of it is 0",
                    gid);
    if (json_array_append_new(a->devices,
                              json_pack("{ss si ss}", "name", name, "lid", lid, "gid", text)))
        return fail(FAILED, "no memory for the devices");
    return 0;
}

/* ---- devices */

/* "NAME" or "NAME/LID/GID", cut apart in place. */
static int read_device(struct advance *a, char *item)
{
    char *lid_text = strchr(item, '/'), *gid = lid_text ? strchr(lid_text + 1, '/') : NULL;
    char *end = NULL;
    unsigned long lid;

    if (!lid_text)
        return add_device(a, item, 0, NULL);
    if (!gid)
        return fail(USAGE, "--devices: '%.100s' is neither NAME nor NAME/LID/GID", item);
    *lid_text++ = *gid++ = '\0';
    lid = strtoul(lid_text, &end, 0);
    if (end == lid_text || *end || lid_text[0] == '-' || lid > LID_MAX)
        return fail(USAGE, "--devices: '%.100s' is no LID of a device: it is 0 to %d", lid_text,
                    LID_MAX);
    return add_device(a, item, (int)lid, gid);
}

static int read_devices(struct advance *a)
{
    size_t n;
    char **items = text_split(a->job->settings->devices, &n);
    int rc = items ? 0 : fail(FAILED, "no memory for the devices");

    for (size_t i = 0; i < n && !rc; i++)
        rc = read_device(a, items[i]);
    free(items);
    return rc;
}

static int devices_of_matrix(struct advance *a)
{
    const char **names;
    size_t n;
    int rc = 0;

    if (tei_topology_devices(&a->matrix, &names, &n))
        return fail(FAILED, "no memory for the devices");
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_device(a, names[i], 0, NULL);
    free(names);
    return rc;
}

/* ---- matrix */

static int read_matrix(struct advance *a)
{
    const char *path = a->job->settings->matrix;
    char *text = malloc(MATRIX_MAX);
    FILE *f = fopen(path, "re");
    size_t n = f && text ? fread(text, 1, MATRIX_MAX, f) : 0;
    int rc = 0;

    if (!f || ferror(f))
        rc = fail(FAILED, "cannot read --matrix=%s: %s", path, strerror(errno));
    else if (!text)
        rc = fail(FAILED, "no memory for the matrix");
    else if (n == MATRIX_MAX)
        rc = fail(FAILED, "--matrix=%s is larger than %u bytes", path, MATRIX_MAX - 1);
    else if (tei_topology_decode(text, n, &a->matrix))
        rc = fail(FAILED, "--matrix=%s: %s", path, te_errmsg());
    if (f)
        fclose(f);
    free(text);
    return rc;
}

/* Peers number the devices of the matrix, and expect as many of them. */
static int check_matrix(const struct advance *a)
{
    const char **names;
    size_t n, unknown = 0;

    if (tei_topology_devices(&a->matrix, &names, &n))
        return fail(FAILED, "no memory for the matrix");
    while (unknown < n && is_known(a->devices, names[unknown]))
        unknown++;
    if (unknown < n)
        fail(USAGE, "--matrix names '%.100s', which --devices does not", names[unknown]);
    else if (n < json_array_size(a->devices))
        fail(USAGE, "--devices names %zu devices, --matrix only %zu of them",
             json_array_size(a->devices), n);
    free(names);
    return unknown < n || n < json_array_size(a->devices) ? USAGE : 0;
}

/* "a,b", malloc'ed. */
static char *names_of(const json_t *devices)
{
    char *text = calloc(json_array_size(devices) + 1, DEVICE_NAME + 1), *at = text;
    const json_t *one;
    size_t i;

    json_array_foreach(devices, i, one) {
        if (at)
            at +=
                sprintf(at, "%s%s", i ? "," : "", json_string_value(json_object_get(one, "name")));
    }
    return text;
}

/* As for an engine that is given names alone: all memory prefers all of them. */
static int make_matrix(struct advance *a)
{
    char *names = names_of(a->devices);
    int *nodes = NULL, rc = names ? 0 : TE_ERR_MEMORY;
    size_t n = 0;

    if (!rc)
        rc = tei_numa_nodes(a->job->registry.conf->sysfs_path, &nodes, &n);
    if (!rc)
        rc = tei_topology_from_devices(names, nodes, n, &a->matrix);
    free(nodes);
    free(names);
    return rc ? fail(FAILED, "no matrix can be made of --devices: %s", te_errmsg()) : 0;
}

/* ---- all */

static int gather(struct advance *a)
{
    const struct settings *s = a->job->settings;
    struct tei_look look = tei_look_from(a->job->registry.conf, NULL);
    int rc;

    a->devices = json_array();
    if (!a->devices || tei_nics_list(&look, &a->nics))
        return fail(FAILED, "no memory for the devices");
    rc = s->matrix[0] ? read_matrix(a) : 0;
    if (!rc)
        rc = s->devices[0] ? read_devices(a) : devices_of_matrix(a);
    if (!rc && !json_array_size(a->devices))
        rc = fail(USAGE, "--matrix=%s names no NIC: peers could not open the segment", s->matrix);
    if (!rc)
        rc = s->matrix[0] ? check_matrix(a) : make_matrix(a);
    return rc;
}

/* Older readers look for the name under server_name. */
/* Sixteen zeros: no life of an engine has written this. */
static json_t *te_object(void)
{
    return json_pack("{si ss si sI}", "v", 1, "incarnation", "0000000000000000", "version", 0,
                     "written", (json_int_t)tei_wall_ms());
}

static json_t *descriptor(const struct advance *a)
{
    const char *name = a->job->name;
    char when[40];
    json_t *root;

    tei_timestamp(when, sizeof when);
    root = json_pack("{s[] ss ss ss si si so ss}", "buffers", "name", name, "server_name", name,
                     "protocol", a->job->settings->protocol, "tcp_data_port", 0,
                     "tcp_proto_version", 1, "te", te_object(), "timestamp", when);
    if (root && a->devices &&
        (json_object_set(root, "devices", a->devices) ||
         json_object_set_new(root, "priority_matrix", tei_topology_json(&a->matrix)))) {
        json_decref(root);
        return NULL;
    }
    return root;
}

int memory_descriptor(const struct job *j, char **text, size_t *len)
{
    struct advance a = {.job = j};
    int rc = strcmp(j->settings->protocol, "rdma") == 0 ? gather(&a) : 0;
    json_t *root = rc ? NULL : descriptor(&a);

    *text = root ? tei_json_text(root, len) : NULL;
    if (!rc && !*text)
        rc = fail(FAILED, "no memory for the descriptor");
    json_decref(root);
    json_decref(a.devices);
    tei_topology_fini(&a.matrix);
    tei_nics_fini(&a.nics);
    return rc;
}
