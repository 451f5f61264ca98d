#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A small network inside this machine: two network namespaces with a long cable or with several
# slow ones between them. It needs root, touches nothing outside the namespaces, and leaves nothing
# behind. Run it with a command, or source it and call lab_delay or lab_links, then lab_close.
#
# lab_delay and lab_links set:
#   TE_NETNS     "A,B", the namespaces, as the option --netns of the programs in tests/bench has it
#   TE_ADDRESS   "address in A,address in B" of the first link, for --address
#   TE_TARGETS   the addresses in B of all links, separated by commas

lab_usage() {
    cat <<'TEXT'
Usage: scripts/netlab.sh --delay-us N [option...] -- COMMAND...
       scripts/netlab.sh --links K [option...] -- COMMAND...

Runs COMMAND with two network namespaces set up, and removes them when it ends. COMMAND finds their
names in TE_NETNS ("A,B") and addresses in TE_ADDRESS ("a,b", of the first link) and TE_TARGETS (of
all links, in B). Enter one with: ip netns exec ${TE_NETNS%,*} ...

  --delay-us N     one link; a round trip takes N microseconds longer (delay_relay, at most 120 s)
  --mtu N          of that link (9000)
  --links K        K links, 1 to 8
  --mbit N         each of so many Mbit/s (400)
  --slow           the last one at a quarter of that
  --build DIR      the build tree, for delay_relay (build)
TEXT
}

lab_names=() lab_relay="" lab_dir="" lab_report=""

lab_fail() {
    echo "netlab.sh: $*" >&2
    lab_close
    return 1
}

# lab_can: says why not if this machine cannot do it.
lab_can() {
    [ "$(id -u)" -eq 0 ] || { echo "needs root"; return 1; }
    command -v ip >/dev/null && command -v tc >/dev/null ||
        { echo "needs ip and tc (package iproute2)"; return 1; }
    ip netns add "te$$p" 2>/dev/null && ip netns delete "te$$p" ||
        { echo "network namespaces cannot be made here"; return 1; }
}

lab_begin() {
    local name
    lab_close
    lab_dir=$(mktemp -d "${TMPDIR:-/tmp}/te-netlab.XXXXXX") || return 1
    for name in "te$$a" "te$$b"; do
        ip netns add "$name" || return 1
        lab_names+=("$name")
        ip -n "$name" link set lo up || return 1
    done
    TE_NETNS=te$$a,te$$b TE_ADDRESS="" TE_TARGETS=""
    export TE_NETNS TE_ADDRESS TE_TARGETS
}

# lab_delay MICROSECONDS [MTU [PROGRAM]]: one link over PROGRAM, a delay_relay.
lab_delay() {
    local delay=$1 mtu=${2:-9000} program=${3:-build/tests/bench/delay_relay} i=1 name
    lab_begin || lab_fail "cannot make namespaces" || return 1
    [ -c /dev/net/tun ] || lab_fail "cannot make a TUN device: there is no /dev/net/tun here" || return 1
    for name in "${lab_names[@]}"; do
        ip -n "$name" tuntap add dev te0 mode tun vnet_hdr &&
            ip -n "$name" link set te0 up mtu "$mtu" txqueuelen 10000 &&
            ip -n "$name" addr add "10.231.80.$i/24" dev te0 ||
            lab_fail "cannot make a TUN device" || return 1
        i=$((i + 1))
    done
    TE_ADDRESS=10.231.80.1,10.231.80.2 TE_TARGETS=10.231.80.2
    mkfifo "$lab_dir/relay" || return 1
    "$program" --netns "$TE_NETNS" --delay-us "$delay" --seconds 120 --json \
        </dev/null >"$lab_dir/relay" &
    lab_relay=$!
    exec {lab_said}<"$lab_dir/relay"
    read -r -t 120 name <&"$lab_said" && [ "$name" = ready ] ||
        lab_fail "delay_relay did not start" || return 1
}

# lab_shape NAMESPACE LINK MBIT: both ends of a link are shaped, each for what it sends.
lab_shape() {
    tc -n "$1" qdisc add dev "$2" root tbf rate "${3}mbit" burst 128kb limit 2mb
}

# lab_links COUNT [MBIT [MBIT OF THE LAST]]
lab_links() {
    local count=$1 mbit=${2:-400} last=${3:-${2:-400}} i rate
    lab_begin || lab_fail "cannot make namespaces" || return 1
    for ((i = 0; i < count; i++)); do
        rate=$mbit
        [ "$i" -lt $((count - 1)) ] || rate=$last
        ip link add "te$i" netns "te$$a" type veth peer name "te$i" netns "te$$b" &&
            ip -n "te$$a" addr add "10.231.$((80 + i)).1/24" dev "te$i" &&
            ip -n "te$$b" addr add "10.231.$((80 + i)).2/24" dev "te$i" &&
            ip -n "te$$a" link set "te$i" up && ip -n "te$$b" link set "te$i" up &&
            lab_shape "te$$a" "te$i" "$rate" && lab_shape "te$$b" "te$i" "$rate" ||
            lab_fail "cannot make link $i" || return 1
        TE_TARGETS=$TE_TARGETS${TE_TARGETS:+,}10.231.$((80 + i)).2
    done
    TE_ADDRESS=10.231.80.1,10.231.80.2
}

# lab_close: removes all. The relay's own account, a line of JSON, is then in lab_report.
lab_close() {
    local name
    lab_report=""
    if [ -n "$lab_relay" ]; then
        kill "$lab_relay" 2>/dev/null
        wait "$lab_relay" 2>/dev/null
        read -r -t 1 lab_report <&"$lab_said"
        exec {lab_said}<&-
        lab_relay=""
    fi
    for name in "${lab_names[@]}"; do
        ip netns delete "$name" 2>/dev/null
    done
    lab_names=()
    [ -z "$lab_dir" ] || rm -rf "$lab_dir"
    lab_dir=""
    return 0
}

lab_main() {
    local delay="" links="" mbit=400 mtu=9000 slow=0 build why rc
    build=$(cd "$(dirname "$0")/.." && pwd)/build
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        case $1 in
        --help | -h)
            lab_usage
            return 0
            ;;
        --slow) slow=1 ;;
        --delay-us | --links | --mbit | --mtu)
            case ${2:-} in
            '' | *[!0-9]*)
                echo "netlab.sh: $1 wants a number" >&2
                return 2
                ;;
            esac
            case $1 in
            --delay-us) delay=$2 ;;
            --links) links=$2 ;;
            --mbit) mbit=$2 ;;
            --mtu) mtu=$2 ;;
            esac
            shift
            ;;
        --build)
            build=${2:-}
            shift
            ;;
        *)
            echo "netlab.sh: unknown option '$1'; try --help" >&2
            return 2
            ;;
        esac
        shift
    done
    if [ $# -lt 2 ] || { [ -z "$delay" ] && [ -z "$links" ]; }; then
        echo "netlab.sh: --delay-us N or --links K, then -- and a command; try --help" >&2
        return 2
    fi
    shift
    why=$(lab_can) || {
        echo "netlab.sh: $why" >&2
        return 77
    }
    trap lab_close EXIT
    trap 'exit 130' INT TERM
    if [ -n "$delay" ]; then
        lab_delay "$delay" "$mtu" "$build/tests/bench/delay_relay" || return 1
    else
        lab_links "$links" "$mbit" "$((slow ? mbit / 4 : mbit))" || return 1
    fi
    "$@"
    rc=$?
    lab_close
    return $rc
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    set -u -o pipefail
    lab_main "$@"
    exit $?
fi
