/* SPDX-License-Identifier: Apache-2.0 */
#include "te_segment/connect.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/os.h"
#include "te_segment/file.h"
#include "te_segment/mount_dir.h"
#include "te_segment/nvme.h"
#include "te_segment/program.h"

#define LOOK_NS     50000000L
#define LINK_MS     2000 /* which udev takes at most */
#define OPTIONS_MAX 32   /* words of --nvme_options */
#define MOUNT_FLAGS "nosuid,nodev,noexec"

struct link {
    struct target target;
    bool has_target, connected, mounted;
    char dir[PATH_MAX], path[PATH_MAX];
};

/* ---- a signal ends it in good order */

static atomic_bool stopped;

static void on_signal(int number)
{
    (void)number;
    atomic_store_explicit(&stopped, true, memory_order_relaxed);
}

static bool is_stopped(void)
{
    return atomic_load_explicit(&stopped, memory_order_relaxed);
}

/* What has been connected is to be undone; a program that runs gets the terminal's signals itself. */
static void catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigaction(numbers[i], &action, NULL);
}

/* ---- the block device */

/* The words of a text that blanks separate, cut apart in place and appended to argv. */
static int add_words(char *text, const char **argv, size_t n)
{
    char *rest, *word = strtok_r(text, " \t", &rest);

    for (size_t i = 0; word; word = strtok_r(NULL, " \t", &rest), i++) {
        if (i == OPTIONS_MAX)
            return fail(USAGE, "--nvme_options has more than %d words", OPTIONS_MAX);
        argv[n + i] = word;
    }
    return 0;
}

static int run_connect(const struct settings *s, const struct target *t)
{
    const char *argv[10 + OPTIONS_MAX + 1] = {
        "nvme", "connect", "-t", t->transport, "-a", t->traddr, "-s", t->trsvcid, "-n", t->subnqn,
    };
    char *options = strdup(s->nvme_options);
    int rc = options ? add_words(options, argv, 10) : fail(FAILED, "no memory for the options");

    if (!rc)
        rc = program_run(argv, s->wait);
    free(options);
    return rc;
}

int nvme_disconnect(const char *nqn)
{
    const char *const argv[] = {"nvme", "disconnect", "-n", nqn, NULL};

    return program_run(argv, PROGRAM_UNDO_S);
}

static void sleep_a_look(void)
{
    nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
}

/* Until sysfs has the namespace, and the device is there to be opened, at `path`. */
static int wait_device(const struct job *j, const struct target *t, struct nvme_device *device,
                       char path[PATH_MAX])
{
    const struct tei_conf *conf = j->registry.conf;
    int64_t deadline = tei_deadline_ns((int64_t)(j->settings->wait * 1000));

    for (;;) {
        bool found = nvme_find(conf->sysfs_path, t->subnqn, t->nsid, device);

        if (found) {
            snprintf(path, PATH_MAX, "%s/%s", conf->dev_path, device->name);
            if (access(path, F_OK) == 0)
                return 0;
        }
        if (is_stopped())
            return fail(FAILED, "stopped while waiting for subsystem %s", t->subnqn);
        if (tei_left_ms(deadline) == 0)
            return fail(FAILED, "subsystem %s is connected, but %s%s within %g s (--wait)",
                        t->subnqn, found ? "there is no " : "shows no such namespace",
                        found ? path : "", j->settings->wait);
        sleep_a_look();
    }
}

/*
 * Another mount may have connected the subsystem at the same time, and nvme failed because of that:
 * then it is theirs, and stays.
 */
static int connect_device(const struct job *j, struct link *l, struct nvme_device *device,
                          char path[PATH_MAX])
{
    const char *sysfs = j->registry.conf->sysfs_path;
    int rc = 0;

    if (!nvme_is_connected(sysfs, l->target.subnqn)) {
        rc = run_connect(j->settings, &l->target);
        l->connected = rc == 0;
    }
    if (rc && !nvme_is_connected(sysfs, l->target.subnqn))
        return rc;
    return wait_device(j, &l->target, device, path);
}

/*
 * Names such as /dev/nvme1n1 go to whoever comes first after a restart, and a record outlives that:
 * the link that udev makes from the wwid leads to this namespace or to none. Where no udev is, `path`
 * stays as it is.
 */
static void choose_name(const struct job *j, const struct nvme_device *device, char path[PATH_MAX])
{
    const char *dev = j->registry.conf->dev_path;
    int64_t deadline = tei_deadline_ns(LINK_MS);
    char folder[PATH_MAX], link[PATH_MAX], at[PATH_MAX], wanted[PATH_MAX];

    snprintf(folder, sizeof folder, "%s/disk/by-id", dev);
    snprintf(link, sizeof link, "%s/disk/by-id/nvme-%s", dev, device->wwid);
    if (!device->wwid[0] || access(folder, F_OK) || !text_is_path(link, true) ||
        !realpath(path, wanted))
        return;
    while (!(realpath(link, at) && strcmp(at, wanted) == 0)) {
        if (tei_left_ms(deadline) == 0)
            return;
        sleep_a_look();
    }
    strcpy(path, link);
}

/* ---- the file system on it */

enum mounted { NOTHING, THIS_DEVICE, ANOTHER };

static enum mounted what_is_at(const char *dir, const char *device)
{
    struct stat at, above, block;
    char parent[PATH_MAX];

    snprintf(parent, sizeof parent, "%s", dir);
    *strrchr(parent, '/') = '\0';
    if (stat(dir, &at) || stat(parent, &above) || at.st_dev == above.st_dev)
        return NOTHING;
    return stat(device, &block) == 0 && block.st_rdev == at.st_dev ? THIS_DEVICE : ANOTHER;
}

static int mount_device(const struct job *j, struct link *l, const char *device)
{
    const char *const argv[] = {"mount", "-o", MOUNT_FLAGS, device, l->dir, NULL};
    int rc = mount_dir_make(l->dir);

    if (rc)
        return rc;
    switch (what_is_at(l->dir, device)) {
    case THIS_DEVICE:
        return 0;
    case ANOTHER:
        return fail(FAILED, "something else is mounted at '%s': te_segment unmount --disconnect %s",
                    l->dir, j->name);
    case NOTHING:
        break;
    }
    rc = program_run(argv, j->settings->wait);
    /* One that was ended because it took too long may have done it. */
    l->mounted = rc == 0 || what_is_at(l->dir, device) == THIS_DEVICE;
    if (!l->mounted)
        rmdir(l->dir);
    return rc;
}

/* The file system is what another host made of it: a link in it must not lead out of it. */
static int find_inside(struct link *l)
{
    char wanted[PATH_MAX], root[PATH_MAX];
    size_t len;

    if (strlen(l->dir) + strlen(l->target.fs_path) + 2 > sizeof wanted)
        return fail(FAILED, "the path of a file below '%s' is too long", l->dir);
    strcpy(stpcpy(stpcpy(wanted, l->dir), "/"), l->target.fs_path);
    if (!realpath(wanted, l->path) || !realpath(l->dir, root))
        return fail(FAILED, "file '%s': %s", wanted, strerror(errno));
    len = strlen(root);
    if (strncmp(l->path, root, len) != 0 || l->path[len] != '/' || !text_is_path(l->path, true))
        return fail(FAILED, "file '%s' is a link that leads out of its file system", wanted);
    return 0;
}

/* ---- one file */

static int check_file(const struct links *all, size_t i, const char *path)
{
    struct file_info info;
    char why[WHY_MAX];

    return record_takes(all->job, all->root, i, path, &info, why)
               ? 0
               : fail(FAILED, "file '%s': %s", path, why);
}

static int connect_file(struct links *all, size_t i)
{
    const struct job *j = all->job;
    struct link *l = &all->list[i];
    struct nvme_device device;
    char path[PATH_MAX];
    int rc = connect_device(j, l, &device, path);

    if (rc)
        return rc;
    if (l->target.fs_path) {
        mount_dir_of(j, i, l->dir);
        rc = mount_device(j, l, path);
        if (!rc)
            rc = find_inside(l);
    } else {
        choose_name(j, &device, path);
        strcpy(l->path, path);
    }
    if (!rc)
        rc = check_file(all, i, l->path);
    all->paths[i] = l->path;
    return rc;
}

/* ---- all */

void connect_undo(struct links *l)
{
    for (size_t i = l->n; i-- > 0;) {
        if (l->list[i].mounted)
            mount_dir_end(l->list[i].dir);
        if (l->list[i].connected)
            nvme_disconnect(l->list[i].target.subnqn);
    }
    mount_dirs_remove(l->job);
}

void connect_fini(struct links *l)
{
    free(l->list);
    free(l->paths);
}

int connect_files(const struct job *j, const json_t *root, struct links *out)
{
    size_t n = record_count(root), targets = 0;
    struct links l = {.job = j,
                      .root = root,
                      .list = calloc(n, sizeof *l.list),
                      .paths = calloc(n, sizeof *l.paths),
                      .n = n};
    int rc = l.list && l.paths ? 0 : fail(FAILED, "no memory for %zu files", n);

    for (size_t i = 0; i < n && !rc; i++) {
        l.list[i].has_target = record_target(root, i, &l.list[i].target);
        targets += l.list[i].has_target;
    }
    if (!rc && !targets)
        rc = fail(FAILED,
                  "segment '%s' does not say how its files are reached (register --target): "
                  "mount them yourself and give their --path",
                  j->name);
    catch_signals();
    for (size_t i = 0; i < n && !rc; i++) {
        if (is_stopped())
            rc = fail(FAILED, "stopped before all files were connected");
        else if (l.list[i].has_target)
            rc = connect_file(&l, i);
    }
    if (!rc && is_stopped())
        rc = fail(FAILED, "stopped before it was recorded");
    if (rc) {
        if (targets)
            connect_undo(&l);
        connect_fini(&l);
        return rc;
    }
    *out = l;
    return 0;
}
