/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.c - hosts as processes of machines: numbers, pidfds, what /proc says of them, and process_vm.
 */
#include "disk.h"
#include "machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define FIRST_PID 1000
#define PIECE     4096 /* bytes of a copy between two points */
#define SHORT_IN  20   /* of copies, where calls are short */
#define NS_INODE  4026531000u

struct pidfd {
    struct sim_file file;
    struct sim_process *process;
    struct pidfd *next;
};

static int machine_of[SIM_LIMIT]; /* 0: its own */
static bool is_apart[SIM_LIMIT];  /* in a pid namespace of its own */
static struct sim_process *now[SIM_LIMIT], *all;
static struct pidfd *pidfds;
bool sim_has_peerpidfd;
bool sim_own_is_whole;

/* --------------------------------------------------------------------------------------- machines */

void sim_machines_lay(int hosts)
{
    int machine = 0;

    sim_has_peerpidfd = !sim_one_in(4);
    for (int h = 1; h < hosts; h += 2) {
        if (sim_one_in(3))
            continue;
        machine_of[h] = machine_of[h + 1] = ++machine;
        is_apart[h] = sim_one_in(8);
    }
}

bool sim_is_same_machine(int a, int b)
{
    return a == b || (machine_of[a] && machine_of[a] == machine_of[b]);
}

bool sim_machine_is_shared(int host)
{
    return machine_of[host] != 0;
}

/* -------------------------------------------------------------------------------------- processes */

struct sim_process *sim_process(void)
{
    static pid_t last = FIRST_PID;
    int host = sim_host();
    struct sim_process *p = now[host];

    if (p)
        return p;
    p = sim_new(sizeof(*p));
    *p = (struct sim_process){.pid = ++last, .host = host, .refuses = sim_one_in(6), .next = all};
    all = now[host] = p;
    return p;
}

struct sim_process *sim_process_of(int host)
{
    return now[host];
}

void sim_process_end(int host)
{
    if (!now[host])
        return;
    now[host]->ended = true;
    now[host] = NULL;
    for (struct pidfd *f = pidfds; f; f = f->next)
        if (f->file.fd && f->process->ended)
            sim_file_notify(&f->file);
}

bool sim_process_is_alive(pid_t pid)
{
    for (const struct sim_process *p = all; p; p = p->next)
        if (p->pid == pid)
            return !p->ended;
    return false;
}

int sim_process_host(pid_t pid)
{
    for (const struct sim_process *p = all; p; p = p->next)
        if (p->pid == pid)
            return p->host;
    return 0;
}

/* One that lives, and that the caller's machine has; NULL. */
static struct sim_process *numbered(pid_t pid)
{
    for (struct sim_process *p = all; p; p = p->next)
        if (p->pid == pid && !p->ended && sim_is_same_machine(p->host, sim_host()))
            return p;
    return NULL;
}

pid_t getpid(void)
{
    return sim_is_on() ? sim_process()->pid : REAL(getpid)();
}

uid_t geteuid(void)
{
    return sim_is_on() ? SIM_USER : REAL(geteuid)();
}

int sim_pidfd_open(struct sim_process *p)
{
    struct pidfd *f = sim_new(sizeof(*f));

    f->process = p;
    f->next = pidfds;
    pidfds = f;
    return sim_file_open(&f->file, SIM_PIDFD, false);
}

long sim_pidfd_of(pid_t pid)
{
    struct sim_process *p = numbered(pid);

    if (p)
        return sim_pidfd_open(p);
    errno = ESRCH;
    return -1;
}

uint32_t sim_pidfd_ready(struct sim_file *f)
{
    return ((struct pidfd *)f)->process->ended ? EPOLLIN : 0;
}

/* ------------------------------------------------------------------------------------ what /proc says */

/* 1: it is a file of the world's, and that is in it; 0: it is one of the real system; -1: there is none. */
static int text_of(const char *path, char *out, size_t n)
{
    int pid, at = 0, machine = machine_of[sim_host()];
    const struct sim_process *p;

    if (strcmp(path, "/proc/sys/kernel/random/boot_id") == 0 ||
        strcmp(path, "/etc/machine-id") == 0)
        return snprintf(out, n, "%032x\n", machine ? machine : 100 + sim_host()) > 0;
    if (strcmp(path, "/dev/urandom") == 0) /* by which jansson orders its tables: once, for all */
        return snprintf(out, n, "one order for all runs") > 0;
    if (sscanf(path, "/proc/%d/%n", &pid, &at) != 1 || !at)
        return 0;
    p = numbered(pid);
    if (!p)
        return -1;
    if (strcmp(path + at, "stat") == 0)
        return snprintf(out, n, "%d (sim) S 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 %d\n", pid,
                        pid * 10) > 0;
    return snprintf(out, n, "Uid:\t%d\t%d\t%d\t%d\n", SIM_USER, SIM_USER, SIM_USER, SIM_USER) > 0;
}

/* Whether /proc shows it: it lives, and in the namespace of the caller. */
static bool is_listed(const struct sim_process *p)
{
    return !p->ended && sim_is_same_machine(p->host, sim_host()) &&
           is_apart[p->host] == is_apart[sim_host()];
}

/* Of memory that a process has a descriptor of, by what /proc has of it; -1 with errno. */
static int open_descriptor(const char *path)
{
    const struct sim_process *p = NULL;
    struct sim_file *f;
    int pid, fd = -1;

    if (sscanf(path, "/proc/self/fd/%d", &fd) == 1)
        p = sim_process();
    else if (sscanf(path, "/proc/%d/fd/%d", &pid, &fd) == 2)
        p = numbered(pid);
    f = p && is_listed(p) ? sim_file_at(p->host, fd) : NULL;
    sim_point();
    if (f && f->kind == SIM_MEMORY && (!p->refuses || p->host == sim_host()))
        return sim_memory_again(f);
    errno = f && f->kind == SIM_MEMORY ? EACCES : ENOENT;
    return -1;
}

static bool is_descriptor(const char *path)
{
    return sim_is_on() && strncmp(path, "/proc/", 6) == 0 && strstr(path, "/fd/");
}

int open(const char *path, int flags, ...)
{
    char text[256];
    va_list args;
    mode_t mode;
    int is, fd;

    va_start(args, flags);
    mode = va_arg(args, mode_t);
    va_end(args);
    if (sim_disk_has(path))
        return sim_disk_open(path, flags);
    if (is_descriptor(path))
        return open_descriptor(path);
    is = sim_is_on() ? text_of(path, text, sizeof(text)) : 0;
    if (is == 0)
        return REAL(open)(path, flags, mode);
    if (is < 0) {
        errno = ENOENT;
        return -1;
    }
    fd = REAL(memfd_create)("sim", MFD_CLOEXEC);
    if (fd < 0 || REAL(write)(fd, text, strlen(text)) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        sim_fail("no file for %s", path);
    return fd;
}

FILE *fopen(const char *path, const char *mode)
{
    char text[256];
    int is = sim_is_on() ? text_of(path, text, sizeof(text)) : 0;

    if (is == 0)
        return REAL(fopen)(path, mode);
    if (is > 0)
        return fdopen(open(path, O_RDONLY), "r");
    errno = ENOENT;
    return NULL;
}

int stat(const char *path, struct stat *out)
{
    const char *ns = strstr(path, "/ns/");
    const struct sim_process *p;
    int pid;

    if (sim_disk_has(path))
        return sim_disk_stat(path, out);
    if (!sim_is_on() || !ns || strncmp(path, "/proc/", 6) != 0)
        return REAL(stat)(path, out);
    p = sscanf(path, "/proc/%d/", &pid) == 1 ? numbered(pid) : sim_process();
    if (!p) {
        errno = ENOENT;
        return -1;
    }
    memset(out, 0, sizeof(*out));
    out->st_ino = NS_INODE + (is_apart[p->host] && strcmp(ns, "/ns/pid") == 0);
    return 0;
}

/* What /proc lists. */
struct listing {
    const struct sim_process *at;
    struct dirent entry;
    struct listing *next;
};

static struct listing *listings; /* that are open */

/* Where that one is in the list; NULL there: it is none of the world's. */
static struct listing **listing_of(const DIR *d)
{
    struct listing **l = &listings;

    while (*l && (const void *)*l != d)
        l = &(*l)->next;
    return l;
}

DIR *opendir(const char *path)
{
    struct listing *l;

    if (!sim_is_on() || strcmp(path, "/proc") != 0)
        return REAL(opendir)(path);
    sim_point();
    l = sim_new(sizeof(*l));
    l->at = all;
    l->next = listings;
    listings = l;
    return (DIR *)(void *)l;
}

struct dirent *readdir(DIR *d)
{
    struct listing *l = *listing_of(d);

    if (!l)
        return REAL(readdir)(d);
    while (l->at && !is_listed(l->at))
        l->at = l->at->next;
    if (!l->at)
        return NULL;
    snprintf(l->entry.d_name, sizeof(l->entry.d_name), "%d", l->at->pid);
    l->at = l->at->next;
    return &l->entry;
}

int closedir(DIR *d)
{
    struct listing **at = listing_of(d), *l = *at;

    if (!l)
        return REAL(closedir)(d);
    *at = l->next;
    free(l);
    return 0;
}

/* ------------------------------------------------------------------------------------- process_vm */

/* A list of ranges, and how far one is in it. */
struct cursor {
    const struct iovec *iov;
    unsigned long n;
    size_t at;
};

static void skip_full(struct cursor *c)
{
    while (c->n && c->at == c->iov->iov_len)
        c->iov++, c->n--, c->at = 0;
}

/*
 * A READ of memory that is not there any more is an error of the call, as the kernel has it: the library
 * finds out afterwards whether it was there. A WRITE of it, or a touch of the caller's own, ends the run.
 */
static bool copy(char *local, char *remote, size_t n, bool is_write)
{
    static char between[PIECE];
    struct iovec to = {between, n}, from = {remote, n};

    if (is_write) {
        memmove(remote, local, n);
        return true;
    }
    if (REAL(process_vm_readv)(REAL(getpid)(), &to, 1, &from, 1, 0) != (ssize_t)n)
        return false;
    memmove(local, between, n);
    return true;
}

static ssize_t copy_all(const struct sim_process *p, struct cursor local, struct cursor remote,
                        bool is_write)
{
    bool is_short =
        sim_net.short_in && sim_one_in(SHORT_IN) && !(sim_own_is_whole && p->host == sim_host());
    ssize_t done = 0;

    for (skip_full(&local), skip_full(&remote); local.n && remote.n;
         skip_full(&local), skip_full(&remote)) {
        size_t n = local.iov->iov_len - local.at, there = remote.iov->iov_len - remote.at;

        n = n < there ? n : there;
        n = n < PIECE ? n : PIECE;
        if (p->ended || (is_short && sim_one_in(4) && done) ||
            !copy((char *)local.iov->iov_base + local.at, (char *)remote.iov->iov_base + remote.at,
                  n, is_write))
            break;
        local.at += n, remote.at += n, done += (ssize_t)n;
        sim_copy_point();
    }
    if (done)
        return done;
    errno = p->ended ? ESRCH : EFAULT;
    return -1;
}

static ssize_t move(pid_t pid, struct cursor local, struct cursor remote, bool is_write)
{
    const struct sim_process *p;

    sim_point();
    p = numbered(pid);
    if (!p || (p->refuses && p->host != sim_host())) {
        errno = p ? EPERM : ESRCH;
        return -1;
    }
    return copy_all(p, local, remote, is_write);
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n_local,
                         const struct iovec *remote, unsigned long n_remote, unsigned long flags)
{
    (void)flags;
    return move(pid, (struct cursor){local, n_local, 0}, (struct cursor){remote, n_remote, 0},
                false);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long n_local,
                          const struct iovec *remote, unsigned long n_remote, unsigned long flags)
{
    (void)flags;
    return move(pid, (struct cursor){local, n_local, 0}, (struct cursor){remote, n_remote, 0},
                true);
}
