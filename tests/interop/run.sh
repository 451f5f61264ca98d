#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Our engine beside Mooncake's own, from its wheel, on 127.0.0.1: make interop. Exits 77 with the reason
# where the wheel cannot be had or does not load.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: tests/interop/run.sh [--list] [--only PATTERN] [--markdown] [--wheel SPEC] [--venv DIR] [--prepare]
  --list          print the names of the cases
  --only PATTERN  only cases whose name contains it, or matches it with * and ?
  --markdown      print the rows of docs/compat.md, run nothing
  --wheel SPEC    what pip installs: a name, name==version or a file
                  (default: mooncake-transfer-engine-non-cuda, else mooncake-transfer-engine)
  --venv DIR      a virtual environment that has it already
  --prepare       make the environment, print where it is, run nothing
The environment is made once, in build/interop; TE_TEST_BUILD names another build folder.
TEXT
}

cd "$(dirname "$0")/../.."
build=${TE_TEST_BUILD:-$PWD/build}
export TE_TEST_BUILD=$build
here=tests/interop
wheels=(mooncake-transfer-engine-non-cuda mooncake-transfer-engine)
venv='' arguments=() runs=1 prepare=''
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --prepare) prepare=1 ;;
        --list | --markdown) arguments+=("$1"); runs='' ;;
        --only) arguments+=("$1" "${2:?--only needs a pattern}"); shift ;;
        --wheel) wheels=("${2:?--wheel needs what pip installs}"); shift ;;
        --venv) venv=${2:?--venv needs a folder}; shift ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

skip() {
    echo "interop: $*" >&2
    exit 77
}

# The environment of one wheel, made once.
provide() {
    local folder log=$build/interop/pip.log
    folder=$build/interop/$(tr -c 'A-Za-z0-9._=\n-' _ <<<"$1")
    if [ ! -e "$folder/ready" ]; then
        rm -rf "$folder"
        python3 -m venv "$folder" >"$log" 2>&1 || return 1
        "$folder/bin/python" -m pip install --disable-pip-version-check --quiet --only-binary :all: \
            --timeout 20 --retries 2 "$1" >>"$log" 2>&1 || return 1
        touch "$folder/ready"
    fi
    venv=$folder
}

if [ -n "$runs" ]; then
    [ -x "$build/tests/interop/ours" ] || skip "$build/tests/interop/ours is not built: run make"
    mkdir -p "$build/interop"
    exec 9>"$build/interop/lock"
    flock 9 # also of the lab, which has its environment from here
    for wheel in "${wheels[@]}"; do
        [ -n "$venv" ] || provide "$wheel" || true
    done
    [ -n "$venv" ] || skip "pip cannot install ${wheels[*]}: $(tail -n 1 "$build/interop/pip.log")"
    exec 9>&-
    arguments+=(--venv "$(realpath "$venv")")
    [ -z "$prepare" ] || { realpath "$venv"; exit; }
fi
exec timeout --kill-after=10 900 python3 $here/run.py "${arguments[@]}"
