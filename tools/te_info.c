/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_info - what an engine made here would be like: what the host can do and what is wrong with it, its
 * configuration, its topology, its links, whether its metadata server can be asked, and which way it
 * would go to a segment.
 *
 * Exit status: 0 all was told, 1 something could not be found out or a check has failed, 2 wrong usage.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include <jansson.h>

#include "common_flags.h"
#include "common_setup.h"
#include "conf/conf.h"
#include "te.h"
#include "te_info/changed.h"
#include "te_info/check.h"
#include "te_info/document.h"
#include "te_info/links.h"
#include "te_info/metadata.h"
#include "te_info/metrics.h"
#include "te_info/path.h"
#include "te_info/picture.h"
#include "te_info/summary.h"

#define LINKS_MAX (16u << 20)

struct want {
    bool summary, check, changed, config, topology, links, metrics, markdown, man, json;
    const char *sysfs, *metadata_server, *segment;
    bool sysfs_given, svg;
};

static const struct flag want_flags[] = {
    {.name = "check",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct want, check),
     .initial = "false",
     .help =
         "Look for what is wrong with this host, for this user and in this container: a line\n"
         "      for each thing, ok, warn, FAIL or - (not here), with the remedy. Exit status: 1\n"
         "      with a FAIL, else 0, warnings or not."},
    {.name = "changed",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct want, changed),
     .initial = "false",
     .help = "Print the options that differ from their defaults, and variables without effect."},
    {.name = "config",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct want, config),
     .initial = "false",
     .help = "Print the options, their values here and where these are from."},
    {.name = "topology",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct want, topology),
     .initial = "false",
     .help = "Print the NIC priority matrix."},
    {.name = "links",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct want, links),
     .initial = "false",
     .help =
         "Print network interfaces, RDMA devices and which of them can be used, and the matrix."},
    {.name = "metrics",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct want, metrics),
     .initial = "false",
     .help = "Print what an engine tells to Prometheus: each metric, its labels and its meaning."},
    {.name = "json",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct want, json),
     .initial = "false",
     .help = "Print JSON."},
    {.name = "svg",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct want, svg),
     .initial = "false",
     .help = "With --topology: draw the NICs and their matrix, as a picture (SVG)."},
    {.name = "markdown",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct want, markdown),
     .initial = "false",
     .help = "Print the option table as docs/config.md, defaults only; with --metrics, those as\n"
             "      docs/metrics.md."},
    {.name = "man",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct want, man),
     .initial = "false",
     .help = "Print the option table as the manual page transfer_engine(5), defaults only."},
    {.name = "sysfs",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct want, sysfs),
     .initial = "/sys",
     .help = "Folder to read devices from."},
    {.name = "metadata_server",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct want, metadata_server),
     .initial = "",
     .help = "Ask this one whether it answers, and how many engines and segments it knows."},
    {.name = "segment",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct want, segment),
     .initial = "",
     .help =
         "With --metadata_server, P2PHANDSHAKE included: open this segment and tell which\n"
         "      transport would read and write its first buffer, and why no other, and whether its\n"
         "      data port answers. Moves nothing."},
};

/* -------------------------------------------------------------------------------- configuration */

static const char *shown(const char *text)
{
    return text[0] ? text : "(empty)";
}

static void print_config(const struct tei_conf *c)
{
    struct tei_conf_row row;

    for (size_t i = 0; tei_conf_row(c, i, &row); i++) {
        if (row.about)
            printf("%s%s\n%s\n\n", i ? "\n" : "", row.section, row.about);
        printf("  %s = %s%s%s  [%s]\n", row.name, shown(row.value), row.unit ? " " : "",
               row.unit ? row.unit : "", row.source);
        printf("      default: %s; must be %s", shown(row.fallback), row.range);
        if (row.alias)
            printf("; also named %s", row.alias);
        printf("\n      %s%s\n", row.help, row.idle ? " " DOCUMENT_IDLE : "");
    }
}

static json_t *config_json(const struct tei_conf *c)
{
    json_t *all = json_array();
    struct tei_conf_row row;

    for (size_t i = 0; tei_conf_row(c, i, &row); i++)
        json_array_append_new(all, json_pack("{ss ss* ss ss ss ss ss ss* sb ss}", "name", row.name,
                                             "alias", row.alias, "section", row.section, "value",
                                             row.value, "source", row.source, "default",
                                             row.fallback, "range", row.range, "unit", row.unit,
                                             "read", !row.idle, "help", row.help));
    return all;
}

/* ---------------------------------------------------------------------------- topology and NICs */

/*
 * An engine as this host would have it, with its devices taken from --sysfs; one without a
 * transport where that fails, since why it fails is often to be seen in what this prints. NULL
 * after a message.
 */
static te_engine *make_engine(const struct want *w)
{
    te_engine *e = NULL;
    te_options o;
    int rc = 0;

    te_options_init(&o);
    if (w->sysfs_given)
        rc = te_option_set(&o, "TE_SYSFS_PATH", w->sysfs);
    if (!rc && te_engine_create(&o, &e) != 0) {
        fprintf(stderr, "te_info: no engine with the transports of this host can be made: %s\n",
                te_errmsg());
        o.auto_discover = 0;
        rc = te_engine_create(&o, &e);
    }
    te_options_fini(&o);
    if (!rc)
        return e;
    fprintf(stderr, "te_info: no engine can be made: %s\n", te_errmsg());
    return NULL;
}

/* {"local_nics":[...],"topology":{...}}, a new reference; NULL after a message. */
static json_t *ask_links(const struct want *w)
{
    te_engine *e = make_engine(w);
    char *buf = NULL;
    json_t *links = NULL;
    int rc = TE_ERR_TOO_LARGE;

    for (size_t n = 16384; e && rc == TE_ERR_TOO_LARGE && n <= LINKS_MAX; n *= 4) {
        char *more = realloc(buf, n);

        if (!more)
            break;
        buf = more;
        rc = te_links(e, 1, buf, n);
    }
    if (e && rc == 0)
        links = json_loads(buf, 0, NULL);
    else if (e)
        fprintf(stderr, "te_info: topology: %s\n", te_errmsg());
    te_engine_destroy(e);
    free(buf);
    return links;
}

static void print_devices(const char *title, const json_t *names)
{
    printf("  %s:", title);
    for (size_t i = 0; i < json_array_size(names); i++)
        printf(" %s", json_string_value(json_array_get(names, i)));
    printf("%s", json_array_size(names) ? "" : " none");
}

static void print_topology(const json_t *topology)
{
    const char *location;
    json_t *lists;

    printf("Topology\n");
    json_object_foreach((json_t *)topology, location, lists) {
        printf("  %-8s", location);
        print_devices("preferred", json_array_get(lists, 0));
        print_devices("others", json_array_get(lists, 1));
        printf("\n");
    }
}

/* ----------------------------------------------------------------------------------------- main */

/* The options of this process; NULL after a message. */
static const struct tei_conf *load_conf(void)
{
    static struct tei_conf conf;

    if (tei_conf_load(NULL, &conf) == 0)
        return &conf;
    fprintf(stderr, "te_info: configuration: %s\n", te_errmsg());
    return NULL;
}

/* Everything that was asked for: text at once, JSON gathered in `out`. Returns the exit status. */
static int tell_config(const struct want *w, json_t *out)
{
    const struct tei_conf *conf = load_conf();

    if (!conf)
        return 1;
    tei_conf_tell_unused();
    if (w->markdown)
        document_markdown(conf);
    else if (w->man)
        document_man(conf);
    else if (out)
        json_object_set_new(out, "config", config_json(conf));
    else
        print_config(conf);
    return 0;
}

static int tell_metrics(const struct want *w, json_t *out)
{
    if (w->markdown)
        metrics_markdown();
    else if (out)
        json_object_set_new(out, "metrics", metrics_json());
    else
        metrics_print();
    return 0;
}

static int tell_changed(json_t *out)
{
    const struct tei_conf *conf = load_conf();

    if (!conf)
        return 1;
    if (out)
        json_object_update_new(out, changed_json(conf));
    else
        changed_print(conf);
    return 0;
}

/* Both look at the host; a summary does not fail by what is wrong with that. */
static int tell_checks(const struct want *w, json_t *out)
{
    static struct tei_conf conf;
    static struct check all[CHECK_MAX];
    struct check_host h = {.proc = "/proc", .sysfs = w->sysfs, .sysfs_given = w->sysfs_given};
    size_t n;

    if (check_ask(&h, &conf)) {
        fprintf(stderr, "te_info: configuration: %s\n", te_errmsg());
        return 1;
    }
    n = check_run(&h, all);
    if (out)
        json_object_set_new(out, "checks", check_json(all, n));
    if (out && w->summary)
        summary_json(&h, out);
    else if (!out && w->summary)
        summary_print(&h, all, n);
    else if (!out)
        check_print(all, n);
    return w->check && check_worst(all, n) == CHECK_FAIL;
}

/* `links` is NULL where they could not be found out, which has been said. */
static int tell_topology(const json_t *links, json_t *out)
{
    json_t *topology = json_object_get(links, "topology");

    if (!topology)
        return 1;
    if (out)
        json_object_set(out, "topology", topology);
    else
        print_topology(topology);
    return 0;
}

static int tell_interfaces(const struct want *w, json_t *out)
{
    json_t *interfaces = links_interfaces(w->sysfs);
    int rc = interfaces ? 0 : 1;

    if (!interfaces)
        fprintf(stderr, "te_info: network interfaces: %s\n", strerror(errno));
    if (out)
        json_object_set(out, "interfaces", interfaces ? interfaces : json_null());
    else
        links_print_interfaces(interfaces);
    json_decref(interfaces);
    return rc;
}

static int tell_nics(const json_t *links, json_t *out)
{
    json_t *nics = json_object_get(links, "local_nics");

    if (!nics)
        return 1;
    if (out)
        json_object_set(out, "local_nics", nics);
    else
        links_print_nics(nics);
    return 0;
}

static int tell_picture(const struct want *w)
{
    json_t *links = ask_links(w);
    int rc = links ? 0 : 1;

    if (links && !picture_print(stdout, links)) {
        fprintf(stderr,
                "te_info: no memory for the picture: free some, or take --topology --json\n");
        rc = 1;
    }
    json_decref(links);
    return rc;
}

/* Interfaces and NICs with --links, and the matrix with either. */
static int tell_host(const struct want *w, json_t *out)
{
    json_t *links = ask_links(w);
    int rc = 0;

    if (w->links) {
        rc = tell_interfaces(w, out);
        if (!out)
            printf("\n");
        rc |= tell_nics(links, out);
        if (!out && links)
            printf("\n");
    }
    rc |= tell_topology(links, out);
    json_decref(links);
    return rc;
}

static int tell_metadata(const struct want *w, const struct tei_conf *conf, json_t *out)
{
    json_t *found = metadata_ask(w->metadata_server, conf);
    int rc = json_is_true(json_object_get(found, "answers")) ? 0 : 1;

    if (out)
        json_object_set(out, "metadata", found);
    else
        metadata_print(w->metadata_server, found);
    json_decref(found);
    return rc;
}

static int tell_path(const struct want *w, const struct tei_conf *conf, json_t *out)
{
    json_t *found = path_ask(w->metadata_server, conf, w->segment);
    int rc = json_is_true(json_object_get(found, "possible")) ? 0 : 1;

    if (out)
        json_object_set(out, "path", found);
    else
        path_print(found);
    json_decref(found);
    return rc;
}

static bool is_p2p(const char *conn)
{
    return strcasecmp(conn, "P2PHANDSHAKE") == 0;
}

/* What is told of a metadata server, and of a segment that is found by it. */
static int tell_server(const struct want *w, json_t *out)
{
    const struct tei_conf *conf = NULL;
    int rc = 0;

    setup_divert_log("te_info");
    if (!is_p2p(w->metadata_server)) {
        conf = load_conf();
        if (!conf)
            return 1;
        tei_conf_tell_unused();
        rc = tell_metadata(w, conf, out);
    }
    if (w->segment[0])
        rc |= tell_path(w, conf, out);
    return rc;
}

/* A blank line between two parts of the text. */
static void part(bool *several, const json_t *out)
{
    if (*several && !out)
        printf("\n");
    *several = true;
}

static int tell_parts(const struct want *w, json_t *out)
{
    bool several = false;
    int rc = 0;

    if (w->summary || w->check) {
        part(&several, out);
        rc |= tell_checks(w, out);
    }
    if (w->changed) {
        part(&several, out);
        rc |= tell_changed(out);
    }
    if (w->config) {
        part(&several, out);
        rc |= tell_config(w, out);
    }
    if (w->metrics) {
        part(&several, out);
        rc |= tell_metrics(w, out);
    }
    if (w->topology || w->links) {
        part(&several, out);
        rc |= tell_host(w, out);
    }
    if (w->metadata_server[0]) {
        part(&several, out);
        rc |= tell_server(w, out);
    }
    return rc;
}

static int tell(const struct want *w)
{
    json_t *out = w->json ? json_pack("{ss}", "version", te_version()) : NULL;
    int rc = w->svg ? tell_picture(w) : tell_parts(w, out);

    if (out) {
        json_dumpf(out, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(out);
    }
    return rc;
}

static bool check_server(const char *conn, bool with_segment)
{
    if (conn[0] && (with_segment || !is_p2p(conn)))
        return true;
    fprintf(stderr,
            "te_info: bad value '%s' for --metadata_server: expected a server, such as "
            "etcd://127.0.0.1:2379%s\n",
            conn,
            conn[0] ? "; P2PHANDSHAKE is none: with it, name a peer by --segment=HOST:PORT" : "");
    return false;
}

/* A page is a page: nothing else goes with it. */
static bool check_document(const struct want *w)
{
    const char *too_much = w->json                 ? "json"
                           : w->check              ? "check"
                           : w->changed            ? "changed"
                           : w->topology           ? "topology"
                           : w->links              ? "links"
                           : w->metadata_server[0] ? "metadata_server"
                           : w->markdown && w->man ? "man"
                           : w->man && w->metrics  ? "metrics"
                                                   : NULL;

    if ((!w->markdown && !w->man) || !too_much)
        return true;
    fprintf(stderr, "te_info: --%s prints one page only: drop --%s (see --help)\n",
            w->markdown ? "markdown" : "man", too_much);
    return false;
}

/* So is a picture. */
static bool check_picture(const struct want *w)
{
    const char *too_much = w->json                 ? "json"
                           : w->check              ? "check"
                           : w->changed            ? "changed"
                           : w->config             ? "config"
                           : w->links              ? "links"
                           : w->metrics            ? "metrics"
                           : w->metadata_server[0] ? "metadata_server"
                           : w->markdown           ? "markdown"
                           : w->man                ? "man"
                                                   : NULL;

    if (!w->svg || (w->topology && !too_much))
        return true;
    if (!w->topology)
        fprintf(stderr, "te_info: --svg draws the matrix: add --topology (see --help)\n");
    else
        fprintf(stderr, "te_info: --svg prints one picture only: drop --%s (see --help)\n",
                too_much);
    return false;
}

/* Without flags people get one screen, and programs everything. */
static void choose_parts(struct want *w)
{
    if (w->check || w->changed || w->config || w->topology || w->links || w->metrics ||
        w->metadata_server[0])
        return;
    w->summary = true;
    w->changed = w->config = w->topology = w->links = w->json;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int main(int argc, char **argv)
{
    struct want w = {0};
    const struct flag_table table = {
        .flags = want_flags, .count = sizeof want_flags / sizeof want_flags[0], .values = &w};
    struct flags flags = {
        .tool = "te_info",
        .about =
            "Tells what an engine made here would be like. Without flags it prints one screen: what is\n"
            "built in, what this host can do, and which flag tells more. --json without other flags\n"
            "tells everything that needs no server.",
        .tables = &table,
        .count = 1};
    int rc = flags_parse(&flags, argc, argv);

    if (rc >= 0)
        return rc;
    if (!check_document(&w) || !check_picture(&w))
        return 2;
    if (flags_given(&flags, "metadata_server") &&
        !check_server(w.metadata_server, w.segment[0] != '\0'))
        return 2;
    if (w.segment[0] && !w.metadata_server[0]) {
        fprintf(stderr, "te_info: --segment needs --metadata_server=CONN: how engines find each "
                        "other, such as P2PHANDSHAKE\n");
        return 2;
    }
    if (!is_folder(w.sysfs)) {
        fprintf(stderr, "te_info: bad value '%s' for --sysfs: expected a folder laid out as /sys\n",
                w.sysfs);
        return 2;
    }
    if ((w.markdown || w.man) && !w.metrics)
        w.config = true;
    choose_parts(&w);
    w.sysfs_given = flags_given(&flags, "sysfs");
    rc = tell(&w);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "te_info: cannot write: %s\n", strerror(errno));
        rc = 1;
    }
    return rc;
}
