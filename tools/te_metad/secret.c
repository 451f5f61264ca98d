/* SPDX-License-Identifier: Apache-2.0 */
#include "te_metad/secret.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((size_t)256 << 10)

static bool refuse(const char *flag, const char *path, const char *what, char why[SECRET_WHY_MAX])
{
    snprintf(why, SECRET_WHY_MAX, "%s=%.200s: %s", flag, path, what);
    return false;
}

/* Reads up to n bytes; errno, 0 when the end or n was reached. */
static int read_file(const char *path, char *text, size_t n, size_t *len)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return errno;
    errno = 0;
    *len = fread(text, 1, n, f);
    int error = ferror(f) ? errno : 0;
    fclose(f);
    return error;
}

bool secret_read(const char *flag, const char *path, char **out, char why[SECRET_WHY_MAX])
{
    size_t len = 0;
    char *text = calloc(1, FILE_MAX + 2); /* one byte too many shows, and a NUL is left */
    if (!text)
        return refuse(flag, path, "out of memory", why);
    const char *what = NULL;
    int error = read_file(path, text, FILE_MAX + 1, &len);
    if (error)
        what = strerror(error);
    else if (len == 0)
        what = "the file is empty";
    else if (len > FILE_MAX)
        what = "the file has more than 256 KiB: is it the right one?";
    else if (memchr(text, '\0', len))
        what = "the file holds a NUL byte: it must be text";
    if (what) {
        refuse(flag, path, what, why);
        secret_free(text);
        return false;
    }
    *out = text;
    return true;
}

void secret_free(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}
