#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=120
"""te_metad --backup: a copy while the server runs, and a server that starts from it."""
import os
import shutil
import signal
import threading
import unittest

import te_proc as te
from metad_server import Server, ask, get, put, target


class Backup(unittest.TestCase):
    def setUp(self):
        self.folder = os.path.join(te.Workdir.get(), self.id())
        os.mkdir(self.folder)
        self.file = os.path.join(self.folder, "copy.db")

    def back_up(self, server):
        os.kill(server.pid, signal.SIGUSR1)
        server.wait_error(f"te_metad: backup written: {self.file}")

    def restored(self):
        """A server with the contents of the copy, as docs/metad.md says."""
        data = os.path.join(self.folder, "restored")
        os.mkdir(data)
        shutil.copy(self.file, os.path.join(data, "metadata.db"))
        return Server(f"--data-dir={data}")

    def check(self, *flags):
        with Server(f"--backup={self.file}", *flags) as server:
            client = server.client()
            for i in range(200):
                self.assertEqual(put(client, f"key {i}", f"value {i}" * 100)[0], 200)
            self.assertEqual(ask(client, "PUT", target("short"), "life", **{"Metadata-TTL": "86400"})[0], 200)
            self.back_up(server)
            self.assertEqual(put(client, "later", "x")[0], 200)
            client.close()
        self.assertEqual(os.stat(self.file).st_mode & 0o777, 0o600)
        self.assertEqual([n for n in os.listdir(self.folder) if n.endswith(".tmp")], [])
        with self.restored() as server:
            client = server.client()
            for i in range(200):
                self.assertEqual(get(client, f"key {i}"), (200, (f"value {i}" * 100).encode()))
            self.assertEqual(get(client, "later")[0], 404)
            self.assertEqual(ask(client, "POST", target("short"), **{"Metadata-TTL": "86400"})[0], 200)
            client.close()

    def test_from_disk(self):
        self.check(f"--data-dir={self.folder}/data")

    def test_from_memory(self):
        self.check()

    def test_under_load(self):
        """A copy is of one moment: of keys that are put in order, it has the first ones up to some place."""
        with Server(f"--backup={self.file}", f"--data-dir={self.folder}/data") as server:
            done, ended = threading.Event(), []

            def load():
                client = server.client()
                while not done.is_set():
                    ended.append(put(client, f"{len(ended):06}", "x")[0])
                client.close()

            thread = threading.Thread(target=load)
            thread.start()
            te.until(lambda: len(ended) > 50, "50 keys")
            self.back_up(server)
            least = 50
            done.set()
            thread.join()
            self.assertEqual(set(ended), {200})
        with self.restored() as server:
            keys = server.once(ask, "GET", "/metadata?prefix=")[1].decode().split()
            self.assertGreaterEqual(len(keys), least)
            self.assertEqual(keys, [f"{i:06}" for i in range(len(keys))])

    def test_no_place(self):
        """The server goes on, and the copy that there was stays."""
        with open(self.file, "w", encoding="utf-8") as f:
            f.write("earlier")
        os.mkdir(self.file + ".tmp")
        with Server(f"--backup={self.file}") as server:
            os.kill(server.pid, signal.SIGUSR1)
            server.wait_error("te_metad: no backup: ")
            self.assertEqual(server.once(ask, "GET", "/health")[0], 200)
        with open(self.file, encoding="utf-8") as f:
            self.assertEqual(f.read(), "earlier")

    def test_no_flag(self):
        """A signal that comes to a server without the flag does not end it."""
        with Server() as server:
            os.kill(server.pid, signal.SIGUSR1)
            server.wait_error("te_metad: no backup: start it with --backup=FILE")
            self.assertEqual(server.once(ask, "GET", "/health")[0], 200)


if __name__ == "__main__":
    te.main()
