/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_mlx5.h - libmlx5, opened at run time where an option asks for what only it can do: the UDP
 * source port of a queue pair, by which switches spread flows, and the port of a bond it leaves by.
 */
#ifndef TEI_RDMA_MLX5_H
#define TEI_RDMA_MLX5_H

#include "conf/conf.h"

#include <infiniband/mlx5dv.h>

#define TEI_MLX5_SPORTS_MAX 128

struct tei_mlx5 {
    uint16_t sports[TEI_MLX5_SPORTS_MAX]; /* queue pair i of an endpoint takes number i, around */
    size_t n_sports;
    bool balances; /* MC_MLX5_QP_LAG_PORT_BALANCE */
    /* NULL: the library does not have it, or is not there, or nothing is asked for */
    __typeof__(mlx5dv_is_supported) *is_supported;
    __typeof__(mlx5dv_query_device) *query_device;
    __typeof__(mlx5dv_modify_qp_lag_port) *modify_lag_port;
    __typeof__(mlx5dv_modify_qp_udp_sport) *modify_udp_sport;
};

/*
 * What the options ask for. TE_ERR_INVALID for what is no list of ports. A library that is missing or
 * too old is warned of, and no error: data moves without.
 */
int tei_mlx5_open(const struct tei_conf *conf, struct tei_mlx5 *out);

#endif
