/* SPDX-License-Identifier: Apache-2.0 */
#include "meta/rpc.h"

#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES      ((size_t)256 << 10)
#define SMALL_REPLY_MAX ((size_t)64 << 10) /* of a notification or a probe */

/* The connection failed; errno is of the call that did. */
static int fail_io(int rc, const char *peer, const char *doing)
{
    if (rc == TE_ERR_TIMEOUT)
        return TEI_FAIL(rc, "%s: no progress in time while %s; it may be overloaded or frozen",
                        peer, doing);
    return TEI_FAIL(rc, "%s: %s while %s; is it the handshake port of an engine?", peer,
                    errno ? tei_errno_text(errno) : "connection closed", doing);
}

static int send_frame(int fd, enum tei_rpc_type type, const char *body, size_t len,
                      const char *peer, int64_t deadline_ns)
{
    size_t n;
    char *frame = tei_rpc_frame(true, (uint8_t)type, body, len, &n);
    int rc;

    if (!frame)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a request of %zu bytes", len);
    rc = tei_write_full(fd, frame, n, deadline_ns);
    free(frame);
    return rc ? fail_io(rc, peer, "sending the request") : 0;
}

static int fail_parse(int rc, const struct tei_rpc_parser *p, const char *peer)
{
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
static int read_frame(int fd, struct tei_rpc_parser *p, const char *peer, int64_t deadline_ns)
{
    char *buf = malloc(READ_BYTES);
    int rc = buf ? 0 : TE_ERR_MEMORY;

    while (!rc) {
        size_t n = tei_min(tei_rpc_parser_wants(p), READ_BYTES), used;

        rc = tei_read_full(fd, buf, n, deadline_ns);
        if (rc) {
            free(buf);
            return fail_io(rc, peer, "reading the reply");
        }
        rc = tei_rpc_parser_feed(p, buf, n, &used);
    }
    free(buf);
    return rc < 0 ? fail_parse(rc, p, peer) : 0;
}

static int read_reply(int fd, enum tei_rpc_type type, const char *peer, size_t max_len,
                      int64_t deadline_ns, struct tei_bytes *reply)
{
    struct tei_rpc_parser p;
    int rc;

    tei_rpc_parser_init(&p, max_len);
    rc = read_frame(fd, &p, peer, deadline_ns);
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

int tei_rpc_request(const struct tei_hostport *where, enum tei_rpc_type type, const char *body,
                    size_t len, size_t max_len, int64_t deadline_ns, struct tei_bytes *reply)
{
    char peer[TEI_HOSTPORT_MAX];
    int fd = tei_connect(where->host, where->port, deadline_ns), rc;

    if (fd < 0)
        return fd;
    tei_hostport_format(where->host, where->port, peer, sizeof peer);
    rc = send_frame(fd, type, body, len, peer, deadline_ns);
    if (!rc)
        rc = read_reply(fd, type, peer, max_len, deadline_ns, reply);
    tei_fd_close(fd);
    return rc;
}

/* ---- bodies */

int tei_notify_encode(const char *name, const char *msg, char **out)
{
    json_error_t why = {0};
    json_t *j = json_pack_ex(&why, 0, "{s:s, s:s}", "name", name, "notify_msg", msg);

    *out = tei_json_text(j, NULL);
    json_decref(j);
    if (*out)
        return 0;
    return !j && json_error_code(&why) == json_error_invalid_utf8
               ? TEI_FAIL(TE_ERR_INVALID, "a notification's name and text must be UTF-8")
               : TEI_FAIL(TE_ERR_MEMORY, "no memory for a notification");
}

/* A key that is absent reads as "". */
static int copy_text(const json_t *root, const char *key, char **out)
{
    const json_t *j = json_object_get(root, key);

    if (j && !json_is_string(j))
        return TEI_FAIL(TE_ERR_JSON, "notification: key '%s' is no string", key);
    *out = strdup(j ? json_string_value(j) : "");
    return *out ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for a notification");
}

int tei_notify_decode(const char *body, size_t len, char **name, char **msg)
{
    char *name_text = NULL, *msg_text = NULL;
    json_error_t error;
    json_t *root;
    int rc = tei_json_load(body, len, 0, &root, &error);

    if (rc == TE_ERR_MEMORY)
        return TEI_FAIL(rc, "no memory for a notification");
    if (rc)
        return TEI_FAIL(rc, "notification: %s at byte %d", error.text, error.position);
    if (json_is_object(root))
        rc = copy_text(root, "name", &name_text);
    else
        rc = TEI_FAIL(TE_ERR_JSON, "notification: it is no JSON object");
    if (!rc)
        rc = copy_text(root, "notify_msg", &msg_text);
    json_decref(root);
    if (rc) {
        free(name_text);
        return rc;
    }
    *name = name_text;
    *msg = msg_text;
    return 0;
}

/* An empty text in the answer means that it was not taken. */
static int check_taken(const struct tei_bytes *reply, const struct tei_hostport *where)
{
    char *name, *msg;
    int rc = tei_notify_decode(reply->data, reply->len, &name, &msg);
    bool taken;

    if (rc)
        return rc;
    taken = *msg != '\0';
    free(name);
    free(msg);
    return taken ? 0
                 : TEI_FAIL(TE_ERR_REJECTED, "%s port %u did not take the notification",
                            where->host, (unsigned)where->port);
}

int tei_rpc_notify(const struct tei_hostport *where, const char *name, const char *msg,
                   int64_t deadline_ns)
{
    char *body;
    struct tei_bytes reply;
    int rc = tei_notify_encode(name, msg, &body);

    if (rc)
        return rc;
    rc = tei_rpc_request(where, TEI_RPC_NOTIFY, body, strlen(body), SMALL_REPLY_MAX, deadline_ns,
                         &reply);
    free(body);
    if (rc)
        return rc;
    rc = check_taken(&reply, where);
    tei_bytes_fini(&reply);
    return rc;
}

int tei_rpc_probe(const struct tei_hostport *where, int64_t deadline_ns)
{
    struct tei_bytes reply;
    int rc = tei_rpc_request(where, TEI_RPC_PROBE, TEI_PROBE_REQUEST, strlen(TEI_PROBE_REQUEST),
                             SMALL_REPLY_MAX, deadline_ns, &reply);

    if (!rc)
        tei_bytes_fini(&reply);
    return rc;
}
