/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local.c - the transport to this engine's own memory: memmove, by a copier. The smallest complete
 * transport; read it from the bottom up and copy it to begin another one. Work with memory of a
 * device on either side is local_device.c's from post() on; the copier has the rest.
 *
 * Source and target may overlap. One thread copies what is long, so the result then is as if the
 * chunks were moved one after the other.
 */
#include "base/err.h"
#include "transport/local/local.h"

#include <limits.h>
#include <string.h>

struct local {
    struct tei_transport base;
    struct tei_copier copier;
    struct local_devices devices;
};

static struct local *local_of(struct tei_transport *t)
{
    return tei_container_of(t, struct local, base);
}

static struct tei_work *work_of(struct tei_link *link)
{
    return tei_container_of(link, struct tei_work, link);
}

static void move_run(struct tei_transport *t, struct tei_copy_run *run)
{
    (void)t;
    for (size_t i = 0; i < run->n; i++) {
        const struct tei_part *part = &run->parts[i];
        char *target = (char *)(uintptr_t)part->remote; /* of this very process */

        if (run->opcode == TE_READ)
            memmove(part->local, target, part->length);
        else
            memmove(target, part->local, part->length);
    }
}

/* -------------------------------------------------------------------------------------------- ops */

static int local_open(struct tei_transport *t)
{
    struct local *l = local_of(t);

    l->copier.transport = t;
    l->copier.run = move_run;
    l->copier.guests_max = UINT_MAX;
    tei_copier_init(&l->copier, t->host->conf->transfer_timeout_ms);
    tei_local_devices_init(&l->devices, t);
    return tei_copier_start(&l->copier, "te/local", 1);
}

static unsigned local_score(struct tei_transport *t, const struct tei_attach *a,
                            const te_request *r)
{
    (void)t;
    (void)r;
    return a ? 0 : 100;
}

static int local_region_add(struct tei_transport *t, struct tei_region *r)
{
    return tei_local_devices_add(&local_of(t)->devices, r);
}

static int local_region_del(struct tei_transport *t, struct tei_region *r)
{
    tei_local_devices_del(&local_of(t)->devices, r);
    return 0;
}

/* Work with memory of devices on either side; false if the transport is closed. */
static bool post_to_devices(struct local *l, struct tei_list *work)
{
    struct tei_list failed;

    if (!tei_copier_enter(&l->copier))
        return false;
    tei_list_init(&failed);
    tei_local_devices_post(&l->devices, work, &failed);
    if (!tei_list_empty(&failed))
        l->base.host->work_done(l->base.host, &failed);
    tei_copier_leave(&l->copier);
    return true;
}

static void local_post(struct tei_transport *t, struct tei_list *work)
{
    struct local *l = local_of(t);
    struct tei_link *link, *tmp;
    struct tei_list device;

    tei_list_init(&device);
    TEI_LIST_EACH(work, link, tmp) {
        if (!tei_local_is_device(work_of(link)))
            continue;
        tei_list_del(link);
        tei_list_push_back(&device, link);
    }
    if (!tei_list_empty(&device) && !post_to_devices(l, &device))
        tei_list_splice(work, &device); /* for the copier to refuse */
    if (!tei_list_empty(work))
        tei_copier_post(&l->copier, work);
}

static void local_cancel(struct tei_transport *t, const void *owner)
{
    struct local *l = local_of(t);

    tei_copier_cancel(&l->copier, owner);
    tei_local_devices_cancel(&l->devices, owner);
}

static void local_close(struct tei_transport *t)
{
    struct local *l = local_of(t);

    tei_copier_close(&l->copier);
    tei_local_devices_close(&l->devices);
}

static void local_stop(struct tei_transport *t)
{
    struct local *l = local_of(t);

    local_close(t);
    tei_copier_stop(&l->copier);
    tei_local_devices_stop(&l->devices);
}

static void local_fini(struct tei_transport *t)
{
    struct local *l = local_of(t);

    if (!l->copier.ready)
        return;
    tei_local_devices_fini(&l->devices);
    tei_copier_fini(&l->copier);
}

extern const struct tei_transport_ops tei_local_ops; /* named by transports.def */

const struct tei_transport_ops tei_local_ops = {
    .name = "local",
    .abi = TEI_TRANSPORT_ABI,
    .caps = TEI_CAP_LOCAL_ONLY,
    .mem_kinds = TEI_MEM_KNOWN,
    .target_kinds = TEI_MEM_KNOWN,
    .size = sizeof(struct local),
    .work_size = sizeof(struct tei_move),
    .attach_size = sizeof(struct tei_attach),
    .open = local_open,
    .region_add = local_region_add,
    .region_del = local_region_del,
    .score = local_score,
    .post = local_post,
    .cancel = local_cancel,
    .close = local_close,
    .stop = local_stop,
    .fini = local_fini,
};
