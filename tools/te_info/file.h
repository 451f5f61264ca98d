/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - short files of the system, as /proc and /sys have them. */
#ifndef TE_INFO_FILE_H
#define TE_INFO_FILE_H

#include <stdbool.h>

#define FILE_LINE 1024 /* longer lines are cut */

/* The first line of a file, without its newline; false, and "", if there is none. */
__attribute__((format(printf, 2, 3))) bool file_line(char line[FILE_LINE], const char *path, ...);

/* What stands behind `key`, and blanks, in the first line that begins with it; likewise. */
__attribute__((format(printf, 3, 4))) bool file_row(char row[FILE_LINE], const char *key,
                                                    const char *path, ...);

#endif
