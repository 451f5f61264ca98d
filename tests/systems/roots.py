#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Root file systems of Debian and Ubuntu releases, made by mmdebstrap and kept for the next time.

A root is a folder in the cache, $TE_SYSTEMS_CACHE or ~/.cache/te-systems, named after the recipe and a
digest of all that the recipe says; where that changes, the root is made anew and the old one removed. Nothing
writes into a root once it is made: tests/systems/enter.sh puts a file system of its own above it.

The archives are those that this host's apt knows, else deb.debian.org and archive.ubuntu.com; TE_DEBIAN_MIRROR and
TE_UBUNTU_MIRROR name others. apt's proxies are used. Exit status 77 with the reason where a root cannot be made
because this host or the network lacks what it takes; 1 where it should have been made and was not.
"""
import argparse
import dataclasses
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
DEPS = os.path.join(SOURCE, "scripts", "deps.sh")
PUBLIC = {"debian": "http://deb.debian.org/debian", "ubuntu": "http://archive.ubuntu.com/ubuntu"}
COMPONENTS = {"debian": "main", "ubuntu": "main,universe"}
KEYRINGS = {"debian": "debian-archive-keyring.gpg", "ubuntu": "ubuntu-archive-keyring.gpg"}
MAKE_S = 900


class Missing(Exception):
    """What this host or the network lacks for a root."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a root is made of."""
    name: str
    system: str                 # debian or ubuntu
    suite: str
    packages: tuple = ()        # beyond those that the variant brings
    groups: tuple = ()          # of scripts/deps.sh, installed by it
    newest_clang: bool = False  # the highest clang-N of the suite
    arm64: bool = False         # the groups' libraries for arm64 in place of the host's, and a compiler for it
    kernel: str = ""            # a package of arm64 that names a kernel, which is unpacked into /kernel
    variant: str = "minbase"

    def digest(self):
        """Of all that makes the root what it is."""
        groups = deps_list(self.groups) if self.groups else ""
        with open(os.path.abspath(__file__), encoding="utf-8") as f:
            steps = "".join(re.findall(r"^def hooks.*?(?=^\S)", f.read(), re.S | re.M))
        return hashlib.sha256(repr((self, groups, steps)).encode()).hexdigest()[:12]


TOOLS = ("make", "ccache", "ca-certificates")
UBUNTU_TOOLS = ("apt", *TOOLS)  # which no other package of Ubuntu's smallest set asks for
RECIPES = {recipe.name: recipe for recipe in (
    Recipe("debian-12", "debian", "bookworm", (*TOOLS, "gcc-11", "clang-14"), ("build", "unit")),
    Recipe("debian-13", "debian", "trixie", TOOLS, ("build", "unit"), newest_clang=True),
    Recipe("ubuntu-22.04", "ubuntu", "jammy", UBUNTU_TOOLS, ("build", "unit")),
    Recipe("ubuntu-24.04", "ubuntu", "noble", UBUNTU_TOOLS, ("build", "unit")),
    # The tools run on this host's processor and the libraries are arm64's; busybox is what a guest of the lab starts with.
    Recipe("arm64", "debian", "trixie", (*TOOLS, "qemu-user-static", "gcc-aarch64-linux-gnu", "busybox-static:arm64"),
           ("build", "unit"), arm64=True, kernel="linux-image-arm64-16k"),
    # What a user's new machine has before `make demo`.
    *(Recipe(f"fresh-{suite}", system, suite, ("apt", "make", "git", "ca-certificates"))
      for system, suite in (("debian", "bookworm"), ("debian", "trixie"), ("ubuntu", "jammy"), ("ubuntu", "noble"))),
    # What a host with devices has at least: nothing.
    Recipe("bare-debian-13", "debian", "trixie"),
    # The model checker, and the C library's headers for it.
    Recipe("proofs", "debian", "trixie", ("cbmc", "gcc", "libc6-dev", "libjansson-dev", "uthash-dev")),
    Recipe("keys", "debian", "trixie", ("ubuntu-keyring",), variant="extract"),
)}


def say(text):
    print(f"systems: {text}", file=sys.stderr, flush=True)


def output(*command):
    """What it prints; nothing where it fails or is not there."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def deps_list(groups):
    return subprocess.run([DEPS, "--list", *groups], stdout=subprocess.PIPE, text=True, check=True).stdout


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.environ.get("TE_SYSTEMS_CACHE") or os.path.join(base, "te-systems")
    os.makedirs(folder, exist_ok=True)
    return folder


def mirror(system):
    """The archive of a system: the environment's, the one of this host's apt, or the public one."""
    named = os.environ.get(f"TE_{system.upper()}_MIRROR")
    if named:
        return named
    for line in output("apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI) $(RELEASE)",
                       "Created-By: Packages").splitlines():
        origin, _, rest = line.partition(" ")
        uri, _, release = rest.partition(" ")
        if origin.lower() == system and not release.endswith("-security"):
            return uri
    return PUBLIC[system]


def apt_options():
    """This host's settings of how packages are fetched, proxies above all."""
    lines = output("apt-config", "dump").splitlines()
    return [line for line in lines if re.match(r'Acquire::(https?|Check-Valid-Until|Check-Date)\b.*"."*', line)
            and not line.endswith('"";')]


def check_archive(uri, suite):
    """Asks for the release file, within a limit: to find out that an archive is not reached takes apt minutes."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"{uri.rstrip('/')}/dists/{suite}/Release"
        try:
            done = subprocess.run(
                ["/usr/lib/apt/apt-helper", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o",
                 "Acquire::https::Timeout=20", "download-file", url, os.path.join(folder, "Release")],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        except OSError as e:
            raise Missing(f"{e.filename} is not here (package apt)") from None
        except subprocess.TimeoutExpired:
            raise Missing(f"{url} does not answer within 60 s") from None
        if done.returncode:
            reasons = [line for line in done.stdout.splitlines() if line.startswith(("E:", "Err"))]
            raise Missing(f"{url} cannot be read: {(reasons or ['no reason given'])[-1]}")


def keyring(system):
    """The keys that an archive is signed with. Debian has Ubuntu's in a package."""
    path = os.path.join("/usr/share/keyrings", KEYRINGS[system])
    if not os.path.exists(path):
        if system == "debian":
            raise Missing(f"no {path} (package debian-archive-keyring)")
        path = os.path.join(root_of(RECIPES["keys"]), path.lstrip("/"))
    return path


def library_packages(groups):
    """(those of libraries, the others) that the groups name, each the first of its alternatives."""
    libraries, others = [], []
    for line in deps_list(groups).splitlines():
        name = line.split()[1].split("|")[0].rstrip("?")
        (libraries if re.match(r"lib.*-dev$", name) else others).append(name)
    return libraries, others


def hooks(recipe):
    """Commands for the shell of this host, with the root as "$1", once the packages are in it."""
    inside = 'chroot "$1" env DEBIAN_FRONTEND=noninteractive '
    install = inside + "apt-get -q -y install --no-install-recommends "
    if recipe.arm64:
        libraries, others = library_packages(recipe.groups)
        yield install + " ".join([*others, *(f"{name}:arm64" for name in libraries)])
    elif recipe.groups:
        yield f'install -D -m 755 {DEPS} "$1/tmp/deps.sh"'
        yield inside + f"/tmp/deps.sh {' '.join(recipe.groups)}"
        yield 'rm "$1/tmp/deps.sh"'
    if recipe.newest_clang:
        yield install + "$(" + inside + "apt-cache pkgnames clang- | grep -xE 'clang-[0-9]+' | sort -V | tail -n 1)"
    if recipe.kernel:
        yield 'mkdir "$1/kernel"'
        yield (inside + "sh -c 'cd /kernel && apt-get -q download $(apt-cache depends " + recipe.kernel + ":arm64 |"
               " sed -n \"s/^ *Depends: \\(linux-image-[^ :]*\\).*/\\1:arm64/p\" | head -n 1) &&"
               " for f in *.deb; do dpkg-deb -x \"$f\" . && rm \"$f\"; done'")


def make(recipe, target):
    for program in ("mmdebstrap", "apt-config", "chroot"):
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            raise Missing(f"no {program} (scripts/deps.sh systems installs it)")
    if os.geteuid() != 0:
        raise Missing("not root")
    uri = mirror(recipe.system)
    check_archive(uri, recipe.suite)
    command = ["mmdebstrap", "--mode=root", f"--variant={recipe.variant}", f"--keyring={keyring(recipe.system)}",
               f"--components={COMPONENTS[recipe.system]}", "--aptopt=Acquire::Retries \"3\"",
               *(f"--aptopt={line}" for line in apt_options())]
    if recipe.arm64:
        command.append("--architectures=" + output("dpkg", "--print-architecture").strip() + ",arm64")
    if recipe.packages:
        command.append("--include=" + ",".join(recipe.packages))
    command += [f"--customize-hook={hook}" for hook in hooks(recipe)]
    log = os.path.join(cache_folder(), recipe.name + ".log")
    say(f"makes {recipe.name}: {recipe.suite} from {uri}")
    with open(log, "w", encoding="utf-8") as f:
        done = subprocess.run([*command, recipe.suite, target, uri], stdin=subprocess.DEVNULL, stdout=f,
                              stderr=subprocess.STDOUT, timeout=MAKE_S, check=False)
    if done.returncode:
        with open(log, encoding="utf-8", errors="replace") as f:
            say("".join(f.readlines()[-30:]))
        raise RuntimeError(f"mmdebstrap failed on {recipe.name} (all it said: {log})")
    os.unlink(log)


def remove(path):
    shutil.rmtree(path, ignore_errors=True)


def root_of(recipe):
    """The folder of its root, made now where it is not in the cache."""
    cache = cache_folder()
    target = os.path.join(cache, f"{recipe.name}-{recipe.digest()}")
    with open(os.path.join(cache, f"{recipe.name}.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(target):
            return target
        new = target + ".new"
        remove(new)
        try:
            make(recipe, new)
            os.rename(new, target)
        finally:
            remove(new)
        for name in os.listdir(cache):
            if re.fullmatch(re.escape(recipe.name) + "-[0-9a-f]{12}", name) and name != os.path.basename(target):
                remove(os.path.join(cache, name))
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=RECIPES, help="make this one where it is not there, and print where it is")
    parser.add_argument("--list", action="store_true", help="name the recipes")
    arguments = parser.parse_args()
    if arguments.list or not arguments.name:
        for recipe in RECIPES.values():
            print(f"{recipe.name}: {recipe.system} {recipe.suite}")
        return 0
    try:
        print(root_of(RECIPES[arguments.name]))
    except Missing as e:
        say(f"skipped: {arguments.name}: {e}")
        return 77
    except (RuntimeError, subprocess.SubprocessError) as e:
        say(f"failed: {e}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
