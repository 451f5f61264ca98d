/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/file.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The rest of a line that is too long is read and dropped. */
static bool next_line(FILE *f, char line[FILE_LINE])
{
    size_t len;

    if (!fgets(line, FILE_LINE, f))
        return false;
    len = strcspn(line, "\n");
    for (int c = line[len]; c != '\n' && c != EOF;)
        c = fgetc(f);
    line[len] = '\0';
    return true;
}

static bool find_row(char row[FILE_LINE], const char *key, const char *path)
{
    size_t len = strlen(key);
    FILE *f = fopen(path, "re");
    bool found = false;

    row[0] = '\0';
    if (!f)
        return false;
    while (!found && next_line(f, row))
        found = strncmp(row, key, len) == 0;
    fclose(f);
    if (!found) {
        row[0] = '\0';
        return false;
    }
    len += strspn(row + len, " \t");
    memmove(row, row + len, strlen(row + len) + 1);
    return true;
}

bool file_line(char line[FILE_LINE], const char *path, ...)
{
    char full[PATH_MAX];
    va_list args;

    va_start(args, path);
    vsnprintf(full, sizeof full, path, args);
    va_end(args);
    return find_row(line, "", full);
}

bool file_row(char row[FILE_LINE], const char *key, const char *path, ...)
{
    char full[PATH_MAX];
    va_list args;

    va_start(args, path);
    vsnprintf(full, sizeof full, path, args);
    va_end(args);
    return find_row(row, key, full);
}
