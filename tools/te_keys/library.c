/* SPDX-License-Identifier: Apache-2.0 */
#include "te_keys/library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "te_keys/keys.h"

#define CRYPTO "libcrypto.so.3"

static const struct {
    const char *name;
    size_t at; /* of the member */
} symbols[] = {
#define SYMBOL(name) {#name, offsetof(struct library, name)},
    CRYPTO_SYMBOLS(SYMBOL)
#undef SYMBOL
};

const struct library *library_open(void)
{
    static struct library library;
    void *opened = dlopen(CRYPTO, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (!opened) {
        fail(FAILED,
             "certificates need OpenSSL 3: %s; install the package libssl3 (openssl-libs on Fedora "
             "and RHEL 9)",
             dlerror());
        return NULL;
    }
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *at = dlsym(opened, symbols[i].name);

        if (!at) {
            fail(FAILED, "certificates need OpenSSL 3: %s has no %s", CRYPTO, symbols[i].name);
            return NULL;
        }
        memcpy((char *)&library + symbols[i].at, &at, sizeof(at));
    }
    return &library;
}
