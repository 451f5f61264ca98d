/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h - who uses something that there is only so much of, by address, so that nobody uses up
 * what others need.
 *
 * A source is an IPv4 address, or the first 64 bits of an IPv6 one. It exists while it uses anything.
 * Shares bind only when the thing is scarce: then it is taken from the source that has the most, or
 * refused to it. The owner's lock protects all of it.
 */
#ifndef TEI_BASE_SOURCE_H
#define TEI_BASE_SOURCE_H

#include "base/queue.h"
#include "base/sock.h"

#define TEI_SOURCE_KEY 16

/* Begins the struct of whoever keeps more of a source than this. */
struct tei_source {
    struct tei_link link;
    uint8_t key[TEI_SOURCE_KEY];
    size_t users; /* connections, say; it is gone with the last */
};

/* Of the other end of a socket; zeros where it has neither kind of address. */
void tei_source_key(const struct tei_addr *from, uint8_t key[TEI_SOURCE_KEY]);

/*
 * The source of that key in a list of them, with one user more; a new one has `size` bytes, zeros
 * behind the struct. NULL: out of memory.
 */
struct tei_source *tei_source_enter(struct tei_list *all, const uint8_t key[TEI_SOURCE_KEY],
                                    size_t size);
/* One user less; with the last it is freed. */
void tei_source_leave(struct tei_source *s);

/* The one with the most users; NULL if there is none. */
struct tei_source *tei_source_crowd(const struct tei_list *all);

#endif
