/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme.c - what is looked at:
 *
 *   class/nvme-subsystem/nvme-subsys0/subsysnqn      the name of the subsystem
 *   class/nvme-subsystem/nvme-subsys0/nvme0/         one of its controllers
 *   class/nvme-subsystem/nvme-subsys0/nvme0n1/nsid   a namespace, with multipath; wwid beside it
 *   class/nvme-subsystem/nvme-subsys0/nvme0/nvme0n1/nsid     the same without
 *
 * With multipath the controllers have namespaces of their own, nvme0c0n1, which are no devices.
 */
#include "te_segment/nvme.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common_units.h"

#define LINE_BYTES 512

/* The first line of a file in a folder. */
static bool read_line(int folder, const char *name, char out[LINE_BYTES])
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, LINE_BYTES - 1);

    if (fd >= 0)
        close(fd);
    if (n < 0)
        return false;
    out[n] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return true;
}

/* A folder in a folder, or a link to one; NULL if it cannot be read. */
static DIR *open_folder(int in, const char *name)
{
    int fd = openat(in, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);

    if (fd >= 0 && !folder)
        close(fd);
    return folder;
}

/* "nvme3", or "nvme3n1" if a `namespace` is meant. */
static bool is_name(const char *name, bool namespace)
{
    size_t digits, len;

    if (strncmp(name, "nvme", 4) != 0 || strlen(name) >= NVME_NAME_MAX)
        return false;
    digits = strspn(name + 4, "0123456789");
    len = 4 + digits;
    if (!digits || !namespace)
        return digits && !name[len];
    digits = name[len] == 'n' ? strspn(name + len + 1, "0123456789") : 0;
    return digits && !name[len + 1 + digits];
}

/* The next one of a folder; NULL after the last. */
static const char *next_name(DIR *folder, bool namespace)
{
    struct dirent *entry;

    while ((entry = readdir(folder)))
        if (is_name(entry->d_name, namespace))
            return entry->d_name;
    return NULL;
}

/* Closes the subsystem's folder when it is another one. */
static DIR *open_subsystem(int class, const char *name, const char *nqn)
{
    DIR *folder = strncmp(name, "nvme-subsys", 11) == 0 ? open_folder(class, name) : NULL;
    char line[LINE_BYTES];

    if (folder && (!read_line(dirfd(folder), "subsysnqn", line) || strcmp(line, nqn) != 0)) {
        closedir(folder);
        return NULL;
    }
    return folder;
}

/* Calls look() with the folder of each subsystem of that name until it says true. */
static bool each_subsystem(const char *sysfs, const char *nqn, bool (*look)(DIR *, void *),
                           void *arg)
{
    char path[PATH_MAX];
    bool found = false;
    struct dirent *entry;
    DIR *class;

    snprintf(path, sizeof path, "%s/class/nvme-subsystem", sysfs);
    class = opendir(path);
    while (class && !found && (entry = readdir(class))) {
        DIR *subsystem = open_subsystem(dirfd(class), entry->d_name, nqn);

        if (!subsystem)
            continue;
        found = look(subsystem, arg);
        closedir(subsystem);
    }
    if (class)
        closedir(class);
    return found;
}

static bool has_controller(DIR *subsystem, void *arg)
{
    (void)arg;
    return next_name(subsystem, false) != NULL;
}

bool nvme_is_connected(const char *sysfs, const char *nqn)
{
    return each_subsystem(sysfs, nqn, has_controller, NULL);
}

/* ---- namespaces */

struct wanted {
    uint32_t nsid;
    struct nvme_device *out;
};

/* A wwid names a link of udev's: what has a '/' names none. */
static void read_wwid(int folder, const char *device, char out[NVME_WWID_MAX])
{
    char path[NVME_NAME_MAX + 8], line[LINE_BYTES];

    snprintf(path, sizeof path, "%s/wwid", device);
    out[0] = '\0';
    if (read_line(folder, path, line) && strlen(line) < NVME_WWID_MAX && !strchr(line, '/'))
        strcpy(out, line);
}

static bool find_in(DIR *folder, const struct wanted *w)
{
    char path[NVME_NAME_MAX + 8], line[LINE_BYTES];
    const char *name;
    uint64_t nsid;

    while ((name = next_name(folder, true))) {
        snprintf(path, sizeof path, "%s/nsid", name);
        if (read_line(dirfd(folder), path, line) && units_parse_count(line, &nsid) &&
            nsid == w->nsid) {
            strcpy(w->out->name, name);
            read_wwid(dirfd(folder), name, w->out->wwid);
            return true;
        }
    }
    return false;
}

static bool find_namespace(DIR *subsystem, void *arg)
{
    const struct wanted *w = arg;
    bool found = find_in(subsystem, w);
    const char *name;

    rewinddir(subsystem);
    while (!found && (name = next_name(subsystem, false))) {
        DIR *controller = open_folder(dirfd(subsystem), name);

        if (!controller)
            continue;
        found = find_in(controller, w);
        closedir(controller);
    }
    return found;
}

bool nvme_find(const char *sysfs, const char *nqn, uint32_t nsid, struct nvme_device *out)
{
    struct wanted w = {.nsid = nsid, .out = out};

    return each_subsystem(sysfs, nqn, find_namespace, &w);
}
