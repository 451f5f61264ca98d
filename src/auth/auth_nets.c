/* SPDX-License-Identifier: Apache-2.0 */
/* auth_nets.c - TE_AUTH_CLASSIC: addresses of peers that need no proof. */
#include "auth/auth_state.h"

#include "base/err.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define ITEM_MAX 64

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

/* Decimal digits alone, at most `max`; false for anything else. */
static bool read_bits(const char *text, unsigned max, unsigned *out)
{
    unsigned n = 0;

    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        n = n * 10 + (unsigned)(*text - '0');
        if (n > max)
            return false;
    }
    *out = n;
    return true;
}

static bool read_net(char *item, struct auth_net *net)
{
    char *slash = strchr(item, '/');
    bool v4;

    if (slash)
        *slash++ = '\0';
    memcpy(net->address, mapped, sizeof(mapped));
    v4 = inet_pton(AF_INET, item, net->address + 12) == 1;
    if (!v4 && inet_pton(AF_INET6, item, net->address) != 1)
        return false;
    net->bits = v4 ? 32 : 128;
    if (slash && !read_bits(slash, net->bits, &net->bits))
        return false;
    net->bits += v4 ? 96 : 0;
    return true;
}

static bool is_between(char c)
{
    return c == ',' || c == ' ';
}

int tei_auth_nets_parse(const char *text, struct auth_net *nets, size_t *n)
{
    *n = 0;
    while (*text) {
        char item[ITEM_MAX];
        size_t len = strcspn(text, ", ");

        if (is_between(*text)) {
            text++;
            continue;
        }
        snprintf(item, sizeof(item), "%.*s", (int)tei_min(len, ITEM_MAX), text);
        if (*n == AUTH_NETS_MAX || len >= ITEM_MAX || !read_net(item, &nets[*n]))
            return TEI_FAIL(
                TE_ERR_INVALID,
                "TE_AUTH_CLASSIC is '%.64s': it must be at most %d addresses or networks, "
                "such as 10.1.0.0/16,fd00::7",
                text, AUTH_NETS_MAX);
        ++*n;
        text += len;
    }
    return 0;
}

static bool address_of(const struct tei_addr *peer, uint8_t out[16])
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    if (peer->ss.ss_family == AF_INET) {
        memcpy(&in, &peer->ss, sizeof(in));
        memcpy(out, mapped, sizeof(mapped));
        memcpy(out + 12, &in.sin_addr, 4);
        return true;
    }
    if (peer->ss.ss_family != AF_INET6)
        return false;
    memcpy(&in6, &peer->ss, sizeof(in6));
    memcpy(out, &in6.sin6_addr, 16);
    return true;
}

static bool has(const struct auth_net *net, const uint8_t address[16])
{
    unsigned whole = net->bits / 8, rest = net->bits % 8;
    uint8_t differ;

    if (memcmp(net->address, address, whole) != 0)
        return false;
    if (rest == 0)
        return true;
    differ = net->address[whole] ^ address[whole];
    return differ >> (8 - rest) == 0;
}

bool tei_auth_nets_have(const struct auth_net *nets, size_t n, const struct tei_addr *peer)
{
    uint8_t address[16];

    if (n == 0 || !address_of(peer, address))
        return false;
    for (size_t i = 0; i < n; i++)
        if (has(&nets[i], address))
            return true;
    return false;
}
