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

int fail_absent(const struct job *j, const char *consequence)
{
    char near[TEI_DIRECTORY_NEAR_MAX];

    tei_directory_near(j->registry.store, j->registry.conf, "", j->name, true, near);
    return fail(FAILED, "there is no segment '%s'%s%s", j->name, consequence, near);
}
