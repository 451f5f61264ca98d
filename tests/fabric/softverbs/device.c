/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c - device lists, contexts, and what can be asked of a device.
 *
 * Functions that a macro of verbs.h hides are written in parentheses.
 */
#include "fabric/softverbs/fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* -------------------------------------------------------------------------------------- devices */

/* In front of the array of pointers that ibv_get_device_list returns. */
struct list {
    struct sv_fabric *f;
    uint32_t n;
    struct sv_device *devices;
    struct ibv_device *entries[];
};

static void fill_device(struct sv_device *d, struct sv_fabric *f, uint32_t nic)
{
    d->f = f;
    d->nic = nic;
    d->dev.node_type = IBV_NODE_CA;
    d->dev.transport_type = IBV_TRANSPORT_IB;
    snprintf(d->dev.name, sizeof(d->dev.name), "%s", f->s->nics[nic].name);
    snprintf(d->dev.dev_name, sizeof(d->dev.dev_name), "uverbs%u", nic);
    sv_tree_path(d->dev.dev_path, sizeof(d->dev.dev_path), f->dir, f->label,
                 "sys/class/infiniband_verbs/uverbs%u", nic);
    sv_tree_path(d->dev.ibdev_path, sizeof(d->dev.ibdev_path), f->dir, f->label,
                 "sys/class/infiniband/%s", d->dev.name);
}

static struct list *list_new(struct sv_fabric *f)
{
    uint32_t n_nics = f ? f->s->n_nics : 0;
    struct list *l = calloc(1, sizeof(*l) + (n_nics + 1) * sizeof(l->entries[0]));

    if (!l)
        return NULL;
    l->f = f;
    l->devices = calloc(n_nics + 1, sizeof(*l->devices));
    if (!l->devices) {
        free(l);
        return NULL;
    }
    for (uint32_t i = 0; i < n_nics; i++)
        if (sv_visible(f, &f->s->nics[i])) {
            fill_device(&l->devices[l->n], f, i);
            l->entries[l->n] = &l->devices[l->n].dev;
            l->n++;
        }
    return l;
}

struct ibv_device **ibv_get_device_list(int *num)
{
    struct sv_fabric *f = NULL;
    struct list *l;

    if (num)
        *num = 0;
    if (getenv("SOFTVERBS")) {
        f = sv_fabric_get();
        if (!f)
            return NULL;
    }
    l = list_new(f);
    if (!l) {
        if (f)
            sv_fabric_put(f);
        errno = ENOMEM;
        return NULL;
    }
    if (num)
        *num = (int)l->n;
    return l->entries;
}

void ibv_free_device_list(struct ibv_device **entries)
{
    struct list *l = (struct list *)(void *)((char *)entries - offsetof(struct list, entries));

    if (l->f)
        sv_fabric_put(l->f);
    free(l->devices);
    free(l);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

int ibv_get_device_index(struct ibv_device *device)
{
    return (int)((struct sv_device *)(void *)device)->nic;
}

static __be64 guid_of(uint32_t nic)
{
    return htobe64(0x505400fffe000000u + nic + 1);
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
    return guid_of((uint32_t)ibv_get_device_index(device));
}

/* ------------------------------------------------------------------------------------- contexts */

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                      size_t size);
static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *in,
                           struct ibv_device_attr_ex *attr, size_t size);

static void fill_ops(struct sv_context *c)
{
    c->v.sz = sizeof(c->v);
    c->v.query_port = query_port;
    c->v.query_device_ex = query_device_ex;
    c->v.create_qp_ex = sv_create_qp_ex;
    c->v.create_cq_ex = sv_create_cq_ex;
    c->v.context.ops.poll_cq = sv_poll_cq;
    c->v.context.ops.req_notify_cq = sv_req_notify_cq;
    c->v.context.ops.post_send = sv_post_send;
    c->v.context.ops.post_recv = sv_post_recv;
    c->v.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    c->v.context.num_comp_vectors = 4;
}

static struct sv_context *context_new(struct sv_fabric *f, const struct sv_device *d)
{
    struct sv_context *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->f = f;
    c->nic_index = d->nic;
    c->nic = &f->s->nics[d->nic];
    c->generation = c->nic->generation;
    c->counters = &f->me->counters[d->nic];
    c->event_seq = c->nic->event_seq;
    c->device = d->dev;
    c->events_end = &c->events;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->acked, NULL);
    pthread_mutex_init(&c->v.context.mutex, NULL);
    fill_ops(c);
    c->v.context.device = &c->device;
    c->v.context.cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    c->v.context.async_fd = eventfd(0, EFD_CLOEXEC);
    return c;
}

static void context_free(struct sv_context *c)
{
    struct sv_async *e;

    while ((e = c->events)) {
        c->events = e->next;
        free(e);
    }
    close(c->v.context.cmd_fd);
    close(c->v.context.async_fd);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->acked);
    pthread_mutex_destroy(&c->v.context.mutex);
    free(c);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct sv_device *d = (struct sv_device *)(void *)device;
    struct sv_nic *nic = &d->f->s->nics[d->nic];
    struct sv_context *c;
    struct sv_fabric *f;

    if (nic->dead) {
        errno = EIO;
        return NULL;
    }
    if (sv_denied(nic, SV_DENY_open))
        return NULL;
    f = sv_fabric_get();
    c = f ? context_new(f, d) : NULL;
    if (!c || c->v.context.async_fd < 0) {
        if (c)
            context_free(c);
        if (f)
            sv_fabric_put(f);
        return NULL;
    }
    pthread_mutex_lock(&f->objects);
    c->next = f->contexts;
    f->contexts = c;
    pthread_mutex_unlock(&f->objects);
    return &c->v.context;
}

/*
 * What is still open in the context is closed with it, as the kernel does: its QPs vanish for their
 * peers and its CQs get nothing more. Memory regions stay in the table until the process leaves the
 * fabric, for they may be in use through another context of the NIC.
 */
int ibv_close_device(struct ibv_context *context)
{
    struct sv_context *c = sv_context_of(context), **at;
    struct sv_fabric *f = c->f;

    if (!f->forked) {
        sv_qps_abandon(c);
        sv_cqs_abandon(c);
    }
    pthread_mutex_lock(&f->objects);
    for (at = &f->contexts; *at && *at != c; at = &(*at)->next)
        continue;
    if (*at)
        *at = c->next;
    pthread_mutex_unlock(&f->objects);
    context_free(c);
    sv_fabric_put(f);
    return 0;
}

/* -------------------------------------------------------------------------------------- queries */

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *a)
{
    struct sv_context *c = sv_context_of(context);
    const struct sv_limits *l = &c->nic->limits;

    if (sv_dead(c))
        return EIO;
    memset(a, 0, sizeof(*a));
    snprintf(a->fw_ver, sizeof(a->fw_ver), "0.0.44");
    a->node_guid = a->sys_image_guid = guid_of(c->nic_index);
    a->max_mr_size = l->max_mr_size;
    a->page_size_cap = 0xfffffffffffff000u;
    a->vendor_id = 0x5356;
    a->vendor_part_id = 1;
    a->max_qp = l->max_qp;
    a->max_qp_wr = l->max_qp_wr;
    a->device_cap_flags = IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
                          IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_CURR_QP_STATE_MOD;
    a->max_sge = a->max_sge_rd = l->max_sge;
    a->max_cq = l->max_cq;
    a->max_cqe = l->max_cqe;
    a->max_mr = l->max_mr;
    a->max_pd = l->max_pd;
    a->max_qp_rd_atom = a->max_qp_init_rd_atom = l->max_qp_rd_atom;
    a->max_res_rd_atom = l->max_qp_rd_atom * l->max_qp;
    a->atomic_cap = IBV_ATOMIC_NONE;
    a->max_pkeys = 1;
    a->local_ca_ack_delay = 15;
    a->phys_port_cnt = 1;
    return 0;
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *in,
                           struct ibv_device_attr_ex *attr, size_t size)
{
    struct ibv_device_attr orig;
    int rc = ibv_query_device(context, &orig);

    (void)in;
    if (rc)
        return rc;
    memset(attr, 0, size);
    memcpy(&attr->orig_attr, &orig, sizeof(orig));
    if (size >= sizeof(*attr))
        attr->phys_port_cnt_ex = 1;
    return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                      size_t size)
{
    struct sv_context *c = sv_context_of(context);
    struct ibv_port_attr a = {0};

    if (sv_dead(c))
        return EIO;
    if (sv_denied(c->nic, SV_DENY_query_port))
        return errno;
    if (port != 1)
        return EINVAL;
    a.state = c->nic->port_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    a.phys_state = c->nic->port_up ? 5 : 3;
    a.max_mtu = IBV_MTU_4096;
    a.active_mtu = c->nic->mtu;
    a.gid_tbl_len = SV_MAX_GIDS;
    a.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    a.max_msg_sz = SV_MAX_MSG;
    a.pkey_tbl_len = 1;
    a.lid = (uint16_t)c->nic->lid;
    a.sm_lid = c->nic->ethernet ? 0 : 1;
    a.max_vl_num = 1;
    a.active_width = 2;  /* 4X */
    a.active_speed = 32; /* EDR */
    a.link_layer = c->nic->ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    memcpy(attr, &a, size < sizeof(a) ? size : sizeof(a));
    return 0;
}

/* What programs older than the extended interface call: the struct ended before link_layer. */
int(ibv_query_port)(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    return query_port(context, port, (struct ibv_port_attr *)(void *)attr,
                      offsetof(struct ibv_port_attr, link_layer));
}

static bool read_gid(const struct sv_nic *nic, uint32_t index, union ibv_gid *out)
{
    out->global.subnet_prefix = nic->gids[index].prefix;
    out->global.interface_id = nic->gids[index].id;
    return out->global.subnet_prefix || out->global.interface_id;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    struct sv_context *c = sv_context_of(context);

    if (sv_dead(c) || port != 1 || index < 0 || index >= (int)SV_MAX_GIDS) {
        errno = sv_dead(c) ? EIO : EINVAL;
        return -1;
    }
    read_gid(c->nic, (uint32_t)index, gid);
    return 0;
}

static bool fill_entry(const struct sv_context *c, uint32_t index, struct ibv_gid_entry *e)
{
    memset(e, 0, sizeof(*e));
    if (!read_gid(c->nic, index, &e->gid))
        return false;
    e->gid_index = index;
    e->port_num = 1;
    e->gid_type = c->nic->gids[index].type;
    return true;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
    struct sv_context *c = sv_context_of(context);
    struct ibv_gid_entry e;

    if (sv_dead(c))
        return EIO;
    if (port != 1 || index >= SV_MAX_GIDS || flags)
        return EINVAL;
    if (!fill_entry(c, index, &e))
        return ENODATA;
    memcpy(entry, &e, size < sizeof(e) ? size : sizeof(e));
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
                             uint32_t flags, size_t size)
{
    struct sv_context *c = sv_context_of(context);
    struct ibv_gid_entry e;
    size_t n = 0;

    if (sv_dead(c))
        return -EIO;
    if (flags)
        return -EINVAL;
    for (uint32_t i = 0; i < SV_MAX_GIDS; i++) {
        if (!fill_entry(c, i, &e))
            continue;
        if (n == max)
            return -EINVAL;
        memcpy((char *)entries + n++ * size, &e, size < sizeof(e) ? size : sizeof(e));
    }
    return (ssize_t)n;
}

/* A private function that ibv_devinfo uses; its result is 0 for IB and RoCE v1, 1 for RoCE v2. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type);

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type)
{
    struct ibv_gid_entry e;
    int rc = _ibv_query_gid_ex(context, port, index, &e, 0, sizeof(e));

    if (rc && rc != ENODATA) {
        errno = rc;
        return -1;
    }
    *type = rc == 0 && e.gid_type == IBV_GID_TYPE_ROCE_V2;
    return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
    if (sv_dead(sv_context_of(context)) || port != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htobe16(0xffff);
    return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
    (void)context;
    if (port == 1 && be16toh(pkey) == 0xffff)
        return 0;
    errno = EINVAL;
    return -1;
}

/* ------------------------------------------------------------------------------------ old sysfs */

const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
int ibv_read_ibdev_sysfs_file(char *buf, size_t size, struct ibv_device *device, const char *fmt,
                              ...) __attribute__((format(printf, 4, 5)));

const char *ibv_get_sysfs_path(void)
{
    return "/sys";
}

int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
    char path[1024];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    n = read(fd, buf, size);
    close(fd);
    if (n > 0 && buf[n - 1] == '\n')
        buf[--n] = '\0';
    else if (n >= 0 && (size_t)n < size)
        buf[n] = '\0';
    return (int)n;
}

int ibv_read_ibdev_sysfs_file(char *buf, size_t size, struct ibv_device *device, const char *fmt,
                              ...)
{
    char name[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(name, sizeof(name), fmt, args);
    va_end(args);
    return ibv_read_sysfs_file(device->ibdev_path, name, buf, size);
}
