/* SPDX-License-Identifier: Apache-2.0 */
/* summary.h - one screen: what is built in, what this host can do, and where to read on. */
#ifndef TE_INFO_SUMMARY_H
#define TE_INFO_SUMMARY_H

#include "te_info/check.h"

/* Prints it, with what the checks have found. */
void summary_print(const struct check_host *h, const struct check *all, size_t n);

/* Adds "transports":[{"name","runs","why"}, ...] and "metadata_servers":[...] to an object. */
void summary_json(const struct check_host *h, json_t *out);

#endif
