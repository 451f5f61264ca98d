/* SPDX-License-Identifier: Apache-2.0 */
/* In the manner of Mooncake's test of memory locations. */
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "memory_location.h"

#include "check.h"

using namespace mooncake;

int main()
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = 5000, size = pages * page;
    char *memory =
        (char *)mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED && madvise(memory, size, MADV_NOHUGEPAGE) == 0);
    std::vector<MemoryLocationEntry> none = getMemoryLocation(memory, size, false);
    CHECK(none.size() == 1 && none[0].start == (uint64_t)memory && none[0].len == size);
    CHECK(none[0].location == kWildcardLocation);

    /* The pages in the middle are somewhere. */
    memset(memory + 100 * page, 1, 4500 * page);
    auto parts = getMemoryLocation(memory + 1, size - 2, false);
    uint64_t next = (uint64_t)memory + 1, placed = 0;
    for (const auto &part : parts) {
        CHECK(part.start == next && part.len > 0);
        CHECK(part.location == "*" || part.location.compare(0, 4, "cpu:") == 0);
        placed += part.location == "*" ? 0 : part.len;
        next += part.len;
    }
    CHECK(next == (uint64_t)memory + size - 1 && parts.size() >= 2);
    CHECK(placed == 4500 * page || placed == 0);

    auto prefix = getMemoryLocation(memory + 100 * page, size - 100 * page, true);
    CHECK(prefix.size() == 1 && prefix[0].len == size - 100 * page);
    CHECK(prefix[0].location == (placed ? parts[1].location : "*"));
    CHECK(getMemoryLocation(memory, 0, false).empty());
    CHECK(munmap(memory, size) == 0);
    CHECK(getMemoryLocation(memory, size, false)[0].location == "*");
    return 0;
}
