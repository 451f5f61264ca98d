#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# target and initiator on two hosts: network namespaces of this one, with a cable of 1 Gbit/s between them.
# It needs root, and leaves nothing behind. Each engine is told its host's address, on which it listens.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${TE_NETNS:-}" ]; then # begins again, with both hosts there
    exec "$here/../scripts/netlab.sh" --links 1 --mbit 1000 -- "$0"
fi

on_a=(ip netns exec "${TE_NETNS%,*}" env TE_BIND="${TE_ADDRESS%,*}")
on_b=(ip netns exec "${TE_NETNS#*,}" env TE_BIND="${TE_ADDRESS#*,}")
coproc "${on_a[@]}" "$here/target"
target=$COPROC_PID
trap 'kill "$target" 2>/dev/null || true' EXIT
exec {said}<&"${COPROC[0]}"
read -r line <&"$said"
echo "$line"
"${on_b[@]}" "$here/initiator" "${line#target: }"
cat <&"$said"
wait "$target"
