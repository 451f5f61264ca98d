# SPDX-License-Identifier: Apache-2.0
"""A server takes over the weights of a trainer, tensors of torch, while it runs: those of a GPU, where torch has one."""
import multiprocessing
import sys

try:
    import torch
except ImportError:
    print("tensors.py: torch is missing (package python3-torch)", file=sys.stderr)
    sys.exit(77)

import transfer_engine as te

LOOPBACK = {"TE_BIND": "127.0.0.1"}  # the address that they listen on, and no other
SECONDS = 60
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def model():
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 16)).to(DEVICE)


def serve(pipe):
    """Reads all weights into a model of its own, and answers the trainer's question."""
    name, where, question = pipe.recv()
    ours = model()
    state = ours.state_dict()  # shares the memory of the model
    with te.Engine(options=LOOPBACK) as engine:
        engine.register_many(list(state.values()))
        with engine.open(name) as segment, segment.start_read(
            list(state.values()), [where[key] for key in state], timeout=SECONDS
        ) as batch:
            moved = batch.result()
    with torch.no_grad():
        pipe.send((moved, ours(question.to(DEVICE)).tolist()))


def main():
    spawn = multiprocessing.get_context("spawn")  # an engine is not for forked children
    pipe, theirs = spawn.Pipe()
    child = spawn.Process(target=serve, args=(theirs,), daemon=True)
    child.start()
    theirs.close()  # so that recv() ends if the child does
    trained, question = model(), torch.randn(4, 256)
    state = trained.state_dict()
    with te.Engine(options=LOOPBACK) as engine:
        regions = engine.register_many(list(state.values()), access=te.Access.READ)
        where = {key: region.address for key, region in zip(state, regions)}
        pipe.send((engine.name, where, question))
        moved, answer = pipe.recv()
    child.join()
    with torch.no_grad():
        same = torch.allclose(torch.tensor(answer), trained(question.to(DEVICE)).cpu())
    print(f"{moved} bytes in {len(state)} tensors of {DEVICE}; the models answer {'the same' if same else 'differently'}")
    return 0 if same and child.exitcode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
