# SPDX-License-Identifier: Apache-2.0
"""Prefill in one process, decode in another: pages of the KV cache go over layer by layer while later layers compute.

run.py [--mooncake]: by the engine's own interface, or by Mooncake's class. Every answer is compared with that of a run
in one process. One request is given up in its middle; the next one gets its pages.
"""
import multiprocessing
import sys
import time

try:
    import torch
except ImportError:
    print("run.py: torch is missing (package python3-torch)", file=sys.stderr)
    sys.exit(77)

import model
import senders

PROMPT, ANSWER, PAGES, ROUNDS = 256, 8, 40, 5  # tokens, tokens, pages of a cache, measurements
NEEDED = -(-(PROMPT + ANSWER) // model.PAGE)
TRIES = 100  # to give a request up while something of it is still to be sent


def decode(pipe, sender):
    """Gives pages to requests, and answers those that are there."""
    weights, cache = model.weights(), model.new_cache(PAGES)
    offered = sender(cache, offered=True)
    free = list(range(PAGES))
    pipe.send((offered.name, offered.base))
    while (order := pipe.recv()) is not None:
        what, number, token, start = order
        if what == "allot":
            pages, free = free[:NEEDED], free[NEEDED:]
            offered.expect(number)
            pipe.send(pages)
            continue
        if what == "answer":
            for answer in model.generate(weights, cache, pages, token, start, ANSWER, offered.came):
                pipe.send(answer)
        offered.forget()
        free = pages + free  # what was used last is used next
    offered.close()


class Prefill:
    def __init__(self, pipe, sender):
        self.pipe, self.weights, self.cache, self.number = pipe, model.weights(), model.new_cache(PAGES), 0
        self.sender = sender(self.cache)
        self.sender.connect(*pipe.recv())

    def allotted(self):
        """Begins a request: its pages there."""
        self.number += 1
        self.pipe.send(("allot", self.number, None, None))
        pages = self.pipe.recv()
        self.sender.begin(self.number)
        return pages

    def compute(self, prompt, filled=lambda layer: None):
        model.forward(self.weights, self.cache, list(range(NEEDED)), prompt[:-1], 0, filled)

    def request(self, prompt, overlap):
        """(pages there, seconds to the first token, the answer)"""
        pages, order = self.allotted(), ("answer", self.number, prompt[-1], len(prompt) - 1)
        used, began = pages[:-(-(PROMPT - 1) // model.PAGE)], time.monotonic()
        if self.sender.counts:
            self.pipe.send(order)
        self.compute(prompt, *([lambda layer: self.sender.layer(layer, used)] if overlap else []))
        for layer in () if overlap else range(model.LAYERS):
            self.sender.layer(layer, used)
        self.sender.done()
        if not self.sender.counts:
            self.pipe.send(order)
        first = self.pipe.recv()
        seconds = time.monotonic() - began
        return pages, seconds, [first, *(self.pipe.recv() for _ in range(ANSWER - 1))]

    def give_up(self, prompt):
        """A request that ends after half of the layers: (its pages there, layers that were begun and not sent)"""
        pages = self.allotted()

        def filled(layer):
            self.sender.layer(layer, pages)
            if layer == model.LAYERS // 2:
                raise InterruptedError

        try:
            self.compute(prompt, filled)
        except InterruptedError:
            unsent = self.sender.abort()
        self.pipe.send(("free", self.number, None, None))  # nothing can come to them any more
        return pages, unsent


def alone(weights, prompt):
    """The answer of one process."""
    cache, pages = model.new_cache(NEEDED), list(range(NEEDED))
    model.forward(weights, cache, pages, prompt[:-1], 0)
    return list(model.generate(weights, cache, pages, prompt[-1], len(prompt) - 1, ANSWER))


def main():
    sender = senders.Mooncake if "--mooncake" in sys.argv else senders.Native
    random = torch.Generator(model.DEVICE).manual_seed(7)
    prompts = torch.randint(model.VOCABULARY, (4, PROMPT), generator=random).tolist()
    spawn = multiprocessing.get_context("spawn")  # an engine is not for forked children
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=decode, args=(theirs, sender), daemon=True)
    child.start()
    theirs.close()  # so that recv() ends if the child does
    prefill = Prefill(ours, sender)
    prefill.request(prompts[0], True)  # connections are made, and memory is touched
    seconds, answers = {False: [], True: []}, []
    for overlap in (False, True) * ROUNDS:
        _, took, answer = prefill.request(prompts[1], overlap)
        seconds[overlap].append(1000 * took)
        answers.append(answer)
    for _ in range(TRIES):
        given_up, unsent = prefill.give_up(prompts[2])
        if unsent:
            break
    again, _, third = prefill.request(prompts[3], True)
    ours.send(None)
    child.join()
    prefill.sender.close()
    expected = alone(prefill.weights, prompts[1])
    right = all(answer == expected for answer in answers) and third == alone(prefill.weights, prompts[3])
    print(f"first token after {min(seconds[False]):.1f} ms; {min(seconds[True]):.1f} ms where layers go while later ones compute")
    print(f"given up with {unsent} layers unsent; {len(set(given_up) & set(again))} of its {len(given_up)} pages in use again")
    print(f"{len(answers) + 1} answers of {ANSWER} tokens, {'all' if right else 'not'} as in one process")
    return 0 if right and given_up == again and child.exitcode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
