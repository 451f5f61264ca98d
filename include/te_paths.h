/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_paths.h - what a segment is opened for: paths, that is which transports may carry requests, and one life of its
 * engine. te.h includes this; its conventions hold.
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

/*
 * One life of an engine
 *
 * A name goes on when the process that has it ends and another one is started: requests to a segment of te_open() go to
 * whatever engine has the name by then. That is wrong where the memory was promised by the process that is gone, as
 * blocks of a KV cache are: the next one may have registered the same addresses for something else.
 *
 * Each engine has a random number, its incarnation, which no other one has, and which the next engine of its name has
 * not. The target tells its own, by te_incarnation(), to those who are to write to it, and they open just that one.
 */

/* Of this engine, from te_engine_create() on; never 0. 0: the engine is closed, or NULL. */
TE_API uint64_t te_incarnation(const te_engine *e);

/*
 * Opens the segment of that incarnation of the engine `name`; 0: of the one that has the name now. No byte that is
 * written by this segment, and no message and no addition to a counter, gets to another engine, nor is one read from
 * there, even if that has the same name, ports and addresses; but messages do where that is of an older version or of
 * another make, which does not look whom they are for. `paths` as of te_open_with(), NULL: any.
 *
 * It is another segment than that of te_open() of the same name, and than those of other incarnations; each has an id,
 * paths, and te_close() of its own. Opened again with the same number it is the same, and so with 0, as long as its
 * engine lives.
 *
 * Once another engine is found to have the name its requests, messages and te_warm() end or fail with TE_ERR_STALE at
 * once, for good, and te_errmsg() tells both incarnations; so do those that find out, by being refused at the target,
 * or by the next descriptor. A request that was under way when the process died may have failed before with what a
 * dying target gives, such as TE_ERR_LINK, and where nobody has the name now requests fail with TE_ERR_PEER. Open the
 * new incarnation, and close this one. te_refresh() of the name is TE_ERR_STALE, too, after it has fetched the descriptors
 * of all segments of that name. te_fence() says as ever what is known of WRITEs that have ended.
 *
 * The engine is asked whether it is of that incarnation, so it has to be up. TE_ERR_STALE: it is another one.
 * TE_ERR_UNSUPPORTED: the target, or all transports that lead to it, cannot tell: it is of another make, an older
 * version, or made of files; "tcp" without the native framing (TE_TCP_NATIVE); a transport that does not keep to it
 * (docs/failure-model.md) carries none of the segment's requests. This engine itself is TE_LOCAL_SEGMENT, as of te_open().
 */
TE_API int te_open_life(te_engine *e, const char *name, uint64_t incarnation, const te_paths *paths,
                        te_segment *out);

/*
 * The incarnation of a segment: of te_open_life(), the one that it is of, also once that is over; of te_open(), that of
 * the descriptor which was fetched last, and 0 if that tells none. TE_ERR_NOT_FOUND.
 */
TE_API int te_segment_incarnation(te_engine *e, te_segment segment, uint64_t *out);

#ifdef __cplusplus
}
#endif

#endif
