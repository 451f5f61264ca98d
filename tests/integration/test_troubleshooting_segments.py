#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# te-test: parallel timeout=300
"""docs/troubleshooting.md: what te_segment says, and engines of segments of files."""
import json
import os
import unittest

import te_proc as te
import te_trouble as trouble
from te_trouble import provokes

SIZE = 65536
CONNECT, FILES = "integration/test_te_segment_connect.py", "integration/test_te_segment_files.py"


def file(name, size=SIZE):
    path = os.path.join(te.Workdir.get(), name)
    with open(path, "wb") as f:
        f.truncate(size)
    return path


class Segments(trouble.Section, unittest.TestCase):
    title = "Segments of te_segment, and files"

    def setUp(self):
        self.metad = te.Metad()
        self.addCleanup(self.metad.close)

    def segment(self, *args):
        """What te_segment says."""
        return trouble.said(te.run("te_segment", *args, f"--metadata_server={self.metad.url}"))

    def engine(self, name, *options):
        peer = te.Peer(name=name, metadata=self.metad.url, options=options)
        self.addCleanup(peer.close)
        return peer

    @provokes("the HTTP server at ... gives no list of keys (...): ...")
    def no_list(self):
        with trouble.Keys() as server:
            return trouble.tool("te_segment", "list", f"--metadata_server={server.url}")

    @provokes("does not answer: ...")
    def gone(self):
        self.engine("gone").kill()
        return self.segment("show", "gone")

    @provokes("there is no segment '...'; ...")
    def absent(self):
        return self.segment("show", "absent")

    @provokes("segment ... has no buffer: ...")
    def no_buffer(self):
        self.segment("register", "empty")
        return trouble.said(te.bench("empty", metadata=self.metad.url, name="initiator"))

    @provokes("... is registered already, ...")
    def twice(self):
        self.segment("register", "twice")
        return self.segment("register", "twice")

    @provokes("segment '...' stays: its engine answers at ...")
    def lives(self):
        self.engine("lives")
        return self.segment("unregister", "lives")

    def reader(self, path, allowed):
        """An engine, and the index of a region of its, on a host that has the segment of that file."""
        te.need("nvmeof")
        self.segment("register", "disk", f"--file={path}", "--force", "--server_name=reader")
        peer = self.engine("reader", f"TE_FILE_PATHS={allowed}")
        return peer, peer.region(SIZE)[0]

    @provokes("segment '...': ... is not at or below a path in TE_FILE_PATHS, ...")
    def not_below(self):
        return self.reader(file("disk"), "/no/such/folder")[0].refused("open", "nvmeof/disk")

    @provokes("links lead ... out of the paths in TE_FILE_PATHS ...")
    def link(self):
        folder = os.path.join(te.Workdir.get(), "allowed")
        os.mkdir(folder)
        path = file(os.path.join(folder, "disk"))
        peer, index = self.reader(path, folder)
        segment = peer.open("nvmeof/disk")
        os.unlink(path)
        os.symlink(file("outside"), path)
        return peer.move("read", segment, index, 0, 0, 4096)[3]

    @provokes("the metadata server has no key ...: segment ...; files of that name are opened as nvmeof/...")
    def nobody(self):
        return self.engine("asks").refused("open", "nobody")

    def mounted(self, path):
        """What te_segment says to that path for a file of SIZE bytes."""
        self.segment("register", "data", f"--file={file('data')}", "--force")
        return self.segment("mount", "data", f"--path={path}", "--server_name=elsewhere")

    @provokes("file '...': it has ... bytes, less than the ... registered")
    def shorter(self):
        return self.mounted(file("short", 4096))

    @provokes("... there is no such file")
    def no_file(self):
        return self.mounted("/no/such/file")

    @provokes("file '...': it has ... bytes, the one that was registered ...")
    def longer(self):
        return self.mounted(file("long", 2 * SIZE))

    @provokes("this host has no device '...'")
    def no_device(self):
        te.need("rdma")
        return self.segment("register", "far", "--protocol=rdma", "--devices=no_such_nic")

    @provokes("rpc_meta of ...: ...")
    def malformed(self):
        told = {"name": "odd", "server_name": "odd", "protocol": "tcp", "tcp_data_port": 1, "tcp_proto_version": 1,
                "buffers": [{"addr": 4096, "length": SIZE, "name": "cpu:0"}]}
        te.put(f"{self.metad.url}?key=mooncake/ram/odd", json.dumps(told).encode())
        te.put(f"{self.metad.url}?key=mooncake/rpc_meta/odd", b'{"rpc_port":1}')
        return self.engine("asks").refused("open", "odd")

    elsewhere = {
        "device '...' of this host has no GID at its port ...": ("integration/test_te_segment.py", "has no GID at its port"),
        "file '...': the device is in use: it is mounted, or part of another device":
            ("integration/test_te_segment_device.py", "the device is in use: it is"),
        "subsystem ... is connected, but shows no such namespace within ... s":
            (CONNECT, "is connected, but shows no such namespace within"),
        "nvme connect failed with status ...; why, it says above": (CONNECT, "nvme connect failed with status"),
        "segment '...': others change it all the time, and undo this: try again": (FILES, "others change it all the")}
    not_provoked = {"... there is no /dev/nvme...": "a real NVMe device: the test of te_segment has a folder in the place of /dev"}


if __name__ == "__main__":
    te.main()
