/* SPDX-License-Identifier: Apache-2.0 */
/* matrix.h - the NIC priority matrix of an engine. Under the engine's `admin`. */
#ifndef TEI_MATRIX_H
#define TEI_MATRIX_H

#include "conf/conf.h"
#include "model/model.h"

struct matrix {
    struct tei_topology *given; /* with te_transport_install(), else NULL */
    json_t *opened;             /* what tei_matrix_topology() said last */
};

void tei_matrix_fini(struct matrix *m);

/* Reads one, malloc'ed. */
int tei_matrix_read(const char *json, size_t len, struct tei_topology **out);
/* One of tei_matrix_read(), or NULL. */
void tei_matrix_free(struct tei_topology *t);
/* MC_CUSTOM_TOPO_JSON: a file that cannot be used is a WARN, and the machine is looked at instead. */
int tei_matrix_load(struct matrix *m, const char *path);
/* Whether the transport with TEI_CAP_NICS was opened with this one. */
int tei_matrix_is_opened(const struct matrix *m, const struct tei_topology *t, bool *same);
/* As topology() of struct tei_host: the matrix that was given, else what discovery finds. */
int tei_matrix_topology(struct matrix *m, const struct tei_conf *conf, struct tei_topology *out);

#endif
