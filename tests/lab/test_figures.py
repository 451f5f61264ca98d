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
MIB = 1 << 20
SIZES = {65536: "64 KiB", MIB: "1 MiB"}
OPERATIONS = ("read", "write")
ENGINE = (f"exec {te_lab.BUILD}/bin/transfer_engine_bench --protocol=rdma --metadata_server=P2PHANDSHAKE "
          "--device_name=rxe0 --buffer_size=32M")
LOAD = "--json --sweep --sweep_threads=2 --sweep_batch_size=16 --duration=1"


def perftest(target, initiator, operation, size):
    """MB/s of one connection with as much under way as the program likes best."""
    command = f"ib_{operation}_bw -d rxe0 -x 1 -F -s {size} -n {48 * MIB // size}"
    server = target.start_job(f"exec {command}")
    done = initiator.run(f"for i in {{1..50}}; do {command} {target.ip()} && exit; nap 0.1; done; exit 1")
    server.wait()
    row = [line.split() for line in done.output().splitlines() if line.split()[:1] == [str(size)]][-1]
    return float(row[3]) * MIB / 1e6


def engine(initiator, segment, operation):
    """MB/s of each size. What is measured first connects, and is left out."""
    sizes = list(SIZES)
    done = initiator.run(f"{ENGINE} {LOAD} --operation={operation} --local_server_name={initiator.ip()} "
                         f"--segment_id={segment} --sweep_block_size={','.join(str(s) for s in [sizes[0], *sizes])}")
    return [point["throughput_bytes_per_s"] / 1e6 for point in json.loads(done.output())["points"]][1:]


def test(machine):
    if not shutil.which("ib_read_bw"):
        raise te_lab.Skip("no ib_read_bw (package perftest)")
    target, initiator = machine.guests
    server = target.start_job(f"{ENGINE} --mode=target --local_server_name={target.ip()}")
    segment = server.wait_line(r"^segment: (\S+)$").group(1)
    theirs, ours = {}, {}
    for _ in range(ROUNDS):
        for operation in OPERATIONS:
            for size, rate in zip(SIZES, engine(initiator, segment, operation)):
                ours.setdefault((operation, size), []).append(rate)
            for size in SIZES:
                theirs.setdefault((operation, size), []).append(perftest(target, initiator, operation, size))
    print(f"{'MB/s':16}{'perftest':>10}{'engine':>10}{'ratio':>8}   medians of {ROUNDS}, and of the ratios")
    for (operation, size), rates in theirs.items():
        pairs = list(zip(rates, ours[operation, size]))
        print(f"{operation + ' ' + SIZES[size]:16}{statistics.median(rates):10.1f}"
              f"{statistics.median(ours[operation, size]):10.1f}{statistics.median(b / a for a, b in pairs):8.2f}")
        assert all(a > 0 and b > 0 for a, b in pairs)
