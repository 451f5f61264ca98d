/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - text within the width of a terminal. */
#ifndef TE_INFO_TEXT_H
#define TE_INFO_TEXT_H

#include <stddef.h>

#define TEXT_WIDTH 100 /* columns */

/* Prints the text from column `at` on, where the cursor is, with as many lines as it takes. */
void text_wrap(const char *text, size_t at);

/* Prints as much of the text as one line has room for behind `at` columns. */
void text_cut(const char *text, size_t at);

#endif
