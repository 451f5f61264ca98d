/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first bytes that a stranger sends to the secured handshake port, in pieces whose size the first byte says:
 * whatever they are, he is never known, and no more than 64 KiB are read of him.
 */
#include "auth/auth.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "te.h"

#define FILE_TEXT \
    "b:QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkI=\na:QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=\n"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tei_auth *auth;

static void open_once(void)
{
    struct tei_conf *conf = calloc(1, sizeof(*conf));
    char path[] = "/tmp/te_fuzz_XXXXXX";
    int fd = mkstemp(path);

    assert(conf && fd >= 0);
    assert(write(fd, FILE_TEXT, strlen(FILE_TEXT)) == (ssize_t)strlen(FILE_TEXT));
    close(fd);
    strcpy(conf->auth, "psk");
    strcpy(conf->auth_keys, path);
    te_log_set_level(TE_LOG_OFF);
    if (tei_auth_open(conf, 1, &auth) != 0)
        abort();
    unlink(path);
    free(conf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum tei_secure_state state = TEI_SECURE_WAIT;
    struct tei_secure *s;
    size_t piece, at = 1, n;
    int fds[2];

    if (!auth)
        open_once();
    if (size < 1)
        return 0;
    piece = (size_t)data[0] + 1;
    assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    s = tei_secure_open(auth, fds[1], true, NULL);
    assert(s);
    while (state == TEI_SECURE_WAIT && at < size) {
        ssize_t sent = send(fds[0], data + at, tei_min(piece, size - at), MSG_NOSIGNAL);

        at += sent > 0 ? (size_t)sent : 0;
        state = tei_secure_greet(s);
        assert(state != TEI_SECURE_DONE);
    }
    (void)tei_secure_first(s, &n);
    assert(n <= TEI_SECURE_FIRST);
    tei_secure_free(s);
    close(fds[0]);
    close(fds[1]);
    return 0;
}
