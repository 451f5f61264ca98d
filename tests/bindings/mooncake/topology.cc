/* SPDX-License-Identifier: Apache-2.0 */
/* In the manner of Mooncake's test of the topology: parsing, selection, disabled devices; and an engine's. */
#include <set>

#include "topology.h"
#include "transfer_engine.h"

#include "check.h"

using namespace mooncake;

static const char *matrix =
    "{\"cpu:0\" : [[\"a0\",\"a1\"],[\"a2\"]], \"cpu:1\":[[],[\"a2\", \"a3\"]]}";

int main()
{
    Topology topology, other;

    CHECK(topology.empty() && topology.parse(matrix) == 0 && !topology.empty());
    CHECK(topology.toString() ==
          "{\"cpu:0\":[[\"a0\",\"a1\"],[\"a2\"]],\"cpu:1\":[[],[\"a2\",\"a3\"]]}");
    CHECK(topology.parse("{\"cpu:0\":[[") != 0 && topology.parse("[]") != 0);
    const auto &entries = topology.getMatrix();
    CHECK(entries.size() == 2 && entries.at("cpu:0").name == "cpu:0");
    CHECK((entries.at("cpu:0").preferred_hca == std::vector<std::string>{"a0", "a1"}));
    CHECK((entries.at("cpu:1").avail_hca == std::vector<std::string>{"a2", "a3"}));
    CHECK((topology.getHcaList() == std::vector<std::string>{"a0", "a1", "a2", "a3"}));

    std::set<int> first;
    for (int i = 0; i < 10; ++i)
        first.insert(topology.selectDevice("cpu:0", 0));
    CHECK((first == std::set<int>{0, 1}));
    CHECK(topology.selectDevice("cpu:0", 1) == 0 && topology.selectDevice("cpu:0", 2) == 1);
    CHECK(topology.selectDevice("cpu:0", 3) == 2 && topology.selectDevice("cpu:0", 4) == 0);
    CHECK(topology.selectDevice("cpu:1") >= 2 && topology.selectDevice("cpu:7") < 0);
    CHECK(topology.selectDevice("*", 4) == 3);
    CHECK(topology.selectDevice("cpu:0", "a2", 0) == 2 &&
          topology.selectDevice("cpu:0", "a3", 1) == 0);
    CHECK(topology.selectDeviceByLocalHca("cpu:1", "a3") == 3);

    CHECK(other.parse(matrix) == 0 && other == topology);
    CHECK(topology.disableDevice("a2") == 0 && topology != other &&
          topology.disableDevice("none") == 0);
    CHECK(topology.toString() == "{\"cpu:0\":[[\"a0\",\"a1\"],[]],\"cpu:1\":[[],[\"a3\"]]}");
    CHECK(topology.getHcaList().size() == 3);
    other = topology;
    CHECK(other == topology);
    other.clear();
    CHECK(other.empty() && other.selectDevice("cpu:0") < 0 && other.toString() == "{}");
    CHECK(other.discover() == 0 && other.discover({"none"}) == 0);

    /* That of an engine is its own: before init() and after. */
    TransferEngine engine(false);
    auto own = engine.getLocalTopology();
    CHECK(own->parse(matrix) == 0 && own->disableDevice("a1") == 0);
    CHECK(engine.init(P2PHANDSHAKE, "127.0.0.1") == 0);
    CHECK(engine.getLocalTopology() == own);
    CHECK(own->toString() == "{\"cpu:0\":[[\"a0\"],[\"a2\"]],\"cpu:1\":[[],[\"a2\",\"a3\"]]}");
    CHECK(engine.showLinks(true).find("\"cpu:0\":[[\"a0\"],[\"a2\"]]") != std::string::npos);
    CHECK(own->disableDevice("a0") == 0 && own->parse("nonsense") < 0);
    CHECK(engine.getLocalTopologyString() ==
          "{\"cpu:0\":[[],[\"a2\"]],\"cpu:1\":[[],[\"a2\",\"a3\"]]}");
    CHECK(engine.showLinks(true).find("a0") == std::string::npos);
    CHECK(own->parse("{\"cpu:0\":[[\"b0\"],[]]}") == 0);
    CHECK(engine.showLinks(true).find("b0") != std::string::npos);
    Topology copy = *own;
    CHECK(copy.parse(matrix) == 0 && engine.getLocalTopology()->getHcaList().size() == 1);
    return 0;
}
