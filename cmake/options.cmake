# SPDX-License-Identifier: Apache-2.0
# Every switch of the build.

option(USE_HTTP "The http:// and https:// metadata store (needs libcurl)" ON)
option(USE_ETCD "The etcd:// metadata store (needs libcurl)" ON)
option(USE_REDIS "The redis:// metadata store (needs hiredis)" ON)
option(USE_RDMA "The rdma transport (needs the headers of libibverbs)" ON)
set(USE_URING AUTO CACHE STRING
    "Files by io_uring (needs liburing 2.2); OFF: by threads; AUTO: by what is there")
set_property(CACHE USE_URING PROPERTY STRINGS AUTO ON OFF)

option(TE_BUILD_TOOLS "Build the tools" ON)
option(TE_BUILD_METAD "Build te_metad (needs libmicrohttpd and SQLite)" ON)
option(TE_BUILD_TESTS "Build the tests (needs cmocka)" ${PROJECT_IS_TOP_LEVEL})

option(WITH_RUST_EXAMPLE "Build the Rust crate and its bench (needs cargo)" OFF)
option(WITH_P2P_STORE "Build the Go module and the P2P store (needs go)" OFF)

option(TE_WERROR "Treat warnings as errors (the presets turn it on)" OFF)
option(TE_HARDEN "Stack protector, fortified libc calls, read-only relocations" ON)
option(TE_COVERAGE "Count which lines run (make coverage)" OFF)
option(TE_FUZZ "Build the fuzz targets with libFuzzer, and nothing else (needs clang)" OFF)
set(TE_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them (address,undefined or thread)")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()
