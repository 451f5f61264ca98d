/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.c - keys by HTTP, as the plainest of metadata servers has them.
 */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *reason_of(int status)
{
    return status == 200 ? "OK" : status == 503 ? "Service Unavailable" : "Not Found";
}

void sim_http_answer(int fd, int status, const char *body, size_t n)
{
    char head[128];
    int length = snprintf(head, sizeof(head), "HTTP/1.1 %d %s\r\nContent-Length: %zu\r\n\r\n",
                          status, reason_of(status), n);

    sim_store_say(fd, head, (size_t)length);
    sim_store_say(fd, body, n);
}

static void run(int fd, const struct sim_http *x)
{
    const char *query = strstr(x->path, "key="), *value;
    size_t n;

    if (query && strcmp(x->method, "PUT") == 0) {
        sim_store_put(fd, query + 4, x->body, x->length, 0);
        sim_http_answer(fd, 200, "", 0);
    } else if (query && strcmp(x->method, "DELETE") == 0) {
        sim_http_answer(fd, sim_store_del(query + 4) ? 200 : 404, "", 0);
    } else if (query && (value = sim_store_get(query + 4, &n))) {
        sim_http_answer(fd, 200, value, n);
    } else {
        sim_http_answer(fd, 404, "", 0);
    }
}

bool sim_http_read(const char *in, size_t got, struct sim_http *out)
{
    const char *end = strstr(in, "\r\n\r\n"), *length = strstr(in, "Content-Length: ");
    size_t head;

    if (!end)
        return false;
    head = (size_t)(end - in) + 4;
    *out = (struct sim_http){.body = in + head};
    out->length = length && length < end ? strtoul(length + 16, NULL, 10) : 0;
    out->whole = head + out->length;
    sscanf(in, "%7s %511s", out->method, out->path);
    return got >= out->whole;
}

size_t sim_http_serve(int fd, const char *in, size_t got)
{
    struct sim_http x;

    if (!sim_http_read(in, got, &x))
        return 0;
    if (!sim_store_fails(fd, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"))
        run(fd, &x);
    return x.whole;
}
