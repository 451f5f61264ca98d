/* SPDX-License-Identifier: Apache-2.0 */
/* pages.h - pages that several processes map: a memfd of a size that is sealed. */
#ifndef TEI_PAGES_H
#define TEI_PAGES_H

#include "base/base.h"

#include <fcntl.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

/* An empty one of `size` bytes, to be closed with tei_fd_close(); -1 with errno. */
int tei_pages_make(const char *name, size_t size);
/* Maps `size` bytes, not inherited by a child; NULL with errno. */
void *tei_pages_map(int fd, size_t size, bool writable);
/*
 * Whether one of somebody else's is as large and cannot be made smaller, and has its pages when they
 * are touched, which those of hugetlbfs have not always. Else errno is EINVAL.
 */
bool tei_pages_are_sealed(int fd, uint64_t size);
/* Whether it can no more be mapped for writing. */
bool tei_pages_are_read_only(int fd);

#endif
