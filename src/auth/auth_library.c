/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/auth_library.h"

#include "base/base.h"
#include "base/err.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define CRYPTO "libcrypto.so.3"
#define SSL_SO "libssl.so.3"

struct symbol {
    const char *name;
    size_t at; /* of the member in struct auth_library */
};

#define SYMBOL(name) {#name, offsetof(struct auth_library, name)},
static const struct symbol of_crypto[] = {AUTH_CRYPTO_SYMBOLS(SYMBOL)};
static const struct symbol of_ssl[] = {AUTH_SSL_SYMBOLS(SYMBOL)};
#undef SYMBOL

/* They are never closed: the state of their threads outlives an engine. */
static int open_one(const char *path, const struct symbol *symbols, size_t n,
                    struct auth_library *out)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (!library)
        return TEI_FAIL(TE_ERR_UNSUPPORTED,
                        "TE_AUTH needs OpenSSL 3: %s; install the package libssl3 (openssl-libs "
                        "on Fedora and RHEL 9)",
                        dlerror());
    for (size_t i = 0; i < n; i++) {
        void *at = dlsym(library, symbols[i].name);

        if (!at)
            return TEI_FAIL(TE_ERR_UNSUPPORTED, "TE_AUTH needs OpenSSL 3: %s has no %s", path,
                            symbols[i].name);
        memcpy((char *)out + symbols[i].at, &at, sizeof(at));
    }
    return 0;
}

struct auth_library tei_auth_library;

/*
 * Threads of an engine may be in libssl while the program ends: no handler of exit() may take its memory from under
 * them. This is the first call there, unless the program itself has made one.
 */
static int start(const struct auth_library *o)
{
    return o->OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL)
               ? 0
               : TEI_FAIL(TE_ERR_UNSUPPORTED, "TE_AUTH: %s cannot be started", CRYPTO);
}

int tei_auth_library_open(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool is_open;
    int rc = 0;

    pthread_mutex_lock(&lock);
    if (!is_open)
        rc = open_one(CRYPTO, of_crypto, TEI_ARRAY_LEN(of_crypto), &tei_auth_library);
    if (!is_open && !rc)
        rc = open_one(SSL_SO, of_ssl, TEI_ARRAY_LEN(of_ssl), &tei_auth_library);
    if (!is_open && !rc)
        rc = start(&tei_auth_library);
    is_open = rc == 0;
    pthread_mutex_unlock(&lock);
    return rc;
}
