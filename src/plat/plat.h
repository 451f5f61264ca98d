/* SPDX-License-Identifier: Apache-2.0 */
/* plat.h - the host: where memory lies, memory on a node, and what the machine looks like. */
#ifndef TEI_PLAT_H
#define TEI_PLAT_H

#include "base/base.h"
#include "base/queue.h"
#include "model/model.h"

#define TEI_LOCATION_MAX 32

/*
 * Checks a location given by a user ("cpu:0", "cuda:1", "*") and, for "*" or NULL, looks where the
 * first page of `addr` lies: "cuda:N", "hip:N", "npu:N" (where "ascend:N" was given, too) and so on by
 * the driver's number of the device; "cpu:N", or
 * "*" if it is not in memory yet or the kernel will not say. TE_ERR_INVALID for anything else, and
 * for a device that `addr` is not in memory of, or a node when it is. NULL `addr`: is not looked at.
 * Whether a node is there is asked by tei_numa_check().
 */
int tei_mem_locate(const void *addr, const char *wanted, char out[TEI_LOCATION_MAX]);

/*
 * TE_ERR_INVALID if a page of the range is not mapped. Mapped is enough: a reservation (PROT_NONE)
 * passes, and so does an address with a tag in its top byte, which no system call can look at.
 */
int tei_mem_check_mapped(uintptr_t addr, size_t length);

/*
 * Page-aligned zeroed memory, on the node of "cpu:N" where the kernel allows, anywhere for "*" or
 * NULL. From 64 KiB on it is a sealed memfd where the system gives one, so that tei_share_hold()
 * finds it; with `peers_read` nobody else can ever map that for writing. A forked child does not have
 * it.
 */
int tei_mem_alloc(size_t length, const char *location, bool peers_read, void **out);
void tei_mem_free(void *addr, size_t length);

/* Memory of tei_mem_alloc() that other processes can map. */
struct tei_share {
    uint64_t id; /* never used twice in a process */
    int fd;      /* a memfd of `size` bytes, sealed against shrinking and growing */
    size_t size;
    bool read_only; /* and against being written through any mapping but ours */
};
/*
 * The one that holds all of [addr, addr + length), and how far inside in *offset; NULL if none
 * does. The descriptor stays open until tei_share_put(), even if the memory is freed meanwhile.
 */
struct tei_share *tei_share_hold(uintptr_t addr, size_t length, size_t *offset);
struct tei_share *tei_share_get(struct tei_share *s); /* one more reference; returns s */
void tei_share_put(struct tei_share *s);              /* NULL is accepted */

/* ---------------------------------------------------------------------------- memory of devices */

/*
 * Everything below reaches a driver (CUDA, HIP, AscendCL, ...) through a table of symbols that is filled by dlopen,
 * once for the process, the first time one of them is asked for by tei_gpu_open(). Nothing else opens
 * it: asking about an address looks whether the process has loaded the driver already, since without
 * it there is no such memory. No context is made on a device before memory of that device is used.
 * All calls are safe from any thread, unless they say otherwise. Where a driver was opened before a
 * process was forked off, the child has none: addresses are in host memory there, tei_gpu_open() is
 * TE_ERR_UNSUPPORTED, and the other calls must not be made.
 */

/* What an address is in. */
struct tei_mem_info {
    enum tei_mem_kind kind;
    int device; /* -1: HOST */
    /* Of the allocation; HOST: 0. */
    uintptr_t base;
    size_t length;
    bool ipc, fabric; /* whether tei_gpu_export() can be asked for a handle of this sort */
    bool managed;     /* HOST: the host may touch it, though a driver moves it about */
};
/*
 * TE_ERR_INVALID: the range leaves the allocation in which it begins. Memory of a device made of
 * several mappings in a row (expandable segments) counts as one range: `base` and `length` are then
 * of the first mapping. TE_ERR_CONTEXT: the driver does not tell, as after a fatal error of a device.
 */
int tei_mem_inspect(const void *addr, size_t length, struct tei_mem_info *out);

/* TE_ERR_UNSUPPORTED, unlogged: there is no such driver, or no device; the text says which. */
int tei_gpu_open(enum tei_mem_kind kind);
/* Whether tei_gpu_open() would find it, without making the process load anything new. */
bool tei_gpu_is_loaded(enum tei_mem_kind kind);
/* Whether there is such a driver, loaded or not; it is not started, and stays as it was. */
bool tei_gpu_is_there(enum tei_mem_kind kind);
/* Of its driver, for messages: "CUDA". "" where this build has none. */
const char *tei_gpu_title(enum tei_mem_kind kind);
/* Devices; 0 before tei_gpu_open(). */
int tei_gpu_count(enum tei_mem_kind kind);
/* "0000:81:00.0", as in sysfs. TE_ERR_NO_DEVICE: there is none of this number. */
int tei_gpu_pci(enum tei_mem_kind kind, int device, char out[16]);
/* A number that no other device has, on any host: the same in each process that sees this one. */
int tei_gpu_uuid(enum tei_mem_kind kind, int device, uint8_t out[16]);

/*
 * Around calls of other libraries that work on the device that is current: makes it that of this
 * thread; *was is for leave. TE_ERR_NO_DEVICE: there is none of this number; TE_ERR_CONTEXT.
 */
int tei_gpu_enter(enum tei_mem_kind kind, int device, int *was);
void tei_gpu_leave(enum tei_mem_kind kind, int was);

/* Zeroed memory of a device; `fabric`: of a sort that TEI_GPU_FABRIC handles can be made of. */
int tei_gpu_alloc(enum tei_mem_kind kind, int device, size_t length, bool fabric, void **out);
void tei_gpu_free(enum tei_mem_kind kind, void *addr);
/* Whether the device can have memory for TEI_GPU_FABRIC. */
bool tei_gpu_has_fabric(enum tei_mem_kind kind, int device);

/*
 * Locks host memory in place for all devices of the driver, so that copies need no bounce. Memory
 * that somebody else has pinned is TE_ERR_OVERLAP, unlogged, and as good. TE_ERR_UNSUPPORTED,
 * unlogged: no device is in use yet, by an inspected address, a queue or tei_gpu_alloc().
 */
int tei_gpu_pin(enum tei_mem_kind kind, void *addr, size_t length);
void tei_gpu_unpin(enum tei_mem_kind kind, void *addr);

/* ---- copies */

struct tei_copy {
    void *to;
    const void *from;
    size_t n;
    bool to_device, from_device; /* as the caller knows it: see tei_gpu_queue_copy() */
};

#define TEI_GPU_MARKS 64 /* tickets of one queue that may be out at a time */

/*
 * A non-blocking stream of one device: copies to, from and within devices of one kind, call by call
 * in order; those of one call in any order among themselves. Used by one thread at a time.
 */
struct tei_gpu_queue;
int tei_gpu_queue_open(enum tei_mem_kind kind, int device, struct tei_gpu_queue **out);
void tei_gpu_queue_close(
    struct tei_gpu_queue *q); /* waits for what is under way; NULL is accepted */
/* Has small copies within the device done by a kernel of ours, where the runtime has one: in less time, on its cores. */
void tei_gpu_queue_use_kernels(struct tei_gpu_queue *q);
/* Whether nothing can be copied by it any more; what was refused has not broken it. */
bool tei_gpu_queue_is_broken(const struct tei_gpu_queue *q);
/*
 * Submits n copies, in as few calls of the driver as it allows. The ticket stands for all that was
 * submitted so far. Tickets count from 1 and end in order; one that has ended and been seen to by
 * poll or wait makes room. TE_ERR_BUSY, unlogged: TEI_GPU_MARKS are out. On any error nothing of
 * these n is under way. TE_ERR_CONTEXT also if a side that is said to be of a device no longer is: a driver
 * takes what it does not know for memory of the host, and the process ends with a fault.
 */
int tei_gpu_queue_copy(struct tei_gpu_queue *q, const struct tei_copy *v, size_t n,
                       uint64_t *ticket);
/* 0: has ended; TE_ERR_BUSY, unlogged: not yet; else it and all after it have failed, and are over. */
int tei_gpu_queue_poll(struct tei_gpu_queue *q, uint64_t ticket);
/* The same, but waits until it is over: awake for as long as a short copy takes, then asleep. */
int tei_gpu_queue_wait(struct tei_gpu_queue *q, uint64_t ticket);

/*
 * One copy in the caller's thread, whatever either side is in. memmove for two HOST sides. A driver
 * that tei_gpu_open() or tei_mem_inspect() has not met yet is not looked for.
 */
int tei_mem_copy(void *to, const void *from, size_t n);

/* ---- streams of the program, of the device's primary context; after tei_gpu_open() */

/* Whether what was submitted to a stream so far is done. */
struct tei_gpu_event;
int tei_gpu_event_record(enum tei_mem_kind kind, int device, void *stream,
                         struct tei_gpu_event **out);
/* 0: it is done; TE_ERR_BUSY, unlogged: not yet; TE_ERR_CONTEXT: it has failed. */
int tei_gpu_event_poll(struct tei_gpu_event *e);
void tei_gpu_event_close(struct tei_gpu_event *e);

/* What is submitted from now on waits until it is set, without a call. TE_ERR_UNSUPPORTED: streams cannot wait so. */
struct tei_gpu_flag;
int tei_gpu_flag_wait(enum tei_mem_kind kind, int device, void *stream, struct tei_gpu_flag **out);
void tei_gpu_flag_set(struct tei_gpu_flag *f);

/* ---- handles for other processes */

#define TEI_GPU_HANDLE 64 /* bytes */

enum tei_gpu_sort {
    TEI_GPU_IPC,    /* to other processes of this host */
    TEI_GPU_FABRIC, /* to whoever is on the same fabric; HIP: "shareable" */
};
/* Of the whole allocation that `m` is in. TE_ERR_UNSUPPORTED, unlogged: it is not of that sort. */
int tei_gpu_export(const struct tei_mem_info *m, enum tei_gpu_sort sort,
                   uint8_t out[TEI_GPU_HANDLE]);
/* Once for each export, when nobody is to import the handle any more. Imports stay as they are. */
void tei_gpu_unexport(enum tei_mem_kind kind, enum tei_gpu_sort sort,
                      const uint8_t handle[TEI_GPU_HANDLE]);
/*
 * Maps it for all devices of this process that can reach it; `device`: by which the driver is asked.
 * *base is where the allocation begins here, of which `length` bytes are there for sure.
 * TE_ERR_UNSUPPORTED, unlogged: it is this process's own, of another host, shorter, or gone; the text
 * has the driver's word. Handles may come from anybody.
 */
int tei_gpu_import(enum tei_mem_kind kind, int device, enum tei_gpu_sort sort,
                   const uint8_t handle[TEI_GPU_HANDLE], size_t length, void **base);
void tei_gpu_unimport(enum tei_mem_kind kind, void *base);
/*
 * A dma-buf of [addr, addr + length), for a NIC; *offset is where it begins in it. The fd is the
 * caller's. TE_ERR_UNSUPPORTED, unlogged.
 */
int tei_gpu_dmabuf(const struct tei_mem_info *m, uintptr_t addr, size_t length, int *fd,
                   uint64_t *offset);

/* ------------------------------------------------------------------------------------ discovery */

/* Where discovery looks, and which NICs may be used. Text is borrowed for the call. */
struct tei_look {
    const char *sysfs, *dev; /* "/sys" and "/dev", or folders laid out alike */
    /*
     * A machine as hwloc writes it to XML, instead of this one; NULL: this machine if `sysfs` is
     * "/sys", else `sysfs`/hwloc.xml if there is such a file, else only the NUMA nodes of `sysfs`.
     */
    const char *xml;
    const char *devices; /* "a,b": no other NICs; NULL or "": all */
    const char *filters; /* the same from MC_TE_FILTERS */
    const char *without; /* "a,b": all but these, from MC_TE_FILTERS_EXCLUDE */
    int port;            /* of the NIC, from 1 */
    int gid_index;       /* entry of the port's GID table; -1: the first that is not empty */
};

/* What the options say, with `devices` (may be NULL). Borrows from both. */
struct tei_conf;
struct tei_look tei_look_from(const struct tei_conf *c, const char *devices);

/* One RDMA NIC. Text is "" and numbers are -1 where the system does not say. */
struct tei_nic {
    char name[64];     /* "mlx5_0" */
    char pci[16];      /* "0000:81:00.0" */
    int numa;          /* the nearest NUMA node, the first of several */
    int port;          /* that was looked at */
    char state[16];    /* of the port: "ACTIVE" */
    double speed_gbps; /* of the port; 0: not said */
    char link_layer[16];
    int lid;      /* of the port; 0: it has none */
    char gid[40]; /* as text, 8 groups of hexadecimal digits */
    int gid_index;
    bool usable;
    char why[256]; /* why it is not usable, in a sentence */
};

struct tei_nics {
    struct tei_nic *v; /* by name, mlx5_2 before mlx5_10 */
    size_t n;
};

/*
 * Lists the NICs, without hwloc: `numa` is what sysfs says. Cheap enough for a transport's probe().
 * No NIC is no error.
 */
int tei_nics_list(const struct tei_look *look, struct tei_nics *out);
void tei_nics_fini(struct tei_nics *nics);

/*
 * Lists the NICs, and makes the priority matrix of those that are usable:
 *   cpu:N   for every NUMA node. Preferred: the NICs of the node; if it has none, the nearest ones
 *           where the distances between nodes are known, else none.
 *   cuda:N, hip:N, npu:N, ...  for the devices of each maker: by the numbers of the driver, if the process has
 *           loaded that (which opens it), else in the order of their PCI addresses. Preferred: the
 *           NICs that share most of the way to the GPU: a PCI switch before a root complex, before
 *           a NUMA node, before the nearest of the other nodes.
 * The others are available; so are, everywhere, NICs of which nobody knows where they are. Reads
 * the machine by hwloc, which takes some milliseconds. Either result may be NULL.
 */
int tei_discover(const struct tei_look *look, struct tei_nics *nics, struct tei_topology *out);

/*
 * The numbers of the NUMA nodes, ascending, malloc'ed; a kernel that shows none has node 0.
 * TE_ERR_MEMORY.
 */
int tei_numa_nodes(const char *sysfs, int **out, size_t *n);

/*
 * Whether "cpu:N" can be on this machine: the kernel shows node N, or counts it among those that may
 * come, as one whose memory is offline. TE_ERR_NUMA, which names those that can. Where the kernel
 * shows no nodes nothing is known against any. 0 for any other text.
 */
int tei_numa_check(const char *sysfs, const char *location);

#endif
