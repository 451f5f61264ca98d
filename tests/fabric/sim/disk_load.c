/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_load.c - requests to files, and what must be true of them.
 *
 * All hosts have the same files. They are cut into strips, of which a user takes one, so that nobody else
 * writes there meanwhile; whoever has it next may be on another machine. A batch has parts of it that adjoin,
 * some within a page, and now and then a READ from another host beside them.
 *
 * In some runs files become shorter, and longer again, with requests under way; the last one also longer than it
 * was, by one more strip. What was cut off is zeros when it comes again, which is as sure as what was written, but
 * for what a WRITE was under way to. That one may be COMPLETED, and is sure of what was not cut off meanwhile. A
 * request may be refused only if its file was too short for it at some time while it was under way.
 */
#include "disk.h"

#include "load.h"
#include "machine.h"
#include "sim.h"
#include "store.h"
#include "te.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES     3
#define STRIPS    10
#define LAID      (STRIPS * sim_world.slot - TAIL) /* of the row, at the begin */
#define PAGE      UINT64_C(4096)
#define TAIL      700 /* by which the last file ends before a page does */
#define CANCEL_MS 2000
#define SETTLE_NS (300 * SIM_S)
#define RECORD    "nvmeof/kv"

struct strip {
    uint64_t at, length; /* in the row of all files */
    unsigned char *want;
    bool *sure;
    const struct life *owner; /* NULL: nobody has it */
    /* Of the batch that its owner has under way: which bytes it writes, and enum mark of each. */
    bool *written;
    unsigned char *marks;
};

enum mark { LACKED = 1, CUT = 2 }; /* the file did not have it at some time, or lost it */

struct part {
    int opcode;
    uint64_t at, length; /* in the strip */
    char *local;
};

/* A batch of a user. */
struct job {
    struct user *user;
    struct strip *strip;
    struct part parts[SLOTS];
    size_t n;
    te_segment seg;
    uint64_t base; /* of the segment, in the row of all files */
    te_batch batch;
    int64_t deadline_ms;
    bool canceled;
    struct life *to; /* whose memory is read beside that; NULL: nobody's */
    te_segment beside;
    struct intent intent;
};

static struct {
    struct sim_node *node;
    uint64_t at, length, most; /* length: at the begin, most: at any time */
} files[FILES];
static struct strip strips[STRIPS + 1];
static uint64_t n_strips;
static bool has_record;

static bool is_on(void)
{
    return sim_world.knobs.fabrics & FABRIC_FILES;
}

static bool has_sizes(void)
{
    return is_on() && (sim_world.knobs.fabrics & FABRIC_FILE_SIZES);
}

/* ---------------------------------------------------------------------------------------- the files */

static void lay_disk(void)
{
    bool fails = sim_world.knobs.fabrics & FABRIC_FILE_FAULTS;
    static const int refused[] = {0, 0, 0, 1 /* EPERM */, 38 /* ENOSYS */, 12 /* ENOMEM */};

    sim_disk.is_direct = !sim_one_in(4);
    sim_disk.is_shared = !sim_disk.is_direct || sim_one_in(4);
    sim_disk.tells_align = !sim_one_in(4);
    sim_disk.align = sim_one_in(3) ? 4096 : 512;
    sim_disk.memory = sim_one_in(2) ? sim_disk.align : 4;
    sim_disk.refuses = sim_disk.is_shared && sim_one_in(3) ? 4096 : 0;
    sim_disk.ring_error = refused[sim_below(6)];
    sim_disk.has_files = sim_one_in(2);
    sim_disk.has_memory = !sim_one_in(4);
    sim_disk.fixed_is_picky = sim_one_in(2);
    sim_disk.short_in = sim_one_in(2) ? 10 : 0;
    sim_disk.again_in = sim_one_in(2) ? 20 : 0;
    sim_disk.error_in = fails && !sim_one_in(4) ? 20u << sim_below(4) : 0;
    sim_disk.full_in = fails && !sim_one_in(3) ? 20u << sim_below(4) : 0;
    sim_disk.stall_in = fails && !sim_one_in(3) ? 20u << sim_below(5) : 0;
}

/* By which all of them are one segment. */
static void put_record(void)
{
    char text[1024];
    int at = snprintf(text, sizeof(text), "{\"buffers\":[");

    for (int i = 0; i < FILES; i++)
        at += snprintf(text + at, sizeof(text) - (size_t)at,
                       "%s{\"file_path\":\"" SIM_DISK "/f%d\",\"length\":%llu,"
                       "\"local_path_map\":{\"*\":\"" SIM_DISK "/f%d\"}}",
                       i ? "," : "", i, (unsigned long long)files[i].length, i);
    at += snprintf(text + at, sizeof(text) - (size_t)at,
                   "],\"name\":\"" RECORD "\",\"protocol\":\"nvmeof\",\"server_name\":\"disk\","
                   "\"tcp_data_port\":0,\"tcp_proto_version\":1,"
                   "\"timestamp\":\"2026-11-22 06:48:12.712577\"}");
    sim_store_put(-1, "mooncake%2Fnvmeof%2Fkv", text, (size_t)at, 0);
}

static void lay_files(void)
{
    uint64_t at = 0;

    for (int i = 0; i < FILES; i++) {
        bool is_last = i == FILES - 1;
        char name[8];

        snprintf(name, sizeof(name), "f%d", i);
        files[i].at = at;
        files[i].length = is_last ? LAID - at : LAID / 3 / PAGE * PAGE;
        files[i].most =
            is_last && has_sizes() ? (STRIPS + 1) * sim_world.slot - at : files[i].length;
        files[i].node = sim_disk_make(name, files[i].length, files[i].most);
        at += files[i].length;
    }
}

/* The last one lies behind what there is at the begin, on pages of its own. */
static void lay_strips(void)
{
    n_strips = STRIPS + has_sizes();
    for (uint64_t i = 0; i < n_strips; i++) {
        uint64_t begin = i * sim_world.slot, left = i < STRIPS ? LAID - begin : sim_world.slot;

        strips[i] = (struct strip){.at = begin,
                                   .length = left < sim_world.slot ? left : sim_world.slot,
                                   .want = sim_new(sim_world.slot),
                                   .sure = sim_new(sim_world.slot * sizeof(bool))};
        if (!has_sizes())
            continue;
        strips[i].written = sim_new(sim_world.slot * sizeof(bool));
        strips[i].marks = sim_new(sim_world.slot);
    }
}

static void *sizes_main(void *arg);

void sim_files_lay(void)
{
    if (!is_on())
        return;
    lay_disk();
    sim_own_is_whole = true; /* else a bounced request would fail, as where its memory is gone */
    lay_files();
    lay_strips();
    if (has_sizes())
        sim_spawn(0, sizes_main, NULL);
    has_record = sim_world.store == STORE_HTTP && sim_one_in(2);
    if (has_record)
        put_record();
}

static void set_any(te_options *o, const char *name, const char *a, const char *b, const char *c)
{
    const char *all[] = {a, b, c};

    sim_ok(te_option_set(o, name, all[sim_below(3)]), name);
}

void sim_files_options(te_options *o)
{
    if (!is_on())
        return;
    sim_ok(te_option_set(o, "TE_FILE_PATHS", has_record ? SIM_DISK : ""), "TE_FILE_PATHS");
    set_any(o, "TE_FILE_URING", "on", "on", "off");
    set_any(o, "TE_FILE_DIRECT", "on", "on", sim_disk.is_shared ? "off" : "on");
    set_any(o, "TE_FILE_FLUSH", "off", "off", "on");
    set_any(o, "TE_FILE_PIN", "on", "on", "off");
    set_any(o, "TE_FILE_DEPTH", "1", "4", "32");
    set_any(o, "TE_FILE_THREADS", "1", "3", "16");
}

/* A library without them is run, too. */
void sim_files_install(te_engine *e)
{
    int rc = 0;

    while (is_on() && (rc = te_transport_install(e, "nvmeof", NULL)) < 0) {
        if (rc == TE_ERR_UNSUPPORTED)
            sim_world.knobs.fabrics &= ~(FABRIC_FILES | FABRIC_FILE_FAULTS | FABRIC_FILE_SIZES);
        usleep(100000);
    }
}

/* In which a byte of the row is; the last one may be longer than it was. */
static int file_of(uint64_t at)
{
    int f = 0;

    while (f < FILES - 1 && at >= files[f].at + files[f].length)
        f++;
    return f;
}

/* What is sure is there. */
static void check_strip(const struct strip *s)
{
    for (uint64_t i = 0; i < s->length; i++) {
        uint64_t at = s->at + i;
        int f = file_of(at);
        unsigned char is;

        if (!s->sure[i])
            continue;
        is = sim_disk_byte(files[f].node, at - files[f].at);
        if (is != s->want[i])
            sim_fail("torn: byte %llu of strip %d of the files is %02x and was written as %02x",
                     (unsigned long long)i, (int)(s - strips), is, s->want[i]);
    }
}

void sim_files_check(void)
{
    for (uint64_t i = 0; i < n_strips; i++)
        check_strip(&strips[i]);
}

/* ------------------------------------------------------------------------------------------- sizes */

/* What a strip loses of the row from `from` to `to`: zeros, unless a WRITE is under way there. */
static void cut_strip(struct strip *s, uint64_t from, uint64_t to)
{
    uint64_t begin = from > s->at ? from - s->at : 0;

    for (uint64_t i = begin; i < s->length && s->at + i < to; i++) {
        s->marks[i] = LACKED | CUT;
        s->sure[i] = !s->written[i];
        s->want[i] = s->sure[i] ? 0 : s->want[i];
    }
}

static void resize(int f, uint64_t length)
{
    uint64_t was = sim_disk_length(files[f].node);

    sim_disk_resize(files[f].node, length);
    for (uint64_t i = 0; i < n_strips; i++)
        cut_strip(&strips[i], files[f].at + length, files[f].at + was);
    sim_world.counts.faults++;
}

/* Now and then it loses all, or a part of a page. */
static uint64_t some_length(int f)
{
    uint64_t n = sim_below(files[f].most);

    return sim_one_in(8) ? 0 : sim_one_in(2) ? n / PAGE * PAGE : n;
}

static bool sizes_are_over, sizes_have_ended;

static void *sizes_main(void *arg)
{
    while (!sizes_are_over) {
        int f = (int)sim_below(FILES);

        usleep((useconds_t)(sim_below(1500) * 1000));
        resize(f, some_length(f));
        usleep((useconds_t)(1000 << sim_below(14)));
        resize(f, sim_one_in(2) ? files[f].most : files[f].length);
    }
    for (int f = 0; f < FILES; f++)
        resize(f, files[f].most);
    sizes_have_ended = true;
    return arg;
}

/* A file loses a part of what a batch is at, and more, and may have it back at once. */
static void cut_beside(const struct strip *s)
{
    uint64_t at = s->at + sim_below(s->length);
    int f = file_of(at);

    usleep((useconds_t)(1 << sim_below(11)));
    if (sizes_are_over || at - files[f].at >= sim_disk_length(files[f].node))
        return;
    resize(f, at - files[f].at);
    if (sim_one_in(3))
        usleep((useconds_t)(1 << sim_below(14)));
    if (!sim_one_in(4))
        resize(f, files[f].most);
}

/* What a batch that begins finds. */
static void mark(struct strip *s)
{
    for (uint64_t i = 0; i < s->length && has_sizes(); i++) {
        int f = file_of(s->at + i);

        s->marks[i] = s->at + i - files[f].at >= sim_disk_length(files[f].node) ? LACKED : 0;
        s->written[i] = false;
    }
}

static bool is_marked(const struct strip *s, const struct part *p, enum mark m)
{
    for (uint64_t i = p->at; i < p->at + p->length && has_sizes(); i++)
        if (s->marks[i] & m)
            return true;
    return false;
}

/* ---------------------------------------------------------------------------------------- a segment */

/* False: it cannot be opened now. */
static bool open_some(te_engine *e, te_segment *seg, uint64_t *base, uint64_t *end)
{
    char name[32];
    int i = (int)sim_below(FILES);

    *base = files[i].at;
    *end = files[i].at + files[i].most;
    snprintf(name, sizeof(name), "file://" SIM_DISK "/f%d", i);
    if (has_record && sim_one_in(2)) {
        *base = 0;
        *end = LAID;
        snprintf(name, sizeof(name), RECORD);
    }
    return te_open(e, name, seg) == 0;
}

/* One that nobody has, and whose owner has not come to its end with it. */
static struct strip *take_strip(const struct life *own, uint64_t base, uint64_t end)
{
    uint64_t from = sim_below(n_strips);

    for (uint64_t i = 0; i < n_strips; i++) {
        struct strip *s = &strips[(from + i) % n_strips];

        if ((s->owner && !s->owner->over) || s->at < base || s->at + s->length > end)
            continue;
        s->owner = own;
        return s;
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------ a batch */

static void fill(char *p, uint64_t n)
{
    uint64_t word = sim_random();

    for (uint64_t i = 0; i < n; i++)
        p[i] = (char)((word >> (i % 8 * 8)) + i / 8);
}

static void choose_part(struct job *j, size_t k, uint64_t at)
{
    uint64_t most = j->strip->length - at, into = sim_one_in(2) ? at % PAGE : sim_below(PAGE);
    struct part *p = &j->parts[k];

    most = most < sim_world.slot - PAGE ? most : sim_world.slot - PAGE;
    p->opcode = sim_one_in(2) ? TE_READ : TE_WRITE;
    p->at = at;
    p->length = sim_one_in(3) ? most : 1 + sim_below(most);
    if (sim_one_in(3) && at + p->length > PAGE) /* up to the end of a page */
        p->length -= (at + p->length) % PAGE < p->length ? (at + p->length) % PAGE : 0;
    p->local = j->user->local + k * sim_world.slot + into;
}

/* They adjoin. */
static void choose_parts(struct job *j)
{
    uint64_t at = sim_below(j->strip->length), max = 1 + sim_below(SLOTS);

    at = sim_one_in(3) ? 0 : sim_one_in(2) ? at / PAGE * PAGE : at;
    for (j->n = 0; j->n < max && at < j->strip->length; j->n++) {
        choose_part(j, j->n, at);
        at += j->parts[j->n].length;
    }
}

static void intend(struct job *j, te_request *reqs)
{
    struct strip *s = j->strip;

    mark(s);
    for (size_t k = 0; k < j->n; k++) {
        const struct part *p = &j->parts[k];

        sim_trace("user %d: %s of strip %d of the files, %llu + %llu, at %p", j->user->index,
                  p->opcode == TE_READ ? "READ" : "WRITE", (int)(s - strips),
                  (unsigned long long)p->at, (unsigned long long)p->length, (void *)p->local);
        if (p->opcode == TE_WRITE) {
            fill(sim_view(p->local), p->length);
            memset(s->sure + p->at, 0, p->length);
            memcpy(s->want + p->at, sim_view(p->local), p->length);
            if (has_sizes())
                memset(s->written + p->at, 1, p->length);
        } else {
            memset(sim_view(p->local), 0x5a, p->length);
        }
        reqs[k] = (te_request){p->opcode, p->local, j->seg, s->at - j->base + p->at, p->length};
    }
}

/* In the same batch, by another transport. */
static void read_beside(struct job *j, te_request *r)
{
    struct life *own = j->user->host->life, *to = sim_any_life();

    if (j->n == SLOTS || !to || sim_open(own, to, &j->beside) < 0)
        return;
    j->to = to;
    j->intent = sim_intend(j->user, to, (int)j->n, TE_READ, 0, 64);
    *r = sim_request_of(j->user, to, j->beside, &j->intent, (int)j->n);
}

/* True if it must end COMPLETED: what is wrong in this run is nothing that a file has to do with. */
static bool must_complete(const struct job *j, const struct part *p)
{
    return !is_marked(j->strip, p, LACKED) && !j->canceled && !j->deadline_ms &&
           !(sim_world.knobs.fabrics & (FABRIC_FILE_FAULTS | FABRIC_GPU_FAULTS)) &&
           !(sim_world.knobs.faults & (FAULT_FREEZE | FAULT_FILES | FAULT_MEMORY | FAULT_AWAY));
}

static bool is_cut(const struct strip *s, uint64_t i)
{
    return has_sizes() && (s->marks[i] & CUT);
}

static void check_read(const struct strip *s, const struct part *p)
{
    const unsigned char *got = sim_view(p->local);

    for (uint64_t i = 0; i < p->length; i++)
        if (s->sure[p->at + i] && !is_cut(s, p->at + i) && got[i] != s->want[p->at + i])
            sim_fail("torn: a READ brought %02x as byte %llu of strip %d of the files, which was "
                     "written as %02x",
                     got[i], (unsigned long long)(p->at + i), (int)(s - strips),
                     s->want[p->at + i]);
}

static void be_sure(struct strip *s, const struct part *p)
{
    for (uint64_t i = p->at; i < p->at + p->length; i++)
        s->sure[i] = !is_cut(s, i);
}

/* What is not there is refused, by a word that says so. */
static bool may_be_refused(const struct job *j, const struct part *p, const struct te_status *s)
{
    return s->error == TE_ERR_STALE && is_marked(j->strip, p, LACKED);
}

/* True if it is COMPLETED. */
static bool conclude(const struct job *j, size_t k)
{
    const te_engine *e = j->user->host->life->engine;
    const struct part *p = &j->parts[k];
    struct te_status s;
    char why[512];

    sim_ok(te_status((te_engine *)(uintptr_t)e, j->batch, k, &s), "te_status");
    te_status_msg((te_engine *)(uintptr_t)e, j->batch, k, why, sizeof(why));
    sim_trace("part %zu: state %d, %s", k, s.state, why);
    sim_world.counts.completed += s.state == TE_COMPLETED;
    sim_world.counts.ended += s.state != TE_COMPLETED;
    if (s.state == TE_COMPLETED && p->opcode == TE_WRITE)
        be_sure(j->strip, p);
    else if (s.state == TE_COMPLETED)
        check_read(j->strip, p);
    else if (must_complete(j, p))
        sim_fail("a request to a file failed, and nothing is wrong: %s", why);
    else if ((s.state == TE_INVALID && !may_be_refused(j, p, &s)) || !why[0])
        sim_fail("a request to a file has ended in state %d with error %d: %s", s.state, s.error,
                 why);
    return s.state == TE_COMPLETED;
}

static void conclude_beside(struct job *j)
{
    struct te_status s;

    sim_ok(te_status(j->user->host->life->engine, j->batch, j->n, &s), "te_status");
    sim_conclude(&j->intent, s.state, j->to);
    sim_allow(j->user->local, SLOTS * sim_world.slot, true);
    sim_close(j->user->host->life, j->to, j->beside);
}

/* What the kernel has cannot be recalled; without faults of the disc it comes back soon. */
static void await(struct job *j)
{
    const struct life *own = j->user->host->life;

    if (sim_one_in(2))
        sim_wait(own->engine, j->batch, (int64_t)(sim_below(8) * sim_below(100)));
    if (sim_one_in(5)) {
        j->canceled = true;
        sim_ok(te_cancel(own->engine, j->batch), "te_cancel");
        if (!(sim_world.knobs.fabrics & FABRIC_FILE_FAULTS))
            sim_await_canceled(own, j->batch);
    }
    sim_await_end(own->engine, j->batch, j->deadline_ms);
}

static bool run(struct job *j)
{
    struct life *own = j->user->host->life;
    te_submit_opts opts = {.size = sizeof(opts), .deadline_ms = j->deadline_ms};
    te_request reqs[SLOTS];
    bool whole = true;

    check_strip(j->strip);
    choose_parts(j);
    sim_allow(j->user->local, SLOTS * sim_world.slot, true);
    intend(j, reqs);
    if (sim_one_in(3))
        read_beside(j, &reqs[j->n]);
    j->batch = sim_batch(own, SLOTS, 1);
    sim_ok(te_submit(own->engine, j->batch, reqs, j->n + (j->to != NULL), &opts), "te_submit");
    if (sim_one_in(8))
        sim_unregister_beside(j->user, j->batch, j->n + (j->to != NULL));
    if (has_sizes() && sim_one_in(6))
        cut_beside(j->strip);
    await(j);
    for (size_t k = 0; k < j->n; k++)
        whole = conclude(j, k) && whole;
    if (has_sizes())
        memset(j->strip->written, 0, sim_world.slot);
    if (j->to)
        conclude_beside(j);
    sim_allow(j->user->local, SLOTS * sim_world.slot, false);
    sim_ok(te_batch_free(own->engine, j->batch), "te_batch_free");
    sim_world.counts.batches++;
    check_strip(j->strip);
    return whole;
}

/* True if all of it is COMPLETED. */
static bool use_once(struct user *u, bool hurries)
{
    struct job j = {.user = u};
    struct life *own = u->host->life;
    bool whole = false;
    uint64_t end;

    if (!open_some(own->engine, &j.seg, &j.base, &end))
        return false;
    if (hurries)
        j.deadline_ms = 1 + (int64_t)(sim_below(70) * sim_below(70));
    j.strip = take_strip(own, j.base, end);
    if (j.strip) {
        whole = run(&j);
        j.strip->owner = NULL;
    }
    sim_ok(te_close(own->engine, j.seg), "te_close");
    return whole;
}

void sim_files_use(struct user *u)
{
    if (!is_on())
        return;
    for (uint64_t n = sim_below(5); n > 0; n--)
        use_once(u, sim_one_in(2));
}

/* With faults gone all of a batch is COMPLETED, within a time. */
void sim_files_reach(struct user *u)
{
    while (is_on() && !use_once(u, false)) {
        if (sim_now() > sim_world.quiet_since + SETTLE_NS)
            sim_fail("host %d does not reach the files, %lld s after the last fault",
                     u->host->number, (long long)(SETTLE_NS / SIM_S));
        usleep(100000);
    }
}

/* Requests that are under way when the engine ends; the strip stays taken. */
void sim_files_leave(struct user *u, te_engine *e)
{
    struct job j = {.user = u};
    te_request reqs[SLOTS];
    uint64_t end;

    if (!is_on() || !open_some(e, &j.seg, &j.base, &end))
        return;
    j.strip = take_strip(u->host->life, j.base, end);
    if (!j.strip)
        return;
    choose_parts(&j);
    intend(&j, reqs);
    sim_ok(te_batch_alloc(e, SLOTS, &j.batch), "te_batch_alloc");
    sim_ok(te_submit(e, j.batch, reqs, j.n, NULL), "te_submit");
}

void sim_files_quiet(void)
{
    sim_disk.error_in = sim_disk.full_in = sim_disk.stall_in = 0;
    sizes_are_over = true;
    while (has_sizes() && !sizes_have_ended)
        usleep(10000);
}
