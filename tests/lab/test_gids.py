# SPDX-License-Identifier: Apache-2.0
# lab: guests=2 nics=2 timeout=150 spoils
"""Addresses of several families on the NICs: the engine speaks from one that reaches the peer, which te_info tells."""
import json

import te_lab

BENCH = (f"exec {te_lab.BUILD}/bin/transfer_engine_bench --protocol=rdma --metadata_server=P2PHANDSHAKE "
         "--device_name=rxe0 --buffer_size=8M --threads=1 --batch_size=4 --block_size=64K --duration=2")


def gid(guest):
    """The one that rxe0 has in what te_info tells, as an address."""
    wanted = False
    for line in guest.run(f"{te_lab.BUILD}/bin/te_info --links").output().splitlines():
        words = line.split()
        wanted = words[0] == "rxe0" if len(words) > 1 and line.startswith("  rxe") else wanted
        if wanted and words[:1] == ["GID"]:
            return words[1].replace(":", "")
    raise AssertionError("te_info tells no GID of rxe0")


def transfers(title, machine, names, expected):
    """Both ways, compared; `names` of the handshakes and the GIDs that are published, of each guest."""
    found = [gid(guest) for guest in machine.guests]
    for guest, text, start in zip(machine.guests, found, expected):
        assert text.startswith(start), f"{title}: guest {guest.number} publishes {text}, not {start}..."
    for target, initiator in ((0, 1), (1, 0)):
        server = machine.guests[target].start_job(f"{BENCH} --mode=target --local_server_name={names[target]}")
        segment = server.wait_line(r"^segment: (\S+)$").group(1)
        done = machine.guests[initiator].run(f"{BENCH} --verify --json --local_server_name={names[initiator]} "
                                             f"--segment_id={segment}", timeout=30)
        compared = json.loads(done.output())["verified_bytes"]
        print(f"{title}, guest {initiator} with {target}: {compared / 1e6:.0f} MB compared", flush=True)
        assert compared > 0
        server.kill()


def test(machine):
    def on(number, command):
        machine.guests[number].run(command + "; nap 0.5")  # the kernel fills the table in the background

    v4, unique, local = "0" * 20 + "ffff0a4d", "fd77" + "0" * 24, "fe80"
    names = [guest.ip(1) for guest in machine.guests]  # eth1 keeps its address: handshakes go there
    transfers("IPv4 and link-local", machine, names, (v4, v4))
    on(0, "ip addr add fd77::1/64 dev eth0 nodad")
    transfers("unique-local IPv6 at one end only", machine, names, (unique, v4))
    on(1, "ip addr add fd77::11/64 dev eth0 nodad")
    transfers("unique-local IPv6 at both", machine, names, (unique, unique))
    on(0, "ip addr flush dev eth0 scope global; ip addr add fd77::1/64 dev eth0 nodad")
    on(1, "ip addr flush dev eth0 scope global; ip addr add fd77::11/64 dev eth0 nodad")
    transfers("IPv6 only, and handshakes over it", machine, ["[fd77::1]", "[fd77::11]"], (unique, unique))
    for number in (0, 1):
        on(number, "ip addr flush dev eth0 scope global")
    transfers("link-local only", machine, names, (local, local))
