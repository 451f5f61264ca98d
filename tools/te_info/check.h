/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - what can go wrong on a host, one line for each.
 *
 *   check.c          the table, and how it is printed
 *   check_part.h     what a check is made of: the functions of the table, and how they tell
 *   check_process.c  what this process may do: options, limits, memory of other processes
 *   check_network.c  ports, TCP, interfaces, RDMA NICs
 *   check_machine.c  GPUs, CPUs, memory, clocks
 *   ask.c            what no file tells: the kernel, the drivers and an engine are asked
 *
 * A check reads files below two folders, and what was asked before. It changes nothing.
 */
#ifndef TE_INFO_CHECK_H
#define TE_INFO_CHECK_H

#include <stdbool.h>

#include <jansson.h>

#include "conf/conf.h"

#define CHECK_TEXT 512
#define CHECK_MAX  32 /* at most so many checks */

enum check_result { CHECK_ABSENT, CHECK_OK, CHECK_WARN, CHECK_FAIL, CHECK_RESULTS };

struct check {
    const char *name;
    enum check_result result;
    char value[CHECK_TEXT];
    char remedy[CHECK_TEXT]; /* of WARN and FAIL; else "" */
};

/* Numbers of errno, 0: it is allowed. Texts: why not, "" if it works. */
struct check_asked {
    int process_vm, memfd, io_uring;
    bool unsynchronised;
    char cuda[CHECK_TEXT], hip[CHECK_TEXT], ascend[CHECK_TEXT]; /* drivers */
    char engine[CHECK_TEXT];  /* one with the transports of this host */
    char options[CHECK_TEXT]; /* what is wrong with their values */
};

struct check_host {
    const char *proc, *sysfs; /* "/proc" and "/sys", or folders laid out alike */
    bool sysfs_given;         /* RDMA NICs are looked for there, not below TE_SYSFS_PATH */
    const struct tei_conf *conf;
    struct check_asked asked;
};

/* Loads the options, and fills in the last two. An error of tei_conf_load(): options exclude each other. */
int check_ask(struct check_host *h, struct tei_conf *conf);

/* Runs all checks, in the order of the table; how many. */
size_t check_run(const struct check_host *h, struct check out[CHECK_MAX]);

/* The one of that name; NULL if there is none. */
const struct check *check_find(const struct check *all, size_t n, const char *name);
enum check_result check_worst(const struct check *all, size_t n);

/* "11 ok, 2 warnings": what there is none of is left out, but ok. */
const char *check_sum(const struct check *all, size_t n, char text[CHECK_TEXT]);

json_t *check_json(const struct check *all, size_t n); /* an array, a new reference */
void check_print(const struct check *all, size_t n);   /* in colours on a terminal */

#endif
