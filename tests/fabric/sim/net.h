/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net.h - sockets of the world, between net.c, which has the network, and calls.c, which has the names
 * by which the C library knows what they do. Functions that return an int return 0 or an errno value.
 */
#ifndef SIM_NET_H
#define SIM_NET_H

#include "sim.h"

#include <sys/types.h>
#include <sys/uio.h>

#define SIM_BACKLOG 128
#define SIM_NOTICES 256

enum socket_state { NEW, BOUND, LISTENING, CONNECTING, CONNECTED, BROKEN, CLOSED };

/* Bytes towards a socket. */
struct stream {
    char *bytes;
    uint64_t size, read, arrived, sent;
    bool ended; /* no more will arrive */
};

/* Memory of the sender that is read when the bytes arrive, as MSG_ZEROCOPY has it. */
struct lent {
    uint64_t begin, end; /* of the stream */
    const char *from;
    uint32_t call;
    struct lent *next;
};

/* Calls whose memory is not read any more. */
struct notice {
    uint32_t first, last;
    bool copied;
};

struct socket {
    struct sim_file file;
    enum socket_state state;
    int host;
    bool is_packet; /* asks only for the way to an address */
    bool is_v6;     /* by what it is told */
    uint32_t ip, peer_ip;
    uint16_t port, peer_port;
    struct socket *peer;
    struct stream in;
    uint64_t acked, limit; /* of what the peer gets: what it has, and up to where it may be sent */
    int error;             /* told once */
    bool reset, has_ended, resets, keepalive;
    bool is_lost; /* its machine is off, or was since */
    bool zerocopy, was_reset;
    uint32_t calls; /* with MSG_ZEROCOPY */
    struct lent *lent, *last_lent;
    struct notice notices[SIM_NOTICES];
    int n_notices;
    struct socket *backlog[SIM_BACKLOG];
    int n_backlog, backlog_max;
    struct socket *next_bound; /* of its host */
};

/* Memory that calls cannot read, of each host; NULL: none. */
extern struct iovec sim_net_shut[SIM_LIMIT];

struct socket *sim_socket_new(int host, bool is_packet);
void sim_socket_join(struct socket *a, struct socket *b);
int sim_socket_bind(struct socket *s, uint32_t ip, uint16_t port);
int sim_socket_listen(struct socket *s, int backlog);
int sim_socket_connect(struct socket *s, uint32_t ip, uint16_t port);
struct socket *sim_socket_accept(struct socket *l);
size_t sim_socket_send(struct socket *s, const struct iovec *iov, size_t n_iov, bool is_lent);
bool sim_socket_notice(struct socket *s, struct notice *out);
ssize_t sim_socket_receive(struct socket *s, const struct iovec *iov, size_t n_iov, bool peek);
int sim_socket_shutdown(struct socket *s);
uint64_t sim_socket_unacked(const struct socket *s);

#endif
