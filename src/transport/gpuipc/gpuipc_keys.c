/* SPDX-License-Identifier: Apache-2.0 */
/* gpuipc_keys.c - the keys of a descriptor. Whatever they hold is somebody's word. */
#include "transport/gpuipc/gpuipc_keys.h"

#include "base/hex.h"
#include "base/sock.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LENGTH_MAX (UINT64_C(1) << 46) /* more than a device has, and little enough for a driver */

static const char malformed[] = "its keys are malformed";

void tei_gpuipc_hex(const uint8_t *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789ABCDEF";

    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

/* Exactly n bytes, in either case. */
static bool read_hex(const json_t *j, uint8_t *out, size_t n)
{
    return json_string_length(j) == 2 * n && tei_hex_read(json_string_value(j), out, n);
}

static bool read_number(const json_t *v, uint64_t max, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > max)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

/* --------------------------------------------------------------------------------------- writing */

json_t *tei_gpuipc_entry_json(const struct gpuipc_entry *e)
{
    char handle[2 * TEI_GPU_HANDLE + 1], uuid[2 * GPUIPC_UUID + 1];

    tei_gpuipc_hex(e->handle, TEI_GPU_HANDLE, handle);
    tei_gpuipc_hex(e->uuid, GPUIPC_UUID, uuid);
    return json_pack("[I, I, s, I, I, s]", (json_int_t)e->base, (json_int_t)e->length, handle,
                     (json_int_t)e->slot, (json_int_t)e->generation, uuid);
}

json_t *tei_gpuipc_keys_json(const struct gpuipc_keys *k)
{
    char nonce[2 * GPUIPC_NONCE + 1];

    tei_gpuipc_hex(k->nonce, GPUIPC_NONCE, nonce);
    return json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:I}", "v", GPUIPC_VERSION, "sort",
                     k->sort == TEI_GPU_IPC ? "ipc" : "fabric", "nonce", nonce, "host",
                     k->here.host, "machine", k->here.machine, "pid_ns", k->here.pid_ns, "process",
                     k->here.process, "fd", (json_int_t)k->fd);
}

/* --------------------------------------------------------------------------------------- reading */

static bool is_range(const struct gpuipc_entry *e)
{
    uint64_t end;

    return e->base && e->length && e->length <= LENGTH_MAX && tei_add_ok(e->base, e->length, &end);
}

static bool read_entry(const json_t *j, struct gpuipc_entry *e)
{
    uint64_t slot, generation;

    if (json_array_size(j) < 6 || !read_number(json_array_get(j, 0), UINT64_MAX, &e->base) ||
        !read_number(json_array_get(j, 1), UINT64_MAX, &e->length) ||
        !read_hex(json_array_get(j, 2), e->handle, TEI_GPU_HANDLE) ||
        !read_number(json_array_get(j, 3), GPUIPC_SLOTS - 1, &slot) ||
        !read_number(json_array_get(j, 4), UINT32_MAX, &generation) ||
        !read_hex(json_array_get(j, 5), e->uuid, GPUIPC_UUID) || !is_range(e))
        return false;
    e->slot = (uint32_t)slot;
    e->generation = (uint32_t)generation;
    e->device = -1;
    return true;
}

static int by_base(const void *a, const void *b)
{
    const struct gpuipc_entry *x = a, *y = b;

    return x->base < y->base ? -1 : x->base > y->base;
}

/* Sorts; false if two overlap. */
static bool put_in_order(struct gpuipc_keys *k)
{
    if (k->n)
        qsort(k->v, k->n, sizeof(k->v[0]), by_base);
    for (size_t i = 1; i < k->n; i++)
        if (k->v[i].base - k->v[i - 1].base < k->v[i - 1].length)
            return false;
    return true;
}

/* Room for n entries; NULL or why not. */
static const char *make_room(struct gpuipc_keys *k, size_t n)
{
    if (n > GPUIPC_SLOTS)
        return "it shares more allocations than this engine takes";
    k->v = n ? calloc(n, sizeof(k->v[0])) : NULL;
    return n && !k->v ? "no memory for its keys" : NULL;
}

static bool read_memory(const json_t *list, struct gpuipc_keys *k)
{
    for (size_t n = json_array_size(list); k->n < n; k->n++)
        if (!read_entry(json_array_get(list, k->n), &k->v[k->n]))
            return false;
    return put_in_order(k);
}

static bool read_sort(const json_t *j, enum tei_gpu_sort *out)
{
    const char *sort = json_string_value(j);

    if (!sort || (strcmp(sort, "ipc") != 0 && strcmp(sort, "fabric") != 0))
        return false;
    *out = sort[0] == 'i' ? TEI_GPU_IPC : TEI_GPU_FABRIC;
    return true;
}

static bool read_hash(const json_t *j, const char *key, char out[TEI_HERE_TEXT + 1])
{
    const char *text = json_string_value(json_object_get(j, key));

    if (!text || !tei_here_is_text(text))
        return false;
    strcpy(out, text);
    return true;
}

static bool read_place(const json_t *j, struct gpuipc_keys *k)
{
    const json_t *host = json_object_get(j, "host");

    if (k->version == 1)
        return tei_json_word(json_object_get(host, "boot"), k->boot, sizeof(k->boot)) &&
               tei_json_word(json_object_get(host, "machine"), k->machine, sizeof(k->machine)) &&
               read_number(json_object_get(j, "pid"), INT32_MAX, &k->pid);
    return read_hash(j, "host", k->here.host) && read_hash(j, "machine", k->here.machine) &&
           read_hash(j, "pid_ns", k->here.pid_ns) && read_hash(j, "process", k->here.process);
}

static bool read_head(const json_t *j, struct gpuipc_keys *k)
{
    return read_sort(json_object_get(j, "sort"), &k->sort) &&
           read_hex(json_object_get(j, "nonce"), k->nonce, GPUIPC_NONCE) && read_place(j, k) &&
           read_number(json_object_get(j, "fd"), INT32_MAX, &k->fd) &&
           json_is_array(json_object_get(j, "memory"));
}

const char *tei_gpuipc_keys_read(const json_t *j, struct gpuipc_keys *k)
{
    const json_t *list = json_object_get(j, "memory");
    json_int_t version = json_integer_value(json_object_get(j, "v"));
    const char *why;

    memset(k, 0, sizeof(*k));
    k->ours = true;
    if (version != 1 && version != GPUIPC_VERSION)
        return "it speaks another version of it";
    k->version = (int)version;
    if (!read_head(j, k))
        return malformed;
    why = make_room(k, json_array_size(list));
    if (!why && !read_memory(list, k))
        why = malformed;
    if (why)
        tei_gpuipc_keys_fini(k);
    return why;
}

/* The number in "cuda:1"; -1 if there is none. */
static int device_in(const char *name)
{
    const char *at = name ? strchr(name, ':') : NULL;
    int n = 0;

    if (!at || !*++at)
        return -1;
    for (; *at; at++) {
        if (*at < '0' || *at > '9' || n >= 1000)
            return -1;
        n = 10 * n + (*at - '0');
    }
    return n;
}

/* One buffer; false if it is malformed. One without a handle is left out. */
static bool read_buffer(const json_t *object, const struct tei_buffer *b, struct gpuipc_keys *k)
{
    struct gpuipc_entry *e = &k->v[k->n];
    const json_t *handle = json_object_get(object, "shm_name");

    if (!handle || (json_is_string(handle) && json_string_length(handle) == 0))
        return true;
    *e = (struct gpuipc_entry){.base = b->addr,
                               .length = b->length,
                               .device =
                                   device_in(json_string_value(json_object_get(object, "name"))),
                               .slot = GPUIPC_NO_SLOT};
    if (!read_hex(handle, e->handle, TEI_GPU_HANDLE) || !is_range(e))
        return false;
    k->n++;
    return true;
}

const char *tei_gpuipc_keys_of_buffers(const struct tei_segment *s, struct gpuipc_keys *k)
{
    const char *why;
    bool good = true;

    memset(k, 0, sizeof(*k));
    why = make_room(k, s->n_buffers);
    for (size_t i = 0; !why && good && i < s->n_buffers; i++) {
        json_t *object = tei_segment_buffer(s, s->buffers[i].index);

        if (object)
            good = read_buffer(object, &s->buffers[i], k);
        else
            why = "no memory for its keys";
        json_decref(object);
    }
    if (!why && !(good && put_in_order(k)))
        why = malformed;
    if (why)
        tei_gpuipc_keys_fini(k);
    return why;
}

void tei_gpuipc_keys_fini(struct gpuipc_keys *k)
{
    free(k->v);
    k->v = NULL;
    k->n = 0;
}

bool tei_gpuipc_same_host_name(const char *a, const char *b)
{
    struct tei_hostport x, y;

    if (strcasecmp(a, b) == 0)
        return true;
    return !tei_hostport_read(a, 1, &x) && !tei_hostport_read(b, 1, &y) &&
           strcasecmp(x.host, y.host) == 0;
}
