/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_segment - the segments that a metadata server knows: adds one of memory before its engine is
 * up, or one of files; records where hosts have those; lists and shows segments, and removes what a
 * dead engine has left.
 *
 * Exit status: 0 done, 1 failed, 2 wrong usage.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common_flags.h"
#include "te.h"
#include "te_segment/command.h"
#include "te_segment/record.h"

#define WORDS_MAX  2
#define NAME_BYTES 4096

#define ROW(member) .name = #member, .offset = offsetof(struct settings, member)

static const struct flag setting_flags[] = {
    {ROW(metadata_server), .kind = FLAG_TEXT, .initial = "",
     .help = "Must be given: the server that the engines use, such as etcd://127.0.0.1:2379,\n"
             "      redis://127.0.0.1:6379 or http://127.0.0.1:8080/metadata."},
    {ROW(cluster_id), .kind = FLAG_TEXT, .initial = "",
     .help = "The cluster whose keys are meant; not given: MC_METADATA_CLUSTER_ID."},
    {ROW(json), .kind = FLAG_SWITCH, .initial = "false", .help = "list and show: print JSON."},
    {ROW(force), .kind = FLAG_SWITCH, .initial = "false",
     .help = "register: replace what is there. mount: take files that are longer than they were\n"
             "      registered. unregister: also while its engine answers.\n"
             "      unmount --disconnect: also what other segments may use."},
    {ROW(protocol), .kind = FLAG_TEXT, .initial = "tcp", .choices = "tcp|rdma",
     .help = "register, of memory: what its engine will speak; rdma takes --devices or --matrix."},
    {ROW(devices), .kind = FLAG_TEXT, .initial = "",
     .help =
         "register --protocol=rdma: NAME[,NAME...], its NICs, of this host; NAME/LID/GID, such\n"
         "      as mlx5_2/17/fe80::1, those of another one. Not given: those of --matrix."},
    {ROW(matrix), .kind = FLAG_TEXT, .initial = "",
     .help = "register --protocol=rdma: file with the NIC priority matrix in JSON. Not given: all\n"
             "      memory prefers all of --devices."},
    {ROW(server_name), .kind = FLAG_TEXT, .initial = "",
     .help = "Files: what this host is called, the local_server_name of its engines or the host\n"
             "      in it; not given: the name that the system has. '*' stands for every host."},
    {ROW(file), .kind = FLAG_TEXT, .initial = "", .appends = true,
     .help = "register: PATH[,PATH...], files and block devices of this host. The segment is all\n"
             "      of them, one behind the other. Given again, more of them."},
    {ROW(length), .kind = FLAG_SIZE, .initial = "0",
     .help = "register: bytes of each file, from its beginning; 0: all."},
    {ROW(create), .kind = FLAG_SIZE, .initial = "0",
     .help = "register: make files that are not there, with so many bytes, all allocated."},
    {ROW(target), .kind = FLAG_TEXT, .initial = "",
     .help =
         "register: URL[,URL...], how other hosts reach the files by NVMe over fabrics:\n"
         "      tcp://10.0.0.1:4420/nqn.2026-01.org.example:kv?nsid=1&fs_path=dir/file, or rdma://.\n"
         "      Without fs_path the namespace is the file. One for each file, or one for all,\n"
         "      whose nsid counts up."},
    {ROW(path), .kind = FLAG_TEXT, .initial = "", .appends = true,
     .help = "mount: PATH[,PATH...], where this host has each of the files; an empty one leaves\n"
             "      its file as it is. Given again, those of further files."},
    {ROW(connect), .kind = FLAG_SWITCH, .initial = "false",
     .help = "mount: connect the targets with nvme(1), mount their file systems with mount(8)."},
    {ROW(disconnect), .kind = FLAG_SWITCH, .initial = "false",
     .help = "unmount: undo that as well."},
    {ROW(mount_dir), .kind = FLAG_TEXT, .initial = "/run/te/nvmeof",
     .help = "Where the file systems go: DIR/NAME/0 that of the first file."},
    {ROW(nvme_options), .kind = FLAG_TEXT, .initial = "",
     .help = "mount --connect: more for 'nvme connect', such as '--host-traddr=10.0.0.2 -i 4'."},
    {ROW(wait), .kind = FLAG_SECONDS, .initial = "30",
     .help = "mount --connect: how long each program may take, and a device to appear."},
};

static const char about[] =
    "The segments that a metadata server knows.\n\n"
    "Commands:\n"
    "  register NAME         Store a segment without buffers, so that peers can open it before\n"
    "                        its engine is up. The engine of that name takes it over when it\n"
    "                        starts.\n"
    "  register NAME --file  Store a segment of files of this host, nvmeof/NAME.\n"
    "  mount NAME --path     Record where this host has the files of a segment.\n"
    "  mount NAME --connect  Bring them to this host by NVMe over fabrics, and record that.\n"
    "  unmount NAME          Take this host out of the record; with --disconnect also undo what\n"
    "                        mount --connect did.\n"
    "  list                  One segment per line: kind, protocol, buffers, hosts that have its\n"
    "                        files, age, where its engine is, and whether that answers now.\n"
    "  show NAME             One descriptor, with every buffer, whether its engine answers, and which\n"
    "                        files can be used here.\n"
    "  unregister NAME       Remove the keys of a segment whose engine is gone, or, if there is\n"
    "                        none of that name, the record of nvmeof/NAME.";

static const struct command {
    const char *word;
    int (*run)(struct job *j);
    bool takes_name;
    const char *flags; /* " a b ": those it takes, besides that of the server */
} commands[] = {
    {"register", command_register, true,
     " force file length create server_name target protocol devices matrix "},
    {"mount", command_mount, true, " path connect server_name mount_dir nvme_options wait force "},
    {"unmount", command_unmount, true, " disconnect server_name mount_dir force "},
    {"list", command_list, false, " json "},
    {"show", command_show, true, " json server_name "},
    {"unregister", command_unregister, true, " force "},
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

static bool takes_flag(const struct command *c, const char *name)
{
    char word[64];

    snprintf(word, sizeof word, " %s ", name);
    return strstr(" metadata_server cluster_id ", word) || strstr(c->flags, word);
}

/* What belongs to files alone. */
static int check_files(const struct flags *flags, const struct settings *s)
{
    static const char *const names[] = {"server_name", "target", "length", "create"};

    if (flags_given(flags, "file") && !s->file[0])
        return fail(USAGE, "--file has no path");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!flags_given(flags, "file") && flags_given(flags, names[i]))
            return fail(USAGE, "--%s is of a segment of files: give them by --file", names[i]);
    return 0;
}

/* What belongs to memory alone. */
static int check_memory(const struct flags *flags, const struct settings *s)
{
    static const char *const names[] = {"protocol", "devices", "matrix"};
    bool rdma = strcmp(s->protocol, "rdma") == 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (flags_given(flags, "file") && flags_given(flags, names[i]))
            return fail(USAGE, "--%s is of a segment of memory: it goes without --file", names[i]);
    if (!rdma && (flags_given(flags, "devices") || flags_given(flags, "matrix")))
        return fail(USAGE, "--devices and --matrix are of --protocol=rdma");
    if (rdma && !s->devices[0] && !s->matrix[0])
        return fail(USAGE, "--protocol=rdma takes the NICs by --devices or --matrix: peers could "
                           "not open it without");
    return 0;
}

static int check_usage(const struct flags *flags, const struct settings *s)
{
    const char *const *words = flags->words;
    size_t n = flags->word_count;
    const struct command *c = n ? find_command(words[0]) : NULL;
    int rc;

    if (!n)
        return fail(USAGE, "a command is missing: register, mount, unmount, show or unregister "
                           "NAME, or list (see --help)");
    if (!c)
        return fail(USAGE,
                    "unknown command '%s': it is register, mount, unmount, list, show or "
                    "unregister (see --help)",
                    words[0]);
    if (c->takes_name && (n < 2 || !words[1][0]))
        return fail(USAGE, "the name is missing: te_segment %s NAME", c->word);
    if (!c->takes_name && n > 1)
        return fail(USAGE, "%s takes no name, drop '%s'", c->word, words[1]);
    for (size_t i = 0; i < sizeof setting_flags / sizeof setting_flags[0]; i++)
        if (flags_given(flags, setting_flags[i].name) && !takes_flag(c, setting_flags[i].name))
            return fail(USAGE, "%s takes no --%s", c->word, setting_flags[i].name);
    if (c->run == command_register &&
        ((rc = check_files(flags, s)) || (rc = check_memory(flags, s))))
        return rc;
    return check_server(s->metadata_server);
}

/*
 * As te_open() takes it: "ram/x" is the key of "x". Where files are meant, "x" stands for "nvmeof/x".
 * The name of a segment of memory is registered as it was given.
 */
static const char *full_name(const struct command *c, const struct settings *s, const char *name,
                             char out[NAME_BYTES])
{
    bool files = s->file[0] || c->run == command_mount || c->run == command_unmount;

    if (c->run == command_register && !files)
        return name;
    while (*name == '/')
        name++;
    if (files && !strchr(name, '/') && strlen(RECORD_KIND) + strlen(name) < NAME_BYTES)
        return strcat(strcpy(out, RECORD_KIND), name);
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
    te_log_set_level(conf->log_level >= 0 ? (enum te_log_level)conf->log_level : TE_LOG_WARN);
    tei_conf_tell_unused();
    if (conf->log_level < 0)
        te_log_set_level(TE_LOG_OFF); /* what goes wrong is told here, once */
    return 0;
}

static int run(const struct flags *flags, const struct settings *s)
{
    static struct tei_conf conf;
    char name[NAME_BYTES];
    const struct command *c = find_command(flags->words[0]);
    struct job j = {.settings = s};
    int rc = load_conf(flags, s, &conf);

    if (rc)
        return rc;
    rc = registry_open(&j.registry, s->metadata_server, &conf);
    if (rc)
        return fail(rc == TE_ERR_INVALID ? USAGE : FAILED, "%s", te_errmsg());
    if (c->takes_name) {
        j.name = full_name(c, s, flags->words[1], name);
        j.bare = !strchr(flags->words[1], '/');
        if (c->run != command_register && !registry_is_name(&j.registry, j.name))
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
                          .once = true,
                          .tables = &table,
                          .count = 1,
                          .words_help = "COMMAND [NAME]",
                          .words = words,
                          .words_max = WORDS_MAX};
    int rc = flags_parse(&flags, argc, argv);

    if (rc < 0 && !(rc = check_usage(&flags, &s)))
        rc = run(&flags, &s);
    flags_fini(&flags);
    if (fflush(stdout) || ferror(stdout))
        rc = fail(FAILED, "cannot write: %s", strerror(errno));
    return rc;
}
