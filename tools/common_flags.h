/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command line flags in the manner of gflags, read by tables: --name=value, --name value,
 * -name=value; for a switch also --name and --noname. '-' and '_' within a name are the same.
 * --help prints every flag with its default. Of a flag that comes more than once the last one
 * counts, as with gflags, unless the tool says otherwise.
 */
#ifndef TOOLS_COMMON_FLAGS_H
#define TOOLS_COMMON_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flag_kind {
    FLAG_SWITCH,  /* bool */
    FLAG_TEXT,    /* const char *; points into argv or at the default */
    FLAG_COUNT,   /* uint64_t */
    FLAG_INDEX,   /* int64_t; -1 stands for all */
    FLAG_SIZE,    /* uint64_t, bytes, with an optional unit */
    FLAG_SECONDS, /* double */
    FLAG_FACTOR,  /* double, without a unit */
};

struct flag {
    const char *name; /* words joined by '_' */
    enum flag_kind kind;
    size_t offset;       /* of the value in the struct that the table fills */
    const char *initial; /* the default, as text */
    uint64_t min, max;   /* FLAG_COUNT and FLAG_SIZE; max 0 means none */
    const char *choices; /* FLAG_TEXT: "read|write"; NULL means any text */
    bool appends;        /* FLAG_TEXT, a list: what comes again goes behind a comma */
    const char *help;
};

struct flag_table {
    const struct flag *flags;
    size_t count;
    void *values;
};

#define FLAGS_MAX 64 /* over all tables of one tool */

struct flags {
    const char *tool;  /* name that messages begin with */
    const char *about; /* what --help says before the flags */
    bool once;         /* a flag that comes twice is an error, unless it appends */
    const struct flag_table *tables;
    size_t count;
    /* What is no flag, before, between or after them; a tool that takes none leaves these out. */
    const char *words_help; /* "COMMAND [NAME]" */
    const char **words;
    size_t words_max;
    size_t word_count;       /* set by flags_parse() */
    bool given[FLAGS_MAX];   /* likewise */
    char *joined[FLAGS_MAX]; /* likewise; values of flags that append */
};

/*
 * Fills the structs of all tables: defaults first, then the command line. Returns -1 to go on, else
 * the status to exit with: 0 after --help or --version, 2 after a message about what is wrong.
 */
int flags_parse(struct flags *f, int argc, char **argv);

/* Whether the command line named this flag. */
bool flags_given(const struct flags *f, const char *name);

/* Frees the lists of flags that append; tools without such flags need not call it. */
void flags_fini(struct flags *f);

#endif
