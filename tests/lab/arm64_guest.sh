# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# What the arm64 guest does: each program of /out/programs, and then two engines over each protocol. A line for
# each goes to /out/results: "ok NAME SECONDS", "skipped NAME SECONDS" or "failed NAME SECONDS STATUS"; the
# last is "end".
#
# With a name: runs this one.

export TE_TEST_SRC=/src TE_TEST_BUILD=/build TE_TEST_BIN=/build/bin TE_TEST_FAULT_BIN=/build/tests/fault
export TE_TEST_SOFTGPU=/build/tests/softgpu HOME=/root

tell() {
    name=$1
    shift
    read -r before _ </proc/uptime
    rc=0
    "$@" >"/out/$(echo "$name" | tr / -).out" 2>&1 || rc=$?
    read -r after _ </proc/uptime
    seconds=$((${after%.*} - ${before%.*}))
    case $rc in
        0) echo "ok $name $seconds" ;;
        77) echo "skipped $name $seconds" ;;
        *) echo "failed $name $seconds $rc" ;;
    esac >>/out/results
}

cd /build/tests || exit 1
if [ $# -eq 1 ]; then
    tell "$1" timeout -s KILL 240 "/build/tests/$1"
    exit
fi
awk '/^KernelPageSize:/ { print "pages", $2 * 1024; exit }' /proc/self/smaps >>/out/results
xargs -P 2 -n 1 sh "$0" </out/programs
for protocol in tcp host; do tell "pair/$protocol" sh /src/tests/systems/pair.sh /build/bin $protocol; done
echo end >>/out/results
