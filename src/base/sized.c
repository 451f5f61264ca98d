/* SPDX-License-Identifier: Apache-2.0 */
/* sized.c - public structs that begin with their size and may grow at their end. */
#include "base/sized.h"

#include "base/err.h"

#include <string.h>

static size_t size_of(const void *sized)
{
    return *(const size_t *)sized;
}

static int check_size(size_t given, size_t size, size_t first, const char *what)
{
    if (given < first || given > TEI_SIZED_MAX)
        return TEI_FAIL(TE_ERR_INVALID, "%s: size is %zu; set it to sizeof(%s), here %zu, first",
                        what, given, what, size);
    return 0;
}

int tei_sized_take(void *to, size_t size, size_t first, const void *from, const char *what)
{
    size_t given = size_of(from);
    const char *bytes = from;
    int rc = check_size(given, size, first, what);

    if (rc)
        return rc;
    for (size_t i = size; i < given; i++)
        if (bytes[i])
            return TEI_FAIL(TE_ERR_INVALID,
                            "%s: size is %zu, of which this library knows %zu, and what is beyond "
                            "is not 0; the program was built for a newer library",
                            what, given, size);
    memcpy(to, from, given < size ? given : size);
    return 0;
}

int tei_sized_give(void *to, size_t size, size_t first, const void *from, const char *what)
{
    size_t given = size_of(to);
    int rc = check_size(given, size, first, what);

    if (rc)
        return rc;
    if (given > size)
        memset((char *)to + size, 0, given - size);
    memcpy(to, from, given < size ? given : size);
    *(size_t *)to = given;
    return 0;
}

int tei_text_give(const char *text, char *buf, size_t n)
{
    size_t need = strlen(text) + 1;

    if (!buf || n < need)
        return TEI_FAIL(TE_ERR_TOO_LARGE, "needs a buffer of %zu bytes, not %zu", need,
                        buf ? n : 0);
    memcpy(buf, text, need);
    return 0;
}
