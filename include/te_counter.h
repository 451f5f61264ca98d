/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_counter.h - counters: how a target learns that bytes have arrived. te.h includes this; its conventions hold.
 *
 * A target makes a counter and gives its name away. An initiator opens that and has it raised when a batch is
 * done; the target waits for a value, with a deadline or by a descriptor, or reads it. So the layers of a cache
 * can be used as they come, in whatever order, over whatever paths, without a look at the memory itself.
 *
 * Each addition counts once, however often it must be sent: what travels is the sum of all that an initiator has
 * added, and the target keeps the largest that it has got of each. It goes by the handshake port, apart from the
 * bytes, and only when these are in the target's memory (COMPLETED), so it takes one exchange of messages more.
 *
 * Batches end in any order, so a sum of ones tells how many have ended, not which. Who has to know that gives each a bit
 * of its own.
 */
#ifndef TE_COUNTER_H
#define TE_COUNTER_H

#include "te.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------- at the target */

typedef uint64_t te_counter;

/*
 * Makes a counter that is 0. `name`: 1 to 255 bytes of UTF-8; who reaches the handshake port and knows it can raise
 * the counter. TE_ERR_EXISTS: there is one of that name. TE_ERR_TOO_MANY: there are 65,536.
 */
TE_API int te_counter_create(te_engine *e, const char *name, te_counter *out);

/*
 * Its id is dead, its name free, its descriptor closed. Who waits gets TE_ERR_CANCELED. What initiators add from now on
 * ends TE_ERR_STALE.
 */
TE_API int te_counter_destroy(te_engine *e, te_counter c);

/* The sum of what was added so far; never less than before. It stays at UINT64_MAX. */
TE_API int te_counter_value(te_engine *e, te_counter c, uint64_t *value);

/*
 * Waits until it is `at_least` that, `timeout_ms` at most (negative: for ever). TE_ERR_TIMEOUT. Any number of threads
 * may wait, for different values.
 */
TE_API int te_counter_wait(te_engine *e, te_counter c, uint64_t at_least, int64_t timeout_ms);

/*
 * A descriptor that polls readable once the counter is `at_least` that. There is one for each counter: with another
 * value it is the same, and tells of that from then on. The engine's: never read, write or close it; it ends with the
 * counter. Negative te_err on failure.
 */
TE_API int te_counter_fd(te_engine *e, te_counter c, uint64_t at_least);

/* ------------------------------------------------------------------------------- at the initiator */

typedef uint64_t te_adder;

/*
 * Opens a counter of the engine behind `seg` by its name, or of this engine (TE_LOCAL_SEGMENT). Asks the directory
 * where that engine is, and then that, so it may block: MC_HANDSHAKE_CONNECT_TIMEOUT at most for each. A counter takes
 * 4,096 adders in its life: open one and keep it. Close it before its segment: without that an engine that moves is
 * not found. TE_ERR_NOT_FOUND: it has no such counter, the metadata server does not know the engine (any more), or
 * `seg` is not open. TE_ERR_UNSUPPORTED: it is of another make, or older, or `seg` is made of files.
 * TE_ERR_TOO_MANY: 2^20 are open.
 */
TE_API int te_adder_open(te_engine *e, te_segment seg, const char *name, te_adder *out);

/*
 * Adds `n` once nothing of the batch is unfinished; nothing if any request that it ever got has failed. Returns at
 * once. What the target does not get is sent again, by this engine, until it does or the adder is closed.
 * TE_ERR_INVALID: the sum of all additions would be above INT64_MAX.
 */
TE_API int te_adder_after(te_engine *e, te_batch b, te_adder a, uint64_t n);

/*
 * Waits until all that te_adder_after() was told before is settled, `timeout_ms` at most (negative: for ever; 0: says
 * how it stands): the batches have ended, and the target has counted what they added. Else:
 *   TE_ERR_STALE     the counter was destroyed, or its engine was started anew: it will never be counted
 *   TE_ERR_REJECTED  the counter takes no other adder, nor ever will
 *   TE_ERR_TIMEOUT   a batch has not ended, or the target has not answered yet
 *   others           why the last try failed; it is tried again, after 20 ms at first and 5 s in the end
 */
TE_API int te_adder_flush(te_engine *e, te_adder a, int64_t timeout_ms);

/*
 * Its id is dead. What the target has not counted is forgotten, what batches have added that are done included, or may be
 * on its way; so it is when the engine is destroyed. te_wait() alone does not tell: te_adder_flush() comes first where all
 * is to be counted. TE_ERR_BUSY: a batch that is to add something is not done; a thread
 * is in te_adder_flush().
 */
TE_API int te_adder_close(te_engine *e, te_adder a);

#ifdef __cplusplus
}
#endif

#endif
