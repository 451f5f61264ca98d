/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - every option there is. docs/config.md and man/man5/transfer_engine.5 are printed from
 * here: after a change, run make docs.
 */
#include "conf/table.h"

#include "base/log.h"

#include <string.h>

#define MIB(n) (INT64_C(n) << 20)
#define GIB(n) (INT64_C(n) << 30)
#define DAY_S  86400
#define DAY_MS (DAY_S * 1000)

/* The member's type picks how it is stored, so a row cannot disagree with the struct. */
// clang-format off
#define STORE_AS(member)                                                                           \
    _Generic((member), bool: TEI_AS_BOOL, int: TEI_AS_INT, int64_t: TEI_AS_INT64,                  \
             size_t: TEI_AS_SIZE, uint16_t: TEI_AS_U16, char *: TEI_AS_TEXT)
// clang-format on
#define MEMBER(m) .offset = offsetof(struct tei_conf, m), .as = STORE_AS(((struct tei_conf *)0)->m)

#define ROW(n, m, k, f) .name = (n), MEMBER(m), .kind = TEI_KIND_##k, .fallback = (f)

#define SWITCH(n, m, f)         ROW(n, m, SWITCH, f)
#define NUMBER(n, m, f, lo, hi) ROW(n, m, NUMBER, f), .min = (lo), .max = (hi)
#define SIZE(n, m, f, lo, hi)   ROW(n, m, SIZE, f), .min = (lo), .max = (hi), .unit = "bytes"
#define WORD(n, m, f, w)        ROW(n, m, WORD, f), .words = (w)
#define TEXT(n, m)              ROW(n, m, TEXT, ""), .max = sizeof(((struct tei_conf *)0)->m) - 1

static const struct tei_word mtu_words[] = {
    {"512", 512}, {"1024", 1024}, {"2048", 2048}, {"4096", 4096}, {0}};
static const struct tei_word store_words[] = {{"SIEVE", false}, {"FIFO", true}, {0}};
static const struct tei_word zerocopy_words[] = {
    {"off", TEI_ZEROCOPY_OFF}, {"auto", TEI_ZEROCOPY_AUTO}, {"on", TEI_ZEROCOPY_ON}, {0}};
static const struct tei_word format_words[] = {
    {"glog", TEI_LOG_GLOG}, {"iso", TEI_LOG_ISO}, {"json", TEI_LOG_JSON}, {0}};
static const struct tei_word proto_words[] = {{"1", true}, {"2", false}, {0}};

const struct tei_option_row tei_option_rows[] = {
    {SWITCH("MC_FORCE_TCP", force_tcp, "off"), .section = "Choice of transports",
     .about =
         "Read when an engine with auto_discover is made. Two MC_FORCE_ options that are on exclude "
         "each other: no engine is made.",
     .help = "Use TCP, whatever other devices there are."},
    {SWITCH("MC_FORCE_HCA", force_hca, "off"),
     .help = "Use RDMA, and fail where there is no RDMA device."},
    {SWITCH("MC_FORCE_MNNVL", force_mnnvl, "off"),
     .help = "Use NVLink between nodes, whatever RDMA devices there are."},
    {SWITCH("MC_INTRA_NVLINK", intra_nvlink, "off"), .alias = "MC_INTRANODE_NVLINK",
     .help = "Use NVLink within the node. Not together with MC_FORCE_MNNVL; MC_FORCE_TCP has "
             "precedence over it, and it over MC_FORCE_HCA."},
    {SWITCH("MC_FORCE_MUSA", force_musa, "off"),
     .help = "Use the transport musa, whatever RDMA devices there are."},
    {SWITCH("MC_DISABLE_HIP", disable_hip, "off"),
     .help = "Do not share HIP memory with peers: no transport hip."},
    {SWITCH("MC_DISABLE_MUSA", disable_musa, "off"),
     .help = "Do not share MUSA memory with peers: no transport musa."},
    {SWITCH("MC_DISABLE_MACA", disable_maca, "off"),
     .help = "Do not share MACA memory with peers: no transport maca."},
    {TEXT("MC_TE_FILTERS", filters),
     .help = "Names of the NICs to use, separated by commas. Empty: all."},
    {TEXT("MC_TE_FILTERS_EXCLUDE", filters_exclude),
     .help = "Names of NICs to leave out, separated by commas, be they in MC_TE_FILTERS."},
    {TEXT("MC_CUSTOM_TOPO_JSON", custom_topology),
     .help = "Path of a file with the NIC priority matrix, used instead of what discovery finds."},
    {ROW("TE_SYSFS_PATH", sysfs_path, TEXT, "/sys"),
     .max = sizeof(((struct tei_conf *)0)->sysfs_path) - 1,
     .help = "Folder that discovery reads NICs and NUMA nodes from, for tests and containers. "
             "Another one than /sys tells of GPUs only by a file hwloc.xml in it: a machine as "
             "hwloc writes it to XML."},
    {ROW("TE_DEV_PATH", dev_path, TEXT, "/dev"),
     .max = sizeof(((struct tei_conf *)0)->dev_path) - 1,
     .help = "Folder with the device nodes of RDMA NICs (infiniband/uverbsN)."},

    {SIZE("MC_SLICE_SIZE", slice_size, "65536", 1, GIB(1)), .section = "Requests",
     .about = "How requests are cut, tried again and given up.",
     .help = "Transports that cut requests into slices cut them this long."},
    {NUMBER("MC_FRAGMENT_RATIO", fragment_ratio, "4", 1, GIB(1)),
     .help = "A last slice (or piece, TE_TCP_PIECE_SIZE) no longer than the slice's length divided "
             "by this is merged into the one before it. Must be less than MC_SLICE_SIZE."},
    {NUMBER("MC_RETRY_CNT", retry_cnt, "9", 0, 127), .unit = "retries",
     .help = "Attempts per piece of work after the first one, before its request fails."},
    {NUMBER("TE_TRANSFER_TIMEOUT_MS", transfer_timeout_ms, "30000", 0, DAY_MS), .unit = "ms",
     .help = "A request that makes no progress for so long fails (TE_ERR_TIMEOUT). 0: never."},
    {NUMBER("MC_TRANSFER_TIMEOUT", sync_timeout_ms, "30", 5, DAY_S), .unit = "s", .scale = 1000,
     .help = "How long a blocking transfer call of a language binding waits in total."},
    {NUMBER("TE_SPIN_US", spin_us, "20", 0, 1000000), .unit = "us",
     .help = "te_wait() looks for so long for the next event before it sleeps; less often on a "
             "connection where that has been in vain. 0: it sleeps at once."},

    {ROW("MC_LOG_LEVEL", log_level, LEVEL, ""), .section = "Log",
     .about = "These are of the process, not of one engine: the last engine made decides.",
     .help = "Lines below this level are dropped. Empty: WARNING, or what te_log_set_level() said. "
             "WARN is another name of WARNING."},
    {SWITCH("MC_VERBOSE", verbose, "off"),
     .help = "Older name: on is MC_LOG_LEVEL=TRACE, where MC_LOG_LEVEL is not given."},
    {TEXT("MC_LOG_DIR", log_dir),
     .help = "Directory for log files. Empty, or not writable: standard error."},
    {TEXT("TE_LOG_FILE", log_file),
     .help =
         "File for the lines, appended to: a regular file or a character device, and no symbolic "
         "link where %p in it becomes the number of the process. Instead of MC_LOG_DIR."},
    {SWITCH("TE_LOG_REOPEN", log_reopen, "off"),
     .help =
         "Open the log file anew after SIGHUP, when the next line is written, for logrotate. For "
         "programs that have no handler of that signal. If that fails, lines go on to the old one, "
         "and it is tried again each second."},
    {WORD("TE_LOG_FORMAT", log_format, "glog", format_words),
     .help =
         "How a line begins: glog (W1120 13:50:01.123456 THREAD te]), which is what programs that read "
         "the logs of Mooncake's engines know, and so the default; iso (date, time and zone by "
         "ISO 8601, level, process and thread), or json: an object with time, level, pid, tid, "
         "dropped (lines left out before this one) and message."},
    {SWITCH("MC_TE_METRIC", metric, "off"),
     .help =
         "Log a line of throughput figures at an interval: what this engine moves, and what it serves "
         "to peers. What these take by themselves, by RDMA or within the host, it does not see."},
    {NUMBER("MC_TE_METRIC_INTERVAL_SECONDS", metric_interval_s, "5", 1, DAY_S), .unit = "s",
     .help = "The interval of MC_TE_METRIC."},
    {NUMBER("TE_SLOW_MS", slow_ms, "0", 0, DAY_MS), .unit = "ms",
     .help =
         "Log a line at WARN for each request that takes longer from submit, or from when what it waits for by "
         "te_submit_opts.after is done, to end: how long it waited for a descriptor and for its transport, how long it was moved, what was tried again, by which NICs or "
         "addresses. Likewise for each that is served by TCP and has a trace context: how long that took. At most "
         "five lines of each a second, with the number of those left out. 0: off."},

    {TEXT("TE_METRICS", metrics), .section = "Metrics",
     .about = "What an engine tells to Prometheus.",
     .help =
         "Serve the metrics (docs/metrics.md) over HTTP at ADDRESS:PORT, under /metrics; :PORT is for "
         "this host alone, port 0 any free one, which the log tells at INFO. Or file:/PATH: write them "
         "there every 10 s, for node_exporter; %p in it becomes the number of the process, %e one of the "
         "engine, for processes with several. Whoever reaches the port can read them. Empty: neither."},
    {SWITCH("TE_TOP", top, "on"),
     .help =
         "Show the metrics to te_top, run by the same user or by root on this host: over a unix "
         "socket without a place in a folder."},

    {SWITCH("MC_DISABLE_METACACHE", disable_metacache, "off"), .section = "Metadata and handshake",
     .about = "How engines find each other.",
     .help = "Fetch a peer's descriptor for every submit instead of keeping it."},
    {NUMBER("MC_TE_METADATA_REFRESH_INTERVAL_SECONDS", metadata_refresh_s, "0", 0, DAY_S),
     .unit = "s", .help = "Fetch the descriptors of all open segments at this interval. 0: never."},
    {SWITCH("TE_MULTI_PROTOCOL", multi_protocol, "off"),
     .help =
         "An engine that has both rdma and tcp publishes its memory for both, in a descriptor of "
         "several protocols. Mooncake's engines read that only if they were built with "
         "ENABLE_MULTI_PROTOCOL, and the first release of this library, 0.1.0, does not."},
    {TEXT("MC_METADATA_CLUSTER_ID", cluster_id),
     .help = "Put in front of every key of the metadata server, so that clusters can share one."},
    {NUMBER("MC_MIN_RPC_PORT", min_rpc_port, "15000", 1024, 65535), .alias = "MC_MIN_PRC_PORT",
     .help = "Lowest port for the handshake and data listeners. The range must not touch "
             "32768-60999, which the kernel hands out to outgoing connections."},
    {NUMBER("MC_MAX_RPC_PORT", max_rpc_port, "17000", 1024, 65535), .alias = "MC_MAX_PRC_PORT",
     .help = "Highest such port."},
    {NUMBER("MC_HANDSHAKE_PORT", handshake_port, "12001", 1, 65535),
     .help = "The port of a peer whose name has none."},
    {NUMBER("MC_HANDSHAKE_LISTEN_BACKLOG", handshake_backlog, "4096", 1, 65535),
     .unit = "connections",
     .help = "Backlog of the handshake listener, or net.core.somaxconn if that is less."},
    {TEXT("TE_BIND", bind),
     .help =
         "Address of this host, in numbers, or name of a network interface, that all ports are "
         "opened on, and that peers are told where nothing else says which. Empty: all addresses."},
    {NUMBER("MC_HANDSHAKE_CONNECT_TIMEOUT", handshake_connect_timeout_s, "5", 1, 3599), .unit = "s",
     .help = "How long one attempt to reach a peer's handshake port may take."},
    {SIZE("MC_HANDSHAKE_MAX_LENGTH", handshake_max_length, "1048576", MIB(1), MIB(128)),
     .help = "Longest handshake message that is read. To be raised where engines of another make "
             "register more than about 10,000 buffers."},
    {SIZE("TE_DESCRIPTOR_MAX_BYTES", descriptor_max_bytes, "268435456", MIB(1), GIB(2)),
     .help =
         "Longest descriptor of one peer that is read, all its pages together. While it is read "
         "it takes at most three times its bytes of memory, and 8 MiB."},
    {NUMBER("TE_DESCRIPTOR_MAX_BUFFERS", descriptor_max_buffers, "4194304", 1024, GIB(1)),
     .unit = "buffers", .help = "Most buffers that one peer's descriptor may have."},
    {SWITCH("MC_USE_IPV6", use_ipv6, "off"),
     .help = "Prefer an IPv6 address where one is chosen for this engine."},
    {SWITCH("MC_LEGACY_RPC_PORT_BINDING", legacy_rpc_port_binding, "off"),
     .help = "A local_server_name without a port asks for port MC_HANDSHAKE_PORT."},
    {NUMBER("TE_METADATA_TIMEOUT_MS", metadata_timeout_ms, "3000", 1, 600000), .unit = "ms",
     .help = "How long one operation on the metadata server may take."},
    {NUMBER("TE_METADATA_TTL_S", metadata_ttl_s, "10", 0, DAY_S), .unit = "s",
     .help = "The keys of an engine that died vanish from the metadata server after so long. 0: "
             "they stay."},
    {SIZE("TE_METADATA_MAX_VALUE", metadata_max_value, "16777216", 65536, MIB(512)),
     .help = "Largest value, or list of keys, that is taken from a metadata server, and largest "
             "descriptor that is put there. To be raised on all engines where one registers more "
             "than about 150,000 buffers."},
    {TEXT("TE_METADATA_TOKEN", metadata_token), .secret = true,
     .help = "Bearer token for an http metadata server. Empty: none is sent."},
    {TEXT("TE_METADATA_USERNAME", metadata_username), .help = "User for the etcd metadata server."},
    {TEXT("TE_METADATA_PASSWORD", metadata_password), .secret = true,
     .help = "Password for the etcd metadata server."},
    {TEXT("TE_METADATA_CA", metadata_ca),
     .help = "File of the certificates (PEM) that an https or etcds metadata server is checked "
             "against. Empty: the system's."},
    {TEXT("TE_METADATA_CERT", metadata_cert),
     .help = "File of the certificate (PEM) that this engine shows to the metadata server."},
    {TEXT("TE_METADATA_KEY", metadata_key), .help = "File of its private key (PEM)."},
    {TEXT("MC_REDIS_USERNAME", redis_username), .help = "User for the redis metadata server."},
    {TEXT("MC_REDIS_PASSWORD", redis_password), .secret = true,
     .help = "Password for the redis metadata server. Empty: no login."},
    {NUMBER("MC_REDIS_DB_INDEX", redis_db_index, "0", 0, 255),
     .help = "Database of the redis metadata server."},

    {ROW("TE_AUTH", auth, TEXT, "off"), .max = sizeof(((struct tei_conf *)0)->auth) - 1,
     .section = "Identity", .strict = true,
     .about = "Who peers are, and which of them may come. See docs/security-howto.md.",
     .help =
         "off: whoever reaches a port of the engine is trusted, as Mooncake's engines do. psk: peers "
         "prove that they have a key of TE_AUTH_KEYS, and so does this engine, before anything else is "
         "said. mtls: they show certificates (TE_AUTH_CA, TE_AUTH_CERT, TE_AUTH_KEY), and that of an engine must "
         "be of the name of its segment, or of its host. Both need OpenSSL 3. What cannot be done is an error: no "
         "engine is made."},
    {TEXT("TE_AUTH_KEYS", auth_keys), .strict = true,
     .help =
         "Path of a file with lines ID:KEY, a key being 32 to 64 random bytes in base64. The first is what "
         "this engine shows, the others are those who may come; the first may be repeated. Nobody but "
         "its owner may reach it. It is looked at once a second, and read again when it has changed."},
    {TEXT("TE_AUTH_CA", auth_ca), .strict = true,
     .help =
         "With TE_AUTH=mtls: file (PEM) of the certificates of authorities. Whom one of them has signed may come. "
         "This file and the next three are looked at once a second, and read again when one has changed."},
    {TEXT("TE_AUTH_CERT", auth_cert), .strict = true,
     .help =
         "With TE_AUTH=mtls: file (PEM) of this engine's certificate, and those between it and the authority. Its "
         "subject alternative names (DNS or IP) are the segment name, or the host that peers open it by; it is "
         "for both clients and servers."},
    {TEXT("TE_AUTH_KEY", auth_key), .strict = true,
     .help =
         "With TE_AUTH=mtls: file (PEM) of its private key, without a passphrase. Nobody but its owner may reach it."},
    {TEXT("TE_AUTH_CRL", auth_crl), .strict = true,
     .help =
         "With TE_AUTH=mtls: file (PEM) of the authorities' lists of revoked certificates. While one of them is "
         "missing or outdated, its certificates are refused. Empty: nothing is revoked."},
    {TEXT("TE_AUTH_CLASSIC", auth_classic), .strict = true,
     .help =
         "With TE_AUTH=psk or mtls: addresses and networks (10.1.0.0/16,fd00::7) of engines that have no keys. They "
         "are spoken to, and served, on both ports as with TE_AUTH=off. Empty: none."},

    {TEXT("MC_TCP_BIND_ADDRESS", tcp_bind_address), .section = "TCP", .about = "The tcp transport.",
     .help = "Address told to peers where ip_or_host_name gives none. Empty: that of "
             "local_server_name, else one found. Where to listen is for TE_BIND to say."},
    {SWITCH("MC_TCP_ENABLE_CONNECTION_POOL", tcp_pool, "on"),
     .help = "Keep connections to a peer for the next request. Off: one connection a request."},
    {NUMBER("MC_TCP_LANES_PER_PEER", tcp_lanes, "4", 1, 16), .unit = "connections",
     .alias = "MC_TCP_MAX_CONNECTIONS_PER_PEER",
     .help = "Connections to one peer at most. Within a host the native framing opens no more than "
             "one for each thread (TE_TCP_THREADS), unless the peer tells further addresses."},
    {NUMBER("MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER", tcp_max_queued, "1024", 1, 65535),
     .unit = "requests", .idle = true,
     .help = "Requests to one peer that may wait for a connection."},
    {NUMBER("MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER", tcp_max_pending, "1024", 1, 65535),
     .unit = "requests", .idle = true,
     .help =
         "Requests that may wait for a place in that queue, MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER."},
    {NUMBER("MC_TCP_ADMISSION_TIMEOUT_MS", tcp_admission_timeout_ms, "1000", 1, 600000),
     .unit = "ms", .idle = true, .help = "How long they may wait for that place."},
    {SIZE("MC_TCP_SLICE_SIZE", tcp_slice_size, "1048576", 1, GIB(1)),
     .help = "Bytes of one read or write call. Not seen by the peer."},
    {WORD("MC_TCP_PROTO", tcp_force_v1, "2", proto_words),
     .help = "1: never use the acknowledged framing, whatever the peer can do."},
    {NUMBER("MC_TCP_STATUS_TIMEOUT_SEC", tcp_status_timeout_ms, "30", 1, DAY_S), .unit = "s",
     .scale = 1000, .help = "How long a peer may take to acknowledge."},
    {SWITCH("TE_TCP_NATIVE", tcp_native, "on"),
     .help = "Speak the native framing with engines of this project; off, or MC_TCP_PROTO=1 or "
             "MC_TCP_ENABLE_CONNECTION_POOL=0: what others speak."},
    {SWITCH("TE_TCP_CRC32C", tcp_crc32c, "off"),
     .help = "Native framing: a checksum with every frame of the connections this engine opens."},
    {WORD("TE_TCP_ZEROCOPY", tcp_zerocopy, "auto", zerocopy_words),
     .help =
         "Native framing: let the network card read a WRITE's data from where it lies "
         "(MSG_ZEROCOPY). auto: not within a host, and no more once the kernel says that it had "
         "to copy."},
    {TEXT("TE_TCP_ADDRESSES", tcp_addresses),
     .help = "Native framing: addresses of this host, separated by commas, that peers are to use "
             "beside the one they know, all at once. Empty: those of its other network cards."},
    {ROW("TE_TCP_CONGESTION", tcp_congestion, TEXT, ""), .max = 15,
     .help = "Congestion control of data connections. Empty: the system's; within a host reno."},
    {NUMBER("TE_TCP_THREADS", tcp_threads, "0", 0, 64), .unit = "threads",
     .help = "I/O threads. 0: one per core, at most 4."},
    {NUMBER("TE_TCP_SPIN_US", tcp_spin_us, "0", 0, 1000000), .unit = "us",
     .help = "A thread for data connections looks for so long for the next event before it sleeps: "
             "for services whose latency counts and that have cores to spare, as each thread that "
             "is in use takes a core of its own. 0: it sleeps at once."},
    {SIZE("TE_TCP_PIECE_SIZE", tcp_piece_size, "4194304", 1, GIB(1024)),
     .help = "Longer requests are split into pieces of this length over the peer's connections."},
    {NUMBER("TE_TCP_MAX_SESSIONS", tcp_max_sessions, "4096", 1, 1048576), .unit = "connections",
     .help = "Connections of peers served at once."},

    {SWITCH("TE_HOST_PATH", host_path, "on"), .section = "Same host",
     .about = "The host transport: engines of other processes of this host.",
     .help = "Install it beside a transport to other engines, so that it carries what is for this "
             "host. MC_FORCE_TCP leaves it out too."},
    {SWITCH("TE_HOST_ANY_NAMESPACE", host_any_namespace, "off"),
     .help =
         "Share memory also with processes of the same user, or root, in other user, pid or mount "
         "namespaces, and with those of which it is not known. Both sides must say so."},
    {NUMBER("TE_HOST_THREADS", host_threads, "0", 0, 16), .unit = "threads",
     .help = "Threads that copy. 0: one per core, at most 4."},
    {NUMBER("TE_HOST_TIMEOUT_MS", host_timeout_ms, "200", 1, 60000), .unit = "ms",
     .help = "How long the peer's process may take to greet; the next transport carries its "
             "requests then."},

    {TEXT("TE_IBVERBS_PATH", ibverbs_path), .section = "RDMA",
     .about = "The rdma transport. \"Context\" is one NIC, \"endpoint\" one peer NIC as seen from "
              "it.",
     .help = "The library to open instead of libibverbs.so.1."},
    {TEXT("TE_MLX5_PATH", mlx5_path),
     .help = "The library to open instead of libmlx5.so.1, which is opened for MC_MLX5_... alone."},
    {NUMBER("MC_NUM_CQ_PER_CTX", num_cq_per_ctx, "1", 1, 255),
     .help = "Completion queues per context. Each thread has one at least."},
    {NUMBER("MC_NUM_COMP_CHANNELS_PER_CTX", num_comp_channels_per_ctx, "1", 1, 255),
     .help =
         "Completion channels per context. Each has a thread of its own, and each thread a channel: "
         "there are as many as this or MC_WORKERS_PER_CTX says, whichever is more."},
    {NUMBER("MC_MAX_CQE_PER_CTX", max_cqe_per_ctx, "4096", 1, 65535),
     .help = "Entries of a completion queue."},
    {NUMBER("MC_MAX_EP_PER_CTX", max_ep_per_ctx, "65536", 1, 65536),
     .help =
         "Endpoints that have queue pairs, per context; fewer if the device has no more. Another one "
         "takes the place of one that is chosen by MC_ENDPOINT_STORE_TYPE."},
    {NUMBER("MC_WORKERS_PER_CTX", workers_per_ctx, "2", 1, 8), .unit = "threads",
     .help =
         "Threads that wait for completions, per context, on the CPUs of its NUMA node where that is "
         "known."},
    {NUMBER("MC_NUM_QP_PER_EP", num_qp_per_ep, "2", 1, 255),
     .help = "Queue pairs per endpoint. Must be the same at the peer."},
    {NUMBER("MC_MAX_SGE", max_sge, "4", 1, 65535),
     .help =
         "Scatter entries that queue pairs are made for, or what the device allows if that is less. "
         "The engine uses one."},
    {NUMBER("MC_MAX_WR", max_wr, "256", 1, 65535),
     .help = "Work requests per queue pair, or what the device allows if that is less."},
    {NUMBER("MC_MAX_INLINE", max_inline, "64", 0, 65535), .unit = "bytes",
     .help =
         "Longest write from the memory of a CPU whose data goes with its work request. 0: none."},
    {WORD("MC_MTU", mtu, "4096", mtu_words), .unit = "bytes",
     .help = "Path MTU, or what the port has if that is less."},
    {NUMBER("MC_IB_PORT", ib_port, "1", 1, 255),
     .help = "Port of the NIC. A NIC without it is not used."},
    {NUMBER("MC_IB_TC", ib_tc, "-1", -1, 255),
     .help =
         "Traffic class. -1: the type of service that the system has for connections of the port "
         "(default_roce_tos of rdma_cm in configfs), else 0."},
    {NUMBER("MC_IB_SL", ib_sl, "-1", -1, 15),
     .help =
         "Service level. -1: the precedence of that type of service, its upper 3 bits, else 0."},
    {NUMBER("MC_GID_INDEX", gid_index, "-1", -1, 255), .alias = "NCCL_IB_GID_INDEX",
     .help = "Entry of the port's GID table. -1: the one most likely to reach others."},
    {NUMBER("MC_AUTO_GID_MAX_RETRIES", auto_gid_max_retries, "2", 0, 16),
     .help =
         "Other GIDs that are tried where a device refuses to connect from the one that was chosen."},
    {NUMBER("MC_PKEY_INDEX", pkey_index, "0", 0, 65535),
     .help = "Entry of the port's partition key table."},
    {NUMBER("MC_IB_PCI_RELAXED_ORDERING", relaxed_ordering, "0", 0, 2),
     .help = "Relaxed PCIe ordering of registered memory. 0: off. 1, 2: on where the library can."},
    {SIZE("MC_MAX_MR_SIZE", max_mr_size, "1099511627776", 1, INT64_MAX),
     .help =
         "Longer buffers are registered in parts of this length, or of what the devices allow."},
    {NUMBER("MC_ENABLE_PARALLEL_REG_MR", parallel_reg_mr, "-1", -1, 1),
     .help = "Register memory at several NICs at a time. 0: no. 1: yes. -1: yes if there are "
             "several NICs and the memory has been touched before."},
    {NUMBER("MC_MAX_CONCURRENT_REG_MR", max_concurrent_reg_mr, "0", 0, 65535), .unit = "calls",
     .help = "Register memory at no more NICs than this at a time. 0: no bound."},
    {NUMBER("MC_RDMA_RAIL_PAUSE_SECONDS", rail_pause_s, "30", 1, 3599), .unit = "s",
     .help =
         "The longest that a path which failed is left alone. It begins with 0.1 s, 0.01 s where there "
         "is no other, and doubles with each failure."},
    {NUMBER("MC_SLICE_TIMEOUT", slice_timeout_s, "-1", -1, 65535), .unit = "s",
     .help =
         "A request no slice of which came back for so long ends with TIMEOUT. -1 or 0: never, but for "
         "TE_TRANSFER_TIMEOUT_MS."},
    {NUMBER("MC_CONN_PAUSE_TTL_MS", conn_pause_ttl_ms, "0", 0, 600000), .unit = "ms",
     .help =
         "No new connection to a peer for so long after it could not be reached; requests that need "
         "one fail. 0: off."},
    {WORD("MC_ENDPOINT_STORE_TYPE", endpoint_store_fifo, "SIEVE", store_words),
     .help =
         "Which endpoint makes room when there are too many: FIFO, the oldest; SIEVE, an old one that "
         "was not used of late."},
    {SWITCH("MC_PATH_ROUNDROBIN", path_roundrobin, "off"),
     .help =
         "Take paths that have room in turn, instead of the one that will be done first by what "
         "was measured."},
    {SWITCH("MC_ENABLE_DEST_DEVICE_AFFINITY", dest_device_affinity, "off"),
     .help =
         "Talk to the peer's NIC of the same name and to no other, whichever NICs the peer prefers: on "
         "fabrics of rails. While no such pair works, to any."},
    {SWITCH("MC_ENABLE_HCA_PEER_AFFINITY", hca_peer_affinity, "off"),
     .help =
         "Talk to those NICs of the peer that MC_NIC_PEER_AFFINITY names, and to no others while "
         "one of them works."},
    {TEXT("MC_NIC_PEER_AFFINITY", nic_peer_affinity),
     .help = "Which NIC talks to which: local=peer[,peer];local=..."},
    {TEXT("MC_RDMA_BIND_ADDRESS", rdma_bind_address),
     .help = "Server part of this engine's NIC paths. Empty: the segment's name."},
    {TEXT("MC_MLX5_QP_UDP_SPORTS", mlx5_udp_sports),
     .help = "UDP source ports of the queue pairs of an endpoint in turn, separated by commas, by "
             "which switches spread them. Of mlx5 devices only."},
    {SWITCH("MC_MLX5_QP_LAG_PORT_BALANCE", mlx5_lag_port_balance, "off"),
     .help = "Spread queue pairs over the ports of a bond. Of mlx5 devices only."},
    {SWITCH("MC_LOG_RDMA_SLICE_AFFINITY", log_slice_affinity, "off"),
     .help = "Log for each slice, at level INFO, which NICs it goes through. Slow."},
    {SWITCH("MC_TRACK_RDMA_POSTED_SLICES", track_posted_slices, "off"),
     .help = "When an endpoint ends with slices posted, log which, and since when."},

    {TEXT("TE_FILE_PATHS", file_paths), .section = "Files (nvmeof)",
     .help = "Folders, files and devices, separated by colons, at or below which files may be "
             "opened, as below a path given to te_transport_install(). Neither: only file:///PATH, "
             "as te_open() is given it, and nothing that a metadata server names."},
    {SWITCH("TE_FILE_DIRECT", file_direct, "on"),
     .help = "Move data past the page cache (O_DIRECT) where the file system lets us."},
    {SWITCH("TE_FILE_FLUSH", file_flush, "off"),
     .help = "A write is done once it would outlive a loss of power. Off: once the device has it, "
             "perhaps in its cache; where it cannot be direct, once the page cache has it."},
    {SWITCH("TE_FILE_URING", file_uring, "on"),
     .help = "Use io_uring. Off, or where the system refuses it: threads that read and write."},
    {SWITCH("TE_FILE_PIN", file_pin, "on"),
     .help =
         "Register with io_uring the memory that requests use, 32 MiB around each at a time, which "
         "pins it until te_unregister()."},
    {SWITCH("TE_FILE_CUFILE", file_cufile, "on"),
     .help =
         "Move data between files and memory of NVIDIA's GPUs by cuFile (GPUDirect Storage) where "
         "libcufile.so.0 is there. Off, or where it refuses: through host memory."},
    {NUMBER("TE_FILE_DEPTH", file_depth, "32", 1, 256),
     .help = "I/O requests under way to one file at a time."},
    {NUMBER("TE_FILE_THREADS", file_threads, "16", 1, 256),
     .help = "Threads that read and write where io_uring is not used; one file has at most half of "
             "them."},

    {SWITCH("WITH_NVIDIA_PEERMEM", nvidia_peermem, "on"),
     .section = "Memory of GPUs and CXL devices",
     .about = "docs/gpu.md tells of GPUs. There is no transport for CXL devices.",
     .help = "Register CUDA memory through the nvidia-peermem module. Off: through dma-buf."},
    {SWITCH("MC_USE_NVLINK_IPC", use_nvlink_ipc, "off"),
     .help = "Share CUDA memory by IPC handles even where fabric handles work."},
    {SWITCH("MC_USE_HIP_IPC", use_hip_ipc, "on"),
     .help = "Share HIP memory by IPC handles. Off: by shareable handles."},
    {NUMBER("TE_GPU_MAPPINGS", gpu_mappings, "1024", 1, 1048576), .unit = "allocations",
     .help =
         "Device memory of peers that stays mapped, by each transport for such memory. Beyond that the "
         "one unused for longest is unmapped; what is in use never is, so there may be more for a "
         "time."},
    {SWITCH("MOONCAKE_DISABLE_HIP_DMABUF", disable_hip_dmabuf, "off"),
     .help = "Do not register HIP memory through dma-buf."},
    {NUMBER("MC_HIP_NUM_STREAMS", hip_streams, "64", 1, 1024), .unit = "streams", .idle = true,
     .help =
         "HIP streams kept for copies: checked for the sake of Mooncake's scripts, bounds nothing. "
         "This engine opens one for each device and direction when its first copy comes."},
    {NUMBER("MC_HIP_NUM_EVENTS", hip_events, "64", 1, 65535), .unit = "events", .idle = true,
     .help =
         "HIP events kept for copies: checked for the sake of Mooncake's scripts, bounds nothing. "
         "This engine has 64 for each stream, and uses them over and over."},
    {NUMBER("MC_MUSA_NUM_STREAMS", musa_streams, "64", 1, 1024), .unit = "streams", .idle = true,
     .help =
         "MUSA streams kept for copies: checked for the sake of Mooncake's scripts, bounds nothing. "
         "This engine opens one for each device and direction when its first copy comes."},
    {NUMBER("MC_MUSA_NUM_EVENTS", musa_events, "64", 1, 65535), .unit = "events", .idle = true,
     .help =
         "MUSA events kept for copies: checked for the sake of Mooncake's scripts, bounds nothing. "
         "This engine has 64 for each stream, and uses them over and over."},
    {SIZE("TE_GPU_STAGE", gpu_stage, "33554432", MIB(1), GIB(4)),
     .help = "Pinned host memory through which requests from and to device memory pass where a "
             "transport does not reach it; taken when the first such memory is registered."},
    {SWITCH("TE_GPU_PIN", gpu_pin, "on"),
     .help =
         "Lock registered host memory in place for the driver of a GPU, once a copy between the "
         "two is asked for: such copies are faster. Off: never."},
    {SWITCH("TE_GPU_KERNEL", gpu_kernel, "on"),
     .help =
         "Copy many small blocks within a device of NVIDIA's by a kernel, which is up to 15 times faster "
         "than its copy engines, and takes a part of its cores meanwhile. Off: by these engines."},
    {TEXT("MC_CXL_DEV_PATH", cxl_dev_path), .idle = true, .help = "Path of the CXL memory device."},
    {SIZE("MC_CXL_DEV_SIZE", cxl_dev_size, "0", 0, INT64_MAX), .idle = true,
     .help = "Its size. 0: what the system says."},
};

const size_t tei_option_count = TEI_ARRAY_LEN(tei_option_rows);

_Static_assert(TEI_ARRAY_LEN(tei_option_rows) <= TEI_CONF_ROWS, "raise TEI_CONF_ROWS");

const struct tei_option_row *tei_option_find(const char *name)
{
    for (size_t i = 0; i < tei_option_count; i++) {
        const struct tei_option_row *r = &tei_option_rows[i];

        if (strcmp(r->name, name) == 0 || (r->alias && strcmp(r->alias, name) == 0))
            return r;
    }
    return NULL;
}

/*
 * What tests, scripts and builds of this project read, in the processes that they start; a name that
 * ends in an underscore stands for all that begin so. tests/lint/test_options.py looks for others.
 */
static const char *const others[] = {
    "TE_TEST_",                             /* the test suite */
    "TE_FAULT",                             /* the transport that fails by script */
    "TE_GO_TEST_",      "TE_RUST_TEST_",    /* bindings */
    "TE_BIN",                               /* scripts/demo.sh */
    "TE_NETNS",         "TE_ADDRESS",       /* scripts/netlab.sh */
    "TE_TARGETS",       "TE_STEADY_",       /* and scripts/steady.sh */
    "TE_DEVICE_",       "TE_LAB_",          /* tests/device, tests/lab */
    "TE_PAST_",         "TE_SYSTEMS_",      /* tests/past, tests/systems */
    "TE_WHEEL_",        "TE_DEBIAN_MIRROR", /* scripts/wheel.sh and roots of other systems */
    "TE_UBUNTU_MIRROR",
};

bool tei_option_is_others(const char *name)
{
    for (size_t i = 0; i < TEI_ARRAY_LEN(others); i++) {
        size_t len = strlen(others[i]);

        if (strncmp(others[i], name, len) == 0 && (others[i][len - 1] == '_' || !name[len]))
            return true;
    }
    return false;
}
