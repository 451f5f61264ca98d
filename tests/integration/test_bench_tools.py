#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
"""transfer_engine_bench and transfer_engine_validator: modes, flags, what they print, what they refuse."""
import json
import os
import re
import signal
import unittest

import te_proc as te

BENCH = "transfer_engine_bench"
VALIDATOR = "transfer_engine_validator"
COMPLETED = re.compile(r"^Test completed: duration [\d.]+, batch count (\d+), throughput ([\d.]+) (\w+)/s$",
                       re.M)


class WithTarget(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.target = te.Target()

    @classmethod
    def tearDownClass(cls):
        cls.target.close()

    def good(self, proc):
        self.assertEqual(proc.rc, 0, proc)
        return proc

    def bench(self, *flags, **more):
        return self.good(te.bench(self.target.segment, *flags, **more))

    def test_both_operations(self):
        for operation in ("read", "write"):
            proc = self.bench(f"--operation={operation}")
            match = COMPLETED.search(proc.output())
            self.assertTrue(match, proc)
            self.assertGreater(int(match.group(1)), 0)
            self.assertEqual(match.group(3), "GB")
            self.assertRegex(proc.output(), r"(?m)^IOPS: \d+ requests/s$")
            self.assertRegex(proc.output(), r"(?m)^Batch latency: .*p50 .*p99 .*p99\.9 ")
            self.assertRegex(proc.output(), r"(?m)^Request latency.*p50 .*p99 .*p99\.9 ")
            self.assertRegex(proc.output(), r"(?m)^Carried by: tcp$")
            self.assertNotIn("Worker", proc.error_output())

    def test_which_transport_carries(self):
        """It is told, and need not be what --protocol says."""
        with te.Target("--protocol=host") as target:
            for protocol, carrier in (("host", "host"), ("tcp", "tcp")):
                proc = self.good(te.bench(target.segment, f"--protocol={protocol}", "--json"))
                result = json.loads(proc.output())
                self.assertEqual((result["protocol"], result["carried_by"]), (protocol, carrier))
        result = json.loads(self.bench("--protocol=host", "--json").output())
        self.assertEqual((result["protocol"], result["carried_by"]), ("host", "tcp"))

    def test_json(self):
        proc = self.bench("--json", "--report_unit=MiB", "--block_size=4096")
        result = json.loads(proc.output())
        for key, value in {"block_size": 4096, "batch_size": 4, "threads": 2, "protocol": "tcp",
                           "operation": "read", "report_unit": "MiB", "failed": False}.items():
            self.assertEqual(result[key], value, key)
        self.assertEqual(result["bytes"], result["batch_count"] * 4 * 4096)
        self.assertEqual(result["request_count"], result["batch_count"] * 4)
        self.assertAlmostEqual(result["throughput"] * 2**20, result["throughput_bytes_per_s"],
                               delta=result["throughput_bytes_per_s"] / 1e6)
        for latency in (result["batch_latency_us"], result["request_latency_us"]):
            self.assertLessEqual(latency["min"], latency["p50"])
            self.assertLessEqual(latency["p50"], latency["p99"])
            self.assertLessEqual(latency["p99"], latency["p999"])
            self.assertLessEqual(latency["p999"], latency["max"])
        self.assertGreaterEqual(result["stats"]["requests_completed"], result["request_count"])

    def test_sweep(self):
        flags = ("--sweep", "--sweep_block_size=4K..16K*4,1M", "--sweep-batch-size=1,3",
                 "--sweep_threads=1,2", "--batches=3")
        lines = self.bench(*flags).lines
        self.assertEqual(lines[0].split("  ")[-1].strip(), "P999 (us)")
        for column in ("BlkSize (B)", "Batch", "Threads", "BW (GB/s)", "Avg Lat (us)", "P99 (us)"):
            self.assertIn(column, lines[0])
        rows = [line.split() for line in lines[1:]]
        self.assertEqual({tuple(row[:3]) for row in rows},
                         {(b, n, t) for b in ("4096", "16384", "1048576") for n in ("1", "3")
                          for t in ("1", "2")})
        result = json.loads(self.bench(*flags, "--json").output())
        self.assertEqual(len(result["points"]), 12)

    def test_verify(self):
        proc = self.bench("--verify", "--batches=4", "--block_size=65537")
        self.assertRegex(proc.output(), r"(?m)^Verified: [1-9]\d* bytes, 0 errors$")
        result = json.loads(self.bench("--verify", "--json", "--batches=4", "--block_size=1").output())
        self.assertEqual(result["verified_bytes"], 2 * 4 * 1)
        self.assertFalse(result["corrupt"])

    def test_validator(self):
        proc = self.good(te.bench(self.target.segment, "--batches=4", program=VALIDATOR))
        self.assertEqual(len(re.findall(r"(?m)^Worker \d+ stopped! Data validation passed$",
                                        proc.error_output())), 2)
        self.assertTrue(COMPLETED.search(proc.output()), proc)

    def test_validator_as_target(self):
        with te.Target(program=VALIDATOR) as target:
            self.good(te.bench(target.segment, "--batches=2", program=VALIDATOR))
            self.assertEqual(target.stop(), 0)

    def test_every_flag_and_spelling(self):
        matrix = os.path.join(te.Workdir.get(), "matrix.json")
        with open(matrix, "w", encoding="utf-8") as f:
            f.write('{"cpu:0": [["mlx5_0"], []]}')
        self.bench("--mode=initiator", "--metadata_type=etcd", "--device_name=erdma_0",
                   "--auto-discovery=false", "--noauto_discovery", "--operation", "write",
                   "--nic-priority-matrix=", "-block_size=4096", "--duration", "0.2", "--backend=classic",
                   "--use_vram=false", "--gpu_id=0", "--init_mem=true", "--report_unit=Gb",
                   "--report_precision=3", "--rpc_port=0", "--ip_or_host_name=127.0.0.1", "--poll",
                   "--deadline-ms=600000")
        self.bench(f"--nic_priority_matrix={matrix}", "--auto_discovery")
        self.bench("--device_name=erdma_0,erdma_1", "--auto_discovery")

    def test_precision_and_unit(self):
        proc = self.bench("--report_unit=KiB", "--report_precision=4")
        self.assertRegex(proc.output(), r"duration \d+\.\d{4}, batch count \d+, throughput \d+\.\d{4} KiB/s")

    def test_fallback_from_rdma_is_told(self):
        proc = te.run(BENCH, "--metadata_server=P2PHANDSHAKE", f"--segment_id={self.target.segment}",
                      "--local_server_name=127.0.0.1", "--batches=3", te.FOREVER, "--threads=1", "--batch_size=1",
                      "--buffer_size=1M")
        if "WARN" in proc.error_output():
            self.assertEqual(proc.rc, 0, proc)
            self.assertRegex(proc.error_output(), r"WARN: rdma .*tcp")
            self.assertEqual(proc.error_output().count("rdma' "), 1, proc)

    def test_rdma_asked_for_is_not_replaced(self):
        proc = te.run(BENCH, "--metadata_server=P2PHANDSHAKE", f"--segment_id={self.target.segment}",
                      "--local_server_name=127.0.0.1", "--protocol=rdma", "--batches=3", te.FOREVER)
        if proc.rc != 0:
            self.assertIn("rdma", proc.error_output())
            self.assertIn("give --protocol=tcp", proc.error_output())

    def test_interrupt_ends_early_with_a_result(self):
        command = [te.tool(BENCH), "--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1",
                   f"--segment_id={self.target.segment}", "--protocol=tcp", te.FOREVER,
                   "--threads=1", "--batch_size=4", "--buffer_size=1M"]
        before = self.target.socket_names()
        with te.Proc(command) as proc:
            self.target.wait_new_socket(before)
            self.assertEqual(proc.stop(signal.SIGINT), 0, proc)
            self.assertTrue(COMPLETED.search(proc.output()), proc)

    def test_target_too_small(self):
        with te.Target("--block_size=1", size="1M") as target:
            proc = te.bench(target.segment, "--block_size=1M")
            self.assertEqual(proc.rc, 1, proc)
            self.assertRegex(proc.error_output(), r"has 1M, 8M are needed .* --buffer_size=8M ")
            self.not_filled(target.segment, "are needed for this load")
        self.not_filled("127.0.0.1:1", "cannot open segment 127.0.0.1:1")

    def not_filled(self, segment, why):
        """The target is looked at before the memory of this side, which takes long, is filled."""
        for program in (BENCH, VALIDATOR):
            proc = te.run(program, "--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1", "--protocol=tcp",
                          f"--segment_id={segment}", "--buffer_size=256M", "--block_size=2M")
            self.assertNotEqual(proc.rc, 0, proc)
            self.assertIn(why, proc.error_output())
            self.assertNotIn("filling", proc.error_output())

    def test_target_says_that_it_fills_its_memory(self):
        """before it has a name to print"""
        flags = ("--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1", "--protocol=tcp", "--mode=target",
                 "--buffer_size=256M")
        for program in (BENCH, VALIDATOR):
            rc, text = te.until_on_terminal([te.tool(program), *flags], rf"{program}: filling 256M of memory")
            self.assertEqual(rc, 0, text)
            with te.Proc([te.tool(program), *flags]) as proc:
                proc.wait_line(r"^segment: ")
                proc.wait_error("filling 256M of memory")
                self.assertEqual(proc.stop(), 0, proc)

    def test_target_takes_its_size_as_it_is(self):
        """threads that the target does not use raise nothing"""
        command = [te.tool(BENCH), "--mode=target", "--metadata_server=P2PHANDSHAKE", "--protocol=tcp",
                   "--local_server_name=127.0.0.1", "--buffer_size=1M"]
        with te.Proc(command) as proc:
            proc.wait_line(r"^segment: ")
            self.assertEqual(proc.stop(), 0, proc)
            self.assertNotIn("WARN", proc.error_output())

    def test_buffer_size_is_raised(self):
        proc = self.bench("--buffer_size=4096", "--block_size=64K")
        self.assertRegex(proc.error_output(), r"WARN: buffer_size raised from 4K to 512K")

    def test_progress_line_on_a_terminal(self):
        command = [te.tool(BENCH), "--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1",
                   f"--segment_id={self.target.segment}", "--protocol=tcp", te.FOREVER,
                   "--threads=1", "--batch_size=4", "--buffer_size=1M"]
        rc, text = te.until_on_terminal(command, r"\r[\d.]+ GB/s, \d+ batches, \d+ s left")
        self.assertEqual(rc, 0, text)


    def on_terminal(self, program, *flags, **env):
        return te.on_terminal([te.tool(program), "--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1",
                               f"--segment_id={self.target.segment}", "--protocol=tcp", "--threads=1", "--batch_size=4",
                               "--buffer_size=1M", *flags], env)

    def test_colour_on_a_terminal_alone(self):
        rounds = ("--batches=3", te.FOREVER)
        for program, flags, word in ((BENCH, ("--verify",), "0 errors"), (VALIDATOR, (), "Data validation passed")):
            rc, text = self.on_terminal(program, *flags, *rounds)
            self.assertEqual((rc, text.count(f"\033[32m{word}\033[m")), (0, 1), text)
            for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
                rc, text = self.on_terminal(program, *flags, *rounds, **plain)
                self.assertEqual((rc, text.count(word)), (0, 1), text)
                self.assertNotRegex(text, r"\033\[\d*m")
            proc = self.good(te.bench(self.target.segment, *flags, program=program))
            self.assertIn(word, proc.output() + proc.error_output())
            self.assertNotIn("\033", proc.output() + proc.error_output())

    def test_errors_in_colour(self):
        with te.Target() as target:
            target.kill()
            rc, text = te.on_terminal([te.tool(BENCH), "--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1",
                                       f"--segment_id={target.segment}", "--protocol=tcp", "--threads=1",
                                       "--batch_size=1", "--buffer_size=1M"])
        self.assertEqual((rc, text.count("cannot connect")), (1, 1), text)

    def test_progress_goes_before_other_lines(self):
        """What is said while the line of progress is there does not begin behind it."""
        rc, text = self.on_terminal(VALIDATOR, "--duration=1.5")
        self.assertEqual(rc, 0, text)
        self.assertRegex(text, r"(?m)(^|\r\033\[K)Worker 0 stopped!")

    def test_no_progress_elsewhere(self):
        for flags in ((), ("--sweep", "--sweep_block_size=4K", "--sweep_threads=1")):
            proc = self.bench("--duration=1.5", "--batches=0", *flags)
            self.assertNotRegex(proc.output() + proc.error_output(), r"\r|s left")

    def test_failure_is_told_once(self):
        """by one worker of many, and not in the log as well"""
        with te.Target() as target:
            command = [te.tool(BENCH), "--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1", "--protocol=tcp",
                       f"--segment_id={target.segment}", te.FOREVER, "--threads=3", "--batch_size=4", "--buffer_size=1M"]
            with te.Proc(command) as proc:
                # Its first connection asks for the descriptor, and a load that has not begun says something else.
                te.until(lambda: te.bytes_given(target) > 64 << 20, f"a load: {proc}")
                target.kill()
                self.assertEqual(proc.wait(), 1, proc)
        text = proc.error_output()
        self.assertNotIn("TE_ERR_", text)
        told = re.findall(r"FAILED: worker \d: read of 65536 bytes at 0x[0-9a-f]+ of segment '\S+': (.*)", text)
        self.assertEqual((len(told), text.count("FAILED")), (1, 1), proc)
        parts = re.split(": |; ", told[0])
        self.assertEqual(len(parts), len(set(parts)), proc)

    def test_log_is_whole_where_it_is_asked_for(self):
        address = f"127.0.0.1:{te.dead_port()}"
        proc = te.bench(address, env={"MC_LOG_LEVEL": "WARN"})
        self.assertEqual(proc.rc, 1, proc)
        self.assertIn("te] TE_ERR_PEER: cannot connect", proc.error_output())
        proc = te.bench(address, env={"MC_LOG_DIR": te.Workdir.get()})
        self.assertEqual(proc.error_output().count("cannot connect"), 1, proc)
        logs = [name for name in os.listdir(te.Workdir.get()) if name.startswith("transfer_engine.")]
        self.assertEqual(len(logs), 1)


class Metric(unittest.TestCase):
    """MC_TE_METRIC tells on each side what that side does."""

    OPTIONS = {"MC_TE_METRIC": "1", "MC_TE_METRIC_INTERVAL_SECONDS": "1"}
    LINE = re.compile(r"\[Metrics\] Transfer Engine Stats \(over last 1s\): Throughput: ([\d.]+) MB/s \| "
                      r"Requests: (\d+) completed, 0 failed \| Served: ([\d.]+) MB/s, (\d+) requests")

    def figures(self, proc, *nonzero):
        """The first line of a process in which these are not 0: bytes may have moved, and no request ended."""
        def found(line):
            match = self.LINE.search(line)
            figures = [float(figure) for figure in match.groups()] if match else []
            return figures if figures and all(figures[i] for i in nonzero) else None

        return proc.wait_found(found)

    def test_both_sides(self):
        with te.Target(env=self.OPTIONS) as target:
            command = [te.tool("transfer_engine_bench"), "--metadata_server=P2PHANDSHAKE", te.FOREVER, "--protocol=tcp",
                       "--local_server_name=127.0.0.1", f"--segment_id={target.segment}", "--threads=1",
                       "--batch_size=4", "--buffer_size=8M"]
            with te.Proc(command, env=self.OPTIONS) as initiator:
                _, _, *served = self.figures(initiator, 0, 1)
                self.assertEqual(served, [0, 0])
                *done, _, _ = self.figures(target, 2, 3)
                self.assertEqual(done, [0, 0])


class WithMetadataServer(unittest.TestCase):
    def test_http(self):
        with te.Metad() as metad, te.Target(metadata=metad.url, name="node-a") as target:
            self.assertEqual(target.segment, "node-a")
            for flags in (("--verify",), ("--operation=write",)):
                proc = te.bench("node-a", *flags, metadata=metad.url, name="node-b")
                self.assertEqual(proc.rc, 0, proc)
            # The form of the older versions: the scheme in a flag of its own.
            bare = metad.url[len("http://"):]
            proc = te.bench("node-a", "--metadata_type=http", metadata=bare, name="node-b")
            self.assertEqual(proc.rc, 0, proc)
            # One name on both sides is refused before it takes the target's place.
            proc = te.bench("node-a", metadata=metad.url, name="node-a")
            self.assertEqual(proc.rc, 1, proc)
            self.assertIn("node-a is this engine's own name; give --local_server_name=",
                          proc.error_output())
            self.assertEqual(te.bench("node-a", metadata=metad.url, name="node-b").rc, 0)
            self.assertEqual(target.stop(), 0, target)


class Refusals(unittest.TestCase):
    P2P = ("--metadata_server=P2PHANDSHAKE", "--local_server_name=127.0.0.1")

    def refused(self, *flags, says, rc=2, program=BENCH):
        proc = te.run(program, *flags)
        self.assertEqual(proc.rc, rc, proc)
        self.assertIn(says, proc.error_output())
        return proc

    def test_no_default_names_somebody(self):
        """a server and a target must be named; the message shows how"""
        for program in (BENCH, VALIDATOR):
            for mode in ("initiator", "target"):
                self.refused(f"--mode={mode}", "--segment_id=127.0.0.1:1", program=program,
                             says="--metadata_server=P2PHANDSHAKE")
            self.refused(*self.P2P, says="--segment_id=", program=program)
            self.refused(*self.P2P, "--segment_id=", says="--segment_id=", program=program)

    def test_misspelt_p2p(self):
        """asked back by each tool, whichever way it takes to the server"""
        for program in (BENCH, VALIDATOR):
            self.refused("--metadata_server=P2PHANDSHAK", "--segment_id=127.0.0.1:1", "--protocol=tcp", program=program,
                         rc=1, says="did you mean P2PHANDSHAKE?")
        for name, *words in (("te_info", "--segment=a"), ("te_segment", "list")):
            proc = te.run(os.path.join(te.BIN, name), *words, "--metadata_server=P2PHANDSHAK")
            self.assertNotEqual(proc.rc, 0, proc)
            self.assertIn("did you mean P2PHANDSHAKE?", proc.output() + proc.error_output())

    def test_more_than_there_is(self):
        """a load for which there is no memory: which flags ask for so much"""
        self.refused(*self.P2P, "--segment_id=127.0.0.1:1", "--block_size=1T", "--batch_size=1024", rc=1,
                     says="ask for less by --buffer_size, or by --threads, --batch_size and --block_size")

    def test_own_name(self):
        name = f"127.0.0.1:{te.free_port()}"
        for program in (BENCH, VALIDATOR):
            self.refused("--metadata_server=P2PHANDSHAKE", f"--local_server_name={name}",
                         f"--segment_id={name}", "--protocol=tcp", "--buffer_size=1M", "--threads=1",
                         "--batch_size=1", program=program, rc=1,
                         says=f"{name} is this engine's own name; give --local_server_name=")

    def test_json_of_a_start_that_fails(self):
        """--json: an object also when nothing was measured"""
        address = f"127.0.0.1:{te.dead_port()}"
        target = (f"--segment_id={address}", "--protocol=tcp", "--buffer_size=1M", "--threads=1",
                  "--batch_size=1")
        for flags, rc, says in (((), 2, "--metadata_server"), (self.P2P, 2, "--segment_id"),
                                ((*self.P2P, *target, "--sweep", "--sweep_threads=x"), 2, "--sweep_threads"),
                                ((*self.P2P, *target, "--use_vram", "--gpu_id=9999"), 1,
                                 "--use_vram"),
                                ((*self.P2P, *target), 1, address)):
            proc = self.refused("--json", *flags, rc=rc, says=says)
            result = json.loads(proc.output())
            self.assertIs(result["failed"], True)
            self.assertIn(says, result["error"])

    def test_bad_flags(self):
        self.refused("--no_such_flag=1", says="--no_such_flag")
        self.refused("--no_such_flag", says="--no_such_flag", program=VALIDATOR)
        self.refused("--sweep", says="--sweep", program=VALIDATOR)
        self.refused("--threads=x", says="--threads")
        self.refused("--threads=0", says="--threads")
        self.refused("--threads", says="--threads")
        self.refused("--block_size=4Q", says="--block_size")
        self.refused("--block_size=-1", says="--block_size")
        self.refused("--block_size=99999999999999999999", says="--block_size")
        there = (*self.P2P, "--segment_id=127.0.0.1:1")
        self.refused(*there, "--block_size=1T", "--batch_size=1048576", says="too large")
        self.refused("--mode=both", says="--mode")
        self.refused("--operation=erase", says="--operation")
        self.refused("--report_unit=parsec", says="--report_unit")
        self.refused("--verify=maybe", says="--verify")
        self.refused("--backend=tent", says="--backend")
        self.refused("--duration=-1", says="--duration")
        self.refused("--rpc_port=65536", says="--rpc_port")
        self.refused(*there, "--sweep", "--sweep_threads=1..", says="--sweep_threads")
        self.refused("--nooperation", says="nooperation")
        self.refused("surplus", says="surplus")

    def test_what_cannot_be_had(self):
        p2p = (*self.P2P, "--segment_id=127.0.0.1:1")
        self.refused(*p2p, "--protocol=carrier-pigeon", rc=1, says="carrier-pigeon")
        self.refused(*p2p, "--protocol=tcp", "--use_vram", "--gpu_id=9999", rc=1, says="--use_vram")
        self.refused("--metadata_server=gopher://h:1", "--segment_id=a", "--protocol=tcp", rc=1,
                     says="gopher")
        nobody = f"127.0.0.1:{te.dead_port()}"
        wrong = self.refused(*self.P2P, f"--segment_id={nobody}", "--protocol=tcp", "--buffer_size=1M", "--threads=1",
                             "--batch_size=1", rc=1, says=nobody)
        self.assertNotIn("give --protocol=tcp", wrong.error_output())
        self.refused(*p2p, "--protocol=tcp", "--nic_priority_matrix=/nonexistent", rc=1,
                     says="/nonexistent")
        self.refused(*p2p, "--auto_discovery", "--nic_priority_matrix=/nonexistent", rc=1, says="/nonexistent")
        self.refused(*p2p, "--device_name=nosuch_9", rc=1, says="nosuch_9")
        wrong = os.path.join(te.Workdir.get(), "wrong.json")
        with open(wrong, "w", encoding="utf-8") as f:
            f.write('{"cpu:0": [["mlx5_0", "mlx5_0"], []]}')
        for program in (BENCH, VALIDATOR):
            self.refused(*p2p, "--protocol=tcp", f"--nic_priority_matrix={wrong}", rc=1,
                         says="names device 'mlx5_0' twice", program=program)

    def test_missing_target(self):
        address = f"127.0.0.1:{te.dead_port()}"
        proc = te.bench(address)
        self.assertEqual(proc.rc, 1, proc)
        self.assertEqual(proc.error_output().count("cannot connect"), 1, proc)
        self.assertNotIn("TE_ERR_", proc.error_output())

    def test_help(self):
        for program in (BENCH, VALIDATOR):
            proc = te.run(program, "--help")
            self.assertEqual(proc.rc, 0, proc)
            for flag in ("local_server_name", "metadata_server", "metadata_type", "mode", "operation",
                         "protocol", "device_name", "nic_priority_matrix", "segment_id", "buffer_size",
                         "batch_size", "block_size", "duration", "threads", "auto_discovery",
                         "report_unit", "report_precision", "use_vram", "gpu_id"):
                self.assertIn(f"  --{flag}=", proc.output())
            for default in ("mlx5_2", "1073741824", "65536", "128", "12", "rdma"):
                self.assertIn(f"(default: {default})", proc.output())
            self.assertNotRegex(proc.output(), r"\d+\.\d+\.\d+\.\d+")
        self.assertRegex(te.run(BENCH, "--version").output(), r"^transfer_engine_bench \d+\.\d+\.\d+$")


if __name__ == "__main__":
    te.main()
