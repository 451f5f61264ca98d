/* SPDX-License-Identifier: Apache-2.0 */
/*
 * story.h - what became of a request, for the line that says why it was slow (TE_SLOW_MS).
 *
 * There is one only where that is asked for: tei_work.story is NULL otherwise, and then nothing here is
 * called. The core makes it and reads it once all work of the request has ended. Any thread may add to it,
 * with a lock of its own held, so its lock is a leaf.
 */
#ifndef TEI_STORY_H
#define TEI_STORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define TEI_STORY_PATH 128

struct tei_story {
    pthread_mutex_t lock;
    int64_t begun_ns;      /* submitted */
    int64_t parked_ns;     /* began to wait for the target's descriptor; 0: does not */
    int64_t descriptor_ns; /* for so long it has waited for that */
    int64_t posted_ns;     /* given to a transport, for the last time */
    int64_t moving_ns;     /* that took the first part of it, since then; 0: not yet */
    const char *transport; /* that has carried it last; NULL: none */
    uint32_t parts;        /* since then */
    uint32_t restarts;     /* times that it was given to a transport anew */
    uint32_t retries;      /* parts that went out again */
    uint32_t path_changes; /* of these, those that went another way than before */
    char path
        [TEI_STORY_PATH]; /* the last one that a part took: NICs, or addresses; "": none is known */
};

/* A piece of its work has ended, with or without an error. */
void tei_story_carried(struct tei_story *s, const char *transport);
/* A part of it is taken, to be moved. */
void tei_story_taken(struct tei_story *s, int64_t now);
/* A part of it goes this way; changed: another one than at its last try. */
void tei_story_via(struct tei_story *s, const char *path, bool changed);
/* A part of it has failed, and is to go out again. */
void tei_story_again(struct tei_story *s);

#endif
