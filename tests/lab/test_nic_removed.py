# SPDX-License-Identifier: Apache-2.0
# lab: nics=4 timeout=100
"""A NIC is taken out in the midst of a stream of requests, at either end; put back, it carries for new engines."""
import te_lab
import te_pair

STALL_S = 8


def carries_nothing(guest, pair, nic):
    before = guest.packets(nic)
    pair.wait_more(20, 30)
    return guest.packets(nic) == before


def removed(machine, nic, direction):
    guest = machine.guests[0]
    pair = te_pair.Pair(machine, (guest, (2, 3)), (guest, (0, 1)))
    owner = pair.initiator if nic < 2 else pair.target
    pair.begin(direction)
    begun = guest.now()
    guest.unplug_nic(nic)
    te_lab.wait_until(f"rxe{nic} to carry nothing", lambda: carries_nothing(guest, pair, nic), 30)
    te_lab.wait_until(f"the log to tell of rxe{nic}", lambda: f"NIC rxe{nic} port 1 is not used" in owner.errors(), 10)
    pair.wait_more(40, 30)
    stream = pair.end()
    longest = stream.longest_ms(begun, guest.now())
    print(f"NIC {nic} removed, {direction}: longest request {longest:.0f} ms", flush=True)
    assert longest < STALL_S * 1000, f"a request took {longest:.0f} ms"
    pair.close()  # the kernel keeps what is left of the NIC until then, and removes no other
    guest.plug_nic(nic)


def test(machine):
    removed(machine, 0, "read")
    removed(machine, 3, "write")
    guest = machine.guests[0]
    pair = te_pair.Pair(machine, (guest, (3,)), (guest, (0,)))
    pair.begin("read")
    pair.wait_more(20, 20)
    pair.end()
    print("NICs put back carry for new engines")
    pair.close()
