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
    return status == 200 ? "OK" : "Not Found";
}

static void answer(int fd, int status, const char *body, size_t n)
{
    char head[128];
    int length = snprintf(head, sizeof(head), "HTTP/1.1 %d %s\r\nContent-Length: %zu\r\n\r\n",
                          status, reason_of(status), n);

    sim_store_say(fd, head, (size_t)length);
    sim_store_say(fd, body, n);
}

static void run(int fd, const char *in, const char *body, size_t n)
{
    char method[8] = "", path[512] = "";
    const char *query, *value;

    sscanf(in, "%7s %511s", method, path);
    query = strstr(path, "key=");
    if (query && strcmp(method, "PUT") == 0) {
        sim_store_put(fd, query + 4, body, n, 0);
        answer(fd, 200, "", 0);
    } else if (query && strcmp(method, "DELETE") == 0) {
        answer(fd, sim_store_del(query + 4) ? 200 : 404, "", 0);
    } else if (query && (value = sim_store_get(query + 4, &n))) {
        answer(fd, 200, value, n);
    } else {
        answer(fd, 404, "", 0);
    }
}

size_t sim_http_serve(int fd, const char *in, size_t got)
{
    const char *end = strstr(in, "\r\n\r\n"), *length = strstr(in, "Content-Length: ");
    size_t head, body;

    if (!end)
        return 0;
    head = (size_t)(end - in) + 4;
    body = length && length < end ? strtoul(length + 16, NULL, 10) : 0;
    if (got < head + body)
        return 0;
    if (!sim_store_fails(fd, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"))
        run(fd, in, in + head, body);
    return head + body;
}
