/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_stream.h - requests in the order of other work: of a stream of a device, or of whatever writes an eventfd. te.h
 * includes this; its conventions hold.
 *
 * A layer of a cache is to be sent when it is computed, and what is computed next is to wait until it has come. By
 * `after` and `then` of te_submit_opts no thread of the program stands in between. Both are honoured by te_submit(),
 * te_prep_submit() and te_submit_pages(); each call may name one of each.
 */
#ifndef TE_STREAM_H
#define TE_STREAM_H

#include "te.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A stream, or a descriptor. Set `size` to sizeof(te_stream) and zero the rest first; that of another release is
 * accepted as te_submit_opts is. Read during the call only.
 *
 * As `after`: nothing of the call's requests is begun before this is done. They are checked as ever, and what is wrong
 * with them is said, in the call; then they are PENDING, and by te_batch_free(), te_unregister(), te_close() and
 * te_transport_uninstall() in use (TE_ERR_BUSY), until it is done.
 *   stream  What was submitted to it before this call, on which the call records an event.
 *   fd      It is readable: an eventfd(2), or anything else that epoll takes. It is not read: it holds up nothing, as
 *           long as it is readable, and the program reads it before it is used anew. The call has a duplicate, so the
 *           program may close its own as soon as the call returns.
 *
 * deadline_ms counts from the call, waiting included; the time of TE_TRANSFER_TIMEOUT_MS, and that of TE_SLOW_MS, from
 * when the requests are begun: one without a deadline waits for ever for what never comes. te_cancel(), the deadline and
 * te_engine_destroy() end what waits, at once. Work of the stream that fails ends them FAILED with TE_ERR_CONTEXT, and a
 * descriptor that has an error, or whose other end is closed with nothing to read, with TE_ERR_SYSTEM. What was right in
 * the call and is not when they are begun ends them as a refusal of the target would; te_status_msg() says why.
 *
 * As `then`: it goes on once every request of the call is terminal, however each has ended: whether it has failed is
 * for the program to ask by te_status(), te_batch_status() or te_wait(), before it uses the bytes.
 *   stream  What is submitted to it after this call waits until then.
 *   fd      An eventfd, to which 1 is written then. Duplicated, too. Nothing is written where the call fails.
 *
 * TE_ERR_INVALID: neither is given, or the descriptor is not of such a sort, or `then` with no request to follow.
 * TE_ERR_UNSUPPORTED, TE_ERR_NO_DEVICE: there is no such device, or its driver has no such call. TE_ERR_CONTEXT: the
 * driver refuses the stream. Nothing was submitted then. docs/gpu.md, "Streams", says what drivers ask of a program.
 */
typedef struct te_stream {
    size_t size;
    const char *location; /* of the device, as for te_register(): "cuda:0". NULL: `fd` is meant */
    void *stream;         /* of the device's primary context: CUstream, cudaStream_t, hipStream_t */
    int fd;               /* not 0 */
} te_stream;

#ifdef __cplusplus
}
#endif

#endif
