/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tsan.h - what the thread sanitizer cannot know.
 *
 * Memory that a peer reads or writes is ordered against its owner by messages between engines. When
 * a test has both engines in one process the sanitizer sees the accesses but not that order. The
 * system calls that move a peer's bytes stand between these two; in other builds they are nothing.
 */
#ifndef TEI_TSAN_H
#define TEI_TSAN_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEI_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define TEI_TSAN 1
#endif

#ifdef TEI_TSAN

/* Of the sanitizer's run-time library. */
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static inline void tei_tsan_ignore_begin(void)
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static inline void tei_tsan_ignore_end(void)
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

#else

static inline void tei_tsan_ignore_begin(void)
{
}

static inline void tei_tsan_ignore_end(void)
{
}

#endif

#endif
