# SPDX-License-Identifier: Apache-2.0
"""Collects a shared library and those that it needs, so that a wheel can carry them anywhere.

Only the C library and the runtimes of the compiler are left to the host. Each other library gets a
name of its own, with a hash of its contents, so that it is never taken for, nor replaced by, a
library of another version that the process has loaded, and it looks for its neighbours beside
itself.
"""

import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys

# Part of glibc, or promised by every host that a manylinux wheel may be installed on.
OF_THE_HOST = re.compile(
    r"^(ld-linux.*|libc|libm|libmvec|libdl|librt|libpthread|libutil|libnsl|libresolv"
    r"|libgcc_s|libstdc\+\+)\.so"
)

# e_machine of an ELF file, and what wheels call it.
MACHINES = {3: "i686", 21: "ppc64le", 22: "s390x", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


def _run(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"{command[0]} is missing: scripts/deps.sh build test") from None
    except subprocess.CalledProcessError as e:
        raise RuntimeError(f"{' '.join(command)}: {e.stderr.strip()}") from e
    return done.stdout


def _needed(path):
    """The names of the libraries that this one names."""
    return [n for n in _run("patchelf", "--print-needed", path).split() if not OF_THE_HOST.match(n)]


def _found(path):
    """name: path of all libraries that the loader finds for this one."""
    found = {}
    for line in _run("ldd", path).splitlines():
        match = re.match(r"\s*(\S+) => (.*?)(?: \(0x[0-9a-f]+\))?$", line)
        if match:
            if match.group(2).startswith("not found"):
                raise FileNotFoundError(
                    f"{match.group(1)}, which {path} needs, is not on this host"
                )
            found[match.group(1)] = match.group(2)
    return found


def _closure(path):
    """name: path of the libraries to bring along, the one at `path` not counted."""
    closure, ahead = {}, _needed(path)
    # A library for another machine cannot be asked; those have all that they need inside.
    found = _found(path) if ahead else {}
    while ahead:
        name = ahead.pop()
        if name not in closure:
            closure[name] = os.path.realpath(found[name])
            ahead += _needed(closure[name])
    return closure


def _own_name(name, path):
    with open(path, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()[:8]
    stem, dot, rest = name.partition(".so")
    return f"{stem}-{digest}{dot}{rest}"


def _glibc(paths):
    """The oldest glibc that these run on, as (major, minor)."""
    versions = [(2, 17)]
    for path in paths:
        text = _run("readelf", "-VW", path)
        if "GLIBC_ABI_DT_RELR" in text:
            versions.append((2, 36))
        for major, minor in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", text):
            versions.append((int(major), int(minor)))
    return max(versions)


def _machine(path):
    """The machine that this is for, which need not be the one that builds it."""
    with open(path, "rb") as f:
        header = f.read(20)
    if header[:4] != b"\x7fELF":
        raise RuntimeError(f"{path} is no shared library of Linux")
    number = struct.unpack_from("<H" if header[5] == 1 else ">H", header, 18)[0]
    if number not in MACHINES:
        raise RuntimeError(f"{path} is for a machine that wheels have no name for ({number})")
    return MACHINES[number]


def _package_of(path):
    """The Debian package that a file is of, or None."""
    shorter = path[len("/usr") :] if path.startswith("/usr/lib") else "/usr" + path
    for name in (path, shorter):  # the package may say /lib where the file system says /usr/lib
        try:
            return _run("dpkg", "-S", name).split(":")[0]
        except (FileNotFoundError, RuntimeError):
            continue
    return None


def _licences(closure):
    """name below licenses/: text, for each package that a library of `closure` is of."""
    texts = {}
    for name, path in closure.items():
        package = _package_of(path)
        copyright = f"/usr/share/doc/{package}/copyright"
        if package is None or not os.path.exists(copyright):
            print(
                f"bundle: warning: {name} is brought along without the text of its licence, which is"
                f" not known here: add that of {path} before you give the wheel to others",
                file=sys.stderr,
            )
            continue
        with open(copyright, "rb") as f:
            texts[f"{package}/copyright"] = f.read()
    return texts


def _inside(library):
    """The same of what `library` has inside: the files of the folder licences beside it."""
    folder, texts = os.path.join(os.path.dirname(library), "licences"), {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        with open(os.path.join(folder, name), "rb") as f:
            texts[f"{name}/copyright"] = f.read()
    return texts


def _common(texts):
    """`texts`, and those that Debian's name by where it has them."""
    texts = dict(texts)
    for text in list(texts.values()):
        for found in re.findall(rb"/usr/share/common-licenses/([\w.+-]*[\w+])", text):
            name = found.decode()
            if os.path.exists(f"/usr/share/common-licenses/{name}"):
                with open(f"/usr/share/common-licenses/{name}", "rb") as f:
                    texts[f"common-licenses/{name}"] = f.read()
    return texts


def collect(library, folder):
    """Copies `library` and what it needs into `folder`.

    Returns the tag of the platform, and the texts of the licences by names for them.
    """
    closure = _closure(library)
    names = {name: _own_name(name, path) for name, path in closure.items()}
    copies = {os.path.join(folder, names[name]): path for name, path in closure.items()}
    copies[os.path.join(folder, os.path.basename(library))] = os.path.realpath(library)
    for copy, path in copies.items():
        shutil.copyfile(path, copy)
        os.chmod(copy, 0o755)
        if not closure:
            continue  # it has all inside, and is left as its linker made it
        _run("strip", "--strip-unneeded", copy)
        # One change at a time: patchelf 0.14 forgets some of several.
        for name in _needed(copy):
            _run("patchelf", "--replace-needed", name, names[name], copy)
        if path in closure.values():
            _run("patchelf", "--set-soname", os.path.basename(copy), copy)
        _run("patchelf", "--set-rpath", "$ORIGIN", copy)
        left = set(_needed(copy)) - set(names.values())
        if left:
            raise RuntimeError(f"patchelf has not renamed {', '.join(sorted(left))} in {copy}")
    major, minor = _glibc(copies)
    tag = f"manylinux_{major}_{minor}_{_machine(library)}"
    return tag, _common({**_licences(closure), **_inside(library)})
