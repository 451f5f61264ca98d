/* SPDX-License-Identifier: Apache-2.0 */
#include "meta/directory.h"

#include "base/err.h"
#include "base/near.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define P2P "P2PHANDSHAKE"

/* A word by itself is the host of an etcd; hardly of one that is called like this. */
static bool is_misspelt(const char *conn)
{
    char word[TEI_NEAR_MAX + 1];
    size_t n = strlen(conn);

    if (n == 0 || n > TEI_NEAR_MAX)
        return false;
    for (size_t i = 0; i <= n; i++)
        word[i] = (char)toupper((unsigned char)conn[i]);
    return tei_near_distance(word, P2P) <= tei_near_limit(P2P);
}

int tei_directory_open(const char *conn, const struct tei_conf *conf, struct tei_directory **out)
{
    if (strcasecmp(conn, P2P) == 0)
        return tei_directory_open_peer(conf, out);
    if (is_misspelt(conn))
        return TEI_FAIL(TE_ERR_INVALID,
                        "metadata '%s': did you mean " P2P "? A word without scheme:// is the host "
                        "of an etcd, which etcd://%s says as well",
                        conn, conn);
    return tei_directory_open_store(conn, conf, out);
}
