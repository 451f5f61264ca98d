#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# target and initiator with keys of their own (TE_AUTH=psk), which te_keys makes: what has no key is refused, what has
# its key moves the bytes. Both are on this host and speak TCP, as two hosts do; docs/security-howto.md is for those.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
if ! command -v te_keys >/dev/null; then
    echo "secured_pair.sh: te_keys is not in PATH: it is in the bin folder of the prefix" >&2
    exit 77
fi
work=$(mktemp -d)
target=
trap '[ -z "$target" ] || kill "$target" 2>/dev/null || true; rm -rf "$work"' EXIT

te_keys make a b --dir="$work" >/dev/null
te_keys show "$work/a.keys" "$work/b.keys" | sed -n "s|$work/||g; s/^.*->/secured_pair: &/p"
export TE_BIND=127.0.0.1 TE_HOST_PATH=0
exec {said}< <(TE_AUTH=psk TE_AUTH_KEYS="$work/a.keys" exec "$here/target" 2>"$work/log")
target=$!
if ! read -r line <&"$said"; then
    cat "$work/log" >&2
    grep -q 'needs OpenSSL 3' "$work/log" && exit 77
    exit 1
fi
echo "$line"
if "$here/initiator" "${line#target: }" 2>"$work/refused"; then
    echo "secured_pair: who has no key was let in" >&2
    exit 1
fi
echo "secured_pair: without a key: $(grep -o 'set TE_AUTH here as it is there' "$work/refused" | head -n 1)"
TE_AUTH=psk TE_AUTH_KEYS="$work/b.keys" "$here/initiator" "${line#target: }"
cat <&"$said"
wait "$target"
