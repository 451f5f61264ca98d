#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""The target dies in the middle of transfers, and comes back under the same name."""
import json
import time
import unittest
import urllib.request

import te_proc as te

SIZE = 1 << 20
COUNT = 32
DEADLINE_MS = 20000
TERMINAL = {2, 3, 4, 5, 6}


def endless(segment, operation):
    return te.Proc([te.tool("transfer_engine_bench"), "--metadata_server=P2PHANDSHAKE",
                    f"--segment_id={segment}", "--protocol=tcp", "--local_server_name=127.0.0.1",
                    "--buffer_size=64M", "--threads=2", "--batch_size=16", "--block_size=1M",
                    te.FOREVER, f"--deadline_ms={DEADLINE_MS}", f"--operation={operation}"])


class Killed(unittest.TestCase):
    def test_bench_ends_with_an_error(self):
        for operation in ("read", "write"):
            with te.Target() as target:
                before = target.socket_names()
                with endless(target.segment, operation) as proc:
                    target.wait_new_socket(before)
                    self.ends_with_its_target(target, proc)

    def ends_with_its_target(self, target, proc):
        target.kill()
        self.assertEqual(proc.wait(), 1, proc)
        self.assertIn(target.segment, proc.error_output())

    def wait_until_it_fails(self, peer, *move, **more):
        """Memory of a dead peer that is mapped here is there until the engine hears of the death."""
        te.until(lambda: peer.move(*move, **more)[0] != te.COMPLETED, lambda: f"no transfer fails: {peer}")

    def kill_and_restart(self, peer, start_target, rounds):
        """Kills the target in mid-transfer and starts it again; the peer does nothing but transfer."""
        index, _ = peer.region(COUNT * SIZE)
        target = start_target()
        segment = int(peer.ask("open", target.segment)[0])
        before = None
        for i in range(rounds):
            _, remote = target.region(COUNT * SIZE)
            opcode = ("read", "write")[i % 2]
            peer.round_trip(segment, index, SIZE, remote, i)
            peer.send_move(opcode, segment, index, 0, remote, SIZE, COUNT, DEADLINE_MS)
            time.sleep(0.002 * i)  # ever later in it
            target.kill()
            state, error, _, text = peer.moved()
            self.assertIn(state, TERMINAL)
            if state != te.COMPLETED:
                self.assertLess(error, 0)
                self.assertNotEqual(text, "")
            if i < 2:  # with nobody there the next one fails too, and in time
                self.wait_until_it_fails(peer, opcode, segment, index, 0, remote, SIZE, deadline_ms=5000)
            target.close()
            target = start_target()
            _, remote = target.region(COUNT * SIZE)
            peer.round_trip(segment, index, SIZE, remote, 100 + i)
            before = before or peer.sockets()
            peer.wait_sockets(before + 8)
        target.close()

    def test_same_host_and_port(self):
        with te.Peer() as peer, te.Peer.at_a_port() as first:
            address = first.segment
            first.kill()

            def start():
                target = te.Peer(name=address)
                self.assertEqual(target.segment, address, target)
                return target
            self.kill_and_restart(peer, start, 10)
            self.assertEqual(peer.quit(), 0, peer)

    def test_same_name_in_the_metadata(self):
        with te.Metad() as metad, te.Peer(name="node-b", metadata=metad.url) as peer:
            self.kill_and_restart(peer, lambda: te.Peer(name="node-a", metadata=metad.url), 5)
            self.assertEqual(peer.quit(), 0, peer)

    def test_a_stranger_has_the_port(self):
        """The port that the peer knows is the handshake port of another engine by now."""
        with te.Metad() as metad, te.Peer(name="node-b", metadata=metad.url, options=["TE_HOST_PATH=0"]) as peer, \
                te.Peer(name="node-a", metadata=metad.url) as target, te.Peer() as stranger:
            key = metad.url + "?key=mooncake%2Fram%2Fnode-a"
            index, _ = peer.region(SIZE)
            _, remote = target.region(SIZE)
            with urllib.request.urlopen(key, timeout=te.HANG_S) as reply:
                good = reply.read()
            bad = {**json.loads(good), "tcp_data_port": te.split_address(stranger.segment)[1]}
            for seed in range(2):
                te.put(key, json.dumps(bad).encode())
                segment = int(peer.ask("open", target.segment)[0])
                te.put(key, good)
                peer.round_trip(segment, index, SIZE // 2, remote, seed)
                peer.ask("close", segment)
            peer.wait_error("another program answers")
            self.assertEqual(peer.quit(), 0, peer)

    def test_descriptors_after_many_failures(self):
        """A peer that is gone for good costs no descriptor."""
        with te.Peer() as peer, te.Peer() as target:
            index, _ = peer.region(SIZE)
            _, remote = target.region(SIZE)
            segment = int(peer.ask("open", target.segment)[0])
            peer.round_trip(segment, index, SIZE // 2, remote, 1)
            target.kill()
            self.wait_until_it_fails(peer, "read", segment, index, 0, remote, SIZE, deadline_ms=2000)
            before = len(peer.fds())
            for _ in range(5):
                state = peer.move("read", segment, index, 0, remote, SIZE, deadline_ms=2000)[0]
                self.assertNotEqual(state, te.COMPLETED)
            te.until(lambda: len(peer.fds()) <= before + 2, lambda: f"{before + 2} descriptors, not {peer.fds()}")
            self.assertEqual(peer.quit(), 0, peer)


if __name__ == "__main__":
    te.main()
