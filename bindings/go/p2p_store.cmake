# SPDX-License-Identifier: Apache-2.0
# build/bin/p2p-store, built by go against build/lib. GOENV=build/go/env lets any go command do the same.
# Of flags go's cache minds those, not what pkg-config says, and it minds no headers of others: hence
# the hash of both headers.

get_filename_component(te_go_include ${CMAKE_CURRENT_LIST_DIR}/../../include ABSOLUTE)
set(te_go_headers ${te_go_include}/te.h ${te_go_include}/te_counter.h ${te_go_include}/te_lease.h ${te_go_include}/te_paths.h ${te_go_include}/te_stream.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${te_go_headers})
set(te_go_hashes "")
foreach(header ${te_go_headers})
    file(SHA256 ${header} hash)
    string(APPEND te_go_hashes ${hash})
endforeach()
string(SHA256 te_go_hash "${te_go_hashes}")
file(WRITE ${PROJECT_BINARY_DIR}/go/env "\
PKG_CONFIG=true
CGO_CFLAGS=\"-I${te_go_include}\" -DTE_H_${te_go_hash} -O2 -g
CGO_LDFLAGS=\"-L${te_example_lib}\" -Wl,-rpath,\$ORIGIN/../lib \"-Wl,-rpath,${te_example_lib}\" -ltransfer_engine
GOFLAGS=-buildvcs=false
GOPROXY=off
GOTOOLCHAIN=local
")

add_custom_target(p2p_store ALL
    COMMAND ${CMAKE_COMMAND} -E env GOENV=${PROJECT_BINARY_DIR}/go/env
        ${TE_GO} build -o ${PROJECT_BINARY_DIR}/bin/p2p-store ./cmd/p2p-store
    WORKING_DIRECTORY ${CMAKE_CURRENT_LIST_DIR}
    COMMENT "Building p2p-store by ${TE_GO}"
    VERBATIM)
add_dependencies(p2p_store te_shared)
te_install_example(p2p-store)
