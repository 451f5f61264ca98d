#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1800
"""transfer_engine_bench --trace: what moves, what is kept, when, and what is refused."""
import collections
import json
import os
import random
import signal
import unittest

import te_proc as te

BENCH = "transfer_engine_bench"
TOKENS = 512


def request(tokens, ids, timestamp=0):
    return {"timestamp": timestamp, "input_length": tokens, "output_length": 1, "hash_ids": list(ids)}


def write_trace(name, requests):
    """The path of a trace; a request may be a line of text, too."""
    path = os.path.join(te.Workdir.get(), name)
    with open(path, "w", encoding="utf-8") as f:
        f.writelines((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in requests)
    return path


def conversations(count, seed=7):
    """Requests of conversations that grow: long common prefixes, and a last block in part."""
    rng = random.Random(seed)
    fresh = iter(range(1, 1 << 30))
    prefixes, requests = [[next(fresh)] for _ in range(8)], []
    for i in range(count):
        at = rng.randrange(len(prefixes))
        ids = prefixes[at] + [next(fresh) for _ in range(rng.randrange(1, 7))]
        requests.append(request((len(ids) - 1) * TOKENS + rng.randrange(1, TOKENS), ids, timestamp=3 * i))
        prefixes[at] = ids[:-1] if len(ids) < 20 else [next(fresh)]
    return requests


def simulate(requests, slots, bytes_per_token):
    """What a cache with one request at a time does."""
    cache, got = collections.OrderedDict(), collections.Counter()
    for r in requests:
        mine = set()
        for i, block in enumerate(r["hash_ids"]):
            length = min(TOKENS, r["input_length"] - TOKENS * i) * bytes_per_token
            have = cache.get(block, 0)
            if have >= length:
                got["blocks_hit"] += 1
                cache.move_to_end(block)
                mine.add(block)
                continue
            if not have and len(cache) == slots:
                victim = next((b for b in cache if b not in mine), None)
                if victim is None:
                    got["blocks_left_out"] += 1
                    continue
                del cache[victim]
                got["blocks_evicted"] += 1
            cache[block] = length
            cache.move_to_end(block)
            mine.add(block)
            got["blocks_missed"] += 1
            got["bytes"] += length
    return got


def all_bytes(requests, bytes_per_token):
    return sum(r["input_length"] for r in requests) * bytes_per_token


class WithTarget(unittest.TestCase):
    SIZE = 8 << 20

    @classmethod
    def setUpClass(cls):
        cls.target = te.Target(size=str(cls.SIZE))

    @classmethod
    def tearDownClass(cls):
        cls.target.close()

    def replay(self, path, *flags, segment=None, rc=0, **more):
        proc = te.bench(segment or self.target.segment, f"--trace={path}", *flags, **more)
        self.assertEqual(proc.rc, rc, proc)
        return proc

    def result(self, path, *flags, **more):
        return json.loads(self.replay(path, "--json", *flags, **more).output())

    def check(self, result, want):
        self.assertEqual({key: result[key] for key in want}, dict(want))

    def test_cache_is_kept_as_a_model_says(self):
        requests = conversations(200)
        path = write_trace("model", requests)
        for slots in (24, 256):
            want = simulate(requests, slots, 64)
            result = self.result(path, "--bytes-per-token=64", f"--trace-lru={slots * TOKENS * 64}",
                                 "--trace-inflight=1", "--verify")
            for key in ("blocks_hit", "blocks_missed", "blocks_left_out", "blocks_evicted", "bytes"):
                self.assertEqual(result[key], want[key], key)
            self.assertEqual(result["cache_blocks"], slots)
            self.assertEqual(result["request_count"], len(requests))
            self.assertEqual(result["verified_bytes"], all_bytes(requests, 64))
            self.assertGreater(want["blocks_hit"], 0)
        self.assertGreater(simulate(requests, 24, 64)["blocks_evicted"], 0)

    def test_many_in_flight_in_a_small_cache(self):
        """a slot that a request in flight uses is not given away: every byte is right"""
        requests = conversations(300, seed=11)
        path = write_trace("inflight", requests)
        blocks = sum(len(r["hash_ids"]) for r in requests)
        for slots, inflight in ((26, 16), (40, 8), (200, 64)):
            result = self.result(path, "--bytes-per-token=64", f"--trace-lru={slots * TOKENS * 64}",
                                 f"--trace-inflight={inflight}", "--verify", "--threads=1")
            self.check(result, {"failed": False, "corrupt": False, "requests_in_part": 0,
                                "verified_bytes": all_bytes(requests, 64)})
            self.assertEqual(result["blocks_hit"] + result["blocks_missed"], blocks)

    def test_hit_on_a_block_under_way(self):
        """a request that finds all its blocks, but some still being written, is complete after them"""
        requests = [request(10 * TOKENS, range(i, i + 10)) for i in range(0, 200, 10) for _ in range(3)]
        path = write_trace("under-way", requests)
        result = self.result(path, "--bytes-per-token=512", "--verify")
        self.check(result, {"blocks_hit": 400, "blocks_missed": 200, "failed": False,
                            "verified_bytes": all_bytes(requests, 512)})

    def test_text(self):
        path = write_trace("text", [request(1300, [1, 2, 3]), "", request(1024, [1, 2])])
        proc = self.replay(path, "--bytes-per-token=64", "--verify", "--report_unit=MiB")
        self.assertRegex(proc.output(),
                         r"(?m)^Trace completed: duration [\d.]+, requests 2 of 2, goodput [\d.]+ MiB/s$")
        self.assertRegex(proc.output(), r"(?m)^Blocks: 5 of 32768 bytes, 2 hit \(40\.00 %\), 3 missed, "
                                        r"0 evicted from 256 slots$")
        self.assertRegex(proc.output(), rf"(?m)^Written: {1300 * 64} bytes$")
        self.assertRegex(proc.output(), r"(?m)^Request completion: avg [\d.]+, p50 [\d.]+, p90 [\d.]+, "
                                        r"p99 [\d.]+, max [\d.]+ ms$")
        self.assertRegex(proc.output(), rf"(?m)^Verified: {2324 * 64} bytes, 0 errors$")
        self.assertNotIn("in part", proc.output())

    def test_odd_requests(self):
        """no blocks; one id twice; an id whose block is longer the second time"""
        requests = [request(0, []), request(100, [5]), request(1024, [5, 5]), request(600, [6, 7]),
                    request(1100, [6, 7, 8])]
        path = write_trace("odd", requests)
        for inflight in (1, 8):
            result = self.result(path, "--bytes-per-token=7", "--verify", f"--trace-inflight={inflight}")
            self.check(result, {"blocks_hit": 2, "blocks_missed": 6, "blocks_evicted": 0,
                                "bytes": 7 * (100 + 512 + 600 + 512 + 76),
                                "verified_bytes": all_bytes(requests, 7), "request_count": 5})

    def test_request_larger_than_the_cache(self):
        requests = [request(5 * TOKENS, range(5)), request(TOKENS, [1])]
        path = write_trace("large", requests)
        flags = ("--bytes-per-token=64", f"--trace-lru={3 * TOKENS * 64}", "--verify")
        self.check(self.result(path, *flags),
                   {"requests_in_part": 1, "blocks_left_out": 2, "blocks_missed": 3, "blocks_hit": 1,
                    "verified_bytes": 4 * TOKENS * 64, "request_count": 2, "failed": False})
        self.assertRegex(self.replay(path, *flags).output(),
                         r"(?m)^Moved in part: 1 requests, .* 2 blocks left out$")

    def test_buffers_of_several_sizes(self):
        """blocks lie in every buffer of the target, none across an edge"""
        requests = conversations(60)
        path = write_trace("buffers", requests)
        with te.Peer() as peer:
            block = TOKENS * 64
            for size in (3 * block + 100, block, 20 * block - 1):
                peer.region(size)
            result = self.result(path, "--bytes-per-token=64", "--verify", segment=peer.segment)
            self.check(result, {"cache_blocks": 3 + 1 + 19, "failed": False,
                                "verified_bytes": all_bytes(requests, 64)})

    def test_pace(self):
        requests = [request(TOKENS, [i], timestamp=1000 + 250 * i) for i in range(5)]
        path = write_trace("pace", requests)
        for speed, seconds in ((1, 1.0), (4, 0.25)):
            result = self.result(path, "--bytes-per-token=64", f"--trace-speed={speed}")
            self.assertGreaterEqual(result["duration_s"], seconds)
            self.assertEqual(result["request_count"], 5)

    def test_arrival_begins_the_clock_of_a_request(self):
        """not the begin of the replay: those that arrive late have had only what was left of it"""
        late_s = 1.5
        requests = [request(TOKENS, [i], timestamp=int(late_s * 1e3) * (i > 0)) for i in range(9)]
        result = self.result(write_trace("late", requests), "--bytes-per-token=64", "--trace-speed=1")
        self.assertLessEqual(result["completion_ms"]["p50"], (result["duration_s"] - late_s) * 1e3 * 1.02 + 1)

    def test_only_the_first_requests(self):
        path = write_trace("first", [request(TOKENS, [1]), request(TOKENS, [2]), "what comes later"])
        result = self.result(path, "--bytes-per-token=64", "--trace-requests=2")
        self.check(result, {"request_count": 2, "trace_requests": 2, "blocks_missed": 2})

    def test_interrupt_ends_early_with_a_result(self):
        path = write_trace("long", [request(TOKENS, [i], timestamp=10**8 * i) for i in range(1000)])
        command = [te.tool(BENCH), "--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1",
                   f"--segment_id={self.target.segment}", "--protocol=tcp", "--buffer_size=8M", "--json",
                   f"--trace={path}", "--bytes-per-token=64", "--trace-speed=1"]
        before = self.target.socket_names()
        with te.Proc(command) as proc:
            self.target.wait_new_socket(before)
            self.assertEqual(proc.stop(signal.SIGINT), 0, proc)
            result = json.loads(proc.output())
        self.check(result, {"interrupted": True, "failed": False})
        self.assertLess(result["request_count"], 1000)

    def test_progress_line_on_a_terminal(self):
        path = write_trace("slow", [request(TOKENS, [i], timestamp=10**8 * i) for i in range(6)])
        command = [te.tool(BENCH), "--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1",
                   f"--segment_id={self.target.segment}", "--protocol=tcp", "--buffer_size=8M",
                   f"--trace={path}", "--bytes-per-token=64", "--trace-speed=1"]
        rc, text = te.until_on_terminal(command, r"\r[\d.]+ GB/s, \d of 6 requests, hit rate [\d.]+ %")
        self.assertEqual(rc, 0, text)

    def test_what_the_target_has_no_room_for(self):
        path = write_trace("one", [request(TOKENS, [1])])
        proc = self.replay(path, "--bytes-per-token=32K", rc=1)
        self.assertIn("start the target with --buffer_size=16M", proc.error_output())
        proc = self.replay(path, "--bytes-per-token=64", "--trace-lru=9M", "--json", rc=1)
        self.assertIn("--trace_lru=9437184 is more than the target has", proc.error_output())
        self.assertIn("--trace_lru", json.loads(proc.output())["error"])

    def test_real_trace(self):
        path = os.environ.get("TE_TEST_TRACE")
        if path is None or not os.path.exists(path):
            return
        with open(path, encoding="utf-8") as f:
            requests = [json.loads(line) for line in f if line.strip()][:500]
        result = self.result(path, "--bytes-per-token=16", "--trace-requests=500", "--verify")
        self.check(result, {"request_count": 500, "failed": False, "requests_in_part": 0,
                            "verified_bytes": all_bytes(requests, 16)})


class WithFaults(unittest.TestCase):
    def replay(self, fault):
        path = write_trace("fault", [request(4 * TOKENS, range(i, i + 4)) for i in range(0, 40, 4)])
        with te.Target(folder=te.FAULT_BIN, size="8M") as target:
            return te.bench(target.segment, f"--trace={path}", "--bytes-per-token=64", "--verify", "--json",
                            folder=te.FAULT_BIN, env={"TE_FAULT": fault})

    def test_flipped_byte_is_seen(self):
        proc = self.replay("flip=20")
        self.assertEqual(proc.rc, 1, proc)
        self.assertRegex(proc.error_output(),
                         r"Detect data integrity problem: request of line \d+, block \d+: .* 1 bytes differ")
        result = json.loads(proc.output())
        self.assertEqual((result["corrupt"], result["failed"]), (True, True))
        self.assertIn("integrity", result["error"])

    def test_failed_transfer_is_told(self):
        proc = self.replay("fail=30:ACCESS")
        self.assertEqual(proc.rc, 1, proc)
        self.assertRegex(proc.error_output(), r"FAILED: request of line \d+: (read|write) of 32768 bytes at 0x")
        result = json.loads(proc.output())
        self.assertEqual((result["corrupt"], result["failed"]), (False, True))


class Refusals(unittest.TestCase):
    THERE = ("--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1", "--segment_id=127.0.0.1:1")

    def refused(self, *flags, says, rc):
        proc = te.run(BENCH, *self.THERE, *flags)
        self.assertEqual(proc.rc, rc, proc)
        self.assertIn(says, proc.error_output())

    def test_command_line(self):
        trace = "--trace=" + write_trace("good", [request(TOKENS, [1])])
        self.refused(trace, says="--bytes_per_token is missing", rc=2)
        self.refused(trace, "--bytes-per-token=x", says="--bytes_per_token", rc=2)
        self.refused(trace, "--bytes-per-token=64", "--trace-lru=32767", says="--trace_lru=32767", rc=2)
        self.refused(trace, "--bytes-per-token=64", "--trace-speed=-1", says="expected FACTOR", rc=2)
        self.refused(trace, "--bytes-per-token=64", "--trace-inflight=0", says="--trace_inflight", rc=2)
        self.refused(trace, "--bytes-per-token=64", "--sweep", says="--sweep does not go", rc=2)
        self.refused(trace, "--bytes-per-token=64", "--operation=read", says="--operation=read", rc=2)
        self.refused("--bytes-per-token=64", says="--bytes_per_token needs a trace", rc=2)

    def test_trace_is_not_there(self):
        self.refused("--trace=/nonexistent", "--bytes-per-token=64", says="--trace=/nonexistent: No such",
                     rc=1)
        self.refused("--trace=" + te.Workdir.get(), "--bytes-per-token=64", says="Is a directory", rc=1)
        self.refused("--trace=/dev/null", "--bytes-per-token=64", says="no request in it", rc=1)

    def test_malformed_line_is_named(self):
        good = request(600, [1, 2], timestamp=9)
        for name, bad, says in (
                ("json", '{"timestamp": 0,', "no JSON"), ("array", "[1]", "no JSON object"),
                ("negative", {**good, "input_length": -1}, "input_length"),
                ("real", {**good, "timestamp": 0.5}, "timestamp"),
                ("missing", {k: v for k, v in good.items() if k != "output_length"}, "output_length is missing"),
                ("no-ids", {k: v for k, v in good.items() if k != "hash_ids"}, "hash_ids is missing"),
                ("id", {**good, "hash_ids": [1, -2]}, "hash_ids[1]"),
                ("few", {**good, "hash_ids": [1]}, "hash_ids has 1 ids, but input_length 600 is 2 blocks"),
                ("order", {**good, "timestamp": 8}, "sort the file by time")):
            with self.subTest(name):
                path = write_trace(name, [good, "", bad])
                self.refused(f"--trace={path}", "--bytes-per-token=64", says="line 3: ", rc=1)
                self.refused(f"--trace={path}", "--bytes-per-token=64", says=says, rc=1)


if __name__ == "__main__":
    te.main()
