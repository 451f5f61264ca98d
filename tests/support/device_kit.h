/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_kit.h - for tests of memory of devices, which run on softgpu and on real drivers alike. What
 * only softgpu has is found by name in the process, and left out where it is not.
 */
#ifndef TEST_DEVICE_KIT_H
#define TEST_DEVICE_KIT_H

#include "plat/plat.h"

struct device_kit {
    enum tei_mem_kind kind;
    const char *name;   /* "cuda" */
    const char *prefix; /* of its functions: "cu" */
};

extern struct device_kit kit_cuda, kit_hip, kit_npu, kit_musa, kit_maca;

/*
 * A test of one kind, and the same test of all: for the list of a cmocka group. Of the makers whose
 * runtime is another one's there is one for each runtime.
 */
#define KIT_TEST(test, kit)                      \
    {                                            \
#test " " #kit, test, NULL, NULL, &(kit) \
    }
#define KIT_ALL(test)                                                           \
    KIT_TEST(test, kit_cuda), KIT_TEST(test, kit_hip), KIT_TEST(test, kit_npu), \
        KIT_TEST(test, kit_musa), KIT_TEST(test, kit_maca)

/* Opens the driver, or skips the test where there is none; how many devices there are. */
int kit_open(const struct device_kit *kit);
/* Skips the test unless there are as many. */
void kit_need(const struct device_kit *kit, int devices);

/* A function of the driver or of softgpu; NULL where it is not in this process. */
void *kit_symbol(const char *name);
/* The function of this driver by its name behind the prefix. */
void *kit_call(const struct device_kit *kit, const char *name);
/* Whether its functions are those of CUDA's driver, or else of HIP. */
bool kit_is_cuda(const struct device_kit *kit);
/* Whether softgpu plays this driver. */
bool kit_plays(const struct device_kit *kit);
/* Commands to softgpu, of which each ends with "kind=<this>"; skips the test on a real driver. */
void kit_control(const struct device_kit *kit, const char *command);

/* For what runs in children, too: cmocka's own asserts jump to its runner, which a child has not. */
void kit_check(bool good, const char *what);

void kit_random(void *buf, size_t n);
size_t kit_below(size_t n); /* a random number */

/* Memory of a device, filled from, and compared with, host memory. */
void *kit_device_memory(const struct device_kit *kit, int device, const void *from, size_t n);
void kit_expect(const void *memory, const void *expected, size_t n);

/*
 * Runs this test program anew as `argv[0] mode kind`, with a pipe each way; the variables ("A=B",
 * ended by NULL, may be NULL) are added to its environment. A test's main() calls kit_is_child()
 * first of all, and if that says so does what `mode` is about and returns.
 */
struct kit_child {
    int pid, in, out; /* what it reads; what it wrote */
};
struct kit_child kit_child_start(const char *mode, const struct device_kit *kit,
                                 const char *const *variables);
/*
 * Fails the test unless it ends well; 77: the test is skipped, as where the kernel cannot start the program anew (under
 * qemu-user).
 */
void kit_child_end(struct kit_child *c);
bool kit_is_child(int argc, char **argv, const char **mode, const struct device_kit **kit);
/* All of it, or the test fails (a child exits). Descriptors 0 and 1 are a child's ends. */
void kit_send(int fd, const void *buf, size_t n);
void kit_receive(int fd, void *buf, size_t n);

#endif
