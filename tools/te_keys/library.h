/* SPDX-License-Identifier: Apache-2.0 */
/* library.h - the functions of libcrypto that te_keys calls; each member has the type of OpenSSL's own headers. */
#ifndef TE_KEYS_LIBRARY_H
#define TE_KEYS_LIBRARY_H

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#define CRYPTO_SYMBOLS(SYMBOL)         \
    SYMBOL(EVP_PKEY_CTX_new_id)        \
    SYMBOL(EVP_PKEY_CTX_free)          \
    SYMBOL(EVP_PKEY_CTX_ctrl_str)      \
    SYMBOL(EVP_PKEY_keygen_init)       \
    SYMBOL(EVP_PKEY_keygen)            \
    SYMBOL(EVP_PKEY_free)              \
    SYMBOL(EVP_sha256)                 \
    SYMBOL(ASN1_INTEGER_set_uint64)    \
    SYMBOL(X509_new)                   \
    SYMBOL(X509_free)                  \
    SYMBOL(X509_set_version)           \
    SYMBOL(X509_get_serialNumber)      \
    SYMBOL(X509_gmtime_adj)            \
    SYMBOL(X509_getm_notBefore)        \
    SYMBOL(X509_getm_notAfter)         \
    SYMBOL(X509_set_pubkey)            \
    SYMBOL(X509_get_subject_name)      \
    SYMBOL(X509_NAME_add_entry_by_txt) \
    SYMBOL(X509_set_issuer_name)       \
    SYMBOL(X509V3_set_ctx)             \
    SYMBOL(X509V3_EXT_conf_nid)        \
    SYMBOL(X509_EXTENSION_free)        \
    SYMBOL(X509_add_ext)               \
    SYMBOL(X509_check_private_key)     \
    SYMBOL(X509_sign)                  \
    SYMBOL(PEM_read_X509)              \
    SYMBOL(PEM_read_PrivateKey)        \
    SYMBOL(PEM_write_X509)             \
    SYMBOL(PEM_write_PrivateKey)

struct library {
#define SYMBOL(name) __typeof__(&name) name;
    CRYPTO_SYMBOLS(SYMBOL)
#undef SYMBOL
};

/* NULL: there is no OpenSSL 3, which was printed. */
const struct library *library_open(void);

#endif
