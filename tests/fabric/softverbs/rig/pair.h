/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.h - the usual fixture of a test of softverbs: two ends on two NICs, whose memory is filled, and what
 * one has to know of the other. They are the statics of the test that includes this; its size is SIZE.
 */
#ifndef SOFTVERBS_PAIR_H
#define SOFTVERBS_PAIR_H

#include "fabric/softverbs/rig/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct rig_end a, b;
static struct rig_addr to_a, to_b;

static inline void open_both(const char *nics, const struct rig_opts *o)
{
    rig_fabric(nics);
    rig_open(&a, "sv0", SIZE, o);
    rig_open(&b, "sv1", SIZE, o);
    to_a = rig_addr(&a);
    to_b = rig_addr(&b);
    rig_fill(a.buf, SIZE, 1);
    rig_fill(b.buf, SIZE, 2);
}

static inline void connect_both(const char *nics, const struct rig_opts *o)
{
    open_both(nics, o);
    rig_connect_both(&a, &b);
}

static inline int end(void **state)
{
    (void)state;
    rig_close(&a);
    rig_close(&b);
    rig_fabric_end();
    return 0;
}

static inline void untouched(void)
{
    assert_int_equal(rig_differs(a.buf, SIZE, 1), -1);
    assert_int_equal(rig_differs(b.buf, SIZE, 2), -1);
}

#endif
