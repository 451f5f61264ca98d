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

enum { MAX_TEXT = 4096, LOOK_MS = 2 };

#define PLACE_NAME(name) #name,
static const char *const place_names[] = {SG_PLACE_MAP(PLACE_NAME)};

static _Thread_local struct {
    int mode;
    bool own;
} minds[SOFTGPU_KINDS];

bool softgpu_capture(enum softgpu_kind kind, bool begin)
{
    bool good;

    pthread_mutex_lock(&SG->lock);
    good = begin || !SG->captures[kind].spoilt;
    SG->captures[kind].on = minds[kind].own = begin;
    SG->captures[kind].spoilt = false;
    pthread_mutex_unlock(&SG->lock);
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
    bool refused = SG->captures[kind].on && minds[kind].mode < (minds[kind].own ? 2 : 1);

    SG->captures[kind].spoilt |= refused;
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
    struct sg_command f = {.kind = -1, .first = 1, .left = 1};
    const char *word = strtok_r(NULL, " \t", rest);
    int place = word ? place_of(word) : -1;
    long x;

    if (place < 0 || SG->n_faults == SG_MAX_FAULTS)
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
    SG->faults[SG->n_faults++] = f;
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
    SG->stall.on = true;
    SG->stall.until = ms ? sg_now_ns() + ms * 1000000 : 0;
    SG->stall.kind = kind;
    SG->stall.device = (int)device;
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
        SG->n_faults = 0;
    else if (strcmp(word, "release") != 0)
        return EINVAL;
    SG->stall.on = false;
    pthread_cond_broadcast(&SG->changed);
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

    pthread_mutex_lock(&SG->lock);
    rc = run(commands);
    pthread_mutex_unlock(&SG->lock);
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
        snprintf(SG->control.path, sizeof(SG->control.path), "%s", path);
    if (text && run(text))
        complain("SOFTGPU_FAULTS");
}

void sg_fault_listen(void)
{
    char text[MAX_TEXT];
    struct stat st;
    ssize_t n;
    int fd;

    if (!SG->control.path[0] || stat(SG->control.path, &st) < 0 ||
        (st.st_dev == SG->control.dev && st.st_ino == SG->control.ino &&
         st.st_mtim.tv_sec == SG->control.changed.tv_sec &&
         st.st_mtim.tv_nsec == SG->control.changed.tv_nsec))
        return;
    fd = open(SG->control.path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n < 0)
        return;
    text[n] = 0;
    SG->control.dev = st.st_dev;
    SG->control.ino = st.st_ino;
    SG->control.changed = st.st_mtim;
    if (run(text))
        complain(SG->control.path);
}

int sg_fault(enum softgpu_kind kind, enum sg_place place, int code, bool *async)
{
    int found = SG_OK;

    SG->calls[kind][place]++;
    if (minds_captures(place) && sg_captured(kind))
        return SG_CAPTURED;
    for (int i = 0; i < SG->n_faults; i++) {
        struct sg_command *f = &SG->faults[i];

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
    pthread_mutex_lock(&SG->lock);
    n = SG->calls[kind][at];
    pthread_mutex_unlock(&SG->lock);
    return n;
}

static bool is_stalled(enum softgpu_kind kind, int device)
{
    return SG->stall.on && (SG->stall.until == 0 || sg_now_ns() < SG->stall.until) &&
           (SG->stall.kind < 0 || SG->stall.kind == (int)kind) &&
           (SG->stall.device < 0 || SG->stall.device == device);
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
        pthread_cond_timedwait(&SG->changed, &SG->lock, &t);
        sg_fault_listen();
    }
}
