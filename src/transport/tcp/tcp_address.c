/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_address.c - the further addresses of an engine, for peers to use all its network cards.
 *
 * A peer knows one address, that of the handshake port. Where the host has several cards, the
 * others stand in the descriptor, te.tcp.addresses, and the peer's lanes are dealt out over all.
 * What is announced by itself: an address of each other card that is up and is hardware
 * (/sys/class/net/NAME/device), of the same family, if the engine's own address is on such a card,
 * too. Bridges and tunnels carry addresses that mean something else on the next host; a peer that
 * meets another engine at an address tells by the greeting, and leaves it alone from then on.
 */
#include "transport/tcp/tcp_peer.h"

#include "base/err.h"
#include "base/hex.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_hardware(const char *interface)
{
    char path[64 + IF_NAMESIZE];

    snprintf(path, sizeof path, "/sys/class/net/%s/device", interface);
    return access(path, F_OK) == 0;
}

static bool text_of(const struct sockaddr *a, char *out, socklen_t n)
{
    socklen_t len = a->sa_family == AF_INET    ? sizeof(struct sockaddr_in)
                    : a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                               : 0;

    return len && getnameinfo(a, len, out, n, NULL, 0, NI_NUMERICHOST) == 0 && !strchr(out, '%');
}

static bool is_usable(const struct ifaddrs *i)
{
    return i->ifa_addr && (i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING) &&
           !(i->ifa_flags & IFF_LOOPBACK) && is_hardware(i->ifa_name);
}

/* The entry of our own address, NULL if it is not on a card. */
static const struct ifaddrs *find_own(const struct ifaddrs *all, const char *own)
{
    char text[64];

    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (is_usable(i) && text_of(i->ifa_addr, text, sizeof text) && strcmp(text, own) == 0)
            return i;
    return NULL;
}

/* One address of each other card. */
static int add_others(const struct ifaddrs *all, const struct ifaddrs *own, json_t *out)
{
    const char *last = own->ifa_name;
    char text[64];

    for (const struct ifaddrs *i = all; i && json_array_size(out) < TCP_ADDRS_MAX;
         i = i->ifa_next) {
        if (!is_usable(i) || i->ifa_addr->sa_family != own->ifa_addr->sa_family ||
            strcmp(i->ifa_name, own->ifa_name) == 0 || strcmp(i->ifa_name, last) == 0 ||
            !text_of(i->ifa_addr, text, sizeof text))
            continue;
        last = i->ifa_name;
        if (json_array_append_new(out, json_string(text)) < 0)
            return TEI_FAIL(TE_ERR_MEMORY, "no memory for the addresses of this host");
    }
    return 0;
}

static int find_cards(const struct tcp *t, json_t *out)
{
    struct tei_hostport own;
    struct ifaddrs *all;
    const struct ifaddrs *i;
    int rc = 0;

    if (tei_hostport_read(t->base.host->segment_name, 1, &own) || getifaddrs(&all) < 0)
        return 0; /* one address is enough */
    i = find_own(all, own.host);
    if (i)
        rc = add_others(all, i, out);
    freeifaddrs(all);
    return rc;
}

static int read_list(const char *list, json_t *out)
{
    char *copy = strdup(list), *save = NULL;
    int rc = copy ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for TE_TCP_ADDRESSES");

    for (char *s = copy ? strtok_r(copy, ", ", &save) : NULL; s && !rc;
         s = strtok_r(NULL, ", ", &save)) {
        struct tei_addr a;

        if (!tei_resolve_numeric(s, 1, &a))
            rc = TEI_FAIL(TE_ERR_INVALID,
                          "TE_TCP_ADDRESSES: '%.64s' is no address in numbers; write such as "
                          "10.0.0.1,fd00::1, without ports",
                          s);
        else if (json_array_size(out) == TCP_ADDRS_MAX)
            rc =
                TEI_FAIL(TE_ERR_INVALID, "TE_TCP_ADDRESSES: more than %d addresses; leave some out",
                         TCP_ADDRS_MAX);
        else if (json_array_append_new(out, json_string(s)) < 0)
            rc = TEI_FAIL(TE_ERR_MEMORY, "no memory for TE_TCP_ADDRESSES");
    }
    free(copy);
    return rc;
}

int tei_tcp_addresses_find(struct tcp *t)
{
    const char *list = t->conf->tcp_addresses, *bind = t->base.host->bind_host;

    t->addresses = json_array();
    if (!t->addresses)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the addresses of this host");
    if (*list)
        return read_list(list, t->addresses);
    if (bind[0] && !tei_is_wildcard(bind)) /* no other is listened on */
        return 0;
    return find_cards(t, t->addresses);
}

/* ---------------------------------------------------------------------------------- descriptors */

static bool read_id(const char *text, uint64_t *id)
{
    return tei_hex_number(text, id) && *id != 0;
}

bool tei_tcp_addresses_read(const json_t *root, struct tcp_target *target)
{
    const json_t *tcp = json_object_get(json_object_get(root, "te"), "tcp");
    const json_t *list = json_object_get(tcp, "addresses"), *item;
    const json_int_t framing = json_integer_value(json_object_get(tcp, "framing"));
    size_t i;

    if (framing < TCP_NATIVE_FIRST ||
        !read_id(json_string_value(json_object_get(tcp, "id")), &target->id))
        return false;
    target->framing = framing > TCP_NATIVE_VERSION ? TCP_NATIVE_VERSION : (unsigned)framing;
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(item);

        if (target->n_more < TCP_ADDRS_MAX && text && strcmp(text, target->where.host) != 0 &&
            tei_resolve_numeric(text, target->where.port, &target->more[target->n_more]))
            target->n_more++;
    }
    return true;
}
