/* SPDX-License-Identifier: Apache-2.0 */
/* touch.h - what becomes of a process that reads or writes a byte. */
#ifndef TEST_TOUCH_H
#define TEST_TOUCH_H

#include <stdbool.h>

/* The signal that it would die of; 0: none. Of one thread at a time. */
int touch(volatile char *p, bool write);

#endif
