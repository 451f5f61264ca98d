#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""The commands of docs/security-howto.md, as they stand there, on this host in the place of two."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import te_proc as te

PAGE = os.path.join(te.SRC, "docs", "security-howto.md")


def blocks():
    with open(PAGE, encoding="utf-8") as page:
        return re.findall(r"^```sh\n(.+?)^```$", page.read(), re.M | re.S)


class Howto(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="te_howto_")
        self.addCleanup(shutil.rmtree, self.folder)
        self.keys, self.start, self.move, self.change, self.pki, self.certified, self.apart, self.tls = blocks()
        self.shell(self.keys)

    def shell(self, text, check=True):
        env = {**os.environ, "PATH": te.BIN + ":" + os.environ["PATH"], "TE_HOST_PATH": "0"}
        return subprocess.run(["bash", "-euc", text], cwd=self.folder, env=env, capture_output=True, text=True,
                              check=check, timeout=te.HANG_S)

    def target(self, start=None):
        env = {"PATH": te.BIN + ":" + os.environ["PATH"]}
        script = f"cd {self.folder}\n" + (start or self.start).replace("transfer_engine_bench", "exec transfer_engine_bench")
        proc = te.Proc(["bash", "-euc", script], env=env)
        self.addCleanup(proc.close)
        return proc, proc.wait_line(r"(127\.0\.0\.1:\d+)").group(1)

    def on_b(self):
        return self.start.split("\n", maxsplit=1)[0].replace("a.keys", "b.keys")

    def test_ten_commands(self):
        lines = [line for block in (self.keys, self.start, self.move) for line in block.splitlines()]
        self.assertLess(len(lines) + 1, 10)  # and scp, in words

    def test_files_are_their_owners_alone(self):
        for name in ("a.keys", "b.keys"):
            self.assertEqual(os.stat(os.path.join(self.folder, "keys", name)).st_mode & 0o777, 0o600)

    def test_with_the_right_keys(self):
        _, name = self.target()
        self.shell(self.on_b() + "\n" + self.move.replace("NAME", name))

    def test_a_new_key(self):
        proc, name = self.target()
        self.shell(self.change)
        self.shell(self.on_b() + "\n" + self.move.replace("NAME", name))
        self.assertNotIn("refused", proc.error_output())

    def test_certificates(self):
        self.shell(self.pki)
        proc, name = self.target(self.certified)
        export = self.certified.split("\n", maxsplit=1)[0]
        self.shell(export + "\n" + self.move.replace("NAME", name))
        self.assertNotIn("refused", proc.error_output())
        self.shell(self.pki.replace("=pki", "=other"))
        got = self.shell(export.replace("/pki/", "/other/") + "\n" + self.move.replace("NAME", name), check=False)
        self.assertNotEqual(got.returncode, 0)
        self.assertIn("TE_AUTH_CA", got.stdout + got.stderr)

    def test_clients_apart(self):
        told = self.shell(self.apart).stdout
        for one, other in (("prefill-0", "prefill-1"), ("prefill-1", "prefill-0")):
            with open(os.path.join(self.folder, "clients", f"{one}.keys"), encoding="utf-8") as keys:
                self.assertNotIn(other, keys.read())
            self.assertRegex(told, rf"clients/{one}.keys -> clients/pool.keys: yes")
            self.assertRegex(told, rf"clients/{one}.keys -> clients/{other}.keys: refused")

    def test_the_metadata_server(self):
        te.need("http")
        script = f"cd {self.folder}\n" + self.tls.replace("te_metad", "exec te_metad").replace("8443", "0")
        server = te.Proc(["bash", "-euc", script], env={"PATH": te.BIN + ":" + os.environ["PATH"]})
        self.addCleanup(server.close)
        address = server.wait_line(r"listening on (127\.0\.0\.1:\d+)").group(1)
        got = self.shell(f"TE_METADATA_CA=tls/ca.pem te_segment list --metadata_server=https://{address}/metadata")
        self.assertEqual(got.stderr, "")

    def test_without_keys(self):
        proc, name = self.target()
        got = self.shell("unset TE_AUTH TE_AUTH_KEYS\n" + self.move.replace("NAME", name), check=False)
        self.assertNotEqual(got.returncode, 0)
        self.assertIn("set TE_AUTH here as it is there", got.stdout + got.stderr)
        proc.wait_error("is refused (plain")

    def test_with_another_key(self):
        _, name = self.target()
        self.shell(self.keys.replace("keys/", "other/").replace("=keys", "=other"))
        got = self.shell(self.on_b().replace("keys/b", "other/b") + "\n" + self.move.replace("NAME", name), check=False)
        self.assertNotEqual(got.returncode, 0)
        self.assertIn("another key for our id 'b'", got.stdout + got.stderr)


if __name__ == "__main__":
    te.main()
