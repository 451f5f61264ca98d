/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control.c - the commands of softverbs_ctl. All of them write into the state file; the engines of
 * the processes are rung where they have something to do. README.md tells what each does.
 */
#include "fabric/softverbs/fabric.h"
#include "fabric/softverbs/softverbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_WORDS 8

struct command {
    struct sv_state *s;
    const char *dir;
    int n;
    char *words[MAX_WORDS];
    struct sv_nic *nic; /* words[1], where that names one */
    char *reply;
    size_t size;
};

static int refuse(struct command *c, int error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(struct command *c, int error, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(c->reply, c->size, fmt, args);
    va_end(args);
    return error;
}

/* ------------------------------------------------------------------------------------- arguments */

/* The value of a word "key=value", or NULL. */
static const char *option(const struct command *c, const char *key)
{
    size_t n = strlen(key);

    for (int i = 1; i < c->n; i++)
        if (strncmp(c->words[i], key, n) == 0 && c->words[i][n] == '=')
            return c->words[i] + n + 1;
    return NULL;
}

static long option_number(const struct command *c, const char *key, long fallback)
{
    const char *text = option(c, key);

    return text ? strtol(text, NULL, 0) : fallback;
}

static bool has_word(const struct command *c, const char *word)
{
    for (int i = 2; i < c->n; i++)
        if (strcmp(c->words[i], word) == 0)
            return true;
    return false;
}

/* "name" or "host/name"; the first that fits. */
static struct sv_nic *find_nic(const struct command *c, const char *word)
{
    const char *slash = strchr(word, '/');
    const char *name = slash ? slash + 1 : word;

    for (uint32_t i = 0; i < c->s->n_nics; i++) {
        struct sv_nic *nic = &c->s->nics[i];

        if (strcmp(nic->name, name) == 0 &&
            (!slash || (strlen(nic->host) == (size_t)(slash - word) &&
                        strncmp(nic->host, word, (size_t)(slash - word)) == 0)))
            return nic;
    }
    return NULL;
}

static const char *short_name(const char *name, char *out, size_t size)
{
    size_t n;

    if (strncasecmp(name, "IBV_WC_", 7) == 0)
        name += 7;
    snprintf(out, size, "%s", name);
    n = strlen(out);
    if (n > 4 && strcasecmp(out + n - 4, "_ERR") == 0)
        out[n - 4] = '\0';
    return out;
}

static bool find_status(const char *word, uint32_t *out)
{
    static const char *const names[] = {
        "SUCCESS",        "LOC_LEN",   "LOC_QP_OP", "LOC_EEC_OP",    "LOC_PROT",
        "WR_FLUSH",       "MW_BIND",   "BAD_RESP",  "LOC_ACCESS",    "REM_INV_REQ",
        "REM_ACCESS",     "REM_OP",    "RETRY_EXC", "RNR_RETRY_EXC", "LOC_RDD_VIOL",
        "REM_INV_RD_REQ", "REM_ABORT", "INV_EECN",  "INV_EEC_STATE", "FATAL",
        "RESP_TIMEOUT",   "GENERAL"};
    char text[64];

    short_name(word, text, sizeof(text));
    for (uint32_t i = 1; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcasecmp(text, names[i]) == 0 || (uint32_t)atoi(word) == i) {
            *out = i;
            return true;
        }
    return false;
}

static bool find_verb(const char *word, uint32_t *out)
{
#define NAME(verb) #verb,
    static const char *const names[] = {SV_DENY_MAP(NAME)};
#undef NAME

    for (*out = 0; *out < SV_N_DENY; ++*out)
        if (strcmp(word, names[*out]) == 0)
            return true;
    return false;
}

/* -------------------------------------------------------------------------------------- commands */

static int port(struct command *c)
{
    bool up = has_word(c, "up");

    if (!up && !has_word(c, "down"))
        return refuse(c, EINVAL, "port NIC up|down [never|retry]");
    if (has_word(c, "never") || has_word(c, "retry"))
        c->nic->down_retries = has_word(c, "retry");
    if (up == (c->nic->port_up != 0))
        return 0;
    c->nic->port_up = up;
    sv_event(c->nic, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, 1);
    return 0;
}

static int fail(struct command *c)
{
    const char *name = option(c, "status");
    uint32_t status = IBV_WC_GENERAL_ERR;

    if (name && !find_status(name, &status))
        return refuse(c, EINVAL, "no such status: %s", name);
    c->nic->fail_status = status;
    c->nic->fail_moved = (uint32_t)option_number(c, "moved", 0);
    c->nic->fail_in = option_number(c, "nth", 1);
    c->nic->fail_count = option_number(c, "count", 1);
    c->nic->faults = 1;
    return 0;
}

static int drop(struct command *c)
{
    c->nic->drop_left = c->n > 2 ? atoi(c->words[2]) : 1;
    c->nic->faults = 1;
    return 0;
}

static int stall(struct command *c)
{
    if (c->n < 3)
        return refuse(c, EINVAL, "stall NIC MILLISECONDS");
    c->nic->stall_until = sv_now() + atol(c->words[2]) * SV_MS;
    sv_event(c->nic, SV_EVENT_RETRY, 0);
    return 0;
}

static int hold(struct command *c)
{
    c->nic->held = 0;
    c->nic->hold_after = (c->n > 2 ? atol(c->words[2]) : 0) + 1;
    return 0;
}

static int let_go(struct command *c)
{
    c->nic->hold_after = 0;
    c->nic->held = 0;
    sv_event(c->nic, SV_EVENT_RETRY, 0);
    return 0;
}

static int slow(struct command *c)
{
    if (c->n < 3)
        return refuse(c, EINVAL, "slow NIC GBPS");
    c->nic->rate = (uint64_t)(atof(c->words[2]) * 1e9 / 8);
    c->nic->tx.free = c->nic->rx.free = 0;
    return 0;
}

static int kill_nic(struct command *c)
{
    if (c->nic->dead)
        return 0;
    c->nic->dead = 1;
    sv_event(c->nic, IBV_EVENT_DEVICE_FATAL, 1);
    return 0;
}

static int revive(struct command *c)
{
    if (!c->nic->dead)
        return 0;
    c->nic->generation++;
    c->nic->dead = 0;
    return 0;
}

static int peermem(struct command *c)
{
    bool on = has_word(c, "on");

    if (!on && !has_word(c, "off"))
        return refuse(c, EINVAL, "peermem NIC on|off");
    c->nic->peermem = on;
    return 0;
}

static int cq_err(struct command *c)
{
    sv_event(c->nic, SV_EVENT_CQ_ERR, 0);
    return 0;
}

static int qp_fatal(struct command *c)
{
    sv_event(c->nic, SV_EVENT_QP_FATAL, c->n > 2 ? (uint32_t)strtoul(c->words[2], NULL, 0) : 0);
    return 0;
}

/* The device tells of an address, once the files show it: who hears of it looks there. */
static void tell(const struct command *c, uint32_t event)
{
    sv_tree_update(c->dir, c->s, (uint32_t)(c->nic - c->s->nics));
    sv_event(c->nic, event, 1);
}

static int gid_change(struct command *c)
{
    unsigned index = c->n > 2 ? (unsigned)atoi(c->words[2]) : SV_MAX_GIDS;
    union ibv_gid gid;

    if (c->n < 4 || index >= SV_MAX_GIDS || inet_pton(AF_INET6, c->words[3], gid.raw) != 1)
        return refuse(c, EINVAL, "gid_change NIC INDEX GID");
    c->nic->gids[index].prefix = gid.global.subnet_prefix;
    c->nic->gids[index].id = gid.global.interface_id;
    if (c->nic->ethernet && c->nic->gids[index].type == IBV_GID_TYPE_IB)
        c->nic->gids[index].type = IBV_GID_TYPE_ROCE_V2;
    tell(c, IBV_EVENT_GID_CHANGE);
    return 0;
}

static int lid(struct command *c)
{
    if (c->n < 3)
        return refuse(c, EINVAL, "lid NIC LID");
    c->nic->lid = (uint32_t)strtoul(c->words[2], NULL, 0);
    tell(c, IBV_EVENT_LID_CHANGE);
    return 0;
}

static int deny(struct command *c)
{
    uint32_t verb;

    if (c->n < 3 || !find_verb(c->words[2], &verb))
        return refuse(c, EINVAL, "deny NIC VERB [after=N] [errno=N]");
    c->nic->deny_errno[verb] = (int32_t)option_number(c, "errno", ENOMEM);
    c->nic->deny_after[verb] = option_number(c, "after", 0) + 1;
    return 0;
}

static int allow(struct command *c)
{
    uint32_t verb;

    if (c->n < 3 || !find_verb(c->words[2], &verb))
        return refuse(c, EINVAL, "allow NIC VERB");
    c->nic->deny_after[verb] = 0;
    return 0;
}

/* Or, by `unblock`, no more. */
static void set_blocked(const struct command *c, struct sv_nic *from, const struct sv_nic *to)
{
    uint64_t bit = UINT64_C(1) << (to - c->s->nics);

    if (strcmp(c->words[0], "block") == 0)
        atomic_fetch_or(&from->blocked, bit);
    else
        atomic_fetch_and(&from->blocked, ~bit);
}

static int block(struct command *c)
{
    struct sv_nic *other = c->n > 2 ? find_nic(c, c->words[2]) : NULL;

    if (!other)
        return refuse(c, EINVAL, "%s NIC NIC [oneway]", c->words[0]);
    set_blocked(c, c->nic, other);
    if (!has_word(c, "oneway"))
        set_blocked(c, other, c->nic);
    return 0;
}

static int clear(struct command *c)
{
    struct sv_nic *nic = c->nic;

    nic->faults = 0;
    nic->fail_count = nic->drop_left = nic->stall_until = 0;
    nic->hold_after = 0;
    nic->held = 0;
    nic->blocked = 0;
    for (uint32_t i = 0; i < c->s->n_nics; i++)
        atomic_fetch_and(&c->s->nics[i].blocked, ~(UINT64_C(1) << (nic - c->s->nics)));
    for (int i = 0; i < SV_N_DENY; i++)
        nic->deny_after[i] = 0;
    sv_event(nic, SV_EVENT_RETRY, 0);
    return 0;
}

/* ---------------------------------------------------------------------------------------- stats */

static void add(struct sv_counters *sum, const struct sv_counters *n)
{
    sum->bytes += n->bytes;
    sum->wrs += n->wrs;
    sum->doorbells += n->doorbells;
    sum->completions += n->completions;
    sum->cqs += n->cqs;
    if (n->reads > sum->reads)
        sum->reads = n->reads;
}

static int stats_of(struct command *c, uint32_t index, char *out, size_t size)
{
    const struct sv_nic *nic = &c->s->nics[index];
    struct sv_counters sum = {0};
    unsigned qps = 0, mrs = 0;

    add(&sum, &nic->gone);
    for (uint32_t i = 0; i < c->s->proc_used; i++)
        if (c->s->procs[i].pid)
            add(&sum, &c->s->procs[i].counters[index]);
    for (uint32_t i = 0; i < c->s->qp_used; i++)
        qps += c->s->qps[i].id && c->s->qps[i].nic == index;
    for (uint32_t i = 0; i < c->s->mr_used; i++)
        mrs += c->s->mrs[i].key && c->s->mrs[i].nic == index;
    return snprintf(out, size,
                    "nic=%s%s%s port=%s dead=%u bytes=%lu wrs=%lu doorbells=%lu completions=%lu "
                    "qps=%u mrs=%u cqs=%ld held=%u drops=%ld reads=%lu tx_us=%ld rx_us=%ld\n",
                    nic->host, nic->host[0] ? "/" : "", nic->name, nic->port_up ? "up" : "down",
                    nic->dead, sum.bytes, sum.wrs, sum.doorbells, sum.completions, qps, mrs,
                    sum.cqs, nic->held, nic->drop_left, sum.reads, nic->tx.taken / SV_US,
                    nic->rx.taken / SV_US);
}

static int stats(struct command *c)
{
    size_t used = 0;

    sv_reap(c->s);
    for (uint32_t i = 0; i < c->s->n_nics && used < c->size; i++)
        if (!c->nic || c->nic == &c->s->nics[i])
            used += (size_t)stats_of(c, i, c->reply + used, c->size - used);
    return 0;
}

/* ----------------------------------------------------------------------------------------- running */

static const struct row {
    const char *name;
    int (*run)(struct command *c);
    bool tree; /* something that sysfs shows may have changed */
} rows[] = {
    {"port", port, true},      {"fail", fail, false},
    {"drop", drop, false},     {"stall", stall, false},
    {"hold", hold, false},     {"release", let_go, false},
    {"slow", slow, true},      {"kill", kill_nic, false},
    {"revive", revive, true},  {"peermem", peermem, false},
    {"cq_err", cq_err, false}, {"qp_fatal", qp_fatal, false},
    {"lid", lid, false},       {"gid_change", gid_change, false},
    {"deny", deny, false},     {"allow", allow, false},
    {"block", block, false},   {"unblock", block, false},
    {"clear", clear, false},   {"stats", stats, false},
};

static int dispatch(struct command *c)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int rc;

        if (strcmp(c->words[0], rows[i].name) != 0)
            continue;
        if (c->n > 1) {
            c->nic = find_nic(c, c->words[1]);
            if (!c->nic)
                return refuse(c, ENODEV, "no such NIC: %s", c->words[1]);
        } else if (rows[i].run != stats) {
            return refuse(c, EINVAL, "%s needs a NIC", c->words[0]);
        }
        sv_lock(c->s);
        rc = rows[i].run(c);
        sv_unlock(c->s);
        sv_ring_all(c->s);
        if (rc == 0 && rows[i].tree)
            sv_tree_update(c->dir, c->s, (uint32_t)(c->nic - c->s->nics));
        return rc;
    }
    return refuse(c, EINVAL, "no such command: %s", c->words[0]);
}

int sv_control(struct sv_state *s, const char *dir, const char *line, char *reply, size_t size)
{
    struct command c = {.s = s, .dir = dir, .reply = reply, .size = size};
    char text[512], *save = NULL;

    reply[0] = '\0';
    snprintf(text, sizeof(text), "%s", line);
    for (char *word = strtok_r(text, " \t\n", &save); word && c.n < MAX_WORDS;
         word = strtok_r(NULL, " \t\n", &save))
        c.words[c.n++] = word;
    return c.n ? dispatch(&c) : refuse(&c, EINVAL, "no command");
}

int softverbs_control(const char *path, const char *line, char *reply, size_t size)
{
    struct sv_config *config = calloc(1, sizeof(*config));
    struct sv_state *s = NULL;
    char dummy[16 << 10];
    int rc = ENOMEM;

    if (!reply || size == 0) {
        reply = dummy;
        size = sizeof(dummy);
    }
    reply[0] = '\0';
    if (!path)
        path = getenv("SOFTVERBS");
    if (config && path) {
        rc = sv_config_load(path, config) ? EINVAL : 0;
        if (!rc && sv_state_map(config, strcmp(line, "setup") == 0, &s))
            rc = errno;
        if (!rc && strcmp(line, "setup") != 0)
            rc = sv_control(s, config->dir, line, reply, size);
    }
    sv_state_unmap(s);
    free(config);
    return rc;
}
