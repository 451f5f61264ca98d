/* SPDX-License-Identifier: Apache-2.0 */
/* common_matrix.h - the NIC priority matrix that a list of devices stands for. */
#ifndef TOOLS_COMMON_MATRIX_H
#define TOOLS_COMMON_MATRIX_H

#include <stddef.h>

/*
 * JSON text, to be freed, by which "cpu:N" for each of `nodes`, "cuda:0" and "hip:0" prefer all of
 * `devices` ("a,b"; blanks around names do not count). NULL when memory is out.
 */
char *matrix_of_devices(const char *devices, const int *nodes, size_t n_nodes);

#endif
