/* SPDX-License-Identifier: Apache-2.0 */
#include "te_segment/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/os.h"
#include "te_segment/command.h"

#define LOOK_NS 10000000L

/* Which package has it, for those who have not. */
static const char *package_of(const char *program)
{
    return strcmp(program, "nvme") == 0 ? "nvme-cli" : "mount";
}

static int start(const char *const argv[], pid_t *pid)
{
    posix_spawn_file_actions_t io;
    int rc = posix_spawn_file_actions_init(&io);

    if (rc)
        return rc;
    rc = posix_spawn_file_actions_addopen(&io, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!rc)
        rc = posix_spawn_file_actions_adddup2(&io, STDERR_FILENO, STDOUT_FILENO);
    if (!rc)
        rc = posix_spawnp(pid, argv[0], &io, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&io);
    return rc;
}

/* Its status as waitpid(2) has it; kills it when the time is over, which *late tells. */
static int wait_for(pid_t pid, int64_t deadline_ns, bool *late)
{
    const struct timespec look = {.tv_nsec = LOOK_NS};
    int status = 0;

    *late = false;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (tei_left_ms(deadline_ns) == 0) {
            *late = true;
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            break;
        }
        nanosleep(&look, NULL);
    }
    return status;
}

/* What a status of waitpid(2) means. */
static int judge(const char *const argv[], int status)
{
    const char *what = argv[1][0] == '-' ? "" : argv[1], *space = *what ? " " : "";

    if (WIFSIGNALED(status))
        return fail(FAILED, "%s%s%s died of signal %d", argv[0], space, what, WTERMSIG(status));
    if (WEXITSTATUS(status))
        return fail(FAILED, "%s%s%s failed with status %d; why, it says above", argv[0], space,
                    what, WEXITSTATUS(status));
    return 0;
}

int program_run(const char *const argv[], double limit_s)
{
    int64_t deadline = tei_deadline_ns((int64_t)(limit_s * 1000));
    bool late;
    pid_t pid;
    int status, rc = start(argv, &pid);

    if (rc == ENOENT)
        return fail(FAILED, "there is no program '%s' in PATH: install it (package %s)", argv[0],
                    package_of(argv[0]));
    if (rc)
        return fail(FAILED, "program '%s' does not start: %s", argv[0], strerror(rc));
    status = wait_for(pid, deadline, &late);
    if (late)
        return fail(FAILED, "%s was not done in %g s and is ended; --wait gives it longer", argv[0],
                    limit_s);
    return judge(argv, status);
}
