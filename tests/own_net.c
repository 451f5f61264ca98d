/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: own_net PROGRAM [ARGUMENT...]
 *
 * Runs a test in a network of its own, which has a loopback interface and nothing else, so that the port of an
 * engine that a test has ended is not got by one of a test beside it, and nothing is sent to another machine.
 * Where the system does not let it make one (it takes CAP_SYS_ADMIN), the test runs in the network of its caller.
 */
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int loopback_up(void)
{
    struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int rc = fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &up);

    if (fd >= 0)
        close(fd);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: own_net PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    if (unshare(CLONE_NEWNET) == 0 && loopback_up() < 0) {
        fprintf(stderr, "own_net: the loopback interface of a new network cannot be set up: %s\n",
                strerror(errno));
        return 2;
    }
    execvp(argv[1], argv + 1);
    fprintf(stderr, "own_net: %s: %s\n", argv[1], strerror(errno));
    return 127;
}
