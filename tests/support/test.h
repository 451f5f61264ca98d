/* SPDX-License-Identifier: Apache-2.0 */
/* test.h - cmocka, with the headers that it wants before it; and the head of a test without a fixture. */
#ifndef TEST_TEST_H
#define TEST_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define TEST(name) static void name(__attribute__((unused)) void **state)

#endif
