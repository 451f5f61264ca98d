# SPDX-License-Identifier: Apache-2.0
# lab: guests=2 nics=2 timeout=400
"""How fast the engine is beside ib_read_bw and ib_write_bw, between the same two NICs of two guests, in turns.

Prints medians and ratios. Where all is emulated the figures say what a transfer costs in instructions, of
the engine and of the kernel's RDMA together, more than how fast anything is; nothing is asserted of them.
"""
import json
import shutil
import statistics

import te_lab

ROUNDS = 4
MIB = 1 << 20
SIZES = {65536: ("64 KiB", 16), MIB: ("1 MiB", 1)}  # text, requests of each of two batches under way
OPERATIONS = ("read", "write")
ENGINE = (f"exec {te_lab.BUILD}/bin/transfer_engine_bench --protocol=rdma --metadata_server=P2PHANDSHAKE "
          "--device_name=rxe0 --buffer_size=2M")


def perftest(target, initiator, operation, size):
    """MB/s of one connection with as much under way as the program likes best."""
    command = f"ib_{operation}_bw -d rxe0 -x 1 -F -s {size} -n {48 * MIB // size}"
    server = target.start_job(f"exec {command}")
    done = initiator.run(f"for i in {{1..600}}; do {command} {target.ip()} && exit; nap 0.1; done; exit 1", timeout=150)
    server.wait()
    row = [line.split() for line in done.output().splitlines() if line.split()[:1] == [str(size)]][-1]
    return float(row[3]) * MIB / 1e6


def engine(initiator, segment, operation, size):
    """MB/s. The first of two measurements connects, and is left out."""
    done = initiator.run(f"{ENGINE} --json --sweep --sweep_threads=2 --sweep_batch_size={SIZES[size][1]} --duration=1 "
                         f"--sweep_block_size={size},{size} --operation={operation} "
                         f"--local_server_name={initiator.ip()} --segment_id={segment}")
    return json.loads(done.output())["points"][1]["throughput_bytes_per_s"] / 1e6


def show(found):
    print(f"{'MB/s':16}{'perftest':>18}{'engine':>18}{'ratio':>18}   median and best of {ROUNDS}")
    for (operation, size), pairs in found.items():
        cells = [f"{statistics.median(column):10.1f} {max(column):7.1f}" for column in zip(*pairs)]
        medians, bests = ([f(column) for column in zip(*pairs)] for f in (statistics.median, max))
        print(f"{operation + ' ' + SIZES[size][0]:16}{''.join(cells)}{medians[1] / medians[0]:10.2f} "
              f"{bests[1] / bests[0]:7.2f}")
        assert all(a > 0 and b > 0 for a, b in pairs)


def test(machine):
    if not shutil.which("ib_read_bw"):
        raise te_lab.Skip("no ib_read_bw (package perftest)")
    target, initiator = machine.guests
    server = target.start_job(f"{ENGINE} --mode=target --local_server_name={target.ip()}")
    segment = server.wait_line(r"^segment: (\S+)$").group(1)
    found = {}  # pairs of rates
    for _ in range(ROUNDS):
        for operation in OPERATIONS:
            for size in SIZES:
                found.setdefault((operation, size), []).append(
                    (perftest(target, initiator, operation, size), engine(initiator, segment, operation, size)))
    show(found)
