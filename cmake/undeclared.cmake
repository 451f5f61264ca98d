# SPDX-License-Identifier: Apache-2.0
# Included last: refuses what begins with TE_ and is no switch, such as a misspelt one.
# What is given by -D and declared nowhere has no type.
get_cmake_property(te_given CACHE_VARIABLES)
list(FILTER te_given INCLUDE REGEX "^TE_")
foreach(te_name IN LISTS te_given)
    get_property(te_type CACHE ${te_name} PROPERTY TYPE)
    if(te_type STREQUAL "UNINITIALIZED")
        unset(${te_name} CACHE)
        message(FATAL_ERROR "-D${te_name}: there is no such switch; cmake/options.cmake lists them.")
    endif()
endforeach()
