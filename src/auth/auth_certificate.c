/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth_certificate.c - certificates of peers: their names, and those that tickets were given for.
 *
 * A certificate shows itself on the handshake port alone. Those that tickets were given for are kept, so that whoever
 * comes with a ticket is known by more than a number. There is room for so many; the one that was last given a ticket
 * longest ago makes room for the next, and its owner is told that its ticket is outdated, so it asks for another one.
 */
#include "auth/auth_certs.h"
#include "auth/auth_state.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define SEEN_MAX    16384
#define NAME_CHECKS (X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS)

void tei_auth_subject(const struct auth_library *o, const X509 *certificate, char out[AUTH_SUBJECT])
{
    out[0] = '\0';
    o->X509_NAME_oneline(o->X509_get_subject_name(certificate), out, AUTH_SUBJECT);
}

static bool is_named(const struct auth_library *o, X509 *certificate, const char *name)
{
    return name[0] != '.' && /* which X509_check_host() takes for a pattern */
           (o->X509_check_host(certificate, name, strlen(name), NAME_CHECKS, NULL) == 1 ||
            o->X509_check_ip_asc(certificate, name, 0) == 1);
}

bool tei_auth_certificate_is_of(const struct auth_library *o, X509 *certificate, const char *name)
{
    struct tei_hostport parts;

    return is_named(o, certificate, name) ||
           (!tei_hostport_read(name, 0, &parts) && strcmp(parts.host, name) != 0 &&
            is_named(o, certificate, parts.host));
}

/* -------------------------------------------------------------------- those that tickets were given for */

struct auth_seen {
    UT_hash_handle hh;
    X509 *certificate;
    char print[AUTH_PRINT];
};

static void forget(const struct tei_auth *a, struct auth_certs *c, struct auth_seen *x)
{
    HASH_DEL(c->seen, x);
    a->o->X509_free(x->certificate);
    free(x);
}

bool tei_auth_seen_add(const struct tei_auth *a, struct auth_certs *c, const char *print,
                       X509 *certificate)
{
    struct auth_seen *x;

    HASH_FIND(hh, c->seen, print, AUTH_PRINT, x);
    if (x) /* it comes to the end of those that make room */
        forget(a, c, x);
    if (HASH_COUNT(c->seen) == SEEN_MAX)
        forget(a, c, c->seen);
    x = calloc(1, sizeof(*x));
    if (!x || !a->o->X509_up_ref(certificate)) {
        free(x);
        return false;
    }
    x->certificate = certificate;
    memcpy(x->print, print, AUTH_PRINT);
    if (TEI_HASH_ADD(c->seen, x->print, AUTH_PRINT, x))
        return true;
    a->o->X509_free(certificate);
    free(x);
    return false;
}

X509 *tei_auth_seen(const struct auth_certs *c, const char *print)
{
    struct auth_seen *x;

    HASH_FIND(hh, c->seen, print, AUTH_PRINT, x);
    return x ? x->certificate : NULL;
}

void tei_auth_seen_forget(const struct tei_auth *a, struct auth_certs *c)
{
    while (c->seen)
        forget(a, c, c->seen);
}
