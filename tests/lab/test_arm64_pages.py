# SPDX-License-Identifier: Apache-2.0
# lab: guests=0 timeout=900 optional
"""A kernel of arm64 with pages of 16 KiB: the unit tests, some transports', and two engines over tcp and host.

The kernel and the libraries are those of a root by tests/systems/roots.py, and what runs is the build of the row arm64
of `make systems`, which is made now if it is not there.
"""
import glob
import os
import subprocess
import sys
import tempfile

import te_lab

SYSTEMS = os.path.join(te_lab.SOURCE, "tests", "systems")
sys.path.insert(0, SYSTEMS)
import roots  # pylint: disable=wrong-import-position

BUILD = os.path.join(te_lab.SOURCE, "build", "systems", "arm64")
# What reaches the file systems, in their order; what they need comes before each.
MODULES = ("9pnet_virtio", "9p", "overlay")
TRANSPORTS = ("test_tcp", "test_local", "test_host", "test_nvmeof", "test_nvmeof_*")
CAN_SKIP = ("transport/test_nvmeof_block",)  # wants block devices, which nvmeof of the lab has
RUN_S = 700


def find_module(folder, name):
    found = glob.glob(f"{folder}/**/{name.replace('_', '[_-]')}.ko*", recursive=True)
    if not found:
        raise AssertionError(f"no module {name} in {folder}")
    return found[0]


def needed(folder, names):
    """Files of modules, each after those that it needs."""
    files = []
    for name in names:
        path = find_module(folder, name)
        needs = subprocess.run(["modinfo", "-F", "depends", path], stdout=subprocess.PIPE, text=True, check=True).stdout
        for each in [*needed(folder, filter(None, needs.strip().split(","))), path]:
            if each not in files:
                files.append(each)
    return files


def make_initrd(root, folder):
    """busybox, the modules and the first process."""
    tree = os.path.join(folder, "initrd.d")
    for name in ("bin", "mod", "proc", "sys", "dev"):
        os.makedirs(os.path.join(tree, name))
    script = r"""
        set -euo pipefail
        cp "$1/usr/bin/busybox" "$2/bin/busybox"
        install -m 755 "$3" "$2/init"
        tree=$2
        shift 3
        for module in "$@"; do
            name=${module##*/}
            case $name in *.xz) xz -dc "$module" ;; *) cat "$module" ;; esac >"$tree/mod/${name%.xz}"
            echo "/mod/${name%.xz}" >>"$tree/mod/order"
        done
        cd "$tree" && find . | cpio -o -H newc --quiet"""
    with open(os.path.join(folder, "initrd"), "wb") as f:
        subprocess.run(["bash", "-c", script, "initrd", root, tree, os.path.join(te_lab.HERE, "arm64_init.sh"),
                        *needed(os.path.join(root, "kernel", "usr", "lib", "modules"), MODULES)], stdout=f, check=True)


def qemu(root, folder):
    kernel, = glob.glob(f"{root}/kernel/boot/vmlinuz-*")
    command = ["qemu-system-aarch64", "-machine", "virt", "-accel", "tcg,thread=multi", "-cpu", "max,pauth-impdef=on",
               "-smp", "2", "-m", "3072", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
               "-serial", f"file:{folder}/console", "-kernel", kernel, "-initrd", f"{folder}/initrd",
               "-append", "console=ttyAMA0 quiet panic=-1 mitigations=off nokaslr audit=0"]
    for tag, path, mode in (("root", root, ",readonly=on"), ("build", BUILD, ",readonly=on"),
                            ("src", te_lab.SOURCE, ",readonly=on"), ("out", f"{folder}/out", "")):
        command += ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,multidevs=remap{mode}"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=te_lab.die_with_parent)


def programs():
    """Names below tests/ of the build."""
    names = [f"unit/{os.path.basename(path)}" for path in sorted(glob.glob(f"{BUILD}/tests/unit/test_*"))]
    for pattern in TRANSPORTS:
        names += [f"transport/{os.path.basename(path)}" for path in sorted(glob.glob(f"{BUILD}/tests/transport/{pattern}"))]
    return names


def read(path):
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="backslashreplace") as f:
        return f.read()


def check(folder, names):
    """Every line that is to be there is, and is good."""
    lines = [line.split() for line in read(f"{folder}/out/results").splitlines()]
    good = {words[1]: int(words[2]) for words in lines
            if words[0] == "ok" or words[0] == "skipped" and words[1] in CAN_SKIP}
    bad = [name for name in [*names, "pair/tcp", "pair/host"] if name not in good]
    for name in bad:
        print(f"---- {name}\n{read(os.path.join(folder, 'out', name.replace('/', '-') + '.out'))[-3000:]}")
    if ["end"] not in lines:
        raise AssertionError("the guest did not come to its end\n" + read(f"{folder}/out/log")[-2000:] +
                             read(f"{folder}/console")[-2000:] + read(f"{folder}/out/results"))
    if ["pages", "16384"] not in lines:
        raise AssertionError(f"the guest has no pages of 16 KiB: {lines[0]}")
    if bad:
        raise AssertionError(f"not well with pages of 16 KiB: {' '.join(bad)}")
    slowest = sorted(good, key=good.get)[-3:]
    print(f"{len(good)} programs; the slowest: " + ", ".join(f"{name} {good[name]} s" for name in slowest))


def test(_machine):
    try:
        root = roots.root_of(roots.RECIPES["arm64"])
    except roots.Missing as e:
        raise te_lab.Skip(str(e)) from None
    subprocess.run([sys.executable, os.path.join(SYSTEMS, "run.py"), "--only-build", "arm64"], check=True)
    with tempfile.TemporaryDirectory(prefix="te-lab-") as folder:
        os.mkdir(f"{folder}/out")
        make_initrd(root, folder)
        names = programs()
        with open(f"{folder}/out/programs", "w", encoding="utf-8") as f:
            f.write("".join(f"{name}\n" for name in names))
        with qemu(root, folder) as guest:
            try:
                guest.wait(RUN_S)
            except subprocess.TimeoutExpired:
                print(f"it has not ended after {RUN_S} s")
            finally:
                guest.kill()
        check(folder, names)
