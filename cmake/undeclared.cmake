# SPDX-License-Identifier: Apache-2.0
# Included last: refuses what begins with TE_ and is no switch, such as a misspelt one, and what is no value.
# What is given by -D and declared nowhere has no type.

# te_refuse(<switch> <text>): forgotten, so that the next run in this build tree need not take it back.
function(te_refuse name text)
    set(value "$CACHE{${name}}")
    unset(${name} CACHE)
    message(FATAL_ERROR "-D${name}=${value}: ${text}.")
endfunction()

get_cmake_property(te_given CACHE_VARIABLES)
list(FILTER te_given INCLUDE REGEX "^TE_")
foreach(te_name IN LISTS te_given)
    get_property(te_type CACHE ${te_name} PROPERTY TYPE)
    if(te_type STREQUAL "UNINITIALIZED")
        te_refuse(${te_name} "there is no such switch; cmake/options.cmake lists them")
    endif()
    string(TOUPPER "$CACHE{${te_name}}" te_value)
    if(te_name MATCHES "^TE_((USE|BUILD|WITH)_.*|WHOLE_ARCHIVE|INSTALL|WERROR|HARDEN|COVERAGE|FUZZ|SIM)$" AND NOT te_value MATCHES "^(ON|OFF|YES|NO|TRUE|FALSE|1|0)$" AND
       NOT (te_name MATCHES "^TE_(USE_URING|WHOLE_ARCHIVE)$" AND te_value STREQUAL "AUTO"))
        te_refuse(${te_name} "it is ON or OFF")
    endif()
endforeach()

# What needs another part, and was asked for without it.
foreach(te_name IN LISTS te_asked)
    set(te_whole TE_USE_CUDA)
    if(te_name MATCHES "_(MACA|SUPA)$")
        set(te_whole TE_USE_HIP)
    endif()
    if($CACHE{${te_name}} AND NOT ${te_whole})
        te_refuse(${te_name} "it needs ${te_whole}, which is OFF")
    endif()
endforeach()

if(NOT TE_SANITIZE MATCHES "^((address|undefined|thread|leak|memory)(,|$))*$")
    te_refuse(TE_SANITIZE "it is address,undefined or thread")
endif()
