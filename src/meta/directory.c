/* SPDX-License-Identifier: Apache-2.0 */
#include "meta/directory.h"

#include <strings.h>

int tei_directory_open(const char *conn, const struct tei_conf *conf, struct tei_directory **out)
{
    if (strcasecmp(conn, TEI_P2P) == 0)
        return tei_directory_open_peer(conf, out);
    return tei_directory_open_store(conn, conf, out);
}
