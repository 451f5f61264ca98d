#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A segment as Mooncake's engine for Ascend publishes it is opened, refused by name, and explained."""
import json
import unittest

import te_proc as te
import te_stores

BUFFER = 0x100000
DESCRIPTOR = {
    "name": "theirs", "protocol": "ascend", "devices": [{"name": "npu", "lid": 0}], "tcp_data_port": 0,
    "buffers": [{"name": "npu:0", "addr": BUFFER, "length": 4096, "device_id": 0}],
    "rank_info": {"rankId": 3, "hostIp": "10.0.0.1", "hostPort": 20003, "deviceLogicId": 1, "devicePhyId": 5,
                  "deviceType": 3, "deviceIp": "192.168.1.5", "devicePort": 16666, "pid": 77, "endpoints": []},
}
DIRECT = {
    "name": "theirs", "protocol": "ascend_direct", "tcp_data_port": 0,
    "buffers": [{"name": "npu:0", "addr": BUFFER, "length": 4096}],
}


def setUpModule():
    te.need("http")


class AscendSegment(unittest.TestCase):
    def explained(self, descriptor, *parts):
        with te.Metad() as metad:
            for key, value in zip(te_stores.keys_of("theirs"),
                                  ({"ip_or_host_name": "127.0.0.1", "rpc_port": te.dead_port()}, descriptor)):
                te.put(f"{metad.url}?key={key}", json.dumps(value).encode())
            with te.Peer(name="ours", metadata=metad.url) as peer:
                index, _ = peer.region(4096)
                segment = peer.open("theirs")
                text = peer.refused("explain", "read", segment, index, BUFFER, 100)
                for part in ("target: its engine moves data by a library of the NPU's maker", *parts,
                             "see docs/ascend.md"):
                    self.assertIn(part, text)
                protocol = descriptor["protocol"]
                self.assertIn(f"no installed transport reaches segment 'theirs' of protocol '{protocol}'",
                              peer.refused("move", "read", segment, index, 0, BUFFER, 100, 1, 5000))

    def test_a_rank(self):
        self.explained(DESCRIPTOR, "HCCL: rank 3 on 10.0.0.1:20003, device 1 (physical 5) at 192.168.1.5:16666")

    def test_no_rank(self):
        self.explained(DIRECT, "ascend_direct (HCCS): no rank is told")


if __name__ == "__main__":
    te.main()
