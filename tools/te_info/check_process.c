/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/check_part.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common_names.h"
#include "te_info/changed.h"
#include "te_info/file.h"

#define FILES_LEAST  128 /* without any peer */
#define FILES_BESIDE 256 /* beside one for each session that may be served */

#define LOCKED_LEAST (UINT64_C(64) << 20)

/* How the kernel numbers the first namespaces of their kinds (linux/proc_ns.h). */
#define FIRST_USER_NS 0xEFFFFFFDu
#define FIRST_PID_NS  0xEFFFFFFCu

/* --------------------------------------------------------------------------- engine and options */

void check_engine(const struct check_host *h, struct check *c)
{
    if (!h->asked.engine[0]) {
        check_say(c, CHECK_OK, "one with the transports of this host can be made");
        return;
    }
    check_say(c, CHECK_FAIL, "%s", h->asked.engine);
    if (strstr(h->asked.engine, "TE_BIND"))
        check_advise(c, "set TE_BIND to an address or an interface that te_info --links lists");
    else
        check_advise(c, "docs/troubleshooting.md, \"An engine does not start\", has this text");
}

void check_options(const struct check_host *h, struct check *c)
{
    size_t all, changed = changed_count(h->conf, &all);
    const char *wrong = h->asked.options;
    char unused[CHECK_TEXT / 2];

    if (tei_conf_unused(unused, sizeof unused))
        check_say(c, CHECK_WARN, "%.200s%svariables without effect: %s", wrong,
                  wrong[0] ? "; " : "", unused);
    else if (wrong[0])
        check_say(c, CHECK_WARN, "%s", wrong);
    else
        check_say(c, CHECK_OK, "%zu of %zu differ from their defaults", changed, all);
    if (c->result == CHECK_WARN)
        check_advise(c, "correct or unset them; te_info --config tells names and values");
}

/* ---------------------------------------------------------------------------------------- limits */

/* The engine itself raises the soft limit to the hard one. */
void check_open_files(const struct check_host *h, struct check *c)
{
    uint64_t soft, hard, want = (uint64_t)h->conf->tcp_max_sessions + FILES_BESIDE;

    if (!check_limit(h, "Max open files", &soft, &hard)) {
        check_say(c, CHECK_ABSENT, "the limit is not known");
        return;
    }
    if (hard == UINT64_MAX || hard >= want) {
        check_say(c, CHECK_OK, hard == UINT64_MAX ? "unlimited" : "at most %" PRIu64, hard);
        return;
    }
    check_say(c, hard < FILES_LEAST ? CHECK_FAIL : CHECK_WARN,
              "at most %" PRIu64 "; TE_TCP_MAX_SESSIONS (%d) connections need more", hard,
              h->conf->tcp_max_sessions);
    check_advise(c,
                 "ulimit -Hn %" PRIu64 " as root, LimitNOFILE=%" PRIu64
                 " of a systemd unit, --ulimit nofile=%" PRIu64 " of a container",
                 want, want, want);
}

static bool has_rdma(const struct check_host *h)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/class/infiniband", h->conf->sysfs_path);
    return TE_USE_RDMA && !h->conf->force_tcp && access(path, F_OK) == 0;
}

void check_locked_memory(const struct check_host *h, struct check *c)
{
    char size[CHECK_SIZE];
    uint64_t soft, hard;

    if (!check_limit(h, "Max locked memory", &soft, &hard)) {
        check_say(c, CHECK_ABSENT, "the limit is not known");
        return;
    }
    check_size(soft, size);
    if (soft == UINT64_MAX)
        check_say(c, CHECK_OK, "%s", size);
    else if (!has_rdma(h))
        check_say(c, CHECK_OK, "%s; only RDMA needs more", size);
    else if (check_capable(h, CAP_IPC_LOCK))
        check_say(c, CHECK_OK, "%s, which does not hold for this process (CAP_IPC_LOCK)", size);
    else {
        check_say(c, soft < LOCKED_LEAST ? CHECK_FAIL : CHECK_WARN,
                  "%s; all memory that is registered with RDMA NICs counts", size);
        check_advise(c, "ulimit -l unlimited as root, LimitMEMLOCK=infinity of a systemd unit, "
                        "--ulimit memlock=-1 of a container");
    }
}

/* ------------------------------------------------------------------------ memory of other processes */

static bool is_path_off(const struct check_host *h, struct check *c)
{
    bool off = !h->conf->host_path || h->conf->force_tcp;

    if (off)
        check_say(c, CHECK_ABSENT, "%s keeps the host transport off",
                  h->conf->force_tcp ? "MC_FORCE_TCP" : "TE_HOST_PATH");
    return off;
}

/* What Yama allows; 0 where there is none. */
static int ptrace_scope(const struct check_host *h)
{
    char line[FILE_LINE];

    return file_line(line, "%s/sys/kernel/yama/ptrace_scope", h->proc) ? atoi(line) : 0;
}

void check_process_vm(const struct check_host *h, struct check *c)
{
    int scope = ptrace_scope(h);

    if (is_path_off(h, c))
        return;
    if (h->asked.process_vm) {
        check_say(c, CHECK_WARN,
                  "process_vm_readv is refused (%s): only memory of te_alloc() goes without TCP",
                  strerror(h->asked.process_vm));
        check_advise(c, "allow process_vm_readv and process_vm_writev in the seccomp profile, or "
                        "allocate with te_alloc()");
        return;
    }
    if (scope == 0 || (scope < 3 && check_capable(h, CAP_SYS_PTRACE))) {
        check_say(c, CHECK_OK,
                  scope ? "kernel.yama.ptrace_scope is %d; CAP_SYS_PTRACE is there"
                        : "processes of one user reach each other's memory",
                  scope);
        return;
    }
    check_say(c, CHECK_WARN,
              "kernel.yama.ptrace_scope is %d: only memory of te_alloc() goes without TCP", scope);
    if (scope < 3)
        check_advise(c, "sysctl -w kernel.yama.ptrace_scope=0, or allocate with te_alloc()");
    else
        check_advise(c, "kernel.yama.ptrace_scope=0 in /etc/sysctl.d and a restart (3 stays until "
                        "then), or allocate with te_alloc()");
}

/* The number of a namespace, 0 if it is not told. */
static unsigned long namespace_of(const struct check_host *h, const char *process, const char *kind)
{
    char path[PATH_MAX], target[64];
    const char *number;
    ssize_t n;

    snprintf(path, sizeof path, "%s/%s/ns/%s", h->proc, process, kind);
    n = readlink(path, target, sizeof target - 1);
    if (n < 0)
        return 0;
    target[n] = '\0';
    number = strchr(target, '[');
    return number ? strtoul(number + 1, NULL, 10) : 0;
}

/* Those of the host have known numbers, or are those of its first process if that may be looked at. */
static bool is_apart(const struct check_host *h, const char *kind, unsigned long first)
{
    unsigned long own = namespace_of(h, "self", kind);

    if (!first)
        first = namespace_of(h, "1", kind);
    return own && first && own != first;
}

void check_namespaces(const struct check_host *h, struct check *c)
{
    static const struct {
        const char *kind;
        unsigned long first;
    } kinds[] = {{"user", FIRST_USER_NS}, {"pid", FIRST_PID_NS}, {"mnt", 0}, {"net", 0}};
    char apart[64] = "";

    if (is_path_off(h, c))
        return;
    for (size_t i = 0; i < TEI_ARRAY_LEN(kinds); i++)
        if (is_apart(h, kinds[i].kind, kinds[i].first))
            names_add(apart, sizeof apart, kinds[i].kind);
    if (!apart[0] || h->conf->host_any_namespace) {
        check_say(c, CHECK_OK, apart[0] ? "of its own: %s; TE_HOST_ANY_NAMESPACE is on" : "%s",
                  apart[0] ? apart : "those of the host");
        return;
    }
    check_say(c, CHECK_WARN, "of its own: %s; other containers of this host are reached by TCP",
              apart);
    check_advise(c, "containers that trust each other: --network=container:NAME "
                    "--pid=container:NAME, and TE_HOST_ANY_NAMESPACE=1 in both");
}

/* ------------------------------------------------------------------------------------ shared memory */

static void advise_memfd(const struct check_host *h, struct check *c)
{
    char line[FILE_LINE];

    if (h->asked.memfd == EACCES && file_line(line, "%s/sys/vm/memfd_noexec", h->proc) &&
        atoi(line) == 2)
        check_advise(c, "sysctl -w vm.memfd_noexec=1");
    else
        check_advise(c, "allow memfd_create in the seccomp profile");
}

void check_shared_memory(const struct check_host *h, struct check *c)
{
    char size[CHECK_SIZE];
    uint64_t soft, hard;

    if (is_path_off(h, c))
        return;
    if (h->asked.memfd) {
        check_say(c, CHECK_WARN, "memfd_create is refused (%s): TCP carries data within the host",
                  strerror(h->asked.memfd));
        advise_memfd(h, c);
        return;
    }
    if (!check_limit(h, "Max file size", &soft, &hard) || soft == UINT64_MAX) {
        check_say(c, CHECK_OK, "memfd; the size of /dev/shm does not matter");
        return;
    }
    check_say(c, CHECK_WARN, "files end at %s: larger memory of te_alloc() is not shared",
              check_size(soft, size));
    check_advise(c, "ulimit -f unlimited, LimitFSIZE=infinity of a systemd unit");
}
