/* SPDX-License-Identifier: Apache-2.0 */
#include "te_top/source.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "te_top/samples.h"

#define PREFIX      "transfer_engine."
#define PATIENCE_MS 5000
#define GLANCE_MS   100 /* at whether the user wants to end */
#define ANSWER_MAX  ((size_t)1 << 20)

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* "... @transfer_engine.PID.INCARNATION", of a socket that listens; others of the name are connections. */
static bool read_line(const char *line, struct engine *e)
{
    unsigned long flags = 0;
    const char *at = strstr(line, " @" PREFIX);

    return at && sscanf(line, "%*s %*s %*s %lx", &flags) == 1 && (flags & 0x10000) &&
           sscanf(at + 2, "%63s", e->socket) == 1 && sscanf(e->socket, PREFIX "%d.", &e->pid) == 1;
}

/* Waits for nothing: whose queue is full would not answer either. */
static int connect_to(const struct engine *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    size_t n = strlen(e->socket);

    memcpy(a.sun_path + 1, e->socket, n);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a,
                           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == 0)
        return fd;
    if (fd >= 0) {
        int saved = errno;

        close(fd);
        errno = saved;
    }
    return -1;
}

/*
 * Of whom it is, as the kernel tells it: a name can say anything, and in it stands the number that a process
 * has in its own PID namespace. The kernel tells 0 of a process that is not to be seen from here.
 */
static bool read_owner(int fd, struct engine *e)
{
    struct ucred who;
    socklen_t n = sizeof(who);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) != 0)
        return false;
    e->uid = who.uid;
    e->visible = who.pid != 0;
    if (e->visible)
        e->pid = who.pid;
    return true;
}

/* Of each other user's engines root asks some alone: nobody may take all places. */
static bool has_place(const struct found *found, uid_t uid)
{
    size_t same = 0;

    for (size_t i = 0; i < found->n; i++)
        same += found->v[i].uid == uid;
    return uid == geteuid() || same < ENGINES_OF_USER_MAX;
}

/* Anybody may listen at such a name: what a stranger tells is not believed. */
static bool is_wanted(int fd, struct engine *e, int pid, struct found *found)
{
    if (!read_owner(fd, e) || (pid != 0 && e->pid != pid))
        return false;
    if (e->uid != geteuid() && geteuid() != 0) {
        found->stranger = e->pid;
        return false;
    }
    return has_place(found, e->uid);
}

void source_find(int pid, struct found *found)
{
    FILE *f = fopen("/proc/net/unix", "re");
    char line[512];

    found->n = 0;
    found->stranger = found->silent = 0;
    while (f && found->n < ENGINES_MAX && fgets(line, sizeof(line), f)) {
        struct engine *e = &found->v[found->n];
        int fd;

        if (!read_line(line, e))
            continue;
        fd = connect_to(e);
        if (fd < 0) {
            if (errno == EAGAIN && (pid == 0 || pid == e->pid))
                found->silent = e->pid;
            continue;
        }
        if (is_wanted(fd, e, pid, found))
            found->n++;
        close(fd);
    }
    if (f)
        fclose(f);
}

/* Waits for something to read; false: there is no time left, or the user wants no more. */
static bool wait_for(int fd, int64_t until_ms, const volatile sig_atomic_t *ended)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int64_t left;
    int rc = 0;

    while (rc == 0 && !*ended && (left = until_ms - now_ms()) > 0) {
        rc = poll(&p, 1, (int)(left < GLANCE_MS ? left : GLANCE_MS));
        if (rc < 0 && errno == EINTR)
            rc = 0;
    }
    return rc > 0;
}

/* All that comes, up to its end; NULL when that is too much, or does not come in time. */
static char *read_all(int fd, const volatile sig_atomic_t *ended)
{
    int64_t until_ms = now_ms() + PATIENCE_MS;
    char *text = malloc(ANSWER_MAX + 1);
    size_t n = 0;
    ssize_t got;

    while (text && n < ANSWER_MAX && wait_for(fd, until_ms, ended)) {
        got = recv(fd, text + n, ANSWER_MAX - n, 0);
        if (got == 0) {
            text[n] = '\0';
            return text;
        }
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            break;
        n += got > 0 ? (size_t)got : 0;
    }
    free(text);
    return NULL;
}

char *source_ask(const struct engine *e, const volatile sig_atomic_t *ended)
{
    static const char ask[] = "GET /metrics HTTP/1.1\r\n\r\n";
    struct engine now = *e; /* the name may be another's by now */
    int fd = connect_to(e);
    char *answer = NULL, *body;

    if (fd >= 0 && read_owner(fd, &now) && now.uid == e->uid && now.pid == e->pid &&
        send(fd, ask, sizeof(ask) - 1, MSG_NOSIGNAL) == (ssize_t)sizeof(ask) - 1)
        answer = read_all(fd, ended);
    if (fd >= 0)
        close(fd);
    body = answer && strncmp(answer, "HTTP/1.1 200 ", 13) == 0 ? strstr(answer, "\r\n\r\n") : NULL;
    if (body) {
        memmove(answer, body + 4, strlen(body + 4) + 1);
        return answer;
    }
    free(answer);
    return NULL;
}

void source_program(const struct engine *e, char *buf, size_t n)
{
    char path[40];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/comm", e->pid);
    f = e->visible ? fopen(path, "re") : NULL;
    if (!f || !fgets(buf, (int)n, f))
        snprintf(buf, n, "?");
    buf[strcspn(buf, "\n")] = '\0';
    samples_blank(buf);
    if (f)
        fclose(f);
}
