/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DETAIL_MAX 1024

/*
 * Thread-local, so that the text belongs to the call that the reader made, whatever other threads
 * do.
 */
static _Thread_local char detail[DETAIL_MAX];

const char *te_strerror(int err)
{
    switch (err) {
#define STRERROR_CASE(name, number, class, text) \
    case (number):                               \
        return text;
        TE_ERR_MAP(STRERROR_CASE)
#undef STRERROR_CASE
    default:
        return "unknown error";
    }
}

const char *te_errname(int err)
{
    switch (err) {
#define ERRNAME_CASE(name, number, class, text) \
    case (number):                              \
        return "TE_ERR_" #name;
        TE_ERR_MAP(ERRNAME_CASE)
#undef ERRNAME_CASE
    default:
        return "TE_ERR_UNKNOWN";
    }
}

enum tei_err_class tei_err_class(int err)
{
    switch (err) {
#define CLASS_CASE(name, number, class, text) \
    case (number):                            \
        return TEI_CLASS_##class;
        TE_ERR_MAP(CLASS_CASE)
#undef CLASS_CASE
    default:
        return TEI_CLASS_FATAL;
    }
}

bool tei_err_is_mild(int err)
{
    static const int mild[] = {TE_ERR_STALE, TE_ERR_PEER};

    for (size_t i = 0; i < TEI_ARRAY_LEN(mild); i++)
        if (err == mild[i])
            return true;
    return false;
}

const char *te_errmsg(void)
{
    return detail;
}

void tei_fail(struct tei_log_site *site, int code, const char *fmt, ...)
{
    enum te_log_level level = tei_err_class(code) == TEI_CLASS_FATAL ? TE_LOG_ERROR : TE_LOG_WARN;
    int saved = errno;
    char text[DETAIL_MAX]; /* the arguments may hold te_errmsg() itself */
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    tei_err_keep(code, text);
    if (tei_log_wants(level))
        tei_log(site, level, "%s: %s", te_errname(code), text);
    errno = saved;
}

int tei_err_keep(int code, const char *text)
{
    size_t n = strnlen(text, DETAIL_MAX - 1);

    memmove(detail, text, n);
    detail[n] = '\0';
    return code;
}

const char *tei_errno_text(int errnum)
{
    static _Thread_local char buf[128];
    int saved = errno;

    errno = errnum; /* of strerror_r() there are two, that differ in what they return */
    snprintf(buf, sizeof buf, "%m");
    errno = saved;
    return buf;
}
