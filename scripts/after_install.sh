#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The end of make install: tells the dynamic linker of the new library, or says what is left to do.
set -euo pipefail

if [ $# -ne 3 ] || [ "$1" = --help ]; then
    echo "usage: scripts/after_install.sh BUILD PREFIX DESTDIR" >&2
    exit 2
fi
build=$1 prefix=$2 destdir=$3
[ -z "$destdir" ] || exit 0 # staged for a package, which runs ldconfig where it is installed

lib=$prefix/$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[^=]*=//p' "$build/CMakeCache.txt")
case $prefix in
    /usr | /usr/local)
        if [ "$(id -u)" -ne 0 ]; then
            echo "install: now run ldconfig as root: programs find libtransfer_engine.so by it"
        elif ! ldconfig; then
            echo "install: ldconfig failed; programs will not find libtransfer_engine.so" >&2
        fi
        ;;
    *)
        echo "install: programs are built and run against it with"
        echo "    export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib"
        echo "    export MANPATH=$prefix/share/man:"
        ;;
esac
