/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: own_net PROGRAM [ARGUMENT...]
 *
 * Runs a test in a network of its own, which has a loopback interface and nothing else, so that the port of an
 * engine that a test has ended is not got by one of a test beside it, and nothing is sent to another machine.
 * Where the system does not let it make one (it takes CAP_SYS_ADMIN and CAP_NET_ADMIN), and where NICs of the machine
 * are tried (TE_TEST_RDMA_NICS), the test runs in the network of its caller.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static bool loopback_up(void)
{
    struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool well = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &up) == 0;

    if (fd >= 0)
        close(fd);
    return well;
}

/* False, with errno: it is left in a network of which nothing is up. */
static bool enter_own(void)
{
    int before = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    if (before < 0 || unshare(CLONE_NEWNET) < 0)
        return true;
    return loopback_up() || setns(before, CLONE_NEWNET) == 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: own_net PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    if (!getenv("TE_TEST_RDMA_NICS") && !enter_own()) {
        fprintf(stderr, "own_net: there is no way back to the network of the caller: %s\n",
                strerror(errno));
        return 2;
    }
    execvp(argv[1], argv + 1);
    fprintf(stderr, "own_net: %s: %s\n", argv[1], strerror(errno));
    return 127;
}
