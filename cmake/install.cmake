# SPDX-License-Identifier: Apache-2.0
# cmake --install: headers, libraries, tools and their completion, pkg-config files, CMake package, man
# pages, docs.
include(CMakePackageConfigHelpers)

set(te_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/transfer_engine)

file(GLOB te_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.h
                                       ${PROJECT_SOURCE_DIR}/include/*.hpp)
install(FILES ${te_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Mooncake's header names are in a folder of their own: some of them are so general (topology.h) that only
# those who ask for them shall find them.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/mooncake DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS te_static te_shared te_mooncake EXPORT transfer_engine
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(te_tools)
    install(TARGETS ${te_tools} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    install(FILES ${PROJECT_SOURCE_DIR}/completions/zsh/_transfer_engine DESTINATION ${TE_INSTALL_ZSHDIR})
endif()
if("te_metad" IN_LIST te_tools)
    install(FILES ${PROJECT_SOURCE_DIR}/service/te_metad.service DESTINATION ${TE_INSTALL_UNITDIR})
endif()
foreach(tool IN LISTS te_tools) # bash looks for a file with the name of the command
    install(FILES ${PROJECT_SOURCE_DIR}/completions/bash/transfer_engine
            DESTINATION ${TE_INSTALL_BASHDIR} RENAME ${tool})
endforeach()

# Libs.private holds plain names on purpose. libcurl's own static closure lists libraries that its
# development package does not bring, so a Requires.private on it would not link on a usual machine.
# The whole archive has the libraries inside.
set(te_private_libs "-lpthread")
set(te_private_names ${TE_LIB_NAMES})
if(TE_WHOLE)
    set(te_private_names ${CMAKE_DL_LIBS} m)
endif()
foreach(name IN LISTS te_private_names)
    string(PREPEND te_private_libs "-l${name} ")
endforeach()
file(RELATIVE_PATH te_pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" te_pc_to_prefix "${te_pc_to_prefix}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/transfer_engine.pc.in
               ${PROJECT_BINARY_DIR}/transfer_engine.pc @ONLY)
# Where both libraries lie in one folder, -ltransfer_engine is the shared one. Those who want the
# archive name it: pkg-config --libs transfer_engine-static.
configure_file(${PROJECT_SOURCE_DIR}/cmake/transfer_engine-static.pc.in
               ${PROJECT_BINARY_DIR}/transfer_engine-static.pc @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/cmake/mooncake-transfer-engine.pc.in
               ${PROJECT_BINARY_DIR}/mooncake-transfer-engine.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/transfer_engine.pc
              ${PROJECT_BINARY_DIR}/transfer_engine-static.pc
              ${PROJECT_BINARY_DIR}/mooncake-transfer-engine.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/transfer_engine-config.cmake.in
    ${PROJECT_BINARY_DIR}/transfer_engine-config.cmake INSTALL_DESTINATION ${te_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/transfer_engine-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/transfer_engine-config.cmake
              ${PROJECT_BINARY_DIR}/transfer_engine-config-version.cmake
        DESTINATION ${te_package_dir})
install(EXPORT transfer_engine NAMESPACE transfer_engine:: FILE transfer_engine-targets.cmake
        DESTINATION ${te_package_dir})

foreach(section 1 3 5 7)
    file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/man/man${section}/*.${section})
    if(pages)
        install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
    endif()
endforeach()

file(GLOB te_pictures CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/pictures/*.svg)
install(FILES ${te_pictures} DESTINATION ${CMAKE_INSTALL_DOCDIR}/pictures)
install(FILES ${PROJECT_SOURCE_DIR}/docs/grafana/transfer_engine.json DESTINATION ${CMAKE_INSTALL_DOCDIR}/grafana)
file(GLOB te_docs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md ${PROJECT_SOURCE_DIR}/*.md)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${te_docs} DESTINATION ${CMAKE_INSTALL_DOCDIR})
