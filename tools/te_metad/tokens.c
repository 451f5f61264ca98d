/* SPDX-License-Identifier: Apache-2.0 */
#include "te_metad/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_MAX 4000 /* engines know no longer one */
#define WORDS     3
#define KEYS      "mooncake/"
#define BLANK     " \t\r"

/* Part of a text. */
struct span {
    const char *at;
    size_t len;
};

/* A line. */
struct token {
    const char *text;
    bool write;
    bool all; /* keys; else those of the segments that follow */
    struct span cluster, name;
    struct token *more; /* the next line of the same token */
    bool again;         /* an earlier line has the token */
};

struct tokens {
    char *text; /* of the file, `len` bytes; all lines point into it */
    size_t len;
    struct token *lines;
    size_t count;
};

/* -------------------------------------------------------------------------------------- reading */

/* Cuts a line into its words; how many there are, WORDS + 1 for more than that. */
static size_t split_line(char *line, char *words[WORDS + 1])
{
    size_t n = 0;
    char *save = NULL;
    for (char *w = strtok_r(line, BLANK, &save); w && n <= WORDS; w = strtok_r(NULL, BLANK, &save))
        words[n++] = w;
    return n;
}

static const char *judge_token(const char *token)
{
    for (const char *c = token; *c; c++)
        if (*c <= ' ' || *c > '~')
            return "a token is one word of letters, digits and ASCII marks; make one with: openssl "
                   "rand -hex 32";
    return strlen(token) > TOKEN_MAX ? "a token has at most 4000 characters" : NULL;
}

static bool ends_with(const struct span *s, const char *word)
{
    size_t n = strlen(word);
    return s->len >= n && memcmp(s->at + s->len - n, word, n) == 0 &&
           (s->len == n || s->at[s->len - n - 1] == '/');
}

/* What was meant to be the beginning of a key would never fit a name. */
static const char *judge_cluster(const struct span *cluster)
{
    static const char *const kinds[] = {"ram", "rpc_meta", "nvmeof"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (ends_with(cluster, kinds[i]))
            return "PREFIX is how the name of a segment begins, not its key: NAME, or CLUSTER/NAME "
                   "with MC_METADATA_CLUSTER_ID";
    return NULL;
}

static const char *read_prefix(const char *prefix, struct token *t)
{
    const char *slash = strrchr(prefix, '/'), *name = slash ? slash + 1 : prefix;
    t->name = (struct span){name, strlen(name)};
    if (!slash)
        return NULL;
    t->cluster = (struct span){prefix, (size_t)(slash - prefix)};
    if (t->cluster.len == 0)
        return "PREFIX begins with '/': it must be NAME, or CLUSTER/NAME";
    return judge_cluster(&t->cluster);
}

/* NULL, or what is wrong. */
static const char *read_words(char **words, size_t n, struct token *t)
{
    if (n > WORDS || (n > 1 && strcmp(words[1], "rw") != 0 && strcmp(words[1], "ro") != 0))
        return "expected TOKEN, TOKEN rw|ro, or TOKEN rw|ro PREFIX";
    *t = (struct token){
        .text = words[0], .write = n == 1 || strcmp(words[1], "rw") == 0, .all = n < WORDS};
    const char *what = judge_token(t->text);
    return !what && n == WORDS ? read_prefix(words[2], t) : what;
}

/* Ties lines of one token together. */
static void tie(struct tokens *t, struct token *line)
{
    for (struct token *other = t->lines; other < line; other++)
        if (!other->more && strcmp(other->text, line->text) == 0) {
            other->more = line;
            line->again = true;
        }
}

/* Whether there is a token, and nothing else that is not understood. */
static bool read_lines(struct tokens *t, const char *flag, const char *path,
                       char why[SECRET_WHY_MAX])
{
    char *rest = t->text, *words[WORDS + 1];
    for (size_t number = 1; rest; number++) {
        size_t n = split_line(strsep(&rest, "\n"), words);
        if (n == 0 || strcmp(words[0], "#") == 0)
            continue;
        struct token *line = &t->lines[t->count++];
        const char *what = read_words(words, n, line);
        if (what) {
            snprintf(why, SECRET_WHY_MAX, "%s=%.200s: line %zu: %s", flag, path, number, what);
            return false;
        }
        tie(t, line);
    }
    if (t->count == 0)
        snprintf(why, SECRET_WHY_MAX, "%s=%.200s: there is no token in it", flag, path);
    return t->count > 0;
}

static size_t count_lines(const char *text)
{
    size_t n = 1;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

struct tokens *tokens_read(const char *flag, const char *path, char why[SECRET_WHY_MAX])
{
    struct tokens *t = calloc(1, sizeof *t);
    if (!t) {
        snprintf(why, SECRET_WHY_MAX, "%s=%.200s: out of memory", flag, path);
        return NULL;
    }
    if (secret_read(flag, path, &t->text, why)) {
        t->len = strlen(t->text);
        t->lines = calloc(count_lines(t->text), sizeof *t->lines);
        if (!t->lines)
            snprintf(why, SECRET_WHY_MAX, "%s=%.200s: out of memory", flag, path);
        else if (read_lines(t, flag, path, why))
            return t;
    }
    tokens_free(t);
    return NULL;
}

void tokens_free(struct tokens *t)
{
    if (!t)
        return;
    if (t->text)
        explicit_bzero(t->text, t->len); /* which is in words by now */
    free(t->text);
    free(t->lines);
    free(t);
}

/* --------------------------------------------------------------------------------------- asking */

static bool same_secret(const char *secret, const char *sent)
{
    size_t len = strlen(secret), sent_len = strlen(sent);
    size_t other = len ^ sent_len;
    for (size_t i = 0; i < sent_len; i++)
        other |= (size_t)(unsigned char)(sent[i] ^ secret[i % len]);
    return other == 0;
}

const struct token *tokens_find(const struct tokens *t, const char *sent)
{
    const struct token *found = NULL;
    for (size_t i = 0; i < t->count; i++)
        if (!t->lines[i].again && same_secret(t->lines[i].text, sent))
            found = &t->lines[i];
    return found;
}

/* The part of *rest behind its last '/', which is cut off from it; all of it if it has none. */
static struct span cut_last(struct span *rest)
{
    const char *slash = memrchr(rest->at, '/', rest->len);
    size_t before = slash ? (size_t)(slash - rest->at) : 0, from = slash ? before + 1 : 0;
    struct span last = {rest->at + from, rest->len - from};
    rest->len = before;
    return last;
}

/* What a key is of; false if it is none of a segment. */
static bool read_key(const char *key, size_t len, struct span *cluster, struct span *name)
{
    size_t n = sizeof KEYS - 1;
    if (len <= n || memcmp(key, KEYS, n) != 0)
        return false;
    *cluster = (struct span){key + n, len - n};
    *name = cut_last(cluster);
    n = cluster->len;
    size_t kind = cut_last(cluster).len;
    return name->len && kind && (kind == n || cluster->len);
}

static bool same_span(const struct span *a, const struct span *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->at, b->at, a->len) == 0);
}

static bool begins(const struct span *text, const struct span *with)
{
    return text->len >= with->len && (with->len == 0 || memcmp(text->at, with->at, with->len) == 0);
}

bool token_may(const struct token *t, bool write, const char *key, size_t len)
{
    struct span cluster = {0}, name = {0};
    bool segment = read_key(key, len, &cluster, &name);
    for (; t; t = t->more)
        if ((t->write || !write) &&
            (t->all || (segment && same_span(&cluster, &t->cluster) && begins(&name, &t->name))))
            return true;
    return false;
}
