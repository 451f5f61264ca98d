/* SPDX-License-Identifier: Apache-2.0 */
/* auth_rig.h - key files in a folder of the test's own, and identities by them. */
#ifndef TEST_AUTH_RIG_H
#define TEST_AUTH_RIG_H

#include "auth/auth.h"

/* Keys in base64: 32 bytes of 'A', of 'B', of 'C'. */
#define KEY_A "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="
#define KEY_B "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkI="
#define KEY_C "Q0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0M="

/* Makes the folder; the same in each call. It goes with the process. */
const char *auth_folder(void);
/* Writes a file there, by a rename, that its owner alone can read; its path, valid until the next call of that name. */
const char *auth_file(const char *name, const char *text);
/* TE_AUTH=psk by such a file. Ends the test if it cannot be opened. */
struct tei_auth *auth_open(const char *name, const char *text, uint64_t instance);
/* The same with addresses that need no proof. */
struct tei_auth *auth_open_classic(const char *name, const char *text, uint64_t instance,
                                   const char *classic);
/* Gives a host an identity of a group that all hosts of the test are in, and its children. */
void auth_configure(struct tei_conf *conf);
/* How many peers were refused for that cause. */
uint64_t auth_count(struct tei_auth *a, enum tei_auth_cause cause);

#endif
