/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn.c - how the turn goes from one thread to another.
 *
 * Each thread of the world is one of the C library, which has made its stack and its thread-local memory. To
 * have the kernel put one to sleep and wake another takes most of the time of a run. So, where the processor
 * lets a program set the base of thread-local memory (x86-64 with FSGSBASE), the kernel thread that began the
 * run goes on with the registers, the stack and that base of whose turn it is, in a few nanoseconds; the
 * kernel threads of the others sleep, and each gets its own back when it ends. Elsewhere each sleeps on a
 * futex until its turn. A run is the same in both ways: who is next is not decided here.
 */
#include "turn.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

static bool is_light; /* one kernel thread runs them all */

static void futex(uint32_t *word, int op, uint32_t value)
{
    static long (*real)(long, ...);

    if (!real)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    real(SYS_futex, word, op, value, NULL, NULL, 0);
}

static void set(uint32_t *word)
{
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    futex(word, FUTEX_WAKE_PRIVATE, 1);
}

static void await(uint32_t *word)
{
    while (!__atomic_load_n(word, __ATOMIC_ACQUIRE))
        futex(word, FUTEX_WAIT_PRIVATE, 0);
}

#if defined(__x86_64__) && !defined(__ILP32__)

_Static_assert(offsetof(struct sim_turn, stack) == 0 && offsetof(struct sim_turn, base) == 8 &&
                   offsetof(struct sim_turn, go) == 16 && offsetof(struct sim_turn, back) == 20,
               "as it is written below");

/* Saves the caller's registers, and goes on with those of `to`. */
void sim_turn_swap(struct sim_turn *from, struct sim_turn *to);
/* The same, and has the kernel thread of `from` go on with what was saved. */
void sim_turn_swap_last(struct sim_turn *from, struct sim_turn *to);
/* Saves the caller's registers, says so by `go`, and sleeps without a stack until `back`. */
void sim_turn_park(struct sim_turn *t);

#define SAVE   "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
#define RESUME "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
#define NAMED(name, body)                                                              \
    ".globl " name "\n .hidden " name "\n .type " name ", @function\n" name ":\n" body \
    ".size " name ", . - " name "\n"
#define TAKE              \
    "mov %rsp, (%rdi)\n"  \
    "mov (%rsi), %rsp\n"  \
    "mov 8(%rsi), %rax\n" \
    "wrfsbase %rax\n"
/* Of the word at %rdi; 202 is SYS_futex, 128 and 129 are to wait and to wake within the process. */
#define FUTEX(op, value) \
    "mov $" op ", %esi\n mov $" value ", %edx\n xor %r10d, %r10d\n mov $202, %eax\n syscall\n"

/* clang-format off */
__asm__(".text\n"
        NAMED("sim_turn_swap", SAVE TAKE RESUME)
        NAMED("sim_turn_swap_last", SAVE TAKE
              "movl $1, 20(%rdi)\n add $20, %rdi\n" FUTEX("129", "1") RESUME)
        NAMED("sim_turn_park", SAVE
              "mov %rsp, (%rdi)\n"
              "mov %rdi, %rbx\n"
              "movl $1, 16(%rbx)\n"
              "lea 16(%rbx), %rdi\n" FUTEX("129", "1")
              "1:\n"
              "lea 20(%rbx), %rdi\n" FUTEX("128", "0")
              "cmpl $0, 20(%rbx)\n"
              "je 1b\n"
              "mov (%rbx), %rsp\n" RESUME));
/* clang-format on */

static uint64_t base_of_thread(void)
{
    uint64_t base;

    __asm__("rdfsbase %0" : "=r"(base));
    return base;
}

static bool can_be_light(void)
{
    return getauxval(AT_HWCAP2) & 2; /* HWCAP2_FSGSBASE */
}

#else

static bool can_be_light(void)
{
    return false;
}

static uint64_t base_of_thread(void)
{
    return 0;
}

static void sim_turn_swap(struct sim_turn *from, struct sim_turn *to)
{
    (void)from, (void)to;
}

#define sim_turn_swap_last sim_turn_swap

static void sim_turn_park(struct sim_turn *t)
{
    (void)t;
}

#endif

void sim_turn_first(struct sim_turn *t)
{
    is_light = can_be_light();
    t->base = is_light ? base_of_thread() : 0;
    t->go = is_light;
}

static void await_turn(struct sim_turn *t)
{
    await(&t->go);
    __atomic_store_n(&t->go, 0, __ATOMIC_RELAXED);
}

void sim_turn_await(struct sim_turn *t)
{
    if (is_light) {
        t->base = base_of_thread();
        sim_turn_park(t);
    } else {
        await_turn(t);
    }
}

void sim_turn_pass(struct sim_turn *from, struct sim_turn *to)
{
    if (is_light) {
        await(&to->go); /* a new one may not have come that far */
        sim_turn_swap(from, to);
    } else {
        set(&to->go);
        await_turn(from);
    }
}

void sim_turn_leave(struct sim_turn *from, struct sim_turn *to)
{
    if (is_light) {
        await(&to->go);
        sim_turn_swap_last(from, to);
    } else {
        set(&to->go);
    }
}
