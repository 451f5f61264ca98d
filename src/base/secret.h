/* SPDX-License-Identifier: Apache-2.0 */
/* secret.h - memory for secrets, and tickets, which are secrets that several hold. */
#ifndef TEI_SECRET_H
#define TEI_SECRET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Pages that no core dump and no child has, and are not swapped where that is allowed; NULL: no memory. */
void *tei_secret_alloc(size_t n);
/* Overwrites them. NULL is accepted. */
void tei_secret_free(void *p, size_t n);

/* Overwrites what the functions that were called before have left on the stack, libcrypto's among them. */
void tei_secret_burn(void);

/*
 * What an engine has given another one on a connection where both were known, so that it is known on others: a name
 * for a key, and the key. Not changed once it is made; counted, by any thread.
 */
#define TEI_TICKET_ID_MAX 64
#define TEI_TICKET_KEY    32
struct tei_ticket {
    _Atomic unsigned refs;
    uint64_t epoch; /* whoever was given it: of what it believed then */
    char id[TEI_TICKET_ID_MAX + 1];
    uint8_t key[TEI_TICKET_KEY];
};

/* NULL: no memory. */
struct tei_ticket *tei_ticket_new(const char *id, size_t len, const uint8_t key[TEI_TICKET_KEY]);
/* NULL is accepted, and given back. */
struct tei_ticket *tei_ticket_get(struct tei_ticket *t);
void tei_ticket_put(struct tei_ticket *t);

#endif
