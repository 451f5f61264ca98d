/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - a world of several hosts in one process, under a seed, in virtual time.
 *
 * The library runs unmodified: what it calls of the C library and the kernel (threads, locks, clocks,
 * sockets, epoll, eventfd, timerfd, random bytes) is found here first, since this program defines
 * functions of those names. One thread runs at a time. At each such call, a point, the seed decides
 * who goes on; time moves by what points are charged, and leaps to the next event where nobody can run.
 * So a seed is a run: the same program with the same seed makes the same choices, which a hash shows.
 *
 *   sched   who runs: threads, blocking, events in virtual time
 *   turn.h  how the turn goes from one thread to another
 *   sync    mutexes, condition variables, rwlocks, once, futexes
 *   clock   clocks, sleeping, random bytes, what the machine looks like
 *   file    descriptors: which are of this world; epoll, poll, eventfd, timerfd
 *   net     streams between hosts: latency, windows, resets, partitions
 *   calls   the calls on sockets, as the C library names them
 *   machine what hosts of one machine see of each other: process, unix (sockets), pages (that are shared)
 *   disk.h  files: a device, pages of it, io_uring
 *   nics, gpus  stand-ins for drivers of devices
 *   heap    memory, of which each run gets the same addresses
 *   load    random programs over the public interface, and what must be true of them
 *   host    an engine's life
 *   user    batches, and what must be true of them
 *   page_load, count_load  requests of pages, counters
 *   gate_load  requests that wait for a descriptor, or signal one
 *   lease_load leases, and requests that show their keys
 *   path_load  paths that are asked for, connecting ahead
 *   rare    what seldom meets by chance, brought together
 *   fetch   what meets a descriptor that is being fetched
 *   foe     hosts that mean harm
 *   guest   engines that come and go while others are busy with them
 *   notes   messages behind submits
 *   fleet   many engines, for figures
 *   store   a metadata server, by http or redis, or an etcd
 *   faults  what goes wrong
 *   main    runs seeds, each in a process of its own, and shrinks one that fails
 *
 * It explores interleavings at these calls, in the preset `sim` between two atomics, too, and not weak memory.
 */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_LIMIT 1100 /* of hosts that there can be; 0 is the world's own */
#define SIM_HOSTS 66   /* of a random program; the last is the store's where there are 15 or more */
#define SIM_NEVER INT64_MAX
#define SIM_US    INT64_C(1000)
#define SIM_MS    INT64_C(1000000)
#define SIM_S     INT64_C(1000000000)

/* ------------------------------------------------------------------------------------ failures */

#define SIM_TORN 3 /* exit status of a run in which a byte was not what was written */

/* Ends the run, and says how to repeat it; with that status if the text begins with "torn". */
_Noreturn void sim_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A line for --trace, with the time, the host and the thread. */
void sim_trace(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
extern bool sim_trace_on;
extern const char *sim_repeat; /* the command that repeats this run */

/* The C library's own function, which one of that name here stands before. The name is a literal. */
void *sim_real(const char *name);
#define REAL(name) ((__typeof__(&(name)))sim_real(#name))

/* --------------------------------------------------------------------------------------- chance */

uint64_t sim_random(void);      /* for what the world does */
uint64_t sim_entropy(void);     /* for what the library asks the kernel for */
uint64_t sim_below(uint64_t n); /* 0 .. n - 1 */
bool sim_one_in(uint64_t n);    /* n 0: never */

/* ----------------------------------------------------------------------------------------- who runs */

struct sim_thread;

struct sim_result {
    uint64_t points, switches, hash;
    int64_t virtual_ns;
};

/* Makes the calling thread the first one, of host 0. */
void sim_begin(uint64_t seed);
/* After it, before there is another thread: each thread has a processor of its own. */
void sim_by_time(void);
/* From then on calls are real again. */
void sim_end(void);
struct sim_result sim_result(void);

/* True in threads of this world once it has begun: what is called elsewhere is the real call. */
bool sim_is_on(void);
int sim_host(void); /* of the calling thread */
int64_t sim_now(void);
int64_t sim_real_offset(void); /* what the clock of the day shows beyond that */

/* A point: others may run, and time moves on by what a call costs. */
void sim_point(void);
void sim_charge(int64_t ns);
/* Blocks until woken for `on`, or until that time; false if the time came. */
bool sim_block(const void *on, const char *what, int64_t until);
/* Those who are blocked on it can run: all of them, or one by chance. Returns how many. */
unsigned sim_wake(const void *on, bool all);
/* Starts a thread of a host. */
void sim_spawn(int host, void *(*fn)(void *), void *arg);
/* Runs fn(arg) at that time, in whichever thread. */
void sim_at(int64_t when, void (*fn)(void *), void *arg);

/* Threads of a host that is stopped do not run. One that holds a lock goes on until it has let go. */
void sim_stop(int host);
void sim_continue(int host);
bool sim_is_running(int host);
/* One in so many points of a thread of these hosts, from 1 on, is where it has no processor for a while. */
extern uint64_t sim_burns; /* so many points in 10 s are a loop without an end */
extern unsigned sim_away_in;
extern int sim_away_hosts;
/* All threads that a host has now never run again. False, and nothing done, while one of them holds a lock. */
bool sim_kill(int host);
/* How many have not ended. */
unsigned sim_threads_of(int host);
bool sim_is_engine(void);       /* the calling thread is one that an engine has started */
void sim_lock_held(int change); /* by the calling thread */
void sim_lock_dropped(void);    /* one less of a thread that blocks next: nobody runs in between */

/* ---------------------------------------------------------------------------------------- files */

enum sim_kind {
    SIM_SOCKET,
    SIM_EPOLL,
    SIM_EVENT,
    SIM_TIMER,
    SIM_UNIX,
    SIM_MEMORY,
    SIM_PIDFD,
    SIM_DISK_FILE
};

#define SIM_WATCHERS 4

struct sim_file {
    enum sim_kind kind;
    int fd, host;
    bool nonblocking;
    uint16_t n_fds; /* descriptors that lead to it: `fd`, and those by fcntl() */
    const void *watchers[SIM_WATCHERS]; /* epolls that look at it */
    int n_watchers;
};

struct sim_file *sim_file_of(int fd);           /* NULL: a descriptor of the real world */
struct sim_file *sim_file_at(int host, int fd); /* of that host; NULL: it has none of that number */
bool sim_file_is_ours(int fd);
int sim_file_open(struct sim_file *f, enum sim_kind kind, bool nonblocking); /* the number, or -1 */
unsigned sim_files_of(int host);
/* Something has changed: whoever waits for it looks again. */
void sim_file_notify(struct sim_file *f);
uint32_t sim_file_ready(struct sim_file *f); /* EPOLL bits */
/* Until any file of the caller's host has changed, or sim_file_wake() of it; false if the time came. */
bool sim_file_wait(const char *what, int64_t until);
void sim_file_wake(int host);
/* As of a process that is gone. */
void sim_files_close(int host);
extern unsigned sim_file_faults; /* one in so many is not to be had */
void *sim_new(size_t size);      /* zeroed */

extern unsigned sim_memory_faults; /* as many allocations of engines' own threads */
extern bool sim_heap_counts;       /* what is allocated from now on, but by this program */
size_t sim_heap_counted(void);     /* bytes of it that are not freed */

/* What other files of this folder do for it; see machine.h, too. */
void sim_process_end(int host);
uint32_t sim_socket_ready(struct sim_file *f);
void sim_socket_close(struct sim_file *f);
ssize_t sim_socket_read(struct sim_file *f, void *buf, size_t n);

/* ------------------------------------------------------------------------------------------ net */

/* Host h has the address 10.77.0.h, from 256 on 10.77.(h / 256).(h % 256). */
#define SIM_NET 0x0a4d0000u

struct sim_path {
    int64_t latency_ns;
    int64_t bytes_per_s;
    bool cut;
    int64_t cut_since;
    int64_t free_at; /* the wire has carried all before */
};

struct sim_path *sim_path(int from, int to);
void sim_path_cut(int from, int to);
void sim_path_heal(int from, int to);
/* One in so many sends and reads is short, SYNs are lost, sends without a copy have no room. */
struct sim_net_faults {
    unsigned short_in, lost_in, no_room_in;
};
extern struct sim_net_faults sim_net;
extern bool sim_is_v6; /* hosts are known by their addresses of IPv6 */
extern bool
    sim_is_even; /* a host sends a packet at a time to whomever, and sockets have equal buffers */
/* Resets a connection by chance, between those hosts, 0: of any; false if there is none. */
bool sim_net_reset(int a, int b);
/* Connections that a host has closed by other threads than its engine's. */
unsigned sim_net_closed(int host);
/* Whether the other side of the socket has closed it, which its bytes may not yet tell. */
bool sim_net_is_left(int fd);
/* The machine of a host is off: its connections know nothing of it. */
void sim_net_power_off(int host);
void sim_net_power_on(int host);

#endif
