/* SPDX-License-Identifier: Apache-2.0 */
/* samples.h - the text of an engine's metrics, read; and how quickly counters grow from one to the next. */
#ifndef TE_TOP_SAMPLES_H
#define TE_TOP_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>

struct sample {
    const char *name; /* without "transfer_engine_" */
    char *labels;     /* as they stand between the braces; "" if there are none */
    double value;
};

struct samples {
    char *text; /* owns the names and labels */
    struct sample *v;
    size_t n;
};

/* As many as are read of one text: what is told takes time that grows with the square of it. */
#define SAMPLES_MAX 4096

/* Takes the text over. False: no memory; nothing is left then. */
bool samples_read(char *text, struct samples *out);
void samples_free(struct samples *s);

/* The value of a series; 0 if there is none. */
double samples_value(const struct samples *s, const char *name, const char *labels);
/* Replaces what a terminal would obey by '?': control characters, those of UTF-8 beyond ASCII among them. */
void samples_blank(char *text);
/*
 * The value of a label, unescaped and with what a terminal would obey replaced by '?', in buf; "" if the series
 * has none of that name.
 */
const char *samples_label(const struct sample *s, const char *label, char *buf, size_t n);
/* Growth of a series; what has become less has begun anew. */
double samples_growth(const struct samples *was, const struct sample *now);
/* Whether a series has this value of that label. */
bool samples_has(const struct sample *s, const char *label, const char *value);
/* Growth of all series of that name which have `value` of `label`; NULL: whatever they have. */
double samples_sum(const struct samples *was, const struct samples *now, const char *name,
                   const char *label, const char *value);

#endif
