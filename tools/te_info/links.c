/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/links.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "te_info/file.h"

/* The number in a line, null for what is none or negative: sysfs says -1 for "unknown". */
static json_t *number_or_null(bool ok, const char *line)
{
    char *end;
    long long n = ok ? strtoll(line, &end, 10) : -1;

    return ok && end != line && n >= 0 ? json_integer(n) : json_null();
}

/* --------------------------------------------------------------------------- network interfaces */

static json_t *find_named(const json_t *array, const char *name)
{
    size_t i;
    json_t *one;

    json_array_foreach((json_t *)array, i, one) {
        const char *other = json_string_value(json_object_get(one, "name"));

        if (other && strcmp(other, name) == 0)
            return one;
    }
    return NULL;
}

static json_t *new_interface(const char *sysfs, const struct ifaddrs *a)
{
    char line[FILE_LINE];
    json_t *one = json_object();
    bool ok;

    json_object_set_new(one, "name", json_string(a->ifa_name));
    json_object_set_new(one, "up", json_boolean(a->ifa_flags & IFF_UP));
    json_object_set_new(one, "running", json_boolean(a->ifa_flags & IFF_RUNNING));
    ok = file_line(line, "%s/class/net/%s/speed", sysfs, a->ifa_name);
    json_object_set_new(one, "speed_mbps", number_or_null(ok, line));
    ok = file_line(line, "%s/class/net/%s/mtu", sysfs, a->ifa_name);
    json_object_set_new(one, "mtu", number_or_null(ok, line));
    ok = file_line(line, "%s/class/net/%s/device/numa_node", sysfs, a->ifa_name);
    json_object_set_new(one, "numa", number_or_null(ok, line));
    json_object_set_new(one, "addresses", json_array());
    return one;
}

static void add_address(json_t *one, const struct sockaddr *sa)
{
    socklen_t len = sizeof(struct sockaddr_in6);
    char host[NI_MAXHOST];

    if (!sa || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
        return;
    if (sa->sa_family == AF_INET)
        len = sizeof(struct sockaddr_in);
    if (getnameinfo(sa, len, host, sizeof host, NULL, 0, NI_NUMERICHOST) == 0)
        json_array_append_new(json_object_get(one, "addresses"), json_string(host));
}

json_t *links_interfaces(const char *sysfs)
{
    json_t *all = json_array(), *one;
    struct ifaddrs *addrs;

    if (getifaddrs(&addrs)) {
        json_decref(all);
        return NULL;
    }
    for (const struct ifaddrs *a = addrs; a; a = a->ifa_next) {
        one = find_named(all, a->ifa_name);
        if (!one) {
            one = new_interface(sysfs, a);
            json_array_append_new(all, one);
        }
        add_address(one, a->ifa_addr);
    }
    freeifaddrs(addrs);
    return all;
}

/* ----------------------------------------------------------------------------------------- text */

/* A member as text, "?" for null. */
static const char *text_of(const json_t *object, const char *key, char *buf, size_t n)
{
    const json_t *member = json_object_get(object, key);

    if (json_is_integer(member))
        snprintf(buf, n, "%lld", (long long)json_integer_value(member));
    else
        snprintf(buf, n, "%s", json_is_string(member) ? json_string_value(member) : "?");
    return buf;
}

static void print_interface(const json_t *one)
{
    const char *state = json_is_true(json_object_get(one, "up")) ? "up" : "down";
    const json_t *addresses = json_object_get(one, "addresses");
    char speed[32], mtu[32], numa[32];

    if (json_is_true(json_object_get(one, "up")) && json_is_false(json_object_get(one, "running")))
        state = "up, no carrier";
    printf("  %-16s %-14s speed %s Mb/s, mtu %s, NUMA node %s\n",
           json_string_value(json_object_get(one, "name")), state,
           text_of(one, "speed_mbps", speed, sizeof speed), text_of(one, "mtu", mtu, sizeof mtu),
           text_of(one, "numa", numa, sizeof numa));
    for (size_t i = 0; i < json_array_size(addresses); i++)
        printf("      %s\n", json_string_value(json_array_get(addresses, i)));
}

void links_print_interfaces(const json_t *interfaces)
{
    printf("Network interfaces\n");
    for (size_t i = 0; i < json_array_size(interfaces); i++)
        print_interface(json_array_get(interfaces, i));
}

/* A member that is text, "" for what is none. */
static const char *word(const json_t *nic, const char *key)
{
    const char *text = json_string_value(json_object_get(nic, key));

    return text ? text : "";
}

static double number(const json_t *nic, const char *key)
{
    return json_number_value(json_object_get(nic, key));
}

/* What the engine makes of it. */
static void print_use(const json_t *nic)
{
    const json_t *used = json_object_get(nic, "used");

    if (json_is_true(used))
        printf("      used, %.0f bytes under way, %.2f Gb/s measured\n",
               number(nic, "inflight_bytes"), number(nic, "bandwidth_bps") / 1e9);
    else if (json_is_false(used))
        printf("      not used: %s\n", word(nic, "why"));
    else if (json_is_false(json_object_get(nic, "usable")))
        printf("      not usable: %s\n", word(nic, "why"));
    else
        printf("      usable; the rdma transport is not installed\n");
}

static void print_nic(const json_t *nic)
{
    const char *pci = word(nic, "pci"), *gid = word(nic, "gid");
    char node[16] = "unknown";

    if (number(nic, "numa") >= 0)
        snprintf(node, sizeof node, "%.0f", number(nic, "numa"));
    printf("  %-16s NUMA node %s%s%s\n", word(nic, "device"), node, pci[0] ? ", PCI " : "", pci);
    if (word(nic, "state")[0])
        printf("      port %.0f: %s, %g Gb/s, %s\n", number(nic, "port"), word(nic, "state"),
               number(nic, "speed_gbps"), word(nic, "link_layer"));
    if (gid[0])
        printf("      GID %s (index %.0f)\n", gid, number(nic, "gid_index"));
    print_use(nic);
}

void links_print_nics(const json_t *nics)
{
    printf("RDMA devices\n");
    for (size_t i = 0; i < json_array_size(nics); i++)
        print_nic(json_array_get(nics, i));
    if (json_array_size(nics) == 0)
        printf("  none\n");
}
