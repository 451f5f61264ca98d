/* SPDX-License-Identifier: Apache-2.0 */
#include "patience.h"
#include "rdma_pair.h"

#include "child_engine.h"
#include "pair.h"
#include "rdma_fabric.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define VARIABLES_MAX 32

static struct {
    enum rdma_pair_side side;
    const char *name, *value;
} variables[VARIABLES_MAX];
static size_t n_variables;
static char filters[2][512];
static struct tei_conf paths; /* what the fabric has engines use */

static void name_nics(char *out, size_t size, const char *side, unsigned n)
{
    size_t used = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < n; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s%u", i ? "," : "", side, i);
}

void rdma_pair_set(enum rdma_pair_side side, const char *name, const char *value)
{
    assert(n_variables < VARIABLES_MAX);
    variables[n_variables].side = side;
    variables[n_variables].name = name;
    variables[n_variables++].value = value;
}

void rdma_pair_fabric(const char *library, unsigned n, const char *keys)
{
    rdma_fabric_up(n, keys);
    rdma_fabric_configure(&paths);
    snprintf(paths.ibverbs_path, sizeof(paths.ibverbs_path), "%s/tests/softverbs/%s", TE_TEST_BUILD,
             library);
    name_nics(filters[0], sizeof(filters[0]), "left", n);
    name_nics(filters[1], sizeof(filters[1]), "right", n);
}

static void set_variables(enum rdma_pair_side side)
{
    setenv("TE_HOST_PATH", "0", 1);
    setenv("TE_IBVERBS_PATH", paths.ibverbs_path, 1);
    setenv("TE_SYSFS_PATH", paths.sysfs_path, 1);
    setenv("TE_DEV_PATH", paths.dev_path, 1);
    setenv("MC_TE_FILTERS", filters[side == RDMA_PAIR_B], 1);
    for (size_t i = 0; i < n_variables; i++)
        if (variables[i].side & side)
            setenv(variables[i].name, variables[i].value, 1);
}

static void take_variables_back(void)
{
    static const char *const own[] = {"TE_HOST_PATH", "TE_IBVERBS_PATH", "TE_SYSFS_PATH",
                                      "TE_DEV_PATH", "MC_TE_FILTERS"};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        unsetenv(own[i]);
    for (size_t i = 0; i < n_variables; i++)
        unsetenv(variables[i].name);
}

int rdma_pair_engine(enum rdma_pair_side side, te_engine **out)
{
    te_options o;
    int rc;

    loopback_options(&o);
    set_variables(side);
    rc = te_engine_create(&o, out);
    take_variables_back();
    return rc;
}

void rdma_pair_begin(struct rdma_pair *p)
{
    char name[300];

    memset(p, 0, sizeof(*p));
    assert(rdma_pair_engine(RDMA_PAIR_A, &p->a) == 0);
    assert(rdma_pair_engine(RDMA_PAIR_B, &p->b) == 0);
    p->am = map_pages(RDMA_PAIR_SIZE);
    p->bm = map_pages(RDMA_PAIR_SIZE);
    fill(p->am, RDMA_PAIR_SIZE, 1);
    fill(p->bm, RDMA_PAIR_SIZE, 2);
    assert(te_register(p->a, p->am, RDMA_PAIR_SIZE, "cpu:0", TE_LOCAL_ONLY) == 0);
    assert(te_register(p->b, p->bm, RDMA_PAIR_SIZE, "cpu:0", TE_REMOTE_RW) == 0);
    assert(te_engine_name(p->b, name, sizeof(name)) == 0);
    assert(te_open(p->a, name, &p->seg) == 0);
}

void rdma_pair_end(struct rdma_pair *p)
{
    te_engine_destroy(p->a);
    te_engine_destroy(p->b);
    if (p->am)
        munmap(p->am, RDMA_PAIR_SIZE);
    if (p->bm)
        munmap(p->bm, RDMA_PAIR_SIZE);
    memset(p, 0, sizeof(*p));
    n_variables = 0;
    rdma_fabric_down();
    te_log_set_sink(NULL, NULL);
    te_log_set_level(TE_LOG_INFO);
}

struct te_status rdma_pair_try(struct rdma_pair *p, int opcode, size_t n, char *msg, size_t size)
{
    te_request r = {.opcode = opcode,
                    .source = p->am,
                    .target = p->seg,
                    .target_offset = (uintptr_t)p->bm,
                    .length = n};
    struct te_status st;
    te_batch b;

    msg[0] = '\0';
    assert(te_batch_alloc(p->a, 1, &b) == 0);
    assert(te_submit(p->a, b, &r, 1, NULL) == 0);
    assert(te_wait(p->a, b, PATIENCE_MS) == 0);
    assert(te_status(p->a, b, 0, &st) == 0);
    (void)te_status_msg(p->a, b, 0, msg, size);
    assert(te_batch_free(p->a, b) == 0);
    return st;
}

void rdma_pair_move(struct rdma_pair *p, int opcode, size_t n)
{
    char msg[512];
    struct te_status st;

    /* New bytes in the source, so that the target's are not right from before. */
    static uint64_t seed = 100;

    fill(opcode == TE_READ ? p->bm : p->am, n, ++seed);
    st = rdma_pair_try(p, opcode, n, msg, sizeof(msg));
    if (st.state != TE_COMPLETED || st.bytes != n) {
        fprintf(stderr, "%s of %zu bytes: state %d, %zu bytes: %s\n",
                opcode == TE_READ ? "read" : "write", n, (int)st.state, (size_t)st.bytes, msg);
        abort();
    }
    if (memcmp(p->am, p->bm, n) != 0) {
        fprintf(stderr, "wrong data at %zu\n", first_difference(p->am, n, seed));
        abort();
    }
}

/* ------------------------------------------------------------------------------------------- log */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[64 << 10];
static size_t log_used;

static void keep_line(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    pthread_mutex_lock(&log_lock);
    if (log_used + strlen(line) + 2 < sizeof(log_text))
        log_used += (size_t)sprintf(log_text + log_used, "%s\n", line);
    pthread_mutex_unlock(&log_lock);
}

void rdma_pair_keep_log(enum te_log_level level)
{
    pthread_mutex_lock(&log_lock);
    log_used = 0;
    log_text[0] = '\0';
    pthread_mutex_unlock(&log_lock);
    te_log_set_sink(keep_line, NULL);
    te_log_set_level(level);
}

size_t rdma_pair_logged(const char *a, const char *b)
{
    char *copy, *save = NULL;
    size_t n = 0;

    pthread_mutex_lock(&log_lock);
    copy = strdup(log_text);
    pthread_mutex_unlock(&log_lock);
    assert(copy);
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        n += strstr(line, a) && (!b || strstr(line, b));
    free(copy);
    return n;
}
