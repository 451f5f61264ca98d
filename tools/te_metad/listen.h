/* SPDX-License-Identifier: Apache-2.0 */
/* The address that te_metad listens on: as text, and as a socket. */
#ifndef TE_METAD_LISTEN_H
#define TE_METAD_LISTEN_H

#include <stdbool.h>
#include <stddef.h>

#define LISTEN_HOST_MAX 256
#define LISTEN_NAME_MAX 64
#define LISTEN_WHY_MAX  512

struct listen_addr {
    char host[LISTEN_HOST_MAX]; /* a name or an address without brackets; "" for all interfaces */
    char port[8];               /* decimal; "0" lets the kernel choose */
};

/* Reads "host:port", ":port" or "[v6]:port"; false for anything else. */
bool listen_parse(const char *text, struct listen_addr *out);

/*
 * Opens a non-blocking listening socket; all interfaces means IPv6 and IPv4 where both exist.
 * Returns it and writes "host:port" as the kernel tells it into `name`; or returns -1 and writes
 * one line of what is wrong and what to do into `why`.
 */
int listen_open(const struct listen_addr *a, char name[LISTEN_NAME_MAX], char why[LISTEN_WHY_MAX]);

#endif
