# SPDX-License-Identifier: Apache-2.0
"""A KV cache goes from prefill to decode, layer by layer; decode uses each layer as it comes.

Two processes. Decode has free pages, and makes a counter for each request; prefill writes each layer once it is
computed, and has the counter raised by a bit of its own. The second request is given up in the middle, and the third
gets its pages. docs/tutorial-kv.md goes through it step by step.
"""
import multiprocessing
import sys
from array import array

import transfer_engine as te

LAYERS, PAGES, PAGE, NEEDED = 16, 64, 16384, 20
LOOPBACK = {"TE_BIND": "127.0.0.1"}  # the address that both listen on, and no other


def compute(seed, layer, i):
    """Stands for the model: what page i of a layer holds."""
    first = seed * 101 + layer * 31 + i
    return bytes((first + k * 7) % 256 for k in range(256)) * (PAGE // 256)


def send_layer(segment, adder, here, order, layer):
    batch = segment.start_pages(
        te.Opcode.WRITE,
        te.Pages(here + layer * PAGES * PAGE, PAGES, PAGE),
        te.Pages(order["base"] + layer * PAGE, PAGES, LAYERS * PAGE, array("I", order["pages"])),
        PAGE,
        NEEDED,
    )
    batch.add_after(adder, 1 << layer)
    return batch


def serve(engine, ours, here, decode, order):
    batches = []
    with engine.open(order["engine"]) as segment, segment.adder(order["counter"]) as adder:
        while len(batches) < LAYERS and not decode.poll():
            layer = len(batches)
            for i in range(NEEDED):
                at = (layer * PAGES + i) * PAGE
                ours[at : at + PAGE] = compute(order["seed"], layer, i)
            batches.append(send_layer(segment, adder, here, order, layer))
        given_up = decode.recv() == "given up"
        for batch in batches:
            if given_up:
                batch.cancel()
            batch.wait()
            if given_up:
                batch.fence(60)  # then nothing of it changes the pages of decode any more
            batch.close()
        adder.flush(60)  # what was not given up is counted
    decode.send("quiet")


def prefill(decode):
    ours = bytearray(LAYERS * PAGES * PAGE)  # layer by layer
    with te.Engine(options=LOOPBACK) as engine:
        here = engine.register(ours, access=te.Access.LOCAL_ONLY).address
        while (order := decode.recv()) is not None:
            serve(engine, ours, here, decode, order)


def use_layer(counter, theirs, order, layer):
    """Waits for a layer and uses it: here it is compared."""
    while not (have := counter.value) >> layer & 1:
        if not counter.wait(have + 1, 60):
            raise TimeoutError(f"layer {layer} has not come")
    wrong = 0
    for i, page in enumerate(order["pages"]):
        at = (page * LAYERS + layer) * PAGE
        wrong += theirs[at : at + PAGE] != compute(order["seed"], layer, i)
    return wrong


def request(engine, theirs, base, prefill_end, number):
    given_up, name = number == 2, f"request {number}"
    pages = [(i * 7 + (number > 1)) % PAGES for i in range(NEEDED)]  # the third has those of the second
    with engine.counter(name) as counter:
        order = {"engine": engine.name, "counter": name, "base": base, "seed": number, "pages": pages}
        prefill_end.send(order)
        wrong = sum(use_layer(counter, theirs, order, layer) for layer in range(1 if given_up else LAYERS))
        prefill_end.send("given up" if given_up else "done")
        prefill_end.recv()  # until then its pages may still change
    print(f"{name}: {'given up' if given_up else 'all layers'}, {wrong} pages are wrong")
    return wrong


def main():
    processes = multiprocessing.get_context("spawn")
    prefill_end, decode_end = processes.Pipe()
    process = processes.Process(target=prefill, args=(decode_end,))
    process.start()
    decode_end.close()
    theirs = bytearray(PAGES * LAYERS * PAGE)  # page by page
    with te.Engine(options=LOOPBACK) as engine:
        base = engine.register(theirs, access=te.Access.WRITE).address
        wrong = sum(request(engine, theirs, base, prefill_end, number) for number in (1, 2, 3))
    prefill_end.send(None)
    process.join()
    return 1 if wrong or process.exitcode else 0


if __name__ == "__main__":
    sys.exit(main())
