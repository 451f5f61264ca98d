/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - what the keys of a metadata server are called (docs/protocol.md, "Metadata keys"). */
#include "meta/meta.h"

#include <stdio.h>
#include <string.h>

#define PREFIX   "mooncake/"
#define RAM      "ram/"
#define RPC_META "rpc_meta/"

static char *key_of(const struct tei_conf *conf, const char *kind, const char *name)
{
    const char *cluster = conf->cluster_id;
    size_t n = strlen(cluster);
    char *key;

    if (asprintf(&key, PREFIX "%s%s%s%s", cluster, n && cluster[n - 1] != '/' ? "/" : "", kind,
                 name) < 0)
        return NULL;
    return key;
}

char *tei_keys_prefix(const struct tei_conf *conf)
{
    return key_of(conf, "", "");
}

char *tei_keys_rpc(const struct tei_conf *conf, const char *name)
{
    return key_of(conf, RPC_META, name);
}

bool tei_keys_is_files(const char *name)
{
    return strncmp(name, TEI_KEYS_FILES, strlen(TEI_KEYS_FILES)) == 0 || tei_file_is_name(name);
}

char *tei_keys_segment(const struct tei_conf *conf, const char *name)
{
    return key_of(conf, strchr(name, '/') ? "" : RAM, name);
}

static bool has_kind(const char *rest, const char *kind)
{
    return strncmp(rest, kind, strlen(kind)) == 0;
}

/* What is deeper than kind/name belongs to another cluster. */
const char *tei_keys_name(const char *prefix, const char *key)
{
    const char *rest = key + strlen(prefix), *slash;

    if (strncmp(key, prefix, strlen(prefix)) != 0)
        return NULL;
    slash = strchr(rest, '/');
    if (!slash || slash == rest || !slash[1] || strchr(slash + 1, '/') || has_kind(rest, RPC_META))
        return NULL;
    return has_kind(rest, RAM) ? slash + 1 : rest;
}
