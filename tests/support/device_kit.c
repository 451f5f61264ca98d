/* SPDX-License-Identifier: Apache-2.0 */
#include "device_kit.h"

#include "base/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct device_kit kit_cuda = {TEI_MEM_CUDA, "cuda", "cu"}, kit_hip = {TEI_MEM_HIP, "hip", "hip"},
                  kit_npu = {TEI_MEM_ASCEND, "npu", "acl"}, kit_musa = {TEI_MEM_MUSA, "musa", "mu"},
                  kit_maca = {TEI_MEM_MACA, "maca", "mc"};

static bool in_child;

void kit_check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s\n", what, te_errmsg());
    if (in_child)
        _exit(1);
    fail_msg("%s", what);
}

int kit_open(const struct device_kit *kit)
{
    if (tei_gpu_open(kit->kind) != 0) {
        print_message("%s\n", te_errmsg());
        skip();
    }
    return tei_gpu_count(kit->kind);
}

void kit_need(const struct device_kit *kit, int devices)
{
    if (kit_open(kit) < devices) {
        print_message("there are not %d devices\n", devices);
        skip();
    }
}

void *kit_symbol(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

void *kit_call(const struct device_kit *kit, const char *name)
{
    char text[64];

    snprintf(text, sizeof text, "%s%s", kit->prefix, name);
    return kit_symbol(text);
}

bool kit_is_cuda(const struct device_kit *kit)
{
    return kit->kind == TEI_MEM_CUDA || kit->kind == TEI_MEM_MUSA;
}

bool kit_plays(const struct device_kit *kit)
{
    bool (*plays)(int) = (bool (*)(int))(uintptr_t)kit_symbol("softgpu_plays");

    return plays && plays((int)kit->kind - 1); /* softgpu has them in the same order */
}

void kit_control(const struct device_kit *kit, const char *command)
{
    int (*control)(const char *) = (int (*)(const char *))(uintptr_t)kit_symbol("softgpu_control");
    char text[256];

    if (!kit_plays(kit))
        skip();
    snprintf(text, sizeof(text), "%s kind=%s", command, kit->name);
    kit_check(control(strchr(command, ' ') ? text : command) == 0, command);
}

void kit_random(void *buf, size_t n)
{
    uint64_t x = tei_random_u64() | 1;
    char *at = buf;

    for (size_t step; n > 0; at += step, n -= step) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        step = n < sizeof(x) ? n : sizeof(x);
        memcpy(at, &x, step);
    }
}

size_t kit_below(size_t n)
{
    return (size_t)(tei_random_u64() % n);
}

void *kit_device_memory(const struct device_kit *kit, int device, const void *from, size_t n)
{
    void *p = NULL;

    kit_check(tei_gpu_alloc(kit->kind, device, n, false, &p) == 0, "memory of a device");
    if (from)
        kit_check(tei_mem_copy(p, from, n) == 0, "a copy to a device");
    return p;
}

void kit_expect(const void *memory, const void *expected, size_t n)
{
    char *found = malloc(n + 1);

    kit_check(found && tei_mem_copy(found, memory, n) == 0, "a copy from a device");
    kit_check(memcmp(found, expected, n) == 0, "other bytes than expected");
    free(found);
}

/* --------------------------------------------------------------------------------------- children */

static void become(const char *mode, const char *name, const char *const *variables)
{
    char program[4096]; /* read, not run as it is: under valgrind it would be valgrind */
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);

    for (; variables && *variables; variables++)
        putenv((char *)(uintptr_t)*variables);
    program[n < 0 ? 0 : n] = '\0';
    execl(program, "child", mode, name, (char *)NULL);
    if (errno != ENOEXEC)
        _exit(126);
    fprintf(stderr, "the kernel does not start %s: a program of another architecture\n", program);
    _exit(77);
}

struct kit_child kit_child_start(const char *mode, const struct device_kit *kit,
                                 const char *const *variables)
{
    int down[2], up[2];
    struct kit_child c;

    kit_check(pipe(down) == 0 && pipe(up) == 0, "pipes");
    fflush(NULL);
    c.pid = fork();
    kit_check(c.pid >= 0, "a child");
    if (c.pid == 0) {
        dup2(down[0], 0);
        dup2(up[1], 1);
        close(down[0]);
        close(down[1]);
        close(up[0]);
        close(up[1]);
        become(mode, kit->name, variables);
    }
    close(down[0]);
    close(up[1]);
    c.in = down[1];
    c.out = up[0];
    return c;
}

void kit_child_end(struct kit_child *c)
{
    int status = 0;

    close(c->in);
    close(c->out);
    kit_check(waitpid(c->pid, &status, 0) == c->pid, "the child's end");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    kit_check(status == 0, "the child failed");
}

bool kit_is_child(int argc, char **argv, const char **mode, const struct device_kit **kit)
{
    static const struct device_kit *const all[] = {&kit_cuda, &kit_hip, &kit_npu, &kit_musa,
                                                   &kit_maca};

    in_child = argc == 3 && strcmp(argv[0], "child") == 0;
    if (!in_child)
        return false;
    *mode = argv[1];
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(argv[2], all[i]->name) == 0)
            *kit = all[i];
    return true;
}

void kit_send(int fd, const void *buf, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t m = write(fd, (const char *)buf + done, n - done);

        kit_check(m > 0, "writing to a pipe");
        done += (size_t)m;
    }
}

void kit_receive(int fd, void *buf, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t m = read(fd, (char *)buf + done, n - done);

        kit_check(m > 0, "reading from a pipe");
        done += (size_t)m;
    }
}
