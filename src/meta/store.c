/* SPDX-License-Identifier: Apache-2.0 */
#include "meta/meta.h"

#include "base/err.h"
#include "base/near.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_SCHEME "etcd"

/* One row per scheme that is built in; an ops table may serve several. */
static const struct {
    const char *scheme;
    const struct tei_store_ops *ops;
} schemes[] = {
#if TE_USE_HTTP
    {"http", &tei_store_http_ops},
    {"https", &tei_store_http_ops},
#endif
#if TE_USE_ETCD
    {"etcd", &tei_store_etcd_ops},
    {"etcds", &tei_store_etcd_ops},
#endif
#if TE_USE_REDIS
    {"redis", &tei_store_redis_ops},
#endif
    {NULL, NULL},
};

static const struct tei_store_ops *find_ops(const char *scheme, size_t n)
{
    for (size_t i = 0; schemes[i].scheme; i++)
        if (strlen(schemes[i].scheme) == n && strncasecmp(schemes[i].scheme, scheme, n) == 0)
            return schemes[i].ops;
    return NULL;
}

const char *tei_store_scheme(size_t i)
{
    return i < TEI_ARRAY_LEN(schemes) ? schemes[i].scheme : NULL;
}

static int refuse(const char *conn, const char *scheme, size_t n)
{
    char built_in[128] = "P2PHANDSHAKE";
    const char *at = strrchr(conn, '@'); /* what is before it may be a password */

    for (size_t i = 0; schemes[i].scheme; i++) {
        size_t len = strlen(built_in);

        snprintf(built_in + len, sizeof built_in - len, ", %s", schemes[i].scheme);
    }
    return TEI_FAIL(TE_ERR_UNSUPPORTED,
                    "metadata '%.64s': scheme '%.*s'%s is not in this build, which has: %s",
                    at ? at + 1 : conn, (int)tei_min(n, 32), scheme,
                    scheme == conn ? "" : ", meant where none is written,", built_in);
}

/* A word by itself is the host of an etcd; hardly of one that is called like this. */
static bool is_p2p_misspelt(const char *conn)
{
    char word[TEI_NEAR_MAX + 1];
    size_t n = strlen(conn);

    if (n == 0 || n > TEI_NEAR_MAX)
        return false;
    for (size_t i = 0; i <= n; i++)
        word[i] = (char)toupper((unsigned char)conn[i]);
    return strcmp(word, TEI_P2P) != 0 &&
           tei_near_distance(word, TEI_P2P) <= tei_near_limit(TEI_P2P);
}

int tei_store_open(const char *conn, const struct tei_conf *conf, struct tei_store **out)
{
    const char *end = strstr(conn, "://"), *scheme = end ? conn : DEFAULT_SCHEME;
    size_t n = end ? (size_t)(end - conn) : strlen(DEFAULT_SCHEME);
    const struct tei_store_ops *ops = find_ops(scheme, n);
    struct tei_store *s;
    int rc;

    if (is_p2p_misspelt(conn))
        return TEI_FAIL(TE_ERR_INVALID,
                        "metadata '%s': did you mean " TEI_P2P "? A word without scheme:// is the "
                        "host of an etcd, which etcd://%s says as well",
                        conn, conn);
    if (!ops)
        return refuse(conn, scheme, n);
    s = calloc(1, ops->size);
    if (!s)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a metadata store");
    s->ops = ops;
    s->conf = conf;
    rc = ops->open(s, conn, conf);
    if (rc) {
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void tei_store_close(struct tei_store *s)
{
    if (!s)
        return;
    s->ops->close(s);
    free(s);
}
