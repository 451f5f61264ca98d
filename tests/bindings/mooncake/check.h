/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of test_cpp_mooncake.py share: a check that fails the program, and random bytes. */
#ifndef TEST_MOONCAKE_CHECK_H
#define TEST_MOONCAKE_CHECK_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                                  \
        }                                                                                  \
    } while (0)

inline std::vector<char> random_bytes(size_t n)
{
    std::independent_bits_engine<std::mt19937_64, 8, unsigned> engine{std::random_device{}()};
    std::vector<char> bytes(n);

    for (char &byte : bytes)
        byte = static_cast<char>(engine());
    return bytes;
}

#endif
