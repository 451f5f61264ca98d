/* SPDX-License-Identifier: Apache-2.0 */
#include "meta/rpc.h"

#include "auth/auth.h"
#include "base/base64.h"
#include "base/err.h"
#include "base/hex.h"
#include "base/os.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES      ((size_t)256 << 10)
#define SMALL_REPLY_MAX ((size_t)64 << 10) /* of a notification or a probe */

static const struct tei_remedies remedies = {
    .refused = "; is the target running? use the name that te_engine_name() gives "
               "there (the tools print it)",
    .silent = "; a firewall? two ports of the target, of 15000-17000 by default, are needed"};

/* A connection to a handshake port: in clear, or with the proof of TE_AUTH. */
struct line {
    int fd;
    struct tei_secure *secure; /* NULL: in clear */
};

/* The connection failed; errno is of the call that did. */
static int fail_io(const struct line *l, int rc, const char *peer, const char *doing)
{
    if (rc == TE_ERR_REJECTED)
        return tei_secure_refused(l->secure, peer);
    if (rc == TE_ERR_TIMEOUT)
        return TEI_FAIL(rc, "%s: no progress in time while %s; it may be overloaded or frozen",
                        peer, doing);
    return TEI_FAIL(rc, "%s: %s while %s; was the engine ended, or is this no handshake port?",
                    peer, errno ? tei_errno_text(errno) : "connection closed", doing);
}

static int write_full(const struct line *l, const void *buf, size_t n, int64_t deadline_ns)
{
    return l->secure ? tei_secure_write_full(l->secure, buf, n, deadline_ns)
                     : tei_write_full(l->fd, buf, n, deadline_ns);
}

static int read_full(const struct line *l, void *buf, size_t n, int64_t deadline_ns)
{
    return l->secure ? tei_secure_read_full(l->secure, buf, n, deadline_ns)
                     : tei_read_full(l->fd, buf, n, deadline_ns);
}

/* Proves who we are, and has the other side prove it, unless its address needs no proof. */
static int prove(struct line *l, struct tei_auth *auth, const struct tei_hostport *where,
                 const char *peer, int64_t deadline_ns)
{
    const char *expected = where->expected ? where->expected : where->host;

    if (!auth || tei_auth_is_classic_fd(auth, l->fd))
        return 0;
    l->secure = tei_secure_open(auth, l->fd, false, expected);
    return l->secure ? tei_secure_connect(l->secure, peer, deadline_ns)
                     : TEI_FAIL(TE_ERR_MEMORY, "no memory for a connection to %s", peer);
}

static int send_frame(const struct line *l, enum tei_rpc_type type, const char *body, size_t len,
                      const char *peer, int64_t deadline_ns)
{
    size_t n;
    char *frame = tei_rpc_frame(true, (uint8_t)type, body, len, &n);
    int rc;

    if (!frame)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a request of %zu bytes", len);
    rc = write_full(l, frame, n, deadline_ns);
    free(frame);
    return rc ? fail_io(l, rc, peer, "sending the request") : 0;
}

static int fail_parse(int rc, const struct tei_rpc_parser *p, const char *peer)
{
    if (rc == TE_ERR_TOO_LARGE && tei_secure_is_alert(p->want))
        return TEI_FAIL(
            TE_ERR_REJECTED,
            "%s serves only those who prove who they are: set TE_AUTH here as it is there, "
            "or have our address in TE_AUTH_CLASSIC there",
            peer);
    if (rc == TE_ERR_TOO_LARGE && p->want > TEI_RPC_LENGTH_MAX)
        return TEI_FAIL(TE_ERR_PROTOCOL, "%s does not answer like an engine's handshake port",
                        peer);
    if (rc == TE_ERR_TOO_LARGE)
        return TEI_FAIL(rc,
                        "%s answers with %llu bytes, at most %zu are taken; raise "
                        "MC_HANDSHAKE_MAX_LENGTH",
                        peer, (unsigned long long)p->want, p->max_len);
    if (rc == TE_ERR_MEMORY)
        return TEI_FAIL(rc, "no memory for the answer of %s", peer);
    return TEI_FAIL(rc, "%s answers with an empty frame", peer);
}

/*
 * Reads one frame into the parser. It never asks for more than the frame has, so nothing is read
 * past its end.
 */
static int read_frame(const struct line *l, struct tei_rpc_parser *p, const char *peer,
                      int64_t deadline_ns)
{
    char *buf = malloc(READ_BYTES);
    int rc = buf ? 0 : TE_ERR_MEMORY;

    while (!rc) {
        size_t n = tei_min(tei_rpc_parser_wants(p), READ_BYTES), used;

        rc = read_full(l, buf, n, deadline_ns);
        if (rc) {
            free(buf);
            return fail_io(l, rc, peer, "reading the reply");
        }
        rc = tei_rpc_parser_feed(p, buf, n, &used);
    }
    free(buf);
    return rc < 0 ? fail_parse(rc, p, peer) : 0;
}

static int read_reply(const struct line *l, enum tei_rpc_type type, const char *peer,
                      size_t max_len, int64_t deadline_ns, struct tei_bytes *reply)
{
    struct tei_rpc_parser p;
    int rc;

    tei_rpc_parser_init(&p, max_len);
    rc = read_frame(l, &p, peer, deadline_ns);
    if (!rc && (!p.typed || p.type != (uint8_t)type))
        rc = TEI_FAIL(TE_ERR_PROTOCOL, "%s answers a request of type %d with another type", peer,
                      (int)type);
    if (rc) {
        tei_rpc_parser_fini(&p);
        return rc;
    }
    *reply = (struct tei_bytes){.data = p.body, .len = p.got};
    return 0;
}

int tei_rpc_request_ticket(struct tei_auth *auth, const struct tei_hostport *where,
                           enum tei_rpc_type type, const char *body, size_t len, size_t max_len,
                           int64_t deadline_ns, struct tei_bytes *reply, struct tei_ticket **ticket)
{
    char peer[TEI_HOSTPORT_MAX];
    struct line l = {.fd = tei_connect(where->host, where->port, &remedies, deadline_ns)};
    int rc;

    *ticket = NULL;
    if (l.fd < 0)
        return l.fd;
    tei_hostport_format(where->host, where->port, peer, sizeof peer);
    TEI_DEBUG("handshake port: connected to %s, request of type %d", peer, (int)type);
    rc = prove(&l, auth, where, peer, deadline_ns);
    if (!rc)
        rc = send_frame(&l, type, body, len, peer, deadline_ns);
    if (!rc)
        rc = read_reply(&l, type, peer, max_len, deadline_ns, reply);
    if (!rc && l.secure)
        *ticket = tei_secure_ticket(l.secure);
    tei_secure_free(l.secure);
    tei_fd_close(l.fd);
    return rc;
}

int tei_rpc_request(struct tei_auth *auth, const struct tei_hostport *where, enum tei_rpc_type type,
                    const char *body, size_t len, size_t max_len, int64_t deadline_ns,
                    struct tei_bytes *reply)
{
    struct tei_ticket *ticket;
    int rc =
        tei_rpc_request_ticket(auth, where, type, body, len, max_len, deadline_ns, reply, &ticket);

    tei_ticket_put(ticket);
    return rc;
}

/* ---- bodies */

static bool same_bytes(const void *p, size_t n, void **out)
{
    char *copy = malloc(n + 1);

    if (!copy)
        return false;
    if (n)
        memcpy(copy, p, n);
    copy[n] = '\0';
    *out = copy;
    return true;
}

int tei_message_copy(const te_message *m, te_message *out)
{
    void *name, *msg;

    if (!same_bytes(m->name, m->name_len, &name))
        return TE_ERR_MEMORY;
    if (!same_bytes(m->msg, m->msg_len, &msg)) {
        free(name);
        return TE_ERR_MEMORY;
    }
    *out = (te_message){name, m->name_len, msg, m->msg_len};
    return 0;
}

void tei_message_fini(te_message *m)
{
    free((void *)(uintptr_t)m->name);
    free((void *)(uintptr_t)m->msg);
    *m = (te_message){0};
}

/* UTF-8 without NUL. Out of memory does not count: who writes the text next sees it, too. */
static bool is_text(const char *p, size_t n)
{
    json_t *j = NULL;
    bool text = strlen(p) == n && tei_json_string(p, &j) != TE_ERR_INVALID;

    json_decref(j);
    return text;
}

static bool is_all_text(const te_message *m)
{
    return is_text(m->name, m->name_len) && is_text(m->msg, m->msg_len);
}

/* Who does not know "te" sees an empty message; it is asked before whether it does. */
static json_t *bytes_json(const te_message *m)
{
    char *name = tei_base64_encode(m->name, m->name_len);
    char *msg = tei_base64_encode(m->msg, m->msg_len);
    json_t *j = name && msg ? json_pack("{s:s, s:s, s:{s:[s,s]}}", "name", "", "notify_msg", "",
                                        "te", "bytes", name, msg)
                            : NULL;

    free(name);
    free(msg);
    return j;
}

/* Says in the member "te" which life the message is for. */
static int add_life(json_t *j, uint64_t life)
{
    json_t *te = json_object_get(j, "te");
    char text[17];

    if (!te) {
        te = json_object();
        if (json_object_set_new(j, "te", te) < 0)
            return -1;
    }
    snprintf(text, sizeof text, "%016" PRIx64, life);
    return json_object_set_new(te, "life", json_string(text));
}

int tei_notify_encode(const te_message *m, uint64_t life, char **out)
{
    json_t *j = is_all_text(m) ? json_pack("{s:s, s:s}", "name", m->name, "notify_msg", m->msg)
                               : bytes_json(m);

    *out = j && (!life || add_life(j, life) == 0) ? tei_json_text(j, NULL) : NULL;
    json_decref(j);
    return *out ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for a notification");
}

/* A key that is absent reads as "". */
static int copy_text(const json_t *root, const char *key, const void **out, size_t *len)
{
    const json_t *j = json_object_get(root, key);

    if (j && !json_is_string(j))
        return TEI_FAIL(TE_ERR_JSON, "notification: key '%s' is no string", key);
    *len = j ? json_string_length(j) : 0;
    *out = strdup(j ? json_string_value(j) : "");
    return *out ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for a notification");
}

static int copy_bytes(const json_t *j, const void **out, size_t *len)
{
    char *bytes;
    int rc = json_is_string(j)
                 ? tei_base64_decode_new(json_string_value(j), json_string_length(j), &bytes, len)
                 : TE_ERR_INVALID;

    if (rc == TE_ERR_MEMORY)
        return TEI_FAIL(rc, "no memory for a notification");
    if (rc)
        return TEI_FAIL(TE_ERR_JSON, "notification: te.bytes is no pair of texts in base64");
    *out = bytes;
    return 0;
}

static int read_message(const json_t *root, te_message *m)
{
    const json_t *bytes = json_object_get(json_object_get(root, "te"), "bytes");
    int rc;

    if (!json_is_object(root))
        return TEI_FAIL(TE_ERR_JSON, "notification: it is no JSON object");
    rc = bytes ? copy_bytes(json_array_get(bytes, 0), &m->name, &m->name_len)
               : copy_text(root, "name", &m->name, &m->name_len);
    if (rc)
        return rc;
    return bytes ? copy_bytes(json_array_get(bytes, 1), &m->msg, &m->msg_len)
                 : copy_text(root, "notify_msg", &m->msg, &m->msg_len);
}

/* The root of what may be a notification; NULL, and why in *rc. */
static json_t *load_notification(const char *body, size_t len, int *rc)
{
    json_t *root = NULL;
    json_error_t error;

    *rc = tei_json_load_bounded(body, len, &root, &error);
    if (*rc == TE_ERR_MEMORY)
        TEI_FAIL(*rc, "no memory for a notification");
    else if (*rc == TE_ERR_TOO_LARGE)
        TEI_FAIL(*rc, "notification: there is more in its %zu bytes than text", len);
    else if (*rc)
        TEI_FAIL(*rc, "notification: %s at byte %d", error.text, error.position);
    return *rc ? NULL : root;
}

/* 0: not said. */
static int read_life(const json_t *te, uint64_t *out)
{
    const json_t *j = json_object_get(te, "life");

    *out = 0;
    if (j && (!tei_hex_number(json_string_value(j), out) || !*out))
        return TEI_FAIL(TE_ERR_JSON, "notification: te.life is no incarnation");
    return 0;
}

int tei_notify_decode(const char *body, size_t len, te_message *out, struct tei_counts *counts)
{
    te_message m = {0};
    int rc;
    json_t *root = load_notification(body, len, &rc);
    const json_t *te = json_object_get(root, "te");
    const json_t *added = counts ? json_object_get(te, "count") : NULL;

    if (!rc && counts)
        rc = read_life(te, &counts->life);
    if (!rc)
        rc = added ? tei_counts_read(added, counts) : read_message(root, &m);
    json_decref(root);
    if (rc)
        tei_message_fini(&m);
    else
        *out = m;
    return rc;
}

void tei_notify_other(uint64_t own, char out[TEI_NOTIFY_OTHER_MAX])
{
    snprintf(out, TEI_NOTIFY_OTHER_MAX,
             "{\"name\":\"\",\"notify_msg\":\"\",\"te\":{\"life\":\"%016" PRIx64 "\"}}", own);
}

int tei_rpc_fail_life(const struct tei_hostport *where, uint64_t wanted, uint64_t found)
{
    return TEI_FAIL(TE_ERR_STALE,
                    "the engine at %s port %u has the incarnation %016" PRIx64
                    ", and what was to be told it is for %016" PRIx64
                    ": the process was started again; open the new one by te_open_life()",
                    where->host, (unsigned)where->port, found, wanted);
}

/* An empty text in the answer means that it was not taken. */
static int check_taken(const struct tei_bytes *reply, const struct tei_hostport *where,
                       uint64_t life)
{
    struct tei_counts more = {0};
    te_message m;
    int rc = tei_notify_decode(reply->data, reply->len, &m, &more);
    bool taken;

    if (rc)
        return rc;
    taken = m.msg_len > 0;
    tei_message_fini(&m);
    if (!taken && life && more.life && more.life != life)
        return tei_rpc_fail_life(where, life, more.life);
    return taken ? 0
                 : TEI_FAIL(TE_ERR_REJECTED, "%s port %u did not take the notification",
                            where->host, (unsigned)where->port);
}

static bool takes_bytes(const struct tei_bytes *answer)
{
    json_t *root = NULL;
    bool takes;

    (void)tei_json_load(answer->data, answer->len, 0, &root, NULL);
    takes = json_integer_value(json_object_get(json_object_get(root, "te"), "notify")) >= 1;
    json_decref(root);
    return takes;
}

/* Asks the engine that is there now: the one of the descriptor may be no more. */
static int ask_bytes(struct tei_auth *auth, const struct tei_hostport *where, int64_t deadline_ns)
{
    struct tei_bytes answer;
    int rc = tei_rpc_request(auth, where, TEI_RPC_PROBE, TEI_PROBE_ASK, strlen(TEI_PROBE_ASK),
                             SMALL_REPLY_MAX, deadline_ns, &answer);

    if (rc)
        return rc;
    if (!takes_bytes(&answer))
        rc = TEI_FAIL(
            TE_ERR_UNSUPPORTED,
            "notification: it is no text (UTF-8 without NUL), and the engine at %s port %u "
            "takes text alone: it is of another make, or of the first release, 0.1.0; send it as "
            "base64 or the like",
            where->host, (unsigned)where->port);
    tei_bytes_fini(&answer);
    return rc;
}

int tei_rpc_notify(struct tei_auth *auth, const struct tei_hostport *where, const te_message *m,
                   uint64_t life, int64_t deadline_ns)
{
    char *body;
    struct tei_bytes reply;
    int rc = is_all_text(m) ? 0 : ask_bytes(auth, where, deadline_ns);

    if (!rc)
        rc = tei_notify_encode(m, life, &body);
    if (rc)
        return rc;
    rc = tei_rpc_request(auth, where, TEI_RPC_NOTIFY, body, strlen(body), SMALL_REPLY_MAX,
                         deadline_ns, &reply);
    free(body);
    if (rc)
        return rc;
    rc = check_taken(&reply, where, life);
    tei_bytes_fini(&reply);
    return rc;
}

int tei_rpc_probe(struct tei_auth *auth, const struct tei_hostport *where, int64_t deadline_ns)
{
    struct tei_bytes reply;
    int rc = tei_rpc_request(auth, where, TEI_RPC_PROBE, TEI_PROBE_REQUEST,
                             strlen(TEI_PROBE_REQUEST), SMALL_REPLY_MAX, deadline_ns, &reply);

    if (!rc)
        tei_bytes_fini(&reply);
    return rc;
}

static int read_own_life(const struct tei_bytes *reply, const struct tei_hostport *where,
                         uint64_t *out)
{
    json_t *root = NULL;
    bool told;

    (void)tei_json_load(reply->data, reply->len, 0, &root, NULL);
    told = tei_hex_number(json_string_value(json_object_get(json_object_get(root, "te"), "life")),
                          out);
    json_decref(root);
    return told ? 0
                : TEI_FAIL(TE_ERR_UNSUPPORTED,
                           "the engine at %s port %u does not keep to what is said for one "
                           "incarnation alone: it is of another make, or of an older version; "
                           "open it by te_open()",
                           where->host, (unsigned)where->port);
}

int tei_rpc_life(struct tei_auth *auth, const struct tei_hostport *where, uint64_t life,
                 uint64_t *out, int64_t deadline_ns)
{
    struct tei_bytes reply;
    char body[48];
    int len = snprintf(body, sizeof body, "{\"te\":{\"life\":\"%016" PRIx64 "\"}}", life);
    int rc = tei_rpc_request(auth, where, TEI_RPC_PROBE, body, (size_t)len, SMALL_REPLY_MAX,
                             deadline_ns, &reply);

    if (rc)
        return rc;
    rc = read_own_life(&reply, where, out);
    tei_bytes_fini(&reply);
    return rc;
}
