/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a peer may publish of its device memory: te.gpu.<name> if the text is an object without
 * "protocol", else the buffers of a whole descriptor.
 */
#include "transport/gpuipc/gpuipc_keys.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct gpuipc_keys *k)
{
    assert(k->n <= GPUIPC_SLOTS);
    for (size_t i = 0; i < k->n; i++) {
        const struct gpuipc_entry *e = &k->v[i];

        assert(e->base && e->length && e->base + e->length > e->base);
        assert(i == 0 || e[-1].base + e[-1].length <= e->base);
        assert(e->slot < GPUIPC_SLOTS || (!k->ours && e->slot == GPUIPC_NO_SLOT));
    }
}

/* What was read is written and read again the same. */
static void check_again(const struct gpuipc_keys *k)
{
    json_t *j = tei_gpuipc_keys_json(k), *list = json_array();
    struct gpuipc_keys again;

    for (size_t i = 0; i < k->n; i++)
        json_array_append_new(list, tei_gpuipc_entry_json(&k->v[i]));
    json_object_set_new(j, "memory", list);
    assert(!tei_gpuipc_keys_read(j, &again));
    assert(again.n == k->n && again.fd == k->fd && again.sort == k->sort);
    assert(memcmp(&again.here, &k->here, sizeof(k->here)) == 0);
    assert(k->n == 0 || memcmp(again.v, k->v, k->n * sizeof(k->v[0])) == 0);
    tei_gpuipc_keys_fini(&again);
    json_decref(j);
}

static void try_buffers(const uint8_t *data, size_t size)
{
    struct tei_segment *s;
    struct gpuipc_keys k;

    if (tei_segment_decode((const char *)data, size, &tei_segment_unlimited, &s) != 0)
        return;
    if (!tei_gpuipc_keys_of_buffers(s, &k)) {
        check(&k);
        tei_gpuipc_keys_fini(&k);
    }
    tei_segment_put(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *j = json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL);
    struct gpuipc_keys k;

    if (json_object_get(j, "protocol")) {
        try_buffers(data, size);
    } else if (!tei_gpuipc_keys_read(j, &k)) {
        check(&k);
        if (k.version == GPUIPC_VERSION) /* the first is only read */
            check_again(&k);
        tei_gpuipc_keys_fini(&k);
    }
    json_decref(j);
    return 0;
}
