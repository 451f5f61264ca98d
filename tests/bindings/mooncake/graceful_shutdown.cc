/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the manner of Mooncake's test of the graceful shutdown: children that asked for it, before init() or
 * after, end with 128 + signal, and their keys are gone from the metadata server whose URL is argument 1.
 */
#include <csignal>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "transfer_engine.h"

#include "check.h"

using namespace mooncake;

/* The exit status of a child that runs `body` and gets the signal, -1 if the signal killed it. */
template <class Body> static int child_gets(int signo, Body body)
{
    int pipe_fds[2], status;
    char byte;

    CHECK(pipe(pipe_fds) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        body([&] {
            CHECK(write(pipe_fds[1], "r", 1) == 1);
            for (;;)
                pause();
        });
        _exit(1);
    }
    CHECK(read(pipe_fds[0], &byte, 1) == 1 && kill(pid, signo) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool is_published(const std::string &url, const std::string &name)
{
    return TransferMetadata(url).getSegmentDesc(name) != nullptr;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const std::string url = argv[1];

    /* Asked for after init(). */
    CHECK(child_gets(SIGTERM, [&](auto ready) {
              auto engine = std::make_unique<TransferEngine>(true);
              CHECK(engine->init(url, "after", "127.0.0.1", 0) == 0 && is_published(url, "after"));
              engine->enableGracefulShutdown();
              ready();
          }) == 128 + SIGTERM);
    CHECK(!is_published(url, "after"));

    /* Asked for before init(), where nobody ever calls that. */
    CHECK(child_gets(SIGINT, [&](auto ready) {
              TransferEngine engine;
              engine.enableGracefulShutdown();
              ready();
          }) == 128 + SIGINT);

    /* Remembered by the engine that was asked, and by the one after it. */
    CHECK(child_gets(SIGTERM, [&](auto ready) {
              TransferEngine engine, later;
              engine.enableGracefulShutdown();
              CHECK(engine.init(url, "before", "127.0.0.1", 0) == 0);
              CHECK(later.init(url, "later", "127.0.0.1", 0) == 0);
              CHECK(is_published(url, "before") && is_published(url, "later"));
              ready();
          }) == 128 + SIGTERM);
    CHECK(!is_published(url, "before") && !is_published(url, "later"));

    /* Children of such a process: without an engine and with one, and the parent's goes on. */
    CHECK(child_gets(SIGTERM, [&](auto ready) {
              TransferEngine engine;
              engine.enableGracefulShutdown();
              CHECK(engine.init(url, "parent", "127.0.0.1", 0) == 0);
#ifndef __SANITIZE_THREAD__ /* for the child of a process with threads it has none, and no handler of a signal */
              CHECK(child_gets(SIGTERM, [](auto child_ready) { child_ready(); }) == 128 + SIGTERM);
              CHECK(child_gets(SIGINT, [&](auto child_ready) {
                        TransferEngine own;
                        CHECK(own.init(url, "child", "127.0.0.1", 0) == 0);
                        CHECK(is_published(url, "child"));
                        child_ready();
                    }) == 128 + SIGINT);
#endif
              CHECK(is_published(url, "parent") && !is_published(url, "child"));
              ready();
          }) == 128 + SIGTERM);
    CHECK(!is_published(url, "parent"));
    return 0;
}
