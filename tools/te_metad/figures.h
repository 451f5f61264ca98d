/* SPDX-License-Identifier: Apache-2.0 */
/* What te_metad tells of its requests: /metrics, for Prometheus, and the lines of --request-log. */
#ifndef TE_METAD_FIGURES_H
#define TE_METAD_FIGURES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "te_metad/store.h"

#define FIGURES_BOUNDS  6
#define FIGURES_CLASSES 6 /* of status codes: 1xx to 5xx, by their first digit */

enum verb {
    VERB_OTHER, /* what was refused before it was known what it is */
    VERB_GET,
    VERB_LIST,
    VERB_PUT,
    VERB_KEEP,
    VERB_DELETE,
    VERB_HEALTH,
    VERB_METRICS,
    VERB_COUNT,
};

struct figures { /* zeroed before first use */
    atomic_ullong requests[VERB_COUNT][FIGURES_CLASSES];
    atomic_ullong times[FIGURES_BOUNDS + 1], sum_ns;
};

/* A request that has its answer. */
struct figure {
    enum verb verb;
    unsigned status;
    int64_t begin_ns; /* by figures_now_ns() */
    /* For the log alone; url NULL: it is not written. The key may be NULL. */
    const char *method, *url, *key;
    size_t key_len;
    const struct sockaddr *from;
};

int64_t figures_now_ns(void);

/* Counts it, and writes a line to standard error if its url is not NULL. */
void figures_add(struct figures *f, const struct figure *one);

/* The text of /metrics, malloc'ed; NULL when memory is out. */
char *figures_text(struct figures *f, struct store *store, size_t connections);

#endif
