/* SPDX-License-Identifier: Apache-2.0 */
/* auth_bytes.c - bytes that nobody can guess, and those that nobody can make without a key. */
#include "auth/auth_state.h"

#include "base/err.h"

#include <errno.h>
#include <sys/random.h>

bool tei_auth_nonce(uint8_t out[TEI_AUTH_NONCE])
{
    ssize_t n;

    do {
        n = getrandom(out, TEI_AUTH_NONCE, 0);
    } while (n < 0 && errno == EINTR);
    if (n == TEI_AUTH_NONCE) /* so few come at once, or none */
        return true;
    TEI_WARN("TE_AUTH: the kernel gives no random bytes (getrandom: %s), so no proof is made; let "
             "the program call it",
             tei_errno_text(errno));
    return false;
}

bool tei_auth_hmac(const struct tei_auth *a, const uint8_t *key, size_t key_len, const void *bytes,
                   size_t n, uint8_t out[TEI_AUTH_PROOF])
{
    unsigned len = 0;

    return a->o->HMAC(a->o->EVP_sha256(), key, (int)key_len, bytes, n, out, &len) &&
           len == TEI_AUTH_PROOF;
}
