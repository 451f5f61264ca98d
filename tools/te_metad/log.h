/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that te_metad writes to standard error while it serves. */
#ifndef TE_METAD_LOG_H
#define TE_METAD_LOG_H

#define LOG_TIME 40

/* Date, time and zone by ISO 8601: "2026-11-25T16:03:11.123+01:00". */
void log_time(char out[LOG_TIME]);

/* A line: the time, "te_metad: " and the text. Lines of several threads do not mix. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
