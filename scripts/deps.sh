#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian or Ubuntu packages that this project is built and tested with.
set -euo pipefail

# The one list. A group, a package, what it is for. "a|b" is whichever the system has (the first that
# apt knows is installed); a "?" after the name makes it one to go without where apt has no such package;
# "@command" after it: not needed either where that command is found, such as a compiler of another origin.
list() {
    cat <<'LIST'
build  gcc                   C compiler
build  libc6-dev             C library headers
build  make                  front door
build  cmake                 build system
build  pkgconf|pkg-config    finds libraries
build  libjansson-dev        JSON
build  libhwloc-dev          NUMA nodes, NICs and GPUs, and who is near whom
build  libcurl4-openssl-dev|libcurl4-gnutls-dev  HTTP client of the http and etcd stores
build  libhiredis-dev        redis store
build  libmicrohttpd-dev     HTTP server of te_metad
build  libsqlite3-dev        durable contents of te_metad
build  libssl-dev            TE_AUTH (headers; the library is opened at run time)
build  libibverbs-dev        RDMA verbs (headers; the library is opened at run time)
build  liburing-dev          files by io_uring, from 2.2 on
build  uthash-dev            hash maps and lists (headers)
build  systemtap-sdt-dev?    probes for bpftrace (a header; without it there are none)
build  python3               demo, benchmark and lint scripts
unit   libcmocka-dev         unit tests
test   g++                   the public headers must compile as C++
test   python3-venv          the Python package is installed into a fresh environment
test   python3-pip           builds its wheel
test   python3-numpy         arrays as buffers of transfers
test   python3-torch?        the examples with tensors
test   mypy?                 the types of the Python package
test   rustc@rustc           the Rust crate, and the models of make models
test   cargo@cargo           builds them, and downloads what models need
test   golang-go@go          the Go module and the P2P store
test   patchelf              the libraries that a wheel brings along
test   abigail-tools         the ABI against its record
test   debhelper             the Debian packages
test   dpkg-dev              the same
test   build-essential       what the building of packages takes as given
test   lintian?              the same, by the rules of Debian
test   rpm?                  rpmbuild: the RPM packages
test   rpmlint?              their spec file
test   groff-base            the manual pages render without a warning
test   mandoc?               the same, by the rules of another program
test   zsh                   the tools' completion in it
test   etcd-server|etcd       tests with the real etcd
test   redis-server          tests with the real redis
test   e2fsprogs             a test with files of a loop device (mkfs.ext4)
test   openssl               certificates for tests of TLS
test   curl                  tests that talk to te_metad
test   iproute2              tests over network namespaces
test   util-linux            setarch, unshare
test   ibverbs-utils         verbs programs that run on the simulated fabric
test   perftest              the same
test   fio                   what the disk gives, beside the engine (make bench)
test   prometheus?           its checker reads the metrics, and it answers the dashboard's queries
dev    clang                 second compiler, fuzzing
dev    libclang-rt-dev?      sanitizers and libFuzzer of clang, where they are a package of their own
dev    clang-format          make lint
dev    valgrind              make valgrind
cover  gcovr                 make coverage
site   python3-sphinx        make site
site   python3-myst-parser   reads its pages
site   furo                  their looks
site   mandoc                the manual pages on it
site   git                   which pages there are
site   chromium?             looks at them
systems mmdebstrap           roots of other systems: make systems, make proofs, tests/fresh.sh
systems musl-tools           library and tools are compiled by the headers of musl
systems ccache               rows that differ by a switch compile little anew
systems qemu-user-static     tries wheels of arm64
systems debian-archive-keyring  what Debian's archive is signed with
lab    qemu-system-x86       the guests of make lab; their kernel is downloaded, not installed
lab    busybox-static        their first process
lab    cpio                  their initrd
lab    kmod                  their modules
lab    xz-utils              unpacks their kernel
lab    ibverbs-providers     their RDMA devices: rxe
lab    nvme-cli              connects files over fabrics
lab    e2fsprogs             file systems on them
lab    bpftrace              looks at the probes of engines
lab    systemd               starts te_metad's unit in one
lab    procps                finds its processes
lab    qemu-system-arm       the guest with pages of 16 KiB
LIST
}

usage() {
    cat <<'USAGE'
usage: scripts/deps.sh [--check | --list] [GROUP]...

Installs with apt-get those packages of the groups that are missing, and says which. Does nothing when
all are there. Uses sudo when not root.

groups:  build   what `make` needs
         unit    what the unit tests need on top
         test    what `make test` needs on top, the unit tests with it
         dev     clang, clang-format, valgrind: `make lint`, `make fuzz`, .ci/run
         cover   what `make coverage` needs on top
         site    Sphinx, for `make site`
         systems mmdebstrap, for `make systems`, `make proofs` and tests/fresh.sh
         lab     QEMU and what it takes to start Debian in it, for `make lab`
         all     every one of these
Without a group: build and test.

  --check  install nothing; exit 1 and name what is missing
  --list   print the packages of the groups and what each is for
  --help   this text
USAGE
}

mode=install
groups=()
for arg in "$@"; do
    case "$arg" in
        --check) mode=check ;;
        --list) mode=list ;;
        -h | --help) usage; exit 0 ;;
        build | unit | dev | cover | site | systems) groups+=("$arg") ;;
        test) groups+=(unit test) ;;
        lab) groups+=(systems lab) ;; # its arm64 guest lives in such a root
        all) groups+=(build unit test dev cover site systems lab) ;;
        *) echo "deps: unknown argument '$arg' (see --help)" >&2; exit 2 ;;
    esac
done
[ ${#groups[@]} -gt 0 ] || groups=(build unit test)

in_groups() {
    local g
    for g in "${groups[@]}"; do [ "$g" = "$1" ] && return 0; done
    return 1
}

if [ "$mode" = list ]; then
    list | while read -r group package reason; do
        if in_groups "$group"; then printf '%-7s %-30s %s\n' "$group" "${package%@*}" "$reason"; fi
    done
    exit 0
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    {
        echo "deps: this script knows Debian and Ubuntu (apt-get) only. Install what your system calls these,"
        echo "deps: then run make with SKIP_DEPS=1:"
        list | while read -r group package reason; do
            if in_groups "$group"; then printf '  %-24s %s\n' "${package%%[|?@]*}" "$reason"; fi
        done
    } >&2
    exit 1
fi

installed=" $(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' | awk '$1 == "ii" { printf "%s ", $2 }') "
missing=() # entries of the list, alternatives and all
while read -r group entry _; do
    in_groups "$group" || continue
    package=${entry%@*}
    case "$entry" in *@*) if command -v "${entry#*@}" >/dev/null; then continue; fi ;; esac
    found=no
    IFS='|' read -ra names <<<"${package%\?}"
    for name in "${names[@]}"; do
        case "$installed" in *" $name "*) found=yes ;; esac
    done
    [ $found = yes ] || missing+=("$package")
done < <(list)
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$mode" = check ]; then
    required=0
    for package in "${missing[@]}"; do
        case "$package" in *\?) continue ;; esac
        echo "deps: missing: $package" >&2
        required=1
    done
    exit $required
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "deps: not root and no sudo. As root, run: scripts/deps.sh ${groups[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
        -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"
}
known() {
    apt-cache show --no-all-versions "$1" 2>/dev/null | grep '^Package:' >/dev/null
}

echo "deps: missing: ${missing[*]}"
echo "deps: apt-get update"
apt update >/dev/null || echo "deps: apt-get update failed; going on with the lists at hand" >&2

wanted=()
for package in "${missing[@]}"; do
    choice=
    IFS='|' read -ra names <<<"${package%\?}"
    for name in "${names[@]}"; do
        if known "$name"; then choice=$name; break; fi
    done
    if [ -n "$choice" ]; then
        wanted+=("$choice")
    elif [ "$package" = "${package%\?}" ]; then
        echo "deps: apt has no package '$package'; is a Debian or Ubuntu mirror configured?" >&2
        exit 1
    fi
done
[ ${#wanted[@]} -gt 0 ] || exit 0
# Tests start servers of their own: that of a package must not be started by its installation.
policy=/usr/sbin/policy-rc.d
case " ${wanted[*]} " in
    *" etcd"* | *" redis-server "*)
        echo "deps: the services of etcd and redis are not started; 'systemctl disable etcd redis-server'"
        echo "deps: keeps them off at the next boot, too"
        if [ ! -e "$policy" ]; then
            trap '"${as_root[@]}" rm -f "$policy"' EXIT
            printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
            "${as_root[@]}" chmod 755 "$policy"
        fi
        ;;
esac
echo "deps: apt-get install ${wanted[*]}"
apt install --no-install-recommends "${wanted[@]}"
