/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine in a process of its own, told what to do line by line on stdin. Each command is answered
 * by one line on stdout: "ok ..." or "err CODE text". The tests compile it when they need it.
 *
 *   peer METADATA NAME [OPTION=VALUE]...     NAME "-" means none; prints "ready SEGMENT"
 *
 * OPTION may also be "transport": those to install in the place of tcp, with a plus sign between two of them.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "te.h"

#define REGIONS_MAX 64
#define WORDS_MAX   10
#define BLOCK       4096

static te_engine *engine;
static struct {
    uint8_t *addr;
    size_t length, parts; /* registered as so many buffers of one size */
} regions[REGIONS_MAX];
static size_t region_count;

static uint64_t number(const char *word)
{
    return word ? strtoull(word, NULL, 0) : 0;
}

/* An error is one line, whatever its text holds: control characters are told as \xNN. */
static void answer(int rc)
{
    if (!rc) {
        printf("ok\n");
        return;
    }
    printf("err %d ", rc);
    for (const char *c = te_errmsg(); *c; c++)
        printf((unsigned char)*c < ' ' ? "\\x%02x" : "%c", (unsigned char)*c);
    printf("\n");
}

/* Random bytes that the state determines. */
static void make(uint64_t *state, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z ^= z >> 27;
        memcpy(out + i, &z, n - i < sizeof z ? n - i : sizeof z);
    }
}

static int register_parts(uint8_t *addr, size_t size, size_t n, unsigned access)
{
    te_buffer *bufs = calloc(n, sizeof(*bufs));
    if (!bufs)
        return TE_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        bufs[i] = (te_buffer){addr + i * size, size};
    int rc = te_register_batch(engine, bufs, n, "*", access);
    free(bufs);
    return rc;
}

/* Engines of recorded versions are built with this program, too, and know te_alloc() alone. */
static int allocate(size_t size, unsigned access, void **addr)
{
#ifdef TE_ALLOC_PEERS_READ
    te_alloc_opts opts = {.size = sizeof(opts)};

    opts.flags = access == TE_REMOTE_READ ? TE_ALLOC_PEERS_READ : 0;
    return te_alloc_with(engine, size, &opts, addr);
#else
    (void)access;
    return te_alloc(engine, size, NULL, addr);
#endif
}

static int get_memory(size_t size, unsigned access, bool own, void **addr)
{
    if (!own)
        return allocate(size, access, addr);
    *addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return *addr == MAP_FAILED ? TE_ERR_MEMORY : 0;
}

static void add_region(size_t size, size_t parts, unsigned access, bool own)
{
    void *addr;
    if (region_count == REGIONS_MAX) {
        printf("err -1 too many regions\n");
        return;
    }
    int rc = get_memory(size * parts, access, own, &addr);
    if (!rc && parts == 1)
        rc = te_register(engine, addr, size, "*", access);
    else if (!rc)
        rc = register_parts(addr, size, parts, access);
    if (rc) {
        answer(rc);
        return;
    }
    regions[region_count].addr = addr;
    regions[region_count].length = size * parts;
    regions[region_count].parts = parts;
    printf("ok %zu %" PRIu64 "\n", region_count++, (uint64_t)(uintptr_t)addr);
}

/*
 * region BYTES [ACCESS [own]]: allocates, not with te_alloc() if own, and registers; "ok INDEX ADDRESS".
 * What peers may only read is of TE_ALLOC_PEERS_READ.
 */
static void do_region(char **w)
{
    add_region(number(w[1]), 1, w[2] ? (unsigned)number(w[2]) : TE_REMOTE_RW, w[2] && w[3]);
}

/* regions COUNT BYTES: the same in COUNT adjacent buffers, registered by one call */
static void do_regions(char **w)
{
    add_region(number(w[2]), number(w[1]), TE_REMOTE_RW, false);
}

#ifdef TE_LEASE_H
/* region_for NAMES BYTES: as region, for those peers */
static void do_region_for(char **w)
{
    te_buffer one = {.length = number(w[2])};
    if (region_count == REGIONS_MAX) {
        printf("err -1 too many regions\n");
        return;
    }
    int rc = allocate(one.length, TE_REMOTE_RW, &one.addr);
    if (!rc)
        rc = te_register_allow(engine, &one, 1, "*", TE_REMOTE_RW, w[1]);
    if (rc) {
        answer(rc);
        return;
    }
    regions[region_count].addr = one.addr;
    regions[region_count].length = one.length;
    regions[region_count].parts = 1;
    printf("ok %zu %" PRIu64 "\n", region_count++, (uint64_t)(uintptr_t)one.addr);
}

/* let INDEX NAMES: registers it anew, for those peers */
static void do_let(char **w)
{
    uint64_t i = number(w[1]);
    te_buffer one = {0};
    if (i < region_count)
        one = (te_buffer){regions[i].addr, regions[i].length};
    int rc = te_unregister(engine, one.addr);
    answer(rc ? rc : te_register_allow(engine, &one, 1, "*", TE_REMOTE_RW, w[2]));
}
#endif

/* drop INDEX: unregisters */
static void do_drop(char **w)
{
    uint64_t i = number(w[1]);
    size_t n = i < region_count ? regions[i].parts : 0;
    void **addrs = calloc(n + 1, sizeof(*addrs));
    for (size_t k = 0; addrs && k < n; k++)
        addrs[k] = regions[i].addr + k * (regions[i].length / n);
    answer(addrs && n ? te_unregister_batch(engine, addrs, n) : TE_ERR_NOT_FOUND);
    free(addrs);
}

/* The range [OFFSET, OFFSET + LENGTH) of a region, NULL after an answer when there is none such. */
static uint8_t *range(const char *index, const char *offset, uint64_t length)
{
    uint64_t i = number(index), at = number(offset);
    if (i < region_count && at <= regions[i].length && length <= regions[i].length - at)
        return regions[i].addr + at;
    printf("err -1 no such range\n");
    return NULL;
}

/*
 * fill INDEX OFFSET LENGTH SEED: random bytes that the seed determines. Shared memory is touched in
 * blocks: the thread sanitizer looks at each access on its own.
 */
static void do_fill(char **w)
{
    uint8_t block[BLOCK];
    uint64_t length = number(w[3]), seed = number(w[4]);
    uint8_t *p = range(w[1], w[2], length);
    if (!p)
        return;
    for (uint64_t at = 0; at < length; at += BLOCK) {
        size_t n = length - at < BLOCK ? (size_t)(length - at) : BLOCK;
        make(&seed, block, n);
        memcpy(p + at, block, n);
    }
    printf("ok\n");
}

/* check INDEX OFFSET LENGTH SEED: whether those bytes are there */
static void do_check(char **w)
{
    uint8_t want[BLOCK], have[BLOCK];
    uint64_t length = number(w[3]), seed = number(w[4]);
    const uint8_t *p = range(w[1], w[2], length);
    if (!p)
        return;
    for (uint64_t at = 0; at < length; at += BLOCK) {
        size_t n = length - at < BLOCK ? (size_t)(length - at) : BLOCK;
        make(&seed, want, n);
        memcpy(have, p + at, n);
        if (memcmp(want, have, n) != 0) {
            printf("err -1 a byte of the %zu at %" PRIu64 " differs\n", n, at);
            return;
        }
    }
    printf("ok\n");
}

/* %XX stands for a byte. */
static void unquote(char *text)
{
    char *to = text;
    for (char *c = text; *c; c++) {
        char hex[3] = {0};
        if (*c == '%' && c[1] && c[2]) {
            memcpy(hex, c + 1, 2);
            *to++ = (char)strtol(hex, NULL, 16);
            c += 2;
        } else {
            *to++ = *c;
        }
    }
    *to = '\0';
}

/* open NAME: "ok SEGMENT" */
static void do_open(char **w)
{
    te_segment seg;
    unquote(w[1]);
    int rc = te_open(engine, w[1], &seg);
    if (rc)
        answer(rc);
    else
        printf("ok %d\n", seg);
}

#ifdef TE_PATHS_H
/* open_life NAME INCARNATION: "ok SEGMENT" */
static void do_open_life(char **w)
{
    te_segment seg;
    unquote(w[1]);
    int rc = te_open_life(engine, w[1], number(w[2]), NULL, &seg);
    if (rc)
        answer(rc);
    else
        printf("ok %d\n", seg);
}

/* incarnation: "ok NUMBER", of this engine */
static void do_incarnation(char **w)
{
    (void)w;
    printf("ok %" PRIu64 "\n", te_incarnation(engine));
}
#endif

/* region_at ADDRESS BYTES: as region, of memory of its own there */
static void do_region_at(char **w)
{
    void *at = (void *)(uintptr_t)number(w[1]);
    size_t size = (size_t)number(w[2]);
    if (region_count == REGIONS_MAX ||
        mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
             -1, 0) != at) {
        printf("err -1 it cannot be had there\n");
        return;
    }
    int rc = te_register(engine, at, size, "*", TE_REMOTE_RW);
    if (rc) {
        answer(rc);
        return;
    }
    regions[region_count].addr = at;
    regions[region_count].length = size;
    regions[region_count].parts = 1;
    printf("ok %zu %" PRIu64 "\n", region_count++, (uint64_t)(uintptr_t)at);
}

static void do_close(char **w)
{
    answer(te_close(engine, (te_segment)number(w[1])));
}

/* buffers SEGMENT: "ok COUNT [ADDRESS LENGTH]..." */
static void do_buffers(char **w)
{
    te_buffer bufs[REGIONS_MAX];
    size_t total;
    int rc = te_segment_buffers(engine, (te_segment)number(w[1]), bufs, REGIONS_MAX, &total);
    if (rc) {
        answer(rc);
        return;
    }
    printf("ok %zu", total);
    for (size_t i = 0; i < total && i < REGIONS_MAX; i++)
        printf(" %" PRIu64 " %zu", (uint64_t)(uintptr_t)bufs[i].addr, bufs[i].length);
    printf("\n");
}

static int run(const te_request *req, size_t n, const te_submit_opts *opts, struct te_status *st,
               char *text, size_t room)
{
    te_batch b;
    int rc = te_batch_alloc(engine, n, &b);
    if (rc)
        return rc;
    rc = te_submit(engine, b, req, n, opts);
    if (!rc)
        rc = te_wait(engine, b, -1);
    if (!rc)
        rc = te_batch_status(engine, b, st);
    for (size_t i = 0; !rc && st->state != TE_COMPLETED && i < n && !text[0]; i++)
        te_status_msg(engine, b, i, text, room);
    int freed = te_batch_free(engine, b);
    return rc ? rc : freed;
}

/*
 * move read|write SEGMENT INDEX OFFSET REMOTE LENGTH COUNT DEADLINE_MS: a batch of COUNT adjacent
 * requests of LENGTH bytes; "ok STATE ERROR BYTES text". TE_TEST_TRACEPARENT: their trace context
 */
static void do_move(char **w)
{
    static te_request reqs[1024];
    char text[512] = "";
    struct te_status st = {0};
    te_submit_opts opts = {.size = sizeof(opts), .traceparent = getenv("TE_TEST_TRACEPARENT")};
    uint64_t length = number(w[6]), n = number(w[7]);

    if (n == 0 || n > sizeof(reqs) / sizeof(reqs[0])) {
        printf("err -1 bad count\n");
        return;
    }
    uint8_t *p = range(w[3], w[4], length * n);
    if (!p)
        return;
    opts.deadline_ms = (int64_t)number(w[8]);
    for (uint64_t i = 0; i < n; i++) {
        reqs[i] = (te_request){.opcode = strcmp(w[1], "write") == 0 ? TE_WRITE : TE_READ,
                               .source = p + i * length,
                               .target = (te_segment)number(w[2]),
                               .target_offset = number(w[5]) + i * length,
                               .length = length};
    }
    int rc = run(reqs, n, &opts, &st, text, sizeof(text));
    if (rc)
        answer(rc);
    else
        printf("ok %d %d %" PRIu64 " %s\n", st.state, st.error, st.bytes, text);
}

/* explain read|write SEGMENT INDEX REMOTE LENGTH: "ok" and all lines of the explanation in one */
static void do_explain(char **w)
{
    char text[4096];
    te_request r = {.opcode = strcmp(w[1], "write") == 0 ? TE_WRITE : TE_READ,
                    .source = range(w[3], "0", number(w[5])),
                    .target = (te_segment)number(w[2]),
                    .target_offset = number(w[4]),
                    .length = number(w[5])};
    if (!r.source)
        return;
    int rc = te_explain(engine, &r, text, sizeof(text));
    if (rc) {
        answer(rc);
        return;
    }
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = ';';
    printf("ok %s\n", text);
}

/* notify SEGMENT NAME TEXT */
static void do_notify(char **w)
{
    answer(te_notify(engine, (te_segment)number(w[1]), w[2], w[3]));
}

/* inbox: "ok COUNT [NAME=TEXT]..." */
static void do_inbox(char **w)
{
    (void)w;
    te_notification *list;
    size_t n;
    int rc = te_notify_recv(engine, &list, &n);
    if (rc) {
        answer(rc);
        return;
    }
    printf("ok %zu", n);
    for (size_t i = 0; i < n; i++)
        printf(" %s=%s", list[i].name, list[i].msg);
    printf("\n");
    te_notify_free(list, n);
}

/* The bytes of hexadecimal digits, "-" for none, in place; how many. */
static size_t unhex(char *text)
{
    size_t n = strcmp(text, "-") == 0 ? 0 : strlen(text) / 2;
    for (size_t i = 0; i < n; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], '\0'};
        text[i] = (char)strtoul(digits, NULL, 16);
    }
    return n;
}

static void print_hex(const void *data, size_t n)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < n; i++)
        printf("%02x", bytes[i]);
}

/* notify_bytes SEGMENT HEX HEX */
static void do_notify_bytes(char **w)
{
    te_message m = {.name = w[2], .msg = w[3]};
    m.name_len = unhex(w[2]);
    m.msg_len = unhex(w[3]);
    answer(te_notify_bytes(engine, (te_segment)number(w[1]), &m));
}

/* inbox_bytes: "ok COUNT [HEX=HEX]..." */
static void do_inbox_bytes(char **w)
{
    (void)w;
    te_message *list;
    size_t n;
    int rc = te_notify_recv_bytes(engine, &list, &n);
    if (rc) {
        answer(rc);
        return;
    }
    printf("ok %zu", n);
    for (size_t i = 0; i < n; i++) {
        printf(" ");
        print_hex(list[i].name, list[i].name_len);
        printf("=");
        print_hex(list[i].msg, list[i].msg_len);
    }
    printf("\n");
    te_message_free(list, n);
}

static void do_probe(char **w)
{
    answer(te_probe(engine, w[1] ? w[1] : ""));
}

static void do_refresh(char **w)
{
    answer(te_refresh(engine, w[1]));
}

static te_prep prepared;

/* prepare SEGMENT INDEX OFFSET REMOTE LENGTH: a prepared list of that one item */
static void do_prepare(char **w)
{
    size_t length = (size_t)number(w[5]);
    uint64_t remote = number(w[4]);
    void *local = range(w[2], w[3], length);
    if (local)
        answer(te_prep_create(engine, (te_segment)number(w[1]), &local, &remote, &length, 1,
                              &prepared));
}

/* prepared read|write: moves it; "ok STATE ERROR BYTES" */
static void do_prepared(char **w)
{
    int opcode = strcmp(w[1], "write") == 0 ? TE_WRITE : TE_READ;
    struct te_status st = {0};
    te_batch b;
    int rc = te_batch_alloc(engine, 1, &b);
    if (!rc)
        rc = te_prep_submit(engine, b, prepared, opcode, NULL, 1, NULL);
    if (!rc)
        rc = te_wait(engine, b, -1);
    if (!rc)
        rc = te_batch_status(engine, b, &st);
    if (!rc)
        rc = te_batch_free(engine, b);
    if (rc)
        answer(rc);
    else
        printf("ok %d %d %" PRIu64 "\n", st.state, st.error, st.bytes);
}

/* undumpable: no process may trace this one any more, or read its memory, root's apart */
static void do_undumpable(char **w)
{
    (void)w;
    answer(prctl(PR_SET_DUMPABLE, 0) == 0 ? 0 : TE_ERR_SYSTEM);
}

/* By the calling thread, before it does anything else: a signal to the process would be any thread's. */
static void stop_here(void)
{
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGSTOP);
}

static _Atomic bool stop_in_write;

/* stop_in_write: the next write into another process's memory stops this one in the middle of it. */
static void do_stop_in_write(char **w)
{
    (void)w;
    stop_in_write = true;
    answer(0);
}

/* In place of the C library's: what the engine copies with. */
ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long n_local,
                          const struct iovec *remote, unsigned long n_remote, unsigned long flags)
{
    if (atomic_exchange(&stop_in_write, false))
        stop_here();
    return syscall(SYS_process_vm_writev, pid, local, n_local, remote, n_remote, flags);
}

static struct {
    char *page;
    size_t length;
    _Atomic bool set;
} trap;

/* Several threads may get here; those that are not the first come back until it has opened the page. */
static void on_trap(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if ((uintptr_t)info->si_addr - (uintptr_t)trap.page >= trap.length)
        signal(sig, SIG_DFL); /* a crash like any other */
    else if (atomic_exchange(&trap.set, false)) {
        stop_here();
        mprotect(trap.page, trap.length, PROT_READ | PROT_WRITE);
    }
}

/* stop_in_copy INDEX: who next reads or writes the page in the middle of that region stops the process. */
static void do_stop_in_copy(char **w)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};

    trap.length = (size_t)sysconf(_SC_PAGESIZE);
    trap.page = (char *)range(w[1], "0", 0);
    if (!trap.page)
        return;
    trap.page += regions[number(w[1])].length / 2 / trap.length * trap.length;
    trap.set = true;
    sigaction(SIGSEGV, &action, NULL);
    answer(mprotect(trap.page, trap.length, PROT_NONE) == 0 ? 0 : TE_ERR_SYSTEM);
}

static const struct {
    const char *name;
    int words; /* with the name, at least */
    void (*run)(char **w);
} commands[] = {
    {"region", 2, do_region},
    {"regions", 3, do_regions},
    {"drop", 2, do_drop},
    {"fill", 5, do_fill},
    {"check", 5, do_check},
    {"open", 2, do_open},
#ifdef TE_PATHS_H
    {"open_life", 3, do_open_life},
    {"incarnation", 1, do_incarnation},
#endif
#ifdef TE_LEASE_H
    {"region_for", 3, do_region_for},
    {"let", 3, do_let},
#endif
    {"region_at", 3, do_region_at},
    {"close", 2, do_close},
    {"move", 9, do_move},
    {"buffers", 2, do_buffers},
    {"notify", 4, do_notify},
    {"inbox", 1, do_inbox},
    {"notify_bytes", 4, do_notify_bytes},
    {"inbox_bytes", 1, do_inbox_bytes},
    {"probe", 2, do_probe},
    {"refresh", 1, do_refresh},
    {"explain", 6, do_explain},
    {"undumpable", 1, do_undumpable},
    {"prepare", 6, do_prepare},
    {"prepared", 2, do_prepared},
    {"stop_in_write", 1, do_stop_in_write},
    {"stop_in_copy", 2, do_stop_in_copy},
};

static void obey(char *line)
{
    char *words[WORDS_MAX + 1] = {NULL};
    int n = 0;
    for (char *w = strtok(line, " \n"); w && n < WORDS_MAX; w = strtok(NULL, " \n"))
        words[n++] = w;
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (n >= commands[i].words && strcmp(words[0], commands[i].name) == 0) {
            commands[i].run(words);
            return;
        }
    }
    printf("err -1 no such command, or too few words\n");
}

static int start(int argc, char **argv)
{
    te_options o;
    const char *transport = "tcp";
    te_options_init(&o);
    o.metadata = argv[1];
    o.local_server_name = strcmp(argv[2], "-") == 0 ? NULL : argv[2];
    o.auto_discover = 0;
    int rc = 0;
    for (int i = 3; i < argc && !rc; i++) {
        char *value = strchr(argv[i], '=');
        if (value)
            *value++ = '\0';
        if (value && strcmp(argv[i], "transport") == 0)
            transport = value;
        else
            rc = te_option_set(&o, argv[i], value ? value : "1");
    }
    if (!rc)
        rc = te_engine_create(&o, &engine);
    te_options_fini(&o);
    while (!rc && *transport) {
        char name[32];
        size_t n = strcspn(transport, "+");
        snprintf(name, sizeof(name), "%.*s", (int)n, transport);
        rc = te_transport_install(engine, name, NULL);
        transport += n + (transport[n] == '+');
    }
    return rc;
}

int main(int argc, char **argv)
{
    char line[4096], name[256];
    if (argc < 3) {
        fprintf(stderr, "usage: peer METADATA NAME [OPTION=VALUE]...\n");
        return 2;
    }
    int rc = start(argc, argv);
    if (!rc)
        rc = te_engine_name(engine, name, sizeof(name));
    if (rc) {
        printf("err %d %s\n", rc, te_errmsg());
        return 1;
    }
    printf("ready %s\n", name);
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        obey(line);
        fflush(stdout);
    }
    te_engine_destroy(engine);
    return 0;
}
