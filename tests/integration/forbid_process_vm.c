/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forbid_process_vm.c - forbid_process_vm ENOSYS|EPERM PROGRAM...: runs the program without
 * process_vm_readv and process_vm_writev, which end with that error, as under a seccomp profile or on
 * a kernel that was built without them.
 */
#include "forbid_process_vm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: forbid_process_vm ENOSYS|EPERM PROGRAM...\n");
        return 2;
    }
    if (forbid_process_vm(strcmp(argv[1], "EPERM") == 0 ? EPERM : ENOSYS) != 0) {
        perror("forbid_process_vm: no seccomp filter");
        return 77;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
