#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# te-test: timeout=600
# The spec file of the RPM packages: its version, what rpmlint says, and a build whose packages hold every
# installed file exactly once.
set -euo pipefail

src=${TE_TEST_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${TE_TEST_BUILD:-$src/build}
spec=$src/rpm/transfer-engine.spec
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() { echo "test_package_rpm: $*" >&2; exit 1; }

version=$(sed -nE 's/^Version: +//p' "$spec")
grep -q "TE_VERSION_STRING \"$version\"" "$src/include/te.h" || fail "te.h has another version than $version"
for program in rpmlint rpmbuild; do
    command -v $program >/dev/null && continue
    echo "test_package_rpm: no $program here (scripts/deps.sh test)"
    exit 77
done
found=$(rpmlint -r "${spec%.spec}.rpmlintrc" "$spec" 2>&1) || fail "rpmlint: $found"
grep "0 errors, 0 warnings" <<<"$found" >/dev/null || fail "rpmlint: $found"

mkdir -p "$dir/rpm/SOURCES" "$dir/transfer-engine-$version"
(cd "$src" && cp -r CMakeLists.txt LICENSE ./*.md cmake completions docs include man service src tools "$dir/transfer-engine-$version/")
tar -C "$dir" -czf "$dir/rpm/SOURCES/transfer-engine-$version.tar.gz" "transfer-engine-$version"
# What systemd-rpm-macros defines, which Debian has no package of.
macros=(--define "_unitdir /usr/lib/systemd/system")
for when in post preun postun_with_restart; do
    macros+=(--define "systemd_$when() echo systemd_$when %1")
done
# An unoptimised build; no package is installed here, so that none can be asked for.
rpmbuild -bb --nodeps --define "_topdir $dir/rpm" --define "optflags -O0" --define "debug_package %{nil}" \
    "${macros[@]}" "$spec" >"$dir/log" 2>&1 || fail "rpmbuild: $(tail -n 20 "$dir/log")"
if grep -E "^ *(File listed twice|warning: )" "$dir/log"; then fail "rpmbuild warns"; fi
packages=("$dir"/rpm/RPMS/*/*.rpm)
[ ${#packages[@]} = 3 ] || fail "not three packages: ${packages[*]}"
list() { rpm -qpl "$dir"/rpm/RPMS/*/"$1-$version"-*.rpm 2>/dev/null; }
list transfer-engine | grep -x /usr/bin/te_metad >/dev/null || fail "te_metad is not with the tools"
for file in /usr/lib/systemd/system/te_metad.service /etc/sysconfig/te_metad; do
    list transfer-engine | grep -x "$file" >/dev/null || fail "$file is not with the tools"
done
rpm2cpio "$dir"/rpm/RPMS/*/"transfer-engine-$version"-*.rpm |
    grep -ax "EnvironmentFile=-/etc/sysconfig/te_metad" >/dev/null || fail "the unit reads another file of flags"
for when in post preun postun_with_restart; do
    rpm -qp --scripts "$dir"/rpm/RPMS/*/"transfer-engine-$version"-*.rpm 2>/dev/null |
        grep -x "echo systemd_$when te_metad.service" >/dev/null || fail "systemd is not told of te_metad.service: $when"
done
list transfer-engine-libs | grep -E '/libtransfer_engine\.so\.0$' >/dev/null || fail "no shared library"
list transfer-engine-devel | grep -x /usr/include/te.h >/dev/null || fail "no te.h"
twice=$(for package in "${packages[@]}"; do rpm -qpl "$package" 2>/dev/null; done | sort | uniq -d)
[ -z "$twice" ] || fail "in two packages: $twice"
echo "test_package_rpm: ok"
