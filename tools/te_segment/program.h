/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - runs other programs, found in PATH, without a shell. */
#ifndef TE_SEGMENT_PROGRAM_H
#define TE_SEGMENT_PROGRAM_H

#define PROGRAM_UNDO_S 30 /* for what takes back, which is not to be given up lightly */

/*
 * Runs argv[0] to its end, within `limit_s` seconds, after which it is killed. What it prints goes
 * to standard error. 0 if it succeeded, else FAILED after a message.
 */
int program_run(const char *const argv[], double limit_s);

#endif
