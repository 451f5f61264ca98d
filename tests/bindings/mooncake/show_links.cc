/* SPDX-License-Identifier: Apache-2.0 */
/* In the manner of Mooncake's show_link and its test: before init() and after it, as text and as JSON. */
#include <iostream>

#include "transfer_engine.h"

#include "check.h"

using namespace mooncake;

static void check(const TransferEngine &engine)
{
    const std::string text = engine.showLinks(), json = engine.showLinks(true);

    CHECK(text.find("=== Local NICs ===") != std::string::npos);
    CHECK(text.find("=== Topology (NIC Selection) ===") != std::string::npos);
    CHECK(json.front() == '{' && json.back() == '}');
    CHECK(json.find("\"local_nics\"") != std::string::npos);
    CHECK(json.find("\"topology\"") != std::string::npos);
}

int main()
{
    auto engine = std::make_unique<TransferEngine>(false);
    std::vector<NicLoadStats> stats(1);

    check(*engine);
    CHECK(!engine->getNicLoadStats(stats).ok() && stats.empty());
    CHECK(engine->numContexts() == 0 && !engine->isTcpOnly() && !engine->isUsingTent());
    engine->setAutoDiscover(AutoDiscoverConfig{true, "tcp"});
    engine->setWhitelistFilters({"mlx5_0"});
    CHECK(engine->init(P2PHANDSHAKE, "127.0.0.1") == 0);
    check(*engine);
    CHECK(engine->getNicLoadStats(stats).ok() && stats.empty());
    CHECK(engine->numContexts() == 0 && engine->isTcpOnly() && !engine->isUsingTent());
    CHECK(engine->getBaseAddr() == nullptr);
    std::cout << engine->showLinks() << engine->getLocalTopologyString() << std::endl;

    /* From hand to hand. */
    std::vector<TransferEngine> engines;
    char memory[100];
    CHECK(engine->registerLocalMemory(memory, sizeof(memory)) == 0);
    Transport *tcp = engine->getTransport("tcp");
    const std::string address = engine->getLocalIpAndPort();
    auto metadata = engine->getMetadata();
    engines.push_back(std::move(*engine));
    engines.emplace_back(false);
    CHECK(engine->getLocalIpAndPort().empty() && engine->openSegment("x") == -1);
    CHECK(engines[0].getLocalIpAndPort() == address && engines[0].getMetadata() == metadata);
    CHECK(engines[0].getTransport("tcp") == tcp && engines[0].checkOverlap(memory, 1));
    CHECK(engine->init(P2PHANDSHAKE, "127.0.0.1") == 0);
    engines[0] = std::move(*engine);
    CHECK(engines[0].getLocalIpAndPort() != address && !engines[0].checkOverlap(memory, 1));
    CHECK(!metadata->getSegmentDescByID(LOCAL_SEGMENT_ID));
    check(engines[0]);
    return 0;
}
