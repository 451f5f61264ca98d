/* SPDX-License-Identifier: Apache-2.0 */
#include "te_segment/target.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common_units.h"

#define NQN_MAX      223 /* bytes, of the specification */
#define ADDRESS_MAX  255
#define NSID_MAX     0xfffffffeu
#define DEFAULT_PORT "4420"

/* ---- one member after the other */

static const char *text_of(const json_t *j, const char *key)
{
    return json_string_value(json_object_get(j, key));
}

static bool is_transport(const char *text)
{
    return text && (strcmp(text, "tcp") == 0 || strcmp(text, "rdma") == 0);
}

/* A name or an address in numbers, with a scope after '%'. */
static bool is_address(const char *text)
{
    if (!text || !(isalnum((unsigned char)text[0]) || text[0] == ':'))
        return false;
    for (const char *at = text; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr(".:-_%", *at))
            return false;
    return strlen(text) <= ADDRESS_MAX;
}

static bool is_port(const char *text)
{
    uint64_t port;

    return text && strlen(text) <= 5 && units_parse_count(text, &port) && port && port <= 65535;
}

static bool is_nqn(const char *text)
{
    if (!text || !text[0] || text[0] == '-' || strlen(text) > NQN_MAX)
        return false;
    for (const char *at = text; *at; at++)
        if (!isgraph((unsigned char)*at) || strchr(",?\\\"", *at))
            return false;
    return true;
}

bool target_read(const json_t *j, struct target *out, char why[WHY_MAX])
{
    const json_t *nsid = json_object_get(j, "nsid"), *fs_path = json_object_get(j, "fs_path");
    struct target t = {.transport = text_of(j, "transport"),
                       .traddr = text_of(j, "traddr"),
                       .trsvcid = text_of(j, "trsvcid"),
                       .subnqn = text_of(j, "subnqn"),
                       .fs_path = json_string_value(fs_path)};

    if (!json_is_object(j))
        return because(why, "it is no object");
    if (!is_transport(t.transport))
        return because(why, "'transport' is neither \"tcp\" nor \"rdma\"");
    if (!is_address(t.traddr))
        return because(why, "'traddr' is no address");
    if (!is_port(t.trsvcid))
        return because(why, "'trsvcid' is no port, as a string");
    if (!is_nqn(t.subnqn))
        return because(why, "'subnqn' is no name of a subsystem");
    if (!json_is_integer(nsid) || json_integer_value(nsid) < 1 ||
        json_integer_value(nsid) > NSID_MAX)
        return because(why, "'nsid' is no number of a namespace");
    if (fs_path && (!t.fs_path || !text_is_path(t.fs_path, false)))
        return because(why, "'fs_path' is no path below a file system, such as dir/file");
    t.nsid = (uint32_t)json_integer_value(nsid);
    *out = t;
    return true;
}

/* ---- as a URL */

/* "host", "host:port", "[v6]" or "[v6]:port", cut apart in place. */
static bool cut_address(char *text, const char **host, const char **port)
{
    char *end = text[0] == '[' ? strchr(text, ']') : text + strcspn(text, ":");

    if (!end)
        return false;
    *host = text + (text[0] == '[');
    if (*end == ']')
        *end++ = '\0';
    *port = *end ? end + 1 : DEFAULT_PORT;
    if (*end && *end != ':')
        return false;
    *end = '\0';
    return true;
}

/* "nsid=1&fs_path=x", cut apart in place; every key once at most. */
static bool cut_query(char *text, uint64_t *nsid, const char **fs_path)
{
    const char *number = NULL;

    for (char *at = text, *next; at; at = next) {
        next = strchr(at, '&');
        if (next)
            *next++ = '\0';
        if (strncmp(at, "nsid=", 5) == 0 && !number)
            number = at + 5;
        else if (strncmp(at, "fs_path=", 8) == 0 && !*fs_path)
            *fs_path = at + 8;
        else
            return false;
    }
    return !number || (units_parse_count(number, nsid) && *nsid <= NSID_MAX);
}

/* Takes the URL apart in `text`; NULL if it has not the form of one. */
static json_t *object_of(char *text, uint32_t skip)
{
    char *host = strstr(text, "://"), *nqn = host ? strchr(host + 3, '/') : NULL;
    char *query = nqn ? strchr(nqn, '?') : NULL;
    const char *traddr, *trsvcid, *fs_path = NULL;
    uint64_t nsid = 1;
    json_t *j;

    if (!nqn)
        return NULL;
    *host = *nqn = '\0';
    if (query)
        *query = '\0';
    if (!cut_address(host + 3, &traddr, &trsvcid) ||
        (query && !cut_query(query + 1, &nsid, &fs_path)))
        return NULL;
    j = json_pack("{ss ss ss ss sI}", "transport", text, "traddr", traddr, "trsvcid", trsvcid,
                  "subnqn", nqn + 1, "nsid", (json_int_t)(nsid + skip));
    if (j && fs_path && json_object_set_new(j, "fs_path", json_string(fs_path))) {
        json_decref(j);
        j = NULL;
    }
    return j;
}

json_t *target_parse(const char *url, uint32_t skip, char why[WHY_MAX])
{
    char *copy = strdup(url);
    json_t *j = copy ? object_of(copy, skip) : NULL;
    struct target t;

    free(copy);
    if (!j)
        because(why, "it has not the form tcp://10.0.0.1:4420/NQN?nsid=1&fs_path=dir/file");
    if (j && !target_read(j, &t, why)) {
        json_decref(j);
        j = NULL;
    }
    return j;
}

const char *target_format(const struct target *t, char out[TARGET_TEXT_MAX])
{
    bool v6 = strchr(t->traddr, ':');

    snprintf(out, TARGET_TEXT_MAX, "%s://%s%s%s:%s/%s?nsid=%" PRIu32 "%s%s", t->transport,
             v6 ? "[" : "", t->traddr, v6 ? "]" : "", t->trsvcid, t->subnqn, t->nsid,
             t->fs_path ? "&fs_path=" : "", t->fs_path ? t->fs_path : "");
    return out;
}
