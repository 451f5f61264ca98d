/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outside.c - what the libraries inside the whole archive have in place of what is outside of it.
 *
 * They come as archives of the system. `names` gives what they refer to other names before they are
 * taken in, cmake/archive.cmake says when. Nothing here is seen by the program or by the engine.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>

/*
 * Their objects are made for programs: the compiler reads variables of the C library as if these
 * were the program's own, which the linker refuses in a shared library. These are.
 */
extern FILE *tei_archive_stdin, *tei_archive_stdout, *tei_archive_stderr;
extern char *tei_archive_program;

FILE *tei_archive_stdin, *tei_archive_stdout, *tei_archive_stderr;
char *tei_archive_program;

/* Before the constructors of a program, which may make an engine. */
__attribute__((constructor(101))) static void set_variables(void)
{
    tei_archive_stdin = stdin;
    tei_archive_stdout = stdout;
    tei_archive_stderr = stderr;
    tei_archive_program = program_invocation_name;
}

/*
 * hwloc looks for plugins. Those of the system belong to the system's libhwloc, which may be of
 * another version: the one inside has none.
 */
void *tei_archive_dlopen(const char *file, int flags);

void *tei_archive_dlopen(const char *file, int flags)
{
    (void)file, (void)flags;
    return NULL;
}

/* Without udev, hwloc reads the files of udev and /sys itself. Only udev_new() is ever called. */
void *udev_new(void);
void *udev_unref(void *udev);
void *udev_device_new_from_subsystem_sysname(void *udev, const char *subsystem, const char *name);
const char *udev_device_get_property_value(void *device, const char *key);
void *udev_device_unref(void *device);

void *udev_new(void)
{
    return NULL;
}

void *udev_unref(void *udev)
{
    (void)udev;
    return NULL;
}

void *udev_device_new_from_subsystem_sysname(void *udev, const char *subsystem, const char *name)
{
    (void)udev, (void)subsystem, (void)name;
    return NULL;
}

const char *udev_device_get_property_value(void *device, const char *key)
{
    (void)device, (void)key;
    return NULL;
}

void *udev_device_unref(void *device)
{
    (void)device;
    return NULL;
}
