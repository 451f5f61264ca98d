#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: optional timeout=900
"""The backend for SGLang under SGLang's own classes, on a CPU and without a model, as its plugin from the wheel."""
import importlib.util
import multiprocessing
import os
import random
import subprocess
import sys
import unittest
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
PATHS = [os.path.join(HERE, name) for name in ("connector_sglang", "connector_vllm")] + [os.path.join(HERE, "..", "integration")]
sys.path[:0] = PATHS
import remote  # noqa: E402
import side  # noqa: E402
import te_proc as te  # noqa: E402
from side import PAGES, SIZE  # noqa: E402

FAILED, BOOTSTRAPPING, WAITING, TRANSFERRING, SUCCESS = range(5)  # KVPoll
IMPORT_S = 560  # in which SGLang is imported
HELD, REUSED = 0x55, 0xAA
OURS, THEIRS = [3, 4, 5, 9, 8, 20, 21], [7, 8, 9, 30, 31, 33, 32]


def interface():
    sys.path.append(side.CONNECTOR)
    spec = importlib.util.spec_from_file_location("record_interface_sglang", os.path.join(side.CONNECTOR, "record_interface.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found():
    """The folder that SGLang is installed in, of the version that the table is of."""
    for package in ("sglang", "torch"):
        if importlib.util.find_spec(package) is None:
            te.skip(f"{package} is not installed")
    folder = os.path.dirname(os.path.dirname(importlib.util.find_spec("sglang").origin))
    here, tried = interface().Source(folder).version("sglang"), interface().table()["version"]
    if here != tried:
        te.skip(f"sglang {here} is here; the backend was tried with {tried}")
    return folder


def wheel():
    """A folder with what the wheel has, so that SGLang finds the plugin as one that is installed."""
    folder = te.Workdir.get()
    program = "import sys, build_backend; print(build_backend.build_wheel(sys.argv[1]))"
    made = subprocess.run([sys.executable, "-c", program, folder], cwd=side.CONNECTOR, check=True, text=True,
                          stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": side.CONNECTOR})
    with zipfile.ZipFile(os.path.join(folder, made.stdout.strip())) as archive:
        archive.extractall(os.path.join(folder, "installed"))
    return os.path.join(folder, "installed")


def setUpModule():
    remote.prepare()
    found()
    import preload  # while it does not import SGLang: that is for the process that all servers are forked from
    sys.path[:0] = [wheel(), os.path.join(te.SRC, "bindings", "python")]
    os.environ.update(PYTHONPATH=os.pathsep.join(sys.path), SGLANG_HOST_IP="127.0.0.1", HF_HUB_OFFLINE="1",
                      TE_TEST_SGLANG_PRELOAD="1", PYTHONWARNINGS="ignore")
    context = multiprocessing.get_context("forkserver")  # it has no threads, as an engine would have
    context.set_forkserver_preload(["preload"])
    remote.SPAWN = context
    ours, theirs = context.Pipe()
    context.Process(target=preload.ready, args=(theirs,), daemon=True).start()
    if not ours.poll(IMPORT_S):
        te.skip(f"sglang is not imported within {IMPORT_S} s")
    why = ours.recv()
    if why:
        te.skip(f"sglang is installed, and not all that it needs: {why}")


class Itself(unittest.TestCase):
    def server(self, mode, bootstrap, **arguments):
        import server
        made = remote.Remote(self, server.serve, mode=mode, bootstrap=bootstrap, **arguments)
        if mode == "decode":
            made.fill(HELD)
        return made

    def pair(self, **arguments):
        self.bootstrap = te.free_port()
        return self.server("prefill", self.bootstrap), self.server("decode", self.bootstrap, **arguments)

    def room(self):
        return random.getrandbits(30) + 1

    def begun(self, prefill, decode, room, pages=tuple(THEIRS), prefix=0):
        """Both are done with the bootstrap, and prefill has announced the rest."""
        prefill.send(room)
        self.assertEqual((prefill.poll(room), decode.ask(room)), (BOOTSTRAPPING, WAITING))
        decode.want(room, list(pages), 2, prefix)
        te.until(lambda: prefill.poll(room) == WAITING, "what decode asks")
        self.assertEqual(prefill.announce(room, len(pages)), prefix)
        prefill.compute(room, 0, OURS)

    def whole(self, prefill, decode):
        room = self.room()
        self.begun(prefill, decode, room)
        prefill.add(room, OURS[:3])
        self.assertIn(prefill.poll(room), (TRANSFERRING,))
        prefill.add(room, OURS[3:], 5)
        te.until(lambda: room in decode.step()[0], "the request")
        te.until(lambda: prefill.poll(room) == SUCCESS, "the end of the sending")
        self.assertEqual((decode.wrong(room, 0, THEIRS), decode.handed_over(2)), (0, room & 0x7fffffff))
        return room

    def step_until(self, decode, condition, what):
        return te.until(lambda: condition(*decode.step()), what)

    def test_the_table_is_that_of_sglang(self):
        made = interface()
        self.assertEqual(made.record(made.Source(found()), made.table())["modules"], made.table()["modules"])

    def test_the_plugin(self):
        """SGLang finds it as it is installed, takes its name for an option, and its classes; other backends stay theirs."""
        prefill = self.server("prefill", te.free_port())
        name, member, hooked, others, unknown, same = prefill.plugin()
        self.assertEqual((name, member, others, unknown, same),
                         ("transfer_engine", "<TransferBackend.TRANSFER_ENGINE: 'transfer_engine'>", "FakeKVSender", True, True))
        ours = ["TransferEngineKV" + part for part in ("Manager", "Sender", "Receiver", "BootstrapServer")]
        self.assertEqual(hooked, ["KVArgs", *ours] * 3)

    def test_whole(self):
        """Chunks of a request, its row, and what follows; a prefix that decode has is not sent."""
        prefill, decode = self.pair()
        room = self.whole(prefill, decode)
        self.assertEqual(prefill.bytes_sent(room), len(OURS) * 3 * SIZE)
        self.assertTrue(decode.untouched(HELD, sorted(set(range(PAGES)) - set(THEIRS))))
        room = self.room()
        decode.fill(HELD)
        self.begun(prefill, decode, room, THEIRS[2:], prefix=2)
        prefill.add(room, OURS[2:], 5)
        te.until(lambda: room in decode.step()[0], "the request")
        self.assertEqual(decode.wrong(room, 2, THEIRS[2:]), 0)
        self.assertTrue(decode.untouched(HELD, THEIRS[:2]))
        self.assertEqual(decode.step()[1], [])

    def test_decode_aborts(self):
        """In the middle: SGLang gives the pages back when prefill has said that nothing comes any more: they stay what they are."""
        prefill, decode = self.pair()
        room = self.room()
        self.begun(prefill, decode, room)
        prefill.add(room, OURS[:3])
        te.until(lambda: not decode.wrong(room, 0, THEIRS[:3]), "the first chunk")
        decode.abort(room)
        self.step_until(decode, lambda _, released, held: released == [room] and not held, "the pages")
        decode.fill(REUSED)
        prefill.add(room, OURS[3:], 5)
        te.until(lambda: prefill.poll(room) == FAILED, "its end")
        self.assertIn("decode has aborted it", prefill.why(room))
        self.whole(prefill, decode)
        self.assertTrue(decode.untouched(REUSED, sorted(set(range(PAGES)) - set(THEIRS))))

    def test_decode_aborts_with_a_write_under_way(self):
        """SGLang has told its client, and holds the pages until the WRITE is fenced."""
        prefill, decode = self.pair()
        self.whole(prefill, decode)
        room = self.room()
        self.begun(prefill, decode, room)
        decode.fill(HELD)
        decode.freeze()
        prefill.add(room, OURS[:3])
        te.until(prefill.under_way, "a WRITE under way")
        prefill.freeze()
        decode.thaw()
        decode.abort(room)
        self.step_until(decode, lambda _, released, held: held == [room], "a failure")
        self.assertEqual(decode.step()[1:], ([], [room]))
        prefill.thaw()
        self.step_until(decode, lambda _, released, held: released == [room] and not held, "the pages")
        decode.fill(REUSED)
        te.until(lambda: prefill.poll(room) == FAILED and not prefill.fencing(), "its end")
        self.assertTrue(decode.untouched(REUSED))

    def test_prefill_aborts(self):
        """With a WRITE under way: SGLang gives its pages back at once; decode has an error, and its own back when it is fenced."""
        prefill, decode = self.pair()
        self.whole(prefill, decode)
        room = self.room()
        self.begun(prefill, decode, room)
        decode.freeze()
        prefill.add(room, OURS[:3])
        te.until(prefill.under_way, "a WRITE under way")
        prefill.abort(room)
        self.assertFalse(prefill.under_way())
        prefill.fill(REUSED)
        self.assertEqual(prefill.poll(room), FAILED)
        self.assertIn("Aborted", prefill.why(room))
        decode.thaw()
        self.step_until(decode, lambda _, released, held: released == [room] and not held, "the pages")
        decode.fill(HELD)
        te.until(lambda: not prefill.fencing(), "the end of the doubt")
        self.assertTrue(decode.untouched(HELD))

    def test_prefill_aborts_before_it_computes(self):
        """Decode gives up before it has asked, and prefill after it was asked."""
        prefill, decode = self.pair()
        room = self.room()
        prefill.send(room)
        self.assertEqual(decode.ask(room), WAITING)
        decode.abort(room)
        te.until(lambda: prefill.poll(room) == FAILED, "its end")
        room = self.room()
        self.begun(prefill, decode, room)
        prefill.abort(room)
        self.step_until(decode, lambda _, released, held: released == [room] and not held, "the pages")
        self.assertTrue(decode.untouched(HELD))

    def test_prefill_is_killed(self):
        """Decode has an error when SGLang finds the node lost, and its pages when another server has that one's name."""
        prefill, decode = self.pair(extra={"settle_s": 0.2})
        room = self.room()
        self.begun(prefill, decode, room)
        port = int(prefill.address()[0].rpartition(":")[2])
        prefill.add(room, OURS[:3])
        te.until(lambda: not decode.wrong(room, 0, THEIRS[:3]), "the first chunk")
        prefill.kill()
        decode.lose_node()
        self.step_until(decode, lambda _, released, held: held == [room], "a failure")
        decode.limit(lost=1)
        te.until(lambda: decode.kept() == 1, "that nobody answers")
        self.assertEqual(decode.step()[1:], ([], [room]))
        decode.fill(HELD)
        prefill = self.server("prefill", self.bootstrap, port=port)
        self.step_until(decode, lambda _, released, held: released == [room] and not held, "the pages")
        self.assertTrue(decode.untouched(HELD))
        self.whole(prefill, decode)

    def test_prefill_is_killed_without_a_heartbeat(self):
        """The exchange itself finds out: after lost_s the request fails, and its pages are held."""
        prefill, decode = self.pair()
        room = self.room()
        self.begun(prefill, decode, room)
        prefill.kill()
        decode.limit(lost=1)
        self.step_until(decode, lambda _, released, held: held == [room] and not released, "a failure")

    def test_what_is_refused(self):
        """When a server starts, by the names that SGLang has for its settings, and when two do not fit."""
        prefill, decode = self.pair()
        held = "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT"
        for words, arguments in (("without --enable-memory-saver", {"enable_memory_saver": True}),
                                 ("without --tokenizer-worker-num", {"tokenizer_worker_num": 2}),
                                 ("state beside its KV cache", {"state": ["mamba"]}),
                                 (f"{held}=inf", {"environment": {held: "30"}})):
            self.assertIn(words, decode.refusal(**arguments))
        self.assertRegex(decode.refusal(), "^Options")
        room = self.room()
        prefill.tell_width(2)
        self.assertEqual(decode.ask(room), FAILED)
        self.assertIn("the prefill server has 2 ranks of tensor parallelism", decode.why(room))


if __name__ == "__main__":
    te.main()
