#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=1800
# Builds the Debian packages and installs them in a clean tree, an overlay of this root in a mount namespace
# of its own. In there programs are compiled, linked and run, the tools tell their version, manual pages and
# completion are found; a purge leaves nothing behind.
set -euo pipefail

src=${TE_TEST_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${TE_TEST_BUILD:-$src/build}
packages=(libtransfer-engine0 libtransfer-engine-dev transfer-engine-tools)
tools=(te_info te_keys te_metad te_segment te_top transfer_engine_bench transfer_engine_validator)

fail() { echo "test_package_deb: $*" >&2; exit 1; }
skip() { echo "test_package_deb: $*"; exit 77; }

# ---- In the clean tree ---------------------------------------------------------------------------
quietly() { "$@" >/log 2>&1 || fail "$*: $(tail -n 30 /log)"; }

install_packages() {
    if dpkg -i /debs/libtransfer-engine-dev_*.deb >/log 2>&1; then
        fail "libtransfer-engine-dev went in without libtransfer-engine0"
    fi
    quietly dpkg -i /debs/*.deb
    [ -z "$(dpkg --audit)" ] || fail "$(dpkg --audit)"
    for package in "${packages[@]}"; do
        dpkg-query -W -f='${Status} ${Version}\n' "$package" | grep -qx "install ok installed $version" ||
            fail "$package is not installed"
    done
    ldconfig -p >/log
    grep -F libtransfer_engine.so.0 /log >/dev/null || fail "ldconfig does not know the library"
}

use_libraries() {
    cd /user
    for module in transfer_engine transfer_engine-static mooncake-transfer-engine; do
        read -ra flags <<<"$(pkg-config --cflags --libs $module)"
        case $module in
            mooncake*) quietly c++ -std=c++17 user.cpp -o user "${flags[@]}" ;;
            *) quietly cc -std=c99 user.c -o user "${flags[@]}" ;;
        esac
        [ "$(./user)" = ok ] || fail "the program linked with $module failed"
    done
    quietly cmake -B cmake
    quietly cmake --build cmake -j 2
    for kind in static shared transfer_engine mooncake; do
        [ "$(cmake/user_$kind)" = ok ] || fail "the program linked with transfer_engine::$kind failed"
    done
}

use_tools() {
    for tool in "${tools[@]}"; do
        [ "$($tool --version)" = "$tool $version" ] || fail "$tool --version: $($tool --version)"
        $tool --help >/log || fail "$tool --help fails"
        grep -q "^usage: $tool" /log || fail "$tool --help: $(cat /log)"
        (. "/usr/share/bash-completion/completions/$tool" && complete -p "$tool") >/dev/null ||
            fail "bash does not complete $tool"
        # shellcheck disable=SC2016
        if command -v zsh >/dev/null && ! zsh -f -c 'autoload -U compinit; compinit -D; (($+_comps[$1]))' zsh "$tool"; then
            fail "zsh does not complete $tool"
        fi
    done
}

# It is there to be enabled, and what its user changes is kept.
use_service() {
    local unit=/usr/lib/systemd/system/te_metad.service
    [ -f $unit ] || fail "no $unit"
    if find /etc/systemd -name te_metad.service | grep . >/dev/null; then fail "te_metad.service is enabled"; fi
    dpkg-query -W -f='${Conffiles}\n' transfer-engine-tools | grep -F /etc/default/te_metad >/dev/null ||
        fail "/etc/default/te_metad is no configuration file"
    if command -v systemd-analyze >/dev/null; then quietly systemd-analyze verify --man=no $unit; fi
}

# What pages link is in one of the packages, and their pictures are beside them. Pages may be compressed, and links
# of the tree go to the folder above, or to docs/.
use_links() {
    local page folder link
    for page in /usr/share/doc/{libtransfer-engine-dev,transfer-engine-tools}/*.md*; do
        folder=$(dirname "$page")
        for link in $(zcat -f "$page" | grep -oE '\]\((grafana|pictures)/[^)#]*' | cut -c 3-); do
            [ -s "$folder/$link" ] || fail "$page links $link, which is not in its package"
        done
        for link in $(zcat -f "$page" | grep -oE '\]\((\.\./|docs/)?[A-Za-z0-9-]+\.md' | sed 's,.*[(/],,'); do
            compgen -G "/usr/share/doc/*transfer-engine-*/$link*" >/dev/null || fail "$page links $link, which is in no package"
        done
    done
}

use_documents() {
    local section found page pages
    zcat /usr/share/doc/libtransfer-engine-dev/README.md.gz >/log || fail "no README"
    [ -s /usr/share/doc/libtransfer-engine0/copyright ] || fail "no copyright"
    for page in SECURITY config metad security-howto troubleshooting tuning; do
        compgen -G "/usr/share/doc/transfer-engine-tools/$page.md*" >/dev/null || fail "$page.md is not with the tools"
    done
    use_links
    [ "$(head -c 1 /usr/share/doc/transfer-engine-tools/grafana/transfer_engine.json)" = "{" ] || fail "no dashboard"
    for page in container/Containerfile kubernetes/engine.yaml kubernetes/te_metad.yaml; do
        [ -s "/usr/share/doc/transfer-engine-tools/examples/$page" ] || fail "$page is not with the tools"
    done
    # Minimized systems have another program in its place.
    if ! man --version 2>/dev/null | grep "^man " >/dev/null; then
        echo "left out: the manual pages were not looked up: man does not work here"
        return
    fi
    for section in /man/man?; do
        mapfile -t pages < <(basename -a "$section"/*.? | sed 's/\.[^.]*$//')
        found=$(man -w "${section#/man/man}" "${pages[@]}" 2>/log | grep -c ^/usr/share/man/) || true
        [ "$found" = ${#pages[@]} ] || fail "man finds $found of ${#pages[@]} pages in $section: $(cat /log)"
    done
    # Of a name that is a link to another's page, its text.
    man -P cat 3 te_unregister 2>/dev/null | grep -F te_register_batch >/dev/null || fail "man 3 te_unregister shows nothing"
}

if [ "${1:-}" = --inside ]; then
    version=$2
    # What follows removes things. The token is what the outer part has put into the tree that it made.
    if [ "$(stat -f -c %T /)" != overlayfs ] || [ -z "${3-}" ] || [ "$(cat /clean_tree 2>/dev/null)" != "$3" ]; then
        fail "--inside is for the clean tree"
    fi
    # What this host may have of it, and what a small system does not unpack.
    dpkg --purge "${packages[@]}" >/dev/null 2>&1 || true
    rm -rf /usr/local/include /usr/local/share/man
    find /usr/local -name '*transfer?engine*' -prune -exec rm -rf {} +
    find /etc/dpkg/dpkg.cfg.d -type f -exec sed -i '/^path-exclude/d' {} + 2>/dev/null || true
    install_packages
    use_libraries
    use_tools
    use_service
    use_documents
    cd /
    quietly dpkg --purge "${packages[@]}"
    exit 0
fi

# ---- Outside -------------------------------------------------------------------------------------
[ "$(id -u)" -eq 0 ] || skip "it takes root, to install packages in a tree of its own"
command -v dpkg-buildpackage >/dev/null && command -v dh >/dev/null || skip "no dpkg-buildpackage or debhelper (scripts/deps.sh test)"
if (bash "$0" --inside 0) >/dev/null 2>&1 || (bash "$0" --inside 0 token) >/dev/null 2>&1; then
    fail "--inside works outside"
fi
# Quick ones, beside those of `make deb`; and in a folder where something else lies.
out=$build/deb-test
mkdir -p "$out/other"
touch "$out/other/kept" "$out/other_1_all.deb"
(cd "$build" && DEB_BUILD_OPTIONS="noopt noautodbgsym" DEB_CFLAGS_STRIP=-g "$src/scripts/deb.sh" --out deb-test) >/dev/null ||
    fail "the packages do not build"
[ -f "$out/other/kept" ] && [ -f "$out/other_1_all.deb" ] || fail "deb.sh has removed what is not its own"
version=$(dpkg-parsechangelog -l "$src/debian/changelog" -S Version)

# A file of two packages would make dpkg refuse the second.
twice=$(for package in "$out"/*"_${version}_"*.deb; do dpkg-deb -c "$package"; done | awk '$1 !~ /^d/ { print $6 }' | sort | uniq -d)
[ -z "$twice" ] || fail "in two packages: $twice"
if command -v lintian >/dev/null; then
    found=$(cd "$out" && lintian --allow-root --fail-on error,warning \
        ./*"_${version}_"*.deb 2>&1) || fail "lintian: $found"
else
    echo "left out: lintian was not asked: it is not here (scripts/deps.sh test)"
fi

unshare --mount --pid --fork true 2>/dev/null || skip "no mount or process namespaces here"
dir=$(mktemp -d)
trap 'rmdir "$dir"' EXIT
token=$(od -An -N16 -tx1 /dev/urandom | tr -d " \n")
export dir src out version token
rc=0
# shellcheck disable=SC2016
unshare --mount --propagation private --pid --fork --kill-child bash -euo pipefail -c '
    mount -t tmpfs tmpfs "$dir" || exit 77
    mkdir "$dir/upper" "$dir/work" "$dir/root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" "$dir/root" || exit 77
    root=$dir/root
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/tmp"
    mkdir "$root/debs" "$root/user"
    for package in libtransfer-engine0 libtransfer-engine-dev transfer-engine-tools; do
        cp "$out/$package"_"$version"_*.deb "$root/debs/"
    done
    cp "$src"/tests/bindings/package/* "$root/user/"
    cp -r "$src/man" "$root/man"
    cp "$0" "$root/test"
    echo "$token" >"$root/clean_tree"
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C chroot "$root" bash /test --inside "$version" "$token"

    # What lies in the upper folder is new: but for what this test has put there, records and caches, nothing.
    cd "$dir/upper"
    rm -rf debs user man test clean_tree log root run/systemd var/cache var/log var/lib/dpkg etc/ld.so.cache etc/dpkg/dpkg.cfg.d
    left=$(find . ! -type c \( ! -type d -o -name "*transfer*engine*" -o -name mooncake \))
    if [ -n "$left" ]; then
        echo "test_package_deb: the purge leaves: $left" >&2
        exit 1
    fi
' "$(realpath "$0")" || rc=$?
[ $rc -ne 77 ] || skip "no overlay of this root can be mounted here"
[ $rc -ne 0 ] || echo "test_package_deb: ok"
exit $rc
