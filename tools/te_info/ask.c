/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <unistd.h>

#if TE_USE_URING
#include <linux/io_uring.h>
#endif

#include "plat/plat.h"
#include "te.h"

static int ask_process_vm(void)
{
    char from = 1, to = 0;
    struct iovec a = {&to, 1}, b = {&from, 1};

    return process_vm_readv(getpid(), &a, 1, &b, 1, 0) == 1 ? 0 : errno;
}

static int ask_memfd(void)
{
    int fd = memfd_create("te_info", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

/* The engine takes none without this feature (src/transport/nvmeof/nvmeof_ring.c). */
static int ask_io_uring(void)
{
#if TE_USE_URING
    struct io_uring_params p = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 1, &p);

    if (fd < 0)
        return errno;
    close(fd);
    return p.features & IORING_FEAT_EXT_ARG ? 0 : ENOSYS;
#else
    return 0;
#endif
}

static bool ask_unsynchronised(void)
{
    struct timex t = {0};

    return adjtimex(&t) == TIME_ERROR;
}

static void ask_driver(bool built_in, enum tei_mem_kind kind, char why[CHECK_TEXT])
{
    why[0] = '\0';
    if (built_in && tei_gpu_open(kind))
        snprintf(why, CHECK_TEXT, "%s", te_errmsg());
}

/* The options of an engine that takes its devices from h->sysfs, where that was given. */
static int make_options(const struct check_host *h, te_options *o)
{
    te_options_init(o);
    return h->sysfs_given ? te_option_set(o, "TE_SYSFS_PATH", h->sysfs) : 0;
}

static void ask_engine(const te_options *o, char why[CHECK_TEXT])
{
    te_engine *e = NULL;
    int rc = te_engine_create(o, &e);

    snprintf(why, CHECK_TEXT, "%s", rc ? te_errmsg() : "");
    te_engine_destroy(e);
}

/* Puts a line behind those before, as far as there is room. */
static void keep(void *arg, enum te_log_level level, const char *line)
{
    char *text = arg;
    size_t used = strlen(text);

    (void)level;
    snprintf(text + used, CHECK_TEXT - used, "%s%s", used ? "; " : "", line);
}

/* What the engine logs is told by the checks. */
static void drop(void *arg, enum te_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

int check_ask(struct check_host *h, struct tei_conf *conf)
{
    struct check_asked *a = &h->asked;
    te_options o;
    int rc = make_options(h, &o);

    *a = (struct check_asked){.process_vm = ask_process_vm(),
                              .memfd = ask_memfd(),
                              .io_uring = ask_io_uring(),
                              .unsynchronised = ask_unsynchronised()};
    te_log_set_sink(keep, a->options);
    if (!rc)
        rc = tei_conf_load(o.set, conf);
    te_log_set_sink(drop, NULL);
    if (!rc) { /* else te_errmsg() is to stay */
        ask_driver(TE_USE_CUDA, TEI_MEM_CUDA, a->cuda);
        ask_driver(TE_USE_HIP, TEI_MEM_HIP, a->hip);
        ask_driver(TE_USE_ASCEND, TEI_MEM_ASCEND, a->ascend);
        ask_engine(&o, a->engine);
    }
    te_log_set_sink(NULL, NULL);
    te_options_fini(&o);
    h->conf = conf;
    return rc;
}
