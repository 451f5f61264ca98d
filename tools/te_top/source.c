/* SPDX-License-Identifier: Apache-2.0 */
#include "te_top/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PREFIX     "transfer_engine."
#define PATIENCE_S 5
#define ANSWER_MAX ((size_t)16 << 20)

/* "... @transfer_engine.PID.INCARNATION", of a socket that listens; others of the name are connections. */
static bool read_line(const char *line, struct engine *e)
{
    unsigned long flags = 0;
    const char *at = strstr(line, " @" PREFIX);

    return at && sscanf(line, "%*s %*s %*s %lx", &flags) == 1 && (flags & 0x10000) &&
           sscanf(at + 2, "%63s", e->socket) == 1 && sscanf(e->socket, PREFIX "%d.", &e->pid) == 1;
}

size_t source_find(int pid, struct engine *out, size_t max)
{
    FILE *f = fopen("/proc/net/unix", "re");
    char line[512];
    size_t n = 0;

    while (f && n < max && fgets(line, sizeof(line), f))
        if (read_line(line, &out[n]) && (pid == 0 || out[n].pid == pid))
            n++;
    if (f)
        fclose(f);
    return n;
}

static int connect_to(const struct engine *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = PATIENCE_S};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t n = strlen(e->socket);

    memcpy(a.sun_path + 1, e->socket, n);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
        connect(fd, (struct sockaddr *)&a,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Anybody may listen at such a name: what a stranger tells is not believed. */
static bool is_ours(int fd)
{
    struct ucred who;
    socklen_t n = sizeof(who);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 &&
           (who.uid == geteuid() || geteuid() == 0);
}

/* All that comes, up to its end; NULL when that is too much, or does not come. */
static char *read_all(int fd)
{
    size_t room = 65536, n = 0;
    char *text = malloc(room);

    for (;;) {
        ssize_t got = text ? recv(fd, text + n, room - n - 1, 0) : -1;

        if (got <= 0) {
            if (got == 0) {
                text[n] = '\0';
                return text;
            }
            if (text && errno == EINTR)
                continue;
            free(text);
            return NULL;
        }
        n += (size_t)got;
        if (room - n < 2) {
            char *more = room < ANSWER_MAX ? realloc(text, 2 * room) : NULL;

            if (!more) {
                free(text);
                return NULL;
            }
            text = more;
            room *= 2;
        }
    }
}

char *source_ask(const struct engine *e, const char **why)
{
    static const char ask[] = "GET /metrics HTTP/1.1\r\n\r\n";
    int fd = connect_to(e);
    char *answer = NULL, *body;

    *why = fd < 0 ? "it has gone" : "another user's: run te_top as that user, or as root";
    if (fd >= 0 && is_ours(fd)) {
        *why = "no answer: another user's, stopped, or about to end";
        if (send(fd, ask, sizeof(ask) - 1, MSG_NOSIGNAL) == (ssize_t)sizeof(ask) - 1)
            answer = read_all(fd);
    }
    if (fd >= 0)
        close(fd);
    body = answer && strncmp(answer, "HTTP/1.1 200 ", 13) == 0 ? strstr(answer, "\r\n\r\n") : NULL;
    if (body)
        memmove(answer, body + 4, strlen(body + 4) + 1);
    if (body)
        return answer;
    free(answer);
    return NULL;
}

void source_program(int pid, char *buf, size_t n)
{
    char path[40];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    f = fopen(path, "re");
    if (!f || !fgets(buf, (int)n, f))
        snprintf(buf, n, "?");
    buf[strcspn(buf, "\n")] = '\0';
    if (f)
        fclose(f);
}
