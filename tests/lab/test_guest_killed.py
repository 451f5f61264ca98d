# SPDX-License-Identifier: Apache-2.0
# lab: guests=2 nics=2 timeout=100
"""The power of the target's machine fails in the midst of a stream of requests, and comes back."""
import time

import te_pair

DIES_S = 15  # after which the last request has failed; 5 to 6 s were seen
BACK_S = 20


def test(machine):
    target, initiator = machine.guests
    pair = te_pair.Pair(machine, (target, (0, 1)), (initiator, (0, 1)), ["MC_HANDSHAKE_CONNECT_TIMEOUT=2"])
    pair.begin("read")
    begun = initiator.now()
    target.kill()
    time.sleep(3)
    died = initiator.now()
    machine.boot(target)
    pair.make_memory(target)
    pair.start_target()
    pair.open()
    back = pair.wait_more(50, BACK_S)
    stream = pair.end(te_pair.GONE + (te_pair.TIMEOUT,))
    longest = stream.longest_ms(begun, died)
    print(f"guest of the target killed and booted: {len(stream.bad)} requests failed, after {longest:.0f} ms at most; "
          f"again after {back * 1000:.0f} ms")
    assert stream.bad, "no request failed, though its target was gone"
    assert longest < DIES_S * 1000, f"a request took {longest:.0f} ms to fail"
    pair.close()
