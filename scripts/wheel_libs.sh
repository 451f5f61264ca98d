#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the libraries that a portable wheel needs, as archives for an old C library.
set -euo pipefail

# Everything that the wheels are made of is named here. The compiler is a package of PyPI that brings the
# stubs of every glibc along; the sources are those of a Debian release, with its corrections, and apt
# checks their signatures.
zig=0.17.1
glibc=2.28
suites=(bookworm trixie)
sources=(jansson hwloc liburing hiredis openssl curl)
# hiredis of bookworm calls functions by pointers of another type, which this compiler refuses.
suite_of() { case $1 in hiredis) echo trixie ;; *) echo bookworm ;; esac; }

usage() {
    cat <<USAGE
usage: scripts/wheel_libs.sh [--fresh] x86_64|aarch64

Builds archives of ${sources[*]} for that architecture, which need no newer C library
than glibc $glibc, and prints the folder where they are. In it: include/, lib/, licences/, versions
and toolchain.cmake, by which CMake builds more with the same compiler.

The compiler is ziglang $zig from PyPI (python3 -m pip), the sources are those of Debian ${suites[*]}
(apt-get, dpkg-source); headers of uthash and of rdma-core are taken from this host. All is kept in
\$TE_WHEEL_CACHE (default: \${XDG_CACHE_HOME:-~/.cache}/te-wheel), and nothing is asked of the
network when it is there.

  --fresh   ask Debian for newer versions, and build anew what has one
  --help    this text
USAGE
}

fail() { echo "wheel_libs: $*" >&2; exit 1; }

fresh=no arch=
while [ $# -gt 0 ]; do
    case "$1" in
        --fresh) fresh=yes; shift ;;
        x86_64 | aarch64) arch=$1; shift ;;
        -h | --help) usage; exit 0 ;;
        *) echo "wheel_libs: unknown argument '$1' (see --help)" >&2; exit 2 ;;
    esac
done
[ -n "$arch" ] || { usage >&2; exit 2; }
self=$(realpath "$0")
cache=$(realpath -m "${TE_WHEEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/te-wheel}")
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

jobs=${JOBS:-$(nproc)}
log=$cache/log-$arch
: >"$log"
# quietly COMMAND...: what it says goes to the log, and is shown when it fails.
quietly() {
    if ! "$@" >>"$log" 2>&1; then
        tail -n 30 "$log" >&2
        fail "failed: $*; all that was said is in $log"
    fi
}

# ---- Sources -------------------------------------------------------------------------------------
# A configuration of apt of its own: that of the host has no sources, and is not touched.
apt_here() { APT_CONFIG=$cache/apt/apt.conf "$@"; }

prepare_apt() {
    local suite keys=/usr/share/keyrings/debian-archive-keyring.gpg mirror=http://deb.debian.org
    [ -f $keys ] || fail "$keys is missing: install debian-archive-keyring"
    mkdir -p "$cache/apt/lists/partial" "$cache/apt/cache/archives/partial"
    for suite in "${suites[@]}"; do
        echo "deb-src [signed-by=$keys] $mirror/debian $suite main"
        echo "deb-src [signed-by=$keys] $mirror/debian $suite-updates main"
        echo "deb-src [signed-by=$keys] $mirror/debian-security $suite-security main"
    done >"$cache/apt/sources.list"
    cat >"$cache/apt/apt.conf" <<CONF
Dir::State::lists "$cache/apt/lists";
Dir::State::status "/dev/null";
Dir::Cache "$cache/apt/cache";
Dir::Etc::sourcelist "$cache/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Acquire::Retries "3";
CONF
    quietly apt_here apt-get -q update
}

# fetch NAME: the newest version of its release that the mirror has, into sources/NAME_VERSION. The
# lists of a mirror may be ahead of its files.
fetch() {
    local version newest='' found suite
    suite=$(suite_of "$1")
    found=$(apt_here apt-cache madison "$1" | awk -v "suite=$suite" '$6 ~ "^" suite "[-/]" { print $3 }' | sort -uVr)
    [ -n "$found" ] || fail "Debian $suite has no source package $1"
    for version in $found; do
        newest=${newest:-$version}
        if [ ! -d "$cache/sources/${1}_$version" ]; then
            rm -rf "$cache/sources/new"
            mkdir -p "$cache/sources/new"
            (cd "$cache/sources/new" && apt_here apt-get -q source --download-only "$1=$version") >>"$log" 2>&1 ||
                continue
            (cd "$cache/sources/new" && quietly dpkg-source --extract ./*.dsc tree)
            mv "$cache/sources/new" "$cache/sources/${1}_$version"
        fi
        [ "$version" = "$newest" ] ||
            echo "wheel_libs: warning: the mirror has not got $1 $newest; $version is taken" >&2
        echo "$1 $version" >>"$cache/versions.new"
        return
    done
    tail -n 10 "$log" >&2
    fail "no version of $1 can be fetched; all that was said is in $log"
}

fetch_sources() {
    local name
    echo "wheel_libs: fetching the sources of ${sources[*]}" >&2
    prepare_apt
    rm -f "$cache/versions.new"
    for name in "${sources[@]}"; do fetch "$name"; done
    mv "$cache/versions.new" "$cache/versions"
}

if [ $fresh = yes ] || [ ! -f "$cache/versions" ]; then
    for program in apt-get apt-cache dpkg-source; do
        command -v $program >/dev/null || fail "$program is missing: on Debian, install apt and dpkg-dev"
    done
    fetch_sources
fi
tree_of() { echo "$cache/sources/$(sed -n "s/^$1 /$1_/p" "$cache/versions")/tree"; }

# ---- What is there already -----------------------------------------------------------------------
headers=(/usr/include/uthash.h /usr/include/utlist.h /usr/include/infiniband)
for header in "${headers[@]}"; do
    [ -e "$header" ] || fail "$header is missing: run scripts/deps.sh build"
done
state=$({
    cat "$self" "$cache/versions"
    find "${headers[@]}" -type f -print0 | sort -z | xargs -0 cat
} | sha256sum | cut -c1-12)
out=$cache/libs-$arch-$state
if [ -f "$out/toolchain.cmake" ]; then
    echo "$out"
    exit 0
fi

# ---- The compiler --------------------------------------------------------------------------------
compiler=$cache/zig-$zig
if [ ! -x "$compiler/ziglang/zig" ]; then
    echo "wheel_libs: fetching the compiler, ziglang $zig" >&2
    rm -rf "$compiler" "$compiler.new"
    quietly python3 -m pip install -q --no-deps --only-binary=:all: --target "$compiler.new" "ziglang==$zig"
    mv "$compiler.new" "$compiler"
fi
rm -rf "$out"
mkdir -p "$out/bin" "$out/lib/pkgconfig" "$out/include" "$out/licences"
program() { # program NAME COMMAND...
    printf '#!/bin/sh\nexport ZIG_GLOBAL_CACHE_DIR=%s\nexec %s/ziglang/zig %s "$@"\n' \
        "$cache/zig-cache" "$compiler" "${*:2}" >"$out/bin/$1"
    chmod +x "$out/bin/$1"
}
program cc cc -target "$arch-linux-gnu.$glibc" -fno-sanitize=undefined
program ar ar
program ranlib ranlib
cat >"$out/toolchain.new" <<CMAKE
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $arch)
set(CMAKE_C_COMPILER $out/bin/cc)
set(CMAKE_AR $out/bin/ar)
set(CMAKE_RANLIB $out/bin/ranlib)
set(CMAKE_FIND_ROOT_PATH $out)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} $out/lib/pkgconfig)
set(ENV{PKG_CONFIG_PATH} "")
CMAKE

# ---- The libraries -------------------------------------------------------------------------------
# Every function in a section of its own: the linker leaves out those that nobody calls.
flags="-O2 -g0 -fPIC -ffunction-sections -fdata-sections"
work=$cache/work-$arch
export PATH=$out/bin:$PATH PKG_CONFIG_LIBDIR=$out/lib/pkgconfig PKG_CONFIG_PATH=

by_cmake() { # by_cmake NAME SWITCH...
    quietly cmake -S "$work/$1" -B "$work/$1/of_cmake" -DCMAKE_TOOLCHAIN_FILE="$out/toolchain.new" \
        -DCMAKE_INSTALL_PREFIX="$out" -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_BUILD_TYPE=None -DCMAKE_C_COMPILER_LAUNCHER= \
        -DCMAKE_C_FLAGS="$flags" -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF "${@:2}"
    quietly cmake --build "$work/$1/of_cmake" -j "$jobs"
    quietly cmake --install "$work/$1/of_cmake"
}

build_jansson() {
    by_cmake jansson -DJANSSON_BUILD_DOCS=OFF -DJANSSON_EXAMPLES=OFF -DJANSSON_WITHOUT_TESTS=ON
}

# PCI devices are read from /sys, hwloc's own reader takes XML: nothing else is needed.
build_hwloc() {
    cd "$work/hwloc"
    quietly ./configure --host="$arch-linux-gnu" --prefix="$out" CC="$out/bin/cc" AR="$out/bin/ar" \
        RANLIB="$out/bin/ranlib" CFLAGS="$flags" --enable-static --disable-shared --disable-plugins \
        --disable-libxml2 --disable-cairo --disable-opencl --disable-cuda --disable-nvml --disable-rsmi \
        --disable-levelzero --disable-gl --disable-libudev --disable-doxygen --disable-readme
    grep -q '^#define HWLOC_HAVE_LINUXPCI 1' include/private/autogen/config.h ||
        fail "hwloc does not read the PCI devices of /sys"
    quietly make -C hwloc -j "$jobs"
    quietly make -C hwloc install
    quietly make -C include install
}

build_liburing() {
    cd "$work/liburing"
    quietly ./configure --prefix="$out" --cc="$out/bin/cc"
    quietly make -C src -j "$jobs" ENABLE_SHARED=0 AR="$out/bin/ar" RANLIB="$out/bin/ranlib" CFLAGS="$flags"
    quietly make -C src install ENABLE_SHARED=0 CFLAGS="$flags"
}

build_hiredis() {
    cd "$work/hiredis"
    quietly make -j "$jobs" libhiredis.a CC="$out/bin/cc" AR="$out/bin/ar" OPTIMIZATION="-O2" CFLAGS="$flags" DEBUG=
    install -D -m 644 -t "$out/include/hiredis" ./*.h
    cp libhiredis.a "$out/lib/"
}

# What a client of HTTPS needs, certificates of its own included. It reads no configuration of the host:
# this could ask for modules that a library inside of another one has not got.
build_openssl() {
    local target=linux-$arch
    cd "$work/openssl"
    # shellcheck disable=SC2086
    quietly ./Configure "$target" --prefix="$out" --libdir=lib --openssldir=/etc/ssl CC="$out/bin/cc" \
        AR="$out/bin/ar" RANLIB="$out/bin/ranlib" $flags no-shared no-module no-dso no-tests \
        no-autoload-config no-legacy no-comp no-ssl3 no-tls1 no-tls1_1 no-dtls no-sctp no-srp no-psk \
        no-srtp no-nextprotoneg no-engine no-cms no-cmp no-ts no-ct no-gost no-idea no-seed no-bf no-cast \
        no-rc2 no-rc4 no-rc5 no-md2 no-md4 no-mdc2 no-rmd160 no-whirlpool no-sm2 no-sm3 no-sm4 no-aria \
        no-camellia no-des no-dsa no-ec2m no-siphash no-blake2 no-scrypt no-ui-console no-unit-test
    quietly make -j "$jobs" build_generated
    quietly make -j "$jobs" libcrypto.a libssl.a
    cp libcrypto.a libssl.a "$out/lib/"
    cp -r include/openssl "$out/include/"
}

# Authorities: those that OpenSSL takes by default, /etc/ssl/certs or what SSL_CERT_FILE and
# SSL_CERT_DIR name.
build_curl() {
    by_cmake curl -DHTTP_ONLY=ON -DBUILD_CURL_EXE=OFF -DCURL_USE_OPENSSL=ON -DOPENSSL_ROOT_DIR="$out" \
        -DOPENSSL_USE_STATIC_LIBS=ON -DCURL_CA_BUNDLE=none -DCURL_CA_PATH=none -DCURL_CA_FALLBACK=ON \
        -DCURL_ZLIB=OFF -DCURL_BROTLI=OFF -DCURL_ZSTD=OFF -DUSE_NGHTTP2=OFF -DUSE_LIBIDN2=OFF \
        -DCURL_USE_LIBSSH2=OFF -DCURL_USE_LIBPSL=OFF -DCURL_USE_GSSAPI=OFF -DCURL_DISABLE_LDAP=ON \
        -DCURL_DISABLE_LDAPS=ON -DENABLE_THREADED_RESOLVER=ON -DENABLE_UNIX_SOCKETS=OFF \
        -DCURL_DISABLE_COOKIES=ON -DCURL_DISABLE_NTLM=ON -DCURL_DISABLE_HSTS=ON -DCURL_DISABLE_ALTSVC=ON \
        -DCURL_DISABLE_DOH=ON -DCURL_DISABLE_NETRC=ON -DCURL_DISABLE_MIME=ON -DENABLE_MANUAL=OFF \
        -DHAVE_POLL_FINE_EXITCODE=0 -DHAVE_FSETXATTR_5_EXITCODE=1
}

for name in "${sources[@]}"; do
    echo "wheel_libs: building $name for $arch" >&2
    rm -rf "$work"
    mkdir -p "$work"
    cp -a "$(tree_of "$name")" "$work/$name"
    (build_"$name")
    cp "$work/$name/debian/copyright" "$out/licences/$name"
done
rm -rf "$work"

# One description each, with all that an archive needs: this is the only way that they are linked.
describe() { # describe MODULE VERSION LIBS
    printf 'Name: %s\nDescription: %s\nVersion: %s\nCflags: -I%s/include\nLibs: -L%s/lib %s\n' \
        "$1" "$1" "$2" "$out" "$out" "$3" >"$out/lib/pkgconfig/$1.pc"
}
version() { sed -nE "s/^$1 ([0-9]+:)?([0-9.]+).*/\\2/p" "$cache/versions"; }
rm -rf "$out/lib/pkgconfig" "$out/lib/cmake" "$out/share"
mkdir "$out/lib/pkgconfig"
describe jansson "$(version jansson)" -ljansson
describe hwloc "$(version hwloc)" "-lhwloc -lm"
describe liburing "$(version liburing)" -luring
describe hiredis "$(version hiredis)" -lhiredis
describe libcurl "$(version curl)" "-lcurl -lssl -lcrypto"
cp -rL "${headers[@]}" "$out/include/"
for package in uthash-dev libibverbs-dev; do
    [ ! -f /usr/share/doc/$package/copyright ] || cp /usr/share/doc/$package/copyright "$out/licences/${package%-dev}"
done
cp "$compiler/ziglang/LICENSE" "$out/licences/zig"
cp "$cache/versions" "$out/versions"
mv "$out/toolchain.new" "$out/toolchain.cmake"
for old in "$cache/libs-$arch"-*; do [ "$old" = "$out" ] || rm -rf "$old"; done
echo "$out"
