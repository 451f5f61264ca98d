/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h - errors: one table (TE_ERR_MAP in te.h), one way to decide one.
 *
 * The function that decides an error writes `return TEI_FAIL(TE_ERR_X, "what %s: why; remedy",
 * name);`. That keeps the text for te_errmsg() in a thread-local, logs it once (at most a few times
 * a second per site) and evaluates to the code. Functions that pass an error up stay silent.
 */
#ifndef TEI_ERR_H
#define TEI_ERR_H

#include "base/base.h"
#include "base/log.h"
#include "te.h"

enum tei_err_class { TEI_CLASS_OK, TEI_CLASS_REQUEST, TEI_CLASS_PATH, TEI_CLASS_FATAL };

/* FATAL for a number that is no error code. */
enum tei_err_class tei_err_class(int err);

/*
 * Whether the error says that no byte of the work is on its way any more, so that the whole request
 * may be tried again. A mild error gives way to any other one of the same request.
 */
bool tei_err_is_mild(int err);

/* Its value is seen to be the code: so compilers know that what a callee leaves unset is not used. */
#define TEI_FAIL(code, ...)                           \
    __extension__({                                   \
        static struct tei_log_site tei_site_;         \
        int tei_code_ = (code);                       \
        tei_fail(&tei_site_, tei_code_, __VA_ARGS__); \
        tei_code_;                                    \
    })

/* Use TEI_FAIL. Logged at WARN, FATAL class at ERROR. Preserves errno. */
void tei_fail(struct tei_log_site *site, int code, const char *fmt, ...) TEI_PRINTF(3, 4);

/*
 * Sets the text for te_errmsg() without logging: for errors that were decided, and logged, in
 * another thread. Returns `code`.
 */
int tei_err_keep(int code, const char *text);

/* strerror that is safe in threads: text of an errno value in a thread-local buffer. */
const char *tei_errno_text(int errnum);

#endif
