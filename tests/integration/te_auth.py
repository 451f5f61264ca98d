# SPDX-License-Identifier: Apache-2.0
"""Key files and engines with TE_AUTH, for the tests of it."""
import base64
import os
import shutil
import struct
import tempfile
import unittest

import te_prom
import te_proc as te

SIZE = 100001
KEYS = {c: base64.b64encode(c.upper().encode() * 32).decode() for c in "abcdxyz"}
TCP_ONLY = ("TE_HOST_PATH=0",)
HELLO_MAGIC = 0xff564954414e4554


def lines(*ids, **keys):
    """The text of a key file; the key of an id is that of its name, unless it is given."""
    return "".join(f"{i}:{keys.get(i) or KEYS[i]}\n" for i in ids)


class Case(unittest.TestCase):
    """A test with a folder for key files; its engines end with it."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="te_auth_")
        self.addCleanup(shutil.rmtree, self.folder)

    def keys(self, name, text, mode=0o600):
        """The path of a key file, written by a rename."""
        path = os.path.join(self.folder, name)
        with open(path + ".new", "w", encoding="ascii") as f:
            os.fchmod(f.fileno(), mode)
            f.write(text)
        os.rename(path + ".new", path)
        return path

    def change(self, peer, text, told):
        """Gives an engine another key file, and waits for what it says of that."""
        self.keys(peer.key_file, text)
        peer.wait_error(told)

    def engine(self, *options, keys=None, env=None, **more):
        """With TE_AUTH=psk where there is a text of keys; .metrics() are those it tells."""
        name = f"keys{len(os.listdir(self.folder))}"
        if keys:
            options = ("TE_AUTH=psk", f"TE_AUTH_KEYS={self.keys(name, keys)}", *options)
        peer = te.Peer(options=("TE_METRICS=127.0.0.1:0", "MC_LOG_LEVEL=INFO", *options), env={**te.PATIENT, **(env or {})}, **more)
        peer.key_file = name
        self.addCleanup(peer.close)
        return peer

    def refusals(self, peer):
        """What the engine has refused: {cause: number}, without zeros."""
        family = te_prom.parse(te_prom.get(te_prom.address_of(peer))[1])["transfer_engine_auth_refused_total"]
        return {dict(labels)["cause"]: int(n) for (_, labels), n in family.samples.items() if n}

    def until_refused(self, peer, cause, number=1):
        te.until(lambda: self.refusals(peer).get(cause, 0) >= number, f"{number} refusals for {cause}")

    def moves(self, source, target, seed=1, region=None):
        """A round trip of bytes between two engines; `region`: (index, address) at the target, None: a new one."""
        index, remote = region or target.region(SIZE)
        mine, _ = source.region(2 * SIZE)
        source.round_trip(source.open(target.segment), mine, SIZE, remote, seed)
        target.ask("check", index, 0, SIZE, seed)

    def fails_to_move(self, source, target, what, region=None):
        """A WRITE that fails with that text, and a READ likewise; the target's memory is as it was."""
        index, remote = region or target.region(SIZE)
        target.ask("fill", index, 0, SIZE, 77)
        mine, _ = source.region(SIZE)
        segment = source.open(target.segment)
        for opcode in ("write", "read"):
            state, error, moved, text = source.move(opcode, segment, mine, 0, remote, SIZE)
            self.assertNotEqual(state, te.COMPLETED)
            self.assertNotEqual(error, 0)
            self.assertEqual(moved, 0)
            self.assertIn(what, text + source.error_output())
        target.ask("check", index, 0, SIZE, 77)


def classic(opcode, address, length, version=2):
    """The header of a request of version 1 or 2."""
    return struct.pack("<QQB7x", length, address, opcode | (0x80 if version == 2 else 0))
