/* SPDX-License-Identifier: Apache-2.0 */
/* In the manner of Mooncake's tests of common.h and config.h; MC_ variables are as test_cpp_mooncake.py sets them. */
#include "common.h"
#include "config.h"

#include <thread>
#include <type_traits>
#include <unistd.h>

#include "check.h"

using namespace mooncake;

static void is(const std::string &text, const std::string &host, uint16_t port)
{
    std::pair<std::string, uint16_t> parsed = parseHostNameWithPort(text);

    if (parsed.first != host || parsed.second != port) {
        std::fprintf(stderr, "%s: %s and %u\n", text.c_str(), parsed.first.c_str(), parsed.second);
        std::exit(1);
    }
}

int main()
{
    const uint16_t fallback = getDefaultHandshakePort();
    char name[256];

    static_assert(std::is_same_v<decltype(getCurrentTimeInNano()), int64_t>);
    CHECK(gethostname(name, sizeof(name)) == 0 && getHostname() == name);
    CHECK(fallback == 12077 && globalConfig().handshake_port == 12077);
    is("node", "node", fallback);
    is("node:1234", "node", 1234);
    is("10.0.0.1:65535", "10.0.0.1", 65535);
    is("10.0.0.1:65536", "10.0.0.1", fallback);
    is("10.0.0.1:0", "10.0.0.1", fallback);
    is("10.0.0.1:12x", "10.0.0.1", fallback);
    is("node:", "node", fallback);
    is("[::1]:80", "::1", 80);
    is("[fe80::1%eth0]", "fe80::1%eth0", fallback);
    is("fe80::1", "fe80::1", fallback);
    is("", "", fallback);

    int64_t before = getCurrentTimeInNano(), before_ms = getCurrentTimeInMilli();
    while (getCurrentTimeInNano() == before)
        std::this_thread::yield();
    CHECK(getCurrentTimeInNano() > before && getCurrentTimeInMilli() >= before_ms);
    CHECK(before / 1000000 - before_ms <= 0);
    std::thread([] {
        if (access("/sys/devices/system/node/node0", F_OK) == 0)
            CHECK(bindToSocket(0) == 0);
        CHECK(bindToSocket(12345) < 0);
    }).join();

    GlobalConfig &config = globalConfig();
    CHECK(&config == &globalConfig());
    CHECK(config.slice_size == 131072 && config.fragment_limit == 32768 && config.retry_cnt == 9);
    CHECK(config.gid_index == -1 && config.ib_traffic_class == 96 && config.ib_service_level == -1);
    CHECK(config.num_qp_per_ep == 2 && config.mtu_length == 1024 && config.max_cqe == 4096);
    CHECK(config.endpoint_store_type == EndpointStoreType::FIFO && !config.metacache &&
          !config.use_ipv6);
    CHECK((config.mlx5_qp_udp_sports == std::vector<uint16_t>{49152, 49153, 50000}));
    CHECK(config.max_mr_size == uint64_t{1} << 40 && config.max_concurrent_reg_mr == 0);
    CHECK(config.workers_per_ctx == 2 && config.rpc_min_port == 15000 &&
          config.rpc_max_port == 17000);
    CHECK(!config.trace && config.log_level == 1 && config.parallel_reg_mr == -1 &&
          config.port == 1);
    return 0;
}
