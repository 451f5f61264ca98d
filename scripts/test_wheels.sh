#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Downloads what tests want of PyPI, and no system packages: tests themselves go to no other machine.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/test_wheels.sh

Downloads kubernetes-validate, which looks at the manifests of service/kubernetes, and what it needs, into
$XDG_CACHE_HOME/te-wheels, or ~/.cache/te-wheels, unless they are there, for the python3 that runs. Without a network
it says so, and the tests that want them are skipped, by name.
USAGE
}

case "${1:-}" in
    "") ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
esac
wanted=kubernetes-validate==1.37.0
python=$(python3 -c 'import sys; print(sys.implementation.cache_tag)') # some of them fit one only
folder=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/te-wheels/$python
if compgen -G "$folder/kubernetes_validate-${wanted#*==}-*.whl" >/dev/null; then exit 0; fi
mkdir -p "${folder%/*}"
rm -rf "$folder.part"
if timeout 60 python3 -m pip download --quiet --disable-pip-version-check --only-binary :all: --timeout 20 \
    --retries 1 -d "$folder.part" "$wanted"; then
    rm -rf "$folder"
    mv "$folder.part" "$folder"
else
    echo "test_wheels: $wanted cannot be downloaded; tests that want it are skipped" >&2
fi
