# SPDX-License-Identifier: Apache-2.0
# lab: guests=1 nics=1 timeout=600
"""The scripts of docs/tracing.md, run by bpftrace beside two engines: they print what the page shows, and of as many
requests and bytes as the engines moved."""
import json
import re
import shutil

import te_lab

BIN = f"{te_lab.BUILD}/bin"
PACKAGED = "/usr/lib/x86_64-linux-gnu/libtransfer_engine.so.0"
BENCH = (f"exec {BIN}/transfer_engine_bench --protocol=tcp --metadata_server=P2PHANDSHAKE "
         "--local_server_name=127.0.0.1 --buffer_size=8M")
BLOCK = 64 << 10
# Appended to the scripts. No signal ends bpftrace here, but a process of this name that ends.
END = '\ntracepoint:sched:sched_process_exit /comm == "trace-end"/ { exit(); }\n'
# Until bpftrace sleeps in epoll_wait (call 232), which it does once all is attached.
WAIT = "while read -r call _ </proc/{pid}/syscall; do [ $call = 232 ] && exit; nap 0.1; done; exit 1"
MARK = "while [ -e /proc/{pid} ]; do (printf trace-end >/proc/$BASHPID/comm); nap 0.2; done"
SLOW_S = 240  # bpftrace compiles, and every instruction of that is emulated


def page():
    with open(f"{te_lab.SOURCE}/docs/tracing.md", encoding="utf-8") as f:
        return f.read()


def scripts(machine):
    """The page's as one file, in a place that guests see, of the bench, which has the library within."""
    found = re.findall(r"```bpftrace\n(.*?)```", page(), re.S)
    assert len(found) > 2 and all(PACKAGED in script for script in found), found
    with open(f"{machine.folder}/trace.bt", "w", encoding="utf-8") as f:
        f.write("\n".join(found).replace(PACKAGED, f"{BIN}/transfer_engine_bench") + END)
    return "/run/lab/trace.bt"


def measured(text):
    """What scripts have printed: {map: {key: sum of the values}}, of a histogram all that was counted."""
    maps, key = {}, None
    for line in text.splitlines():
        name = re.match(r"^@(\w+)\[(\w+)\]:(?: (\d+))?\s*$", line)
        bar = re.match(r"^\[\w+(?:, \w+\)|\])\s+(\d+) \|@* *\|$", line)
        if name:
            key = name.groups()[:2]
        number = int((bar and bar[1]) or (name and name[3]) or 0)
        if name or bar:
            counts = maps.setdefault(key[0], {})
            counts[key[1]] = counts.get(key[1], 0) + number
    return maps


def traced(guest, script, segment):
    """(what the scripts printed of a load, what the load itself says of it)"""
    job = guest.start_job(f"exec bpftrace -B line {script} 2>&1")
    pid = te_lab.wait_until("bpftrace to begin", lambda: job._read("pid").strip(), 60)
    job.wait_line("^Attaching", SLOW_S)
    guest.run(WAIT.format(pid=pid), SLOW_S)
    load = guest.run(f"{BENCH} --segment_id={segment} --threads=1 --batch_size=4 --block_size={BLOCK} --batches=250 "
                     "--duration=120 --json", 150)
    guest.run(MARK.format(pid=pid), SLOW_S)
    assert job.wait() == 0, str(job)
    return job.output(), json.loads(load.output())


def test(machine):
    if not shutil.which("bpftrace"):
        raise te_lab.Skip("there is no bpftrace")
    guest = machine.guests[0]
    server = guest.start_job(f"{BENCH} --mode=target")
    segment = server.wait_line(r"^segment: (\S+)$").group(1)
    printed, load = traced(guest, scripts(machine), segment)
    server.kill()
    print(printed, end="")
    shown, seen, requests = measured(page()), measured(printed), load["stats"]["requests_completed"]
    assert {name: set(keys) for name, keys in seen.items()} == {name: set(keys) for name, keys in shown.items()}, seen
    # A processor counts without a lock, and of two events at once may miss one; what comes between the second script's
    # print() and clear() is not told.
    for name, least, most in (("us", 0.9, requests), ("served", 0.9, requests * BLOCK), ("bytes", 0, requests * BLOCK)):
        count = sum(seen[name].values())
        print(f"{name}: {count} of {most}")
        assert most * least < count <= most, (name, count, most)
