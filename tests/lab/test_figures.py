# SPDX-License-Identifier: Apache-2.0
# lab: guests=2 nics=2 timeout=200
"""How fast the engine is beside ib_read_bw and ib_write_bw, between the same two NICs of two guests, in turns.

Prints medians and ratios. Where all is emulated the figures say what a transfer costs in instructions, of
the engine and of the kernel's RDMA together, more than how fast anything is; nothing is asserted of them.
"""
import json
import shutil
import statistics

import te_lab

ROUNDS = 5
SECONDS = 1.2
MIB = 1 << 20
SIZES = ((65536, "64 KiB", 32), (MIB, "1 MiB", 8))  # bytes, text, requests of a batch
OPERATIONS = ("read", "write")
ONE_NIC = "--protocol=rdma --metadata_server=P2PHANDSHAKE --device_name=rxe0 --buffer_size=32M"


def perftest(target, initiator, operation, size):
    """MB/s of so many bytes as one measurement of the engine moves, about."""
    flags = f"-d rxe0 -x 1 -F -s {size} -n {max(40, 64 * MIB // size)}"
    server = target.start_job(f"exec ib_{operation}_bw {flags}")
    done = initiator.run(f"for i in {{1..30}}; do ib_{operation}_bw {flags} {target.ip()} && exit; nap 0.1; done; exit 1")
    server.wait()
    row = [line.split() for line in done.output().splitlines() if line.split()[:1] == [str(size)]]
    return float(row[-1][3]) * MIB / 1e6


def engine(initiator, segment, operation, size, batch):
    done = initiator.run(f"exec {te_lab.BUILD}/bin/transfer_engine_bench {ONE_NIC} --json --operation={operation} "
                         f"--block_size={size} --batch_size={batch} --threads=2 --duration={SECONDS} "
                         f"--local_server_name={initiator.ip()} --segment_id={segment}")
    return json.loads(done.output())["throughput_bytes_per_s"] / 1e6


def test(machine):
    if not shutil.which("ib_read_bw"):
        raise te_lab.Skip("no ib_read_bw (package perftest)")
    target, initiator = machine.guests
    server = target.start_job(f"exec {te_lab.BUILD}/bin/transfer_engine_bench {ONE_NIC} --threads=1 --mode=target "
                              f"--local_server_name={target.ip()}")
    segment = server.wait_line(r"^segment: (\S+)$").group(1)
    found = {}
    for _ in range(ROUNDS):
        for operation in OPERATIONS:
            for size, text, batch in SIZES:
                pair = found.setdefault((operation, text), ([], []))
                pair[0].append(perftest(target, initiator, operation, size))
                pair[1].append(engine(initiator, segment, operation, size, batch))
    print(f"{'':16}{'perftest':>10}{'engine':>10}  MB/s, medians of {ROUNDS}")
    for (operation, text), (theirs, ours) in found.items():
        theirs, ours = statistics.median(theirs), statistics.median(ours)
        print(f"{operation + ' ' + text:16}{theirs:10.1f}{ours:10.1f}  {ours / theirs:.2f}")
        assert theirs > 0 and ours > 0
