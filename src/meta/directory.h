/* SPDX-License-Identifier: Apache-2.0 */
/* directory.h - the kinds of directories; private to meta/. */
#ifndef TEI_META_DIRECTORY_H
#define TEI_META_DIRECTORY_H

#include "meta/meta.h"

int tei_directory_open_peer(const struct tei_conf *conf, struct tei_directory **out);
int tei_directory_open_store(const char *conn, const struct tei_conf *conf,
                             struct tei_directory **out);

/* Asks the engine at `where` for its descriptor, page by page where it knows pages. Blocks. */
int tei_directory_fetch(const struct tei_hostport *where, const struct tei_conf *conf,
                        struct tei_segment **out);

/*
 * Whom the engine at `where` is to prove to be (TE_AUTH): a segment's name, or, without a metadata server, its host.
 * TE_ERR_MEMORY.
 */
int tei_directory_expect(const struct tei_conf *conf, const char *name, struct tei_hostport *where);

/* What is left of a descriptor's limits once so many bytes and buffers of it have been read. */
struct tei_segment_limits tei_directory_limits(const struct tei_conf *conf, int64_t deadline_ns,
                                               size_t bytes, size_t buffers);

/*
 * Whether a descriptor is of files only where it may be (`files`): what an engine says of itself must
 * not lead to files of this host. Else TE_ERR_METADATA, and *s is let go of.
 */
int tei_directory_check(const char *name, bool files, struct tei_segment **s);

/* Follows keys of a store that can watch; see directory_follow.c. `changed` runs in te/watch. */
struct tei_follower;
int tei_follower_open(struct tei_store *s, void (*changed)(void *arg, const char *name), void *arg,
                      struct tei_follower **out);
/* From `revision` on; takes `key` over, which may be NULL when memory is out. */
void tei_follower_add(struct tei_follower *f, const char *name, char *key, int64_t revision);
void tei_follower_drop(struct tei_follower *f, const char *name);
/* No changed() runs after it. */
void tei_follower_close(struct tei_follower *f);

#endif
