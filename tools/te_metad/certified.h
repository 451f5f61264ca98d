/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a client of HTTPS has shown a certificate of an authority that is trusted: --tls-client-ca. */
#ifndef TE_METAD_CERTIFIED_H
#define TE_METAD_CERTIFIED_H

#include <stdbool.h>
#include <stddef.h>

/*
 * libmicrohttpd asks clients for a certificate where it is given authorities, and takes one that is none of theirs, or
 * none: what it was is for GnuTLS to say, which libmicrohttpd is linked with. False, with one line in `why`, where it
 * cannot be asked.
 */
bool certified_open(char *why, size_t n);

/* `session`: of MHD_CONNECTION_INFO_GNUTLS_SESSION. Any thread, after certified_open(). */
bool certified(void *session);

#endif
