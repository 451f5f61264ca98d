/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that name a host and a port, as they come from users, environments and peers. What is
 * accepted keeps its bounds and comes back the same when it is written and parsed again.
 */
#include "base/err.h"
#include "base/sock.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define OTHER_PORT 4711

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void check_bytes(const char *host)
{
    for (; *host; host++)
        check((unsigned char)*host > ' ' && *host != 0x7f && !strchr("[]/", *host));
}

static void check_round_trip(const struct tei_hostport *hp)
{
    char text[TEI_HOSTPORT_MAX];
    struct tei_hostport back;

    check(tei_hostport_format(hp->host, hp->port, text, sizeof text) == text);
    check(strlen(text) < sizeof text - 1);
    check(tei_hostport_parse(text, OTHER_PORT, &back) == 0);
    check(tei_hostport_has_port(text));
    check(strcmp(back.host, hp->host) == 0 && back.port == hp->port);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tei_hostport hp = {.host = "before", .port = 1}, other;
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    te_log_set_level(TE_LOG_OFF);
    if (tei_hostport_parse(text, 0, &hp) != 0) {
        check(strcmp(hp.host, "before") == 0 && hp.port == 1);
    } else {
        check(memchr(hp.host, '\0', sizeof hp.host) != NULL);
        check_bytes(hp.host);
        check(hp.host[0] != '\0' || tei_hostport_has_port(text));
        check(tei_hostport_parse(text, OTHER_PORT, &other) == 0);
        check(strcmp(hp.host, other.host) == 0);
        check(other.port == (tei_hostport_has_port(text) ? hp.port : OTHER_PORT));
        check_round_trip(&hp);
    }
    free(text);
    return 0;
}
