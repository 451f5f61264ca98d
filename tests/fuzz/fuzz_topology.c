/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Priority matrices: what is accepted reads back from its own text; the list of devices has each
 * name once; the same bytes as a list of devices make a matrix that reads back too.
 */
#include "model/model.h"
#include "topology_text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_devices(const struct tei_topology *t)
{
    const char **names;
    size_t n;

    assert(tei_topology_devices(t, &names, &n) == 0);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            assert(strcmp(names[i], names[j]) != 0);
    free(names);
    for (size_t i = 0; i < t->n_rows; i++)
        assert(topology_row(t, t->rows[i].location) == &t->rows[i]);
}

static void check_list(const uint8_t *data, size_t size)
{
    const int nodes[] = {0};
    struct tei_topology t;
    char *list = calloc(1, size + 1);

    assert(list);
    memcpy(list, data, size);
    if (tei_topology_from_devices(list, nodes, 1, &t) == 0) {
        assert(t.n_rows == 3 && t.rows[0].n_preferred > 0);
        tei_topology_fini(&t);
    }
    free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tei_topology a, b;
    char *text, *again;

    te_log_set_level(TE_LOG_OFF);
    check_list(data, size);
    if (tei_topology_decode((const char *)data, size, &a))
        return 0;
    check_devices(&a);
    text = topology_text(&a);
    assert(text && tei_topology_decode(text, strlen(text), &b) == 0);
    again = topology_text(&b);
    assert(again && strcmp(text, again) == 0 && a.n_rows == b.n_rows);
    free(text);
    free(again);
    tei_topology_fini(&a);
    tei_topology_fini(&b);
    return 0;
}
