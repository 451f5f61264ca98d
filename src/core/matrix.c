/* SPDX-License-Identifier: Apache-2.0 */
/* matrix.c - the NIC priority matrix that was given, or is discovered. */
#include "core/matrix.h"
#include "base/err.h"
#include "base/log.h"
#include "plat/plat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MATRIX_FILE_MAX (1 << 20)

void tei_matrix_free(struct tei_topology *t)
{
    if (t)
        tei_topology_fini(t);
    free(t);
}

int tei_matrix_read(const char *json, size_t len, struct tei_topology **out)
{
    struct tei_topology *t = calloc(1, sizeof(*t));
    int rc;

    if (!t)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a NIC priority matrix");
    rc = tei_topology_decode(json, len, t);
    if (rc) {
        free(t);
        return rc;
    }
    *out = t;
    return 0;
}

int tei_matrix_is_opened(const struct matrix *m, const struct tei_topology *t, bool *same)
{
    json_t *j = tei_topology_json(t);

    if (!j)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a NIC priority matrix");
    *same = json_equal(m->opened, j);
    json_decref(j);
    return 0;
}

/* *n is 0 where the file cannot be read. */
static int read_file(const char *path, char *text, size_t *n)
{
    FILE *f = fopen(path, "re");
    bool no_memory;

    errno = f ? 0 : errno;
    *n = f ? fread(text, 1, MATRIX_FILE_MAX, f) : 0;
    no_memory = errno == ENOMEM;
    if (f)
        fclose(f);
    else
        TEI_WARN("MC_CUSTOM_TOPO_JSON: %s: %s", path, tei_errno_text(errno));
    return no_memory ? TE_ERR_MEMORY : 0;
}

int tei_matrix_load(struct matrix *m, const char *path)
{
    char *text = malloc(MATRIX_FILE_MAX);
    size_t n = 0;
    int rc = text ? read_file(path, text, &n) : TE_ERR_MEMORY;

    if (!rc)
        rc = n && n < MATRIX_FILE_MAX ? tei_matrix_read(text, n, &m->given) : TE_ERR_JSON;
    free(text);
    if (rc == TE_ERR_MEMORY)
        return TEI_FAIL(rc, "MC_CUSTOM_TOPO_JSON: no memory to read %s", path);
    if (rc)
        TEI_WARN("MC_CUSTOM_TOPO_JSON: %s is no NIC priority matrix of less than %d bytes; "
                 "discovering the topology",
                 path, MATRIX_FILE_MAX);
    return 0;
}

int tei_matrix_topology(struct matrix *m, const struct tei_conf *conf, struct tei_topology *out)
{
    struct tei_look look = tei_look_from(conf, NULL);
    struct tei_topology seen = {0};
    json_t *j;
    int rc = m->given ? 0 : tei_discover(&look, NULL, &seen);

    if (rc)
        return rc;
    j = tei_topology_json(m->given ? m->given : &seen);
    rc = j ? tei_topology_read(j, out)
           : TEI_FAIL(TE_ERR_MEMORY, "no memory for a NIC priority matrix");
    tei_topology_fini(&seen);
    if (rc) {
        json_decref(j);
        return rc;
    }
    json_decref(m->opened);
    m->opened = j;
    return 0;
}

void tei_matrix_fini(struct matrix *m)
{
    tei_matrix_free(m->given);
    json_decref(m->opened);
}
