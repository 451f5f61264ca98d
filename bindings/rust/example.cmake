# SPDX-License-Identifier: Apache-2.0
# The bench in Rust, as bin/transfer_engine_bench_rust. Cargo itself knows what is out of date.

if(TE_SANITIZE)
    message(STATUS "transfer_engine_bench_rust is left out: it does not link with a sanitizer's library")
    return()
endif()

set(te_rust_target_dir ${PROJECT_BINARY_DIR}/rust)
add_custom_target(transfer_engine_bench_rust ALL
    COMMAND ${CMAKE_COMMAND} -E env --unset=CARGO_BUILD_TARGET
            TRANSFER_ENGINE_LIB_DIR=${te_example_lib}
            RUSTFLAGS=-Clink-arg=-Wl,-rpath,$ORIGIN/../lib
            ${TE_CARGO} build --quiet --offline --locked --release --example transfer_engine_bench
            --target-dir ${te_rust_target_dir}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/bin
    COMMAND ${CMAKE_COMMAND} -E copy_if_different
            ${te_rust_target_dir}/release/examples/transfer_engine_bench
            ${PROJECT_BINARY_DIR}/bin/transfer_engine_bench_rust
    WORKING_DIRECTORY ${CMAKE_CURRENT_LIST_DIR}
    COMMENT "Building the bench in Rust"
    VERBATIM)
add_dependencies(transfer_engine_bench_rust te_shared)
te_install_example(transfer_engine_bench_rust)
