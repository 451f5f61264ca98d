/* SPDX-License-Identifier: Apache-2.0 */
/*
 * here.h - where this process is, told so that nobody elsewhere learns anything by it.
 *
 * Each is a hash of what the kernel or the system calls the place and of a nonce, under a key that is
 * the kernel's boot id: who runs on the same kernel can compute and compare it, to anybody else it is
 * random, and with another nonce it is another text.
 */
#ifndef TEI_HERE_H
#define TEI_HERE_H

#include "base/base.h"

#include <sys/types.h>

#define TEI_HERE_NONCE  16
#define TEI_HERE_TEXT   32 /* hexadecimal digits */
#define TEI_HERE_DEVICE 16
#define TEI_HERE_LIFE   16

struct tei_here {
    /* "" where it is not known; without a boot id, nothing is. */
    char host[TEI_HERE_TEXT + 1];    /* boot id */
    char machine[TEI_HERE_TEXT + 1]; /* /etc/machine-id */
    char pid_ns[TEI_HERE_TEXT + 1], net_ns[TEI_HERE_TEXT + 1];
    char process[TEI_HERE_TEXT + 1]; /* its number */
};

/* Fills in where this process is. */
void tei_here(const uint8_t nonce[TEI_HERE_NONCE], struct tei_here *out);
/* As `process` of process `pid` of this host would be. */
void tei_here_process(const uint8_t nonce[TEI_HERE_NONCE], pid_t pid, char out[TEI_HERE_TEXT + 1]);
/*
 * Of a process and of the time at which it began, so that another one that is given its number is not
 * taken for it; false where it is not known.
 */
bool tei_here_life(const uint8_t nonce[TEI_HERE_NONCE], pid_t pid, uint8_t out[TEI_HERE_LIFE]);
/* Of a device, by its UUID; zeros without a boot id. `out` may be `uuid`. */
void tei_here_device(const uint8_t nonce[TEI_HERE_NONCE], const uint8_t uuid[TEI_HERE_DEVICE],
                     uint8_t out[TEI_HERE_DEVICE]);
/* The process of this host that it is of; 0: none that /proc shows. Both look at all of them. */
pid_t tei_here_find_process(const uint8_t nonce[TEI_HERE_NONCE], const char *process);
pid_t tei_here_find_life(const uint8_t nonce[TEI_HERE_NONCE], const uint8_t life[TEI_HERE_LIFE]);

/*
 * Where `b` is by the first place that both know and that is not the same, both with one nonce: "on
 * another host", "on another machine", "in another network namespace" or "in another pid namespace"; NULL
 * if there is none.
 */
const char *tei_here_differs(const struct tei_here *a, const struct tei_here *b);
/* Whether a user of this host may look into this process: our own, or root. */
bool tei_here_admits(uid_t uid);

/* Whether text that came from outside is such a hash, or "". */
bool tei_here_is_text(const char *text);

#endif
