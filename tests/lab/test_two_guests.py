# SPDX-License-Identifier: Apache-2.0
# lab: guests=2 nics=2
"""The tools between two guests, each in both roles, over both NICs; every byte compared."""
import json

import te_lab

COMMON = "--protocol=rdma --metadata_server=P2PHANDSHAKE --device_name=rxe0,rxe1 --threads=1 --buffer_size=16M"
LOAD = "--batch_size=4 --block_size=64K --duration=2"


def start_target(guest, program):
    """(job, name of its segment)"""
    job = guest.start_job(f"exec {te_lab.BUILD}/bin/{program} {COMMON} --mode=target --local_server_name={guest.ip()}")
    return job, job.wait_line(r"^segment: (\S+)$").group(1)


def initiate(guest, program, segment, flags):
    return guest.run(f"exec {te_lab.BUILD}/bin/{program} {COMMON} {LOAD} --local_server_name={guest.ip()} "
                     f"--segment_id={segment} {flags}")


def check_bench(target, initiator):
    job, segment = start_target(target, "transfer_engine_bench")
    for operation in ("read", "write"):
        before = [initiator.packets(nic) for nic in range(2)]
        done = initiate(initiator, "transfer_engine_bench", segment, f"--operation={operation} --verify --json")
        result = json.loads(done.output())
        moved = [initiator.packets(nic) - n for nic, n in enumerate(before)]
        print(f"bench, guest {initiator.number} with {target.number}, {operation}: "
              f"{result['verified_bytes'] / 1e6:.0f} MB compared, packets {moved}")
        assert result["verified_bytes"] > 1e6, result
        assert all(n > 100 for n in moved), f"a NIC carried nothing: {moved}"
    job.kill()


def check_validator(target, initiator):
    job, segment = start_target(target, "transfer_engine_validator")
    done = initiate(initiator, "transfer_engine_validator", segment, "")
    print(f"validator, guest {initiator.number} with {target.number}: {done.output().strip()}")
    assert "validation passed" in done.errors(), str(done)
    job.kill()


def test(machine):
    for target, initiator in (machine.guests, machine.guests[::-1]):
        check_bench(target, initiator)
        check_validator(target, initiator)
