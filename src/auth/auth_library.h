/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth_library.h - OpenSSL 3, opened at run time. Private to src/auth.
 *
 * Each member has the type of the function in OpenSSL's own headers. Nothing here is looked at with TE_AUTH=off.
 */
#ifndef TEI_AUTH_LIBRARY_H
#define TEI_AUTH_LIBRARY_H

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

/* What headers of 1.1.1 lack. */
#ifndef SSL_R_UNEXPECTED_EOF_WHILE_READING
#define SSL_R_UNEXPECTED_EOF_WHILE_READING 294
#endif
#ifndef SSL_OP_CLEANSE_PLAINTEXT
#define SSL_OP_CLEANSE_PLAINTEXT 2
#endif
#if OPENSSL_VERSION_NUMBER < 0x30000000L
X509 *SSL_get1_peer_certificate(const SSL *ssl);
#endif

#define AUTH_CRYPTO_SYMBOLS(SYMBOL) \
    SYMBOL(OPENSSL_init_crypto)     \
    SYMBOL(HMAC)                    \
    SYMBOL(EVP_sha256)              \
    SYMBOL(CRYPTO_memcmp)           \
    SYMBOL(ERR_clear_error)         \
    SYMBOL(ERR_peek_last_error)     \
    SYMBOL(BIO_get_new_index)       \
    SYMBOL(BIO_meth_new)            \
    SYMBOL(BIO_meth_free)           \
    SYMBOL(BIO_meth_set_write)      \
    SYMBOL(BIO_meth_set_read)       \
    SYMBOL(BIO_meth_set_ctrl)       \
    SYMBOL(BIO_new)                 \
    SYMBOL(BIO_free)                \
    SYMBOL(BIO_set_init)            \
    SYMBOL(BIO_set_data)            \
    SYMBOL(BIO_get_data)            \
    SYMBOL(BIO_set_flags)           \
    SYMBOL(BIO_clear_flags)         \
    SYMBOL(ERR_reason_error_string) \
    SYMBOL(EVP_PKEY_free)           \
    SYMBOL(PEM_read_bio_PrivateKey) \
    SYMBOL(BIO_new_mem_buf)         \
    SYMBOL(ASN1_TIME_to_tm)         \
    SYMBOL(X509_free)               \
    SYMBOL(X509_up_ref)             \
    SYMBOL(X509_digest)             \
    SYMBOL(X509_check_host)         \
    SYMBOL(X509_check_ip_asc)       \
    SYMBOL(X509_get0_notAfter)      \
    SYMBOL(X509_get_subject_name)   \
    SYMBOL(X509_NAME_oneline)       \
    SYMBOL(X509_STORE_set_flags)    \
    SYMBOL(X509_verify_cert_error_string)

#define AUTH_SSL_SYMBOLS(SYMBOL)                  \
    SYMBOL(TLS_server_method)                     \
    SYMBOL(TLS_client_method)                     \
    SYMBOL(SSL_CTX_new)                           \
    SYMBOL(SSL_CTX_free)                          \
    SYMBOL(SSL_CTX_ctrl)                          \
    SYMBOL(SSL_CTX_set_options)                   \
    SYMBOL(SSL_CTX_set_verify)                    \
    SYMBOL(SSL_CTX_set_ciphersuites)              \
    SYMBOL(SSL_CTX_set_num_tickets)               \
    SYMBOL(SSL_CTX_set_alpn_protos)               \
    SYMBOL(SSL_CTX_set_alpn_select_cb)            \
    SYMBOL(SSL_CTX_set_psk_use_session_callback)  \
    SYMBOL(SSL_CTX_set_psk_find_session_callback) \
    SYMBOL(SSL_new)                               \
    SYMBOL(SSL_free)                              \
    SYMBOL(SSL_set_bio)                           \
    SYMBOL(SSL_set_ex_data)                       \
    SYMBOL(SSL_get_ex_data)                       \
    SYMBOL(SSL_set_accept_state)                  \
    SYMBOL(SSL_set_connect_state)                 \
    SYMBOL(SSL_do_handshake)                      \
    SYMBOL(SSL_get_error)                         \
    SYMBOL(SSL_read)                              \
    SYMBOL(SSL_write)                             \
    SYMBOL(SSL_session_reused)                    \
    SYMBOL(SSL_get0_alpn_selected)                \
    SYMBOL(SSL_CIPHER_find)                       \
    SYMBOL(SSL_SESSION_new)                       \
    SYMBOL(SSL_SESSION_free)                      \
    SYMBOL(SSL_SESSION_set1_master_key)           \
    SYMBOL(SSL_SESSION_set_cipher)                \
    SYMBOL(SSL_SESSION_set_protocol_version)      \
    SYMBOL(SSL_CTX_use_certificate_chain_file)    \
    SYMBOL(SSL_CTX_use_PrivateKey)                \
    SYMBOL(SSL_CTX_check_private_key)             \
    SYMBOL(SSL_CTX_load_verify_locations)         \
    SYMBOL(SSL_CTX_get_cert_store)                \
    SYMBOL(SSL_CTX_get0_certificate)              \
    SYMBOL(SSL_CTX_set_default_passwd_cb)         \
    SYMBOL(SSL_get1_peer_certificate)             \
    SYMBOL(SSL_get_verify_result)

struct auth_library {
#define SYMBOL(name) __typeof__(&name) name;
    AUTH_CRYPTO_SYMBOLS(SYMBOL)
    AUTH_SSL_SYMBOLS(SYMBOL)
#undef SYMBOL
};

/* Filled by the first tei_auth_library_open() that succeeds, and never changed again. */
extern struct auth_library tei_auth_library;

/* TE_ERR_UNSUPPORTED, logged, with the package that is missing. */
int tei_auth_library_open(void);

#endif
