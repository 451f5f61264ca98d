/* SPDX-License-Identifier: Apache-2.0 */
#include "te_metad/log.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

void log_time(char out[LOG_TIME])
{
    struct timespec now;
    struct tm local;
    char zone[8];
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    size_t n = strftime(out, LOG_TIME, "%Y-%m-%dT%H:%M:%S", &local);
    strftime(zone, sizeof zone, "%z", &local);
    snprintf(out + n, LOG_TIME - n, ".%03d%.3s:%s", (int)(now.tv_nsec / 1000000), zone, zone + 3);
}

void log_line(const char *format, ...)
{
    char at[LOG_TIME], text[PATH_MAX + 512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_time(at);
    fprintf(stderr, "%s te_metad: %s\n", at, text);
}
