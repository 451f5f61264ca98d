/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h - what the files of te_keys share: errors, and key files as they are read and written (src/auth/auth_keys.h
 * describes them). Keys are in secret memory, or in memory that is overwritten before it is freed.
 */
#ifndef TE_KEYS_KEYS_H
#define TE_KEYS_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "auth/auth_keys.h"

enum { DONE, FAILED, USAGE };

/* Prints a message; returns the status. */
__attribute__((format(printf, 2, 3))) int fail(int status, const char *fmt, ...);

/* The lines that are to be written, in their order; they point to where they were read. */
struct draft {
    const struct auth_line *lines[AUTH_LINES_MAX + 1];
    size_t n;
    bool is_group; /* the first line is written twice */
};

/* Reads a key file as an engine does. FAILED: the message says what is wrong, where, and what to do. */
int keys_read(const char *path, struct auth_file **out);
/* All lines of a file. */
void draft_of(const struct auth_file *f, struct draft *out);
/* Makes a new random key. */
int keys_make(const char *id, struct auth_line *out);
/* FAILED, with a message, where something is there already. */
int keys_look(const char *path);
/* Writes a text as a file, at once as a whole. An existing one is an error unless `replace`. */
int keys_put(const char *path, const char *text, mode_t mode, bool replace);
/* Writes a key file, that only its owner reaches, likewise. */
int keys_write(const char *path, const struct draft *d, bool replace);

/* show: who lets whom in; show.c */
int show_files(const char *const *paths, size_t n, bool json);

#endif
