# SPDX-License-Identifier: Apache-2.0
# For cmake -DCMAKE_TOOLCHAIN_FILE=: from Debian or Ubuntu on another processor to aarch64, with libraries of
# that architecture beside the host's (packages with ":arm64"). Programs of the tests run under qemu-user.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
# What lies in folders without the name of an architecture is the host's.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
