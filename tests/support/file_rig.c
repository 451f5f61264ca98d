/* SPDX-License-Identifier: Apache-2.0 */
#include "file_rig.h"

#include "base/os.h"
#include "patience.h"
#include "proc.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool use_uring;

void file_rig_use(bool uring)
{
    use_uring = uring;
}

/* Whether every user can get into the folder, which is an absolute path. */
static bool is_open_to_all(const char *folder)
{
    char path[PATH_MAX];
    struct stat st;

    assert(strlen(folder) < sizeof path);
    strcpy(path, folder);
    for (char *end = path + strlen(path); end > path; end = strrchr(path, '/')) {
        *end = '\0';
        if (stat(path, &st) != 0 || !(st.st_mode & S_IXOTH))
            return false;
    }
    return true;
}

void file_rig_folder(char dir[FILE_RIG_DIR])
{
    char here[PATH_MAX], name[PATH_MAX], folder[PATH_MAX];

    assert(getcwd(here, sizeof here));
    snprintf(name, sizeof name, "%s/te-files-XXXXXX", is_open_to_all(here) ? "." : "/var/tmp");
    assert(mkdtemp(name));
    assert(realpath(name, folder) && strlen(folder) < FILE_RIG_DIR);
    strcpy(dir, folder);
    chmod(dir, 0755);
}

static void *do_nothing(void *arg)
{
    return arg;
}

/* A sanitizer begins a thread of its own with the first one of the program's. */
static void warm_up(void)
{
    pthread_t thread;

    assert(pthread_create(&thread, NULL, do_nothing, NULL) == 0);
    pthread_join(thread, NULL);
}

struct file_rig *file_rig_open(void (*configure)(struct tei_conf *conf))
{
    struct file_rig *r = calloc(1, sizeof *r);

    assert(r);
    warm_up();
    r->fds = test_count_fds();
    r->threads = test_settled_threads();
    file_rig_folder(r->dir);
    fake_host_init(&r->host);
    r->host.conf.file_uring = use_uring;
    strcpy(r->host.conf.file_paths, "/");
    if (configure)
        configure(&r->host.conf);
    r->t = fake_open(&r->host, "nvmeof");
    r->memory = mmap(NULL, RIG_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(r->memory != MAP_FAILED);
    r->region = fake_region_add(&r->host, r->t, r->memory, RIG_MEMORY, TE_REMOTE_RW);
    return r;
}

/* The kernel may take a moment for what it does by itself, also before the rig was made. */
static void check_left(const struct file_rig *r)
{
    if (!test_nothing_left(r->fds, r->threads))
        abort();
}

void file_rig_close(struct file_rig *r)
{
    char command[256];

    fake_region_del(&r->host, r->t, r->region);
    fake_close(r->t);
    fake_host_fini(&r->host);
    munmap(r->memory, RIG_MEMORY);
    snprintf(command, sizeof command, "rm -rf '%s'", r->dir);
    assert(system(command) == 0);
    check_left(r);
    free(r);
}

const char *file_rig_path(const struct file_rig *r, const char *name)
{
    static char texts[16][256];
    static unsigned next;
    char *text = texts[next++ % TEI_ARRAY_LEN(texts)];

    snprintf(text, sizeof texts[0], "%s/%s", r->dir, name);
    return text;
}

void file_rig_make(const struct file_rig *r, const char *name, size_t length)
{
    int fd = open(file_rig_path(r, name), O_CREAT | O_TRUNC | O_RDWR, 0644);

    assert(fd >= 0 && posix_fallocate(fd, 0, (off_t)length) == 0);
    close(fd);
}

char *file_rig_bytes(const char *path, size_t length)
{
    int fd = open(path, O_RDONLY);
    char *bytes = malloc(length + 1);

    assert(fd >= 0 && bytes);
    assert(pread(fd, bytes, length, 0) == (ssize_t)length);
    close(fd);
    return bytes;
}

struct tei_attach *file_rig_attach_row(struct file_rig *r, const char *const *paths, size_t n,
                                       uint64_t length)
{
    json_t *list = json_array();
    struct tei_attach *a = NULL;
    char *text;
    json_t *root;

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{ss sI s{ss}}", "file_path", paths[i], "length",
                                              (json_int_t)length, "local_path_map", "*", paths[i]));
    root = json_pack("{ss ss so}", "name", "files", "protocol", "nvmeof", "buffers", list);
    text = json_dumps(root, 0);
    assert(text);
    a = fake_attach_text(r->t, text);
    free(text);
    json_decref(root);
    return a;
}

struct tei_attach *file_rig_attach(struct file_rig *r, const char *path, uint64_t length)
{
    return file_rig_attach_row(r, &path, 1, length);
}

struct fake_task file_rig_move(struct file_rig *r, struct tei_attach *a, int opcode, void *local,
                               uint64_t at, uint64_t length)
{
    struct fake_task *task = calloc(1, sizeof *task), copy;
    struct tei_list list;

    assert(task);
    tei_list_init(&list);
    fake_work(&list, r->t, a, task, opcode, local, (void *)(uintptr_t)at, length);
    r->t->ops.post(r->t, &list);
    if (!fake_wait(&r->host, NULL, task, 1, PATIENCE_MS)) {
        fprintf(stderr, "file rig: a request has not ended within 20 s\n");
        abort();
    }
    copy = *task;
    copy.why = NULL; /* what it says is in `note` */
    free(task);
    return copy;
}
