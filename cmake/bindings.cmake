# SPDX-License-Identifier: Apache-2.0
# Examples in other languages, as the switches TE_WITH_* ask for them. Their own tools build them,
# against build/lib, and the programs land in build/bin.

# te_need_program(<VARIABLE> <name> <switch> <Debian package>): find it or say what to do.
function(te_need_program variable name switch package)
    find_program(${variable} ${name})
    if(NOT ${variable})
        message(FATAL_ERROR "-D${switch}=ON needs ${name}: install the package ${package}, or leave the switch off.")
    endif()
endfunction()

get_filename_component(te_example_lib ${PROJECT_BINARY_DIR}/lib REALPATH)

# te_install_example(<program>): other tools than CMake link it, with the build tree's library and with the
# one that lies as build/lib does beside build/bin. The first of these is not for what is installed; it
# stands second in the run path, since what were left in its place there would be the current folder.
function(te_install_example program)
    set(te_installed "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/${program}")
    # One that is there already has been changed, and would not be copied again.
    install(CODE "file(REMOVE \"${te_installed}\")")
    install(PROGRAMS ${PROJECT_BINARY_DIR}/bin/${program} DESTINATION ${CMAKE_INSTALL_BINDIR})
    install(CODE "file(RPATH_CHANGE FILE \"${te_installed}\" OLD_RPATH \"${te_example_lib}\" NEW_RPATH \"\")")
endfunction()

if(TE_WITH_RUST_EXAMPLE)
    te_need_program(TE_CARGO cargo TE_WITH_RUST_EXAMPLE cargo)
    include(${CMAKE_CURRENT_LIST_DIR}/../bindings/rust/example.cmake)
endif()
if(TE_WITH_P2P_STORE)
    te_need_program(TE_GO go TE_WITH_P2P_STORE golang-go)
    include(${CMAKE_CURRENT_LIST_DIR}/../bindings/go/p2p_store.cmake)
endif()
