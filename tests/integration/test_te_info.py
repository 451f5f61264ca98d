#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
"""te_info: exit statuses, JSON, where values come from, devices of a made-up /sys."""
import json
import os
import re
import subprocess
import tempfile
import unittest

import te_proc as te

TOOL = os.path.join(te.BIN, "te_info")


def run(*args, **variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MC_", "TE_"))}
    env.update(variables)
    return subprocess.run([TOOL, *args], env=env, capture_output=True, text=True, timeout=te.HANG_S, check=False)


def write(root, path, text):
    full = os.path.join(root, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "w", encoding="utf-8") as f:
        f.write(text)


class TeInfoTest(unittest.TestCase):
    def rows(self, **variables):
        out = run("--config", "--json", **variables)
        self.assertEqual(out.returncode, 0, out.stderr)
        return {row["name"]: row for row in json.loads(out.stdout)["config"]}, out.stderr

    def test_unknown_flag(self):
        out = run("--bogus")
        self.assertEqual(out.returncode, 2)
        self.assertIn("--bogus", out.stderr)
        self.assertIn("--help", out.stderr)

    def test_as_migrating_md_types_it(self):
        """Each command of that page, whose example is an engine at HOST:PORT."""
        with open(os.path.join(te.SRC, "docs", "migrating.md"), encoding="utf-8") as f:
            commands = re.findall(r"^te_info (.*?) *(?:#.*)?$|`te_info ([^`]+)`", f.read(), re.M)
        self.assertGreater(len(commands), 2)
        with te.Peer() as peer:
            peer.region(4096)
            for command in commands:
                words = "".join(command).replace("HOST:PORT", peer.segment).split()
                out = run(*words)
                self.assertEqual(out.returncode, 0, (words, out.stderr))

    def test_variables_without_effect(self):
        """named in one line, and only where warnings are wanted"""
        given = {"MC_GID_INDX": "3", "TE_FORCE_TCP": "secret", "MC_CXL_DEV_SIZE": "1", "MC_GID_INDEX": "1",
                 "TE_TEST_BUILD": "x", "NCCL_IB_TC": "3"}
        said = ("variables of the environment without effect: MC_GID_INDX (MC_GID_INDEX?), TE_FORCE_TCP (MC_FORCE_TCP?), "
                "MC_CXL_DEV_SIZE (known, but nothing reads it); ")
        out = run("--config", **given)
        self.assertEqual(out.returncode, 0)
        self.assertEqual(out.stderr.count("\n"), 1, out.stderr)
        told = set(re.split(r": |, |; ", out.stderr.strip())) & set(re.split(r": |, |; ", said))
        self.assertEqual(len(told), 4, out.stderr)
        for level, lines in (("WARNING", 1), ("ERROR", 0)):
            with te.Target(env={**given, "MC_LOG_LEVEL": level}) as target:
                got = [line for line in target.errors if "without effect" in line]
                self.assertEqual(len(got), lines, target)
                self.assertNotIn("secret", target.error_output())

    def test_metadata_server(self):
        with te.Metad() as metad, te.Peer(name="node-a", metadata=metad.url):
            out = run(f"--metadata_server={metad.url}")
            self.assertEqual(out.returncode, 0, out.stderr)
            self.assertRegex(out.stdout, r"answers in [0-9.]+ ms; engines: 1, segments: 1")
            found = json.loads(run("--json", f"--metadata_server={metad.url}").stdout)["metadata"]
            self.assertEqual((found["answers"], found["engines"], found["segments"]), (True, 1, 1))
            elsewhere = run(f"--metadata_server={metad.url}", MC_METADATA_CLUSTER_ID="other")
            self.assertIn("engines: 0, segments: 0", elsewhere.stdout)
        for url in ("", "P2PHANDSHAKE", "p2phandshake"):
            self.assertEqual(run(f"--metadata_server={url}").returncode, 2)
        for url in (metad.url, f"etcd://joe:secret@127.0.0.1:{te.dead_port()}", "gopher://joe:secret@h", "etcd://"):
            out = run(f"--metadata_server={url}", TE_METADATA_TIMEOUT_MS="500")
            self.assertEqual(out.returncode, 1)
            self.assertIn("cannot be asked: ", out.stdout)
            self.assertNotIn("secret", out.stdout + out.stderr)

    def test_path(self):
        with te.Metad() as metad, te.Peer(name="node-a", metadata=metad.url) as peer:
            empty = run(f"--metadata_server={metad.url}", "--segment=node-a")
            self.assertEqual(empty.returncode, 1)
            self.assertIn("it has registered no memory for peers", empty.stdout)
            peer.region(100001)
            out = run(f"--metadata_server={metad.url}", "--segment=node-a")
            self.assertEqual(out.returncode, 0, out.stdout + out.stderr)
            self.assertEqual(len(re.findall(r"^    transport \w+: score \d+, taken$", out.stdout, re.M)), 2)
            self.assertIn("transport local: not possible: reaches this engine itself only", out.stdout)
            found = json.loads(run("--json", f"--metadata_server={metad.url}", "--segment=node-a").stdout)
            self.assertTrue(found["path"]["possible"] and found["metadata"]["answers"])
            self.assertIn("has the range and allows this", found["path"]["write"])
            # An engine of another kind publishes a port with any protocol.
            te.put(f"{metad.url}?key=mooncake/rpc_meta/other", b'{"ip_or_host_name":"127.0.0.1","rpc_port":9}')
            te.put(f"{metad.url}?key=mooncake/ram/other", json.dumps(
                {"name": "other", "protocol": "rdma", "tcp_data_port": 9, "devices": [], "priority_matrix": {},
                 "buffers": [{"name": "cpu:0", "addr": 4096, "length": 4096, "lkey": [], "rkey": []}]}).encode())
            out = run(f"--metadata_server={metad.url}", "--segment=other")
            self.assertEqual(out.returncode, 1, out.stderr)
            self.assertIn("transport tcp: not possible: the descriptor is of protocol 'rdma', not tcp", out.stdout)
            gone = run(f"--metadata_server={metad.url}", "--segment=nobody")
            self.assertEqual(gone.returncode, 1)
            self.assertIn("cannot be told: ", gone.stdout)
            # Nothing of it stays behind.
            self.assertIn("engines: 2, segments: 2", run(f"--metadata_server={metad.url}").stdout)
        self.assertEqual(run("--segment=node-a").returncode, 2)

    def test_path_without_server(self):
        with te.Peer() as peer:
            peer.region(5)
            out = run("--metadata_server=P2PHANDSHAKE", f"--segment={peer.segment}")
            self.assertEqual(out.returncode, 0, out.stdout + out.stderr)
            self.assertTrue(out.stdout.startswith("Path to segment"), out.stdout)
            self.assertEqual(out.stdout.count(", taken"), 2)

    def test_help_and_version(self):
        self.assertEqual(run("--help").returncode, 0)
        self.assertRegex(run("--version").stdout, r"^te_info \d+\.\d+\.\d+$")

    def test_sources(self):
        rows, err = self.rows(MC_SLICE_SIZE="4k", MC_MTU="1500", MC_REDIS_PASSWORD="hunter2")
        self.assertEqual((rows["MC_SLICE_SIZE"]["value"], rows["MC_SLICE_SIZE"]["source"]), ("4096", "environment"))
        self.assertEqual((rows["MC_MTU"]["value"], rows["MC_MTU"]["source"]), ("4096", "default"))
        self.assertIn("MC_MTU", err)
        self.assertEqual(rows["MC_REDIS_PASSWORD"]["value"], "***")
        self.assertNotIn("hunter2", run("--config", MC_REDIS_PASSWORD="hunter2").stdout)

    def test_markdown(self):
        out = run("--config", "--markdown", MC_SLICE_SIZE="4k").stdout
        self.assertIn("| `MC_SLICE_SIZE` | `65536` |", out)
        self.assertEqual(run("--markdown", "--links").returncode, 2)

    def test_man(self):
        out = run("--config", "--man", MC_SLICE_SIZE="4k").stdout
        self.assertIn(".TH TRANSFER_ENGINE 5 ", out)
        self.assertRegex(out, r"\n\.B MC_SLICE_SIZE\n.*\n\.br\nDefault: 65536; must be 1 to 1073741824 bytes\.\n")
        self.assertIn("Use TCP, whatever", out)
        told = {r["name"] for r in json.loads(run("--config", "--json").stdout)["config"]}
        self.assertEqual(set(re.findall(r"(?m)^\.TP\n\.B (\w+)$", out)), told)
        self.assertEqual(run("--man", "--markdown").returncode, 2)
        self.assertEqual(run("--man", "--json").returncode, 2)

    def make_nic(self, root, name, numa, state, uverbs):
        write(root, f"class/infiniband/{name}/device/numa_node", f"{numa}\n")
        write(root, f"class/infiniband/{name}/ports/1/state", state + "\n")
        write(root, f"class/infiniband/{name}/ports/1/rate", "100 Gb/sec (4X EDR)\n")
        write(root, f"class/infiniband/{name}/ports/1/link_layer", "InfiniBand\n")
        write(root, f"class/infiniband/{name}/ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n")
        write(root, f"class/infiniband_verbs/uverbs{uverbs}/ibdev", name + "\n")
        os.makedirs(os.path.join(root, "dev/infiniband"), exist_ok=True)
        os.symlink("/dev/null", os.path.join(root, f"dev/infiniband/uverbs{uverbs}"))

    def test_made_up_devices(self):
        with tempfile.TemporaryDirectory(prefix="te-sysfs-") as root:
            write(root, "class/net/lo/speed", "25000\n")
            write(root, "class/net/lo/mtu", "9000\n")
            self.make_nic(root, "mlx5_10", 1, "4: ACTIVE", 0)
            self.make_nic(root, "mlx5_2", -1, "4: ACTIVE", 1)
            self.make_nic(root, "mlx5_3", 0, "1: DOWN", 2)
            write(root, "devices/system/node/node0/distance", "10 21\n")
            write(root, "devices/system/node/node1/distance", "21 10\n")
            dev = os.path.join(root, "dev")
            out = run("--links", "--json", "--sysfs=" + root, TE_DEV_PATH=dev)
            text = run("--links", "--sysfs=" + root, TE_DEV_PATH=dev).stdout
            matrix = run("--topology", "--sysfs=" + root, TE_DEV_PATH=dev)
            elsewhere = json.loads(run("--links", "--json", "--sysfs=" + root, TE_DEV_PATH="/none").stdout)
            forced = run("--links", "--sysfs=" + root, TE_DEV_PATH=dev, MC_FORCE_MNNVL="1")
        self.assertEqual(out.returncode, 0, out.stderr)
        told = json.loads(out.stdout)
        lo = next(i for i in told["interfaces"] if i["name"] == "lo")
        self.assertEqual((lo["speed_mbps"], lo["mtu"], lo["numa"]), (25000, 9000, None))
        nics = told["local_nics"]
        self.assertEqual([n["device"] for n in nics], ["mlx5_2", "mlx5_3", "mlx5_10"])
        self.assertEqual([n["numa"] for n in nics], [-1, 0, 1])
        self.assertEqual([n["usable"] for n in nics], [True, False, True])
        self.assertEqual(nics[1]["why"], "port 1 is DOWN")
        self.assertEqual(told["topology"], {"cpu:0": [["mlx5_10"], ["mlx5_2"]], "cpu:1": [["mlx5_10"], ["mlx5_2"]]})
        for line in ("  mlx5_3           NUMA node 0\n      port 1: DOWN, 100 Gb/s, InfiniBand\n"
                     "      GID fe80:0000:0000:0000:0000:0000:0000:0001 (index 0)\n"
                     "      not usable: port 1 is DOWN\n",
                     "  mlx5_2           NUMA node unknown\n", "  cpu:1     preferred: mlx5_10  others: mlx5_2\n"):
            self.assertIn(line, text)
        self.assertEqual(matrix.stdout, "Topology\n  cpu:0     preferred: mlx5_10  others: mlx5_2\n"
                                        "  cpu:1     preferred: mlx5_10  others: mlx5_2\n")
        self.assertIn("/none/infiniband/uverbs0: No such file", elsewhere["local_nics"][2]["why"])
        self.assertEqual(elsewhere["topology"], {"cpu:0": [[], []], "cpu:1": [[], []]})
        # That no engine of the wanted kind can be made is told, and the reason may be among the NICs.
        self.assertIn("no engine with the transports of this host", forced.stderr)
        self.assertIn("mlx5_10", forced.stdout)

    def test_sysfs_that_is_not_there(self):
        out = run("--links", "--sysfs=/nonexistent/sys")
        self.assertEqual((out.returncode, out.stdout), (2, ""))
        self.assertIn("--sysfs", out.stderr)

    def test_text_is_no_markdown(self):
        out = run("--config").stdout
        self.assertIn("Not read by this version.", out)
        self.assertNotIn("*", out)
        self.assertIn("*Not read by this version.*", run("--markdown").stdout)

    def test_everything(self):
        out = run()
        self.assertEqual(out.returncode, 0, out.stderr)
        for text in ("MC_SLICE_SIZE = 65536", "Topology", "Network interfaces", "RDMA devices"):
            self.assertIn(text, out.stdout)
        told = json.loads(run("--json").stdout)
        for locations in told["topology"].values():
            self.assertEqual(len(locations), 2)


if __name__ == "__main__":
    unittest.main()
