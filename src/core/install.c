/* SPDX-License-Identifier: Apache-2.0 */
/*
 * install.c - which transports an engine has.
 *
 * Uninstalling first swaps every peer's view for one without it; if an older view is still held,
 * transfers are using the transport and everything is put back. One that is to go by another NIC
 * priority matrix is replaced: the new one is opened first and takes the old one's place in one step,
 * so that a request finds one of the two at any time.
 */
#include "core/install.h"
#include "core/core.h"
#include "core/register.h"
#include "plat/plat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DRAIN_MIN_NS (TEI_NS_PER_MS / 16) /* doubles up to the next */
#define DRAIN_MAX_NS (64 * TEI_NS_PER_MS)

static void shut(te_engine *e, struct tei_transport *t)
{
    t->ops.close(t);
    tei_register_leave(e, t);
    t->ops.stop(t);
    tei_transports_keep(&e->transports, t);
    tei_transport_destroy(t);
}

/* Opens a transport that has all regions, but is not in the list. */
static int open_new(te_engine *e, const struct tei_transport_ops *ops, const char *path,
                    struct tei_transport **out)
{
    struct tei_transport *t;
    size_t i = tei_transports_room(&e->transports);
    char why[256];
    int rc;

    if (!tei_install_can_run(&e->conf, ops, why, sizeof(why)))
        return TEI_FAIL(TE_ERR_UNSUPPORTED, "transport '%s' cannot run on this host: %s", ops->name,
                        why);
    if (i == TEI_TRANSPORTS_MAX)
        return TEI_FAIL(TE_ERR_TOO_MANY, "no room for a transport beside %d others",
                        TEI_TRANSPORTS_MAX);
    rc = tei_transport_open(ops, &e->host, i, &t);
    if (rc)
        return rc;
    tei_pool_fini(&e->transports.works[i]);
    tei_pool_init(&e->transports.works[i], ops->work_size);
    rc = path ? t->ops.allow(t, path) : 0;
    if (!rc)
        rc = tei_register_join(e, t);
    if (rc) {
        shut(e, t);
        return rc;
    }
    *out = t;
    return 0;
}

/* `path` (may be NULL): given to allow() before the transport is of use. Under admin. */
static int install(te_engine *e, const struct tei_transport_ops *ops, const char *path)
{
    struct tei_transport *t;
    int rc;

    if (tei_transports_find(&e->transports, ops->name))
        return 0;
    rc = open_new(e, ops, path, &t);
    if (rc)
        return rc;
    tei_transports_change(&e->transports, NULL, t);
    TEI_INFO("transport %s is installed", ops->name);
    return 0;
}

/* ---------------------------------------------------------------------------------- auto_discover */

/* In transports.declined. */
static unsigned bit_of(const char *name)
{
    const struct tei_transport_ops *ops;
    size_t i = 0;

    while ((ops = tei_transport_at(i)) && strcmp(ops->name, name) != 0)
        i++;
    return 1u << i;
}

/* The first that can be had: devices that the kernel shows may still be out of reach. */
static int install_first_remote(te_engine *e)
{
    const struct tei_transport_ops *ops;
    int rc = 0;

    for (size_t i = 0; (ops = tei_transport_at(i)); i++) {
        char why[256];

        if (!(ops->caps & TEI_CAP_REMOTE) || (ops->caps & TEI_CAP_DEVICE))
            continue;
        if (!tei_install_can_run(&e->conf, ops, why, sizeof(why))) {
            TEI_INFO("transport %s is left out: %s", ops->name, why);
            continue;
        }
        rc = install(e, ops, NULL);
        if (!rc || rc == TE_ERR_MEMORY)
            return rc;
        TEI_WARN("transport %s is left out: %s", ops->name, te_errmsg());
    }
    return rc ? rc
              : TEI_FAIL(TE_ERR_UNSUPPORTED, "no transport to other engines can run on this host");
}

static int install_named(te_engine *e, const char *name)
{
    const struct tei_transport_ops *ops;
    int rc = tei_install_find(name, &ops);

    return rc ? rc : install(e, ops, NULL);
}

static bool has_remote(const struct transports *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i] && (s->list[i]->ops.caps & TEI_CAP_REMOTE))
            return true;
    return false;
}

/* What comes with memory of devices stays away where an option asks for another transport. */
static bool is_companion(const te_engine *e, const struct tei_transport_ops *ops)
{
    const char *option, *asked = tei_transport_asked(&e->conf, &option);

    if (!ops->beside || (ops->beside & ~tei_install_kinds(&e->transports)) ||
        tei_install_why_off(&e->conf, ops))
        return false;
    return ops->beside == TEI_MEM_BIT(TEI_MEM_HOST) || !asked || strcmp(asked, ops->name) == 0;
}

/*
 * What goes with a transport to other hosts. An engine that cannot have one goes on without;
 * TE_ERR_MEMORY if it was memory that one lacked.
 */
static int install_companions(te_engine *e)
{
    const struct tei_transport_ops *ops;
    int rc = 0;

    for (size_t i = 0; (ops = tei_transport_at(i)); i++) {
        char why[256];

        if ((e->transports.declined & (1u << i)) || !is_companion(e, ops))
            continue;
        if (!tei_install_can_run(&e->conf, ops, why, sizeof(why)))
            TEI_INFO("transport %s is left out: %s", ops->name, why);
        else if (install(e, ops, NULL) == TE_ERR_MEMORY) /* which has said why not */
            rc = TE_ERR_MEMORY;
    }
    return rc;
}

/* Without memory to make all views anew at once, each is made with the next descriptor of its peer. */
static void rebuild_or_refresh(te_engine *e)
{
    if (tei_peer_rebuild(&e->peers) != 0)
        tei_peer_refresh_all(e);
}

/*
 * Peers' views are made anew where one was added, as in install_new(): what fails of that is said in the
 * log.
 */
bool tei_install_for_devices(te_engine *e)
{
    unsigned before = atomic_load_explicit(&e->transports.generation, memory_order_relaxed);
    unsigned kinds = atomic_load_explicit(&e->transports.kinds, memory_order_relaxed);
    bool more;

    if (!(kinds & ~e->transports.served) || !has_remote(&e->transports))
        return false;
    e->transports.served = kinds;
    (void)install_companions(e);
    more = atomic_load_explicit(&e->transports.generation, memory_order_relaxed) != before;
    if (more)
        rebuild_or_refresh(e);
    return more;
}

/* What every engine has, for its own memory. */
static int install_local(te_engine *e)
{
    const struct tei_transport_ops *ops;
    int rc = 0;

    for (size_t i = 0; !rc && (ops = tei_transport_at(i)); i++)
        rc = ops->caps & TEI_CAP_LOCAL_ONLY ? install(e, ops, NULL) : 0;
    return rc;
}

int tei_install_defaults(te_engine *e, bool auto_discover)
{
    const char *option, *asked = tei_transport_asked(&e->conf, &option);
    int rc = install_local(e);

    if (rc || !auto_discover)
        return rc;
    if (e->conf.custom_topology[0])
        rc = tei_matrix_load(&e->matrix, e->conf.custom_topology);
    if (!rc)
        rc = asked ? install_named(e, asked) : install_first_remote(e);
    return rc ? rc : install_companions(e);
}

/* ----------------------------------------------------------------------------------- public calls */

/*
 * Waits until no view names a transport that has left the list: for the requests that took one just
 * before that, which end by themselves. `rebuild`: some peer's current view may name it still.
 */
static void drain(te_engine *e, size_t i, bool rebuild)
{
    struct timespec pause = {.tv_nsec = DRAIN_MIN_NS};

    while (atomic_load_explicit(&e->transports.views[i], memory_order_acquire)) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < DRAIN_MAX_NS)
            pause.tv_nsec *= 2;
        if (rebuild)
            (void)tei_peer_rebuild(&e->peers);
        tei_gates_renew(e);
    }
}

/* Takes one out that was installed just now, so that few views name it, if any. */
static void remove_new(te_engine *e, struct tei_transport *t)
{
    tei_transports_change(&e->transports, t, NULL);
    drain(e, t->index, true);
    shut(e, t);
}

/*
 * Under admin. A failure after the install is the directory's: the transport stays and is told
 * later.
 */
static int install_new(te_engine *e, const struct tei_transport_ops *ops, const char *path)
{
    int rc = install(e, ops, path);

    if (!rc)
        e->transports.declined &= ~bit_of(ops->name);
    if (!rc && (ops->caps & TEI_CAP_REMOTE)) {
        (void)install_companions(e);
        tei_register_find_stranded(e);
        (void)tei_install_for_devices(e);
    }
    if (!rc) {
        rc = tei_peer_rebuild(&e->peers);
        if (rc)
            remove_new(e, tei_transports_find(&e->transports, ops->name));
    }
    if (!rc && tei_publish(e, 0) != 0)
        tei_publish_later(e);
    return rc;
}

static int fail_busy(const struct tei_transport *t)
{
    return TEI_FAIL(TE_ERR_BUSY, "transport %s: transfers use it", t->ops.name);
}

/* A WRITE that ended early may still be applied, and only this instance can have later ones wait for it. */
static int fail_unsettled(te_engine *e, const struct tei_transport *t)
{
    char name[TEI_HOSTPORT_MAX];

    if (!tei_peer_held(&e->peers, t, name, sizeof(name)))
        return TEI_FAIL(TE_ERR_BUSY,
                        "transport %s: a WRITE that was cancelled, late or broken off may still be "
                        "applied at a segment that was closed since; try again when its engine has "
                        "answered or has ended",
                        t->ops.name);
    return TEI_FAIL(TE_ERR_BUSY,
                    "transport %s: a WRITE that was cancelled, late or broken off may still be "
                    "applied at segment '%s'; try again when its engine has answered or has ended, "
                    "or, where a fence ends with TE_ERR_LINK, once the segment is closed",
                    t->ops.name, name);
}

static int take_out(te_engine *e, struct tei_transport *t)
{
    size_t i = t->index;
    bool used, unsettled;
    int rc;

    if (tei_peer_uses(e, i)) /* requests need not do without it to find that out */
        return fail_busy(t);
    if (t->ops.holds(t, NULL, NULL))
        return fail_unsettled(e, t);
    tei_transports_change(&e->transports, t, NULL);
    rc = tei_peer_rebuild(&e->peers);
    used = atomic_load_explicit(&e->transports.views[i], memory_order_acquire) > 0;
    unsettled = !rc && !used && t->ops.holds(t, NULL, NULL); /* once nothing new comes */
    if (rc || used || unsettled) {
        tei_transports_change(&e->transports, NULL, t);
        rebuild_or_refresh(e);
        if (rc)
            return TEI_FAIL(rc, "transport %s: %s", t->ops.name, te_strerror(rc));
        return used ? fail_busy(t) : fail_unsettled(e, t);
    }
    e->transports.declined |= bit_of(t->ops.name);
    shut(e, t);
    if (tei_publish(e, 0) != 0)
        tei_publish_later(e);
    return 0;
}

/* Opens a transport anew, in place of the one that runs, which is as it was if that fails. */
static int replace(te_engine *e, struct tei_transport *old, const struct tei_transport_ops *ops)
{
    struct tei_transport *t;
    int rc;

    if (tei_peer_uses(e, old->index))
        return fail_busy(old);
    rc = open_new(e, ops, NULL, &t);
    if (rc)
        return rc;
    tei_transports_change(&e->transports, old, t);
    rc = tei_peer_rebuild(&e->peers);
    if (rc) {
        tei_transports_change(&e->transports, t, old);
        rebuild_or_refresh(e);
        drain(e, t->index, true);
        shut(e, t);
        return TEI_FAIL(rc, "transport %s: %s", ops->name, te_strerror(rc));
    }
    if (tei_publish(e, 0) != 0) /* peers that look while the old one is shut find the new one */
        tei_publish_later(e);
    drain(e, old->index, false);
    shut(e, old);
    TEI_INFO("transport %s is opened anew", ops->name);
    return 0;
}

/*
 * What te_transport_install() does with a matrix, or none (NULL). One that no transport could be
 * opened with is not kept.
 */
static int install_with(te_engine *e, const struct tei_transport_ops *ops, const char *json)
{
    struct tei_transport *t = tei_transports_find(&e->transports, ops->name);
    struct tei_topology *old = e->matrix.given, *new = old, *drop = old;
    json_t *opened = json_incref(e->matrix.opened);
    bool same = true;
    int rc = json ? tei_matrix_read(json, strlen(json), &new) : 0;

    e->matrix.given = new;
    if (!rc && t && json && (ops->caps & TEI_CAP_NICS))
        rc = tei_matrix_is_opened(&e->matrix, new, &same);
    if (!rc && !t)
        rc = install_new(e, ops, NULL);
    else if (!rc && !same)
        rc = replace(e, t, ops);
    if (rc && tei_transports_find(&e->transports, ops->name) == t) {
        e->matrix.given = old;
        drop = new;
        json_decref(e->matrix.opened);
        e->matrix.opened = json_incref(opened);
    }
    if (drop != e->matrix.given)
        tei_matrix_free(drop);
    json_decref(opened);
    return rc;
}

/* For nvmeof. */
static int install_path(te_engine *e, const struct tei_transport_ops *ops, const char *path)
{
    struct tei_transport *t = tei_transports_find(&e->transports, ops->name);

    return t ? t->ops.allow(t, path) : install_new(e, ops, path);
}

/* Who names a transport to files asks for files: a bare name may be that of some. Under admin. */
static void note_files(te_engine *e, const struct tei_transport_ops *ops, bool asked)
{
    if (ops->caps & TEI_CAP_FILE)
        atomic_store_explicit(&e->dir->bare_files, asked, memory_order_relaxed);
}

/* JSON may have white space before it. */
static bool is_path(const char *arg)
{
    return arg[strspn(arg, " \t\r\n")] != '{';
}

int te_transport_install(te_engine *e, const char *name, const char *arg)
{
    const struct tei_transport_ops *ops = NULL;
    int rc = tei_engine_check(e);

    if (!rc && !name)
        rc = TEI_FAIL(TE_ERR_INVALID, "transport name is NULL");
    if (!rc)
        rc = tei_install_find(name, &ops);
    if (rc)
        return rc;
    pthread_mutex_lock(&e->admin);
    rc = arg && (ops->caps & TEI_CAP_FILE) && is_path(arg) ? install_path(e, ops, arg)
                                                           : install_with(e, ops, arg);
    if (!rc)
        note_files(e, ops, true);
    pthread_mutex_unlock(&e->admin);
    return rc;
}

int te_transport_uninstall(te_engine *e, const char *name)
{
    const struct tei_transport_ops *ops;
    struct tei_transport *t;
    int rc = tei_engine_check(e);

    ops = name ? tei_transport_find(name) : NULL;
    if (!rc && !name)
        rc = TEI_FAIL(TE_ERR_INVALID, "transport name is NULL");
    if (!rc && ops && (ops->caps & TEI_CAP_LOCAL_ONLY))
        rc = TEI_FAIL(TE_ERR_INVALID, "transport '%s' always stays", name);
    if (rc)
        return rc;
    pthread_mutex_lock(&e->admin);
    t = tei_transports_find(&e->transports, name);
    rc =
        t ? take_out(e, t) : TEI_FAIL(TE_ERR_NOT_FOUND, "transport '%.64s' is not installed", name);
    if (!rc)
        note_files(e, ops, false);
    pthread_mutex_unlock(&e->admin);
    return rc;
}
