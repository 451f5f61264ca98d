# SPDX-License-Identifier: Apache-2.0
# The libraries that the engine is linked with. Out come:
#   TE_LIB_INCLUDE_DIRS  where their headers are
#   TE_LIB_DEFINITIONS   TE_USE_HTTP, TE_USE_ETCD, TE_USE_REDIS, each 0 or 1
#   TE_LIB_LINK          what this build links with
#   TE_LIB_NAMES         the same as plain names, for those who link the installed static library
#   TE_SOURCES_OFF       sources that are switched off
#   TE_METAD_*           what te_metad needs on top

set(THREADS_PREFER_PTHREAD_FLAG OFF)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

set(TE_LIB_INCLUDE_DIRS "")
set(TE_LIB_DEFINITIONS "")
set(TE_LIB_LINK ${CMAKE_DL_LIBS})
set(TE_LIB_NAMES ${CMAKE_DL_LIBS})
set(TE_SOURCES_OFF "")

# te_need(<PREFIX> <pkg-config module> <Debian package> <what for>): find it or say what to do.
function(te_need prefix module package reason)
    pkg_check_modules(${prefix} QUIET ${module})
    if(NOT ${prefix}_FOUND)
        message(FATAL_ERROR "${module} is missing: it is needed for ${reason}. "
                            "Run scripts/deps.sh, or install the package ${package}.")
    endif()
    foreach(part FOUND INCLUDE_DIRS LINK_LIBRARIES LIBRARIES)
        set(${prefix}_${part} "${${prefix}_${part}}" PARENT_SCOPE)
    endforeach()
endfunction()

macro(te_use prefix)
    list(APPEND TE_LIB_INCLUDE_DIRS ${${prefix}_INCLUDE_DIRS})
    list(APPEND TE_LIB_LINK ${${prefix}_LINK_LIBRARIES})
    list(APPEND TE_LIB_NAMES ${${prefix}_LIBRARIES})
    list(REMOVE_DUPLICATES TE_LIB_LINK)
    list(REMOVE_DUPLICATES TE_LIB_NAMES)
endmacro()

# te_store(<scheme>): one metadata store is store_<scheme>.c and <scheme>_*.c, switched on or off.
macro(te_store scheme)
    string(TOUPPER ${scheme} upper)
    set(source ${PROJECT_SOURCE_DIR}/src/meta/store_${scheme}.c)
    file(GLOB parts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/meta/${scheme}_*.c)
    if(USE_${upper} AND EXISTS ${source})
        set(TE_USE_${upper} 1)
        string(APPEND te_stores_in " ${scheme}")
    else()
        set(TE_USE_${upper} 0)
        list(APPEND TE_SOURCES_OFF ${source} ${parts})
        if(USE_${upper})
            string(APPEND te_stores_missing " ${scheme}")
        endif()
    endif()
    list(APPEND TE_LIB_DEFINITIONS TE_USE_${upper}=${TE_USE_${upper}})
endmacro()

set(te_stores_in "")
set(te_stores_missing "")
te_store(http)
te_store(etcd)
te_store(redis)
if(te_stores_in STREQUAL "")
    set(te_stores_in " none")
endif()
if(te_stores_missing)
    string(PREPEND te_stores_missing "; not in this version:")
endif()
message(STATUS "Metadata stores built in:${te_stores_in}${te_stores_missing}")

te_need(JANSSON jansson libjansson-dev "JSON")
te_use(JANSSON)
te_need(HWLOC hwloc>=2.1 libhwloc-dev "which NIC is near which memory")
te_use(HWLOC)
# libibverbs is opened at run time: of the package only the headers are needed.
if(USE_RDMA)
    find_path(VERBS_INCLUDE_DIR infiniband/verbs.h)
    if(NOT VERBS_INCLUDE_DIR)
        message(FATAL_ERROR "infiniband/verbs.h is missing: it is needed for RDMA (-DUSE_RDMA=OFF does "
                            "without). Run scripts/deps.sh, or install the package libibverbs-dev.")
    endif()
    list(APPEND TE_LIB_DEFINITIONS TE_USE_RDMA=1)
else()
    file(GLOB parts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/transport/rdma/*.c)
    list(APPEND TE_SOURCES_OFF ${parts})
    list(APPEND TE_LIB_DEFINITIONS TE_USE_RDMA=0)
endif()
if(TE_USE_HTTP OR TE_USE_ETCD)
    te_need(CURL libcurl libcurl4-openssl-dev "the http and etcd stores (-DUSE_HTTP=OFF -DUSE_ETCD=OFF do without)")
    te_use(CURL)
else()
    list(APPEND TE_SOURCES_OFF ${PROJECT_SOURCE_DIR}/src/meta/http.c)
endif()
if(TE_USE_REDIS)
    te_need(HIREDIS hiredis libhiredis-dev "the redis store (-DUSE_REDIS=OFF does without)")
    te_use(HIREDIS)
endif()

find_path(TE_UTHASH_DIR uthash.h)
if(NOT TE_UTHASH_DIR)
    message(FATAL_ERROR "uthash.h is missing. Run scripts/deps.sh, or install the package uthash-dev.")
endif()
if(NOT TE_UTHASH_DIR STREQUAL "/usr/include")
    list(APPEND TE_LIB_INCLUDE_DIRS ${TE_UTHASH_DIR})
endif()

if(TE_BUILD_TOOLS AND TE_BUILD_METAD AND NOT TE_FUZZ)
    te_need(MICROHTTPD libmicrohttpd libmicrohttpd-dev "te_metad (-DTE_BUILD_METAD=OFF does without)")
    te_need(SQLITE sqlite3 libsqlite3-dev "te_metad (-DTE_BUILD_METAD=OFF does without)")
    set(TE_METAD_INCLUDE_DIRS ${MICROHTTPD_INCLUDE_DIRS} ${SQLITE_INCLUDE_DIRS})
    set(TE_METAD_LINK ${MICROHTTPD_LINK_LIBRARIES} ${SQLITE_LINK_LIBRARIES})
endif()
