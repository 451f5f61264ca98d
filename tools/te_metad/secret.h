/* SPDX-License-Identifier: Apache-2.0 */
/* Small files that hold what te_metad must not have on its command line. */
#ifndef TE_METAD_SECRET_H
#define TE_METAD_SECRET_H

#include <stdbool.h>

#define SECRET_WHY_MAX 512

/*
 * The text of a file, malloc'ed, in *out. False, with one line in `why` that begins with the flag,
 * when it cannot be read, is empty, holds a NUL byte or is too large.
 */
bool secret_read(const char *flag, const char *path, char **out, char why[SECRET_WHY_MAX]);

/* Overwrites and frees; NULL is allowed. */
void secret_free(char *text);

#endif
