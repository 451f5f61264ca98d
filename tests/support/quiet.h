/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quiet.h - the quiet-memory rule put to the test: once a request is terminal the engine never
 * touches its local memory.
 *
 * A transfer is begun, the peer is frozen in the middle of it, and the request is brought to its
 * end in one of the ways below. At that moment fresh pages with a pattern are mapped over the local
 * buffer, the peer goes on for a second, and both ends are looked at: a READ must not have changed
 * the pattern, a WRITE must not have carried any of it to the peer.
 */
#ifndef TEST_QUIET_H
#define TEST_QUIET_H

enum quiet_end { QUIET_CANCEL, QUIET_DEADLINE, QUIET_PEER_DEATH, QUIET_DESTROY };

/*
 * Runs one case with enum te_opcode `opcode`; the number of violations seen, each told on stderr.
 */
int quiet_run(enum quiet_end how, int opcode);

#endif
