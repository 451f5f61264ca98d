/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_zerocopy.c - sending without a copy in the kernel (MSG_ZEROCOPY): the notices.
 *
 * Each call with that flag gets the next number of its socket, and later a notice that its pages are
 * not looked at any more, by ranges of numbers in the error queue of the socket. A frame remembers
 * the last call that carried a part of it, and is not over before that notice has come. A notice may
 * also say that the kernel copied after all (loopback, veth, a card that cannot scatter); then
 * pinning pages was for nothing, and the connection goes on without.
 */
#include "transport/tcp/tcp_stream.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sys/socket.h>

void tei_tcp_zerocopy_start(struct tcp_zerocopy *z, int fd, enum tei_zerocopy mode, bool near)
{
    const int on = 1;

    *z = (struct tcp_zerocopy){.keep = mode == TEI_ZEROCOPY_ON};
    if (mode == TEI_ZEROCOPY_OFF || (near && !z->keep))
        return;
    z->on = setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0;
}

uint32_t tei_tcp_zerocopy_sent(struct tcp_zerocopy *z)
{
    return ++z->sent;
}

bool tei_tcp_zerocopy_is_over(const struct tcp_zerocopy *z, uint32_t last)
{
    return last == 0 || (int32_t)(z->done - last) >= 0;
}

/* Notices may come out of order; what is told is how far they go without a gap. */
static void take(struct tcp_zerocopy *z, const struct sock_extended_err *e)
{
    uint32_t first = e->ee_info + 1, last = e->ee_data + 1; /* the kernel counts from 0 */

    if (e->ee_code & SO_EE_CODE_ZEROCOPY_COPIED)
        z->on = z->keep;
    if (first == z->done + 1)
        z->done = last;
    else
        z->early += last - first + 1;
    if (z->done + z->early == z->sent) { /* no gap is left */
        z->done = z->sent;
        z->early = 0;
    }
}

void tei_tcp_zerocopy_reap(struct tcp_zerocopy *z, int fd)
{
    while (z->done != z->sent) {
        char control[CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(struct sockaddr_in6))];
        struct msghdr m = {.msg_control = control, .msg_controllen = sizeof control};
        struct cmsghdr *c;

        if (recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
            if (errno == EINTR)
                continue;
            return;
        }
        for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
            const struct sock_extended_err *e = (const void *)CMSG_DATA(c);

            if (e->ee_origin == SO_EE_ORIGIN_ZEROCOPY)
                take(z, e);
        }
    }
}

void tei_tcp_zerocopy_end(const struct tcp_zerocopy *z, int fd)
{
    const struct linger at_once = {.l_onoff = 1};

    /* Closing is then a reset, which frees what is queued; else it would go on being read. */
    if (z->done != z->sent)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}
