/* SPDX-License-Identifier: Apache-2.0 */
/* memory_location.h - on which NUMA node memory is; and kWildcardLocation. */
#ifndef MOONCAKE_MEMORY_LOCATION_H
#define MOONCAKE_MEMORY_LOCATION_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "detail/types.h"

namespace mooncake
{

/* [start, start + len) is at one location: "cpu:N", or "*" where it is not known. */
struct MemoryLocationEntry {
    uint64_t start;
    size_t len;
    std::string location;
};

namespace detail
{

/* Of pages that follow each other; "*" of those that were never touched, and of memory of devices. */
inline std::vector<std::string> locations_of_pages(uintptr_t page, size_t n, size_t page_size)
{
    std::vector<void *> pages(n);
    std::vector<int> nodes(n, -1);
    std::vector<std::string> out;

    for (size_t i = 0; i < n; i++)
        pages[i] = reinterpret_cast<void *>(page + i * page_size);
    if (syscall(SYS_move_pages, 0, n, pages.data(), nullptr, nodes.data(), 0) != 0)
        nodes.assign(n, -1);
    for (int node : nodes)
        out.push_back(node >= 0 ? "cpu:" + std::to_string(node) : any_location);
    return out;
}

} /* namespace detail */

/*
 * The locations of [start, start + len), one after the other and without a gap; neighbours differ.
 * `only_prefix`: only the first page is looked at, and all counts as being there. Memory that was never
 * touched is nowhere yet.
 */
inline std::vector<MemoryLocationEntry> getMemoryLocation(void *start, size_t len,
                                                          bool only_prefix = false)
{
    constexpr size_t step = 4096; /* pages that are asked for at a time */
    const size_t page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(start), end = begin + len;
    uintptr_t page = begin / page_size * page_size;
    std::vector<MemoryLocationEntry> out;

    for (bool go_on = len > 0; go_on && page < end; go_on = !only_prefix) {
        const size_t n = only_prefix ? 1 : std::min(step, (end - page - 1) / page_size + 1);
        for (const std::string &where : detail::locations_of_pages(page, n, page_size)) {
            const uintptr_t from = std::max(begin, page);
            const uintptr_t to = only_prefix ? end : std::min(end, page + page_size);
            if (out.empty() || out.back().location != where)
                out.push_back({from, 0, where});
            out.back().len += to - from;
            page += page_size;
        }
    }
    return out;
}

} /* namespace mooncake */

#endif
