/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.c - what was commanded to fail, to stall, and how often each place was come by. Commands
 * come from a call, from SOFTGPU_FAULTS when the process begins, and from the file that
 * SOFTGPU_CONTROL names, which is read anew whenever it has become another one.
 */
#include "fabric/softgpu/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FAULTS = 32, MAX_TEXT = 4096, LOOK_MS = 2 };

struct fault {
    enum sg_place place;
    int kind;         /* -1: both */
    long first, left; /* fails from the first call on, counted down to 1; then `left` times */
    int code;         /* 0: the usual one */
    bool async;
};

#define PLACE_NAME(name) #name,
static const char *const place_names[] = {SG_PLACE_MAP(PLACE_NAME)};

static struct fault faults[MAX_FAULTS];
static int n_faults;
static long calls[SOFTGPU_KINDS][SG_PLACES];
static struct {
    bool on;
    int64_t until; /* 0: until `release` */
    int kind, device;
} stall;
static struct {
    char path[1024];
    dev_t dev;
    ino_t ino;
    struct timespec changed;
} control;

/* Modes: 0 minds the captures of all threads (GLOBAL), 1 those of its own, 2 none (RELAXED). */
static struct {
    bool on, spoilt;
} captures[SOFTGPU_KINDS];
static _Thread_local struct {
    int mode;
    bool own;
} minds[SOFTGPU_KINDS];

bool softgpu_capture(enum softgpu_kind kind, bool begin)
{
    bool good;

    pthread_mutex_lock(&sg_lock);
    good = begin || !captures[kind].spoilt;
    captures[kind].on = minds[kind].own = begin;
    captures[kind].spoilt = false;
    pthread_mutex_unlock(&sg_lock);
    return good;
}

int sg_exchange_capture_mode(enum softgpu_kind kind, int *mode)
{
    int was = minds[kind].mode;

    if (!mode || *mode < 0 || *mode > 2)
        return SG_INVALID_VALUE;
    minds[kind].mode = *mode;
    *mode = was;
    return SG_OK;
}

int sg_captured(enum softgpu_kind kind)
{
    bool refused = captures[kind].on && minds[kind].mode < (minds[kind].own ? 2 : 1);

    captures[kind].spoilt |= refused;
    return refused ? SG_CAPTURED : SG_OK;
}

static bool minds_captures(enum sg_place place)
{
    return place == SG_AT_alloc || place == SG_AT_pin || place == SG_AT_query ||
           place == SG_AT_ipc_open;
}

static int place_of(const char *word)
{
    for (int i = 0; i < SG_PLACES; i++)
        if (strcmp(word, place_names[i]) == 0)
            return i;
    return -1;
}

static bool take(const char *word, const char *key, long *out)
{
    size_t n = strlen(key);
    char *end;
    long x;

    if (strncmp(word, key, n) != 0 || word[n] != '=')
        return false;
    x = strtol(word + n + 1, &end, 10);
    if (end == word + n + 1 || *end)
        return false;
    *out = x;
    return true;
}

static bool take_kind(const char *word, int *kind)
{
    int i = 0;

    if (strncmp(word, "kind=", 5) != 0)
        return false;
    while (i < SOFTGPU_KINDS && strcmp(word + 5, sg_word((enum softgpu_kind)i)) != 0)
        i++;
    if (i < SOFTGPU_KINDS)
        *kind = i;
    return i < SOFTGPU_KINDS;
}

/* fail PLACE [nth=N] [count=K] [error=E] [async=1] [kind=cuda|hip|npu|..] */
static int command_fail(char **rest)
{
    struct fault f = {.kind = -1, .first = 1, .left = 1};
    const char *word = strtok_r(NULL, " \t", rest);
    int place = word ? place_of(word) : -1;
    long x;

    if (place < 0 || n_faults == MAX_FAULTS)
        return EINVAL;
    f.place = (enum sg_place)place;
    while ((word = strtok_r(NULL, " \t", rest))) {
        if (take(word, "nth", &f.first) || take(word, "count", &f.left) || take_kind(word, &f.kind))
            continue;
        if (take(word, "error", &x))
            f.code = (int)x;
        else if (take(word, "async", &x))
            f.async = x != 0;
        else
            return EINVAL;
    }
    faults[n_faults++] = f;
    return 0;
}

/* stall [ms=N] [kind=cuda|hip|npu|..] [device=D] */
static int command_stall(char **rest)
{
    int kind = -1;
    long ms = 0, device = -1;
    const char *word;

    while ((word = strtok_r(NULL, " \t", rest)))
        if (!take(word, "ms", &ms) && !take_kind(word, &kind) && !take(word, "device", &device))
            return EINVAL;
    stall.on = true;
    stall.until = ms ? sg_now_ns() + ms * 1000000 : 0;
    stall.kind = kind;
    stall.device = (int)device;
    return 0;
}

static int command(char *line)
{
    char *rest = NULL;
    const char *word = strtok_r(line, " \t", &rest);

    if (!word || *word == '#')
        return 0;
    if (strcmp(word, "fail") == 0)
        return command_fail(&rest);
    if (strcmp(word, "stall") == 0)
        return command_stall(&rest);
    if (strtok_r(NULL, " \t", &rest))
        return EINVAL;
    if (strcmp(word, "clear") == 0)
        n_faults = 0;
    else if (strcmp(word, "release") != 0)
        return EINVAL;
    stall.on = false;
    pthread_cond_broadcast(&sg_changed);
    return 0;
}

static int run(const char *commands)
{
    char text[MAX_TEXT], *rest = NULL;

    if (strlen(commands) >= sizeof(text))
        return EINVAL;
    strcpy(text, commands);
    for (char *line = strtok_r(text, ";\n", &rest); line; line = strtok_r(NULL, ";\n", &rest)) {
        int rc = command(line);

        if (rc)
            return rc;
    }
    return 0;
}

int softgpu_control(const char *commands)
{
    int rc;

    pthread_mutex_lock(&sg_lock);
    rc = run(commands);
    pthread_mutex_unlock(&sg_lock);
    return rc;
}

static void complain(const char *where)
{
    fprintf(stderr, "softgpu: %s has a command that is not understood\n", where);
}

void sg_fault_start(void)
{
    const char *path = getenv("SOFTGPU_CONTROL"), *text = getenv("SOFTGPU_FAULTS");

    if (path)
        snprintf(control.path, sizeof(control.path), "%s", path);
    if (text && run(text))
        complain("SOFTGPU_FAULTS");
}

void sg_fault_listen(void)
{
    char text[MAX_TEXT];
    struct stat st;
    ssize_t n;
    int fd;

    if (!control.path[0] || stat(control.path, &st) < 0 ||
        (st.st_dev == control.dev && st.st_ino == control.ino &&
         st.st_mtim.tv_sec == control.changed.tv_sec &&
         st.st_mtim.tv_nsec == control.changed.tv_nsec))
        return;
    fd = open(control.path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n < 0)
        return;
    text[n] = 0;
    control.dev = st.st_dev;
    control.ino = st.st_ino;
    control.changed = st.st_mtim;
    if (run(text))
        complain(control.path);
}

int sg_fault(enum softgpu_kind kind, enum sg_place place, int code, bool *async)
{
    int found = SG_OK;

    calls[kind][place]++;
    if (minds_captures(place) && sg_captured(kind))
        return SG_CAPTURED;
    for (int i = 0; i < n_faults; i++) {
        struct fault *f = &faults[i];

        if (f->place != place || (f->kind >= 0 && f->kind != (int)kind))
            continue;
        if (f->first > 1) {
            f->first--;
            continue;
        }
        if (f->left <= 0 || found)
            continue;
        f->left--;
        found = f->code ? f->code : code;
        if (async)
            *async = f->async;
    }
    return found;
}

long softgpu_calls(enum softgpu_kind kind, const char *place)
{
    int at = place_of(place);
    long n;

    if (at < 0)
        return -1;
    pthread_mutex_lock(&sg_lock);
    n = calls[kind][at];
    pthread_mutex_unlock(&sg_lock);
    return n;
}

static bool is_stalled(enum softgpu_kind kind, int device)
{
    return stall.on && (stall.until == 0 || sg_now_ns() < stall.until) &&
           (stall.kind < 0 || stall.kind == (int)kind) &&
           (stall.device < 0 || stall.device == device);
}

void sg_stalled(enum softgpu_kind kind, int device)
{
    while (is_stalled(kind, device)) {
        struct timespec t;

        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += LOOK_MS * 1000000;
        if (t.tv_nsec >= 1000000000) {
            t.tv_sec++;
            t.tv_nsec -= 1000000000;
        }
        pthread_cond_timedwait(&sg_changed, &sg_lock, &t);
        sg_fault_listen();
    }
}
