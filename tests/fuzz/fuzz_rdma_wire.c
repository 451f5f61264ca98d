/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What RDMA engines tell each other: connection messages, NIC paths, and the keys of a descriptor.
 * What is accepted keeps the promises of the header, and is the same when it is written and read
 * again. Each input is taken for all of them.
 */
#include "transport/rdma/rdma_wire.h"

#include "te.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_path(const char *path)
{
    char server[TEI_RDMA_PATH], device[TEI_RDMA_PATH], again[2 * TEI_RDMA_PATH];
    size_t n = strlen(path);

    if (!n)
        return;
    assert(n < TEI_RDMA_PATH);
    assert(tei_rdma_nic_path_split(path, server, sizeof(server), device, sizeof(device)) == 0);
    snprintf(again, sizeof(again), "%s@%s", server, device);
    assert(strcmp(path, again) == 0);
}

static void try_hello(const char *text, size_t len)
{
    struct tei_rdma_hello h, again;
    char *encoded;
    size_t n;

    if (tei_rdma_hello_decode(text, len, &h))
        return;
    check_path(h.local_nic_path);
    check_path(h.peer_nic_path);
    assert(strlen(h.reply_msg) < TEI_RDMA_REPLY && h.n_qp <= TEI_RDMA_QPS);
    for (size_t i = 0; i < h.n_qp; i++)
        assert(h.qp_num[i] <= TEI_RDMA_QPN_MAX);
    encoded = tei_rdma_hello_encode(&h, &n);
    assert(encoded && strlen(encoded) == n && encoded[n - 1] == '}');
    assert(tei_rdma_hello_decode(encoded, n, &again) == 0);
    assert(memcmp(&h, &again, sizeof(h)) == 0);
    free(encoded);
}

static void try_keys(const json_t *buffer, size_t n_devices)
{
    uint32_t keys[TEI_RDMA_DEVICES], again[TEI_RDMA_DEVICES];
    int n = tei_rdma_keys_decode(buffer, n_devices, keys);
    json_t *other;

    if (n < 0)
        return;
    assert(n == 0 || (size_t)n == n_devices);
    other = json_object();
    assert(tei_rdma_keys_encode(other, n ? keys : NULL, keys, n_devices) == 0);
    assert(tei_rdma_keys_decode(other, n_devices, again) == n);
    assert(memcmp(keys, again, n_devices * sizeof(*keys)) == 0);
    assert(json_array_size(json_object_get(other, "lkey")) == n_devices);
    json_decref(other);
}

static void check_devices(const struct tei_rdma_device *d, size_t n)
{
    json_t *root = json_object();
    struct tei_rdma_device *again;
    size_t count;

    assert(n <= TEI_RDMA_DEVICES && !d == !n);
    assert(json_object_set_new(root, "devices", tei_rdma_devices_json(d, n)) == 0);
    assert(tei_rdma_devices_decode(root, &again, &count) == 0 && count == n);
    for (size_t i = 0; i < n; i++)
        assert(d[i].name[0] && memcmp(&d[i], &again[i], sizeof(*d)) == 0);
    free(again);
    json_decref(root);
}

static void try_descriptor(const char *text, size_t len)
{
    json_t *root = json_loadb(text, len, JSON_DECODE_ANY, NULL);
    const json_t *buffer;
    struct tei_rdma_device *d;
    size_t i, n = 2;

    if (tei_rdma_devices_decode(root, &d, &n) == 0) {
        check_devices(d, n);
        free(d);
    }
    try_keys(root, n);
    json_array_foreach(json_object_get(root, "buffers"), i, buffer) {
        try_keys(buffer, n);
    }
    json_decref(root);
}

static void try_texts(const char *text)
{
    char server[64], device[64], written[TEI_GID_TEXT], *refusal;
    uint8_t gid[TEI_GID_BYTES], again[TEI_GID_BYTES];
    struct tei_rdma_hello h;
    size_t n;

    if (tei_rdma_nic_path_split(text, server, sizeof(server), device, sizeof(device)) == 0)
        assert(strlen(server) + 1 + strlen(device) == strlen(text));
    if (tei_gid_parse(text, gid)) {
        tei_gid_text(gid, written);
        assert(tei_gid_parse(written, again) && memcmp(gid, again, sizeof(gid)) == 0);
    }
    refusal = tei_rdma_refusal_encode(text, &n);
    assert(refusal && tei_rdma_hello_decode(refusal, n, &h) == 0 && h.reply_msg[0]);
    free(refusal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    assert(text);
    memcpy(text, data, size);
    text[size] = '\0';
    te_log_set_level(TE_LOG_OFF);
    try_hello((const char *)data, size);
    try_descriptor((const char *)data, size);
    try_texts(text);
    free(text);
    return 0;
}
