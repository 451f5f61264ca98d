# SPDX-License-Identifier: Apache-2.0
# Every switch of the build. Each begins with TE_, so that a project that adds this one as a subproject
# keeps all other names. cmake/aliases.cmake knows the names without TE_ and those of Mooncake's build.

# Which of those that are part of another one were asked for in words: an option() has the type BOOL.
set(te_asked "")
foreach(te_name TE_USE_MNNVL TE_USE_INTRA_NVLINK TE_USE_MUSA TE_USE_MACA TE_USE_SUPA)
    get_property(te_type CACHE ${te_name} PROPERTY TYPE)
    if(te_type AND NOT te_type STREQUAL "BOOL")
        list(APPEND te_asked ${te_name})
    endif()
endforeach()

# ---- Parts of the library ------------------------------------------------------------------------
option(TE_USE_HTTP "The http:// and https:// metadata store (needs libcurl)" ON)
option(TE_USE_ETCD "The etcd:// metadata store (needs libcurl)" ON)
option(TE_USE_REDIS "The redis:// metadata store (needs hiredis)" ON)
option(TE_USE_TCP "The tcp transport" ON)
option(TE_USE_RDMA "The rdma transport (needs the headers of libibverbs)" ON)
option(TE_USE_NVMEOF "The nvmeof transport: segments of files and block devices" ON)
option(TE_USE_CUDA "Memory of CUDA devices (the driver is opened at run time)" ON)
option(TE_USE_HIP "Memory of HIP devices, and the hip transport (the driver is opened at run time)" ON)
option(TE_USE_ASCEND "Memory of Ascend NPUs, and the ascend transport (AscendCL is opened at run time)" ON)
option(TE_USE_MUSA "Memory of MUSA devices, and the musa transport (part of TE_USE_CUDA)" ON)
option(TE_USE_MACA "Memory of MACA devices, and the maca transport (part of TE_USE_HIP)" ON)
option(TE_USE_SUPA "Memory of SUPA devices, and the supa transport (part of TE_USE_HIP)" ON)
option(TE_USE_MNNVL "The nvlink transport (part of TE_USE_CUDA)" ON)
option(TE_USE_INTRA_NVLINK "The nvlink_intra transport (part of TE_USE_CUDA)" ON)
set(TE_USE_URING AUTO CACHE STRING
    "Files by io_uring (needs liburing 2.2); OFF: by threads; AUTO: by what is there")
set_property(CACHE TE_USE_URING PROPERTY STRINGS AUTO ON OFF)

# ---- What is built beside it ---------------------------------------------------------------------
option(TE_BUILD_TOOLS "Build the tools" ${PROJECT_IS_TOP_LEVEL})
option(TE_BUILD_METAD "Build te_metad, one of the tools (needs libmicrohttpd and SQLite)" ON)
option(TE_BUILD_TESTS "Have the target te_tests, and ctest run them (needs cmocka)" ${PROJECT_IS_TOP_LEVEL})
option(TE_INSTALL "Have rules to install the library and what is built beside it" ${PROJECT_IS_TOP_LEVEL})
option(TE_WITH_RUST_EXAMPLE "Build the Rust crate and its bench (needs cargo)" OFF)
option(TE_WITH_P2P_STORE "Build the Go module and the P2P store (needs go)" OFF)

set(TE_INSTALL_BASHDIR ${CMAKE_INSTALL_DATADIR}/bash-completion/completions CACHE STRING
    "Where the completion of the tools for bash goes")
set(TE_INSTALL_ZSHDIR ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING
    "Where the completion of the tools for zsh goes")
set(TE_INSTALL_UNITDIR lib/systemd/system CACHE STRING "Where the systemd unit of te_metad goes")

set(TE_WHOLE_ARCHIVE AUTO CACHE STRING
    "Other libraries inside of libtransfer_engine.a (needs theirs); AUTO: where it is installed and that can be")
set_property(CACHE TE_WHOLE_ARCHIVE PROPERTY STRINGS AUTO ON OFF)

# ---- How it is built -----------------------------------------------------------------------------
option(TE_WERROR "Treat warnings as errors (make WERROR=1)" OFF)
option(TE_HARDEN "Stack protector, fortified libc calls, read-only relocations" ON)
option(TE_COVERAGE "Count which lines run (make coverage)" OFF)
option(TE_FUZZ "Build the fuzz targets with libFuzzer, and nothing else (needs clang)" OFF)
option(TE_SIM "Let the simulation change threads before each atomic operation (make sim ATOMICS=1)" OFF)
set(TE_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them (address,undefined or thread)")

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()
