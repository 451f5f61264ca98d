/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - the JSON description of a fabric, and the tree that looks like /sys and /dev.
 */
#include "fabric/softverbs/fabric.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------ the description */

static int complain(const char *what, const char *detail)
{
    fprintf(stderr, "softverbs: %s%s%s\n", what, *detail ? ": " : "", detail);
    errno = EINVAL;
    return -1;
}

static char *read_file(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *in = fopen(path, "re");

    if (!in)
        return NULL;
    if (getdelim(&text, &size, '\0', in) < 0) {
        free(text);
        text = NULL;
    }
    fclose(in);
    return text;
}

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    return hash;
}

static double number(const json_t *object, const char *key, double fallback)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : fallback;
}

static void copy_text(const json_t *object, const char *key, const char *fallback, char *out,
                      size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));
    size_t n = strnlen(text ? text : fallback, size - 1);

    memcpy(out, text ? text : fallback, n);
    out[n] = '\0';
}

static void read_limits(const json_t *nic, struct sv_limits *out)
{
    const json_t *j = json_object_get(nic, "limits");

    out->max_qp = (int)number(j, "max_qp", 8192);
    out->max_qp_wr = (int)number(j, "max_qp_wr", 16384);
    out->max_cq = (int)number(j, "max_cq", 65536);
    out->max_cqe = (int)number(j, "max_cqe", 1 << 20);
    out->max_mr = (int)number(j, "max_mr", SV_MAX_MRS);
    out->max_pd = (int)number(j, "max_pd", 65536);
    out->max_sge = (int)number(j, "max_sge", SV_MAX_SGE);
    out->max_inline = (int)number(j, "max_inline", 512);
    out->max_qp_rd_atom = (int)number(j, "max_qp_rd_atom", 16);
    out->max_mr_size = (uint64_t)number(j, "max_mr_size", 1e18);
    if (out->max_sge > (int)SV_MAX_SGE)
        out->max_sge = SV_MAX_SGE;
}

static bool read_mtu(const json_t *nic, enum ibv_mtu *out)
{
    int mtu = (int)number(nic, "mtu", 4096);

    for (int i = IBV_MTU_256; i <= IBV_MTU_4096; i++)
        if (mtu == 128 << i) {
            *out = (enum ibv_mtu)i;
            return true;
        }
    return false;
}

static int read_gid(struct sv_gid *out, const char *text, const char *type, bool ethernet)
{
    union ibv_gid gid;
    uint32_t kind = ethernet ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB;

    if (inet_pton(AF_INET6, text, gid.raw) != 1)
        return complain("not a GID", text);
    if (ethernet && type && strstr(type, "v1"))
        kind = IBV_GID_TYPE_ROCE_V1;
    out->prefix = gid.global.subnet_prefix;
    out->id = gid.global.interface_id;
    out->type = kind;
    return 0;
}

static int read_gids(const json_t *j, uint32_t index, struct sv_nic *nic)
{
    const json_t *gids = json_object_get(j, "gids");
    const json_t *types = json_object_get(j, "gid_types");
    char text[64];

    snprintf(text, sizeof(text), "fe80::5054:ff:fe00:%x", index + 1);
    if (!json_is_array(gids))
        return read_gid(&nic->gids[0], text, NULL, nic->ethernet);
    if (json_array_size(gids) > SV_MAX_GIDS)
        return complain("too many GIDs", nic->name);
    for (size_t i = 0; i < json_array_size(gids); i++) {
        const char *gid = json_string_value(json_array_get(gids, i));
        const char *type = json_string_value(json_array_get(types, i));

        if (read_gid(&nic->gids[i], gid ? gid : "", type, nic->ethernet))
            return -1;
    }
    return 0;
}

static int read_nic(const json_t *j, uint32_t index, struct sv_nic *nic)
{
    char text[64];

    copy_text(j, "name", "", nic->name, sizeof(nic->name));
    if (nic->name[0] == '\0' || strchr(nic->name, '/'))
        return complain("a NIC needs a name", nic->name);
    copy_text(j, "host", "", nic->host, sizeof(nic->host));
    snprintf(text, sizeof(text), "0000:%02x:00.0", 0x10 + index);
    copy_text(j, "pci", text, nic->pci, sizeof(nic->pci));
    copy_text(j, "link_layer", "Ethernet", text, sizeof(text));
    nic->ethernet = strcmp(text, "InfiniBand") != 0;
    nic->numa = (int)number(j, "numa", -1);
    nic->instant = json_is_true(json_object_get(j, "instant"));
    nic->same_keys = json_is_true(json_object_get(j, "same_keys"));
    nic->peermem = json_is_true(json_object_get(j, "peermem"));
    nic->latency_ns = (int64_t)(number(j, "latency_us", 5) * SV_US);
    nic->rate = (uint64_t)(number(j, "gbps", 0) * 1e9 / 8);
    nic->lid = (uint32_t)number(j, "lid", nic->ethernet ? 0 : index + 1);
    nic->port_up = 1;
    copy_text(j, "down", "never", text, sizeof(text));
    nic->down_retries = strcmp(text, "retry") == 0;
    if (!read_mtu(j, &nic->mtu))
        return complain("mtu must be 256, 512, 1024, 2048 or 4096", nic->name);
    read_limits(j, &nic->limits);
    return read_gids(j, index, nic);
}

static int read_root(const char *path, const json_t *root, struct sv_config *out)
{
    const json_t *nics = json_object_get(root, "nics");
    const char *dir = json_string_value(json_object_get(root, "dir"));
    const char *slash = strrchr(path, '/');

    if (dir)
        snprintf(out->dir, sizeof(out->dir), "%s", dir);
    else if (slash)
        snprintf(out->dir, sizeof(out->dir), "%.*s", (int)(slash - path), path);
    else
        snprintf(out->dir, sizeof(out->dir), ".");
    if (json_array_size(nics) > SV_MAX_NICS)
        return complain("too many NICs", path);
    out->n_nics = (uint32_t)json_array_size(nics);
    for (uint32_t i = 0; i < out->n_nics; i++)
        if (read_nic(json_array_get(nics, i), i, &out->nics[i]))
            return -1;
    return 0;
}

int sv_config_load(const char *path, struct sv_config *out)
{
    json_error_t error;
    char *text = read_file(path);
    json_t *root;
    int rc;

    if (!text)
        return complain("cannot read", path);
    memset(out, 0, sizeof(*out));
    out->hash = hash_text(text);
    root = json_loads(text, 0, &error);
    free(text);
    if (!root)
        return complain(path, error.text);
    rc = read_root(path, root, out);
    json_decref(root);
    return rc;
}

/* ------------------------------------------------------------------------------------- the tree */

void sv_tree_path(char *out, size_t size, const char *dir, const char *label, const char *rest, ...)
{
    va_list args;
    int n = snprintf(out, size, "%s/%s/", dir, *label ? label : "all");

    va_start(args, rest);
    if (n > 0 && (size_t)n < size)
        vsnprintf(out + n, size - (size_t)n, rest, args);
    va_end(args);
}

struct place { /* a folder of the tree */
    const char *dir, *label;
    const struct sv_nic *nic;
    uint32_t index;
};

static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
}

/* A reader sees the old text or the new one, never half of it. */
static void put(const struct place *p, const char *text, const char *rest, ...)
{
    char path[4200], name[256], temp[4300];
    va_list args;
    FILE *out;

    va_start(args, rest);
    vsnprintf(name, sizeof(name), rest, args);
    va_end(args);
    sv_tree_path(path, sizeof(path), p->dir, p->label, "sys/%s", name);
    make_folders(path);
    snprintf(temp, sizeof(temp), "%s.%d", path, (int)getpid());
    out = fopen(temp, "we");
    if (!out)
        return;
    fprintf(out, "%s\n", text);
    fclose(out);
    if (rename(temp, path))
        unlink(temp);
}

static void put_link(const struct place *p, const char *target, const char *rest, ...)
{
    char path[4200], name[256];
    va_list args;

    va_start(args, rest);
    vsnprintf(name, sizeof(name), rest, args);
    va_end(args);
    sv_tree_path(path, sizeof(path), p->dir, p->label, "%s", name);
    make_folders(path);
    unlink(path);
    if (symlink(target, path))
        perror(path);
}

static void put_gid(const struct place *p, uint32_t i)
{
    static const char *const types[] = {"IB/RoCE v1", "IB/RoCE v1", "RoCE v2"};
    const struct sv_gid *gid = &p->nic->gids[i];
    const char *base = p->nic->name;
    uint64_t halves[2] = {gid->prefix, gid->id};
    uint8_t raw[16];
    char text[64];
    int n = 0;

    memcpy(raw, halves, sizeof(raw));
    for (int k = 0; k < 16; k += 2)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%02x%02x", k ? ":" : "", raw[k],
                      raw[k + 1]);
    put(p, text, "class/infiniband/%s/ports/1/gids/%u", base, i);
    if (halves[0] == 0 && halves[1] == 0)
        return;
    put(p, types[gid->type], "class/infiniband/%s/ports/1/gid_attrs/types/%u", base, i);
    snprintf(text, sizeof(text), "eth%u", p->index);
    if (p->nic->ethernet)
        put(p, text, "class/infiniband/%s/ports/1/gid_attrs/ndevs/%u", base, i);
}

static void put_port(const struct place *p)
{
    const struct sv_nic *nic = p->nic;
    const char *base = nic->name;
    double gbps = (double)nic->rate * 8 / 1e9;
    char text[64];

    put(p, nic->port_up ? "4: ACTIVE" : "1: DOWN", "class/infiniband/%s/ports/1/state", base);
    put(p, nic->port_up ? "5: LinkUp" : "3: Disabled", "class/infiniband/%s/ports/1/phys_state",
        base);
    snprintf(text, sizeof(text), "%g Gb/sec (4X EDR)", gbps > 0 ? gbps : 100);
    put(p, text, "class/infiniband/%s/ports/1/rate", base);
    put(p, nic->ethernet ? "Ethernet" : "InfiniBand", "class/infiniband/%s/ports/1/link_layer",
        base);
    snprintf(text, sizeof(text), "0x%x", nic->lid);
    put(p, text, "class/infiniband/%s/ports/1/lid", base);
    for (uint32_t i = 0; i < SV_MAX_GIDS; i++)
        put_gid(p, i);
}

static void put_device(const struct place *p)
{
    const struct sv_nic *nic = p->nic;
    char text[256], bus[16];

    /* As in /sys: the class entries link to the device, which lies under its bus. */
    snprintf(bus, sizeof(bus), "%.7s", nic->pci);
    snprintf(text, sizeof(text), "%d", nic->numa);
    put(p, text, "devices/pci%s/%s/numa_node", bus, nic->pci);
    snprintf(text, sizeof(text), "../../../devices/pci%s/%s", bus, nic->pci);
    put_link(p, text, "sys/class/infiniband/%s/device", nic->name);
    put_link(p, text, "sys/class/infiniband_verbs/uverbs%u/device", p->index);
    put_link(p, text, "sys/bus/pci/devices/%s", nic->pci);
    put(p, nic->name, "class/infiniband_verbs/uverbs%u/ibdev", p->index);
    put(p, "6", "class/infiniband_verbs/uverbs%u/abi_version", p->index);
    put(p, "1: CA", "class/infiniband/%s/node_type", nic->name);
    snprintf(text, sizeof(text), "5054:00ff:fe00:%04x", p->index + 1);
    put(p, text, "class/infiniband/%s/node_guid", nic->name);
    put(p, text, "class/infiniband/%s/sys_image_guid", nic->name);
    put_link(p, "/dev/null", "dev/infiniband/uverbs%u", p->index);
    put_link(p, "/dev/null", "dev/uverbs%u", p->index);
}

int sv_tree_make(const char *dir, const struct sv_state *s)
{
    for (uint32_t i = 0; i < s->n_nics; i++) {
        struct place all = {dir, "all", &s->nics[i], i};
        struct place own = {dir, s->nics[i].host, &s->nics[i], i};

        put_device(&all);
        put_port(&all);
        if (s->nics[i].host[0]) {
            put_device(&own);
            put_port(&own);
        }
    }
    return 0;
}

void sv_tree_update(const char *dir, const struct sv_state *s, uint32_t nic)
{
    struct place all = {dir, "all", &s->nics[nic], nic};
    struct place own = {dir, s->nics[nic].host, &s->nics[nic], nic};

    put_port(&all);
    if (s->nics[nic].host[0])
        put_port(&own);
}
