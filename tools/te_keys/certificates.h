/* SPDX-License-Identifier: Apache-2.0 */
/*
 * certificates.h - a certificate authority for a test cluster, and what it signs: NAME.pem and NAME.key, as --tls-cert
 * and --tls-key of te_metad and TE_METADATA_CA, _CERT and _KEY of engines take them. By OpenSSL 3, opened at run time.
 */
#ifndef TE_KEYS_CERTIFICATES_H
#define TE_KEYS_CERTIFICATES_H

#include <stdint.h>

/* Makes DIR/ca.pem and DIR/ca.key. */
int certificates_ca(const char *dir, uint64_t days);
/* Whether certificates_sign() finds both places free. */
int certificates_look(const char *dir, const char *names);
/* Makes a certificate of these names, signed by DIR/ca; the files are called as the first of them. */
int certificates_sign(const char *dir, const char *names, uint64_t days);

#endif
