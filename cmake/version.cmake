# SPDX-License-Identifier: Apache-2.0
# cmake -P cmake/version.cmake: says in words what an older CMake says of the presets in riddles.
if(CMAKE_VERSION VERSION_LESS 3.21)
    message(FATAL_ERROR "CMake 3.21 or newer is needed, and this is ${CMAKE_VERSION}. `pip install cmake` brings "
                        "one for a machine whose own is older.")
endif()
