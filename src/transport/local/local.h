/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local.h - private to src/transport/local: what local.c, which moves between two places of host
 * memory, knows of local_device.c, which does the rest.
 */
#ifndef TEI_LOCAL_H
#define TEI_LOCAL_H

#include "transport/copier.h"
#include "transport/mover.h"

#include <pthread.h>

struct local_devices {
    struct tei_transport *transport;
    pthread_mutex_t lock;
    pthread_cond_t quiet;    /* a job has ended */
    struct tei_mover *mover; /* NULL: no memory of devices was registered, or stopped */
    struct tei_list pins;    /* of every region that was pinned, or was tried to */
    unsigned jobs;           /* that were posted and have not ended */
    bool closed;
};

static inline bool tei_local_is_device(const struct tei_work *w)
{
    return w->region->kind != TEI_MEM_HOST || w->target_region->kind != TEI_MEM_HOST;
}

void tei_local_devices_init(struct local_devices *d, struct tei_transport *t);
int tei_local_devices_add(struct local_devices *d, struct tei_region *r);
void tei_local_devices_del(struct local_devices *d, struct tei_region *r);
/* Takes all `work`; those that cannot be moved go to `done`. */
void tei_local_devices_post(struct local_devices *d, struct tei_list *work, struct tei_list *done);
void tei_local_devices_cancel(struct local_devices *d, const void *owner);
void tei_local_devices_close(struct local_devices *d);
void tei_local_devices_stop(struct local_devices *d); /* nobody posts any more */
void tei_local_devices_fini(struct local_devices *d);

#endif
