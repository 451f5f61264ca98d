/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/check_part.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/capability.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common_names.h"
#include "plat/plat.h"
#include "te.h"
#include "te_info/file.h"

#define BUFFER_LEAST (UINT64_C(1) << 20) /* of one connection */

/* ----------------------------------------------------------------------------------------- ports */

/* Whether a port of ours that connections may be given is not reserved. */
static bool is_shared(const struct tei_conf *conf, unsigned long low, unsigned long high,
                      const char *reserved)
{
    for (unsigned long port = conf->min_rpc_port; port <= conf->max_rpc_port; port++)
        if (port >= low && port <= high && !check_list_has(reserved, port))
            return true;
    return false;
}

void check_ports(const struct check_host *h, struct check *c)
{
    unsigned min = h->conf->min_rpc_port, max = h->conf->max_rpc_port;
    char line[FILE_LINE], reserved[FILE_LINE];
    unsigned long low, high;

    if (!file_line(line, "%s/sys/net/ipv4/ip_local_port_range", h->proc) ||
        sscanf(line, "%lu %lu", &low, &high) != 2) {
        check_say(c, CHECK_ABSENT, "%u-%u; the range of outgoing connections is not known", min,
                  max);
        return;
    }
    file_line(reserved, "%s/sys/net/ipv4/ip_local_reserved_ports", h->proc);
    if (!is_shared(h->conf, low, high, reserved)) {
        check_say(c, CHECK_OK, "%u-%u; outgoing connections have others", min, max);
        return;
    }
    check_say(c, CHECK_WARN,
              "%u-%u: outgoing connections (net.ipv4.ip_local_port_range is %lu-%lu) may take one",
              min, max, low, high);
    check_advise(c,
                 "sysctl -w net.ipv4.ip_local_reserved_ports=%.300s%s%u-%u, or other ports by "
                 "MC_MIN_RPC_PORT and MC_MAX_RPC_PORT",
                 reserved, reserved[0] ? "," : "", min, max);
}

/* ------------------------------------------------------------------------------------------- TCP */

/* Whether a list has the word, between blanks. */
static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = list; (at = strstr(at, word)); at += len)
        if ((at == list || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0'))
            return true;
    return false;
}

/* One that was asked for: the kernel must have it, and must let this process use it. */
static void check_own_congestion(const struct check_host *h, struct check *c)
{
    const char *own = h->conf->tcp_congestion;
    char list[FILE_LINE];

    if (file_line(list, "%s/sys/net/ipv4/tcp_available_congestion_control", h->proc) &&
        !has_word(list, own)) {
        check_say(c, CHECK_WARN, "TE_TCP_CONGESTION is %s, which is not loaded: it has no effect",
                  own);
        check_advise(c, "modprobe tcp_%s, or one of these: %.200s", own, list);
        return;
    }
    if (file_line(list, "%s/sys/net/ipv4/tcp_allowed_congestion_control", h->proc) &&
        !has_word(list, own) && !check_capable(h, CAP_NET_ADMIN)) {
        check_say(c, CHECK_WARN, "TE_TCP_CONGESTION is %s, which not every user may choose", own);
        check_advise(c, "sysctl -w net.ipv4.tcp_allowed_congestion_control='%.200s %s'", list, own);
        return;
    }
    check_say(c, CHECK_OK, "%s (TE_TCP_CONGESTION)", own);
}

void check_congestion(const struct check_host *h, struct check *c)
{
    char line[FILE_LINE];

    if (h->conf->tcp_congestion[0]) {
        check_own_congestion(h, c);
        return;
    }
    if (!file_line(line, "%s/sys/net/ipv4/tcp_congestion_control", h->proc)) {
        check_say(c, CHECK_ABSENT, "not known");
        return;
    }
    if (strcmp(line, "bbr") != 0) {
        check_say(c, CHECK_OK, "%.64s; within a host reno", line);
        return;
    }
    check_say(c, CHECK_WARN, "bbr, which paces, to other hosts; within a host reno");
    check_advise(c, "TE_TCP_CONGESTION=cubic in a data centre, =bbr to keep it (docs/tuning.md)");
}

/* The largest of the three sizes in a file; UINT64_MAX if there is none. */
static uint64_t largest(const struct check_host *h, const char *name)
{
    char line[FILE_LINE];
    uint64_t max;

    return file_line(line, "%s/sys/net/ipv4/%s", h->proc, name) &&
                   sscanf(line, "%*u %*u %" SCNu64, &max) == 1
               ? max
               : UINT64_MAX;
}

void check_tcp_buffers(const struct check_host *h, struct check *c)
{
    uint64_t in = largest(h, "tcp_rmem"), out = largest(h, "tcp_wmem");
    char sizes[2][CHECK_SIZE];

    if (in == UINT64_MAX || out == UINT64_MAX) {
        check_say(c, CHECK_ABSENT, "not known");
        return;
    }
    check_say(c, CHECK_OK, "up to %s to receive, %s to send", check_size(in, sizes[0]),
              check_size(out, sizes[1]));
    if (in >= BUFFER_LEAST && out >= BUFFER_LEAST)
        return;
    c->result = CHECK_WARN;
    check_advise(c, "sysctl -w net.ipv4.tcp_rmem='4096 131072 6291456' net.ipv4.tcp_wmem='4096 "
                    "16384 4194304', more for a long way (docs/tuning.md)");
}

void check_listen_queue(const struct check_host *h, struct check *c)
{
    int want = h->conf->handshake_backlog, most;
    char line[FILE_LINE];

    if (!file_line(line, "%s/sys/net/core/somaxconn", h->proc)) {
        check_say(c, CHECK_ABSENT, "not known");
        return;
    }
    most = atoi(line);
    check_say(c, CHECK_OK, "%d connections", most < want ? most : want);
    if (most >= want)
        return;
    check_say(c, CHECK_WARN,
              "%d connections (net.core.somaxconn), less than MC_HANDSHAKE_LISTEN_BACKLOG (%d)",
              most, want);
    check_advise(c, "sysctl -w net.core.somaxconn=%d", want);
}

/* ------------------------------------------------------------------------------------ interfaces */

struct interfaces {
    size_t others; /* than lo */
    bool lo_down;
    char up[CHECK_TEXT / 2]; /* names */
};

/* One that is up may still have no link. */
static bool is_up(const struct check_host *h, const char *name)
{
    char line[FILE_LINE];

    if (!file_line(line, "%s/class/net/%s/flags", h->sysfs, name) ||
        !(strtoul(line, NULL, 16) & IFF_UP))
        return false;
    return !file_line(line, "%s/class/net/%s/operstate", h->sysfs, name) ||
           strcmp(line, "up") == 0 || strcmp(line, "unknown") == 0;
}

static void add_interface(const struct check_host *h, const char *name, struct interfaces *all)
{
    bool up = is_up(h, name);

    if (strcmp(name, "lo") == 0) {
        all->lo_down = !up;
        return;
    }
    all->others++;
    if (up)
        names_add(all->up, sizeof all->up, name);
}

static int is_visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static bool list_interfaces(const struct check_host *h, struct interfaces *all)
{
    struct dirent **names;
    char path[PATH_MAX];
    int n;

    snprintf(path, sizeof path, "%s/class/net", h->sysfs);
    n = scandir(path, &names, is_visible, versionsort);
    if (n < 0)
        return false;
    for (int i = 0; i < n; i++) {
        add_interface(h, names[i]->d_name, all);
        free(names[i]);
    }
    free(names);
    return true;
}

void check_interfaces(const struct check_host *h, struct check *c)
{
    struct interfaces all = {0};

    if (!list_interfaces(h, &all)) {
        check_say(c, CHECK_ABSENT, "not known");
    } else if (all.lo_down) {
        check_say(c, CHECK_FAIL, "lo is down: no two engines of this host reach each other");
        check_advise(c, "ip link set lo up");
    } else if (all.others && !all.up[0]) {
        check_say(c, CHECK_WARN, "none is up but lo: other hosts are out of reach");
        check_advise(c, "ip link set NAME up; ip link lists the names");
    } else {
        check_say(c, CHECK_OK, all.others ? "up: %s" : "lo only%s", all.up);
    }
}

/* ------------------------------------------------------------------------------------- RDMA NICs */

struct nics {
    size_t used, left_out, broken;
    char names[CHECK_TEXT / 4];
    char why[CHECK_TEXT / 2]; /* of the first one that is broken */
};

static void add_nic(const struct tei_nic *nic, struct nics *all)
{
    if (nic->usable) {
        all->used++;
        names_add(all->names, sizeof all->names, nic->name);
    } else if (strncmp(nic->why, "MC_TE_FILTERS", 13) == 0) {
        all->left_out++;
    } else if (all->broken++ == 0) {
        snprintf(all->why, sizeof all->why, "%.63s: %.180s", nic->name, nic->why);
    }
}

static void tell_nics(const struct nics *all, struct check *c)
{
    char counts[64] = "";

    if (all->left_out)
        snprintf(counts, sizeof counts, "; options leave %zu out", all->left_out);
    check_say(c, CHECK_OK, "%zu: %s%s", all->used, all->used ? all->names : "none is used", counts);
    if (!all->broken)
        return;
    check_say(c, CHECK_WARN, "%zu can be used%s%s, %zu cannot: %s", all->used,
              all->used ? ": " : "", all->names, all->broken, all->why);
    check_advise(c, "te_info --links tells why of each; docs/troubleshooting.md, \"A NIC is not "
                    "used\", has the remedies");
}

void check_rdma(const struct check_host *h, struct check *c)
{
    const struct tei_look look = tei_look_from(h->conf, NULL);
    struct nics all = {0};
    struct tei_nics found;

    if (!TE_USE_RDMA || tei_nics_list(&look, &found)) {
        check_say(c, CHECK_ABSENT, "%s", TE_USE_RDMA ? te_errmsg() : "not in this build");
        return;
    }
    for (size_t i = 0; i < found.n; i++)
        add_nic(&found.v[i], &all);
    if (found.n)
        tell_nics(&all, c);
    else
        check_say(c, CHECK_ABSENT, "none");
    tei_nics_fini(&found);
    if (all.used || !h->conf->force_hca)
        return;
    c->result = CHECK_FAIL;
    if (!c->remedy[0])
        check_advise(c, "MC_FORCE_HCA asks for one: unset it, or give the container the device");
}
