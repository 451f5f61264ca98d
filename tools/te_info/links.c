/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/links.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LINE_MAX_LEN 256

/* ------------------------------------------------------------------------------- files of sysfs */

/* The first line of a file, without its newline; false if there is none. */
__attribute__((format(printf, 2, 3))) static bool read_line(char line[LINE_MAX_LEN],
                                                            const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list args;
    FILE *f;
    bool ok;

    va_start(args, fmt);
    vsnprintf(path, sizeof path, fmt, args);
    va_end(args);
    f = fopen(path, "re");
    if (!f)
        return false;
    ok = fgets(line, LINE_MAX_LEN, f) != NULL;
    fclose(f);
    if (ok)
        line[strcspn(line, "\n")] = '\0';
    return ok;
}

/* The number in a line, null for what is none or negative: sysfs says -1 for "unknown". */
static json_t *number_or_null(bool ok, const char *line)
{
    char *end;
    long long n = ok ? strtoll(line, &end, 10) : -1;

    return ok && end != line && n >= 0 ? json_integer(n) : json_null();
}

/* Names in a folder, sorted; the number of them, 0 if it is not there. */
static int list(const char *path, struct dirent ***names)
{
    int n = scandir(path, names, NULL, alphasort);

    if (n < 0)
        *names = NULL;
    return n < 0 ? 0 : n;
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
    char line[LINE_MAX_LEN];
    json_t *one = json_object();
    bool ok;

    json_object_set_new(one, "name", json_string(a->ifa_name));
    json_object_set_new(one, "up", json_boolean(a->ifa_flags & IFF_UP));
    json_object_set_new(one, "running", json_boolean(a->ifa_flags & IFF_RUNNING));
    ok = read_line(line, "%s/class/net/%s/speed", sysfs, a->ifa_name);
    json_object_set_new(one, "speed_mbps", number_or_null(ok, line));
    ok = read_line(line, "%s/class/net/%s/mtu", sysfs, a->ifa_name);
    json_object_set_new(one, "mtu", number_or_null(ok, line));
    ok = read_line(line, "%s/class/net/%s/device/numa_node", sysfs, a->ifa_name);
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

/* --------------------------------------------------------------------------------- RDMA devices */

static json_t *new_port(const char *folder, const char *port)
{
    static const char *const files[][2] = {
        {"state", "state"}, {"rate", "rate"}, {"link_layer", "link_layer"}};
    char line[LINE_MAX_LEN];
    json_t *one = json_object();

    json_object_set_new(one, "port", json_integer(atoi(port)));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        bool ok = read_line(line, "%s/ports/%s/%s", folder, port, files[i][1]);

        /* "4: ACTIVE": the word says it all. */
        json_object_set_new(one, files[i][0],
                            ok ? json_string(line + (line[0] && line[1] == ':' ? 3 : 0))
                               : json_null());
    }
    return one;
}

static json_t *new_device(const char *sysfs, const char *name)
{
    char folder[PATH_MAX], path[PATH_MAX + 16], line[LINE_MAX_LEN];
    json_t *one = json_object(), *ports = json_array();
    struct dirent **names;
    bool ok;
    int n;

    snprintf(folder, sizeof folder, "%s/class/infiniband/%s", sysfs, name);
    snprintf(path, sizeof path, "%s/ports", folder);
    ok = read_line(line, "%s/device/numa_node", folder);
    json_object_set_new(one, "name", json_string(name));
    json_object_set_new(one, "numa", number_or_null(ok, line));
    n = list(path, &names);
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.')
            json_array_append_new(ports, new_port(folder, names[i]->d_name));
        free(names[i]);
    }
    free(names);
    json_object_set_new(one, "ports", ports);
    return one;
}

json_t *links_rdma(const char *sysfs)
{
    json_t *all = json_array();
    struct dirent **names;
    char path[PATH_MAX];
    int n;

    snprintf(path, sizeof path, "%s/class/infiniband", sysfs);
    n = list(path, &names);
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.')
            json_array_append_new(all, new_device(sysfs, names[i]->d_name));
        free(names[i]);
    }
    free(names);
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

static void print_device(const json_t *one)
{
    const json_t *ports = json_object_get(one, "ports");
    char number[32], state[64], rate[64], layer[64];

    printf("  %-16s NUMA node %s\n", json_string_value(json_object_get(one, "name")),
           text_of(one, "numa", number, sizeof number));
    for (size_t i = 0; i < json_array_size(ports); i++) {
        const json_t *port = json_array_get(ports, i);

        printf("      port %s: %s, %s, %s\n", text_of(port, "port", number, sizeof number),
               text_of(port, "state", state, sizeof state),
               text_of(port, "rate", rate, sizeof rate),
               text_of(port, "link_layer", layer, sizeof layer));
    }
}

void links_print(const json_t *interfaces, const json_t *rdma)
{
    printf("Network interfaces\n");
    for (size_t i = 0; i < json_array_size(interfaces); i++)
        print_interface(json_array_get(interfaces, i));
    printf("\nRDMA devices\n");
    for (size_t i = 0; i < json_array_size(rdma); i++)
        print_device(json_array_get(rdma, i));
    if (json_array_size(rdma) == 0)
        printf("  none\n");
}
