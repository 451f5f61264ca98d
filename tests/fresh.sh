#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves that `make demo` and `make test` need nothing before them but make: runs both in a minimal Debian
# that is bootstrapped into a temporary folder. The mirror and the proxy are those of this host's apt.
set -euo pipefail

suite=
mirror=
minutes=40
tree=HEAD
keep=no
usage() {
    cat <<'USAGE'
usage: tests/fresh.sh [--suite NAME] [--mirror URL] [--minutes N] [--worktree] [--keep] [--target "make ..."]...

  --suite NAME   Debian release (default: bookworm if this host's apt knows it, else the first it knows)
  --mirror URL   where to bootstrap from (default: where this host's apt gets that release)
  --minutes N    give up after N minutes (default 40)
  --worktree     take the files as they lie here instead of those of the last commit
  --target CMD   what to run in there, in this order (default: "make demo", then "make test")
  --keep         leave the folder and say where it is

Exit 77 with the reason when this host cannot do it: it takes root, debootstrap and mount namespaces.
USAGE
}
skip() { echo "fresh: skipped: $*"; exit 77; }
say() { echo "fresh: $*"; }

arguments=("$@")
targets=()
while [ $# -gt 0 ]; do
    case "$1" in
        --suite) suite=$2; shift 2 ;;
        --mirror) mirror=$2; shift 2 ;;
        --minutes) minutes=$2; shift 2 ;;
        --target) targets+=("$2"); shift 2 ;;
        --worktree) tree=; shift ;;
        --keep) keep=yes; shift ;;
        -h | --help) usage; exit 0 ;;
        *) echo "fresh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
    esac
done
[ ${#targets[@]} -gt 0 ] || targets=("make demo" "make test")

cd "$(dirname "$0")/.."
[ "$(id -u)" -eq 0 ] || skip "not root"
command -v debootstrap >/dev/null || skip "no debootstrap (scripts/deps.sh fresh installs it)"
command -v apt-get >/dev/null || skip "no apt, from which to learn the mirror"

# Everything below happens in namespaces of its own: when it ends, however it ends, its mounts and its
# processes are gone.
if [ -z "${TE_FRESH_INSIDE:-}" ]; then
    unshare --mount --pid --fork true 2>/dev/null || skip "no mount or process namespaces here"
    root=$(mktemp -d "${TMPDIR:-/tmp}/te-fresh.XXXXXX")
    cleanup() {
        if [ $keep = yes ]; then say "left in $root"; else rm -rf --one-file-system "$root"; fi
    }
    trap cleanup EXIT
    trap 'exit 130' INT TERM
    rc=0
    TE_FRESH_INSIDE=$root timeout --foreground --kill-after=10 "${minutes}m" \
        unshare --mount --propagation private --pid --fork --kill-child "tests/$(basename "$0")" "${arguments[@]}" || rc=$?
    [ $rc -ne 124 ] || say "not done after $minutes minutes"
    exit $rc
fi
root=$TE_FRESH_INSIDE

# "uri suite component" of each index that this host's apt is configured with
sources() {
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | sort -u
}
if [ -z "$suite" ]; then
    suite=$(sources | awk '$2 == "bookworm" && !n++ { print $2 }')
    [ -n "$suite" ] || suite=$(sources | awk '$3 == "main" && $2 !~ /-/ && !n++ { print $2 }')
    [ -n "$suite" ] || skip "this host's apt names no release; use --suite and --mirror"
fi
if [ -z "$mirror" ]; then
    mirror=$(sources | awk -v s="$suite" '$2 == s && $3 == "main" && !n++ { print $1 }')
    [ -n "$mirror" ] || skip "this host's apt has no mirror of $suite; use --mirror"
fi

# apt's proxy, for debootstrap (by the environment) and for the apt inside (by the same lines).
eval "$(apt-config shell proxy Acquire::http::Proxy proxys Acquire::https::Proxy)"
export http_proxy=${http_proxy:-${proxy:-}} https_proxy=${https_proxy:-${proxys:-}}
[ -n "$http_proxy" ] || unset http_proxy
[ -n "$https_proxy" ] || unset https_proxy

say "bootstrapping $suite into $root"
include=()
case "$mirror" in https:*) include=(--include=ca-certificates) ;; esac
debootstrap --variant=minbase "${include[@]}" "$suite" "$root/debian" "$mirror" >"$root/debootstrap.log" 2>&1 || {
    tail -n 20 "$root/debootstrap.log"
    say "debootstrap failed"
    exit 1
}
chroot_dir=$root/debian
sources | awk -v s="$suite" '($2 == s || index($2, s "-") == 1) && $3 == "main" { print "deb", $1, $2, $3 }' \
    >"$chroot_dir/etc/apt/sources.list"
[ -s "$chroot_dir/etc/apt/sources.list" ] || echo "deb $mirror $suite main" >"$chroot_dir/etc/apt/sources.list"
apt-config dump | grep -Ei '^Acquire::(http|https|ftp)::' >"$chroot_dir/etc/apt/apt.conf.d/90host" || true
for file in /etc/resolv.conf /etc/hosts; do
    [ ! -e "$file" ] || cat "$file" >"$chroot_dir$file"
done
if [ ${#include[@]} -gt 0 ] && [ -f /etc/ssl/certs/ca-certificates.crt ]; then
    cat /etc/ssl/certs/ca-certificates.crt >"$chroot_dir/etc/ssl/certs/ca-certificates.crt"
fi

mkdir "$chroot_dir/src"
if [ -n "$tree" ]; then
    git archive "$tree" | tar -x -C "$chroot_dir/src"
else
    git ls-files -z --cached --others --exclude-standard | tar -c --null -T - --ignore-failed-read | tar -x -C "$chroot_dir/src"
fi

mount -t proc proc "$chroot_dir/proc"
mount -t sysfs -o ro sysfs "$chroot_dir/sys" 2>/dev/null || say "no /sys in there"
mkdir -p "$chroot_dir/dev/shm" "$chroot_dir/dev/pts"
for node in null zero full random urandom tty; do
    if [ ! -c "$chroot_dir/dev/$node" ]; then
        touch "$chroot_dir/dev/$node"
        mount --bind "/dev/$node" "$chroot_dir/dev/$node"
    fi
done
mount -t tmpfs -o mode=1777 tmpfs "$chroot_dir/dev/shm"
mount -t devpts devpts "$chroot_dir/dev/pts" 2>/dev/null || say "no /dev/pts in there"

inside() {
    say "$*"
    chroot "$chroot_dir" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} bash -c "cd /src && $*"
}
inside "apt-get -q update >/dev/null && apt-get -q -y install --no-install-recommends make >/dev/null"
for target in "${targets[@]}"; do
    inside "$target"
done
say "ok: ${targets[*]}"
