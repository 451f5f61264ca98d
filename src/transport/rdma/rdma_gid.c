/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/rdma/rdma_gid.h"

#include "base/err.h"
#include "base/hex.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ----------------------------------------------------------------------------------------- text */

void tei_gid_text(const uint8_t gid[TEI_GID_BYTES], char out[TEI_GID_TEXT])
{
    for (size_t i = 0; i < TEI_GID_BYTES; i++)
        snprintf(out + 3 * i, 4, i + 1 < TEI_GID_BYTES ? "%02x:" : "%02x", gid[i]);
}

/* Groups of `width` bytes with colons between them. */
static bool parse_groups(const char *text, size_t width, uint8_t gid[TEI_GID_BYTES])
{
    uint8_t bytes[TEI_GID_BYTES];

    for (size_t i = 0; i < TEI_GID_BYTES; i++) {
        if (i && i % width == 0 && *text++ != ':')
            return false;
        if (!tei_hex_read(text, &bytes[i], 1))
            return false;
        text += 2;
    }
    if (*text)
        return false;
    memcpy(gid, bytes, sizeof(bytes));
    return true;
}

bool tei_gid_parse(const char *text, uint8_t gid[TEI_GID_BYTES])
{
    return parse_groups(text, 1, gid) || parse_groups(text, 2, gid);
}

bool tei_gid_is_null(const uint8_t gid[TEI_GID_BYTES])
{
    static const uint8_t none[TEI_GID_BYTES];

    return memcmp(gid, none, sizeof(none)) == 0;
}

/* --------------------------------------------------------------------------------------- scopes */

enum scope {
    V4_GLOBAL,
    V4_PRIVATE,
    V4_LINK,
    V4_LOOPBACK,
    V6_GLOBAL,
    V6_UNIQUE,
    V6_LINK,
    V6_LOOPBACK,
    V6_NULL
};

static bool is_v4(const uint8_t *gid)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

/* 10/8, 172.16/12 and 100.64/10: what the networks of pods and other overlays are made of. */
static bool is_pod_range(const uint8_t a[4])
{
    return a[0] == 10 || (a[0] == 172 && a[1] >> 4 == 1) || (a[0] == 100 && a[1] >> 6 == 1);
}

static enum scope scope_of_v4(const uint8_t a[4])
{
    if (a[0] == 127)
        return V4_LOOPBACK;
    if (a[0] == 169 && a[1] == 254)
        return V4_LINK;
    return is_pod_range(a) || (a[0] == 192 && a[1] == 168) ? V4_PRIVATE : V4_GLOBAL;
}

static enum scope scope_of(const uint8_t *gid)
{
    static const uint8_t loopback[TEI_GID_BYTES] = {[15] = 1};

    if (is_v4(gid))
        return scope_of_v4(gid + 12);
    if (tei_gid_is_null(gid))
        return V6_NULL;
    if (memcmp(gid, loopback, sizeof(loopback)) == 0)
        return V6_LOOPBACK;
    if (gid[0] == 0xfe && gid[1] >> 6 == 2)
        return V6_LINK;
    return gid[0] >> 1 == 0xfc >> 1 ? V6_UNIQUE : V6_GLOBAL;
}

const char *tei_gid_scope_name(const uint8_t gid[TEI_GID_BYTES])
{
    static const char *const names[] = {
        [V4_GLOBAL] = "public IPv4",
        [V4_PRIVATE] = "private IPv4",
        [V4_LINK] = "link-local IPv4",
        [V4_LOOPBACK] = "loopback IPv4",
        [V6_GLOBAL] = "global IPv6",
        [V6_UNIQUE] = "unique-local IPv6",
        [V6_LINK] = "link-local IPv6",
        [V6_LOOPBACK] = "loopback IPv6",
        [V6_NULL] = "null",
    };

    return names[scope_of(gid)];
}

/* ---------------------------------------------------------------------------------------- table */

/* What a file of the port holds, without the end of its line; false if it is empty or too long. */
static bool read_file(int port, const char *path, char *out, size_t n)
{
    int fd = openat(port, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = fd < 0 ? -1 : read(fd, out, n);

    if (fd >= 0)
        close(fd);
    if (got <= 0 || (size_t)got == n)
        return false;
    out[got] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return out[0] != '\0';
}

static bool read_attr(int port, const char *folder, int index, char *out, size_t n)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/%d", folder, index);
    return read_file(port, path, out, n);
}

/* The kernel has one name for the GIDs of InfiniBand and of RoCE v1. */
static bool read_type(int port, int index, bool infiniband, int *out)
{
    char text[32];

    if (!read_attr(port, "gid_attrs/types", index, text, sizeof(text)))
        return false;
    if (strcmp(text, "RoCE v2") == 0)
        *out = TEI_GID_ROCE_V2;
    else if (strcmp(text, "IB/RoCE v1") == 0)
        *out = infiniband ? TEI_GID_IB : TEI_GID_ROCE_V1;
    else
        return false;
    return true;
}

/* The kernel refuses to tell the interface of another network namespace, or that there is none. */
static void read_ndev(int port, int index, struct tei_gid_entry *e)
{
    char name[sizeof(e->ndev) + 2]; /* one more than fits, and the end of the line */

    if (!read_attr(port, "gid_attrs/ndevs", index, name, sizeof(name)) ||
        strlen(name) >= sizeof(e->ndev))
        return;
    for (const char *c = name; *c; c++)
        if (*c <= ' ' || *c > '~')
            return;
    memcpy(e->ndev, name, strlen(name));
}

static bool read_entry(int port, int index, bool infiniband, struct tei_gid_entry *e)
{
    char text[TEI_GID_TEXT];

    memset(e, 0, sizeof(*e));
    e->index = index;
    if (!read_attr(port, "gids", index, text, sizeof(text)) || !tei_gid_parse(text, e->gid) ||
        tei_gid_is_null(e->gid) || !read_type(port, index, infiniband, &e->type))
        return false;
    read_ndev(port, index, e);
    return true;
}

/* The number that a file of the table is named by; -1 for another name. */
static int index_of(const char *name)
{
    size_t n = strlen(name);

    if (n == 0 || n > 6 || strspn(name, "0123456789") != n || (name[0] == '0' && n > 1))
        return -1;
    return atoi(name);
}

static int by_number(const void *a, const void *b)
{
    const int *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The numbers in the folder "gids", ascending; how many. */
static size_t list_indexes(DIR *dir, int out[TEI_GID_MAX])
{
    const struct dirent *d;
    size_t n = 0;

    while (n < TEI_GID_MAX && (d = readdir(dir))) {
        int index = index_of(d->d_name);

        if (index >= 0)
            out[n++] = index;
    }
    qsort(out, n, sizeof(*out), by_number);
    return n;
}

static int read_table(int port, DIR *dir, struct tei_gid_entry **out, size_t *n)
{
    int indexes[TEI_GID_MAX];
    size_t listed = list_indexes(dir, indexes), kept = 0;
    struct tei_gid_entry *all = calloc(listed ? listed : 1, sizeof(*all));
    char link_layer[32];
    bool infiniband;

    if (!all)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a table of %zu GIDs", listed);
    infiniband = read_file(port, "link_layer", link_layer, sizeof(link_layer)) &&
                 strcmp(link_layer, "InfiniBand") == 0;
    for (size_t i = 0; i < listed; i++)
        if (read_entry(port, indexes[i], infiniband, &all[kept]))
            kept++;
    if (!kept) {
        free(all);
        all = NULL;
    }
    *out = all;
    *n = kept;
    return 0;
}

int tei_gid_table_read(const char *port_dir, struct tei_gid_entry **out, size_t *n)
{
    int port = open(port_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), gids, rc;
    DIR *dir;

    if (port < 0)
        return TEI_FAIL(TE_ERR_NO_DEVICE, "port %s: %s", port_dir, tei_errno_text(errno));
    gids = openat(port, "gids", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir = gids < 0 ? NULL : fdopendir(gids);
    if (!dir) {
        rc = TEI_FAIL(TE_ERR_NO_DEVICE, "port %s: its GIDs: %s", port_dir, tei_errno_text(errno));
        if (gids >= 0)
            close(gids);
        close(port);
        return rc;
    }
    rc = read_table(port, dir, out, n);
    closedir(dir);
    close(port);
    return rc;
}

static const char *type_name(int type)
{
    switch (type) {
    case TEI_GID_IB:
        return "InfiniBand";
    case TEI_GID_ROCE_V1:
        return "RoCE v1";
    default:
        return "RoCE v2";
    }
}

void tei_gid_describe(const struct tei_gid_entry *e, char *out, size_t n)
{
    char address[INET6_ADDRSTRLEN] = "";

    if (is_v4(e->gid))
        inet_ntop(AF_INET, e->gid + 12, address, sizeof(address));
    else
        inet_ntop(AF_INET6, e->gid, address, sizeof(address));
    snprintf(out, n, "%s (%s%s%s, %s, index %d)", address, tei_gid_scope_name(e->gid),
             e->ndev[0] ? " on " : "", e->ndev, type_name(e->type), e->index);
}

/* --------------------------------------------------------------------------------------- choice */

/* Ranks, best first. */
enum {
    ROUTABLE_WITH_NDEV,
    ROUTABLE,
    PRIVATE_WITH_NDEV,
    DEGRADED_WITH_NDEV,
    PRIVATE,
    DEGRADED,
    ONLY_ROCE_V1
};

/* Interfaces that lead into a container or an overlay, hardly to where the peer is. */
static bool is_virtual(const char *ndev)
{
    static const char *const prefixes[] = {"flannel", "cni", "calico", "vxlan", "docker"};

    for (size_t i = 0; i < TEI_ARRAY_LEN(prefixes); i++)
        if (strncmp(ndev, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return strcmp(ndev, "tunl0") == 0;
}

static bool is_degraded(const struct tei_gid_entry *e)
{
    switch (scope_of(e->gid)) {
    case V4_LINK:
    case V4_LOOPBACK:
    case V6_LINK:
    case V6_LOOPBACK:
        return true;
    default:
        return is_virtual(e->ndev);
    }
}

int tei_gid_rank(const struct tei_gid_entry *e)
{
    bool named = e->ndev[0] != '\0';

    if (tei_gid_is_null(e->gid))
        return -1;
    if (e->type == TEI_GID_ROCE_V1)
        return ONLY_ROCE_V1;
    if (e->type != TEI_GID_IB && is_degraded(e))
        return named ? DEGRADED_WITH_NDEV : DEGRADED;
    if (is_v4(e->gid) && is_pod_range(e->gid + 12))
        return named ? PRIVATE_WITH_NDEV : PRIVATE;
    return named ? ROUTABLE_WITH_NDEV : ROUTABLE;
}

/* What must be alike on both sides for a packet to find its way, 2, or at least may, 1. */
static int likeness(const struct tei_gid_entry *e, const uint8_t *peer)
{
    enum scope own = scope_of(e->gid), other = scope_of(peer);
    bool own_global = own == V6_GLOBAL || own == V6_UNIQUE;
    bool other_global = other == V6_GLOBAL || other == V6_UNIQUE;

    if (e->type == TEI_GID_IB)
        return 2; /* one fabric, one kind of address; its subnets are told by their prefix */
    if (own == other || (own <= V4_PRIVATE && other <= V4_PRIVATE))
        return 2;
    return own_global && other_global ? 1 : 0;
}

static int bits_in_common(const uint8_t *a, const uint8_t *b, int bits)
{
    int n = 0;

    while (n < bits && !((a[n / 8] ^ b[n / 8]) & 0x80 >> n % 8))
        n++;
    return n;
}

/*
 * Bits of prefix in common. Networks of IPv4 have 16 bits and more, those of IPv6 and InfiniBand
 * 64: below, only whole bytes and whole groups count, and above 64 begins the host.
 */
static int nearness(const uint8_t *own, const uint8_t *peer)
{
    int n;

    if (is_v4(own) != is_v4(peer))
        return 0;
    if (is_v4(own)) {
        n = bits_in_common(own + 12, peer + 12, 32);
        return n < 16 ? n / 8 * 8 : n;
    }
    n = bits_in_common(own, peer, 64);
    return n / 16 * 16;
}

/* What decides between two entries, in this order; more is better in the first two. */
struct merit {
    int like, near, rank, index;
};

static struct merit weigh(const struct tei_gid_entry *e, const uint8_t *peer)
{
    return (struct merit){.like = peer ? likeness(e, peer) : 0,
                          .near = peer ? nearness(e->gid, peer) : 0,
                          .rank = tei_gid_rank(e),
                          .index = e->index};
}

static bool is_better(struct merit a, struct merit b)
{
    if (a.like != b.like)
        return a.like > b.like;
    if (a.near != b.near)
        return a.near > b.near;
    return a.rank != b.rank ? a.rank < b.rank : a.index < b.index;
}

static bool has_v2(const struct tei_gid_entry *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (all[i].type == TEI_GID_ROCE_V2 && !tei_gid_is_null(all[i].gid))
            return true;
    return false;
}

int tei_gid_pick(const struct tei_gid_entry *all, size_t n, const uint8_t *peer,
                 const uint64_t *tried, size_t *out)
{
    bool v2 = has_v2(all, n);
    struct merit best = {0};
    size_t at = n;

    if (peer && tei_gid_is_null(peer))
        peer = NULL;
    for (size_t i = 0; i < n; i++) {
        struct merit m = weigh(&all[i], peer);

        if (m.rank < 0 || (v2 && all[i].type == TEI_GID_ROCE_V1) ||
            (tried && tried[i / 64] >> i % 64 & 1))
            continue;
        if (at == n || is_better(m, best)) {
            at = i;
            best = m;
        }
    }
    if (at == n)
        return TE_ERR_NOT_FOUND;
    *out = at;
    return 0;
}
