/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_gpu.c - the engine's moves of GPU memory against the driver's own copies (raw_gpu.c), the two
 * taking turns within one run: within this process, over IPC with another, and over TCP within this
 * host, where the limit is the lower of the driver's copy and the engine's TCP between host memories.
 */
#include "gpu.h"
#include "te.h"

static size_t buffer = 64U << 20, total = 256U << 20;
static int rounds = 7, device;
static bool json;

static const struct bench_opt options[] = {
    {"buffer", BENCH_SIZE, &buffer,
     "bytes of each buffer, and the largest copy; at least 16M (64M)"},
    {"bytes", BENCH_SIZE, &total, "bytes of a sample (256M)"},
    {"rounds", BENCH_INT, &rounds, "samples of which the median is told (7)"},
    {"device", BENCH_INT, &device, "number of the GPU (0)"},
    {"json", BENCH_FLAG, &json, "print JSON, one line a figure"},
};

enum { ROUNDS_MAX = 1000, REQUESTS_MAX = 1 << 16, WAIT_MS = 60000 };

#define GOAL_HOST      0.92
#define GOAL_DEVICE    0.95
#define GOAL_TCP       0.9
#define GOAL_SCATTERED 0.8
#define TCP_BLOCK      ((size_t)1 << 20)

/* ------------------------------------------------------------------------------------- engines */

static void check(int rc, const char *what)
{
    if (rc != 0)
        bench_die("%s: %s", what, te_errmsg());
}

/* One with this transport alone; NULL: only with the one to itself. */
static te_engine *engine_make(const char *transport)
{
    te_engine *e;
    te_options o;

    te_options_init(&o);
    o.local_server_name = "127.0.0.1";
    o.auto_discover = 0;
    if (transport != NULL && strcmp(transport, "tcp") == 0)
        check(te_option_set(&o, "MC_FORCE_TCP", "1"), "te_option_set");
    check(te_engine_create(&o, &e), "te_engine_create");
    te_options_fini(&o);
    if (transport != NULL)
        check(te_transport_install(e, transport, NULL), "te_transport_install");
    return e;
}

static char *engine_memory(te_engine *e, bool of_gpu)
{
    char location[32] = "*";
    void *p;
    if (of_gpu)
        snprintf(location, sizeof location, "cuda:%d", device);
    check(te_alloc(e, buffer, location, &p), "te_alloc");
    check(te_register(e, p, buffer, location, TE_REMOTE_RW), "te_register");
    return p;
}

/* What the other process tells of itself. */
struct told {
    struct gpu_handle raw;
    char ipc[256], tcp[256]; /* names of its segments */
    char *ipc_gpu, *tcp_gpu, *tcp_host;
};

static void be_peer(int in, int out)
{
    struct told t = {.ipc = ""};
    gpu_open();
    gpu_use(device);
    t.raw = gpu_export(gpu_memory(buffer));
    te_engine *ipc = engine_make("nvlink_intra"), *tcp = engine_make("tcp");
    check(te_engine_name(ipc, t.ipc, sizeof t.ipc), "te_engine_name");
    check(te_engine_name(tcp, t.tcp, sizeof t.tcp), "te_engine_name");
    t.ipc_gpu = engine_memory(ipc, true);
    t.tcp_gpu = engine_memory(tcp, true);
    t.tcp_host = engine_memory(tcp, false);
    gpu_tell(out, &t, sizeof t);
    gpu_linger(in);
    te_engine_destroy(ipc);
    te_engine_destroy(tcp);
}

/* ------------------------------------------------------------------------------------- samples */

/* A way of the engine: from and to the same places of both sides. */
struct way {
    te_engine *e;
    te_segment target;
    int opcode;
    char *local, *remote;
    te_request *reqs;
    struct gpu_shape shape;
};

static struct way way_make(te_engine *e, te_segment target, int opcode, char *local, char *remote)
{
    te_request *reqs = calloc(REQUESTS_MAX, sizeof *reqs);
    if (reqs == NULL)
        bench_die("out of memory");
    return (struct way){e, target, opcode, local, remote, reqs, {0}};
}

static void way_shape(struct way *w, struct gpu_shape s)
{
    w->shape = s;
    for (size_t i = 0; i < s.n; i++) {
        size_t at = i % s.places * s.stride;
        w->reqs[i] = (te_request){.opcode = w->opcode,
                                  .source = w->local + at,
                                  .target = w->target,
                                  .target_offset = (uint64_t)(uintptr_t)(w->remote + at),
                                  .length = s.bytes};
    }
}

static double way_run(const struct way *w)
{
    struct te_status st;
    char why[512] = "";
    te_batch b;
    size_t n = w->shape.n;

    int64_t start = bench_now_ns();
    check(te_batch_alloc(w->e, n, &b), "te_batch_alloc");
    check(te_submit(w->e, b, w->reqs, n, NULL), "te_submit");
    check(te_wait(w->e, b, WAIT_MS), "te_wait");
    int64_t ns = bench_now_ns() - start;
    check(te_batch_status(w->e, b, &st), "te_batch_status");
    for (size_t i = 0; st.state != TE_COMPLETED && i < n && why[0] == '\0'; i++)
        te_status_msg(w->e, b, i, why, sizeof why);
    if (st.state != TE_COMPLETED)
        bench_die("a transfer failed: %s: %s", te_strerror(st.error), why);
    check(te_batch_free(w->e, b), "te_batch_free");
    return bench_gb_s(w->shape.bytes * n, ns);
}

/* A copy of the driver. */
struct raw {
    void *queue;
    gpu_addr to, from;
};

static void tell(const char *path, const char *shape, struct gpu_shape s, double ours, double limit,
                 double goal)
{
    double ratio = limit > 0 ? ours / limit : 0;
    const char *met = goal <= 0 ? "" : ratio >= goal ? "yes" : "NO";
    printf(json ? "{\"bench\": \"te_gpu\", \"path\": \"%s\", \"shape\": \"%s\", \"block\": %zu, "
                  "\"blocks\": %zu, \"gb_s\": %.3f, \"limit_gb_s\": %.3f, \"ratio\": %.3f, "
                  "\"goal\": %.2f, \"met\": \"%s\"}\n"
                : "%-10s %-9s %9zu x %-5zu %9.2f of %9.2f GB/s  %5.2f  goal %.2f %s\n",
           path, shape, s.bytes, s.n, ours, limit, ratio, goal, met);
    fflush(stdout);
}

/* The engine's way and the driver's copy take turns; the driver's may have another shape. */
static void compare(const char *path, const char *shape, struct way *w, struct raw raw,
                    struct gpu_shape ours, struct gpu_shape its, double goal)
{
    double a[ROUNDS_MAX], b[ROUNDS_MAX];
    way_shape(w, ours);
    way_run(w);
    gpu_raw(raw.queue, raw.to, raw.from, its);
    for (int i = 0; i < rounds; i++) {
        b[i] = gpu_raw(raw.queue, raw.to, raw.from, its);
        a[i] = way_run(w);
    }
    tell(path, shape, ours, gpu_median(a, (size_t)rounds), gpu_median(b, (size_t)rounds), goal);
}

static void compare_all(const char *path, struct way w, struct raw raw, double goal)
{
    static const size_t sizes[] = {64U << 10, 1U << 20, 16U << 20, 64U << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct gpu_shape s = gpu_dense(sizes[i], total, buffer);
        if (sizes[i] <= buffer)
            compare(path, "dense", &w, raw, s, s, sizes[i] < 1U << 20 ? 0 : goal);
    }
    compare(path, "scattered", &w, raw, gpu_scattered(), gpu_whole(), GOAL_SCATTERED);
    free(w.reqs);
}

/* ------------------------------------------------------------------------------------ measures */

/* The driver's own memory, which no engine knows. */
struct own {
    void *queue;
    gpu_addr host, gpu, too, peer;
};

static struct raw raw_of(const struct own *o, gpu_addr to, gpu_addr from)
{
    return (struct raw){o->queue, to, from};
}

static void measure_local(const struct own *o)
{
    te_engine *e = engine_make(NULL);
    char *host = engine_memory(e, false), *gpu_a = engine_memory(e, true),
         *gpu_b = engine_memory(e, true);
    te_segment self = TE_LOCAL_SEGMENT;

    compare_all("local h2d", way_make(e, self, TE_WRITE, host, gpu_a), raw_of(o, o->gpu, o->host),
                GOAL_HOST);
    compare_all("local d2h", way_make(e, self, TE_READ, host, gpu_a), raw_of(o, o->host, o->gpu),
                GOAL_HOST);
    compare_all("local d2d", way_make(e, self, TE_WRITE, gpu_a, gpu_b), raw_of(o, o->too, o->gpu),
                GOAL_DEVICE);
    te_engine_destroy(e);
}

static void measure_ipc(const struct own *o, const struct told *peer)
{
    te_engine *e = engine_make("nvlink_intra");
    char *mine = engine_memory(e, true);
    te_segment seg;

    check(te_open(e, peer->ipc, &seg), "te_open");
    compare_all("ipc write", way_make(e, seg, TE_WRITE, mine, peer->ipc_gpu),
                raw_of(o, o->peer, o->gpu), GOAL_DEVICE);
    compare_all("ipc read", way_make(e, seg, TE_READ, mine, peer->ipc_gpu),
                raw_of(o, o->gpu, o->peer), GOAL_DEVICE);
    te_engine_destroy(e);
}

static double least(double a, double b, double c)
{
    double d = a < b ? a : b;
    return c < d ? c : d;
}

/* All four take turns: copies to and from the device, TCP between host memories, and between GPUs'. */
static void compare_tcp(const char *path, const struct own *o, struct way gpu_way,
                        struct way host_way)
{
    double v[4][ROUNDS_MAX];
    struct gpu_shape s = gpu_dense(TCP_BLOCK, total, buffer);
    size_t n = (size_t)rounds;

    way_shape(&gpu_way, s);
    way_shape(&host_way, s);
    way_run(&gpu_way);
    way_run(&host_way);
    for (int i = 0; i < rounds; i++) {
        v[0][i] = gpu_raw(o->queue, o->gpu, o->host, s);
        v[1][i] = gpu_raw(o->queue, o->host, o->gpu, s);
        v[2][i] = way_run(&host_way);
        v[3][i] = way_run(&gpu_way);
    }
    tell(path, "dense", s, gpu_median(v[3], n),
         least(gpu_median(v[0], n), gpu_median(v[1], n), gpu_median(v[2], n)), GOAL_TCP);
    free(gpu_way.reqs);
    free(host_way.reqs);
}

static void measure_tcp(const struct own *o, const struct told *peer)
{
    te_engine *e = engine_make("tcp");
    char *gpu_side = engine_memory(e, true), *host_side = engine_memory(e, false);
    te_segment seg;

    check(te_open(e, peer->tcp, &seg), "te_open");
    compare_tcp("tcp write", o, way_make(e, seg, TE_WRITE, gpu_side, peer->tcp_gpu),
                way_make(e, seg, TE_WRITE, host_side, peer->tcp_host));
    compare_tcp("tcp read", o, way_make(e, seg, TE_READ, gpu_side, peer->tcp_gpu),
                way_make(e, seg, TE_READ, host_side, peer->tcp_host));
    te_engine_destroy(e);
}

int main(int argc, char **argv)
{
    struct told told;
    char name[128];
    int at = bench_options(argc, argv,
                           "[option...]\n\nMeasures the engine's moves of a GPU's memory against "
                           "the driver's copies.",
                           options, sizeof options / sizeof options[0]);
    if (at < argc)
        bench_usage_error("surplus word", argv[at]);
    if (rounds < 1 || rounds > ROUNDS_MAX || buffer < gpu_room(gpu_scattered()) ||
        total / GPU_SCATTER_BYTES > REQUESTS_MAX)
        bench_die(
            "between 1 and %d rounds, buffers of at least 16M and samples of at most 4G, please",
            ROUNDS_MAX);
    bench_guard(280, false);
    struct gpu_peer peer = gpu_fork(be_peer);
    gpu_open();
    gpu_wake(&peer);
    gpu_use(device);
    gpu_name(device, name);
    if (!json)
        printf("engine %s, optimized: %s; %s; medians of %d\n", te_version(),
               BENCH_OPTIMIZED ? "true" : "false", name, rounds);
    gpu_hear(peer.in, &told, sizeof told);
    struct own own = {.queue = gpu_queue(),
                      .host = gpu_host_memory(buffer),
                      .gpu = gpu_memory(buffer),
                      .too = gpu_memory(buffer),
                      .peer = gpu_import(told.raw)};
    measure_local(&own);
    measure_ipc(&own, &told);
    measure_tcp(&own, &told);
    gpu_dismiss(&peer);
    return 0;
}
