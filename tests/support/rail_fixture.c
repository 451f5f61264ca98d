/* SPDX-License-Identifier: Apache-2.0 */
#include "rail_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

struct tei_path_nics nics;
struct tei_paths paths;
struct tei_path_route route;
int64_t now;

static size_t ports_of(const char *names, char (*text)[TEI_PATH_NAME], struct tei_path_port *ports)
{
    size_t n = 0;
    int used;

    while (sscanf(names, " %63s%n", text[n], &used) == 1) {
        ports[n] = (struct tei_path_port){text[n], 10 * GB, true};
        names += used;
        n++;
    }
    return n;
}

int begin(const char *local, const char *peer, struct tei_path_conf conf)
{
    static char text[2][TEI_PATH_NICS + 1][TEI_PATH_NAME];
    struct tei_path_port ports[TEI_PATH_NICS + 1];

    now = 1000 * MS;
    if (conf.rail_pause_ns == 0)
        conf.rail_pause_ns = 30000 * MS;
    tei_path_nics_init(&nics, ports, ports_of(local, text[0], ports));
    return tei_paths_init(&paths, &conf, &nics, ports, ports_of(peer, text[1], ports));
}

/* "0 2 5" */
static struct tei_path_list list(const char *text)
{
    struct tei_path_list l = {0, {0}};
    unsigned nic;
    int used;

    for (; sscanf(text, " %u%n", &nic, &used) == 1; text += used)
        l.nic[l.n++] = (uint8_t)nic;
    return l;
}

void lead(const char *lp, const char *la, const char *pp, const char *pa)
{
    struct tei_path_list l[4] = {list(lp), list(la), list(pp), list(pa)};

    tei_paths_route(&paths, &l[0], &l[1], &l[2], &l[3], &route);
}

const char *rails(void)
{
    static char text[1024];
    size_t len = 0;

    text[0] = '\0';
    for (unsigned rail = 0; rail < paths.n_local * paths.n_peer; rail++) {
        for (unsigned k = 0; k < route.n_set; k++) {
            if (route.set[k] == rail)
                len += (size_t)snprintf(text + len, sizeof text - len, "%s%u-%u", len ? " " : "",
                                        paths.rails[rail].local, paths.rails[rail].peer);
        }
    }
    return text;
}

enum tei_path_answer pick(uint64_t len, int avoid, struct tei_path_choice *out)
{
    struct tei_path_want want = {.len = len, .now = now, .avoid = avoid};

    return tei_paths_pick(&paths, &route, &want, out);
}

int give(uint64_t len)
{
    struct tei_path_choice c;

    assert_int_equal(pick(len, TEI_PATH_NO_RAIL, &c), TEI_PATH_RAIL);
    assert_int_equal(c.rail, tei_path_rail(&paths, c.local, c.peer));
    tei_paths_posted(&paths, c.rail, len, now);
    return c.rail;
}
