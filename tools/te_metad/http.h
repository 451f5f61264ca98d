/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP side of te_metad. */
#ifndef TE_METAD_HTTP_H
#define TE_METAD_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "te_metad/store.h"
#include "te_metad/tokens.h"

#define HTTP_WHY_MAX 512

struct http_options {
    int listen_fd;       /* non-blocking; the server's from http_start() on */
    struct store *store; /* outlives the server */
    const char *path;    /* of the contents, "/metadata" */
    uint64_t max_value;  /* bytes of one value */
    unsigned max_connections;
    unsigned idle_timeout_s;
    const struct tokens *tokens;    /* of which every request but /health bears one; NULL: none */
    const char *tls_cert, *tls_key; /* PEM; both NULL: without TLS */
    const char *tls_client_ca;      /* PEM: clients show a certificate of one of these; or NULL */
    bool request_log;               /* a line to standard error for each request */
    bool quiet;                     /* write nothing to standard error */
};

struct http;

/*
 * Serves from threads of its own until http_stop(). NULL, with one line in `why`, when it could not
 * be started. The texts and tokens of the options outlive the server.
 */
struct http *http_start(const struct http_options *o, char why[HTTP_WHY_MAX]);

/* Requests that are being carried out are finished first; unfinished ones are dropped. */
void http_stop(struct http *h);

#endif
