/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.h - a real server process (redis-server, etcd, ...) for a test: started in a temporary
 * folder of its own, and gone with the test however that ends.
 *
 * The server is killed when the thread that started it ends, so start it from the main thread.
 */
#ifndef TEST_SERVER_H
#define TEST_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TEST_SERVER_ARGS 48
#define TEST_PORT_TRIES  20 /* of a server that found its port taken by a stranger */

struct test_server {
    pid_t pid;     /* 0: not running */
    uint16_t port; /* on 127.0.0.1; what is waited for */
    char dir[64];  /* its working folder, removed in the end */
    char log[80];  /* its output: a file in that folder */
    char *argv[TEST_SERVER_ARGS + 1];
    int timeout_s;
    bool port_taken; /* it did not start, and said that a port of its own is in use */
    int life_fd;     /* at its end when the process has ended */
    struct test_server *next;
};

/* Whether the path has a program of that name. */
bool test_program_found(const char *name);

/*
 * Starts argv[0] (searched in the path), arguments up to a NULL, in a new temporary folder, and
 * waits until it listens on `port` of 127.0.0.1, at most timeout_s. False, with the end of its
 * output on stderr, if it does not.
 */
bool test_server_start(struct test_server *s, const char *const argv[], uint16_t port,
                       int timeout_s);
/*
 * An etcd of one member with its clients at `port`, or at any that is free if that is 0; `more` are flags,
 * up to a NULL, or NULL. `scheme` is that of the clients, "http" or "https".
 */
bool test_etcd_start(struct test_server *s, uint16_t port, const char *scheme,
                     const char *const more[]);
/* SIGTERM, and SIGKILL if it is not gone then; removes the folder. Also for one not started. */
void test_server_stop(struct test_server *s);

/* SIGKILL, and waits until it is gone. The folder stays. */
void test_server_kill(struct test_server *s);
/* Starts one that was killed, or kills it first: same arguments, folder and port. */
bool test_server_restart(struct test_server *s);
/* Stops it as SIGSTOP does, and returns when it has stopped. */
void test_server_freeze(const struct test_server *s);
void test_server_thaw(const struct test_server *s);

#endif
