/* SPDX-License-Identifier: Apache-2.0 */
/* A program's own: the names of Mooncake's header, which must not meet ours. */
#ifndef OWN_COMMON_H
#define OWN_COMMON_H

#include <cstdint>
#include <string>
#include <utility>

#define LOCAL_SEGMENT_ID (0ull)

namespace mooncake
{

struct TaskStatus {
    int of_my_own;
};

const static std::string kWildcardLocation = "*";
const static uint16_t INVALID_BATCH_ID = 7;

static inline std::string getHostname()
{
    return "mine";
}

static inline std::pair<std::string, uint16_t> parseHostNameWithPort(const std::string &name)
{
    return {name, 1};
}

struct GlobalConfig {
    int mine = 3;
};

static inline GlobalConfig &globalConfig()
{
    static GlobalConfig config;
    return config;
}

struct MemoryLocationEntry {
    int mine;
};

} /* namespace mooncake */

#endif
