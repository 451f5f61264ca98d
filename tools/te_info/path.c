/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/path.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "te.h"
#include "te_info/metadata.h"

#define TEXT_MAX       16384
#define DESCRIPTOR_MAX (4 << 20)
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
                           json_t *found)
{
    char why[1024];

    if (!conf || metadata_ask_engine(metadata, conf, segment) == 0)
        return true;
    snprintf(why, sizeof why, "its engine does not answer: %s", te_errmsg());
    json_object_set_new(found, "why", json_string(why));
    return false;
}

/* Bytes go by another port than what was asked here, which a firewall may treat otherwise. */
static void add_data_port(te_engine *e, te_segment seg, json_t *found)
{
    static char text[DESCRIPTOR_MAX];
    json_t *root, *port;

    if (te_segment_json(e, seg, text, sizeof text))
        return;
    root = json_loads(text, 0, NULL);
    port = json_object_get(root, "tcp_data_port");
    if (json_integer_value(port) > 0)
        json_object_set(found, "data_port_not_tried", port);
    json_decref(root);
}

static int ask(te_engine *e, const char *segment, json_t *found)
{
    te_segment seg;
    te_request r;
    bool read, write;
    int rc = te_open(e, segment, &seg);

    if (!rc)
        rc = prepare(e, seg, &r);
    if (rc)
        return rc;
    if (r.length == 0) {
        json_object_set_new(found, "why", json_string("it has registered no memory for peers"));
        return 0;
    }
    read = explain(e, &r, TE_READ, "read", found);
    write = explain(e, &r, TE_WRITE, "write", found);
    json_object_set_new(found, "possible", json_boolean(read && write));
    add_data_port(e, seg, found);
    return 0;
}

json_t *path_ask(const char *metadata, const struct tei_conf *conf, const char *segment)
{
    json_t *found = json_pack("{ss sb}", "segment", segment, "possible", 0);
    te_engine *e = NULL;
    int rc = make_engine(metadata, &e);

    if (!rc)
        rc = ask(e, segment, found);
    if (rc)
        json_object_set_new(found, "why", json_string(te_errmsg()));
    else if (!engine_answers(metadata, conf, segment, found))
        json_object_set_new(found, "possible", json_false());
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

void path_print(const json_t *found)
{
    const char *why = json_string_value(json_object_get(found, "why"));
    const char *read = json_string_value(json_object_get(found, "read"));
    const char *write = json_string_value(json_object_get(found, "write"));
    const json_t *port = json_object_get(found, "data_port_not_tried");

    printf("Path to segment '%s'\n", json_string_value(json_object_get(found, "segment")));
    if (!read) {
        printf("  cannot be told: %s\n", why);
        return;
    }
    if (why)
        printf("  %s\n  It would be, by the descriptor that is left:\n", why);
    if (strcmp(read, write) == 0) {
        print_text("READ and WRITE", read);
    } else {
        print_text("READ", read);
        print_text("WRITE", write);
    }
    if (port)
        printf("  Its data port, %d, was not tried: transfer_engine_bench shows whether bytes get "
               "through\n",
               (int)json_integer_value(port));
}
