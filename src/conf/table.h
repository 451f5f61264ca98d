/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - the option table, and how one of its values is read and shown. Private to src/conf. */
#ifndef TEI_CONF_TABLE_H
#define TEI_CONF_TABLE_H

#include "conf/conf.h"

/* What a value may look like. */
enum tei_kind {
    TEI_KIND_SWITCH, /* "", 0, false, no, off; anything else is on */
    TEI_KIND_NUMBER, /* a whole number within min..max */
    TEI_KIND_SIZE,   /* the same, with an optional suffix k, m or g (powers of 1024) */
    TEI_KIND_WORD,   /* one of `words` */
    TEI_KIND_LEVEL,  /* a log level, or "" for none */
    TEI_KIND_TEXT,   /* at most `max` bytes */
};

/* How the member of struct tei_conf is typed. */
enum tei_store_as {
    TEI_AS_BOOL,
    TEI_AS_INT,
    TEI_AS_INT64,
    TEI_AS_SIZE,
    TEI_AS_U16,
    TEI_AS_TEXT,
};

struct tei_word {
    const char *text;
    int value;
};

struct tei_option_row {
    const char *section, *about; /* given in the first row of a section */
    const char *name, *alias;
    enum tei_kind kind;
    enum tei_store_as as;
    size_t offset;        /* of the member in struct tei_conf */
    const char *fallback; /* the default, written the way tei_value_format() writes it */
    int64_t min, max;
    int64_t scale; /* the member holds the number times this; 0 means 1 */
    const struct tei_word *words;
    const char *unit;
    bool secret;
    bool
        strict; /* a bad value in the environment is an error, too: no default may take its place */
    bool idle;  /* checked and shown, but nothing reads it yet; tests/lint/test_options.py */
    const char *help;
};

extern const struct tei_option_row tei_option_rows[];
extern const size_t tei_option_count;

/* By name or alias; NULL if there is none. */
const struct tei_option_row *tei_option_find(const char *name);

/* Whether a variable of that name is read by programs around the library, and is not a misspelt option. */
bool tei_option_is_others(const char *name);

/* Its text in the environment; NULL if there is none. */
const char *tei_conf_variable(const char *name);

/* Whether a variable of that text is set: an empty one is not, but for a switch, where it means off. */
bool tei_value_is_set(const struct tei_option_row *r, const char *text);

/* Writes the value into its member; false, and nothing written, if it is none the row allows. */
bool tei_value_parse(const struct tei_option_row *r, const char *text, struct tei_conf *c);

/* The member as text that tei_value_parse() would read as the same value. */
void tei_value_format(const struct tei_option_row *r, const struct tei_conf *c, char *buf,
                      size_t n);

/* What the row allows, in words, to stand after "must be". */
void tei_value_expected(const struct tei_option_row *r, char *buf, size_t n);

#endif
