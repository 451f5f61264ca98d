/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_paths.h - paths asked for: which transports may carry requests. te.h includes this; its conventions hold.
 *
 * Without a word from the program each request goes by the transport that is best for it (docs/transports.md).
 * What is said here holds for a segment, from te_open_with() on, or for the requests of one call, by `paths` of
 * te_submit_opts. te_path() tells which transport has carried a request.
 */
#ifndef TE_PATHS_H
#define TE_PATHS_H

#include "te.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Names of transports that are built in, as te_transport_install() has them, with commas between: "rdma", "rdma,tcp".
 * NULL or "": nothing is said. Set `size` to sizeof(te_paths) and zero the rest first; that of another release is
 * accepted as te_submit_opts is. A text of blanks and commas alone is TE_ERR_INVALID.
 */
typedef struct te_paths {
    size_t size;
    /* One of these or none. A request that none of them can carry at this moment is refused. */
    const char *require;
    /* The first of these that can carry a request does, before all others that are allowed. */
    const char *prefer;
    /* None of these. */
    const char *forbid;
} te_paths;

/*
 * te_open() of a segment whose requests all go by these paths. What te_submit_opts says besides narrows that: a request
 * goes by what both allow, and prefers what its own `prefer` names, if it has one. NULL: as te_open().
 *
 * te_warm() connects by those that the segment's paths allow, and by no others.
 *
 * TE_ERR_UNSUPPORTED: a transport is not built in. TE_ERR_EXISTS: the segment is open already, and not by the same
 * paths, order included; te_errmsg() tells them. TE_ERR_INVALID: the name is this engine's own, whose segment is open
 * from the start: give the paths to each submit. Who opens a segment by te_open(), or without paths, while it is open
 * with some, has the same id, and so these paths.
 *
 * A request that is left no path is refused where it is submitted: TE_ERR_UNSUPPORTED, nothing was started, and
 * te_errmsg() tells of the transports that are allowed, as far as there is room, why each cannot. Where that is found later, as after a new
 * descriptor of the target was fetched, the request ends FAILED with the same, never by another transport. What is still
 * being prepared, such as a mapping of a peer's memory on this host, cannot carry a request yet. A WRITE to where an
 * earlier one that "tcp" had may still be applied goes by "tcp" whatever is preferred, and is TE_ERR_BUSY where that is
 * not allowed: te_fence() tells when it is over, or that nobody can know.
 */
TE_API int te_open_with(te_engine *e, const char *name, const te_paths *paths, te_segment *out);

#ifdef __cplusplus
}
#endif

#endif
