/* SPDX-License-Identifier: Apache-2.0 */
/* story.c - what transports add to the story of a request. */
#include "transport/story.h"

#include <stdio.h>

void tei_story_carried(struct tei_story *s, const char *transport)
{
    pthread_mutex_lock(&s->lock);
    s->transport = transport;
    pthread_mutex_unlock(&s->lock);
}

void tei_story_taken(struct tei_story *s, int64_t now)
{
    pthread_mutex_lock(&s->lock);
    if (s->parts++ == 0)
        s->moving_ns = now;
    pthread_mutex_unlock(&s->lock);
}

void tei_story_via(struct tei_story *s, const char *path, bool changed)
{
    pthread_mutex_lock(&s->lock);
    snprintf(s->path, sizeof(s->path), "%s", path);
    s->path_changes += changed;
    pthread_mutex_unlock(&s->lock);
}

void tei_story_again(struct tei_story *s)
{
    pthread_mutex_lock(&s->lock);
    s->retries++;
    pthread_mutex_unlock(&s->lock);
}
