# SPDX-License-Identifier: Apache-2.0
# Examples in other languages, as the specification's switches ask for them. Their own tools build them,
# against build/lib, and the programs land in build/bin.

# te_need_program(<VARIABLE> <name> <switch> <Debian package>): find it or say what to do.
function(te_need_program variable name switch package)
    find_program(${variable} ${name})
    if(NOT ${variable})
        message(FATAL_ERROR "-D${switch}=ON needs ${name}: install the package ${package}, or leave the switch off.")
    endif()
endfunction()

if(WITH_RUST_EXAMPLE)
    te_need_program(TE_CARGO cargo WITH_RUST_EXAMPLE cargo)
    include(bindings/rust/example.cmake)
endif()
if(WITH_P2P_STORE)
    te_need_program(TE_GO go WITH_P2P_STORE golang-go)
    include(bindings/go/p2p_store.cmake)
endif()
