#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=1200
"""te_info: exit statuses, JSON, where values come from, devices of a made-up /sys."""
import json
import os
import re
import resource
import subprocess
import tempfile
import unittest
import urllib.request
import xml.etree.ElementTree as ET

import te_proc as te

TOOL = os.path.join(te.BIN, "te_info")
SVG = "{http://www.w3.org/2000/svg}"


MARKS = {"ok": "ok", "warn": "warn", "FAIL": "fail", "-": "absent"}  # of lines, and in JSON
CHECKS = ("engine", "options", "network", "ports", "congestion", "TCP buffers", "listen queue", "RDMA NICs",
          "locked memory", "GPUs", "process_vm", "namespaces", "shared memory", "huge pages", "open files", "io_uring",
          "CPUs", "memory", "clock source", "clock")


def environment(variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MC_", "TE_")) and k != "NO_COLOR"}
    env.update(variables)
    return env


def run(*args, program=(TOOL,), **variables):
    return subprocess.run([*program, *args], env=environment(variables), capture_output=True, text=True,
                          timeout=te.HANG_S, check=False)


def on_terminal(*args, **variables):
    """What it prints on one, of which no test's environment decides the colours."""
    return te.on_terminal([TOOL, *args], {"NO_COLOR": "", **variables})[1]


def checks(out):
    """{name: (mark, value, remedy)} of a run of --check."""
    found = {}
    for line in out.stdout.split("\n\n")[0].splitlines():
        if line.startswith(" "):
            found[name][-1] += line.strip() + " "
            continue
        mark, name, value = re.fullmatch(r"(ok|warn|FAIL|-) +(.{14})  (.*)", line).groups()
        name = name.strip()
        found[name] = [mark, value + " "]
    return {n: (m, *(part.strip() for part in (text + "fix: ").split("fix: ")[:2])) for n, (m, text) in found.items()}


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
            self.assertEqual(len(re.findall(r"^    transport \w+: score \d+, taken$", out.stdout, re.M)), 1)
            self.assertIn("\n  READ and WRITE\n", out.stdout)
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
            self.assertEqual(gone.stderr, "")  # it is told once, unless the log is asked for
            self.assertIn("nobody", run(f"--metadata_server={metad.url}", "--segment=nobody", MC_LOG_LEVEL="WARN").stderr)
            # Nothing of it stays behind.
            self.assertIn("engines: 2, segments: 2 (te_segment list shows which of them answer)", run(f"--metadata_server={metad.url}").stdout)
        self.assertEqual(run("--segment=node-a").returncode, 2)

    def test_path_to_an_engine_that_was_killed(self):
        """Its descriptor has the memory still; nobody is there to give it."""
        with te.Metad() as metad, te.Peer(name="node-a", metadata=metad.url) as peer:
            args = (f"--metadata_server={metad.url}", "--segment=/node-a")
            peer.region(4096)
            self.assertEqual(run(*args).returncode, 0)
            self.assertNotIn("does not answer", run(*args).stdout)
            peer.process.kill()
            peer.process.wait()
            out = run(*args)
            self.assertEqual(out.returncode, 1, out.stdout)
            self.assertIn("\n  its engine does not answer: ", out.stdout)
            path = json.loads(run("--json", *args).stdout)["path"]
            self.assertEqual((path["possible"], "read" in path), (False, True))
            self.assertTrue(path["why"].startswith("its engine does not answer: "), path)

    def test_data_port_that_does_not_answer(self):
        """The handshake port of an engine answers, and its data port is closed, as by a firewall."""
        with te.Metad() as metad, te.Peer(name="node-a", metadata=metad.url) as peer:
            peer.region(4096)
            args = (f"--metadata_server={metad.url}", "--segment=node-a")
            key = f"{metad.url}?key=mooncake/ram/node-a"
            with urllib.request.urlopen(key, timeout=te.HANG_S) as reply:
                descriptor = json.load(reply)
            self.assertIn(f":{descriptor['tcp_data_port']}: answers\n", run(*args).stdout)
            descriptor["tcp_data_port"] = te.dead_port()
            te.put(key, json.dumps(descriptor).encode())
            out = run(*args, TE_HOST_PATH="0")
            self.assertEqual(out.returncode, 1, out.stdout + out.stderr)
            self.assertIn(f":{descriptor['tcp_data_port']}: does not answer, so tcp cannot be used: ", out.stdout)
            path = json.loads(run("--json", *args, TE_HOST_PATH="0").stdout)["path"]
            self.assertEqual((path["possible"], path["data_port"]["answers"]), (False, False))
            # What goes another way needs no data port.
            self.assertEqual(run(*args).returncode, 0)

    def test_path_without_server(self):
        with te.Peer() as peer:
            peer.region(5)
            out = run("--metadata_server=P2PHANDSHAKE", f"--segment={peer.segment}")
            self.assertEqual(out.returncode, 0, out.stdout + out.stderr)
            self.assertRegex(out.stdout, r"\n  data port \S+:\d+: answers\n")
            self.assertTrue(out.stdout.startswith("Path to segment"), out.stdout)
            self.assertEqual(out.stdout.count(", taken"), 1)

    def test_path_of_what_is_read_alone(self):
        with te.Peer() as peer:
            peer.ask("region", 4096, 1)
            out = run("--metadata_server=P2PHANDSHAKE", f"--segment={peer.segment}").stdout
            self.assertRegex(out, r"(?s)\n  READ\n.*has the range and allows this.*\n  WRITE\n.*does not allow this")

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

    def draw(self, root, **variables):
        """Words of the picture of that host, each with its class; nothing is fetched by it."""
        out = run("--topology", "--svg", "--sysfs=" + root, TE_DEV_PATH=os.path.join(root, "dev"), **variables)
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertEqual(re.findall(r"https?:[^\"]*", out.stdout), ["http://www.w3.org/2000/svg"])
        picture = ET.fromstring(out.stdout)
        light, dark = picture.find(SVG + "style").text.split("@media (prefers-color-scheme:dark)")
        boxes = {rect.get("class") for rect in picture.iter(SVG + "rect")}
        for kind in boxes:
            self.assertTrue(f".{kind}{{" in light and f".{kind}{{" in dark, kind)
        return boxes, [(text.get("class"), text.text) for text in picture.iter(SVG + "text")]

    def test_picture(self):
        """A column for each NIC, by its node, and a row for each place of memory; names are no markup."""
        with tempfile.TemporaryDirectory(prefix="te-sysfs-") as root:
            self.make_nic(root, "mlx5_10", 1, "4: ACTIVE", 0)
            self.make_nic(root, "mlx5_2", -1, "4: ACTIVE", 1)
            self.make_nic(root, "a&<b", 0, "1: DOWN", 2)
            for node, distances in enumerate(("10 21", "21 10")):
                write(root, f"devices/system/node/node{node}/distance", distances + "\n")
            boxes, words = self.draw(root)
        self.assertEqual(boxes, {"paper", "room", "engine", "bad", "memory", "good", "part"})
        self.assertEqual([text for kind, text in words if kind in ("small", "bold", "plain")][:-4], [
            "NUMA node 0", "a&<b", "port 1 is DOWN", "NUMA node 1", "mlx5_10", "100 Gb/s",
            "node unknown", "mlx5_2", "100 Gb/s",
            "cpu:0", "-", "preferred", "other", "cpu:1", "-", "preferred", "other"])

    def test_picture_without_nics(self):
        with tempfile.TemporaryDirectory(prefix="te-sysfs-") as root:
            self.assertIn(("small", "No RDMA NIC here."), self.draw(root)[1])

    def test_picture_of_the_documents(self):
        """docs/pictures/topology.svg is what scripts/topology.py draws."""
        file = os.path.join(te.Workdir.get(), "topology.svg")
        drawn = te.call(os.path.join(te.SRC, "scripts", "topology.py"), file, env={**os.environ, "TE_BIN": te.BIN})
        self.assertEqual((drawn.returncode, drawn.stderr), (0, ""))
        with open(file, encoding="ascii") as ours, open(
                os.path.join(te.SRC, "docs", "pictures", "topology.svg"), encoding="ascii") as theirs:
            self.assertEqual(ours.read(), theirs.read(), "run make docs")

    def test_picture_alone(self):
        for words, why in ((("--svg",), "add --topology"), (("--svg", "--links"), "add --topology"),
                           (("--svg", "--topology", "--json"), "drop --json"),
                           (("--svg", "--topology", "--check"), "drop --check")):
            out = run(*words)
            self.assertEqual((out.returncode, out.stdout), (2, ""))
            self.assertIn(why, out.stderr)

    def test_sysfs_that_is_not_there(self):
        out = run("--links", "--sysfs=/nonexistent/sys")
        self.assertEqual((out.returncode, out.stdout), (2, ""))
        self.assertIn("--sysfs", out.stderr)

    def test_text_is_no_markdown(self):
        out = run("--config").stdout
        self.assertIn("Not read by this version.", out)
        self.assertNotIn("*", out)
        self.assertIn("*Not read by this version.*", run("--markdown").stdout)

    def test_changed(self):
        """Options that differ, whichever of their names is used, and variables that do nothing."""
        none = run("--changed")
        self.assertEqual((none.returncode, none.stdout, none.stderr), (0, "Every option has its default.\n", ""))
        given = {"MC_SLICE_SIZE": "4k", "MC_MIN_PRC_PORT": "15500", "MC_MAX_RPC_PORT": "17000", "TE_BIND": "lo",
                 "MC_REDIS_PASSWORD": "hunter2", "MC_VERBOSE": "1", "MC_GID_INDX": "3"}
        out = run("--changed", **given)
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertEqual(sorted(out.stdout.splitlines()), [
            "MC_MIN_RPC_PORT = 15500  [environment; default: 15000]",
            "MC_REDIS_PASSWORD = ***  [environment; default: (empty)]",
            "MC_SLICE_SIZE = 4096 bytes  [environment; default: 65536]",
            "MC_VERBOSE = on  [environment; default: off]",
            "TE_BIND = lo  [environment; default: (empty)]",
            "Variables without effect: MC_GID_INDX (MC_GID_INDEX?)"])
        told = json.loads(run("--changed", "--json", **given).stdout)
        self.assertEqual(len(told["changed"]), 5)
        self.assertIn({"name": "MC_SLICE_SIZE", "value": "4096", "default": "65536", "source": "environment"},
                      told["changed"])
        self.assertEqual(told["without_effect"], "MC_GID_INDX (MC_GID_INDEX?)")
        self.assertEqual(run("--changed", "--markdown").returncode, 2)

    def test_check_of_this_host(self):
        """Whatever is wrong here, each thing has its line, and the exit status says whether one has failed."""
        out = run("--check")
        found = checks(out)
        self.assertEqual(tuple(found), CHECKS)
        self.assertEqual(out.returncode, any(mark == "FAIL" for mark, *_ in found.values()), out.stdout)
        self.assertEqual(out.stderr, "")
        self.assertNotIn("\033", out.stdout)
        self.assertLessEqual(max(map(len, out.stdout.splitlines())), 100)
        for name, (mark, value, remedy) in found.items():
            self.assertTrue(value, name)
            self.assertEqual(bool(remedy), mark in ("warn", "FAIL"), name)
        count = sum(mark == "ok" for mark, *_ in found.values())
        self.assertTrue(out.stdout.splitlines()[-1].startswith(f"{count} ok"), out.stdout)
        self.assertEqual(found["engine"][0], "ok", out.stdout)

    def test_check_as_json(self):
        given = {"MC_GID_INDX": "3"}
        out, told = run("--check", **given), json.loads(run("--check", "--json", **given).stdout)
        self.assertEqual([(c["name"], c["result"]) for c in told["checks"]],
                         [(name, MARKS[mark]) for name, (mark, *_) in checks(out).items()])
        options = next(c for c in told["checks"] if c["name"] == "options")
        self.assertEqual((options["result"], options["value"]),
                         ("warn", "variables without effect: MC_GID_INDX (MC_GID_INDEX?)"))
        self.assertTrue(options["remedy"])

    def test_check_in_colours(self):
        """on a terminal only, and not against NO_COLOR"""
        said = on_terminal("--check", MC_GID_INDX="3")
        self.assertIn("\033[33mwarn\033[m  options ", said)
        self.assertRegex(said, "\033\\[32mok  \033\\[m  ")
        self.assertIn("\033[33mwarn", on_terminal("--check", MC_GID_INDX="3", NO_COLOR=""))
        plain = on_terminal("--check", MC_GID_INDX="3", NO_COLOR="1")
        self.assertNotIn("\033", plain)
        self.assertIn("warn  options ", plain)

    def test_check_of_options(self):
        """Values that are not allowed are told as well, here and not on stderr."""
        out = run("--check", MC_MTU="1500", MC_GID_INDX="3")
        mark, value, _ = checks(out)["options"]
        self.assertEqual((mark, out.stderr), ("warn", ""))
        self.assertRegex(value, r"^MC_MTU in the environment is '1500', .*; variables without effect: MC_GID_INDX ")
        both = run("--check", MC_FORCE_TCP="1", MC_FORCE_HCA="1")
        self.assertEqual(both.returncode, 1)
        self.assertIn("only one of them may be on", both.stderr)

    def test_check_that_fails(self):
        with tempfile.TemporaryDirectory(prefix="te-sysfs-") as root:
            out = run("--check", f"--sysfs={root}", MC_FORCE_HCA="1")
            self.assertEqual(out.returncode, 1, out.stdout)
            mark, value, remedy = checks(out)["engine"]
            self.assertEqual(mark, "FAIL")
            self.assertRegex(value, "MC_FORCE_HCA|not built in|cannot run on this host")
            self.assertIn("troubleshooting.md", remedy)
            # The screen tells of it and does not fail by it.
            screen = run(f"--sysfs={root}", MC_FORCE_HCA="1")
            self.assertEqual((screen.returncode, screen.stderr), (0, ""))
            self.assertRegex(screen.stdout, r"\nChecks +\d+ ok, .*[12] failures?: te_info --check\n")

    def test_check_of_limits(self):
        limit = ("import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); "
                 "os.execv(sys.argv[1], sys.argv[1:])")
        out = run("--check", program=("python3", "-c", limit, TOOL))
        self.assertEqual(out.returncode, 1, out.stdout)
        self.assertEqual(checks(out)["open files"][:2],
                         ("FAIL", "at most 100; TE_TCP_MAX_SESSIONS (4096) connections need more"))
        if resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 356:
            few = checks(run("--check", TE_TCP_MAX_SESSIONS="100"))
            self.assertEqual(few["open files"][0], "ok")

    def test_check_under_seccomp(self):
        program = te.compile_program(os.path.join(te.SRC, "tests", "integration", "forbid_process_vm.c"),
                                     "forbid_process_vm")
        if subprocess.run([program, "EPERM", "true"], check=False).returncode != 0:
            te.skip("seccomp filters are not permitted")
        mark, value, _ = checks(run("--check", program=(program, "EPERM", TOOL)))["process_vm"]
        self.assertEqual((mark, value), ("warn", "process_vm_readv is refused (Operation not permitted): only memory "
                                                 "of te_alloc() goes without TCP"))

    def test_one_screen(self):
        """Without flags, however much there is to tell."""
        many = {"MC_SLICE_SIZE": "4k", "TE_BIND": "lo", "MC_MTU": "1500", "MC_GID_INDX": "3", "TE_NO_SUCH": "1"}
        for given in ({}, many):
            out = run(**given)
            lines = out.stdout.splitlines()
            self.assertEqual((out.returncode, out.stderr), (0, ""))
            self.assertLessEqual(len(lines), 24)
            self.assertLessEqual(max(map(len, lines)), 100)
            self.assertRegex(lines[0], r"^Transfer Engine \d+\.\d+\.\d+$")
            self.assertRegex(lines[1], r"^Metadata +P2PHANDSHAKE")
            for name in ("local", "host", "tcp", "CPUs", "memory", "network", "RDMA NICs", "GPUs"):
                self.assertEqual(sum(line.startswith(f"  {name:14}") for line in lines), 1, out.stdout)
            self.assertIn(f"\nOptions         {2 if given else 0} of ", out.stdout)
            self.assertRegex(out.stdout, r"\nChecks +\d+ ok\b.*: te_info --check\n")
            for flag in re.findall(r"--\w+", out.stdout):
                self.assertIn(flag, run("--help").stdout)

    def test_what_is_built_in(self):
        told = json.loads(run("--json").stdout)
        schemes = [s for part, s in (("http", "http"), ("http", "https"), ("etcd", "etcd"), ("etcd", "etcds"),
                                     ("redis", "redis")) if part in te.PARTS]
        self.assertEqual(told["metadata_servers"], schemes)
        self.assertIn("Metadata        " + ", ".join(["P2PHANDSHAKE", *schemes]), run().stdout)
        transports = {t["name"]: t for t in told["transports"]}
        self.assertTrue(transports["tcp"]["runs"])
        with tempfile.TemporaryDirectory(prefix="te-sysfs-") as root:
            none = json.loads(run("--json", f"--sysfs={root}").stdout)
            if "rdma" in te.PARTS:
                rdma = next(t for t in none["transports"] if t["name"] == "rdma")
                self.assertEqual((rdma["runs"], rdma["why"]),
                                 (False, f"there is no RDMA device in {root}/class/infiniband"))

    def test_everything(self):
        """All flags together, as text, and as JSON what needs no server even without a flag."""
        out = run("--changed", "--config", "--links", "--topology")
        self.assertEqual(out.returncode, 0, out.stderr)
        for text in ("Every option has its default", "MC_SLICE_SIZE = 65536", "Topology", "Network interfaces",
                     "RDMA devices"):
            self.assertIn(text, out.stdout)
        told = json.loads(run("--json").stdout)
        for part in ("version", "config", "interfaces", "local_nics", "checks", "changed", "transports"):
            self.assertIn(part, told)
        for locations in told["topology"].values():
            self.assertEqual(len(locations), 2)


if __name__ == "__main__":
    unittest.main()
