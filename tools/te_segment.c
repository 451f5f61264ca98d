/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_segment - the segments that a metadata server knows: adds one before its engine is up, lists
 * and shows them, removes what a dead engine has left.
 *
 * Exit status: 0 done, 1 failed, 2 wrong usage.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <jansson.h>

#include "base/os.h"
#include "common_flags.h"
#include "meta/meta.h"
#include "te.h"
#include "te_segment/print.h"
#include "te_segment/registry.h"

#define FAILED    1
#define USAGE     2
#define WORDS_MAX 2

struct settings {
    const char *metadata_server, *cluster_id;
    bool json, force;
};

/* What a command works with. */
struct job {
    const struct settings *settings;
    struct registry registry;
    const char *name;
};

#define ROW(member) .name = #member, .offset = offsetof(struct settings, member)

static const struct flag setting_flags[] = {
    {ROW(metadata_server), .kind = FLAG_TEXT, .initial = "",
     .help = "Must be given: the server that the engines use, such as etcd://127.0.0.1:2379,\n"
             "      redis://127.0.0.1:6379 or http://127.0.0.1:8080/metadata."},
    {ROW(cluster_id), .kind = FLAG_TEXT, .initial = "",
     .help = "The cluster whose keys are meant; not given: MC_METADATA_CLUSTER_ID."},
    {ROW(json), .kind = FLAG_SWITCH, .initial = "false", .help = "list and show: print JSON."},
    {ROW(force), .kind = FLAG_SWITCH, .initial = "false",
     .help = "register: replace what is there. unregister: also while its engine answers."},
};

static const char about[] =
    "The segments that a metadata server knows.\n\n"
    "Commands:\n"
    "  register NAME    Store a segment without buffers, so that peers can open it before its\n"
    "                   engine is up. The engine of that name takes it over when it starts.\n"
    "  list             One segment per line: kind, protocol, buffers, where its engine answers.\n"
    "  show NAME        One descriptor, with every buffer.\n"
    "  unregister NAME  Remove the keys of a segment whose engine is gone.";

__attribute__((format(printf, 2, 3))) static int fail(int status, const char *fmt, ...)
{
    va_list args;

    fprintf(stderr, "te_segment: ");
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n");
    return status;
}

/* ------------------------------------------------------------------------------------- register */

/* Older readers look for the name under server_name. */
static char *empty_descriptor(const char *name, size_t *len)
{
    char when[40];
    char *text;
    json_t *j;

    tei_timestamp(when, sizeof when);
    j = json_pack("{s[] ss ss ss si si ss}", "buffers", "name", name, "server_name", name,
                  "protocol", "tcp", "tcp_data_port", 0, "tcp_proto_version", 1, "timestamp", when);
    text = tei_json_text(j, len);
    json_decref(j);
    return text;
}

/* A name that the engine itself would refuse is of no use to anybody. */
static int check_new_name(const char *name)
{
    json_t *utf8 = json_string(name);

    json_decref(utf8);
    if (strchr(name, '/'))
        return fail(USAGE,
                    "cannot register '%s': a name with a '/' is that of files, and only "
                    "segments of memory can be registered",
                    name);
    if (!utf8)
        return fail(USAGE, "cannot register '%s': the name is not UTF-8", name);
    if (strlen(name) >= TEI_HOSTPORT_MAX)
        return fail(USAGE, "cannot register '%.60s...': a name has at most %d bytes", name,
                    TEI_HOSTPORT_MAX - 1);
    return 0;
}

/* Whether a descriptor or an engine is there under the name: 0 no, else the status to exit with. */
static int check_vacant(struct job *j)
{
    struct tei_hostport where;
    struct tei_bytes text = {0};
    int rc = registry_get(&j->registry, tei_keys_segment(j->registry.conf, j->name), &text);
    bool stored = rc == 0;

    tei_bytes_fini(&text);
    if (rc && rc != TE_ERR_NOT_FOUND)
        return fail(FAILED, "%s", te_errmsg());
    rc = registry_where(&j->registry, j->name, &where);
    if (rc && rc != TE_ERR_JSON)
        return fail(FAILED, "%s", te_errmsg());
    if (where.port)
        return fail(FAILED,
                    "segment '%s' is registered already, by an engine at %s port %u; "
                    "--force replaces its descriptor until it publishes again",
                    j->name, where.host, (unsigned)where.port);
    if (stored || rc)
        return fail(FAILED,
                    "segment '%s' is registered already, and has no engine; --force "
                    "replaces its descriptor",
                    j->name);
    return 0;
}

static int do_register(struct job *j)
{
    char *text;
    size_t len;
    int rc = check_new_name(j->name);

    if (!rc && !j->settings->force)
        rc = check_vacant(j);
    if (rc)
        return rc;
    text = empty_descriptor(j->name, &len);
    if (!text)
        return fail(FAILED, "no memory for the descriptor");
    rc = registry_put(&j->registry, tei_keys_segment(j->registry.conf, j->name), text, len);
    free(text);
    if (rc)
        return fail(FAILED, "segment '%s' is not registered: %s", j->name, te_errmsg());
    printf("registered %s\n", j->name);
    return 0;
}

/* ------------------------------------------------------------------------------- list and show */

static int do_list(struct job *j)
{
    struct entry *list;
    size_t n;

    if (registry_list(&j->registry, &list, &n))
        return fail(FAILED, "cannot list the segments: %s", te_errmsg());
    if (j->settings->json)
        print_json(list, n);
    else
        print_table(list, n);
    entries_free(list, n);
    return 0;
}

static int show_entry(const struct job *j, const struct entry *e)
{
    if (j->settings->json)
        print_stored(e);
    else if (e->segment)
        print_segment(e);
    else
        return fail(FAILED, "segment '%s' is malformed: %s; --json shows it as it is stored",
                    j->name, e->wrong);
    return 0;
}

static int do_show(struct job *j)
{
    struct entry e;
    int rc = entry_read(&j->registry, j->name, &e);

    if (rc == TE_ERR_NOT_FOUND)
        return fail(FAILED, "there is no segment '%s'; 'te_segment list' tells which there are",
                    j->name);
    if (rc)
        return fail(FAILED, "segment '%s': %s", j->name, te_errmsg());
    rc = show_entry(j, &e);
    entry_fini(&e);
    return rc;
}

/* ----------------------------------------------------------------------------------- unregister */

/* 0 if no engine answers for the name, else the status to exit with. */
static int check_dead(struct job *j)
{
    int64_t wait_ms = (int64_t)j->registry.conf->handshake_connect_timeout_s * 1000;
    struct tei_hostport where;
    int rc = registry_where(&j->registry, j->name, &where);

    if (rc && rc != TE_ERR_JSON)
        return fail(FAILED, "%s", te_errmsg());
    if (!where.port || tei_rpc_probe(&where, tei_deadline_ns(wait_ms)))
        return 0;
    return fail(FAILED,
                "segment '%s' stays: its engine answers at %s port %u; end it, which "
                "removes its keys, or give --force",
                j->name, where.host, (unsigned)where.port);
}

/* Takes over `key`. Counts it if it was there; TE_ERR_* if the server could not be asked. */
static int remove_key(struct registry *r, char *key, unsigned *removed)
{
    struct tei_bytes value = {0};
    char *copy = key ? strdup(key) : NULL;
    int rc = registry_get(r, copy, &value);

    tei_bytes_fini(&value);
    if (!rc)
        rc = registry_del(r, strdup(key));
    if (!rc) {
        printf("removed %s\n", key);
        ++*removed;
    }
    free(key);
    return rc == TE_ERR_NOT_FOUND ? 0 : rc;
}

/* Files have no engine: what stands before the slash is not answered for. */
static int do_unregister(struct job *j)
{
    struct registry *r = &j->registry;
    bool ram = !strchr(j->name, '/');
    unsigned removed = 0;
    int rc = ram && !j->settings->force ? check_dead(j) : 0;

    if (rc)
        return rc;
    if (ram)
        rc = remove_key(r, tei_keys_rpc(r->conf, j->name), &removed);
    if (!rc)
        rc = remove_key(r, tei_keys_segment(r->conf, j->name), &removed);
    if (rc)
        return fail(FAILED, "segment '%s': %s", j->name, te_errmsg());
    if (!removed)
        return fail(FAILED, "there is no segment '%s': nothing was removed", j->name);
    return 0;
}

/* ----------------------------------------------------------------------------------------- main */

static const struct command {
    const char *word;
    int (*run)(struct job *j);
    bool takes_name, takes_json, takes_force;
} commands[] = {
    {"register", do_register, .takes_name = true, .takes_force = true},
    {"list", do_list, .takes_json = true},
    {"show", do_show, .takes_name = true, .takes_json = true},
    {"unregister", do_unregister, .takes_name = true, .takes_force = true},
};

static const struct command *find_command(const char *word)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].word, word) == 0)
            return &commands[i];
    return NULL;
}

static int check_server(const char *conn)
{
    if (!conn[0])
        return fail(USAGE, "--metadata_server is missing: give the server that the engines use, "
                           "such as --metadata_server=etcd://127.0.0.1:2379, "
                           "redis://127.0.0.1:6379 or http://127.0.0.1:8080/metadata");
    if (strcasecmp(conn, "P2PHANDSHAKE") == 0)
        return fail(USAGE, "--metadata_server=P2PHANDSHAKE stores nothing: each engine tells its "
                           "descriptor itself, under host:port; give a metadata server");
    return 0;
}

static int check_usage(const struct settings *s, const char *const *words, size_t n)
{
    const struct command *c = n ? find_command(words[0]) : NULL;

    if (!n)
        return fail(USAGE, "a command is missing: register NAME, list, show NAME or unregister "
                           "NAME (see --help)");
    if (!c)
        return fail(USAGE,
                    "unknown command '%s': it is register, list, show or unregister (see "
                    "--help)",
                    words[0]);
    if (c->takes_name && (n < 2 || !words[1][0]))
        return fail(USAGE, "the name is missing: te_segment %s NAME", c->word);
    if (!c->takes_name && n > 1)
        return fail(USAGE, "%s takes no name, drop '%s'", c->word, words[1]);
    if ((s->json && !c->takes_json) || (s->force && !c->takes_force))
        return fail(USAGE, "%s takes no --%s", c->word,
                    s->json && !c->takes_json ? "json" : "force");
    return check_server(s->metadata_server);
}

/* As te_open() takes it; "ram/x" is the key of "x". */
static const char *plain_name(const char *name)
{
    while (*name == '/')
        name++;
    return strncmp(name, "ram/", 4) == 0 ? name + 4 : name;
}

static int load_conf(const struct flags *flags, const struct settings *s, struct tei_conf *conf)
{
    struct te_option_list *set = NULL;
    int rc = 0;

    if (flags_given(flags, "cluster_id"))
        rc = tei_option_list_add(&set, "MC_METADATA_CLUSTER_ID", s->cluster_id);
    if (!rc)
        rc = tei_conf_load(set, conf);
    tei_option_list_free(set);
    if (rc)
        return fail(USAGE, "%s", te_errmsg());
    /* What goes wrong is told here, once. */
    te_log_set_level(conf->log_level >= 0 ? (enum te_log_level)conf->log_level : TE_LOG_OFF);
    return 0;
}

static int run(const struct flags *flags, const struct settings *s)
{
    static struct tei_conf conf;
    const struct command *c = find_command(flags->words[0]);
    struct job j = {.settings = s};
    int rc = load_conf(flags, s, &conf);

    if (rc)
        return rc;
    rc = registry_open(&j.registry, s->metadata_server, &conf);
    if (rc)
        return fail(rc == TE_ERR_INVALID ? USAGE : FAILED, "%s", te_errmsg());
    if (c->takes_name) {
        j.name = c->run == do_register ? flags->words[1] : plain_name(flags->words[1]);
        if (c->run != do_register && !registry_is_name(&j.registry, j.name))
            rc = fail(USAGE, "'%s' is no name of a segment: it is NAME, or KIND/NAME for files",
                      flags->words[1]);
    }
    if (!rc)
        rc = c->run(&j);
    registry_close(&j.registry);
    return rc;
}

int main(int argc, char **argv)
{
    const char *words[WORDS_MAX];
    struct settings s = {0};
    const struct flag_table table = {.flags = setting_flags,
                                     .count = sizeof setting_flags / sizeof setting_flags[0],
                                     .values = &s};
    struct flags flags = {.tool = "te_segment",
                          .about = about,
                          .tables = &table,
                          .count = 1,
                          .words_help = "COMMAND [NAME]",
                          .words = words,
                          .words_max = WORDS_MAX};
    int rc = flags_parse(&flags, argc, argv);

    if (rc >= 0)
        return rc;
    rc = check_usage(&s, words, flags.word_count);
    if (rc)
        return rc;
    rc = run(&flags, &s);
    if (fflush(stdout) || ferror(stdout))
        rc = fail(FAILED, "cannot write: %s", strerror(errno));
    return rc;
}
