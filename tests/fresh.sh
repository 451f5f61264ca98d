#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves that `make demo` and `make test` need nothing before them but make, git and certificates: runs both
# in minimal systems of several releases.
set -euo pipefail

suites=() targets=() tree=HEAD minutes=40 keep=()
usage() {
    cat <<'USAGE'
usage: tests/fresh.sh [--suite NAME]... [--minutes N] [--worktree] [--keep] [--target "make ..."]...

  --suite NAME   bookworm, trixie (Debian), jammy or noble (Ubuntu); more than one, or all (default: bookworm)
  --minutes N    give up a suite after N minutes (default 40)
  --worktree     take the files as they lie here instead of a clone of the last commit
  --target CMD   what to run in there, in this order (default: "make demo", then "make test")
  --keep         leave the folder that was written, and say where it is

The roots are those of tests/systems/roots.py, which tells where they are kept and from which archives they come.
Exit status 77 with the reason when nothing could be tried: it takes root, mmdebstrap and an archive.
USAGE
}
say() { echo "fresh: $*"; }

while [ $# -gt 0 ]; do
    case "$1" in
        --suite) suites+=("$2"); shift 2 ;;
        --minutes) minutes=$2; shift 2 ;;
        --target) targets+=("$2"); shift 2 ;;
        --worktree) tree=; shift ;;
        --keep) keep=(--keep); shift ;;
        -h | --help) usage; exit 0 ;;
        *) echo "fresh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
    esac
done
[ ${#targets[@]} -gt 0 ] || targets=("make demo" "make test")
[ ${#suites[@]} -gt 0 ] || suites=(bookworm)
known=(bookworm trixie jammy noble)
[ "${suites[*]}" != all ] || suites=("${known[@]}")
for suite in "${suites[@]}"; do
    [[ " ${known[*]} " == *" $suite "* ]] || { echo "fresh: no suite '$suite': there are ${known[*]}" >&2; exit 2; }
done

cd "$(dirname "$0")/.."
work=$(mktemp -d "${TMPDIR:-/tmp}/te-fresh.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
if [ -n "$tree" ]; then
    git clone --quiet --no-hardlinks . "$work/clone"
    git -C "$work/clone" checkout --quiet "$(git rev-parse "$tree")"
    tar -c -C "$work/clone" -f "$work/source.tar" .
    rm -rf "$work/clone"
else
    git ls-files -z --cached --others --exclude-standard | tar -c --null -T - --ignore-failed-read >"$work/source.tar"
fi
script=
for target in "${targets[@]}"; do script+=$(printf 'echo %q\n%s' "fresh: $target" "$target")$'\n'; done

# What reaches the network in there does so as what reaches it here: apt has been told, other programs have not.
settings=()
for name in http_proxy https_proxy no_proxy; do
    [ -z "${!name:-}" ] || settings+=(--set "$name=${!name}")
done

done_suites=() failed=() skipped=()
for suite in "${suites[@]}"; do
    start=$SECONDS
    rc=0
    root=$(tests/systems/roots.py "fresh-$suite") || rc=$?
    if [ $rc -eq 0 ]; then
        say "---- $suite"
        tests/systems/enter.sh --minutes "$minutes" "${keep[@]}" "${settings[@]}" --files "$work/source.tar:/src" --chdir /src \
            "$root" bash -euo pipefail -c "$script" || rc=$?
    fi
    case $rc in
        0) done_suites+=("$suite"); say "$suite: ok: ${targets[*]}, $((SECONDS - start)) s" ;;
        77) skipped+=("$suite"); say "skipped: $suite: the reason is above" ;;
        *) failed+=("$suite"); say "$suite: FAILED (exit $rc), $((SECONDS - start)) s" ;;
    esac
done
say "ok: ${done_suites[*]:-none}; failed: ${failed[*]:-none}; skipped: ${skipped[*]:-none}"
[ ${#failed[@]} -eq 0 ] || exit 1
[ ${#done_suites[@]} -gt 0 ] || exit 77
