/* SPDX-License-Identifier: Apache-2.0 */
#include "te_metad/certified.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define GNUTLS "libgnutls.so.30"

/* int gnutls_certificate_verify_peers2(gnutls_session_t, unsigned *): 0 and bits of what is wrong, or an error. */
static int (*verify)(void *session, unsigned *status);
/* const gnutls_datum_t *gnutls_certificate_get_peers(gnutls_session_t, unsigned *): NULL where none was shown. */
static const void *(*shown)(void *session, unsigned *n);

static bool find(void *library, const char *name, void *out)
{
    void *at = dlsym(library, name);

    if (at)
        memcpy(out, &at, sizeof at);
    return at != NULL;
}

bool certified_open(char *why, size_t n)
{
    void *library = dlopen(GNUTLS, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (library && find(library, "gnutls_certificate_verify_peers2", &verify) &&
        find(library, "gnutls_certificate_get_peers", &shown))
        return true;
    snprintf(why, n, "--tls-client-ca needs GnuTLS, with which libmicrohttpd does TLS: %.300s",
             library ? "this one is too old" : dlerror());
    return false;
}

bool certified(void *session)
{
    unsigned status = 1, many = 0;

    return session && shown(session, &many) && many > 0 && verify(session, &status) == 0 &&
           status == 0;
}
