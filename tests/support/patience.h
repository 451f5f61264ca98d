/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patience.h - waiting for a state. The bound only ends a hang: no machine that makes progress at all
 * takes so long.
 */
#ifndef TEST_PATIENCE_H
#define TEST_PATIENCE_H

#include <unistd.h>

/* A sanitizer makes all of it slower; te_proc.py takes four times as long, too. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define PATIENCE_MS 240000
#else
#define PATIENCE_MS 60000
#endif
#define PATIENCE_NS (PATIENCE_MS * INT64_C(1000000))

/* Returns once the condition is true, and fails the test if it never is. It is looked at a number of
 * times, so that the time during which this process did not run does not count. */
#define WAIT_FOR(condition)                                    \
    do {                                                       \
        for (int left_ = PATIENCE_MS; !(condition); left_--) { \
            if (left_ == 0)                                    \
                fail_msg("in vain: %s", #condition);           \
            usleep(1000);                                      \
        }                                                      \
    } while (0)

#endif
