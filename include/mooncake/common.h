/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common.h - what programs for Mooncake take from the header of this name. transfer_engine.h does not
 * include it, so a program may have a common.h of its own.
 */
#ifndef MOONCAKE_COMMON_H
#define MOONCAKE_COMMON_H

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sched.h>
#include <string>
#include <time.h>
#include <unistd.h>
#include <utility>

#include "../te.h"

namespace mooncake
{

/* The name of this machine, as the kernel has it; "" if there is none. */
inline std::string getHostname()
{
    char name[256] = "";

    return gethostname(name, sizeof(name) - 1) ? "" : name;
}

/* A clock that only runs forward: good for differences. */
inline int64_t getCurrentTimeInNano()
{
    struct timespec now = {};

    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

inline int64_t getCurrentTimeInMilli()
{
    return getCurrentTimeInNano() / 1000000;
}

/* The port of a peer whose name has none: MC_HANDSHAKE_PORT, or 12001. */
inline uint16_t getDefaultHandshakePort()
{
    char text[16] = "";

    te_option_get(nullptr, "MC_HANDSHAKE_PORT", text, sizeof(text));
    return static_cast<uint16_t>(std::strtoul(text, nullptr, 10));
}

/*
 * "host:port", "[IPv6]:port", or either without a port, or a bare IPv6 address. The brackets go. What is
 * no port from 1 to 65535 counts as none: getDefaultHandshakePort() takes its place.
 */
inline std::pair<std::string, uint16_t> parseHostNameWithPort(const std::string &server_name)
{
    const bool brackets = !server_name.empty() && server_name.front() == '[';
    const size_t end = brackets ? server_name.find(']') : server_name.find(':');
    const bool bare = end == std::string::npos ||
                      (!brackets && server_name.find(':', end + 1) != std::string::npos);

    if (bare)
        return {server_name, getDefaultHandshakePort()};
    const std::string host = brackets ? server_name.substr(1, end - 1) : server_name.substr(0, end);
    const size_t colon = brackets ? end + 1 : end;
    const std::string digits = colon < server_name.size() && server_name[colon] == ':'
                                   ? server_name.substr(colon + 1)
                                   : "";
    const bool is_number = !digits.empty() && digits.size() <= 5 &&
                           digits.find_first_not_of("0123456789") == std::string::npos;
    const unsigned long port = is_number ? std::strtoul(digits.c_str(), nullptr, 10) : 0;
    return {host,
            port >= 1 && port <= 65535 ? static_cast<uint16_t>(port) : getDefaultHandshakePort()};
}

/*
 * Keeps the calling thread on the processors of a NUMA node. 0, or TE_ERR_NUMA: there is no such node,
 * or the thread may not run there.
 */
inline int bindToSocket(int socket_id)
{
    std::ifstream list("/sys/devices/system/node/node" + std::to_string(socket_id) + "/cpulist");
    unsigned first, last;
    cpu_set_t set;

    CPU_ZERO(&set);
    while (list >> first) { /* "0-3,8-11" */
        last = first;
        if (list.peek() == '-')
            list.ignore() >> last;
        for (; first <= last && first < CPU_SETSIZE; first++)
            CPU_SET(first, &set);
        list.ignore(); /* the comma */
    }
    return CPU_COUNT(&set) && sched_setaffinity(0, sizeof(set), &set) == 0 ? 0 : TE_ERR_NUMA;
}

} /* namespace mooncake */

#endif
