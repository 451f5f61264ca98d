/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engines.c - the engines of te_micro: how they are made, the other process that holds the target, and
 * a batch moved from start to end.
 */
#include "micro.h"

#ifndef SO_PROTOCOL
#define SO_PROTOCOL 38
#endif

/* ------------------------------------------------------------------------------------ engines */

void check(int rc, const char *what)
{
    if (rc < 0)
        bench_die("%s: %s: %s", what, te_errname(rc), te_errmsg());
}

/* Hands "NAME=VALUE,NAME=VALUE" to the engine's options. A value may be a list with commas itself. */
static void apply_settings(te_options *o, const char *settings)
{
    char text[1024];
    if (settings == NULL)
        return;
    if ((size_t)snprintf(text, sizeof text, "%s", settings) >= sizeof text)
        bench_die("the options of the engines are too long");
    for (char *at = text, *next; at != NULL; at = next) {
        char *value = strchr(at, '=');
        if (value == NULL)
            bench_usage_error("not NAME=VALUE", at);
        *value++ = '\0';
        next = strchr(value, '=');
        while (next != NULL && next > value && *next != ',')
            next--;
        if (next == value)
            bench_usage_error("no value for", at);
        if (next != NULL)
            *next++ = '\0';
        check(te_option_set(o, at, value), at);
    }
}

/* Which end looks for the next event without sleeping. */
static void apply_spin(te_options *o)
{
    bool both;
    if (spin == NULL)
        return;
    both = strcmp(spin, "both") == 0;
    if (!both && strcmp(spin, "none") != 0 && strcmp(spin, "one") != 0)
        bench_usage_error("--spin is none, one or both, not", spin);
    check(te_option_set(o, "TE_SPIN_US", strcmp(spin, "none") != 0 ? "1000" : "0"), "TE_SPIN_US");
    check(te_option_set(o, "TE_TCP_SPIN_US", both && be_peer ? "1000" : "0"), "TE_TCP_SPIN_US");
}

te_engine *engine_make_timed(int64_t *ns)
{
    te_engine *e = NULL;
    te_options o;
    te_options_init(&o);
    o.metadata = metadata;
    o.local_server_name = address;
    o.auto_discover = strcmp(transport, "auto") == 0;
    if (strcmp(transport, "tcp") == 0) /* alone: the other process is on this host */
        check(te_option_set(&o, "TE_HOST_PATH", "0"), "TE_HOST_PATH");
    fabric_options(&o);
    apply_spin(&o);
    apply_settings(&o, set_text);
    if (be_peer)
        apply_settings(&o, peer_set_text);
    int64_t start = bench_now_ns();
    check(te_engine_create(&o, &e), "te_engine_create");
    if (!o.auto_discover && strcmp(transport, "local") != 0)
        check(te_transport_install(e, transport, fabric_matrix()), "te_transport_install");
    *ns = bench_now_ns() - start;
    te_options_fini(&o);
    return e;
}

te_engine *engine_make(void)
{
    int64_t ns;
    return engine_make_timed(&ns);
}

/*
 * Bytes that a connected TCP socket has carried; negative for anything else. The kernel's tcp_info
 * is longer than the C library's: since Linux 4.1 bytes_acked lies at 120, bytes_received at 128.
 */
static int64_t carried(int fd)
{
    unsigned char info[136] = {0};
    uint64_t sent, received;
    struct sockaddr_storage a;
    int protocol = 0;
    socklen_t n = sizeof protocol, an = sizeof a, in = sizeof info;
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) != 0 || protocol != IPPROTO_TCP ||
        getpeername(fd, (struct sockaddr *)&a, &an) != 0 ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &in) != 0)
        return -1;
    memcpy(&sent, info + 120, sizeof sent);
    memcpy(&received, info + 128, sizeof received);
    return (int64_t)(sent + received);
}

void find_cc(char out[BENCH_CC_MAX])
{
    int64_t most = -1;
    snprintf(out, BENCH_CC_MAX, "none");
    for (int fd = 3; fd < 1024; fd++) {
        int64_t bytes = carried(fd);
        if (bytes > most) {
            most = bytes;
            bench_get_cc(fd, out);
        }
    }
}

/* --------------------------------------------------------------------------- the other process */

/* The memory that the target offers. */
static char *target_memory(te_engine *e)
{
    void *p = NULL;
    if (strcmp(memory, "malloc") == 0)
        return bench_buffer(buffer);
    if (strcmp(memory, "alloc") != 0)
        bench_usage_error("neither alloc nor malloc", memory);
    check(te_alloc(e, buffer, "*", &p), "te_alloc");
    memset(p, 0x5a, buffer);
    return p;
}

/* Prints "name address", then answers each line with its congestion control until input ends. */
void run_peer(void)
{
    char name[NAME_MAX_BYTES], line[16], cc[BENCH_CC_MAX];
    te_engine *e = engine_make();
    char *base = target_memory(e);
    check(te_register(e, base, buffer, "*", TE_REMOTE_RW), "te_register");
    check(te_engine_name(e, name, sizeof name), "te_engine_name");
    printf("%s %" PRIuPTR "\n", name, (uintptr_t)base);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        find_cc(cc);
        puts(cc);
        fflush(stdout);
    }
    te_engine_destroy(e);
}

void own_path(char *out, size_t n)
{
    ssize_t len = readlink("/proc/self/exe", out, n - 1);
    if (len < 0)
        bench_die_errno("/proc/self/exe");
    out[len] = '\0';
}

/* Becomes `program --peer` with the same options; by its path, for the sake of valgrind. */
__attribute__((noreturn)) static void exec_peer(char **argv, int argc, const int in[2],
                                                const int out[2])
{
    char *args[64] = {argv[0], "--peer"}, self[400];
    size_t n = 2;
    own_path(self, sizeof self);
    for (int i = 1; i < argc && n < 63; i++)
        args[n++] = argv[i];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0)
        bench_die_errno("dup2");
    execv(self, args);
    bench_die_errno("exec of the other process");
}

struct peer peer_start(char **argv, int argc)
{
    struct peer p = {0};
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        bench_die_errno("pipe2");
    p.pid = fork();
    if (p.pid < 0)
        bench_die_errno("fork");
    if (p.pid == 0)
        exec_peer(argv, argc, in, out);
    close(in[0]);
    close(out[1]);
    p.in = fdopen(in[1], "w");
    p.out = fdopen(out[0], "r");
    if (p.in == NULL || p.out == NULL || fscanf(p.out, "%255s %" SCNu64, p.name, &p.base) != 2)
        bench_die("the other process did not start");
    return p;
}

void peer_cc(struct peer *p, char out[BENCH_CC_MAX])
{
    fputs("cc\n", p->in);
    fflush(p->in);
    if (fscanf(p->out, "%15s", out) != 1)
        snprintf(out, BENCH_CC_MAX, "?");
}

void peer_stop(struct peer *p)
{
    fclose(p->in);
    bench_reap(p->pid);
    fclose(p->out);
}

/* ---------------------------------------------------------------------------------- one engine */

/* Whole, or with --striped in as many parts as there are NICs. */
static void register_buffer(const struct bench *b)
{
    size_t parts = striped ? (size_t)nics : 1, bytes = buffer / parts;
    char location[32] = "*";
    for (size_t i = 0; i < parts; i++) {
        if (striped)
            snprintf(location, sizeof location, "cpu:%zu", i);
        check(te_register(b->e, b->base + i * bytes, bytes, location, TE_REMOTE_RW), "te_register");
    }
}

/* A segment that is there already, in its first buffer. */
static void open_segment(struct bench *b)
{
    te_buffer first = {0};
    size_t n;
    check(te_open(b->e, segment, &b->target), "te_open");
    check(te_segment_buffers(b->e, b->target, &first, 1, &n), "te_segment_buffers");
    if (first.length < buffer)
        bench_die("the segment has %zu bytes, --buffer asks for %zu", first.length, buffer);
    b->target_base = (uint64_t)(uintptr_t)first.addr;
}

struct bench bench_open(char **argv, int argc)
{
    struct bench b = {.base = NULL};
    if (!own_memory && segment == NULL)
        b.peer = peer_start(argv, argc);
    b.e = engine_make();
    b.base = bench_buffer(buffer);
    register_buffer(&b);
    if (slow_nic)
        fabric_slow();
    if (segment != NULL) {
        open_segment(&b);
        return b;
    }
    if (!own_memory) {
        check(te_open(b.e, b.peer.name, &b.target), "te_open");
        b.target_base = b.peer.base;
        return b;
    }
    char *other = bench_buffer(buffer);
    check(te_register(b.e, other, buffer, "*", TE_REMOTE_RW), "te_register");
    b.target = TE_LOCAL_SEGMENT;
    b.target_base = (uint64_t)(uintptr_t)other;
    return b;
}

void bench_close(struct bench *b)
{
    te_engine_destroy(b->e);
    if (b->peer.pid != 0)
        peer_stop(&b->peer);
}

te_request request_at(const struct bench *b, int opcode, size_t at, size_t n)
{
    return (te_request){.opcode = opcode,
                        .source = b->base + at,
                        .target = b->target,
                        .target_offset = b->target_base + at,
                        .length = n};
}

te_batch batch_open(const struct bench *b, size_t n)
{
    te_batch id = TE_INVALID_BATCH;
    check(te_batch_alloc(b->e, n, &id), "te_batch_alloc");
    return id;
}

void wait_all(const struct bench *b, te_batch id)
{
    struct te_status s = {.state = TE_WAITING};
    char why[512] = "";
    check(te_wait(b->e, id, WAIT_MS), "te_wait");
    check(te_batch_status(b->e, id, &s), "te_batch_status");
    if (s.state == TE_COMPLETED)
        return;
    te_status_msg(b->e, id, 0, why, sizeof why);
    bench_die("a batch ended in state %d, %s; its first request: %s", s.state, te_errname(s.error),
              why);
}

void batch_close(const struct bench *b, te_batch id)
{
    check(te_batch_free(b->e, id), "te_batch_free");
}

void move(const struct bench *b, const te_request *reqs, size_t n)
{
    te_batch id = batch_open(b, n);
    check(te_submit(b->e, id, reqs, n, NULL), "te_submit");
    wait_all(b, id);
    batch_close(b, id);
}

te_prep prep_make(const struct bench *b, const te_request *reqs, size_t n)
{
    void **local = calloc(n, sizeof *local);
    uint64_t *remote = calloc(n, sizeof *remote);
    size_t *length = calloc(n, sizeof *length);
    te_prep p = TE_INVALID_PREP;
    if (local == NULL || remote == NULL || length == NULL)
        bench_die("out of memory");
    for (size_t i = 0; i < n; i++) {
        local[i] = reqs[i].source;
        remote[i] = reqs[i].target_offset;
        length[i] = reqs[i].length;
    }
    check(te_prep_create(b->e, b->target, local, remote, length, n, &p), "te_prep_create");
    free(local);
    free(remote);
    free(length);
    return p;
}
