/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/rdma/rdma_wire.h"

#include "base/err.h"
#include "base/hex.h"
#include "model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL_TYPE(what, key, j, must)                                                             \
    TEI_FAIL(TE_ERR_JSON, "%s: key '%s' is %s, must be %s", (what), (key), tei_json_type_name(j), \
             must)

#define TICKET_TEXT (2 * (size_t)TEI_RDMA_TICKET) /* hexadecimal digits */

static const char hello_text[] = "RDMA connection message";

/* ------------------------------------------------------------------------------------ NIC paths */

/* Where the '@' is; NULL if this is no NIC path. */
static const char *at_of(const char *path)
{
    const char *at = strchr(path, '@');

    return at && at != path && at[1] ? at : NULL;
}

int tei_rdma_nic_path_split(const char *path, char *server, size_t server_size, char *device,
                            size_t device_size)
{
    const char *at = at_of(path);
    size_t n = at ? (size_t)(at - path) : 0;

    if (!at)
        return TEI_FAIL(TE_ERR_PROTOCOL, "NIC path '%.100s' is not of the form server@device",
                        path);
    if (n >= server_size || strlen(at + 1) >= device_size)
        return TEI_FAIL(TE_ERR_PROTOCOL, "NIC path '%.100s': server and device are too long", path);
    memcpy(server, path, n);
    server[n] = '\0';
    strcpy(device, at + 1);
    return 0;
}

/* --------------------------------------------------------------------------------------- values */

/* The text of a key that may be missing; "" then. */
static int read_text(const json_t *root, const char *what, const char *key, const char **out)
{
    const json_t *j = json_object_get(root, key);

    if (j && !json_is_string(j))
        return FAIL_TYPE(what, key, j, "a string");
    *out = j ? json_string_value(j) : "";
    return 0;
}

/* The number of a key that may be missing, 0 then. */
static int read_number(const json_t *root, const char *what, const char *key, json_int_t max,
                       json_int_t *out)
{
    const json_t *j = json_object_get(root, key);

    if (j && !json_is_integer(j))
        return FAIL_TYPE(what, key, j, "an integer");
    if (json_integer_value(j) < 0 || json_integer_value(j) > max)
        return TEI_FAIL(TE_ERR_PROTOCOL,
                        "%s: key '%s' is %" JSON_INTEGER_FORMAT
                        ", must be from 0 to %" JSON_INTEGER_FORMAT,
                        what, key, json_integer_value(j), max);
    *out = json_integer_value(j);
    return 0;
}

static int read_lid(const json_t *root, const char *what, const char *key, uint16_t *out)
{
    json_int_t lid;
    int rc = read_number(root, what, key, UINT16_MAX, &lid);

    if (!rc)
        *out = (uint16_t)lid;
    return rc;
}

/* The array of a key that may be missing, NULL then, of `max` entries at most. */
static int read_array(const json_t *root, const char *what, const char *key, size_t max,
                      const json_t **out)
{
    const json_t *j = json_object_get(root, key);

    if (j && !json_is_array(j))
        return FAIL_TYPE(what, key, j, "an array");
    if (json_array_size(j) > max)
        return TEI_FAIL(TE_ERR_PROTOCOL, "%s: key '%s' has %zu entries, at most %zu can be", what,
                        key, json_array_size(j), max);
    *out = j;
    return 0;
}

/* An array of numbers from 0 to `max`; `out` has room for them all. */
static int read_numbers(const json_t *list, const char *what, const char *key, uint32_t max,
                        uint32_t *out)
{
    const json_t *j;
    size_t i;

    json_array_foreach(list, i, j) {
        if (!json_is_integer(j))
            return TEI_FAIL(TE_ERR_JSON, "%s: %s[%zu] is %s, must be an integer", what, key, i,
                            tei_json_type_name(j));
        if (json_integer_value(j) < 0 || json_integer_value(j) > max)
            return TEI_FAIL(TE_ERR_PROTOCOL,
                            "%s: %s[%zu] is %" JSON_INTEGER_FORMAT ", must be from 0 to %" PRIu32,
                            what, key, i, json_integer_value(j), max);
        out[i] = (uint32_t)json_integer_value(j);
    }
    return 0;
}

static json_t *numbers_json(const uint32_t *values, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        tei_json_append(&list, json_integer(values[i]));
    return list;
}

/* ----------------------------------------------------------------------------------- connection */

static int read_path(const json_t *root, const char *key, char out[TEI_RDMA_PATH])
{
    const char *text;
    int rc = read_text(root, hello_text, key, &text);

    if (rc)
        return rc;
    if (strlen(text) >= TEI_RDMA_PATH)
        return TEI_FAIL(TE_ERR_PROTOCOL, "%s: key '%s' has %zu bytes, at most %d can be",
                        hello_text, key, strlen(text), TEI_RDMA_PATH - 1);
    if (*text && !at_of(text))
        return TEI_FAIL(TE_ERR_PROTOCOL, "%s: key '%s' is '%.100s', must be server@device",
                        hello_text, key, text);
    memcpy(out, text, strlen(text));
    return 0;
}

/* How many bytes of a text fit into `room` without cutting a character, where it is UTF-8. */
static size_t whole_chars(const char *text, size_t room)
{
    size_t n = strnlen(text, room), cut = n;

    if (n < room)
        return n;
    while (room - cut < 3 && ((unsigned char)text[cut] & 0xc0) == 0x80)
        cut--;
    return cut;
}

static int read_reply(const json_t *root, char out[TEI_RDMA_REPLY])
{
    const char *text;
    int rc = read_text(root, hello_text, "reply_msg", &text);

    if (!rc)
        memcpy(out, text, whole_chars(text, TEI_RDMA_REPLY - 1));
    return rc;
}

static int read_gid(const json_t *root, struct tei_rdma_hello *h)
{
    const char *text;
    int rc = read_text(root, hello_text, "local_gid", &text);

    if (rc || !*text)
        return rc;
    if (!tei_gid_parse(text, h->gid))
        return TEI_FAIL(TE_ERR_PROTOCOL,
                        "%s: key 'local_gid' is '%.60s', must be 16 hexadecimal "
                        "bytes with colons",
                        hello_text, text);
    h->has_gid = true;
    return 0;
}

static int read_qps(const json_t *root, struct tei_rdma_hello *h)
{
    const json_t *list;
    int rc = read_array(root, hello_text, "qp_num", TEI_RDMA_QPS, &list);

    if (rc)
        return rc;
    h->n_qp = json_array_size(list);
    return read_numbers(list, hello_text, "qp_num", TEI_RDMA_QPN_MAX, h->qp_num);
}

static int read_ready_ack(const json_t *root, struct tei_rdma_hello *h)
{
    const json_t *j = json_object_get(root, "ready_ack");

    if (j && !json_is_boolean(j))
        return FAIL_TYPE(hello_text, "ready_ack", j, "true or false");
    h->has_ready_ack = j != NULL;
    h->ready_ack = json_is_true(j);
    return 0;
}

/*
 * "te" is an addition of this project. A member that is not as this file writes it comes from another
 * implementation, and has no meaning here.
 */
static uint64_t read_incarnation(const json_t *te)
{
    uint64_t incarnation = 0;

    (void)tei_hex_number(json_string_value(json_object_get(te, "incarnation")), &incarnation);
    return incarnation;
}

/* One for each queue pair. */
static bool read_psns(const json_t *te, size_t n, uint32_t *out)
{
    const json_t *list = json_object_get(te, "psn"), *j;
    size_t i;

    if (n == 0 || json_array_size(list) != n)
        return false;
    json_array_foreach(list, i, j)
        if (!json_is_integer(j) || json_integer_value(j) < 0 ||
            json_integer_value(j) > TEI_RDMA_PSN_MAX)
            return false;
    json_array_foreach(list, i, j)
        out[i] = (uint32_t)json_integer_value(j);
    return true;
}

static bool read_ticket(const json_t *te, const char *key, uint8_t out[TEI_RDMA_TICKET])
{
    const char *text = json_string_value(json_object_get(te, key));

    return tei_hex_is(text, TICKET_TEXT) && tei_hex_read(text, out, TEI_RDMA_TICKET);
}

static void read_te(const json_t *te, struct tei_rdma_hello *h)
{
    h->incarnation = read_incarnation(te);
    h->has_psn = read_psns(te, h->n_qp, h->psn);
    h->has_ticket = read_ticket(te, "ticket", h->ticket);
    h->has_replaced = read_ticket(te, "replaces", h->replaced);
}

static int read_hello(const json_t *root, struct tei_rdma_hello *h)
{
    const char *payload;
    int rc = read_path(root, "local_nic_path", h->local_nic_path);

    if (!rc)
        rc = read_path(root, "peer_nic_path", h->peer_nic_path);
    if (!rc)
        rc = read_reply(root, h->reply_msg);
    if (!rc)
        rc = read_text(root, hello_text, "payload", &payload);
    if (!rc)
        rc = read_lid(root, hello_text, "local_lid", &h->lid);
    if (!rc)
        rc = read_gid(root, h);
    if (!rc)
        rc = read_qps(root, h);
    if (!rc)
        rc = read_ready_ack(root, h);
    if (!rc)
        read_te(json_object_get(root, "te"), h);
    return rc;
}

int tei_rdma_hello_decode(const char *text, size_t len, struct tei_rdma_hello *out)
{
    json_error_t error;
    json_t *root;
    struct tei_rdma_hello h;
    int rc = tei_json_load(text, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &root, &error);

    memset(&h, 0, sizeof(h));
    if (rc == TE_ERR_MEMORY)
        return TEI_FAIL(rc, "%s: no memory to read it", hello_text);
    if (rc)
        return TEI_FAIL(rc, "%s: %s at byte %d", hello_text, error.text, error.position);
    if (json_is_object(root))
        rc = read_hello(root, &h);
    else
        rc = TEI_FAIL(TE_ERR_JSON, "%s is %s, must be an object", hello_text,
                      tei_json_type_name(root));
    json_decref(root);
    if (!rc)
        memcpy(out, &h, sizeof(h));
    return rc;
}

/* Texts of refusals hold what peers and the system say, in whatever encoding. */
static json_t *reply_json(const char *text)
{
    json_t *j = json_string(text);
    char plain[TEI_RDMA_REPLY];
    size_t i;

    if (j)
        return j;
    for (i = 0; text[i] && i < sizeof(plain) - 1; i++)
        plain[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    plain[i] = '\0';
    return json_string(plain);
}

static json_t *ticket_json(const uint8_t ticket[TEI_RDMA_TICKET])
{
    char text[TICKET_TEXT + 1];

    tei_hex_write(ticket, TEI_RDMA_TICKET, text);
    return json_string(text);
}

/* NULL when memory is out. */
static json_t *te_json(const struct tei_rdma_hello *h)
{
    json_t *te = json_object();
    char text[17];

    snprintf(text, sizeof(text), "%016" PRIx64, h->incarnation);
    if (h->incarnation)
        tei_json_set(&te, "incarnation", json_string(text));
    if (h->has_psn)
        tei_json_set(&te, "psn", numbers_json(h->psn, h->n_qp));
    if (h->has_ticket)
        tei_json_set(&te, "ticket", ticket_json(h->ticket));
    if (h->has_replaced)
        tei_json_set(&te, "replaces", ticket_json(h->replaced));
    return te;
}

static json_t *hello_json(const struct tei_rdma_hello *h)
{
    json_t *root = json_object();
    char gid[TEI_GID_TEXT] = "";

    if (h->has_gid)
        tei_gid_text(h->gid, gid);
    tei_json_set(&root, "local_nic_path", json_string(h->local_nic_path));
    tei_json_set(&root, "peer_nic_path", json_string(h->peer_nic_path));
    tei_json_set(&root, "reply_msg", reply_json(h->reply_msg));
    tei_json_set(&root, "qp_num", numbers_json(h->qp_num, h->n_qp));
    tei_json_set(&root, "local_lid", json_integer(h->lid));
    tei_json_set(&root, "local_gid", json_string(gid));
    tei_json_set(&root, "payload", json_string(""));
    if (h->has_ready_ack)
        tei_json_set(&root, "ready_ack", json_boolean(h->ready_ack));
    if (h->incarnation || h->has_psn || h->has_ticket || h->has_replaced)
        tei_json_set(&root, "te", te_json(h));
    return root;
}

char *tei_rdma_hello_encode(const struct tei_rdma_hello *h, size_t *len)
{
    json_t *root;
    char *text;

    if (h->n_qp > TEI_RDMA_QPS) {
        TEI_FAIL(TE_ERR_INVALID, "%s: %zu queue pairs, at most %d can be", hello_text, h->n_qp,
                 TEI_RDMA_QPS);
        return NULL;
    }
    root = hello_json(h);
    text = tei_json_text(root, len);
    json_decref(root);
    if (!text)
        TEI_FAIL(TE_ERR_MEMORY, "%s: no memory, or no UTF-8 in the NIC paths '%s' and '%s'",
                 hello_text, h->local_nic_path, h->peer_nic_path);
    return text;
}

char *tei_rdma_refusal_encode(const char *why, size_t *len)
{
    struct tei_rdma_hello h = {0};

    if (!*why)
        why = "refused"; /* an empty text would be no refusal */
    memcpy(h.reply_msg, why, whole_chars(why, sizeof(h.reply_msg) - 1));
    return tei_rdma_hello_encode(&h, len);
}

/* ----------------------------------------------------------------------- keys of the descriptor */

static int read_name(const json_t *device, const char *what, char out[TEI_RDMA_NAME])
{
    const char *text;
    int rc = read_text(device, what, "name", &text);

    if (rc)
        return rc;
    if (!*text || strlen(text) >= TEI_RDMA_NAME)
        return TEI_FAIL(TE_ERR_PROTOCOL, "%s: key 'name' is '%.100s', must have 1 to %d bytes",
                        what, text, TEI_RDMA_NAME - 1);
    strcpy(out, text);
    return 0;
}

static int read_device(const json_t *device, const char *what, struct tei_rdma_device *d)
{
    const char *gid;
    int rc = read_name(device, what, d->name);

    if (!rc)
        rc = read_lid(device, what, "lid", &d->lid);
    if (!rc)
        rc = read_text(device, what, "gid", &gid);
    if (!rc && !tei_gid_parse(gid, d->gid))
        rc = TEI_FAIL(TE_ERR_PROTOCOL,
                      "%s: key 'gid' is '%.60s', must be 16 hexadecimal bytes with colons", what,
                      gid);
    return rc;
}

/* The device at `i`, whose name is none of those before it. */
static int read_device_at(const json_t *device, size_t i, struct tei_rdma_device *all)
{
    char what[64];
    int rc;

    snprintf(what, sizeof(what), "segment descriptor: devices[%zu]", i);
    if (!json_is_object(device))
        return TEI_FAIL(TE_ERR_JSON, "%s is %s, must be an object", what,
                        tei_json_type_name(device));
    rc = read_device(device, what, &all[i]);
    for (size_t k = 0; k < i && !rc; k++)
        if (strcmp(all[k].name, all[i].name) == 0)
            rc = TEI_FAIL(TE_ERR_PROTOCOL, "%s: key 'name' is '%s', as that of devices[%zu]", what,
                          all[i].name, k);
    return rc;
}

int tei_rdma_devices_decode(const json_t *root, struct tei_rdma_device **out, size_t *n)
{
    struct tei_rdma_device *all;
    const json_t *list, *device;
    size_t i, count;
    int rc = read_array(root, "segment descriptor", "devices", TEI_RDMA_DEVICES, &list);

    if (rc)
        return rc;
    count = json_array_size(list);
    all = count ? calloc(count, sizeof(*all)) : NULL;
    if (count && !all)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for %zu devices", count);
    json_array_foreach(list, i, device) {
        rc = read_device_at(device, i, all);
        if (rc) {
            free(all);
            return rc;
        }
    }
    *out = all;
    *n = count;
    return 0;
}

json_t *tei_rdma_devices_json(const struct tei_rdma_device *devices, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        char gid[TEI_GID_TEXT];

        tei_gid_text(devices[i].gid, gid);
        tei_json_append(&list, json_pack("{s:s, s:i, s:s}", "name", devices[i].name, "lid",
                                         devices[i].lid, "gid", gid));
    }
    return list;
}

int tei_rdma_keys_decode(const json_t *buffer, size_t n_devices, uint32_t *rkeys)
{
    static const char what[] = "segment descriptor: a buffer";
    uint32_t keys[TEI_RDMA_DEVICES];
    const json_t *list;
    int rc = read_array(buffer, what, "rkey", TEI_RDMA_DEVICES, &list);
    size_t n = rc ? 0 : json_array_size(list);

    if (rc)
        return rc;
    if (n && n != n_devices)
        return TEI_FAIL(TE_ERR_PROTOCOL, "%s: key 'rkey' has %zu entries for %zu devices", what, n,
                        n_devices);
    rc = read_numbers(list, what, "rkey", UINT32_MAX, keys);
    if (rc)
        return rc;
    if (n)
        memcpy(rkeys, keys, n * sizeof(*rkeys));
    else if (n_devices)
        memset(rkeys, 0, n_devices * sizeof(*rkeys));
    return (int)n;
}

int tei_rdma_keys_encode(json_t *buffer, const uint32_t *rkeys, const uint32_t *lkeys, size_t n)
{
    if (json_object_set_new(buffer, "rkey", numbers_json(rkeys, rkeys ? n : 0)) ||
        json_object_set_new(buffer, "lkey", numbers_json(lkeys, n)))
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the keys of a buffer on %zu devices", n);
    return 0;
}
