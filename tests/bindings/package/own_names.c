/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that has functions of its own by names of the libraries inside of the archive. They are
 * called by nobody but itself; the transfer is that of user.c.
 */
#include <stdlib.h>

static int calls;

/* Of jansson, hiredis, liburing, hwloc, libcurl and libudev; none has these parameters. */
#define OWN(name)          \
    int name(int number);  \
    int name(int number)   \
    {                      \
        calls++;           \
        return number + 1; \
    }
OWN(json_loads)
OWN(json_object)
OWN(json_delete)
OWN(redisConnect)
OWN(io_uring_queue_init)
OWN(hwloc_topology_init)
OWN(hwloc_topology_load)
OWN(curl_easy_init)
OWN(curl_global_init)
OWN(udev_new)
OWN(tei_fail)

static void check_calls(void)
{
    if (calls != 0)
        _Exit(4);
    if (json_loads(1) + redisConnect(2) + curl_easy_init(3) != 9 || calls != 3)
        _Exit(5);
}

__attribute__((constructor)) static void at_end(void)
{
    atexit(check_calls);
}
