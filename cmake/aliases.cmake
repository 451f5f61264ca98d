# SPDX-License-Identifier: Apache-2.0
# Other names for the switches of cmake/options.cmake: those without TE_, and those of Mooncake's build. A
# switch of that build either means something here or is refused by name; so is a misspelt one. Read before
# the options, and only where this is the top-level project: a parent's USE_CUDA is not ours to heed.

# The other name, the switch.
set(te_aliases
    USE_HTTP               TE_USE_HTTP
    USE_ETCD               TE_USE_ETCD
    USE_REDIS              TE_USE_REDIS
    USE_TCP                TE_USE_TCP
    USE_RDMA               TE_USE_RDMA
    USE_NVMEOF             TE_USE_NVMEOF
    USE_CUDA               TE_USE_CUDA
    USE_HIP                TE_USE_HIP
    USE_MNNVL              TE_USE_MNNVL
    USE_ASCEND             TE_USE_ASCEND
    USE_MUSA               TE_USE_MUSA
    USE_MACA               TE_USE_MACA
    USE_SUPA               TE_USE_SUPA
    USE_INTRA_NVLINK       TE_USE_INTRA_NVLINK
    USE_URING              TE_USE_URING
    WITH_RUST_EXAMPLE      TE_WITH_RUST_EXAMPLE
    WITH_WITH_RUST_EXAMPLE TE_WITH_RUST_EXAMPLE
    WITH_P2P_STORE         TE_WITH_P2P_STORE
    BUILD_EXAMPLES         TE_BUILD_TOOLS
    BUILD_UNIT_TESTS       TE_BUILD_TESTS
    BUILD_TESTING          TE_BUILD_TESTS)

# What is part of every build, whatever the switch says: a pattern, what it would choose.
set(te_always
    WITH_TE                         "the transfer engine is what is built here"
    WITH_METRICS                    "counters are always kept: te_stats(), MC_TE_METRIC"
    USE_EVENT_DRIVEN_COMPLETION     "te_wait() and te_event_fd() always sleep until something ends"
    USE_ASCEND_HETEROGENEOUS        "memory of NPUs, GPUs and hosts is in one engine always (docs/ascend.md)"
    USE_MLX5DV                      "libmlx5 is opened at run time where MC_MLX5_... asks for it"
    ENABLE_MULTI_PROTOCOL           "such descriptors are always read, and written where TE_MULTI_PROTOCOL is set"
    WITH_NVIDIA_PEERMEM             "found out at run time, see the option of that name in docs/config.md"
    "(MACA|DTK|COREX)_(ROOT|INCLUDE_DIR|LIB_DIR|RUNTIME_LIBS)"
                                    "the maker's library is opened at run time, by its name (docs/gpu.md)"
    USE_HYGON                       "memory of Hygon's devices is part of TE_USE_HIP"
    USE_COREX                       "memory of CoreX devices is part of TE_USE_CUDA")

# Which of these another switch can leave out.
set(te_within
    USE_HYGON   TE_USE_HIP
    USE_COREX   TE_USE_CUDA)

# What no build has: a pattern, why.
set(te_never
    "USE_CXL"                       "there is no transport for CXL devices"
    "USE_ASCEND_.*"                 "it is an engine of the NPU's maker, and TE_USE_ASCEND has memory of NPUs without it (docs/ascend.md)"
    "USE_(UBSHMEM|UB|YLT_URMA_RPC)" "there is no transport for UB, and TE_USE_ASCEND has memory of NPUs"
    "USE_(MLU|SUNRISE)"             "memory of such devices is not supported"
    "(NEUWARE|MLU)_(ROOT|INCLUDE_DIR|LIB_DIR)" "memory of MLU devices is not supported"
    "USE_EFA"                       "there is no transport for EFA"
    "USE_BAREX"                     "there is no barex transport, and TE_USE_RDMA works with eRDMA devices"
    "USE_TENT"                      "there is one engine here, the classic one"
    "USE_(3FS|NOF)"                 "there is no transport of that name, and files are TE_USE_NVMEOF"
    "USE_ETCD_LEGACY"               "etcd is spoken to through its JSON gateway, by libcurl"
    "(WITH_STORE|STORE_).*|USE_LRU_MASTER" "Mooncake Store is not part of this library"
    "WITH_CONDUCTOR"                "Mooncake Conductor is not part of this library"
    "WITH_EP|EP_TORCH_VERSIONS"     "Mooncake EP is not part of this library"
    "ENABLE_ASAN"                   "here it is -DTE_SANITIZE=address,undefined, or `make asan`"
    "ENABLE_S?CCACHE"               "here it is -DCMAKE_C_COMPILER_LAUNCHER=ccache, or another one's name")

# te_why(<variable> <switch> <rows>...): the reason from such a list, or nothing.
function(te_why out name)
    set(rows ${ARGN})
    while(rows)
        list(POP_FRONT rows pattern why)
        if(name MATCHES "^(${pattern})$")
            set(${out} "${why}" PARENT_SCOPE)
            return()
        endif()
    endwhile()
    set(${out} "" PARENT_SCOPE)
endfunction()

# te_stop(<switch> <text>): forgotten, so that the next run in this build tree need not take it back.
function(te_stop name text)
    set(value "${${name}}")
    unset(${name} CACHE)
    message(FATAL_ERROR "-D${name}=${value}: ${text}")
endfunction()

# te_other_switch(<switch>): one that was given, is no alias, and is not declared by anything here.
function(te_other_switch name)
    te_why(why ${name} ${te_always})
    if(why)
        te_why(whole ${name} ${te_within})
        if(whole AND ${name} AND DEFINED CACHE{${whole}} AND NOT ${whole})
            te_stop(${name} "it needs ${whole}, which is OFF.")
        endif()
        message(NOTICE "-D${name}=${${name}} changes nothing: ${why}")
        unset(${name} CACHE) # which need not be said again
        return()
    endif()
    te_why(why ${name} ${te_never})
    if(why AND NOT ${name}) # it is left out, as asked
        return()
    endif()
    if(NOT why)
        set(why "there is no such switch; cmake/options.cmake lists them")
    endif()
    te_stop(${name} "${why}. Leave it out. docs/migrating.md says what each switch of Mooncake's build means here.")
endfunction()

set(te_rows ${te_aliases})
while(te_rows)
    list(POP_FRONT te_rows te_old te_new)
    if(DEFINED CACHE{${te_old}})
        set(te_value "${${te_old}}")
        unset(${te_old} CACHE) # or it would win over the other name for ever
        set(${te_new} "${te_value}" CACHE STRING "" FORCE) # option() keeps the value
        message(NOTICE "-D${te_old}=${te_value} is taken as -D${te_new}=${te_value}")
    endif()
endwhile()

get_cmake_property(te_given CACHE_VARIABLES)
list(FILTER te_given INCLUDE REGEX "^(USE|WITH|STORE|ENABLE|BUILD|MACA|DTK|COREX|NEUWARE|MLU|EP)_")
list(REMOVE_ITEM te_given BUILD_SHARED_LIBS) # CMake's own
foreach(te_name IN LISTS te_given)
    te_other_switch(${te_name})
endforeach()
