# SPDX-License-Identifier: Apache-2.0
# lab: nics=4 timeout=200
"""Parts of the fabric fail in the midst of a stream of requests between two processes with two NICs each.

The initiator has rxe0 and rxe1, the target rxe2 and rxe3. Where another NIC is left no request fails; bytes are
compared always; and what is mended carries again.
"""
import time

import te_pair

STALL_S = 8  # no request takes longer where there is another NIC; about 0.3 s without emulation
BACK_S = 20  # a NIC that is back carries again


class Faults:
    def __init__(self, machine):
        self.guest = machine.guests[0]
        self.machine = machine
        self.pair = te_pair.Pair(machine, (self.guest, (2, 3)), (self.guest, (0, 1)))

    def wait_carries(self, nic):
        """Until the NIC carries its part again."""
        begun, before = time.monotonic(), self.guest.packets(nic)
        while self.guest.packets(nic) < before + 500:
            assert time.monotonic() < begun + BACK_S, f"rxe{nic} carries nothing"
            time.sleep(0.1)
        return time.monotonic() - begun

    def check_carries_nothing(self, nic):
        """But what is sent to see whether it is back."""
        before = self.guest.packets(nic)
        self.pair.wait_more(20, 30)
        assert self.guest.packets(nic) - before < 200, f"rxe{nic} carries on"

    def one(self, title, direction, nic, fail, mend):
        """A fault of one NIC of four."""
        self.pair.begin(direction)
        begun = self.guest.now()
        fail()
        self.pair.wait_more(20, 30)
        if nic is not None:
            self.check_carries_nothing(nic)
        after = self.guest.now()
        mend()
        back = self.wait_carries(nic) if nic is not None else self.pair.wait_more(20, BACK_S)
        stream = self.pair.end()
        stall, longest = stream.stall_ms(begun, after), stream.longest_ms(begun, after)
        print(f"{title}, {direction}: nothing for {stall:.0f} ms, longest request {longest:.0f} ms, "
              f"carries again after {back * 1000:.0f} ms", flush=True)
        assert longest < STALL_S * 1000, f"a request took {longest:.0f} ms"

    def cables(self, plugged):
        for nic in (0, 1):
            self.guest.cable(nic, plugged)

    def all_out(self):
        self.cables(False)
        time.sleep(1.5)
        self.cables(True)

    def link(self, nic, state):
        self.guest.run(f"lab_link_{state} {nic}")

    def of_nics(self):
        def cable(nic):
            return lambda: self.guest.cable(nic, False), lambda: self.guest.cable(nic, True)

        def link(nic):
            return lambda: self.link(nic, "down"), lambda: self.link(nic, "up")

        self.one("initiator's cable pulled", "read", 0, *cable(0))
        self.one("target's cable pulled", "write", 2, *cable(2))
        self.one("target's cable pulled", "read", 3, *cable(3))
        self.one("initiator's link down", "write", 1, *link(1))
        self.one("target's link down", "read", 2, *link(2))
        self.one("all cables of the initiator pulled for 1.5 s", "write", None, self.all_out, lambda: None)

    def target_killed(self):
        self.pair.begin("read")
        begun = self.guest.now()
        self.pair.target.kill()
        died = self.guest.now()
        time.sleep(1)
        self.pair.start_target()
        self.pair.open()
        back = self.pair.wait_more(20, BACK_S)
        stream = self.pair.end(te_pair.GONE)
        longest = stream.longest_ms(begun, died)
        print(f"target killed and started again: {len(stream.bad)} requests failed, after {longest:.0f} ms at most; "
              f"again after {back * 1000:.0f} ms", flush=True)
        assert stream.bad, "no request failed, though its target was gone"
        assert longest < STALL_S * 1000, f"a request took {longest:.0f} ms to fail"

    def close(self):
        self.pair.close()


def no_way_left(machine):
    """Requests fail after TE_TRANSFER_TIMEOUT_MS, and go well again when there is a way."""
    guest = machine.guests[0]
    pair = te_pair.Pair(machine, (guest, (2,)), (guest, (0,)), ["TE_TRANSFER_TIMEOUT_MS=1500"])
    pair.begin("read")
    begun = guest.now()
    guest.cable(0, False)
    time.sleep(3)
    after = guest.now()
    guest.cable(0, True)
    back = pair.wait_more(20, BACK_S)
    stream = pair.end((te_pair.TIMEOUT, te_pair.LINK))
    longest = stream.longest_ms(begun, after)
    print(f"the only cable pulled, TE_TRANSFER_TIMEOUT_MS=1500: {len(stream.bad)} requests failed, after "
          f"{longest:.0f} ms at most; again after {back * 1000:.0f} ms", flush=True)
    assert any(r.error == te_pair.TIMEOUT for r in stream.bad), "no request failed"
    assert longest < STALL_S * 1000, f"a request took {longest:.0f} ms to fail"
    pair.close()


def test(machine):
    faults = Faults(machine)
    faults.of_nics()
    faults.target_killed()
    faults.close()
    no_way_left(machine)
