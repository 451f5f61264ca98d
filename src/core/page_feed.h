/* SPDX-License-Identifier: Apache-2.0 */
/* page_feed.h - the work of requests of pages, a window at a time. */
#ifndef TEI_PAGE_FEED_H
#define TEI_PAGE_FEED_H

#include "core/plan.h"

/* What tei_plan_cut() has cut of tasks of pages has been posted. */
void tei_page_feed_posted(struct plan *p);
/* So many pieces of work have come back, and their errors are in the task. Whether it is over. */
bool tei_page_feed_back(struct task *t, size_t n);

#endif
