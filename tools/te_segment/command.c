/* SPDX-License-Identifier: Apache-2.0 */
#include "te_segment/command.h"

#include <stdarg.h>
#include <stdio.h>

int fail(int status, const char *fmt, ...)
{
    va_list args;

    fprintf(stderr, "te_segment: ");
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n");
    return status;
}
