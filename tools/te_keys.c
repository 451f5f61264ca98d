/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_keys - the key files of TE_AUTH=psk: makes them, changes keys step by step, checks files as an engine does, and
 * shows who lets whom in. And certificates for a test cluster, for TLS to the metadata server.
 *
 * Exit status: 0 done, 1 failed, 2 wrong usage.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common_flags.h"
#include "te.h"
#include "te_keys/certificates.h"
#include "te_keys/keys.h"

#define WORDS_MAX 1025 /* the command, and what it takes */

struct settings {
    const char *dir;
    bool group, json;
    uint64_t days;
};

#define ROW(member) .name = #member, .offset = offsetof(struct settings, member)

static const struct flag setting_flags[] = {
    {ROW(dir), .kind = FLAG_TEXT, .initial = ".",
     .help =
         "make, ca, cert: the folder for the files; made, for its owner alone, if it is not there.\n"
         "      cert: the authority is there, too."},
    {ROW(days), .kind = FLAG_COUNT, .initial = "30", .min = 1, .max = 20000,
     .help = "ca, cert: how long the certificates are valid."},
    {ROW(group), .kind = FLAG_SWITCH, .initial = "false",
     .help =
         "make: one id for all engines of a group: its line is written twice, so that they let\n"
         "      each other in."},
    {ROW(json), .kind = FLAG_SWITCH, .initial = "false", .help = "show: print JSON."},
};

static const char about[] =
    "The key files of TE_AUTH=psk (TE_AUTH_KEYS), and certificates for TE_AUTH=mtls.\n\n"
    "Commands:\n"
    "  make ID...            New keys: a file ID.keys for each ID, with its own line first and those\n"
    "                        of the others behind it. With --group, of one ID, the file of a group.\n"
    "  check FILE...         Read files as an engine does; say what is wrong, in which line, and what\n"
    "                        to do.\n"
    "  show FILE...          Whom each file lets in, and who can come to whom. No key is printed.\n"
    "  add ID FILE...        A new key for a new id, behind the other lines of each file.\n"
    "  first ID FILE...      Show this id from now on: its line becomes the first one.\n"
    "  remove ID FILE...     Take an id out; not the one that a file shows.\n"
    "  ca                    A certificate authority for a test cluster, ca.pem and ca.key.\n"
    "  cert NAME[,NAME]...   Certificates that it has signed, NAME.pem and NAME.key, of hosts,\n"
    "                        addresses or segments: for engines with TE_AUTH=mtls (TE_AUTH_CA=ca.pem,\n"
    "                        TE_AUTH_CERT, TE_AUTH_KEY), te_metad (--tls-cert, --tls-key), and engines\n"
    "                        that reach it by https (TE_METADATA_CA=ca.pem).\n\n"
    "add, first and remove, in this order, change a key; comments in a file are not kept.";

int fail(int status, const char *fmt, ...)
{
    va_list args;

    fputs("te_keys: ", stderr);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    return status;
}

struct job {
    const struct settings *settings;
    const char *id; /* NULL: the command takes none */
    const char *const *words;
    size_t n;
};

/* ------------------------------------------------------------------------------------------ make */

static int make_folder(const struct job *j)
{
    if (mkdir(j->settings->dir, 0700) == 0 || errno == EEXIST)
        return DONE;
    return fail(FAILED, "%s cannot be made: %s", j->settings->dir, strerror(errno));
}

/* The lines of one file of a cluster: its own, then the others. */
static void draft_cluster(const struct auth_file *all, size_t own, bool is_group, struct draft *out)
{
    *out = (struct draft){.is_group = is_group};
    out->lines[out->n++] = &all->lines[own];
    for (size_t i = 0; i < all->n; i++)
        if (i != own)
            out->lines[out->n++] = &all->lines[i];
}

static int make_keys(const struct job *j, struct auth_file *all)
{
    int rc = DONE;

    for (size_t i = 0; !rc && i < j->n; i++) {
        if (tei_auth_find(all, j->words[i], strlen(j->words[i])))
            return fail(USAGE, "make: '%s' stands twice: give each file an id of its own",
                        j->words[i]);
        rc = keys_make(j->words[i], &all->lines[i]);
        all->n++;
    }
    return rc;
}

static int path_of(char path[PATH_MAX], const struct job *j, const struct auth_line *own)
{
    return snprintf(path, PATH_MAX, "%s/%s.keys", j->settings->dir, own->id) < PATH_MAX
               ? DONE
               : fail(FAILED, "%s: the name is too long", j->settings->dir);
}

/* All places are looked at before the first file is written; what was made is taken back where one fails. */
static int write_cluster(const struct job *j, const struct auth_file *all)
{
    static struct draft d;
    char path[PATH_MAX];
    size_t made = 0;
    int rc = DONE;

    for (size_t i = 0; !rc && i < all->n; i++) {
        rc = path_of(path, j, &all->lines[i]);
        if (!rc)
            rc = keys_look(path);
    }
    while (!rc && made < all->n) {
        draft_cluster(all, made, j->settings->group, &d);
        rc = path_of(path, j, &all->lines[made]);
        if (!rc)
            rc = keys_write(path, &d, false);
        made += !rc;
    }
    for (size_t i = 0; i < made; i++) {
        if (path_of(path, j, &all->lines[i]))
            continue;
        if (rc)
            unlink(path);
        else
            printf("%s\n", path);
    }
    return rc;
}

static int command_make(const struct job *j)
{
    size_t bytes = sizeof(struct auth_file) + j->n * sizeof(struct auth_line);
    struct auth_file *all;
    int rc;

    if (j->settings->group && j->n != 1)
        return fail(USAGE, "make --group takes one id: all engines of the group show it");
    for (size_t i = 0; i < j->n; i++)
        if (!tei_auth_is_id(j->words[i], strlen(j->words[i])))
            return fail(USAGE, "make: '%s' is not an id: 1 to 64 letters, digits, '.', '_' or '-'",
                        j->words[i]);
    all = tei_secret_alloc(bytes);
    if (!all)
        return fail(FAILED, "out of memory");
    all->bytes = bytes;
    rc = make_keys(j, all);
    if (!rc)
        rc = make_folder(j);
    if (!rc)
        rc = write_cluster(j, all);
    tei_auth_file_free(all);
    return rc;
}

/* ------------------------------------------------------------------------------- check and show */

static int command_check(const struct job *j)
{
    struct auth_file *f;
    int rc = DONE;

    for (size_t i = 0; i < j->n; i++) {
        if (keys_read(j->words[i], &f)) {
            rc = FAILED;
            continue;
        }
        printf("%s: good: shows '%s', lets in %zu\n", j->words[i], f->lines[0].id,
               f->n - !f->own_may_come);
        tei_auth_file_free(f);
    }
    return rc;
}

static int command_show(const struct job *j)
{
    return show_files(j->words, j->n, j->settings->json);
}

/* -------------------------------------------------------------------------------- change of keys */

static int draft_add(const char *path, const struct auth_line *found, const struct auth_line *new,
                     struct draft *d)
{
    if (found)
        return fail(FAILED, "%s has a line of '%s' already: give the new key an id of its own",
                    path, found->id);
    if (d->n == AUTH_LINES_MAX)
        return fail(FAILED, "%s has %d ids, which is all it can have", path, AUTH_LINES_MAX);
    d->lines[d->n++] = new;
    return DONE;
}

static void take_out(struct draft *d, const struct auth_line *line)
{
    size_t n = 0;

    for (size_t i = 0; i < d->n; i++)
        if (d->lines[i] != line)
            d->lines[n++] = d->lines[i];
    d->n = n;
}

static void put_first(struct draft *d, const struct auth_line *line)
{
    take_out(d, line);
    memmove(&d->lines[1], d->lines, d->n * sizeof(d->lines[0]));
    d->lines[0] = line;
    d->n++;
}

enum change { ADD, FIRST, REMOVE };

/* What a file is to have. */
static int draft_change(enum change change, const struct job *j, const char *path,
                        const struct auth_file *f, const struct auth_line *new, struct draft *d)
{
    const struct auth_line *found = tei_auth_find(f, j->id, strlen(j->id));

    draft_of(f, d);
    if (change == ADD)
        return draft_add(path, found, new, d);
    if (!found)
        return fail(FAILED, "%s has no line of '%s': see te_keys show %s", path, j->id, path);
    if (change == FIRST) {
        put_first(d, found);
        return DONE;
    }
    if (found == &f->lines[0])
        return fail(FAILED, "%s shows '%s': have it show another one before (te_keys first ID %s)",
                    path, j->id, path);
    take_out(d, found);
    return DONE;
}

/* All files are read, and seen to be fit, before the first one is written. */
static int change_files(enum change change, const struct job *j, const struct auth_line *new,
                        struct auth_file **files)
{
    static struct draft d;
    int rc = DONE;

    for (size_t i = 0; !rc && i < j->n; i++) {
        rc = keys_read(j->words[i], &files[i]);
        if (!rc)
            rc = draft_change(change, j, j->words[i], files[i], new, &d);
    }
    for (size_t i = 0; !rc && i < j->n; i++) {
        rc = draft_change(change, j, j->words[i], files[i], new, &d);
        if (!rc)
            rc = keys_write(j->words[i], &d, true);
    }
    return rc;
}

static int change_keys(enum change change, const struct job *j)
{
    struct auth_line *new = tei_secret_alloc(sizeof(*new));
    struct auth_file **files = calloc(j->n, sizeof(struct auth_file *));
    int rc = new &&files ? DONE : fail(FAILED, "out of memory");

    if (!rc && change == ADD)
        rc = keys_make(j->id, new);
    if (!rc)
        rc = change_files(change, j, new, files);
    for (size_t i = 0; files && i < j->n; i++)
        tei_auth_file_free(files[i]);
    free(files);
    tei_secret_free(new, sizeof(*new));
    return rc;
}

static int command_add(const struct job *j)
{
    return change_keys(ADD, j);
}

static int command_first(const struct job *j)
{
    return change_keys(FIRST, j);
}

static int command_remove(const struct job *j)
{
    return change_keys(REMOVE, j);
}

/* ---------------------------------------------------------------------------------- certificates */

static int command_ca(const struct job *j)
{
    int rc = make_folder(j);

    return rc ? rc : certificates_ca(j->settings->dir, j->settings->days);
}

static int command_cert(const struct job *j)
{
    int rc = DONE;

    for (size_t i = 0; !rc && i < j->n; i++)
        rc = certificates_look(j->settings->dir, j->words[i]);
    for (size_t i = 0; !rc && i < j->n; i++)
        rc = certificates_sign(j->settings->dir, j->words[i], j->settings->days);
    return rc;
}

/* ------------------------------------------------------------------------------------------ main */

static const struct command {
    const char *word;
    int (*run)(const struct job *j);
    bool takes_id;
    const char *what;  /* it takes; NULL: nothing */
    const char *flags; /* " a b " */
} commands[] = {
    {"make", command_make, false, "ID...", " dir group "},
    {"check", command_check, false, "FILE...", " "},
    {"show", command_show, false, "FILE...", " json "},
    {"add", command_add, true, "ID FILE...", " "},
    {"first", command_first, true, "ID FILE...", " "},
    {"remove", command_remove, true, "ID FILE...", " "},
    {"ca", command_ca, false, NULL, " dir days "},
    {"cert", command_cert, false, "NAME[,NAME]...", " dir days "},
};

static const struct command *find_command(const char *word)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(commands[i].word, word) == 0)
            return &commands[i];
    return NULL;
}

static int check_usage(const struct flags *flags, const struct command **out)
{
    const char *const *words = flags->words;
    const struct command *c = flags->word_count ? find_command(words[0]) : NULL;

    if (!c)
        return fail(USAGE,
                    "a command is missing: make, check, show, add, first, remove, ca or cert "
                    "(see --help)");
    if (!c->what && flags->word_count > 1)
        return fail(USAGE, "%s takes no word, drop '%s'", c->word, words[1]);
    if (c->what && flags->word_count < (c->takes_id ? 3U : 2U))
        return fail(USAGE, "something is missing: te_keys %s %s", c->word, c->what);
    if (c->takes_id && !tei_auth_is_id(words[1], strlen(words[1])))
        return fail(USAGE, "'%s' is not an id: 1 to 64 letters, digits, '.', '_' or '-'", words[1]);
    for (size_t i = 0; i < sizeof(setting_flags) / sizeof(setting_flags[0]); i++) {
        char word[64];

        snprintf(word, sizeof(word), " %s ", setting_flags[i].name);
        if (flags_given(flags, setting_flags[i].name) && !strstr(c->flags, word))
            return fail(USAGE, "%s takes no --%s", c->word, setting_flags[i].name);
    }
    *out = c;
    return DONE;
}

int main(int argc, char **argv)
{
    static const char *words[WORDS_MAX];
    const struct command *c = NULL;
    struct settings s = {0};
    const struct flag_table table = {.flags = setting_flags,
                                     .count = sizeof(setting_flags) / sizeof(setting_flags[0]),
                                     .values = &s};
    struct flags flags = {.tool = "te_keys",
                          .about = about,
                          .once = true,
                          .tables = &table,
                          .count = 1,
                          .words_help = "COMMAND WORD...",
                          .words = words,
                          .words_max = WORDS_MAX};
    int rc = flags_parse(&flags, argc, argv);

    if (rc < 0 && !(rc = check_usage(&flags, &c))) {
        size_t skip = c->takes_id ? 2 : 1;
        struct job j = {.settings = &s,
                        .id = c->takes_id ? words[1] : NULL,
                        .words = words + skip,
                        .n = flags.word_count - skip};

        prctl(PR_SET_DUMPABLE, 0);    /* no core dump has a key */
        te_log_set_level(TE_LOG_OFF); /* what goes wrong is printed here, once */
        rc = c->run(&j);
    }
    flags_fini(&flags);
    if (fflush(stdout) || ferror(stdout))
        rc = fail(FAILED, "cannot write: %s", strerror(errno));
    return rc;
}
