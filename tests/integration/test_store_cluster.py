#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""What etcd alone has: a cluster whose members die, changes that are told, a limit on values."""
import time

import te_proc as te
import te_stores as stores

SIZE = 256 << 10
TTL = 2  # where the end of keys is what it is about
LONG_TTL = 600
ROUNDS = 4
MANY, SMALL = 12000, 4096


class EtcdCase(stores.StoreCase):
    Store = stores.Etcd
    options = (f"TE_METADATA_TTL_S={LONG_TTL}",)


class Cluster(EtcdCase):
    Store = stores.EtcdCluster

    def setUp(self):
        super().setUp()
        self.target, self.node = self.peer("node-a"), self.peer("node-b")
        self.linked = self.link(self.node, self.target, SIZE)

    def member_in_use(self, turn):
        """One that an engine has a connection to, or else each in turn."""
        used = self.store.used_by(self.node) + self.store.used_by(self.target)
        return used[0] if used else self.store.members[turn % len(self.store.members)]

    def all_works(self, turn):
        """Announce, open and transfers, with one member missing."""
        index, segment, remote = self.linked
        self.node.round_trip(segment, index, SIZE, remote, turn)
        newcomer = self.peer(f"node-{turn}")
        self.link(newcomer, self.target, SIZE, seed=turn)
        segment = self.node.open(newcomer.segment)
        _, address = newcomer.region(SIZE)
        self.node.round_trip(segment, index, SIZE, address, turn)
        self.node.ask("close", segment)
        self.quit(newcomer)

    def ends_well(self):
        self.wait_keys("node-a", "node-b")
        self.quit(self.node, self.target)
        self.assertEqual(self.store.keys(), [])

    def test_members_die(self):
        for turn in range(ROUNDS):
            member = self.member_in_use(turn)
            member.kill()
            self.all_works(turn)
            member.restart()
            self.store.wait_ready()
        self.ends_well()

    def test_member_freezes(self):
        """A member that accepts connections and answers nothing costs a part of the time allowed."""
        member = self.member_in_use(0)
        member.freeze()
        try:
            self.all_works(0)
        finally:
            member.thaw()
        self.store.wait_ready()
        self.ends_well()

    def test_no_majority(self):
        """Without a majority nothing can be announced; with one again, what expired comes back."""
        short = self.peer("node-s", f"TE_METADATA_TTL_S={TTL}")
        first, second = self.store.members[:2]
        first.kill()
        second.kill()
        index, segment, remote = self.linked
        end = time.monotonic() + TTL + 2
        while time.monotonic() < end:
            self.node.round_trip(segment, index, SIZE, remote, 1)
        self.assertNotEqual(self.node.refused("open", "node-c"), "")
        for member in (first, second):
            member.restart()
        self.store.wait_ready()
        self.wait_keys("node-a", "node-b", "node-s")
        self.quit(short)
        self.ends_well()


class Changes(EtcdCase):
    """A change of a descriptor reaches those who have the segment open, without a transfer."""

    def setUp(self):
        super().setUp()
        self.target, self.node = self.peer("node-a"), self.peer("node-b")
        self.target.region(SIZE)
        self.segment = self.node.open("node-a")

    def buffers(self):
        return int(self.node.ask("buffers", self.segment)[0])

    def wait_buffers(self, count):
        te.until(lambda: self.buffers() == count, lambda: f"{count} buffers, not {self.buffers()}")

    def test_regions_come_and_go(self):
        self.wait_buffers(1)
        for count in range(2, 6):
            index, _ = self.target.region(SIZE)
            self.wait_buffers(count)
        self.target.ask("drop", index)
        self.wait_buffers(4)
        self.quit(self.node, self.target)

    def test_restarted_engine(self):
        """The descriptor of a new life arrives too."""
        self.target.kill()
        again = self.peer("node-a")
        for _ in range(3):
            _, remote = again.region(SIZE)
        self.wait_buffers(3)
        index, _ = self.node.region(2 * SIZE)
        self.node.round_trip(self.segment, index, SIZE, remote, 1)
        self.quit(self.node, again)

    def test_after_an_outage(self):
        """The store dies and comes back empty; changes are told again."""
        self.store.kill()
        self.store.restart(empty=True)
        self.wait_keys("node-a", "node-b")
        self.target.region(SIZE)
        self.wait_buffers(2)
        self.target.region(SIZE)
        self.wait_buffers(3)
        self.quit(self.node, self.target)

    def test_hostile_change(self):
        """A bad descriptor does not replace the good one, nor end the watch."""
        key = "mooncake/ram/node-a"
        good = self.store.get(key)
        for bad in (b"", b"[", b"{}", b"null", b"\0" * 1000, good[:-9]):
            self.store.put(key, bad)
            self.assertEqual(self.buffers(), 1)
        self.target.region(SIZE)  # which is told after them
        self.wait_buffers(2)
        self.quit(self.node, self.target)

    def test_closed_segments_cost_nothing(self):
        """Opening, closing and changing for long leaves no connection behind."""
        self.node.ask("close", self.segment)
        before = None
        for _ in range(ROUNDS * 5):
            self.segment = self.node.open("node-a")
            self.target.region(SIZE)
            self.node.ask("close", self.segment)
            before = before or self.node.sockets()
        self.node.wait_sockets(before + ROUNDS * 2 - 1)
        self.quit(self.node, self.target)

    def test_end_while_watching(self):
        """An engine ends although its watch is open, and also while the store is frozen."""
        for frozen in (False, True):
            peer = self.peer("node-c")
            peer.open("node-a")
            if frozen:
                self.store.freeze()
            self.quit(peer)
        self.store.thaw()
        self.quit(self.node, self.target)


class LargeValues(EtcdCase):
    def test_more_than_a_request_may_have(self):
        """More regions than fit into a value of etcd: an error that tells the way out, no more."""
        target, node = self.peer("node-with-a-name-that-is-rather-long" * 3), self.peer("node-b")
        index, segment, remote = self.link(node, target, SIZE)
        target.send("regions", MANY, SMALL)
        answer = target.reply()

        def told():
            return "--max-request-bytes" in " ".join(answer) + target.error_output()

        te.until(told, lambda: f"an error that names the option: {answer}, {target}")
        node.round_trip(segment, index, SIZE, remote, 2)
        if answer[0] == "ok":  # a peer asks the engine itself for what the store does not know
            node.round_trip(segment, index, SIZE, int(answer[2]), 3)
            target.ask("drop", answer[1])
        _, remote = target.region(SIZE)
        te.until(lambda: str(remote).encode() in (self.store.get(f"mooncake/ram/{target.segment}") or b""),
                 "the descriptor in the store, when it is small again")
        self.wait_keys(target.segment, "node-b")
        reader = self.peer("node-c")
        self.link(reader, target, SIZE)
        self.quit(reader, node, target)

    def test_with_a_larger_limit(self):
        """What the text advises does help."""
        with stores.Etcd(flags=("--max-request-bytes", str(64 << 20))) as large:
            name = "node-with-a-name-that-is-rather-long" * 3
            target, node = (self.peer(n, url=large.url) for n in (name, "node-b"))
            _, remote = (int(x) for x in target.ask("regions", MANY, SMALL))
            te.until(lambda: len(large.get(f"mooncake/ram/{name}") or b"") > 1700000, "a large value")
            segment = node.open(name)
            index, _ = node.region(2 * SIZE)
            node.round_trip(segment, index, SIZE, remote + (MANY - 100) * SMALL, 1)
            self.quit(node, target)


if __name__ == "__main__":
    te.main()
