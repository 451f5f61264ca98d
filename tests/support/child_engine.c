/* SPDX-License-Identifier: Apache-2.0 */
#include "child_engine.h"
#include "patience.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void engines_are_patient(void)
{
    setenv("TE_HOST_TIMEOUT_MS", "60000", 0);
    setenv("TE_METADATA_TIMEOUT_MS", "60000", 0);
    setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", "60", 0);
}

void loopback_options(te_options *o)
{
    engines_are_patient();
    te_options_init(o);
    o->metadata = "P2PHANDSHAKE";
    o->local_server_name = "127.0.0.1";
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

static uint64_t word_at(uint64_t seed, size_t i)
{
    return mix(seed * 0x9e3779b97f4a7c15ULL + i);
}

void fill(void *buf, size_t n, uint64_t seed)
{
    unsigned char *p = buf;

    for (size_t i = 0; i < n; i += 8) {
        uint64_t w = word_at(seed, i / 8);

        memcpy(p + i, &w, n - i < 8 ? n - i : 8);
    }
}

size_t first_difference(const void *buf, size_t n, uint64_t seed)
{
    const unsigned char *p = buf;

    for (size_t i = 0; i < n; i += 8) {
        uint64_t w = word_at(seed, i / 8);
        size_t part = n - i < 8 ? n - i : 8;

        for (size_t j = 0; memcmp(p + i, &w, part) != 0 && j < part; j++)
            if (p[i + j] != ((unsigned char *)&w)[j])
                return i + j;
    }
    return n;
}

void *map_pages(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert(p != MAP_FAILED);
    return p;
}

/* In the child: serves until the test closes its end of the pipe. */
static void serve(struct child_engine *c, unsigned access, int name_fd, int done_fd)
{
    te_engine *e = NULL;
    te_options o;
    char byte;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    loopback_options(&o);
    if (te_engine_create(&o, &e) != 0 || te_register(e, c->mem, c->size, "*", access) != 0 ||
        te_engine_name(e, c->name, sizeof(c->name)) != 0) {
        fprintf(stderr, "child engine: %s\n", te_errmsg());
        _exit(1);
    }
    if (write(name_fd, c->name, sizeof(c->name)) != (ssize_t)sizeof(c->name))
        _exit(1);
    while (read(done_fd, &byte, 1) > 0)
        continue;
    te_engine_destroy(e);
    _exit(0);
}

void child_start(struct child_engine *c, size_t size, unsigned access)
{
    int name_pipe[2], done_pipe[2];

    memset(c, 0, sizeof(*c));
    c->size = size;
    c->mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(c->mem != MAP_FAILED);
    assert(pipe(name_pipe) == 0 && pipe(done_pipe) == 0);
    c->pid = fork();
    assert(c->pid >= 0);
    if (c->pid == 0) {
        close(name_pipe[0]);
        close(done_pipe[1]);
        serve(c, access, name_pipe[1], done_pipe[0]);
    }
    close(name_pipe[1]);
    close(done_pipe[0]);
    c->done_fd = done_pipe[1];
    assert(read(name_pipe[0], c->name, sizeof(c->name)) == (ssize_t)sizeof(c->name));
    close(name_pipe[0]);
}

te_engine *child_open(struct child_engine *c, size_t size, te_segment *segment)
{
    te_engine *e;
    te_options o;

    child_start(c, size, TE_REMOTE_READ | TE_REMOTE_WRITE);
    loopback_options(&o);
    assert(te_engine_create(&o, &e) == 0);
    assert(te_open(e, c->name, segment) == 0);
    return e;
}

void child_freeze(const struct child_engine *c)
{
    int status;

    assert(kill(c->pid, SIGSTOP) == 0);
    assert(waitpid(c->pid, &status, WUNTRACED) == c->pid && WIFSTOPPED(status));
}

void child_stop(struct child_engine *c)
{
    int status;

    close(c->done_fd);
    kill(c->pid, SIGCONT);
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        if (waitpid(c->pid, &status, WNOHANG) == c->pid)
            goto gone;
        usleep(10000);
    }
    kill(c->pid, SIGKILL);
    waitpid(c->pid, &status, 0);
gone:
    munmap(c->mem, c->size);
}
