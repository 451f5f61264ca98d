/* SPDX-License-Identifier: Apache-2.0 */
/* show.c - who lets whom in, by the key files of a cluster; nothing of a key is printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "te_keys/keys.h"

struct holder {
    const char *path;
    struct auth_file *file;
};

static const char *own_id(const struct holder *h)
{
    return h->file->lines[0].id;
}

/* Why an engine with the file of `from` is refused by one with that of `to`, NULL: it is let in. */
static const char *why_not(const struct holder *from, const struct holder *to)
{
    const struct auth_line *shown = &from->file->lines[0];
    const struct auth_line *line = tei_auth_find(to->file, shown->id, strlen(shown->id));

    if (!line)
        return "its id is not in that file: te_keys add";
    if (line == &to->file->lines[0] && !to->file->own_may_come)
        return "both show the same id, and that file does not have its first line twice";
    if (line->len != shown->len || memcmp(line->key, shown->key, shown->len) != 0)
        return "that file has another key for its id";
    return NULL;
}

/* ------------------------------------------------------------------------------------------ text */

static void print_file(const struct holder *h)
{
    const struct auth_file *f = h->file;
    const char *between = "";

    printf("%s\n  shows itself as: %s\n  lets in: ", h->path, own_id(h));
    for (size_t i = f->own_may_come ? 0 : 1; i < f->n; i++) {
        printf("%s%s", between, f->lines[i].id);
        between = ", ";
    }
    printf("%s\n", *between ? "" : "nobody");
    if (f->n > 1)
        printf("  has the keys of %zu ids: whoever reads the file can show itself as each of "
               "them\n",
               f->n);
}

static void print_pair(const struct holder *from, const struct holder *to)
{
    const char *why = why_not(from, to);

    printf("%s -> %s: %s%s\n", from->path, to->path, why ? "refused: " : "yes", why ? why : "");
}

static void print_text(const struct holder *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        print_file(&all[i]);
    if (n > 1)
        printf(
            "\nWho may come, to read and write all memory that is registered for all peers, and that\n"
            "for some of them (te_register_allow()) as each id of its file:\n");
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            if (i != k)
                print_pair(&all[i], &all[k]);
}

/* ------------------------------------------------------------------------------------------ JSON */

static json_t *file_json(const struct holder *h)
{
    json_t *in = json_array();

    for (size_t i = h->file->own_may_come ? 0 : 1; i < h->file->n; i++)
        json_array_append_new(in, json_string(h->file->lines[i].id));
    return json_pack("{ss ss sb so}", "file", h->path, "id", own_id(h), "group",
                     h->file->own_may_come, "lets_in", in);
}

/* A path is bytes, and may be text that JSON cannot hold. */
static int check_path(const char *path)
{
    json_t *text = json_string(path);
    bool good = text;

    json_decref(text);
    return good ? DONE
                : fail(FAILED, "show --json: the path %s is not UTF-8: show it without --json",
                       path);
}

static int print_json(const struct holder *all, size_t n)
{
    json_t *files = json_array(), *pairs = json_array(), *whole;
    int rc;

    for (size_t i = 0; i < n; i++)
        json_array_append_new(files, file_json(&all[i]));
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            if (i != k)
                json_array_append_new(pairs,
                                      json_pack("{ss ss ss?}", "from", all[i].path, "to",
                                                all[k].path, "refused", why_not(&all[i], &all[k])));
        }
    }
    whole = json_pack("{so so}", "files", files, "pairs", pairs);
    rc = whole ? json_dumpf(whole, stdout, JSON_INDENT(2)) : -1;
    printf("\n");
    json_decref(whole);
    return rc ? fail(FAILED, "out of memory") : DONE;
}

int show_files(const char *const *paths, size_t n, bool json)
{
    struct holder *all = calloc(n, sizeof(*all));
    int rc = all ? DONE : fail(FAILED, "out of memory");

    for (size_t i = 0; !rc && i < n; i++) {
        all[i].path = paths[i];
        rc = json ? check_path(paths[i]) : DONE;
        if (!rc)
            rc = keys_read(paths[i], &all[i].file);
    }
    if (!rc && json)
        rc = print_json(all, n);
    else if (!rc)
        print_text(all, n);
    for (size_t i = 0; all && i < n; i++)
        tei_auth_file_free(all[i].file);
    free(all);
    return rc;
}
