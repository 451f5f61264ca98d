# SPDX-License-Identifier: Apache-2.0
# build/bin/p2p-store, built by go against build/lib. A file for pkg-config stands in for the installed
# one; the hash in it makes go, which does not look at headers of others, notice another te.h.

set(te_go_pc ${PROJECT_BINARY_DIR}/go/transfer_engine.pc)
get_filename_component(te_go_include ${CMAKE_CURRENT_LIST_DIR}/../../include ABSOLUTE)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${te_go_include}/te.h)
file(SHA256 ${te_go_include}/te.h te_go_hash)
file(WRITE ${te_go_pc} "Name: transfer_engine\nDescription: as built\nVersion: 0\n"
    "Cflags: -I\"${te_go_include}\" -DTE_H_${te_go_hash}\n"
    "Libs: -L\"${PROJECT_BINARY_DIR}/lib\" \"-Wl,-rpath,${PROJECT_BINARY_DIR}/lib\" -ltransfer_engine\n")

add_custom_target(p2p_store ALL
    COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${PROJECT_BINARY_DIR}/go GOTOOLCHAIN=local
        GOPROXY=off GOFLAGS=-buildvcs=false
        ${TE_GO} build -o ${PROJECT_BINARY_DIR}/bin/p2p-store ./cmd/p2p-store
    WORKING_DIRECTORY ${CMAKE_CURRENT_LIST_DIR}
    COMMENT "Building p2p-store by ${TE_GO}"
    VERBATIM)
add_dependencies(p2p_store te_shared)
