# SPDX-License-Identifier: Apache-2.0
# Language, warnings, hardening and sanitizers: the same for the library, the tools and the tests.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

add_compile_definitions(_GNU_SOURCE)
add_compile_options(-Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
                    -Wpointer-arith -Wundef)
if(TE_WERROR)
    add_compile_options(-Werror)
endif()

if(TE_HARDEN)
    add_compile_options(-fstack-protector-strong)
    add_link_options(LINKER:-z,relro LINKER:-z,now)
    # Fortified calls need optimisation, and hide from the sanitizers what they look for.
    if(NOT TE_SANITIZE AND NOT TE_FUZZ)
        add_compile_options(
            "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
    endif()
endif()

if(TE_SANITIZE)
    add_compile_options(-fsanitize=${TE_SANITIZE} -fno-sanitize-recover=all
                        -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${TE_SANITIZE})
    # gcc warns that its thread sanitizer does not follow fences. That is worth a line, not a stop.
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND TE_SANITIZE MATCHES "thread")
        add_compile_options(-Wno-error=tsan)
    endif()
endif()

if(TE_SIM)
    add_compile_options("$<$<COMPILE_LANGUAGE:C>:SHELL:-include ${PROJECT_SOURCE_DIR}/src/base/yield.h>")
endif()

if(TE_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "TE_FUZZ needs clang: cmake --preset fuzz, or -DCMAKE_C_COMPILER=clang.")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

if(TE_COVERAGE)
    add_compile_options(--coverage)
    add_link_options(--coverage)
endif()
