# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What a guest runs once it has its root file system: brings up the NICs, then does what the host says, line
# by line through a port:
#
#   run JOB          the commands in /run/lab/JOB/command, in a shell and process group of their own; their
#                    number goes to JOB/pid, what they write to JOB/out and JOB/err, their exit status to JOB/rc
#   talk JOB         the same with a standard input that is not empty:
#   tell JOB TEXT    one line for it
#   kill SIGNAL PID  the process group
#
# To start a program takes 70 ms where every instruction is emulated. So all this is done within one bash,
# and jobs are forks of it: they can call the functions here.

# ------------------------------------------------------------------------------------- for jobs

# The address of NIC $1 (0) of guest $2 (this one).
lab_ip() {
    echo "10.77.0.$((1 + 16 * ${2:-$LAB_GUEST} + ${1:-0}))"
}

# Until every guest has come to the barrier of this name, which is passed once.
lab_barrier() {
    local g
    : >"/run/lab/barrier.$1.$LAB_GUEST"
    for ((g = 0; g < LAB_GUESTS; g++)); do
        until [ -e "/run/lab/barrier.$1.$g" ]; do nap 0.05; done
    done
}

# A command for QEMU's monitor: 'set_link nic1 off' pulls the cable of eth1, 'device_del nic1' removes it.
lab_monitor() {
    echo "$*" >/dev/vport0p2
}

# Without starting a program.
nap() {
    local rc=0
    read -rt "$1" <>/run/nap || rc=$?
    [ $rc -gt 128 ]
}

# What the kernel forgets of NIC $1 when it goes down.
#
# All addresses are in one subnet, also those of one guest. The kernel would take the short cut of lo
# between these, and SoftRoCE does not listen there. But it routes with its NIC as the output interface, so
# a rule for each NIC, ahead of the local table, puts such packets on the wire.
lab_routes() {
    local i=$1 table=$((100 + $1))
    ip -batch - <<BATCH
route replace 10.77.0.0/24 dev eth$i table $table
route replace local $(lab_ip "$i") dev eth$i table $table
BATCH
}

lab_link_down() {
    ip link set "eth$1" down
}

lab_link_up() {
    ip link set "eth$1" up
    lab_routes "$1"
}

# Until the device of NIC $1 can be used.
lab_wait_nic() {
    local port=/sys/class/infiniband/rxe$1/ports/1 n
    for ((n = 0; n < 400; n++)); do
        { [[ $(<"$port/state") == *ACTIVE && $(<"$port/gids/1") == *:ffff:* ]] && return; } 2>/dev/null
        nap 0.05
    done
    echo "lab: rxe$1 does not come up" >&2
    return 1
}

# ------------------------------------------------------------------------------------ the NICs

# Brings up NIC $1 as ethN with the SoftRoCE device rxeN.
lab_nic() {
    local i=$1 dev
    for dev in /sys/class/net/*; do
        [[ $(<"$dev/address") == 52:54:*:"$(printf %02x "$i")" ]] && break
    done
    dev=${dev##*/}
    [ "$dev" = "eth$i" ] || ip link set "$dev" name "eth$i"
    ip -batch - <<BATCH
link set eth$i mtu $LAB_MTU up
addr add $(lab_ip "$i")/24 dev eth$i
BATCH
    lab_routes "$i"
    rdma link add "rxe$i" type rxe netdev "eth$i"
}

bring_up_nics() {
    local i conf
    for conf in /proc/sys/net/ipv4/conf/{all,default}; do
        echo 1 >"$conf/accept_local"
        echo 1 >"$conf/arp_ignore"
        echo 2 >"$conf/arp_announce"
        echo 0 >"$conf/rp_filter"
    done
    ip -batch - <<BATCH
link set lo up
rule add pref 100 lookup local
rule del pref 0
$(for ((i = 0; i < LAB_NICS; i++)); do
        echo "rule add pref $((10 + i)) oif eth$i lookup $((100 + i))"
        echo "rule add pref $((30 + i)) from $(lab_ip "$i") iif lo lookup $((100 + i))"
    done)
BATCH
    for ((i = 0; i < LAB_NICS; i++)); do lab_nic "$i"; done
    for ((i = 0; i < LAB_NICS; i++)); do lab_wait_nic "$i"; done
}

# ---------------------------------------------------------------------------------------- jobs

declare -A inputs # of jobs: what is written there comes to their standard input

run_job() {
    local dir=/run/lab/$1
    (
        set -m # a process group for what begins here
        (cd "$LAB_SOURCE" && . "$dir/command") <"$2" >"$dir/out" 2>"$dir/err" &
        echo $! >"$dir/pid"
        wait $!
        echo $? >"$dir/rc"
    ) 2>/dev/null &
}

open_input() {
    mkfifo "/run/in.$1"
    exec {input}<>"/run/in.$1"
    inputs[$1]=$input
}

serve() {
    local verb first rest
    while read -r verb first rest; do
        case $verb in
        run) run_job "$first" /dev/null ;;
        talk)
            open_input "$first"
            run_job "$first" "/run/in.$first"
            ;;
        tell) printf '%s\n' "$rest" >&"${inputs[$first]}" ;;
        kill) kill -s "$first" -- "-$rest" ;;
        esac
    done
}

set -a
. /run/lab/config
LAB_GUEST=$(</proc/cmdline)
LAB_GUEST=${LAB_GUEST##*lab.guest=}
TE_TEST_SRC=$LAB_SOURCE TE_TEST_BUILD=$LAB_BUILD TE_TEST_BIN=$LAB_BUILD/bin
PYTHONDONTWRITEBYTECODE=1
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
HOME=/root
set +a
echo "lab$LAB_GUEST" >/proc/sys/kernel/hostname
ulimit -l unlimited
mkfifo /run/nap
# shellcheck disable=SC2086
modprobe -a $LAB_MODULES
bring_up_nics
echo up >"/run/lab/up.$LAB_GUEST"
serve <>/dev/vport0p1
