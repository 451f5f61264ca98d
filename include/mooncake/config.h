/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the options of this process as members of a struct, by Mooncake's names. They are what the
 * environment says when globalConfig() is called first: a copy to look at. What an engine is to go by is
 * set in the environment, or by TransferEngine::setOption(). transfer_engine.h does not include this.
 */
#ifndef MOONCAKE_CONFIG_H
#define MOONCAKE_CONFIG_H

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "../te.h"

namespace mooncake
{

enum class EndpointStoreType { FIFO = 0, SIEVE = 1 };

namespace detail
{

/* An option as it is in this process; "" if there is none of that name. */
inline std::string option(const char *name)
{
    std::string text(4096, '\0');

    text.resize(te_option_get(nullptr, name, &text[0], text.size())
                    ? 0
                    : std::char_traits<char>::length(text.c_str()));
    return text;
}

template <class Number = size_t> Number number_option(const char *name)
{
    return static_cast<Number>(std::strtoll(option(name).c_str(), nullptr, 10));
}

inline bool switch_option(const char *name)
{
    return option(name) == "on";
}

/* The numbers of glog: TRACE, DEBUG and INFO are 0. */
inline int glog_level()
{
    const std::string level = option("MC_LOG_LEVEL");

    return level == "ERROR" ? 2 : level.empty() || level[0] == 'W' ? 1 : 0;
}

inline std::vector<uint16_t> ports_option(const char *name)
{
    const std::string text = option(name);
    std::vector<uint16_t> all;

    for (size_t at = 0; at < text.size();
         at = text.find(',', at) == std::string::npos ? text.size() : text.find(',', at) + 1)
        all.push_back(static_cast<uint16_t>(std::strtoul(text.c_str() + at, nullptr, 10)));
    return all;
}

} /* namespace detail */

struct GlobalConfig {
    size_t num_cq_per_ctx = detail::number_option("MC_NUM_CQ_PER_CTX");
    size_t num_comp_channels_per_ctx = detail::number_option("MC_NUM_COMP_CHANNELS_PER_CTX");
    uint8_t port = detail::number_option<uint8_t>("MC_IB_PORT");
    int gid_index = detail::number_option<int>("MC_GID_INDEX");
    uint16_t pkey_index = detail::number_option<uint16_t>("MC_PKEY_INDEX");
    uint64_t max_mr_size = detail::number_option<uint64_t>("MC_MAX_MR_SIZE");
    size_t max_cqe = detail::number_option("MC_MAX_CQE_PER_CTX");
    size_t max_ep_per_ctx = detail::number_option("MC_MAX_EP_PER_CTX");
    size_t num_qp_per_ep = detail::number_option("MC_NUM_QP_PER_EP");
    size_t max_sge = detail::number_option("MC_MAX_SGE");
    size_t max_wr = detail::number_option("MC_MAX_WR");
    size_t max_inline = detail::number_option("MC_MAX_INLINE");
    size_t mtu_length = detail::number_option("MC_MTU"); /* bytes */
    uint16_t handshake_port = detail::number_option<uint16_t>("MC_HANDSHAKE_PORT");
    int workers_per_ctx = detail::number_option<int>("MC_WORKERS_PER_CTX");
    size_t slice_size = detail::number_option("MC_SLICE_SIZE");
    int retry_cnt = detail::number_option<int>("MC_RETRY_CNT");
    int handshake_listen_backlog = detail::number_option<int>("MC_HANDSHAKE_LISTEN_BACKLOG");
    int handshake_connect_timeout = detail::number_option<int>("MC_HANDSHAKE_CONNECT_TIMEOUT");
    int rdma_rail_pause_seconds = detail::number_option<int>("MC_RDMA_RAIL_PAUSE_SECONDS");
    bool metacache = !detail::switch_option("MC_DISABLE_METACACHE");
    int te_metadata_refresh_interval_seconds =
        detail::number_option<int>("MC_TE_METADATA_REFRESH_INTERVAL_SECONDS");
    int log_level = detail::glog_level();
    bool trace = detail::option("MC_LOG_LEVEL") == "TRACE" || detail::switch_option("MC_VERBOSE");
    int64_t slice_timeout = detail::number_option<int64_t>("MC_SLICE_TIMEOUT");
    int64_t conn_pause_ttl_ms = detail::number_option<int64_t>("MC_CONN_PAUSE_TTL_MS");
    uint16_t rpc_min_port = detail::number_option<uint16_t>("MC_MIN_RPC_PORT");
    uint16_t rpc_max_port = detail::number_option<uint16_t>("MC_MAX_RPC_PORT");
    bool use_ipv6 = detail::switch_option("MC_USE_IPV6");
    size_t fragment_limit = slice_size / detail::number_option("MC_FRAGMENT_RATIO");
    bool enable_dest_device_affinity = detail::switch_option("MC_ENABLE_DEST_DEVICE_AFFINITY");
    bool enable_hca_peer_affinity = detail::switch_option("MC_ENABLE_HCA_PEER_AFFINITY");
    std::string nic_peer_affinity = detail::option("MC_NIC_PEER_AFFINITY");
    int parallel_reg_mr = detail::number_option<int>("MC_ENABLE_PARALLEL_REG_MR");
    size_t max_concurrent_reg_mr = 0;             /* no bound */
    size_t eic_max_block_size = size_t{64} << 20; /* of devices that this engine does not have */
    EndpointStoreType endpoint_store_type = detail::option("MC_ENDPOINT_STORE_TYPE") == "FIFO"
                                                ? EndpointStoreType::FIFO
                                                : EndpointStoreType::SIEVE;
    int ib_traffic_class = detail::number_option<int>("MC_IB_TC");
    int ib_service_level = detail::number_option<int>("MC_IB_SL");
    std::vector<uint16_t> mlx5_qp_udp_sports = detail::ports_option("MC_MLX5_QP_UDP_SPORTS");
    bool mlx5_qp_lag_port_balance = detail::switch_option("MC_MLX5_QP_LAG_PORT_BALANCE");
    int ib_pci_relaxed_ordering_mode = detail::number_option<int>("MC_IB_PCI_RELAXED_ORDERING");
};

inline GlobalConfig &globalConfig()
{
    static GlobalConfig config;

    return config;
}

} /* namespace mooncake */

#endif
