/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleet.h - figures of many engines in virtual time.
 */
#ifndef SIM_FLEET_H
#define SIM_FLEET_H

/* So many engines, and a trace of requests; prints tables. Between sim_begin() and sim_end(). */
void sim_fleet(int n, const char *trace);

#endif
