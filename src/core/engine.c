/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.c - making and ending an engine: the start and stop order.
 *
 * Start: conf, directory, address and port, name, ctl thread and RPC server, transports, and last
 * the announcement: when peers can find us, everything answers. Stop is the reverse, with one
 * addition: transports are closed (all transfers end CANCELED) before te/aux is drained, so that no
 * job waits for a transfer, and stopped after it, since jobs may still post to them.
 */
#include "core/core.h"
#include "core/complete.h"
#include "core/install.h"
#include "core/metrics_serve.h"
#include "core/prep.h"
#include "core/register.h"
#include "core/serve.h"
#include "core/shutdown.h"
#include "core/stage.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AUX_THREADS   16
#define SERVE_THREADS 2 /* of those, for requests of peers that take long */
#define FETCH_THREADS 16
#define FEED_THREADS  2

/* ----------------------------------------------------------------------------- address and name */

/*
 * The host told to peers: what the user gave, by whichever way; else the address that is listened on,
 * if it is one; else that which routes to whom the directory talks to; else the one of the default route.
 */
static void choose_host(te_engine *e, const te_options *o, const struct tei_hostport *name)
{
    char hint[TEI_HOST_MAX];
    struct tei_addr unused;
    char *out = e->addr.host;
    size_t n = sizeof(e->addr.host);

    if (o->ip_or_host_name && o->ip_or_host_name[0])
        snprintf(out, n, "%s", o->ip_or_host_name);
    else if (e->conf.tcp_bind_address[0])
        snprintf(out, n, "%s", e->conf.tcp_bind_address);
    else if (name->host[0] &&
             (!e->dir->ops->stores || name->port || tei_resolve_numeric(name->host, 0, &unused)))
        snprintf(out, n, "%s", name->host);
    else if (e->bind[0] && !tei_is_wildcard(e->bind))
        snprintf(out, n, "%s", e->bind);
    else if (!e->dir->ops->route_hint(e->dir, hint, sizeof(hint)) ||
             tei_route_source(hint, out, n) != 0)
        tei_default_address(e->conf.use_ipv6, out, n);
    TEI_INFO("peers are told address %s", out);
}

/* A resolver may take its time: nothing waits for it but the end of the engine. */
static void host_job(struct tei_job *j)
{
    const te_engine *e = tei_container_of(j, te_engine, host_job);

    if (!tei_is_resolved(e->addr.host))
        TEI_WARN("peers are told address '%s', which this host cannot resolve: peers that cannot "
                 "either do not reach this engine; give an address or a name that they know "
                 "(local_server_name, ip_or_host_name)",
                 e->addr.host);
}

/* Binds the wanted port, or with one WARN another of the range, unless it is the address that is not there. */
static int bind_port(te_engine *e, uint16_t wanted)
{
    int fd, backlog = e->conf.handshake_backlog;

    if (wanted) {
        e->addr.port = wanted;
        fd = tei_listen(e->bind, &e->addr.port, backlog);
        if (fd >= 0 || errno == EADDRNOTAVAIL)
            return fd;
        TEI_WARN("rpc port %u cannot be bound (%s); taking one of %u..%u", wanted,
                 tei_errno_text(errno), e->conf.min_rpc_port, e->conf.max_rpc_port);
    }
    return tei_listen_range(e->bind, e->conf.min_rpc_port, e->conf.max_rpc_port, backlog,
                            &e->addr.port);
}

/* With a store a name is any text; only one that reads as host:port asks for a port. */
static int parse_name(const te_engine *e, const te_options *o, struct tei_hostport *out)
{
    uint16_t port = e->conf.legacy_rpc_port_binding ? e->conf.handshake_port : 0;

    *out = (struct tei_hostport){0};
    if (!o->local_server_name || !o->local_server_name[0])
        return 0;
    if (!e->dir->ops->stores)
        return tei_hostport_parse(o->local_server_name, port, out);
    (void)tei_hostport_read(o->local_server_name, port, out);
    return 0;
}

static int take_address(te_engine *e, const te_options *o, int *listen_fd)
{
    struct tei_hostport name;
    struct tei_addr numeric;
    int rc = parse_name(e, o, &name);

    if (!rc && e->conf.bind[0])
        rc = tei_bind_address(e->conf.bind, e->conf.use_ipv6, e->bind, sizeof(e->bind));
    if (rc)
        return rc;
    choose_host(e, o, &name);
    *listen_fd = bind_port(e, o->rpc_port ? (uint16_t)o->rpc_port : name.port);
    if (*listen_fd < 0)
        return *listen_fd;
    rc = e->dir->ops->own_name(e->dir, o->local_server_name, &e->addr, e->name, sizeof(e->name));
    if (rc)
        tei_fd_close(*listen_fd);
    else if (!tei_resolve_numeric(e->addr.host, 0, &numeric))
        tei_jobs_post(&e->jobs, &e->host_job, host_job);
    return rc;
}

/* -------------------------------------------------------------------------------------- threads */

/* Takes over the listening socket. */
static int start_ctl(te_engine *e, int listen_fd)
{
    int rc = tei_ctl_open(&e->ctl);

    if (rc) {
        tei_fd_close(listen_fd);
        return rc;
    }
    rc = tei_rpc_server_open(&e->ctl.loop, listen_fd, &e->conf,
                             &(struct tei_rpc_service){.handler = tei_serve_rpc,
                                                       .is_heavy = tei_serve_is_heavy,
                                                       .heavy_max = SERVE_THREADS,
                                                       .arg = e},
                             &e->rpc);
    if (rc)
        return rc;
    tei_parking_start(e);
    tei_metric_start(e);
    return tei_ctl_run(&e->ctl);
}

static void stop_ctl(te_engine *e)
{
    pthread_mutex_lock(&e->ctl.lock);
    tei_timer_stop(&e->ctl.loop, &e->parking.refresh);
    tei_timer_stop(&e->ctl.loop, &e->metric_line.timer);
    tei_timer_stop(&e->ctl.loop, &e->parking.timer);
    tei_timer_stop(&e->ctl.loop, &e->publisher.timer);
    tei_timer_stop(&e->ctl.loop, &e->keeper.timer);
    tei_timer_stop(&e->ctl.loop, &e->rekey.timer);
    tei_timer_stop(&e->ctl.loop, &e->adders.timer);
    tei_timer_stop(&e->ctl.loop, &e->gates.timer);
    tei_metrics_serve_stop(e);
    tei_metrics_file_stop(e);
    if (e->rpc)
        tei_rpc_server_close(e->rpc);
    e->rpc = NULL;
    pthread_mutex_unlock(&e->ctl.lock);
    tei_ctl_stop(&e->ctl);
}

/* --------------------------------------------------------------------------------------- create */

static int hold_region(struct tei_host *h, uint64_t addr, uint64_t length, unsigned access,
                       struct tei_who *who, struct tei_region **out)
{
    return tei_region_hold(&tei_host_engine(h)->regions, addr, length, access, who, out);
}

static void release_region(struct tei_host *h, struct tei_region *r)
{
    (void)h;
    tei_region_release(r);
}

static int find_topology(struct tei_host *h, struct tei_topology *out)
{
    te_engine *e = tei_host_engine(h);

    return tei_matrix_topology(&e->matrix, &e->conf, out);
}

static void init_engine(te_engine *e)
{
    e->mark = TEI_ENGINE_MARK;
    e->fork_epoch = tei_fork_epoch();
    e->incarnation = tei_random_u64() | 1;
    e->host = (struct tei_host){.conf = &e->conf,
                                .jobs = &e->jobs,
                                .waits = &e->fetches,
                                .incarnation = e->incarnation,
                                .segment_name = e->name,
                                .bind_host = e->bind,
                                .work_done = tei_work_done,
                                .note = tei_work_note,
                                .nic = tei_path_nic,
                                .region_hold = hold_region,
                                .region_release = release_region,
                                .lease_hold = tei_lease_hold,
                                .lease_release = tei_lease_release,
                                .topology = find_topology,
                                .changed = tei_publish_changed,
                                .refused = tei_peer_refused,
                                .connect = tei_serve_connect,
                                .answer = tei_serve_answer};
    tei_ctl_init(&e->ctl);
    pthread_mutex_init(&e->admin, NULL);
    pthread_mutex_init(&e->metrics.told_lock, NULL);
    tei_peers_init(&e->peers);
    tei_parking_init(&e->parking);
    tei_gates_init(&e->gates);
    tei_batches_init(&e->batches);
    tei_drivers_init(&e->drivers);
    tei_events_init(&e->events);
    tei_inbox_init(&e->inbox);
    tei_counters_init(&e->counters);
    tei_adders_init(&e->adders);
    tei_nic_names_init(&e->nics);
    tei_handles_init(&e->preps);
    tei_jobs_init(&e->jobs, AUX_THREADS);
    tei_jobs_init(&e->fetches, FETCH_THREADS);
    tei_jobs_init(&e->feeds, FEED_THREADS);
    tei_descriptor_init(&e->descriptor);
    tei_publisher_init(&e->publisher);
    tei_transports_init(&e->transports, &e->descriptor.version);
    tei_regions_init(&e->regions, &e->descriptor.version);
    tei_leases_init(&e->leases);
    tei_allocs_init(&e->allocs);
}

static void apply_log(const struct tei_conf *c)
{
    if (c->log_level >= 0)
        te_log_set_level((enum te_log_level)c->log_level);
    tei_log_set_format((enum tei_log_format)c->log_format);
    if (c->log_file[0])
        tei_log_set_file(c->log_file);
    else if (c->log_dir[0])
        tei_log_set_dir(c->log_dir);
    if (c->log_reopen)
        tei_log_reopen_on_hangup();
}

static int start_engine(te_engine *e, const te_options *o)
{
    int listen_fd, rc = tei_jobs_start(&e->jobs);

    if (!rc)
        rc = tei_jobs_start(&e->fetches);
    if (!rc)
        rc = tei_jobs_start(&e->feeds);
    if (!rc)
        rc = tei_directory_open(o->metadata, &e->conf, &e->dir);
    if (rc)
        return rc;
    rc = take_address(e, o, &listen_fd);
    if (rc)
        return rc;
    rc = start_ctl(e, listen_fd);
    if (rc)
        return rc;
    rc = tei_install_defaults(e, o->auto_discover != 0);
    if (!rc)
        rc = tei_peers_start(e);
    if (!rc)
        rc = e->dir->ops->announce(e->dir, e->name, &e->addr);
    e->publisher.announced = rc == 0;
    if (!rc)
        rc = tei_publish(e, 0);
    if (!rc)
        rc = e->dir->ops->listen(e->dir, tei_peer_changed, e);
    if (!rc)
        tei_keep_start(e);
    if (!rc)
        tei_rekey_start(e);
    return rc ? rc : tei_metrics_serve_start(e);
}

enum { OPTIONS_FIRST_SIZE = TEI_SIZE_UP_TO(te_options, set) };
static_assert(OPTIONS_FIRST_SIZE <= sizeof(te_options), "te_options may only grow");

static int check_options(const te_options *o)
{
    if (o->rpc_port > UINT16_MAX)
        return TEI_FAIL(TE_ERR_INVALID, "options: rpc_port %u is above 65535", o->rpc_port);
    if (!o->metadata || !o->metadata[0])
        return TEI_FAIL(TE_ERR_INVALID,
                        "options: metadata is empty; give \"P2PHANDSHAKE\" or a server");
    return 0;
}

int tei_options_take(const te_options *o, te_options *known)
{
    int rc;

    te_options_init(known);
    rc = o ? tei_sized_take(known, sizeof(*known), OPTIONS_FIRST_SIZE, o, "te_options") : 0;
    return rc ? rc : check_options(known);
}

int te_engine_create(const te_options *o, te_engine **out)
{
    te_options known;
    te_engine *e;
    int rc;

    if (!out)
        return TEI_FAIL(TE_ERR_INVALID, "the place for the engine is NULL");
    rc = tei_options_take(o, &known);
    if (rc)
        return rc;
    e = calloc(1, sizeof(*e));
    if (!e)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for an engine");
    init_engine(e);
    rc = tei_conf_load(known.set, &e->conf);
    if (!rc) {
        apply_log(&e->conf);
        tei_conf_tell_unused();
        tei_raise_nofile();
        rc = tei_auth_open(&e->conf, e->incarnation, &e->conf.identity);
    }
    if (!rc)
        rc = start_engine(e, &known);
    if (rc) {
        te_engine_destroy(e);
        return rc;
    }
    TEI_INFO("engine %s is up, rpc port %u", e->name, e->addr.port);
    *out = e;
    return 0;
}

/* -------------------------------------------------------------------------------------- destroy */

static void end_transfers(te_engine *e)
{
    tei_stage_close(e);
    for (size_t i = 0; i < e->transports.n; i++)
        if (e->transports.list[i])
            e->transports.list[i]->ops.close(e->transports.list[i]);
    tei_gates_close(e);
    tei_peer_unpark(e, NULL);
    if (e->dir)
        e->dir->ops->unlisten(e->dir);
    tei_jobs_stop(&e->fetches);
    tei_jobs_stop(&e->jobs);
    tei_jobs_stop(&e->feeds);
    tei_stage_stop(e);
    for (size_t i = 0; i < e->transports.n; i++) {
        if (!e->transports.list[i])
            continue;
        tei_register_leave(e, e->transports.list[i]);
        e->transports.list[i]->ops.stop(e->transports.list[i]);
    }
}

static void free_engine(te_engine *e)
{
    tei_batches_fini(&e->batches);
    tei_preps_fini(&e->preps);
    tei_drivers_fini(&e->drivers);
    tei_peers_fini(e);
    tei_parking_fini(&e->parking);
    tei_gates_fini(&e->gates);
    tei_transports_fini(&e->transports);
    tei_stage_fini(e);
    tei_regions_fini(&e->regions);
    tei_leases_fini(&e->leases);
    tei_allocs_fini(&e->allocs);
    tei_publisher_fini(&e->publisher);
    tei_descriptor_fini(&e->descriptor);
    tei_inbox_fini(&e->inbox);
    tei_adders_fini(&e->adders);
    tei_counters_fini(&e->counters);
    tei_nic_names_fini(&e->nics);
    tei_metrics_serve_fini(e);
    tei_metrics_file_fini(e);
    tei_matrix_fini(&e->matrix);
    if (e->dir)
        e->dir->ops->close(e->dir);
    tei_events_fini(&e->events);
    tei_jobs_fini(&e->fetches);
    tei_jobs_fini(&e->jobs);
    tei_jobs_fini(&e->feeds);
    tei_auth_close(e->conf.identity);
    tei_ctl_fini(&e->ctl);
    pthread_mutex_destroy(&e->admin);
    pthread_mutex_destroy(&e->metrics.told_lock);
    free(e);
}

void te_engine_destroy(te_engine *e)
{
    if (!e || tei_engine_check(e) == TE_ERR_INVALID || e->fork_epoch != tei_fork_epoch())
        return;
    tei_shutdown_forget(e);
    tei_publish_withdraw(e);
    end_transfers(e);
    stop_ctl(e);
    free_engine(e);
}

/* ------------------------------------------------------------------------------------- who am I */

static int copy_name(const char *text, char *buf, size_t n)
{
    if (!buf || strlen(text) >= n)
        return TEI_FAIL(TE_ERR_INVALID, "needs a buffer of %zu bytes, not %zu", strlen(text) + 1,
                        buf ? n : 0);
    memcpy(buf, text, strlen(text) + 1);
    return 0;
}

int te_engine_addr(te_engine *e, char *buf, size_t n)
{
    char text[TEI_HOSTPORT_MAX + 2];
    int rc = tei_engine_check(e);

    return rc ? rc
              : copy_name(tei_hostport_format(e->addr.host, e->addr.port, text, sizeof(text)), buf,
                          n);
}

int te_engine_name(te_engine *e, char *buf, size_t n)
{
    int rc = tei_engine_check(e);

    return rc ? rc : copy_name(e->name, buf, n);
}
