/* SPDX-License-Identifier: Apache-2.0 */
#include "example.h"

#include "base/err.h"
#include "base/os.h"
#include "base/tsan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define KEY "example_socket"

/* A name that begins with a zero is not that of a file. */
static int open_socket(const char *name, struct sockaddr_un *at)
{
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(at->sun_path + 1, name, strlen(name));
    return tei_fd_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/* Takes the socket: one that is not `ready`, or cannot be watched, is closed. */
static bool watch(struct example *x, struct tei_watch *w, int fd, bool ready, tei_watch_fn fn)
{
    if (fd >= 0 && ready && tei_watch_add(&x->loop, w, fd, EPOLLIN, fn) == 0)
        return true;
    if (fd >= 0)
        tei_fd_close(fd);
    return false;
}

void tei_example_hang_up(struct tei_watch *w)
{
    int fd = w->fd;

    if (!w->loop)
        return;
    tei_watch_del(w);
    tei_fd_close(fd);
}

bool tei_example_dial(struct example *x, const char *name, struct tei_watch *w, tei_watch_fn fn)
{
    struct sockaddr_un at;
    int fd = open_socket(name, &at);

    return watch(x, w, fd, connect(fd, (const struct sockaddr *)&at, sizeof(at)) == 0, fn);
}

ssize_t tei_example_packet(int fd, bool out, void *head, size_t n_head, void *bytes, size_t n)
{
    struct iovec iov[] = {{head, n_head}, {bytes, n}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};

    return out ? sendmsg(fd, &m, MSG_NOSIGNAL) : recvmsg(fd, &m, 0);
}

/* ----------------------------------------------------------------------------------- the target */

static void on_request(struct tei_watch *w, uint32_t events)
{
    struct example *x = tei_container_of(w->loop, struct example, loop);
    struct tei_host *host = x->base.host;
    struct tei_region *r = NULL;
    struct example_head h = {0};
    ssize_t got = tei_example_packet(w->fd, false, &h, sizeof(h), x->part, sizeof(x->part));
    bool write = h.opcode == TE_WRITE;
    char *at = (char *)(uintptr_t)h.addr;
    uint64_t status = 0;

    (void)events;
    if (!h.length || h.length > EXAMPLE_PART ||
        got != (ssize_t)(sizeof(h) + (write ? h.length : 0))) {
        tei_example_hang_up(w); /* the work has ended; or this is none of ours */
        return;
    }
    if (host->region_hold(host, h.addr, h.length, write ? TE_REMOTE_WRITE : TE_REMOTE_READ, NULL,
                          &r))
        status = 1;
    tei_tsan_ignore_begin();
    if (write && !status)
        memcpy(at, x->part, h.length);
    got = tei_example_packet(w->fd, true, &status, sizeof(status), at,
                             write || status ? 0 : h.length);
    tei_tsan_ignore_end();
    if (r)
        host->region_release(host, r);
    if (got < 0)
        tei_example_hang_up(w);
}

/* Programs of other users have no business with this memory. */
static void on_connect(struct tei_watch *w, uint32_t events)
{
    struct example *x = tei_container_of(w, struct example, listener);
    int fd = tei_accept(w->fd, NULL);
    struct ucred who = {.uid = (uid_t)-1};
    socklen_t n = sizeof(who);
    size_t i = 0;

    (void)events;
    while (i < EXAMPLE_SESSIONS - 1 && x->sessions[i].loop)
        i++;
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n);
    watch(x, &x->sessions[i], fd, who.uid == geteuid() && !x->sessions[i].loop, on_request);
}

int tei_example_listen(struct example *x)
{
    struct sockaddr_un at;
    int fd;

    snprintf(x->name, sizeof(x->name), "te-example-%016" PRIx64, tei_random_u64());
    fd = open_socket(x->name, &at);
    if (watch(x, &x->listener, fd,
              bind(fd, (const struct sockaddr *)&at, sizeof(at)) == 0 &&
                  listen(fd, EXAMPLE_SESSIONS) == 0,
              on_connect))
        return 0;
    return TEI_FAIL(TE_ERR_SOCKET, "example: no socket to listen on: %s", tei_errno_text(errno));
}

void tei_example_deafen(struct example *x)
{
    tei_example_hang_up(&x->listener);
    for (size_t i = 0; i < EXAMPLE_SESSIONS; i++)
        tei_example_hang_up(&x->sessions[i]);
}

/* ---------------------------------------------------------- its key of the descriptor; no lock */

int tei_example_describe(struct tei_transport *t, json_t *root)
{
    return json_object_set_new(root, KEY, json_string(example_of(t)->name)) ? TE_ERR_MEMORY : 0;
}

int tei_example_attach(struct tei_transport *t, struct tei_attach *a, const struct tei_segment *s,
                       const struct tei_hostport *where)
{
    (void)t;
    (void)where;
    if (tei_json_word(json_object_get(s->root, KEY), ((struct example_attach *)a)->name,
                      EXAMPLE_NAME))
        return 0;
    return tei_err_keep(TE_ERR_UNSUPPORTED, "the peer's descriptor does not name its socket");
}
