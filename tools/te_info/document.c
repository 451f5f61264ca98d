/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/document.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "te.h"

/* The introduction is written once, in Markdown; the manual page has it translated. */
static const char markdown_head[] =
    "# Configuration\n"
    "\n"
    "This page lists every option of an engine: its default, what it may be and what it does. It is\n"
    "printed from the option table, `src/conf/table.c`, by `make docs`.\n"
    "\n";

static const char intro[] =
    "An option is set by an environment variable of its name, or by `te_option_set()` before the\n"
    "engine is made; the latter wins. `te_info --config` shows the values in force and where each\n"
    "is from. A value that the table does not allow is an error for `te_option_set()`; in the\n"
    "environment it is a warning, and the default is used. So are values that do not fit each\n"
    "other, such as a port range that is empty. Variables that begin with `MC_` or `TE_`, are set\n"
    "and change nothing are named once in each process, in one warning, with the option that may\n"
    "be meant.\n"
    "\n"
    "- A **switch** (\"on or off\") is off when it is empty, `0`, `false`, `no` or `off`, in any\n"
    "  case, and on when it is anything else.\n"
    "- A **size** (in bytes) may end in `k`, `m` or `g`, powers of 1024.\n"
    "- **Words** may be written in any case. Blanks around numbers, words and switches are\n"
    "  ignored.\n"
    "- An **empty variable** counts as one that is not set, except for switches.\n"
    "- Where two names are given, the first counts if both are set.\n"
    "- **Secrets** are never logged or shown.\n";

static const char markdown_tail[] =
    "\n"
    "How these options relate to those of Mooncake's engine is told in [compat.md](compat.md).\n";

static const char man_head[] =
    ".\\\" SPDX-License-Identifier: Apache-2.0\n"
    ".\\\" Printed from the option table, src/conf/table.c, by make docs.\n"
    ".TH TRANSFER_ENGINE 5 \"2026-11-22\" \"Transfer Engine %s\" \"Transfer Engine\"\n"
    ".SH NAME\n"
    "transfer_engine \\- options of an engine, set by the environment or by its program\n"
    ".SH DESCRIPTION\n";

static const char man_tail[] = ".SH \"SEE ALSO\"\n"
                               ".BR te_info (1),\n"
                               ".BR te_options_init (3),\n"
                               ".BR transfer_engine (7)\n";

static const char *shown(const char *text)
{
    return text[0] ? text : "(empty)";
}

void document_markdown(const struct tei_conf *c)
{
    struct tei_conf_row row;

    printf("%s%s%s", markdown_head, intro, markdown_tail);
    for (size_t i = 0; tei_conf_row(c, i, &row); i++) {
        if (row.about)
            printf("\n## %s\n\n%s\n\n| Name | Default | Must be | Meaning |\n|---|---|---|---|\n",
                   row.section, row.about);
        printf("| `%s`", row.name);
        if (row.alias)
            printf(", `%s`", row.alias);
        printf(" | %s%s%s | %s%s%s | %s%s%s |\n", row.fallback[0] ? "`" : "", shown(row.fallback),
               row.fallback[0] ? "`" : "", row.range, row.unit ? " " : "", row.unit ? row.unit : "",
               row.help, row.secret ? " Secret." : "", row.idle ? " *" DOCUMENT_IDLE "*" : "");
    }
}

/* -------------------------------------------------------------------------------- the manual page */

/*
 * A part of a line of roff: `text`, up to `end`, with `code` and **strong** words as Markdown marks
 * them in bold. A minus is one, not a hyphen.
 */
static void man_words(const char *text, const char *end)
{
    bool bold = false;

    for (; text < end; text++) {
        if (*text == '`' || (text[0] == '*' && text[1] == '*')) {
            bold = !bold;
            text += *text == '*';
            printf(bold ? "\\fB" : "\\fP");
        } else if (*text == '-') {
            printf("\\-");
        } else if (*text == '\\') {
            printf("\\e");
        } else {
            putchar(*text);
        }
    }
}

static void man_text(const char *text)
{
    man_words(text, text + strlen(text));
}

/* Whole lines, of which none may begin as a request of roff does. */
static void man_lines(const char *text, const char *end)
{
    if (*text == '.' || *text == '\'')
        printf("\\&");
    man_words(text, end);
    putchar('\n');
}

/* The introduction: paragraphs, then a list. */
static void man_intro(void)
{
    const char *end;

    for (const char *line = intro; *line; line = end + 1) {
        end = strchr(line, '\n');
        if (line[0] == '-')
            printf(".IP \\(bu 2\n");
        if (line < end)
            man_lines(line + (line[0] == '-' || line[0] == ' ' ? 2 : 0), end);
    }
}

static void man_option(const struct tei_conf_row *row)
{
    printf(".TP\n.B %s\n", row->name);
    man_lines(row->help, row->help + strlen(row->help));
    if (row->secret)
        printf("Secret.\n");
    if (row->idle)
        printf(DOCUMENT_IDLE "\n");
    printf(".br\nDefault: ");
    man_text(shown(row->fallback));
    printf("; must be ");
    man_text(row->range);
    printf("%s%s.\n", row->unit ? " " : "", row->unit ? row->unit : "");
    if (row->alias)
        printf("Also named\n.BR %s .\n", row->alias);
}

void document_man(const struct tei_conf *c)
{
    struct tei_conf_row row;

    printf(man_head, te_version());
    man_intro();
    for (size_t i = 0; tei_conf_row(c, i, &row); i++) {
        if (row.about) {
            printf(".SH \"");
            for (const char *at = row.section; *at; at++)
                putchar(toupper((unsigned char)*at));
            printf("\"\n");
            man_lines(row.about, row.about + strlen(row.about));
        }
        man_option(&row);
    }
    fputs(man_tail, stdout);
}
