/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/path.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/os.h"
#include "base/sock.h"
#include "te.h"
#include "te_info/metadata.h"

#define TEXT_MAX       16384
#define CONNECT_MS     3000
#define DESCRIPTOR_MAX ((size_t)16 << 20)
#define LENGTH_MAX     ((size_t)64 << 10) /* a transport may pin what is registered */

/* A name that no engine has: this one is announced for a moment. */
static int make_engine(const char *metadata, te_engine **e)
{
    char name[64];
    te_options o;

    te_options_init(&o);
    o.metadata = metadata;
    snprintf(name, sizeof name, "te_info.%ld", (long)getpid());
    if (strcasecmp(metadata, "P2PHANDSHAKE") != 0)
        o.local_server_name = name;
    return te_engine_create(&o, e);
}

/* The part of the segment's first buffer to ask for, and memory of ours for it. */
static int prepare(te_engine *e, te_segment seg, te_request *r)
{
    te_buffer first;
    size_t total = 0;
    int rc = te_segment_buffers(e, seg, &first, 1, &total);

    if (rc)
        return rc;
    *r = (te_request){.target = seg};
    if (total == 0)
        return 0;
    r->target_offset = (uintptr_t)first.addr;
    r->length = first.length < LENGTH_MAX ? first.length : LENGTH_MAX;
    rc = te_alloc(e, r->length, NULL, &r->source);
    return rc ? rc : te_register(e, r->source, r->length, NULL, TE_LOCAL_ONLY);
}

static bool explain(te_engine *e, te_request *r, int opcode, const char *key, json_t *found)
{
    static char text[TEXT_MAX];
    int rc;

    r->opcode = opcode;
    rc = te_explain(e, r, text, sizeof text);
    json_object_set_new(found, key, json_string(text));
    return rc == 0;
}

/* Without a metadata server te_open() has just had the descriptor from the engine itself. */
static bool engine_answers(const char *metadata, const struct tei_conf *conf, const char *segment,
                           struct tei_hostport *where, json_t *found)
{
    char why[1024];

    if (!conf) {
        (void)tei_hostport_parse(segment, 0, where);
        return true;
    }
    if (metadata_ask_engine(metadata, conf, segment, where) == 0)
        return true;
    snprintf(why, sizeof why, "its engine does not answer: %s", te_errmsg());
    json_object_set_new(found, "why", json_string(why));
    return false;
}

/* The port that tcp connects to at the engine of a segment; 0 if its descriptor has none. */
static uint16_t data_port(te_engine *e, te_segment seg)
{
    char *text = malloc(DESCRIPTOR_MAX);
    json_t *root = text && te_segment_json(e, seg, text, DESCRIPTOR_MAX) == 0
                       ? json_loads(text, 0, NULL)
                       : NULL;
    json_int_t port = json_integer_value(json_object_get(root, "tcp_data_port"));

    json_decref(root);
    free(text);
    return port > 0 && port <= UINT16_MAX ? (uint16_t)port : 0;
}

static bool takes_tcp(const json_t *found, const char *key)
{
    const char *text = json_string_value(json_object_get(found, key));
    const char *line = text ? strstr(text, "transport tcp: score ") : NULL;
    const char *taken = line ? strstr(line, ", taken") : NULL;

    return taken && taken < strchrnul(line, '\n');
}

/* Handshakes say nothing of the data port: it is another one, which a firewall may close. */
static void ask_data_port(const struct tei_hostport *where, uint16_t port, json_t *found)
{
    char address[TEI_HOSTPORT_MAX];
    json_t *data;
    int fd;

    if (!where->host[0] || port == 0)
        return;
    tei_hostport_format(where->host, port, address, sizeof address);
    fd = tei_connect(where->host, port, NULL, tei_deadline_ns(CONNECT_MS));
    data = json_pack("{ss sb}", "address", address, "answers", fd >= 0);
    if (fd < 0)
        json_object_set_new(data, "why", json_string(te_errmsg()));
    else
        close(fd);
    json_object_set_new(found, "data_port", data);
    if (fd < 0 && (takes_tcp(found, "read") || takes_tcp(found, "write")))
        json_object_set_new(found, "possible", json_false());
}

static int ask(te_engine *e, const char *segment, uint16_t *port, json_t *found)
{
    te_segment seg;
    te_request r;
    bool read, write;
    int rc = te_open(e, segment, &seg);

    if (!rc)
        rc = prepare(e, seg, &r);
    if (rc)
        return rc;
    *port = data_port(e, seg);
    if (r.length == 0) {
        json_object_set_new(found, "why", json_string("it has registered no memory for peers"));
        return 0;
    }
    read = explain(e, &r, TE_READ, "read", found);
    write = explain(e, &r, TE_WRITE, "write", found);
    json_object_set_new(found, "possible", json_boolean(read && write));
    return 0;
}

json_t *path_ask(const char *metadata, const struct tei_conf *conf, const char *segment)
{
    json_t *found = json_pack("{ss sb}", "segment", segment, "possible", 0);
    struct tei_hostport where = {0};
    te_engine *e = NULL;
    uint16_t port = 0;
    int rc = make_engine(metadata, &e);

    if (!rc)
        rc = ask(e, segment, &port, found);
    if (rc)
        json_object_set_new(found, "why", json_string(te_errmsg()));
    else if (!engine_answers(metadata, conf, segment, &where, found))
        json_object_set_new(found, "possible", json_false());
    else
        ask_data_port(&where, port, found);
    te_engine_destroy(e);
    return found;
}

static void print_text(const char *title, const char *text)
{
    printf("  %s\n", title);
    for (const char *line = text, *end; *line; line = *end ? end + 1 : end) {
        end = strchrnul(line, '\n');
        printf("    %.*s\n", (int)(end - line), line);
    }
}

static void print_data_port(const json_t *data)
{
    if (!data)
        return;
    printf("  data port %s: ", json_string_value(json_object_get(data, "address")));
    if (json_is_true(json_object_get(data, "answers")))
        printf("answers\n");
    else
        printf(
            "does not answer, so tcp cannot be used: %s; a firewall? it is another port than the "
            "handshake's\n",
            json_string_value(json_object_get(data, "why")));
}

void path_print(const json_t *found)
{
    const char *why = json_string_value(json_object_get(found, "why"));
    const char *read = json_string_value(json_object_get(found, "read"));
    const char *write = json_string_value(json_object_get(found, "write"));

    printf("Path to segment '%s'\n", json_string_value(json_object_get(found, "segment")));
    if (!read) {
        printf("  cannot be told: %s\n", why);
        return;
    }
    if (why)
        printf("  %s\n  It would be, by the descriptor that is left:\n", why);
    print_data_port(json_object_get(found, "data_port"));
    if (strcmp(read, write) == 0) {
        print_text("READ and WRITE", read);
    } else {
        print_text("READ", read);
        print_text("WRITE", write);
    }
}
