# SPDX-License-Identifier: Apache-2.0
"""The other process of the tests: an engine that does what lines of JSON on stdin say."""

import hashlib
import json
import sys

import transfer_engine


def noise(seed, n):
    """The same n bytes for the same seed, in every process."""
    return hashlib.shake_128(str(seed).encode()).digest(n)


class Peer:
    def __init__(self, **arguments):
        self.engine = transfer_engine.Engine(**arguments)
        self.memory = {}
        self.counters = {}

    def register(self, length, seed):
        memory = self.engine.alloc(length)
        memory[:] = noise(seed, length)
        region = self.engine.register(memory)
        self.memory[region.address] = (memory, region)
        return region.address

    def unregister(self, address):
        self.memory.pop(address)[1].close()

    def fill(self, address, seed):
        memory = self.memory[address][0]
        memory[:] = noise(seed, len(memory))

    def digest(self, address, offset, length):
        return hashlib.sha256(self.memory[address][0][offset : offset + length]).hexdigest()

    def notifications(self):
        return self.engine.notifications()

    def notify(self, target, name, msg):
        with self.engine.open(target) as segment:
            segment.notify(name, msg)

    def counter(self, name):
        self.counters[name] = self.engine.counter(name)

    def value(self, name):
        return self.counters[name].value

    def name(self):
        return self.engine.name


def main():
    peer = Peer(**json.loads(sys.argv[1]))
    for line in sys.stdin:
        order = json.loads(line)
        answer = getattr(peer, order.pop("call"))(**order)
        print(json.dumps(answer), flush=True)
    peer.engine.close()


if __name__ == "__main__":
    main()
