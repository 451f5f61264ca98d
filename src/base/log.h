/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - log lines.
 *
 * ERROR cannot go on, WARN degraded, INFO a few lines per engine life, DEBUG per connection, TRACE
 * per slice. Lower case, with peer name, device and errno text; never secrets, never payload. Each
 * site is limited to TEI_LOG_BURST lines a second; the number dropped is told with the next line
 * that passes. Process-wide state, safe from any thread.
 */
#ifndef TEI_LOG_H
#define TEI_LOG_H

#include "base/base.h"
#include "te.h"

#include <stdatomic.h>
#include <stdbool.h>

#define TEI_LOG_BURST 5

/* Rate limit of one place in the source; zeroed static storage. */
struct tei_log_site {
    _Atomic int64_t window_s; /* the second being counted */
    _Atomic uint32_t count;   /* lines asked for in it */
};

extern _Atomic int tei_log_threshold; /* enum te_log_level */

static inline bool tei_log_wants(enum te_log_level level)
{
    return (int)level >= atomic_load_explicit(&tei_log_threshold, memory_order_relaxed);
}

#define TEI_LOG(level, ...)                            \
    do {                                               \
        if (tei_log_wants(level)) {                    \
            static struct tei_log_site tei_site_;      \
            tei_log(&tei_site_, (level), __VA_ARGS__); \
        }                                              \
    } while (0)

#define TEI_TRACE(...) TEI_LOG(TE_LOG_TRACE, __VA_ARGS__)
#define TEI_DEBUG(...) TEI_LOG(TE_LOG_DEBUG, __VA_ARGS__)
#define TEI_INFO(...)  TEI_LOG(TE_LOG_INFO, __VA_ARGS__)
#define TEI_WARN(...)  TEI_LOG(TE_LOG_WARN, __VA_ARGS__)
#define TEI_ERROR(...) TEI_LOG(TE_LOG_ERROR, __VA_ARGS__)

/* How the default sink writes a line. */
enum tei_log_format {
    TEI_LOG_GLOG, /* "W1120 13:50:01.123456 1234 te] message" */
    TEI_LOG_ISO,  /* "2026-11-20T13:50:01.123456+01:00 WARN [1200:1234] te: message" */
    TEI_LOG_JSON, /* an object: time, level, pid, tid, dropped, message */
};
void tei_log_set_format(enum tei_log_format f);

/*
 * Use the macros. Preserves errno. The sink is given the message alone, control bytes replaced by
 * '?'; the default sink puts level, time and thread in front.
 */
void tei_log(struct tei_log_site *site, enum te_log_level level, const char *fmt, ...)
    TEI_PRINTF(3, 4);

/*
 * Sends the default sink's lines to a file, appended; "%p" stands for the number of the process.
 * Where that cannot be opened, or is neither a regular file nor a character device, the lines stay
 * on stderr and one WARN says so. "": stderr.
 */
void tei_log_set_file(const char *path);
/*
 * From SIGHUP on, the next line opens the file anew; where that fails, one line in the old file says
 * so, and later lines try again. Not where the program has its own handler, or no file is open: one
 * WARN says so then.
 */
void tei_log_reopen_on_hangup(void);
/* The file transfer_engine.<pid>.log in `dir`. NULL or "": stderr. */
void tei_log_set_dir(const char *dir);

/*
 * "TRACE", "DEBUG", "INFO", "WARN"/"WARNING", "ERROR", "OFF", in any case; false if it is none of
 * them.
 */
bool tei_log_level_parse(const char *text, enum te_log_level *out);

#endif
