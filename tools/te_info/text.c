/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/text.h"

#include <stdio.h>
#include <string.h>

/* How much of the text goes on a line: whole words, or one that is too long. */
static size_t fit(const char *text, size_t room)
{
    size_t len = strlen(text), end = room;

    if (len <= room)
        return len;
    while (end > 0 && text[end] != ' ')
        end--;
    return end ? end : strcspn(text, " ");
}

void text_wrap(const char *text, size_t at)
{
    size_t n = fit(text, TEXT_WIDTH - at);

    printf("%.*s\n", (int)n, text);
    for (text += n + strspn(text + n, " "); *text; text += n + strspn(text + n, " ")) {
        n = fit(text, TEXT_WIDTH - at);
        printf("%*s%.*s\n", (int)at, "", (int)n, text);
    }
}

void text_cut(const char *text, size_t at)
{
    size_t room = TEXT_WIDTH - at;

    if (strlen(text) <= room)
        printf("%s\n", text);
    else
        printf("%.*s...\n", (int)room - 3, text);
}
