/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h - what hosts of one machine see of each other: processes, unix sockets, pages that several
 * have mapped. A host is a process; two of them may be on one machine.
 */
#ifndef SIM_MACHINE_H
#define SIM_MACHINE_H

#include "sim.h"

#include <sys/socket.h>
#include <sys/types.h>

/* ------------------------------------------------------------------------------------- processes */

struct sim_process {
    pid_t pid;
    int host;
    bool ended;
    bool refuses; /* process_vm from others, as one that is not dumpable */
    void *gpus;   /* softgpu's */
    struct sim_process *next;
};

#define SIM_USER 1000 /* whose all processes are */

extern bool sim_has_peerpidfd; /* whether kernels know SO_PEERPIDFD */

/* Puts hosts on machines by chance; before that, and unless it is called, each is on its own. */
void sim_machines_lay(int hosts);
bool sim_machine_is_shared(int host);
bool sim_is_same_machine(int a, int b);
/* That of the calling thread's host. */
struct sim_process *sim_process(void);
struct sim_process *sim_process_of(int host); /* that of another, which has one */
extern bool sim_own_is_whole; /* a copy from or to the caller's own memory is not short */
/* On any machine. */
bool sim_process_is_alive(pid_t pid);
int sim_process_host(pid_t pid); /* which it is or was; 0: there is none */
/* Of a process; -1 with errno. */
int sim_pidfd_open(struct sim_process *p);
long sim_pidfd_of(pid_t pid); /* the call pidfd_open */
uint32_t sim_pidfd_ready(struct sim_file *f);

/* ----------------------------------------------------------------------------------------- pages */

/* A memfd, which descriptors of several hosts may name. */
struct sim_memory;

int sim_memory_open(struct sim_memory *m); /* another descriptor of it; -1 with errno */
int sim_memory_again(struct sim_file *f);  /* the same, of what a descriptor names, of any host */
struct sim_memory *sim_memory_of(int fd);  /* held; NULL: fd is none */
void sim_memory_put(struct sim_memory *m);
void sim_memory_close(struct sim_file *f);
int sim_memory_fcntl(struct sim_file *f, int command, long arg);
/* In the middle of a copy: others run, now and then for as long as a processor is somebody else's. */
void sim_copy_point(void);
/* What is the same for all who have mapped the page that the word is in. */
const void *sim_shared_key(const void *word);

/* ---------------------------------------------------------------------------------- unix sockets */

int sim_unix_open(int type);
bool sim_unix_is(int fd);
int sim_unix_bind(int fd, const struct sockaddr *a, socklen_t len);
int sim_unix_listen(int fd, int backlog);
int sim_unix_connect(int fd, const struct sockaddr *a, socklen_t len);
int sim_unix_accept(int fd, int flags);
int sim_unix_set(int fd, int name, const void *value);
int sim_unix_get(int fd, int name, void *value, socklen_t *len);
ssize_t sim_unix_send(int fd, const struct msghdr *m);
ssize_t sim_unix_receive(int fd, struct msghdr *m);
uint32_t sim_unix_ready(struct sim_file *f);
void sim_unix_close(struct sim_file *f);

#endif
