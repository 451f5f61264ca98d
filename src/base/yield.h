/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yield.h - lets the simulation change threads before each atomic operation (preset `sim`, which includes
 * this before anything else; no other build does). Of an operation that names no order the order is named
 * here. Each is sequentially consistent then, for what is not a constant is no weaker order to the
 * compiler: interleavings are explored, not weak memory.
 */
#ifndef TEI_YIELD_H
#define TEI_YIELD_H

#include <stdatomic.h>

/* Of the program; there is none but in the simulation. */
extern void tei_yield(void) __attribute__((weak, visibility("default")));

#define TEI_YIELD(order) ((tei_yield ? tei_yield() : (void)0), order)

#define memory_order_relaxed TEI_YIELD(memory_order_relaxed)
#define memory_order_acquire TEI_YIELD(memory_order_acquire)
#define memory_order_release TEI_YIELD(memory_order_release)
#define memory_order_acq_rel TEI_YIELD(memory_order_acq_rel)
#define memory_order_seq_cst TEI_YIELD(memory_order_seq_cst)

#undef atomic_load
#undef atomic_store
#undef atomic_exchange
#undef atomic_fetch_add
#undef atomic_fetch_sub
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_weak
#define atomic_load(p)         atomic_load_explicit(p, memory_order_seq_cst)
#define atomic_store(p, v)     atomic_store_explicit(p, v, memory_order_seq_cst)
#define atomic_exchange(p, v)  atomic_exchange_explicit(p, v, memory_order_seq_cst)
#define atomic_fetch_add(p, v) atomic_fetch_add_explicit(p, v, memory_order_seq_cst)
#define atomic_fetch_sub(p, v) atomic_fetch_sub_explicit(p, v, memory_order_seq_cst)
#define atomic_compare_exchange_strong(p, e, v) \
    atomic_compare_exchange_strong_explicit(p, e, v, memory_order_seq_cst, memory_order_relaxed)
#define atomic_compare_exchange_weak(p, e, v) \
    atomic_compare_exchange_weak_explicit(p, e, v, memory_order_seq_cst, memory_order_relaxed)

#endif
