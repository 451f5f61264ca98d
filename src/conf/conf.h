/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf.h - the engine's options: one table (table.c), one struct, the only getenv in the library.
 *
 * Every row of the table has the variable's name, alias, type, default, range, unit and help.
 * Loading writes the defaults, then the environment, then what te_option_set() gave. A bad value in
 * the environment is a WARN and the default, but for a row that is strict; from te_option_set() it is an error. The struct is
 * const once the engine owns it.
 *
 *   table.c    the rows
 *   value.c    one value: text to struct member and back
 *   conf.c     loading, rules that span rows, the rows as text
 *   options.c  te_options_init(), te_option_set(), te_options_fini()
 *   unused.c   variables that look like options and change nothing
 */
#ifndef TEI_CONF_H
#define TEI_CONF_H

#include "base/base.h"
#include "te.h"

#define TEI_CONF_TEXT 256  /* names, addresses, lists */
#define TEI_CONF_LONG 4096 /* paths and passwords */
#define TEI_CONF_ROWS 144  /* at most so many rows */

enum tei_zerocopy { TEI_ZEROCOPY_OFF, TEI_ZEROCOPY_AUTO, TEI_ZEROCOPY_ON };

struct tei_auth;

struct tei_conf {
    /* which transports */
    bool force_tcp;                      /* MC_FORCE_TCP */
    bool force_hca;                      /* MC_FORCE_HCA */
    bool force_mnnvl;                    /* MC_FORCE_MNNVL */
    bool intra_nvlink;                   /* MC_INTRA_NVLINK, MC_INTRANODE_NVLINK */
    bool force_musa;                     /* MC_FORCE_MUSA */
    bool disable_hip;                    /* MC_DISABLE_HIP */
    bool disable_musa, disable_maca;     /* MC_DISABLE_MUSA, MC_DISABLE_MACA */
    char filters[TEI_CONF_TEXT];         /* MC_TE_FILTERS: NIC whitelist, comma separated */
    char filters_exclude[TEI_CONF_TEXT]; /* MC_TE_FILTERS_EXCLUDE: NICs left out */
    char custom_topology[TEI_CONF_LONG]; /* MC_CUSTOM_TOPO_JSON: path */
    char sysfs_path[TEI_CONF_TEXT];      /* TE_SYSFS_PATH */
    char dev_path[TEI_CONF_TEXT];        /* TE_DEV_PATH */

    /* requests */
    size_t slice_size;           /* MC_SLICE_SIZE */
    size_t fragment_ratio;       /* MC_FRAGMENT_RATIO */
    int retry_cnt;               /* MC_RETRY_CNT: attempts after the first, per piece of work */
    int64_t transfer_timeout_ms; /* TE_TRANSFER_TIMEOUT_MS: without progress; 0: never */
    /* MC_TRANSFER_TIMEOUT (seconds): blocking calls of the bindings */
    int64_t sync_timeout_ms;
    int spin_us; /* TE_SPIN_US: te_wait polls so long before it sleeps */

    /* log */
    int log_level;                /* MC_LOG_LEVEL, else TRACE by MC_VERBOSE; -1: not given */
    bool verbose;                 /* MC_VERBOSE; log_level has it already */
    char log_dir[TEI_CONF_LONG];  /* MC_LOG_DIR */
    int log_format;               /* TE_LOG_FORMAT: enum tei_log_format */
    char log_file[TEI_CONF_LONG]; /* TE_LOG_FILE; "": by log_dir */
    bool log_reopen;              /* TE_LOG_REOPEN: on SIGHUP */
    bool metric;                  /* MC_TE_METRIC */
    int metric_interval_s;        /* MC_TE_METRIC_INTERVAL_SECONDS */
    int64_t slow_ms;              /* TE_SLOW_MS; 0: off */
    char metrics[TEI_CONF_LONG];  /* TE_METRICS: an address and port, or file:/path */
    bool top;                     /* TE_TOP: a unix socket for te_top */

    /* metadata and handshake */
    bool disable_metacache;          /* MC_DISABLE_METACACHE */
    int metadata_refresh_s;          /* MC_TE_METADATA_REFRESH_INTERVAL_SECONDS, 0: off */
    char cluster_id[TEI_CONF_TEXT];  /* MC_METADATA_CLUSTER_ID */
    uint16_t min_rpc_port;           /* MC_MIN_RPC_PORT, MC_MIN_PRC_PORT */
    uint16_t max_rpc_port;           /* MC_MAX_RPC_PORT, MC_MAX_PRC_PORT */
    uint16_t handshake_port;         /* MC_HANDSHAKE_PORT: when a name has none */
    int handshake_backlog;           /* MC_HANDSHAKE_LISTEN_BACKLOG */
    char bind[TEI_CONF_TEXT];        /* TE_BIND: an address or an interface; "": all */
    int handshake_connect_timeout_s; /* MC_HANDSHAKE_CONNECT_TIMEOUT */
    size_t handshake_max_length;     /* MC_HANDSHAKE_MAX_LENGTH */
    size_t descriptor_max_bytes;     /* TE_DESCRIPTOR_MAX_BYTES: of one peer's, all pages */
    size_t descriptor_max_buffers;   /* TE_DESCRIPTOR_MAX_BUFFERS: of one peer's */
    bool use_ipv6;                   /* MC_USE_IPV6 */
    bool legacy_rpc_port_binding;    /* MC_LEGACY_RPC_PORT_BINDING */
    int64_t metadata_timeout_ms;     /* TE_METADATA_TIMEOUT_MS: one operation on a store */
    int metadata_ttl_s;        /* TE_METADATA_TTL_S: our keys outlive us so long; 0: for ever */
    size_t metadata_max_value; /* TE_METADATA_MAX_VALUE: of one key, or a list of keys */
    char metadata_token[TEI_CONF_LONG];    /* TE_METADATA_TOKEN: secret */
    char metadata_username[TEI_CONF_TEXT]; /* TE_METADATA_USERNAME */
    char metadata_password[TEI_CONF_LONG]; /* TE_METADATA_PASSWORD: secret */
    char metadata_ca[TEI_CONF_LONG];       /* TE_METADATA_CA: path */
    char metadata_cert[TEI_CONF_LONG];     /* TE_METADATA_CERT: path */
    char metadata_key[TEI_CONF_LONG];      /* TE_METADATA_KEY: path */
    bool proxied; /* the environment names a proxy, which libcurl heeds; for messages */
    char redis_username[TEI_CONF_TEXT]; /* MC_REDIS_USERNAME */
    char redis_password[TEI_CONF_LONG]; /* MC_REDIS_PASSWORD: secret */
    int redis_db_index;                 /* MC_REDIS_DB_INDEX */

    /* tcp */
    char tcp_bind_address[TEI_CONF_TEXT]; /* MC_TCP_BIND_ADDRESS: advertised address */
    char tcp_congestion[TEI_CONF_TEXT];   /* TE_TCP_CONGESTION: "" is the system's */
    int tcp_zerocopy;                     /* TE_TCP_ZEROCOPY */
    bool tcp_native;                      /* TE_TCP_NATIVE */
    bool tcp_crc32c;                      /* TE_TCP_CRC32C */
    char tcp_addresses[TEI_CONF_TEXT];    /* TE_TCP_ADDRESSES */
    bool tcp_pool;                        /* MC_TCP_ENABLE_CONNECTION_POOL */
    int tcp_lanes;                        /* MC_TCP_LANES_PER_PEER */
    int tcp_max_queued;                   /* MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER */
    int tcp_max_pending;                  /* MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER */
    int64_t tcp_admission_timeout_ms;     /* MC_TCP_ADMISSION_TIMEOUT_MS */
    size_t tcp_slice_size;                /* MC_TCP_SLICE_SIZE: bytes per read/write call */
    bool tcp_force_v1;                    /* MC_TCP_PROTO=1 */
    int64_t tcp_status_timeout_ms;        /* MC_TCP_STATUS_TIMEOUT_SEC (seconds) */
    int tcp_threads;                      /* TE_TCP_THREADS: I/O workers; 0: automatic */
    int tcp_spin_us;       /* TE_TCP_SPIN_US: a worker looks so long for events before it sleeps */
    size_t tcp_piece_size; /* TE_TCP_PIECE_SIZE: a request is split into pieces over lanes */
    int tcp_max_sessions;  /* TE_TCP_MAX_SESSIONS: connections served at once */

    /* who peers are */
    char auth[TEI_CONF_TEXT];         /* TE_AUTH */
    char auth_keys[TEI_CONF_LONG];    /* TE_AUTH_KEYS: path */
    char auth_ca[TEI_CONF_LONG];      /* TE_AUTH_CA: path, as the next three */
    char auth_cert[TEI_CONF_LONG];    /* TE_AUTH_CERT */
    char auth_key[TEI_CONF_LONG];     /* TE_AUTH_KEY */
    char auth_crl[TEI_CONF_LONG];     /* TE_AUTH_CRL */
    char auth_classic[TEI_CONF_LONG]; /* TE_AUTH_CLASSIC: list of networks */
    struct tei_auth *identity;        /* what the engine made of these; NULL: off */

    bool multi_protocol; /* TE_MULTI_PROTOCOL: tell tcp and rdma beside each other */

    /* the path within a host */
    bool host_path;          /* TE_HOST_PATH */
    bool host_any_namespace; /* TE_HOST_ANY_NAMESPACE */
    int host_threads;        /* TE_HOST_THREADS: copying workers; 0: automatic */
    int64_t host_timeout_ms; /* TE_HOST_TIMEOUT_MS: greeting a peer */

    /* rdma */
    char ibverbs_path[TEI_CONF_LONG]; /* TE_IBVERBS_PATH: the library to open */
    char mlx5_path[TEI_CONF_LONG];    /* TE_MLX5_PATH: the same of libmlx5 */
    int num_cq_per_ctx, num_comp_channels_per_ctx, max_cqe_per_ctx, max_ep_per_ctx;
    int workers_per_ctx, num_qp_per_ep, max_sge, max_wr, max_inline, mtu;
    int ib_port, ib_tc, ib_sl, gid_index, auto_gid_max_retries, pkey_index, relaxed_ordering;
    size_t max_mr_size;
    int parallel_reg_mr, max_concurrent_reg_mr, rail_pause_s, slice_timeout_s;
    int64_t conn_pause_ttl_ms;
    bool endpoint_store_fifo, path_roundrobin, dest_device_affinity, hca_peer_affinity;
    bool log_slice_affinity, track_posted_slices, mlx5_lag_port_balance;
    char nic_peer_affinity[TEI_CONF_LONG]; /* MC_NIC_PEER_AFFINITY: "local=peer[,peer];..." */
    char rdma_bind_address[TEI_CONF_TEXT]; /* MC_RDMA_BIND_ADDRESS: server part of NIC paths */
    char mlx5_udp_sports[TEI_CONF_TEXT];   /* MC_MLX5_QP_UDP_SPORTS: list */

    /* files (nvmeof) */
    char file_paths[TEI_CONF_LONG]; /* TE_FILE_PATHS: "/a:/b" */
    bool file_direct;               /* TE_FILE_DIRECT: past the page cache */
    bool file_flush;  /* TE_FILE_FLUSH: a write ends once it would outlive a power cut */
    bool file_uring;  /* TE_FILE_URING */
    bool file_pin;    /* TE_FILE_PIN */
    bool file_cufile; /* TE_FILE_CUFILE */
    int file_depth;   /* TE_FILE_DEPTH: I/O requests under way to one file */
    int file_threads; /* TE_FILE_THREADS: where there is no io_uring */

    /* memory of GPUs and other devices */
    size_t gpu_stage;                 /* TE_GPU_STAGE: bytes */
    bool nvidia_peermem;              /* WITH_NVIDIA_PEERMEM */
    bool use_nvlink_ipc;              /* MC_USE_NVLINK_IPC */
    bool use_hip_ipc;                 /* MC_USE_HIP_IPC */
    int gpu_mappings;                 /* TE_GPU_MAPPINGS: allocations of peers */
    bool disable_hip_dmabuf;          /* MOONCAKE_DISABLE_HIP_DMABUF */
    int hip_streams, hip_events;      /* MC_HIP_NUM_STREAMS, MC_HIP_NUM_EVENTS */
    int musa_streams, musa_events;    /* MC_MUSA_NUM_STREAMS, MC_MUSA_NUM_EVENTS */
    bool gpu_pin;                     /* TE_GPU_PIN */
    bool gpu_kernel;                  /* TE_GPU_KERNEL */
    char cxl_dev_path[TEI_CONF_LONG]; /* MC_CXL_DEV_PATH */
    size_t cxl_dev_size;              /* MC_CXL_DEV_SIZE; 0: ask the device */

    uint8_t sources[TEI_CONF_ROWS]; /* where row i's value is from; see conf.c */
};

struct te_option_list;

/*
 * Defaults, environment, `set` (may be NULL). On a bad explicit value, or one of the environment of an option
 * without a fallback: the error, *out undefined.
 */
int tei_conf_load(const struct te_option_list *set, struct tei_conf *out);

/* One value as text, of at most TEI_CONF_LONG bytes with its end; TE_ERR_NOT_FOUND. */
int tei_conf_get(const struct te_option_list *set, const char *name, char *buf, size_t n);

/*
 * Checks one name and value against the table without keeping it: TE_ERR_NOT_FOUND,
 * TE_ERR_INVALID or 0. Rules that span rows are checked by tei_conf_load().
 */
int tei_conf_check(const char *name, const char *value);

/* te_option_set()'s storage. A later value of a row replaces the earlier one. */
int tei_option_list_add(struct te_option_list **list, const char *name, const char *value);
void tei_option_list_free(struct te_option_list *list);

/*
 * The names of all variables that begin with MC_ or TE_, are set and have no effect, with the option
 * that may be meant; how many. As many as fit in `n` bytes, at least 64, are named.
 */
size_t tei_conf_unused(char *buf, size_t n);

/* Warns of them, the first time that a process calls it; once the log is set up. */
void tei_conf_tell_unused(void);

/* One row as text, for te_info and docs/config.md. Pointers are to static strings. */
struct tei_conf_row {
    const char *section; /* rows of a section follow each other */
    const char *about;   /* what to know of the section; only in its first row, else NULL */
    const char *name, *alias, *unit, *help; /* alias and unit: NULL when there is none */
    const char *source;                     /* "default", "environment", "option" */
    const char *fallback;                   /* the default */
    bool secret, idle;                      /* idle: nothing reads it in this version */
    char value[TEI_CONF_LONG], range[128];
};

/* Row number i of a loaded configuration; false past the end. Secrets are shown as "***". */
bool tei_conf_row(const struct tei_conf *c, size_t i, struct tei_conf_row *out);

#endif
