/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of te_info on made-up hosts: one where all is well, then the same with one thing wrong.
 */
#include "tools/common_colour.c"
#include "tools/common_names.c"
#include "tools/te_info/changed.c"
#include "tools/te_info/check.c"
#include "tools/te_info/check_machine.c"
#include "tools/te_info/check_network.c"
#include "tools/te_info/check_process.c"
#include "tools/te_info/file.c"
#include "tools/te_info/text.c"
#include "test.h"

#include "fake_sysfs.h"

struct rig {
    struct fake_sysfs s;
    char proc[80];
    struct tei_conf conf;
    struct check_host h;
};

static const struct {
    const char *path, *text;
} good_host[] = {
    {"proc/self/limits",
     "Limit                     Soft Limit           Hard Limit           Units\n"
     "Max file size             unlimited            unlimited            bytes\n"
     "Max open files            1024                 1048576              files\n"
     "Max locked memory         unlimited            unlimited            bytes"},
    {"proc/self/status", "Name:\tte_info\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-7"},
    {"proc/self/cgroup", "0::/user.slice/te.service"},
    {"proc/meminfo", "MemTotal:       65536000 kB\nMemAvailable:   33554432 kB"},
    {"proc/sys/net/ipv4/ip_local_port_range", "32768\t60999"},
    {"proc/sys/net/ipv4/ip_local_reserved_ports", ""},
    {"proc/sys/net/ipv4/tcp_congestion_control", "cubic"},
    {"proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic"},
    {"proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno"},
    {"proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456"},
    {"proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304"},
    {"proc/sys/net/core/somaxconn", "4096"},
    {"proc/sys/kernel/yama/ptrace_scope", "0"},
    {"sysfs/class/net/lo/flags", "0x9"},
    {"sysfs/class/net/lo/operstate", "unknown"},
    {"sysfs/class/net/eth0/flags", "0x1003"},
    {"sysfs/class/net/eth0/operstate", "up"},
    {"sysfs/devices/system/cpu/online", "0-7"},
    {"sysfs/devices/system/node/online", "0-1"},
    {"sysfs/devices/system/clocksource/clocksource0/current_clocksource", "tsc"},
    {"sysfs/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm"},
    {"sysfs/fs/cgroup/cgroup.controllers", "cpuset cpu io memory"},
    {"sysfs/fs/cgroup/user.slice/cpu.max", "max 100000"},
    {"sysfs/fs/cgroup/user.slice/te.service/memory.max", "max"},
    {"sysfs/kernel/mm/transparent_hugepage/shmem_enabled",
     "always within_size advise [never] deny force"},
};

static void put(struct rig *r, const char *path, const char *text)
{
    fake_sysfs_write(&r->s, path, text);
}

static void put_namespace(struct rig *r, const char *process, const char *kind,
                          unsigned long number)
{
    char path[128], full[PATH_MAX], target[64];

    snprintf(path, sizeof path, "proc/%s/ns/here", process);
    put(r, path, "");
    snprintf(full, sizeof full, "%s/%s/ns/%s", r->proc, process, kind);
    snprintf(target, sizeof target, "%s:[%lu]", kind, number);
    unlink(full);
    assert_int_equal(symlink(target, full), 0);
}

static void put_limit(struct rig *r, const char *name, const char *soft, const char *hard)
{
    char text[256];

    snprintf(text, sizeof text, "%-25s %-20s %-20s bytes", name, soft, hard);
    put(r, "proc/self/limits", text);
}

static int set_up(void **state)
{
    static struct rig rig;
    struct rig *r = &rig;

    *r = (struct rig){0};
    fake_sysfs_make(&r->s);
    snprintf(r->proc, sizeof r->proc, "%.63s/proc", r->s.root);
    for (size_t i = 0; i < TEI_ARRAY_LEN(good_host); i++)
        put(r, good_host[i].path, good_host[i].text);
    put_namespace(r, "self", "user", FIRST_USER_NS);
    put_namespace(r, "self", "pid", FIRST_PID_NS);
    assert_int_equal(tei_conf_load(NULL, &r->conf), 0);
    snprintf(r->conf.sysfs_path, sizeof r->conf.sysfs_path, "%.79s", r->s.sysfs);
    snprintf(r->conf.dev_path, sizeof r->conf.dev_path, "%.79s", r->s.dev);
    r->h = (struct check_host){.proc = r->proc, .sysfs = r->s.sysfs, .conf = &r->conf};
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    fake_sysfs_remove(&((struct rig *)*state)->s);
    return 0;
}

/* Runs one check. What it says must be these texts; NULL: any. */
static void expect(const struct rig *r, const char *name, enum check_result result,
                   const char *value, const char *remedy)
{
    struct check all[CHECK_MAX];
    const struct check *c = check_find(all, check_run(&r->h, all), name);

    assert_non_null(c);
    if (value)
        assert_string_equal(c->value, value);
    if (remedy)
        assert_string_equal(c->remedy, remedy);
    assert_int_equal(c->result, result);
    assert_int_equal(c->remedy[0] != '\0', result == CHECK_WARN || result == CHECK_FAIL);
}

/* ---------------------------------------------------------------------------------- the good host */

static void all_is_well(void **state)
{
    struct rig *r = *state;
    struct check all[CHECK_MAX];
    size_t n = check_run(&r->h, all);
    char sum[CHECK_TEXT];

    for (size_t i = 0; i < n; i++) {
        if (all[i].result == CHECK_WARN || all[i].result == CHECK_FAIL)
            print_message("%s: %s\n", all[i].name, all[i].value);
        assert_true(all[i].value[0]);
        assert_string_equal(all[i].remedy, "");
    }
    assert_int_equal(check_worst(all, n), CHECK_OK);
    assert_string_equal(check_sum(all, n, sum), TE_USE_URING ? "18 ok" : "17 ok");
    expect(r, "network", CHECK_OK, "up: eth0", "");
    expect(r, "CPUs", CHECK_OK, "8 of 8; NUMA nodes 0-1", "");
    expect(r, "memory", CHECK_OK, "32 GiB available", "");
    expect(r, "RDMA NICs", CHECK_ABSENT, NULL, "");
    expect(r, "GPUs", CHECK_ABSENT, "none", "");
}

/* A kernel, or a sandbox, that shows nothing: what is not known is no warning. */
static void nothing_is_told(void **state)
{
    struct rig *r = *state;
    struct check all[CHECK_MAX];

    r->h.proc = r->h.sysfs = "/nonexistent";
    snprintf(r->conf.sysfs_path, sizeof r->conf.sysfs_path, "/nonexistent");
    assert_int_equal(check_worst(all, check_run(&r->h, all)), CHECK_OK);
}

TEST(sums)
{
    static const struct check all[] = {{.result = CHECK_OK},   {.result = CHECK_ABSENT},
                                       {.result = CHECK_WARN}, {.result = CHECK_OK},
                                       {.result = CHECK_FAIL}, {.result = CHECK_FAIL}};
    char sum[CHECK_TEXT];

    assert_string_equal(check_sum(all, 6, sum), "2 ok, 1 warning, 2 failures");
    assert_string_equal(check_sum(all, 1, sum), "1 ok");
    assert_string_equal(check_sum(all, 0, sum), "0 ok");
    assert_int_equal(check_worst(all, 4), CHECK_WARN);
    assert_int_equal(check_worst(all, 6), CHECK_FAIL);
}

/* ----------------------------------------------------------------------------- engine and options */

static void engine(void **state)
{
    struct rig *r = *state;

    snprintf(r->h.asked.engine, CHECK_TEXT, "ports 15000-17000 of 0.0.0.0 are all in use");
    expect(r, "engine", CHECK_FAIL, "ports 15000-17000 of 0.0.0.0 are all in use",
           "docs/troubleshooting.md, \"An engine does not start\", has this text");
    snprintf(r->h.asked.engine, CHECK_TEXT, "cannot listen on 203.0.113.1: set TE_BIND");
    expect(r, "engine", CHECK_FAIL, "cannot listen on 203.0.113.1: set TE_BIND",
           "set TE_BIND to an address or an interface that te_info --links lists");
}

static void options(void **state)
{
    struct rig *r = *state;

    snprintf(r->h.asked.options, CHECK_TEXT, "MC_MTU is 5");
    expect(r, "options", CHECK_WARN, "MC_MTU is 5", NULL);
    setenv("MC_GID_INDX", "3", 1);
    expect(r, "options", CHECK_WARN,
           "MC_MTU is 5; variables without effect: MC_GID_INDX (MC_GID_INDEX?)",
           "correct or unset them; te_info --config tells names and values");
    r->h.asked.options[0] = '\0';
    expect(r, "options", CHECK_WARN, "variables without effect: MC_GID_INDX (MC_GID_INDEX?)", NULL);
    unsetenv("MC_GID_INDX");
}

/* ------------------------------------------------------------------------------------------ limits */

static void open_files(void **state)
{
    struct rig *r = *state;

    put_limit(r, "Max open files", "1024", "4096");
    expect(r, "open files", CHECK_WARN,
           "at most 4096; TE_TCP_MAX_SESSIONS (4096) connections need more",
           "ulimit -Hn 4352 as root, LimitNOFILE=4352 of a systemd unit, --ulimit nofile=4352 of a "
           "container");
    put_limit(r, "Max open files", "64", "64");
    expect(r, "open files", CHECK_FAIL, NULL, NULL);
    put_limit(r, "Max open files", "64", "unlimited");
    expect(r, "open files", CHECK_OK, "unlimited", "");
    r->conf.tcp_max_sessions = 100;
    put_limit(r, "Max open files", "64", "1024");
    expect(r, "open files", CHECK_OK, "at most 1024", "");
}

static void locked_memory(void **state)
{
    struct rig *r = *state;

    put_limit(r, "Max locked memory", "8388608", "unlimited");
    expect(r, "locked memory", CHECK_OK, "8.0 MiB; only RDMA needs more", "");
    if (!TE_USE_RDMA)
        return;
    fake_sysfs_nic(&r->s, "mlx5_0", "0000:81:00.0", 0);
    expect(r, "locked memory", CHECK_FAIL,
           "8.0 MiB; all memory that is registered with RDMA NICs counts",
           "ulimit -l unlimited as root, LimitMEMLOCK=infinity of a systemd unit, --ulimit "
           "memlock=-1 of a container");
    put_limit(r, "Max locked memory", "17179869184", "unlimited");
    expect(r, "locked memory", CHECK_WARN,
           "16 GiB; all memory that is registered with RDMA NICs counts", NULL);
    put(r, "proc/self/status", "CapEff:\t0000000000004000");
    expect(r, "locked memory", CHECK_OK,
           "16 GiB, which does not hold for this process (CAP_IPC_LOCK)", "");
    put(r, "proc/self/status", "CapEff:\t0000000000000000");
    r->conf.force_tcp = true;
    expect(r, "locked memory", CHECK_OK, "16 GiB; only RDMA needs more", "");
    r->conf.force_tcp = false;
    put_limit(r, "Max locked memory", "unlimited", "unlimited");
    expect(r, "locked memory", CHECK_OK, "unlimited", "");
}

/* ------------------------------------------------------------------------ memory of other processes */

static void process_vm(void **state)
{
    struct rig *r = *state;

    put(r, "proc/sys/kernel/yama/ptrace_scope", "1");
    expect(r, "process_vm", CHECK_WARN,
           "kernel.yama.ptrace_scope is 1: only memory of te_alloc() goes without TCP",
           "sysctl -w kernel.yama.ptrace_scope=0, or allocate with te_alloc()");
    put(r, "proc/self/status", "CapEff:\t0000000000080000");
    expect(r, "process_vm", CHECK_OK, "kernel.yama.ptrace_scope is 1; CAP_SYS_PTRACE is there", "");
    put(r, "proc/sys/kernel/yama/ptrace_scope", "3");
    expect(r, "process_vm", CHECK_WARN, NULL,
           "kernel.yama.ptrace_scope=0 in /etc/sysctl.d and a restart (3 stays until then), or "
           "allocate with te_alloc()");
    r->h.asked.process_vm = EPERM;
    expect(r, "process_vm", CHECK_WARN,
           "process_vm_readv is refused (Operation not permitted): only memory of te_alloc() goes "
           "without TCP",
           "allow process_vm_readv and process_vm_writev in the seccomp profile, or allocate with "
           "te_alloc()");
    r->conf.host_path = false;
    expect(r, "process_vm", CHECK_ABSENT, "TE_HOST_PATH keeps the host transport off", "");
    r->conf.force_tcp = true;
    expect(r, "process_vm", CHECK_ABSENT, "MC_FORCE_TCP keeps the host transport off", "");
}

static void namespaces(void **state)
{
    struct rig *r = *state;

    expect(r, "namespaces", CHECK_OK, "those of the host", "");
    put_namespace(r, "self", "mnt", 4026532001);
    put_namespace(r, "self", "net", 4026532002);
    expect(r, "namespaces", CHECK_OK, "those of the host", ""); /* /proc/1 does not tell */
    put_namespace(r, "1", "net", 4026532002);
    put_namespace(r, "1", "mnt", 4026531841);
    expect(r, "namespaces", CHECK_WARN,
           "of its own: mnt; other containers of this host are reached by TCP", NULL);
    put_namespace(r, "self", "pid", 4026532003);
    put_namespace(r, "self", "user", 4026532004);
    put_namespace(r, "1", "mnt", 4026532001);
    expect(r, "namespaces", CHECK_WARN,
           "of its own: user, pid; other containers of this host are reached by TCP",
           "containers that trust each other: --network=container:NAME --pid=container:NAME, and "
           "TE_HOST_ANY_NAMESPACE=1 in both");
    r->conf.host_any_namespace = true;
    expect(r, "namespaces", CHECK_OK, "of its own: user, pid; TE_HOST_ANY_NAMESPACE is on", "");
}

static void shared_memory(void **state)
{
    struct rig *r = *state;

    put_limit(r, "Max file size", "1048576", "unlimited");
    expect(r, "shared memory", CHECK_WARN,
           "files end at 1.0 MiB: larger memory of te_alloc() is not shared",
           "ulimit -f unlimited, LimitFSIZE=infinity of a systemd unit");
    r->h.asked.memfd = EACCES;
    put(r, "proc/sys/vm/memfd_noexec", "2");
    expect(r, "shared memory", CHECK_WARN,
           "memfd_create is refused (Permission denied): TCP carries data within the host",
           "sysctl -w vm.memfd_noexec=1");
    r->h.asked.memfd = EPERM;
    expect(r, "shared memory", CHECK_WARN, NULL, "allow memfd_create in the seccomp profile");
}

/* ----------------------------------------------------------------------------------------- network */

static void ports(void **state)
{
    struct rig *r = *state;

    put(r, "proc/sys/net/ipv4/ip_local_port_range", "1024 65535");
    expect(r, "ports", CHECK_WARN,
           "15000-17000: outgoing connections (net.ipv4.ip_local_port_range is 1024-65535) may "
           "take one",
           "sysctl -w net.ipv4.ip_local_reserved_ports=15000-17000, or other ports by "
           "MC_MIN_RPC_PORT and MC_MAX_RPC_PORT");
    put(r, "proc/sys/net/ipv4/ip_local_reserved_ports", "8080,15000-16999");
    expect(r, "ports", CHECK_WARN, NULL,
           "sysctl -w net.ipv4.ip_local_reserved_ports=8080,15000-16999,15000-17000, or other "
           "ports by MC_MIN_RPC_PORT and MC_MAX_RPC_PORT");
    put(r, "proc/sys/net/ipv4/ip_local_reserved_ports", "8080,15000-16999,17000");
    expect(r, "ports", CHECK_OK, "15000-17000; outgoing connections have others", "");
    put(r, "proc/sys/net/ipv4/ip_local_reserved_ports", "");
    put(r, "proc/sys/net/ipv4/ip_local_port_range", "17000 20000");
    expect(r, "ports", CHECK_WARN, NULL, NULL);
    put(r, "proc/sys/net/ipv4/ip_local_port_range", "17001 20000");
    expect(r, "ports", CHECK_OK, NULL, "");
}

static void congestion(void **state)
{
    struct rig *r = *state;

    expect(r, "congestion", CHECK_OK, "cubic; within a host reno", "");
    put(r, "proc/sys/net/ipv4/tcp_congestion_control", "bbr");
    expect(r, "congestion", CHECK_WARN, "bbr, which paces, to other hosts; within a host reno",
           "TE_TCP_CONGESTION=cubic in a data centre, =bbr to keep it (docs/tuning.md)");
    snprintf(r->conf.tcp_congestion, sizeof r->conf.tcp_congestion, "bbr");
    expect(r, "congestion", CHECK_WARN,
           "TE_TCP_CONGESTION is bbr, which is not loaded: it has no effect",
           "modprobe tcp_bbr, or one of these: reno cubic");
    snprintf(r->conf.tcp_congestion, sizeof r->conf.tcp_congestion, "cubic");
    expect(r, "congestion", CHECK_WARN,
           "TE_TCP_CONGESTION is cubic, which not every user may choose",
           "sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic'");
    put(r, "proc/self/status", "CapEff:\t0000000000001000");
    expect(r, "congestion", CHECK_OK, "cubic (TE_TCP_CONGESTION)", "");
}

static void tcp_limits(void **state)
{
    struct rig *r = *state;

    expect(r, "TCP buffers", CHECK_OK, "up to 6.0 MiB to receive, 4.0 MiB to send", "");
    put(r, "proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t262144");
    expect(r, "TCP buffers", CHECK_WARN, "up to 6.0 MiB to receive, 256 KiB to send",
           "sysctl -w net.ipv4.tcp_rmem='4096 131072 6291456' net.ipv4.tcp_wmem='4096 16384 "
           "4194304', more for a long way (docs/tuning.md)");
    put(r, "proc/sys/net/core/somaxconn", "128");
    expect(r, "listen queue", CHECK_WARN,
           "128 connections (net.core.somaxconn), less than MC_HANDSHAKE_LISTEN_BACKLOG (4096)",
           "sysctl -w net.core.somaxconn=4096");
    r->conf.handshake_backlog = 128;
    expect(r, "listen queue", CHECK_OK, "128 connections", "");
}

static void interfaces(void **state)
{
    struct rig *r = *state;

    put(r, "sysfs/class/net/eth1/flags", "0x1003");
    put(r, "sysfs/class/net/eth1/operstate", "down"); /* no link */
    put(r, "sysfs/class/net/eth2/flags", "0x1003");
    put(r, "sysfs/class/net/eth2/operstate", "up");
    expect(r, "network", CHECK_OK, "up: eth0, eth2", "");
    put(r, "sysfs/class/net/eth0/flags", "0x1002");
    put(r, "sysfs/class/net/eth2/flags", "0x1002");
    expect(r, "network", CHECK_WARN, "none is up but lo: other hosts are out of reach",
           "ip link set NAME up; ip link lists the names");
    put(r, "sysfs/class/net/lo/flags", "0x8");
    expect(r, "network", CHECK_FAIL, "lo is down: no two engines of this host reach each other",
           "ip link set lo up");
}

static void rdma_nics(void **state)
{
    struct rig *r = *state;

    if (!TE_USE_RDMA) {
        expect(r, "RDMA NICs", CHECK_ABSENT, "not in this build", "");
        return;
    }
    fake_sysfs_nic(&r->s, "mlx5_0", "0000:81:00.0", 0);
    fake_sysfs_nic(&r->s, "mlx5_1", "0000:82:00.0", 0);
    expect(r, "RDMA NICs", CHECK_OK, "2: mlx5_0, mlx5_1", "");
    snprintf(r->conf.filters_exclude, sizeof r->conf.filters_exclude, "mlx5_1");
    expect(r, "RDMA NICs", CHECK_OK, "1: mlx5_0; options leave 1 out", "");
    fake_sysfs_add(&r->s, &(struct fake_nic){.name = "mlx5_2", .state = "1: DOWN"});
    expect(r, "RDMA NICs", CHECK_WARN, "1 can be used: mlx5_0, 1 cannot: mlx5_2: port 1 is DOWN",
           "te_info --links tells why of each; docs/troubleshooting.md, \"A NIC is not used\", has "
           "the remedies");
    snprintf(r->conf.filters_exclude, sizeof r->conf.filters_exclude, "mlx5_0, mlx5_1");
    expect(r, "RDMA NICs", CHECK_WARN, "0 can be used, 1 cannot: mlx5_2: port 1 is DOWN", NULL);
    r->conf.force_hca = true;
    expect(r, "RDMA NICs", CHECK_FAIL, NULL, NULL);
    snprintf(r->conf.sysfs_path, sizeof r->conf.sysfs_path, "/nonexistent");
    expect(r, "RDMA NICs", CHECK_FAIL, "none",
           "MC_FORCE_HCA asks for one: unset it, or give the container the device");
}

/* ----------------------------------------------------------------------------------------- machine */

static void gpus(void **state)
{
    struct rig *r = *state;

    put(r, "sysfs/bus/pci/devices/0000:01:00.0/vendor", "0x10de");
    put(r, "sysfs/bus/pci/devices/0000:01:00.0/class", "0x030200");
    put(r, "sysfs/bus/pci/devices/0000:02:00.0/vendor", "0x10de");
    put(r, "sysfs/bus/pci/devices/0000:02:00.0/class", "0x020000"); /* a NIC of theirs */
    expect(r, "GPUs", CHECK_OK, "1 of NVIDIA, 0 of AMD", "");
    snprintf(r->h.asked.hip, CHECK_TEXT, "there is no HIP driver");
    expect(r, "GPUs", CHECK_OK, NULL, "");
    snprintf(r->h.asked.cuda, CHECK_TEXT, "there is no CUDA driver");
    expect(r, "GPUs", CHECK_WARN, "1 of NVIDIA, 0 of AMD, but there is no CUDA driver",
           "install the driver's libraries, or give them to the container (--gpus all)");
    put(r, "sysfs/bus/pci/devices/0000:03:00.0/vendor", "0x1002");
    put(r, "sysfs/bus/pci/devices/0000:03:00.0/class", "0x120000");
    r->h.asked.cuda[0] = '\0';
    expect(r, "GPUs", CHECK_WARN, "1 of NVIDIA, 1 of AMD, but there is no HIP driver", NULL);
    put(r, "sysfs/bus/pci/devices/0000:04:00.0/vendor", "0x19e5");
    put(r, "sysfs/bus/pci/devices/0000:04:00.0/class", "0x120000");
    r->h.asked.hip[0] = '\0';
    expect(r, "GPUs", CHECK_OK, "1 of NVIDIA, 1 of AMD, 1 of Huawei", "");
    snprintf(r->h.asked.ascend, CHECK_TEXT, "there is no Ascend driver");
    expect(r, "GPUs", CHECK_WARN,
           "1 of NVIDIA, 1 of AMD, 1 of Huawei, but there is no Ascend driver", NULL);
}

static void cpus(void **state)
{
    struct rig *r = *state;

    put(r, "proc/self/status", "Cpus_allowed_list:\t0-1,4");
    expect(r, "CPUs", CHECK_OK, "3 of 8; NUMA nodes 0-1", "");
    put(r, "sysfs/fs/cgroup/user.slice/te.service/cpu.max", "400000 100000");
    expect(r, "CPUs", CHECK_OK, "3 of 8; NUMA nodes 0-1; cgroup allows 4.0", "");
    put(r, "sysfs/fs/cgroup/user.slice/cpu.max", "250000 100000"); /* the one above binds as well */
    expect(r, "CPUs", CHECK_WARN, "3 of 8; NUMA nodes 0-1; cgroup allows 2.5",
           "TE_TCP_THREADS=2, or a larger cpu.max (--cpus of a container)");
    r->conf.tcp_threads = 2;
    expect(r, "CPUs", CHECK_OK, NULL, "");
    put(r, "proc/self/cgroup", "9:cpu:/\n0::/"); /* as in a container: the root is its own */
    put(r, "sysfs/fs/cgroup/cpu.max", "50000 100000");
    expect(r, "CPUs", CHECK_WARN, "3 of 8; NUMA nodes 0-1; cgroup allows 0.5",
           "TE_TCP_THREADS=1 TE_SPIN_US=0, or a larger cpu.max (--cpus of a container)");
    r->conf.tcp_threads = 1;
    r->conf.spin_us = 0;
    expect(r, "CPUs", CHECK_OK, NULL, "");
}

static void memory(void **state)
{
    struct rig *r = *state;

    put(r, "sysfs/fs/cgroup/user.slice/te.service/memory.max", "2147483648");
    expect(r, "memory", CHECK_OK, "32 GiB available; cgroup allows 2.0 GiB", "");
    put(r, "sysfs/fs/cgroup/user.slice/memory.max", "536870912");
    expect(r, "memory", CHECK_WARN, "32 GiB available; cgroup allows 512 MiB",
           "a larger memory.max (--memory of a container): memory that is registered, and what "
           "the tools fill by default, counts");
    put(r, "proc/self/cgroup", "0::/../elsewhere");
    expect(r, "memory", CHECK_OK, "32 GiB available", "");
}

static void huge_pages(void **state)
{
    struct rig *r = *state;

    expect(r, "huge pages", CHECK_OK,
           "shmem_enabled is never; advise can make blocks of 4 KiB faster", "");
    put(r, "sysfs/kernel/mm/transparent_hugepage/shmem_enabled", "always [advise] never");
    expect(r, "huge pages", CHECK_OK, "shmem_enabled is advise", "");
}

static void io_uring(void **state)
{
    struct rig *r = *state;

    if (!TE_USE_URING) {
        expect(r, "io_uring", CHECK_ABSENT, "not in this build", "");
        return;
    }
    r->h.asked.io_uring = EPERM;
    expect(r, "io_uring", CHECK_OK,
           "refused (Operation not permitted): threads read and write files", "");
    snprintf(r->conf.file_paths, sizeof r->conf.file_paths, "/data");
    expect(r, "io_uring", CHECK_WARN, NULL,
           "allow the calls io_uring_* in the seccomp profile (the kernel must be 5.11 or newer)");
    put(r, "proc/sys/kernel/io_uring_disabled", "2");
    expect(r, "io_uring", CHECK_WARN, NULL, "sysctl -w kernel.io_uring_disabled=0");
    r->conf.file_uring = false;
    expect(r, "io_uring", CHECK_ABSENT, "TE_FILE_URING is off", "");
}

static void clocks(void **state)
{
    struct rig *r = *state;

    put(r, "sysfs/devices/system/clocksource/clocksource0/current_clocksource", "hpet");
    expect(r, "clock source", CHECK_WARN, "hpet: each look at the clock takes long",
           "echo NAME > /sys/devices/system/clocksource/clocksource0/current_clocksource with tsc "
           "or the hypervisor's, of: tsc hpet acpi_pm");
    r->h.asked.unsynchronised = true;
    expect(r, "clock", CHECK_WARN,
           "not synchronised: times in logs of several hosts do not fit, and certificates may "
           "seem out of date",
           "timedatectl set-ntp true, or chronyd");
}

/* ------------------------------------------------------------------------------------------- lists */

TEST(lists_of_the_kernel)
{
    assert_int_equal(check_list_count(""), 0);
    assert_int_equal(check_list_count("0"), 1);
    assert_int_equal(check_list_count("0-3,8,10-11"), 7);
    assert_int_equal(check_list_count("3-1"), 0);
    assert_true(check_list_has("0-3,8", 8));
    assert_true(check_list_has("0-3,8", 2));
    assert_false(check_list_has("0-3,8", 4));
    assert_false(check_list_has("", 0));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(all_is_well),   CASE(nothing_is_told),
        CASE(sums),          CASE(engine),
        CASE(options),       CASE(open_files),
        CASE(locked_memory), CASE(process_vm),
        CASE(namespaces),    CASE(shared_memory),
        CASE(ports),         CASE(congestion),
        CASE(tcp_limits),    CASE(interfaces),
        CASE(rdma_nics),     CASE(gpus),
        CASE(cpus),          CASE(memory),
        CASE(huge_pages),    CASE(io_uring),
        CASE(clocks),        CASE(lists_of_the_kernel),
    };

    clearenv(); /* the options are those of this test */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
