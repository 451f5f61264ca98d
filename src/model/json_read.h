/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_read.h - JSON read in place, value by value, without memory of its own; private to model/.
 *
 * Strict, as jansson is: UTF-8 without overlong forms or surrogates, no control characters and no
 * U+0000 in strings, integers of 64 bits, nesting of at most 2,048. It does not look for keys that
 * come twice, nor whether a real number is too large for a double: that is for those who read them.
 */
#ifndef TEI_MODEL_JSON_READ_H
#define TEI_MODEL_JSON_READ_H

#include "base/base.h"

#include <jansson.h>

enum tei_json_kind {
    TEI_JSON_MISSING,
    TEI_JSON_OBJECT,
    TEI_JSON_ARRAY,
    TEI_JSON_STRING,
    TEI_JSON_INTEGER,
    TEI_JSON_REAL,
    TEI_JSON_TRUE,
    TEI_JSON_FALSE,
    TEI_JSON_NULL
};
/* "an object", "missing": for messages. */
const char *tei_json_kind_name(enum tei_json_kind kind);

/* A value that has been read: a piece of the reader's text. */
struct tei_json_value {
    enum tei_json_kind kind;
    bool escaped;     /* a string with backslashes in it */
    const char *text; /* the whole value; of a string, what is between its quotes */
    size_t len;
    int64_t integer; /* of TEI_JSON_INTEGER */
};

/*
 * A member of the outermost object (depth 1), or of an object that is a member of that (depth 2); called
 * as it has been read, so those of an object come before it. `weight` is its part of reader.tree.
 */
typedef void (*tei_json_member_fn)(void *arg, unsigned depth, const struct tei_json_value *key,
                                   const struct tei_json_value *value, size_t weight);

struct tei_json_reader {
    const char *begin, *at, *end;
    const char *wrong; /* what the text lacks at `at`; NULL while all is well */
    bool late;         /* the deadline has passed */
    /* Whoever makes values of all that was read since this was 0 needs so many bytes, at most. */
    size_t tree;
    int64_t deadline_ns;
    unsigned read;                /* values, modulo some number: then the clock is looked at */
    char close;                   /* of the container whose inside is read; 0: of none */
    tei_json_member_fn on_member; /* NULL: nobody is told; set after init */
    void *arg;
};

/* The text is read up to `deadline_ns` (TEI_NEVER). */
void tei_json_reader_init(struct tei_json_reader *r, const char *text, size_t len,
                          int64_t deadline_ns);
/* Of the members of an object, or the items of an array. */
void tei_json_reader_inside(struct tei_json_reader *r, const struct tei_json_value *container,
                            int64_t deadline_ns);

/* The next value, with all that is in it; false: `wrong` or `late` is set. */
bool tei_json_read(struct tei_json_reader *r, struct tei_json_value *out);
/* Whether only white space is left; else `wrong` is set. */
bool tei_json_at_end(struct tei_json_reader *r);
/*
 * Inside a container: its next member or item. `key` (a string) is of members. false: there is no
 * more, or `wrong` or `late` is set.
 */
bool tei_json_next(struct tei_json_reader *r, struct tei_json_value *key,
                   struct tei_json_value *out);

/* The string as it is meant, with a NUL; false if it has more than n - 1 bytes. */
bool tei_json_copy(const struct tei_json_value *string, char *out, size_t n);
/* `text` is short: at most 63 bytes. */
bool tei_json_is(const struct tei_json_value *string, const char *text);

/* Whether a tree of a stranger's value may be made: it may take twice the value's text and 8 MiB. */
bool tei_json_tree_fits(size_t tree, size_t len);
/*
 * A tree of a container that has been read, of which what is within the containers `cuts` (in order of
 * the text) is left out. 0, TE_ERR_MEMORY, or TE_ERR_JSON with the reason in `why`, unlogged.
 */
int tei_json_tree(const struct tei_json_value *v, const struct tei_json_value *cuts, size_t n_cuts,
                  json_t **out, json_error_t *why);

#endif
