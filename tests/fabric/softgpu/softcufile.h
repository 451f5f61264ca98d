/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softcufile.h - what the stand-in for libcufile.so.0 offers beyond the library that it plays. To be
 * looked up by dlsym() of what dlopen("libcufile.so.0") gives. Safe from any thread.
 */
#ifndef SOFTCUFILE_H
#define SOFTCUFILE_H

/*
 * One command, for this process. 0 or EINVAL.
 *
 *   open N, file N, buffer N    from now on cuFileDriverOpen, cuFileHandleRegister, cuFileBufRegister
 *                               answer the error N (5008); 0: as they should
 *   io N [AFTER]                the same for reads and writes once AFTER of them are done; N below
 *                               5000 is an errno, -1: there is none
 *   short N                     a read or write moves at most N bytes; 0: all
 *   hold, release               reads and writes wait, before they move anything, until released
 */
int softcufile_control(const char *command);

/*
 * "users" of the driver, "files" and "buffers" registered, "reads" and "writes" so far, "held" of
 * them now; "parts": writes of parts of a page so far. -1 for any other word.
 */
long softcufile_count(const char *what);

#endif
