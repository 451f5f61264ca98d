#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# target and initiator in two containers of one image, by podman or docker, on the network that these give them. Where
# neither can, in two network namespaces of a user who need not be root. It leaves nothing behind.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
image=te-example-$$

# An image of nothing but the two programs and the libraries that they need.
make_image() {
    local work file
    work=$(mktemp -d)
    for file in "$here/target" "$here/initiator" $(ldd "$here/target" "$here/initiator" | grep -o '/[^ :)]*'); do
        mkdir -p "$work/$(dirname "${file/#$here/te}")"
        cp -Lf "$file" "$work/${file/#$here/te}"
    done
    tar -C "$work" -c . | "$runtime" import - "$image" >/dev/null 2>&1 || { rm -rf "$work"; return 1; }
    rm -rf "$work"
}

clean_up() {
    "$runtime" rm -f "$image" >/dev/null 2>&1 || true
    "$runtime" rmi -f "$image" >/dev/null 2>&1 || true
}

# Whether a container runs here: without words the initiator ends with 2.
can_run() {
    local status=0
    command -v "$runtime" >/dev/null && make_image || return 1
    "$runtime" run --rm "$image" /te/initiator >/dev/null 2>&1 || status=$?
    [ "$status" -eq 2 ]
}

for runtime in podman docker; do
    [ -z "${IN_NAMESPACE:-}" ] || break
    trap clean_up EXIT
    if can_run; then
        echo "two containers, by $runtime"
        "$runtime" run -d --name "$image" -e TE_BIND=eth0 "$image" /te/target >/dev/null
        read -r line < <("$runtime" logs -f "$image" 2>/dev/null)
        "$runtime" run --rm -e TE_BIND=eth0 "$image" /te/initiator "${line#target: }"
        status=$("$runtime" wait "$image")
        "$runtime" logs "$image"
        exit "$status"
    fi
    clean_up
    trap - EXIT
done

if [ -z "${IN_NAMESPACE:-}" ]; then # begins again, as root of a namespace of users
    if ! why=$(unshare --user --map-root-user --net ip link add te0 type veth peer name te1 2>&1); then
        echo "containers.sh: neither podman nor docker runs a container here, and no namespaces: $why" >&2
        exit 77
    fi
    IN_NAMESPACE=1 exec unshare --user --map-root-user --net "$0"
fi

echo "two namespaces of one user"
coproc other { exec unshare --net sh -c 'echo ready; exec cat'; } # lives until its input ends
read -r _ <&"${other[0]}"
inside=(nsenter --target "$other_PID" --net)
ip link add te0 type veth peer name te1 netns "$other_PID"
ip address add 10.231.90.1/24 dev te0
ip link set te0 up
"${inside[@]}" ip address add 10.231.90.2/24 dev te1
"${inside[@]}" ip link set te1 up
exec {said}< <(TE_BIND=10.231.90.1 exec "$here/target")
target=$!
trap 'kill "$target" "$other_PID" 2>/dev/null || true' EXIT
read -r line <&"$said"
echo "$line"
"${inside[@]}" env TE_BIND=10.231.90.2 "$here/initiator" "${line#target: }"
cat <&"$said"
wait "$target"
