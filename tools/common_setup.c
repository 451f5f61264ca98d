/* SPDX-License-Identifier: Apache-2.0 */
#include "common_setup.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "common_colour.h"
#include "common_matrix.h"
#include "common_memory.h"
#include "common_names.h"
#include "common_units.h"

#define EXPLAIN_MAX 16384

#define ROW(member) .name = #member, .offset = offsetof(struct setup_flags, member)

const struct flag setup_flag_table[] = {
    {ROW(mode), .kind = FLAG_TEXT, .initial = "initiator", .choices = "initiator|target",
     .help = "The target serves its memory until SIGINT or SIGTERM; the initiator moves data."},
    {ROW(metadata_server), .kind = FLAG_TEXT, .initial = "",
     .help = "Must be given: P2PHANDSHAKE, which needs no server, or [scheme://]host:port[/path]."},
    {ROW(metadata_type), .kind = FLAG_TEXT, .initial = "etcd",
     .help = "Scheme of --metadata_server where that names none: etcd, http, redis."},
    {ROW(local_server_name), .kind = FLAG_TEXT, .initial = "",
     .help =
         "Name of this side's segment, or host:port; none: the name of this host, with "
         "P2PHANDSHAKE\n      the address told to peers. With a metadata server each side needs "
         "its own."},
    {ROW(ip_or_host_name), .kind = FLAG_TEXT, .initial = "",
     .help = "Address told to peers; none: the one that routes to them."},
    {ROW(rpc_port), .kind = FLAG_COUNT, .initial = "0", .max = 65535,
     .help = "Handshake port; 0: any free one of the configured range."},
    {ROW(segment_id), .kind = FLAG_TEXT, .initial = "",
     .help =
         "The initiator must be given it: the name of the target's segment, as that prints it."},
    {ROW(protocol), .kind = FLAG_TEXT, .initial = "rdma",
     .help =
         "Transport: rdma, tcp, host, ... If neither this nor devices are given and rdma cannot\n"
         "      run here, tcp is taken.\n"
         "      tcp and rdma carry everything, within this host too; host is tcp with the path\n"
         "      within a host, which must be there; nvmeof is for files alone; nvlink,\n"
         "      nvlink_intra, hip, ascend, musa, maca and supa are for memory of GPUs and NPUs."},
    {ROW(auto_discovery), .kind = FLAG_SWITCH, .initial = "false",
     .help = "Let the engine find devices and which is near what, and choose transports unless\n"
             "      --protocol does."},
    {ROW(device_name), .kind = FLAG_TEXT, .initial = "mlx5_2",
     .help =
         "RDMA devices, separated by commas; not used by other transports. Every NUMA node\n"
         "      prefers them all. If given, one of them must work. With --auto_discovery, if given:\n"
         "      find no others."},
    {ROW(nic_priority_matrix), .kind = FLAG_TEXT, .initial = "",
     .help =
         "File with a NIC priority matrix in JSON, in place of --device_name. One of the devices\n"
         "      that it names must work."},
    {ROW(operation), .kind = FLAG_TEXT, .initial = "read", .choices = "read|write",
     .help = "What the initiator does with the target's memory."},
    {ROW(block_size), .kind = FLAG_SIZE, .initial = "65536", .min = 1,
     .help = "Bytes of one request."},
    {ROW(batch_size), .kind = FLAG_COUNT, .initial = "128", .min = 1, .max = 1u << 20,
     .help = "Requests of one batch."},
    {ROW(threads), .kind = FLAG_COUNT, .initial = "12", .min = 1, .max = 1024,
     .help = "Worker threads of the initiator."},
    {ROW(buffer_size), .kind = FLAG_SIZE, .initial = "1073741824", .min = 1,
     .help = "Bytes of each buffer, one per NUMA node; the initiator raises it to what it needs."},
    {ROW(duration), .kind = FLAG_SECONDS, .initial = "10", .help = "How long to measure."},
    {ROW(batches), .kind = FLAG_COUNT, .initial = "0",
     .help = "Stop each worker after so many batches; 0: by --duration alone."},
    {ROW(deadline_ms), .kind = FLAG_COUNT, .initial = "0", .max = 86400000,
     .help = "Time that each batch may take; 0: the engine's limit without progress."},
    {ROW(report_unit), .kind = FLAG_TEXT, .initial = "GB", .choices = UNITS_REPORT,
     .help = "Unit of the throughput; Gb, Mb and Kb are bits."},
    {ROW(report_precision), .kind = FLAG_COUNT, .initial = "2", .max = 9,
     .help = "Digits after the point."},
    {ROW(use_vram), .kind = FLAG_SWITCH, .initial = "false",
     .help =
         "Buffers in memory of a GPU or NPU: of the kind that --protocol is for, else of the first\n"
         "      kind that is here: CUDA, HIP, Ascend, MUSA, MACA, SUPA. With the protocols for such\n"
         "      memory the default is true."},
    {ROW(gpu_id), .kind = FLAG_INDEX, .initial = "0",
     .help = "The GPU of --use_vram; -1: a buffer on each."},
};

const size_t setup_flag_count = sizeof(setup_flag_table) / sizeof(setup_flag_table[0]);

/* ---- Signals and CPUs ------------------------------------------------------------------------ */

static sigset_t stop_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

void setup_block_signals(void)
{
    sigset_t set = stop_signals();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

bool setup_interrupted(int timeout_ms)
{
    sigset_t set = stop_signals();
    struct timespec left = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
    int got;
    do {
        got = timeout_ms < 0 ? sigwaitinfo(&set, NULL) : sigtimedwait(&set, NULL, &left);
    } while (got < 0 && errno == EINTR);
    return got > 0;
}

int setup_signal_fd(void)
{
    sigset_t set = stop_signals();
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Calls `use` for every number of a kernel list such as "0-3,8". */
static void each_number(const char *path, void (*use)(void *arg, int number), void *arg)
{
    char text[4096];
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    const char *at = fgets(text, sizeof(text), f);
    fclose(f);
    int from, to, used;
    while (at && sscanf(at, "%d%n", &from, &used) == 1) {
        at += used;
        to = from;
        if (sscanf(at, "-%d%n", &to, &used) == 1)
            at += used;
        for (int i = from; i <= to; i++)
            use(arg, i);
        at += *at == ',';
    }
}

static void add_cpu(void *arg, int cpu)
{
    if (cpu >= 0 && cpu < CPU_SETSIZE)
        CPU_SET((size_t)cpu, (cpu_set_t *)arg);
}

void setup_bind(int node)
{
    char path[64];
    cpu_set_t set;
    CPU_ZERO(&set);
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
    if (node >= 0)
        each_number(path, add_cpu, &set);
    if (CPU_COUNT(&set) > 0)
        pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

/* ---- Engine ---------------------------------------------------------------------------------- */

bool setup_fail(struct setup *s, const char *fmt, ...)
{
    char text[SETUP_ERROR_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    fprintf(stderr, "%s: %s\n", s->line->tool, text);
    if (!s->error[0])
        memcpy(s->error, text, sizeof(text));
    return false;
}

static bool fail(struct setup *s, const char *what)
{
    return setup_fail(s, "%s: %s", what, te_errmsg());
}

static void warn(const char *tool, const char *what, const char *why)
{
    fprintf(stderr, "%s: WARN: %s (%s)\n", tool, what, why);
}

static bool own_name(struct setup *s)
{
    return setup_fail(
        s, "%s is this engine's own name; give --local_server_name=NAME with another one",
        s->flags->segment_id);
}

/* --metadata_server, with the scheme of --metadata_type where it has none; that of an engine is etcd. */
static void metadata_string(const struct setup_flags *flags, char *buf, size_t n)
{
    const char *server = flags->metadata_server;
    if (strstr(server, "://") || strcasecmp(server, "P2PHANDSHAKE") == 0 ||
        strcmp(flags->metadata_type, "etcd") == 0)
        snprintf(buf, n, "%s", server);
    else
        snprintf(buf, n, "%s://%s", flags->metadata_type, server);
}

static bool is_initiator(const struct setup *s)
{
    return strcmp(s->flags->mode, "initiator") == 0;
}

/*
 * Refuses a target of our own name before it is published: with a metadata server that would put
 * this engine in the place of the target's.
 */
static bool check_names(struct setup *s)
{
    const struct setup_flags *flags = s->flags;
    const char *own = flags->local_server_name;
    char host[256] = "";

    if (!is_initiator(s) || strcasecmp(flags->metadata_server, "P2PHANDSHAKE") == 0)
        return true;
    if (!own[0] && gethostname(host, sizeof(host) - 1) == 0)
        own = host;
    return strcmp(flags->segment_id, own) != 0 || own_name(s);
}

/*
 * With --auto_discovery the engine takes a matrix, or leaves NICs out, before it installs anything.
 */
static int set_discovery(const struct setup *s, te_options *o)
{
    const struct setup_flags *flags = s->flags;
    int rc = 0;
    o->auto_discover = flags->auto_discovery;
    if (!flags->auto_discovery)
        return 0;
    if (flags->nic_priority_matrix[0])
        rc = te_option_set(o, "MC_CUSTOM_TOPO_JSON", flags->nic_priority_matrix);
    else if (flags_given(s->line, "device_name"))
        rc = te_option_set(o, "MC_TE_FILTERS", flags->device_name);
    return rc;
}

/* The flag that asks for the transport, by its name or by that of its devices; NULL if none does. */
static const char *asked_by(const struct setup *s)
{
    if (flags_given(s->line, "protocol"))
        return "protocol";
    if (s->flags->nic_priority_matrix[0])
        return "nic_priority_matrix";
    return flags_given(s->line, "device_name") && s->flags->device_name[0] ? "device_name" : NULL;
}

/* A transport to other engines that is asked for by name carries everything, within a host too. */
static int set_protocol(const struct setup *s, te_options *o)
{
    static const struct {
        const char *protocol, *option, *value;
    } rows[] = {{"tcp", "MC_FORCE_TCP", "1"},
                {"rdma", "TE_HOST_PATH", "0"},
                {"rdma", "MC_FORCE_HCA", "1"},
                {"nvlink", "MC_FORCE_MNNVL", "1"},
                {"nvlink_intra", "MC_INTRA_NVLINK", "1"}};
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (asked_by(s) && strcmp(s->flags->protocol, rows[i].protocol) == 0)
            rc = te_option_set(o, rows[i].option, rows[i].value);
    }
    return rc;
}

static bool fail_asked(struct setup *s, const char *flag)
{
    const struct setup_flags *flags = s->flags;
    setup_fail(s, "cannot use %s, which --%s=%s asks for: %s", flags->protocol, flag,
               strcmp(flag, "protocol") == 0      ? flags->protocol
               : strcmp(flag, "device_name") == 0 ? flags->device_name
                                                  : flags->nic_priority_matrix,
               te_errmsg());
    if (strcmp(flags->protocol, "tcp") != 0)
        fprintf(stderr, "%s: where only TCP is at hand, give --protocol=tcp\n", s->line->tool);
    return false;
}

static bool create_engine(struct setup *s)
{
    const struct setup_flags *flags = s->flags;
    char metadata[1024];
    te_options o;

    metadata_string(flags, metadata, sizeof(metadata));
    te_options_init(&o);
    o.metadata = metadata;
    o.local_server_name = flags->local_server_name[0] ? flags->local_server_name : NULL;
    o.ip_or_host_name = flags->ip_or_host_name[0] ? flags->ip_or_host_name : NULL;
    o.rpc_port = (uint16_t)flags->rpc_port;
    int rc = set_discovery(s, &o);
    if (!rc)
        rc = set_protocol(s, &o);
    if (!rc)
        rc = te_engine_create(&o, &s->engine);
    te_options_fini(&o);
    if (!rc)
        return te_engine_name(s->engine, s->name, sizeof(s->name)) == 0 || fail(s, "no name");
    if (asked_by(s) && (rc == TE_ERR_NO_DEVICE || rc == TE_ERR_UNSUPPORTED))
        return fail_asked(s, asked_by(s));
    return fail(s, "cannot start the engine");
}

/* The text of a file, to be freed; NULL with a message when it cannot be read. */
static char *read_text(struct setup *s, const char *path)
{
    char *text = NULL;
    size_t room = 0;
    FILE *f = fopen(path, "re");
    if (!f || getdelim(&text, &room, '\0', f) < 0) {
        setup_fail(s, "cannot read --nic_priority_matrix=%s: %s", path,
                   f ? "it is empty" : strerror(errno));
        free(text);
        text = NULL;
    }
    if (f)
        fclose(f);
    return text;
}

/* By which every NUMA node that has a buffer prefers the devices of --device_name. */
static char *device_matrix(struct setup *s)
{
    int nodes[SETUP_BUFFERS_MAX];
    size_t n = setup_nodes(nodes);
    char *text;
    for (size_t i = 0; i < n; i++)
        nodes[i] = nodes[i] < 0 ? 0 : nodes[i];
    text = matrix_of_devices(s->flags->device_name, nodes, n);
    if (!text)
        setup_fail(s, "no memory for a NIC priority matrix");
    return text;
}

static void drop_line(void *arg, enum te_log_level level, const char *line)
{
    (void)arg, (void)level, (void)line;
}

/* A line that was the last one, too: several threads meet the same. */
static bool is_told(const char *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char last[SETUP_ERROR_MAX];
    bool told;

    pthread_mutex_lock(&lock);
    told = strncmp(last, line, sizeof(last) - 1) == 0;
    snprintf(last, sizeof(last), "%s", line);
    pthread_mutex_unlock(&lock);
    return told;
}

/*
 * An error that a call of ours ended in, which such a line names first, is told by us, with what it
 * means here. The other lines are of what the engine does by itself.
 */
static void tell_line(void *arg, enum te_log_level level, const char *line)
{
    const char *tool = arg;

    if (strncmp(line, "TE_ERR_", strlen("TE_ERR_")) != 0 && !is_told(line))
        fprintf(stderr, "%s%s: %s: %s\n", colour_clear(), tool,
                level == TE_LOG_ERROR ? "ERROR" : "WARN", line);
}

void setup_divert_log(const char *tool)
{
    static const char *const asks[] = {"MC_LOG_LEVEL", "MC_LOG_DIR", "MC_VERBOSE"};

    for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++) {
        if (getenv(asks[i])) {
            te_log_set_sink(NULL, NULL);
            return;
        }
    }
    te_log_set_sink(tell_line, (void *)(uintptr_t)tool);
}

void setup_hush(const struct setup *s, bool on)
{
    if (on)
        te_log_set_sink(drop_line, NULL);
    else
        setup_divert_log(s->line->tool);
}

const char *setup_gpu_kind(const char *protocol)
{
    static const char *const names[][2] = {{"nvlink", "cuda"}, {"nvlink_intra", "cuda"},
                                           {"hip", "hip"},     {"ascend", "npu"},
                                           {"musa", "musa"},   {"maca", "maca"},
                                           {"supa", "supa"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(protocol, names[i][0]) == 0)
            return names[i][1];
    }
    return NULL;
}

static bool is_of_gpus(const char *protocol)
{
    return setup_gpu_kind(protocol) != NULL;
}

/*
 * The path within a host is a companion of what reaches other ones. A target's host memory is out of
 * reach of what is of GPUs: tcp is for that. A target with memory of GPUs does not offer tcp, so that
 * nothing else than what was asked for is measured.
 */
static bool needs_tcp(const struct setup *s)
{
    const char *name = s->flags->protocol;
    return strcmp(name, "host") == 0 || (is_of_gpus(name) && (is_initiator(s) || !s->vram));
}

static int install_named(struct setup *s, const char *matrix)
{
    const char *name = s->flags->protocol;
    int rc = needs_tcp(s) ? te_transport_install(s->engine, "tcp", matrix) : 0;

    return rc ? rc : te_transport_install(s->engine, name, matrix);
}

/*
 * The matrix to install with: that of the file, or what --device_name stands for; NULL for what the
 * engine finds. False after a message.
 */
static bool choose_matrix(struct setup *s, char **matrix)
{
    const struct setup_flags *flags = s->flags;
    *matrix = NULL;
    if (flags->nic_priority_matrix[0])
        *matrix = read_text(s, flags->nic_priority_matrix);
    else if (strcmp(flags->protocol, "rdma") == 0 && !flags->auto_discovery)
        *matrix = device_matrix(s);
    else
        return true;
    return *matrix != NULL;
}

/* What --protocol names, or rdma where it does not. */
static int try_install(struct setup *s, bool asked, const char *matrix)
{
    int rc;
    setup_hush(s, !asked);
    rc = install_named(s, matrix);
    setup_hush(s, false);
    return rc;
}

static bool install(struct setup *s)
{
    const struct setup_flags *flags = s->flags;
    const char *asked = asked_by(s);
    char *matrix;
    int rc;

    s->protocol = flags->protocol;
    if (!choose_matrix(s, &matrix))
        return false;
    if (flags->auto_discovery && !asked) {
        s->protocol = "auto"; /* the engine has installed it, and taken the matrix */
        free(matrix);
        return true;
    }
    rc = try_install(s, asked != NULL, matrix);
    free(matrix);
    if (!rc)
        return true;
    if (asked)
        return fail_asked(s, asked);
    warn(s->line->tool, "rdma cannot run here, using tcp, and host to a target on this host",
         te_errmsg());
    s->protocol = "tcp";
    return te_transport_install(s->engine, "tcp", NULL) == 0 || fail(s, "cannot install tcp");
}

/* ---- Buffers --------------------------------------------------------------------------------- */

struct nodes {
    int *at;
    size_t count;
};

static void add_node(void *arg, int node)
{
    struct nodes *nodes = arg;
    if (nodes->count < SETUP_BUFFERS_MAX)
        nodes->at[nodes->count++] = node;
}

size_t setup_nodes(int at[SETUP_BUFFERS_MAX])
{
    struct nodes nodes = {.at = at};
    each_number("/sys/devices/system/node/online", add_node, &nodes);
    if (nodes.count == 0)
        add_node(&nodes, -1);
    return nodes.count;
}

uint64_t setup_need(uint64_t block, uint64_t batch, uint64_t threads)
{
    uint64_t need;
    if (__builtin_mul_overflow(block, batch, &need) ||
        __builtin_mul_overflow(need, threads, &need) || need > SIZE_MAX / 4)
        return 0;
    return need;
}

uint64_t setup_raise(const char *tool, uint64_t asked, uint64_t need)
{
    if (asked >= need)
        return asked;
    char from[UNITS_SIZE_MAX], to[UNITS_SIZE_MAX];
    fprintf(stderr, "%s: WARN: buffer_size raised from %s to %s, which this load needs\n", tool,
            units_size(asked, from), units_size(need, to));
    return need;
}

bool setup_begin(struct setup *s, const struct setup_flags *flags, const struct flags *line)
{
    memset(s, 0, sizeof(*s));
    s->flags = flags;
    s->line = line;
    setup_divert_log(s->line->tool);
    s->vram = flags_given(line, "use_vram") ? flags->use_vram : is_of_gpus(flags->protocol);
    if (!flags->metadata_server[0])
        return setup_fail(s, "--metadata_server is missing: give --metadata_server=P2PHANDSHAKE, "
                             "which needs no server, or one such as http://HOST:8080/metadata");
    if (is_initiator(s) && !flags->segment_id[0])
        return setup_fail(s, "--segment_id is missing: give the name that the target prints, as in "
                             "--segment_id=127.0.0.1:15123 (or is this --mode=target?)");
    return true;
}

static bool open_engine(struct setup *s, uint64_t length)
{
    s->length = length;
    return check_names(s) && create_engine(s) && install(s);
}

bool setup_open(struct setup *s, uint64_t length)
{
    return open_engine(s, length) && memory_take(s) && memory_offer(s, TE_REMOTE_RW);
}

static bool open_target(struct setup *s, uint64_t length)
{
    char what[320], has[UNITS_SIZE_MAX], needs[UNITS_SIZE_MAX];
    size_t total;
    snprintf(what, sizeof(what), "cannot open segment %s", s->flags->segment_id);
    if (te_open(s->engine, s->flags->segment_id, &s->target))
        return fail(s, what);
    if (s->target == TE_LOCAL_SEGMENT)
        return own_name(s);
    if (te_segment_buffers(s->engine, s->target, s->remotes, SETUP_REMOTES_MAX, &total))
        return fail(s, what);
    s->remote_count = total < SETUP_REMOTES_MAX ? total : SETUP_REMOTES_MAX;
    if (s->remote_count == 0)
        return setup_fail(
            s, "segment %s has no buffer: its engine is not up, or has registered nothing",
            s->flags->segment_id);
    units_size(length, needs);
    for (size_t i = 0; i < s->remote_count; i++) {
        if (s->remotes[i].length < length)
            return setup_fail(
                s,
                "buffer %zu of segment %s has %s, %s are needed for this load: start the target "
                "with --buffer_size=%s (a file must be longer), or ask for less by --threads, "
                "--batch_size and --block_size",
                i, s->flags->segment_id, units_size(s->remotes[i].length, has), needs, needs);
    }
    return true;
}

bool setup_open_both(struct setup *s, uint64_t length, uint64_t need)
{
    return open_engine(s, length) && memory_take(s) && open_target(s, need) &&
           memory_offer(s, TE_LOCAL_ONLY);
}

/* Appends the transport that te_explain() calls taken for `r`, unless it is named already. */
static void add_carrier(const struct setup *s, const te_request *r, char names[SETUP_NAMES_MAX])
{
    static char text[EXPLAIN_MAX];

    if (te_explain(s->engine, r, text, sizeof(text)))
        return;
    for (const char *line = text; line; line = strchr(line + 1, '\n')) {
        char name[32];
        int end = 0;
        sscanf(line, " transport %31[^:]: score %*u, taken%n", name, &end);
        if (end && !names_have(names, name))
            names_add(names, SETUP_NAMES_MAX, name);
    }
}

void setup_carriers(const struct setup *s, enum te_opcode opcode, uint64_t block,
                    char names[SETUP_NAMES_MAX])
{
    size_t pairs = s->count > s->remote_count ? s->count : s->remote_count;

    names[0] = '\0';
    for (size_t i = 0; i < pairs; i++) {
        te_request r = {.opcode = (int)opcode,
                        .source = s->buffers[i % s->count].addr,
                        .target = s->target,
                        .target_offset = (uintptr_t)s->remotes[i % s->remote_count].addr,
                        .length = block};
        add_carrier(s, &r, names);
    }
    if (!names[0])
        snprintf(names, SETUP_NAMES_MAX, "unknown");
}

void setup_close(struct setup *s)
{
    memory_close(s);
    te_engine_destroy(s->engine);
    s->engine = NULL;
}

void setup_serve(const struct setup *s)
{
    te_log_set_sink(NULL, NULL); /* from here on nobody but the log tells of errors */
    printf("segment: %s\n", s->name);
    fflush(stdout);
    setup_interrupted(-1);
}
