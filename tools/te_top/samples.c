/* SPDX-License-Identifier: Apache-2.0 */
#include "te_top/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "transfer_engine_"

/* The end of what is in braces: the last one before the value. */
static char *end_of_labels(char *at)
{
    bool quoted = false;

    for (; *at && (quoted || *at != '}'); at++) {
        if (*at == '\\' && at[1])
            at++;
        else if (*at == '"')
            quoted = !quoted;
    }
    return *at ? at : NULL;
}

/* "name{labels} value" or "name value". */
static bool read_sample(char *line, struct sample *out)
{
    static char none[] = "";
    char *at = line + strlen(PREFIX), *end = at + strcspn(at, "{ ");

    *out = (struct sample){.name = at, .labels = none};
    if (*end == '{') {
        *end = '\0';
        out->labels = end + 1;
        end = end_of_labels(out->labels);
    }
    if (!end || !*end)
        return false;
    *end++ = '\0';
    out->value = strtod(end, NULL);
    return true;
}

bool samples_read(char *text, struct samples *out)
{
    size_t lines = 1;
    char *save = NULL;

    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    lines = lines < SAMPLES_MAX ? lines : SAMPLES_MAX;
    *out = (struct samples){.text = text, .v = calloc(lines, sizeof(*out->v))};
    if (!out->v) {
        free(text);
        return false;
    }
    for (char *line = strtok_r(text, "\n", &save); line && out->n < lines;
         line = strtok_r(NULL, "\n", &save))
        if (strncmp(line, PREFIX, strlen(PREFIX)) == 0 && read_sample(line, &out->v[out->n]))
            out->n++;
    return true;
}

void samples_free(struct samples *s)
{
    free(s->text);
    free(s->v);
    *s = (struct samples){0};
}

static const struct sample *find(const struct samples *s, const char *name, const char *labels)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->v[i].name, name) == 0 && strcmp(s->v[i].labels, labels) == 0)
            return &s->v[i];
    return NULL;
}

double samples_value(const struct samples *s, const char *name, const char *labels)
{
    const struct sample *found = find(s, name, labels);

    return found ? found->value : 0;
}

/* Where the value of the label begins, behind its quotation mark. */
static const char *value_of(const struct sample *s, const char *label)
{
    size_t n = strlen(label);

    for (const char *at = s->labels; at && *at; at = strstr(at, "\",")) {
        at += *at == '"' ? 2 : 0;
        if (strncmp(at, label, n) == 0 && strncmp(at + n, "=\"", 2) == 0)
            return at + n + 2;
    }
    return NULL;
}

void samples_blank(char *text)
{
    unsigned char *from = (unsigned char *)text, *to = from;

    for (; *from; from++, to++) {
        bool c1 = from[0] == 0xc2 && from[1] >= 0x80 && from[1] <= 0x9f;

        *to = c1 || *from < ' ' || *from == 0x7f ? '?' : *from;
        from += c1;
    }
    *to = '\0';
}

const char *samples_label(const struct sample *s, const char *label, char *buf, size_t n)
{
    const char *at = value_of(s, label);
    size_t len = 0;

    for (; at && *at && *at != '"' && len + 1 < n; at++) {
        at += *at == '\\' && at[1];
        buf[len++] = *at;
    }
    while (len && ((unsigned char)buf[len - 1] & 0xc0) == 0x80 && at && *at && *at != '"')
        len--; /* no part of a character at a cut */
    buf[len] = '\0';
    samples_blank(buf);
    return buf;
}

bool samples_has(const struct sample *s, const char *label, const char *value)
{
    const char *at = value_of(s, label);
    size_t n = strlen(value);

    return at && strncmp(at, value, n) == 0 && at[n] == '"';
}

double samples_growth(const struct samples *was, const struct sample *now)
{
    double before = samples_value(was, now->name, now->labels);

    return now->value < before ? now->value : now->value - before;
}

double samples_sum(const struct samples *was, const struct samples *now, const char *name,
                   const char *label, const char *value)
{
    double sum = 0;

    for (size_t i = 0; i < now->n; i++)
        if (strcmp(now->v[i].name, name) == 0 && (!value || samples_has(&now->v[i], label, value)))
            sum += samples_growth(was, &now->v[i]);
    return sum;
}
