/* SPDX-License-Identifier: Apache-2.0 */
/*
 * discover_machine.c - NUMA nodes, GPUs, and who is near whom.
 *
 * hwloc tells it: its tree has the CPU side (machine, groups, packages, each with NUMA nodes) and
 * below that the bridges and devices of PCI. Of hwloc only what is asked here is switched on: no
 * caches and cores, no look at CPUs by cpuid (it would move this thread over all of them), and none
 * of the parts that ask the libraries of GPU vendors. Where there is no tree (a made-up sysfs, or
 * hwloc fails), the NUMA nodes are read from sysfs.
 */
#include "plat/discover.h"

#include "base/err.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NODES    "devices/system/node"
#define LIST_MAX 256

#define TREE_ROOM ((size_t)16 << 20)

#define VENDOR_NVIDIA   0x10de
#define VENDOR_AMD      0x1002
#define CLASS_DISPLAY   0x03 /* VGA, 3D and other display controllers */
#define VENDOR_HUAWEI   0x19e5
#define VENDOR_MTHREADS 0x1ed5
#define CLASS_PROCESSOR 0x12 /* processing accelerators: AMD's Instinct cards, Huawei's Ascend */

/* ------------------------------------------------------------------------- NUMA nodes from sysfs */

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

static int add_node(int **nodes, size_t *n, int node)
{
    int *more = realloc(*nodes, (*n + 1) * sizeof(*more));

    if (!more)
        return TE_ERR_MEMORY;
    more[(*n)++] = node;
    *nodes = more;
    return 0;
}

/* N of "nodeN", -1 for any other name. */
static int node_of(const char *name)
{
    unsigned node;
    char rest;

    return sscanf(name, "node%9u%c", &node, &rest) == 1 ? (int)node : -1;
}

static int read_nodes(DIR *dir, int **nodes, size_t *n)
{
    const struct dirent *d;
    int rc = 0;

    while (!rc && (d = readdir(dir))) {
        int node = node_of(d->d_name);

        if (node >= 0)
            rc = add_node(nodes, n, node);
    }
    return rc;
}

int tei_numa_nodes(const char *sysfs, int **out, size_t *n)
{
    char path[PATH_MAX];
    int *nodes = NULL, rc = 0;
    size_t count = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/" NODES, sysfs);
    dir = opendir(path);
    if (dir) {
        rc = read_nodes(dir, &nodes, &count);
        closedir(dir);
    }
    /* A kernel without NUMA has one node that it does not show. */
    if (!rc && count == 0)
        rc = add_node(&nodes, &count, 0);
    if (rc) {
        free(nodes);
        return TEI_FAIL(rc, "no memory to list NUMA nodes");
    }
    qsort(nodes, count, sizeof(*nodes), by_number);
    *out = nodes;
    *n = count;
    return 0;
}

/* Whether a list of the kernel, "0-1,4", has the number. */
static bool in_list(const char *list, unsigned long number)
{
    unsigned long first, last;
    int used;

    while (sscanf(list, "%lu%n", &first, &used) == 1) {
        list += used;
        last = first;
        if (*list == '-' && sscanf(list + 1, "%lu%n", &last, &used) == 1)
            list += used + 1;
        if (number >= first && number <= last)
            return true;
        list += *list == ',';
    }
    return false;
}

/* The list of nodes that are or may come, "" if there is none. */
static void read_possible(const char *sysfs, char *list, size_t size)
{
    char path[PATH_MAX];
    FILE *f;

    list[0] = '\0';
    snprintf(path, sizeof(path), "%s/" NODES "/possible", sysfs);
    f = fopen(path, "re");
    if (f && fgets(list, (int)size, f))
        list[strcspn(list, "\n")] = '\0';
    if (f)
        fclose(f);
}

/* The nodes that are shown, as a list. */
static int list_nodes(const char *sysfs, char *list, size_t size)
{
    size_t n, used = 0;
    int *nodes, rc = tei_numa_nodes(sysfs, &nodes, &n);

    for (size_t i = 0; !rc && i < n && used < size; i++)
        used += (size_t)snprintf(list + used, size - used, "%s%d", i ? "," : "", nodes[i]);
    if (!rc)
        free(nodes);
    return rc;
}

int tei_numa_check(const char *sysfs, const char *location)
{
    char path[PATH_MAX], list[LIST_MAX];
    unsigned long node;
    int rc = 0;

    if (strncmp(location, "cpu:", 4) != 0 || location[4 + strspn(location + 4, "0123456789")])
        return 0;
    node = strtoul(location + 4, NULL, 10);
    snprintf(path, sizeof(path), "%s/" NODES, sysfs);
    if (access(path, F_OK) != 0)
        return 0;
    snprintf(path, sizeof(path), "%s/" NODES "/node%lu", sysfs, node);
    if (access(path, F_OK) == 0)
        return 0;
    read_possible(sysfs, list, sizeof(list));
    if (in_list(list, node))
        return 0;
    if (!list[0])
        rc = list_nodes(sysfs, list, sizeof(list));
    if (rc)
        return rc;
    return TEI_FAIL(TE_ERR_NUMA,
                    "location '%.32s' cannot be: of NUMA nodes this machine has %s; NULL or \"*\" "
                    "finds out where memory is",
                    location, list);
}

/* One line of distances from a node; false if it has not one to each. */
static bool read_distances(const char *sysfs, int node, uint64_t *row, size_t n)
{
    char path[PATH_MAX];
    size_t got = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/" NODES "/node%d/distance", sysfs, node);
    f = fopen(path, "re");
    if (!f)
        return false;
    while (got < n && fscanf(f, "%" SCNu64, &row[got]) == 1)
        got++;
    fclose(f);
    return got == n;
}

static int open_sysfs(const char *sysfs, struct tei_machine *m)
{
    int rc = tei_numa_nodes(sysfs, &m->nodes, &m->n_nodes);
    size_t n = m->n_nodes;
    bool known = true;

    if (rc)
        return rc;
    m->distance = calloc(n * n, sizeof(*m->distance));
    if (!m->distance)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the distances of %zu NUMA nodes", n);
    for (size_t i = 0; known && i < n; i++)
        known = read_distances(sysfs, m->nodes[i], m->distance + i * n, n);
    if (!known) {
        free(m->distance);
        m->distance = NULL;
    }
    return 0;
}

/* -------------------------------------------------------------------------------------- the tree */

/*
 * Parts of hwloc that are left out; names that it does not have are no error worth telling. Without "pci", a plugin, hwloc
 * reads the same from sysfs itself: libpciaccess, which the plugin uses, keeps half a megabyte each time.
 */
static void leave_out(hwloc_topology_t tree)
{
    static const char *const parts[] = {"x86",  "cuda",      "nvml", "opencl",
                                        "rsmi", "levelzero", "gl",   "pci"};

    for (size_t i = 0; i < TEI_ARRAY_LEN(parts); i++)
        hwloc_topology_set_components(tree, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, parts[i]);
}

/* Nodes that this process may not use are shown too: their NICs would seem to be anywhere. */
static void set_filters(hwloc_topology_t tree)
{
    hwloc_topology_set_all_types_filter(tree, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(tree, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(tree, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    hwloc_topology_set_io_types_filter(tree, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    hwloc_topology_set_flags(tree, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
}

/*
 * hwloc does not look whether it got memory, and crashes without. So this much must be there before it
 * is asked: many times what it takes for a large machine. It is no promise, since other threads may take
 * it meanwhile.
 */
static bool has_room(void)
{
    void *volatile room = malloc(TREE_ROOM); /* else compilers leave both calls out */
    bool there = room != NULL;

    free(room);
    return there;
}

/* NULL, with errno, when hwloc does not read it. */
static hwloc_topology_t load_tree(const char *xml)
{
    hwloc_topology_t tree;

    if (hwloc_topology_init(&tree) != 0)
        return NULL;
    leave_out(tree);
    set_filters(tree);
    if ((!xml || hwloc_topology_set_xml(tree, xml) == 0) && hwloc_topology_load(tree) == 0)
        return tree;
    hwloc_topology_destroy(tree);
    return NULL;
}

static int read_tree_nodes(struct tei_machine *m)
{
    hwloc_obj_t node = NULL;
    int rc = 0;

    while (!rc && (node = hwloc_get_next_obj_by_type(m->tree, HWLOC_OBJ_NUMANODE, node)))
        rc = add_node(&m->nodes, &m->n_nodes, (int)node->os_index);
    if (rc)
        return TEI_FAIL(rc, "no memory to list NUMA nodes");
    qsort(m->nodes, m->n_nodes, sizeof(*m->nodes), by_number);
    return 0;
}

/* Every distance that `d` has of two of our nodes; whether it has them all. */
static bool copy_distances(struct tei_machine *m, struct hwloc_distances_s *d)
{
    for (size_t i = 0; i < m->n_nodes * m->n_nodes; i++) {
        int from = -1, to = -1;

        for (unsigned k = 0; k < d->nbobjs; k++) {
            if ((int)d->objs[k]->os_index == m->nodes[i / m->n_nodes])
                from = (int)k;
            if ((int)d->objs[k]->os_index == m->nodes[i % m->n_nodes])
                to = (int)k;
        }
        if (from < 0 || to < 0)
            return false;
        m->distance[i] = d->values[(unsigned)from * d->nbobjs + (unsigned)to];
    }
    return true;
}

static int read_tree_distances(struct tei_machine *m)
{
    struct hwloc_distances_s *d = NULL;
    unsigned n = 1;

    if (hwloc_distances_get_by_type(m->tree, HWLOC_OBJ_NUMANODE, &n, &d,
                                    HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) != 0 ||
        n == 0)
        return 0;
    m->distance = calloc(m->n_nodes * m->n_nodes, sizeof(*m->distance));
    if (m->distance && !copy_distances(m, d)) {
        free(m->distance);
        m->distance = NULL;
        n = 0;
    }
    hwloc_distances_release(m->tree, d);
    return m->distance || n == 0 ? 0 : TEI_FAIL(TE_ERR_MEMORY, "no memory for distances of nodes");
}

/* ------------------------------------------------------------------------------------------ GPUs */

/* The class of devices that one maker has for computing; those of other makers are told by their drivers. */
static const struct {
    unsigned vendor, class;
    enum tei_mem_kind kind;
} pci_kinds[] = {
    {VENDOR_NVIDIA, CLASS_DISPLAY, TEI_MEM_CUDA},
    {VENDOR_AMD, CLASS_DISPLAY, TEI_MEM_HIP},
    {VENDOR_AMD, CLASS_PROCESSOR, TEI_MEM_HIP},
    {VENDOR_HUAWEI, CLASS_PROCESSOR, TEI_MEM_ASCEND},
    {VENDOR_MTHREADS, CLASS_DISPLAY, TEI_MEM_MUSA},
};

/* TEI_MEM_HOST for what is not a device to compute on. */
static enum tei_mem_kind gpu_kind(const struct hwloc_pcidev_attr_s *pci)
{
    /* The ES1000 drives the screen of many servers. */
    bool screen =
        pci->vendor_id == VENDOR_AMD && (pci->device_id == 0x515e || pci->device_id == 0x5969);

    for (size_t i = 0; !screen && i < TEI_ARRAY_LEN(pci_kinds); i++)
        if (pci->vendor_id == pci_kinds[i].vendor && pci->class_id >> 8 == pci_kinds[i].class)
            return pci_kinds[i].kind;
    return TEI_MEM_HOST;
}

static int by_address(const void *a, const void *b)
{
    const struct hwloc_pcidev_attr_s *x = &(*(const hwloc_obj_t *)a)->attr->pcidev,
                                     *y = &(*(const hwloc_obj_t *)b)->attr->pcidev;
    uint64_t p =
        (uint64_t)x->domain << 32 | (uint64_t)x->bus << 16 | (uint64_t)x->dev << 8 | x->func;
    uint64_t q =
        (uint64_t)y->domain << 32 | (uint64_t)y->bus << 16 | (uint64_t)y->dev << 8 | y->func;

    return (p > q) - (p < q);
}

/* The nodes of the object of the CPU side that a device hangs at; none when that is all of many. */
static int nodes_near(const struct tei_machine *m, hwloc_obj_t device, hwloc_bitmap_t out)
{
    hwloc_obj_t at = hwloc_get_non_io_ancestor_obj(m->tree, device);
    hwloc_const_nodeset_t all = hwloc_get_root_obj(m->tree)->nodeset;

    if (m->n_nodes > 1 && hwloc_bitmap_isequal(at->nodeset, all))
        return 0;
    return hwloc_bitmap_copy(out, at->nodeset);
}

static int place_at(const struct tei_machine *m, hwloc_obj_t device, struct tei_place *out)
{
    out->object = device;
    out->nodes = hwloc_bitmap_alloc();
    return out->nodes && nodes_near(m, device, out->nodes) == 0 ? 0 : TE_ERR_MEMORY;
}

static int add_gpu(struct tei_machine *m, hwloc_obj_t device, const char *kind, int number)
{
    struct tei_gpu *more = realloc(m->gpus, (m->n_gpus + 1) * sizeof(*more));

    if (!more)
        return TE_ERR_MEMORY;
    m->gpus = more;
    more += m->n_gpus++;
    *more = (struct tei_gpu){0};
    snprintf(more->location, sizeof(more->location), "%s:%d", kind, number);
    return place_at(m, device, &more->place);
}

/*
 * By the driver's numbers, which are those of its memory: it may hide devices, and sort them as it
 * likes. *n: how many of its devices are in the tree.
 */
static int number_by_driver(struct tei_machine *m, enum tei_mem_kind kind, int *n)
{
    int devices = tei_gpu_is_loaded(kind) && tei_gpu_open(kind) == 0 ? tei_gpu_count(kind) : 0;
    int rc = 0;

    *n = 0;
    for (int i = 0; !rc && i < devices; i++) {
        hwloc_obj_t device = NULL;
        char pci[16];

        if (tei_gpu_pci(kind, i, pci) == 0)
            device = hwloc_get_pcidev_by_busidstring(m->tree, pci);
        if (device) {
            rc = add_gpu(m, device, tei_mem_word(kind), i);
            (*n)++;
        }
    }
    return rc;
}

static int number_gpus(struct tei_machine *m, hwloc_obj_t *devices, size_t n,
                       enum tei_mem_kind kind)
{
    int known, next = 0, rc = number_by_driver(m, kind, &known);

    for (size_t i = 0; !rc && known == 0 && i < n; i++)
        if (gpu_kind(&devices[i]->attr->pcidev) == kind)
            rc = add_gpu(m, devices[i], tei_mem_word(kind), next++);
    return rc;
}

static int read_gpus(struct tei_machine *m)
{
    size_t room = (size_t)hwloc_get_nbobjs_by_type(m->tree, HWLOC_OBJ_PCI_DEVICE) + 1, n = 0;
    hwloc_obj_t *devices = calloc(room, sizeof(hwloc_obj_t)), device = NULL;
    int rc = devices ? 0 : TE_ERR_MEMORY;

    while (devices && (device = hwloc_get_next_pcidev(m->tree, device)))
        if (gpu_kind(&device->attr->pcidev) != TEI_MEM_HOST)
            devices[n++] = device;
    if (n > 0)
        qsort(devices, n, sizeof(hwloc_obj_t), by_address);
    for (unsigned kind = TEI_MEM_HOST + 1; !rc && kind < TEI_MEM_OTHER; kind++)
        rc = number_gpus(m, devices, n, (enum tei_mem_kind)kind);
    free(devices);
    return rc ? TEI_FAIL(rc, "no memory to list GPUs") : 0;
}

/* ----------------------------------------------------------------------------------- the machine */

static int read_tree(struct tei_machine *m)
{
    int rc = read_tree_nodes(m);

    if (!rc)
        rc = read_tree_distances(m);
    return rc ? rc : read_gpus(m);
}

/* Which tree: see struct tei_look. NULL: that of this machine. false: none. */
static bool choose_tree(const struct tei_look *look, char buf[PATH_MAX], const char **xml)
{
    *xml = look->xml;
    if (look->xml || strcmp(look->sysfs, "/sys") == 0)
        return true;
    snprintf(buf, PATH_MAX, "%s/hwloc.xml", look->sysfs);
    *xml = buf;
    return access(buf, R_OK) == 0;
}

int tei_machine_open(const struct tei_look *look, struct tei_machine *out)
{
    struct tei_machine m = {0};
    char buf[PATH_MAX];
    const char *xml;
    int rc;

    if (choose_tree(look, buf, &xml)) {
        if (!has_room())
            return TEI_FAIL(TE_ERR_MEMORY,
                            "no memory for the topology: hwloc needs to have %zu bytes", TREE_ROOM);
        m.tree = load_tree(xml);
        if (!m.tree && xml)
            return TEI_FAIL(TE_ERR_SYSTEM, "hwloc cannot read %s: %s", xml, tei_errno_text(errno));
        if (!m.tree)
            TEI_WARN("hwloc cannot read this machine (%s): no GPUs in the topology",
                     tei_errno_text(errno));
    }
    rc = m.tree ? read_tree(&m) : open_sysfs(look->sysfs, &m);
    if (rc)
        tei_machine_close(&m);
    else
        *out = m;
    return rc;
}

void tei_place_fini(struct tei_place *p)
{
    hwloc_bitmap_free(p->nodes);
    *p = (struct tei_place){0};
}

void tei_machine_close(struct tei_machine *m)
{
    for (size_t i = 0; i < m->n_gpus; i++)
        tei_place_fini(&m->gpus[i].place);
    free(m->gpus);
    free(m->distance);
    free(m->nodes);
    if (m->tree)
        hwloc_topology_destroy(m->tree);
    *m = (struct tei_machine){0};
}

/* ----------------------------------------------------------------------------- where a device is */

/* The PCI device above an OS device that stands for an RDMA NIC; NULL if none has the name. */
static hwloc_obj_t find_by_name(hwloc_topology_t tree, const char *name)
{
    hwloc_obj_t device = NULL;

    while ((device = hwloc_get_next_osdev(tree, device)))
        if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS && device->name &&
            strcmp(device->name, name) == 0)
            return device->parent;
    return NULL;
}

static hwloc_obj_t find_device(const struct tei_machine *m, const struct tei_nic *nic)
{
    hwloc_obj_t device;

    if (!m->tree)
        return NULL;
    device = find_by_name(m->tree, nic->name);
    return device || !nic->pci[0] ? device : hwloc_get_pcidev_by_busidstring(m->tree, nic->pci);
}

int tei_machine_place(const struct tei_machine *m, const struct tei_nic *nic, struct tei_place *out)
{
    hwloc_obj_t device = find_device(m, nic);
    struct tei_place p = {.object = device};
    int rc;

    if (device) {
        rc = place_at(m, device, &p);
    } else {
        p.nodes = hwloc_bitmap_alloc();
        rc = p.nodes ? 0 : TE_ERR_MEMORY;
    }
    if (!rc && hwloc_bitmap_iszero(p.nodes) && nic->numa >= 0)
        rc = hwloc_bitmap_set(p.nodes, (unsigned)nic->numa);
    if (rc) {
        tei_place_fini(&p);
        return TEI_FAIL(TE_ERR_MEMORY, "no memory to place NIC %s", nic->name);
    }
    *out = p;
    return 0;
}

uint64_t tei_machine_distance(const struct tei_machine *m, size_t node, const struct tei_place *to)
{
    uint64_t best = TEI_FAR;

    for (size_t i = 0; m->distance && i < m->n_nodes; i++) {
        uint64_t d = m->distance[node * m->n_nodes + i];

        if (hwloc_bitmap_isset(to->nodes, (unsigned)m->nodes[i]) && d < best)
            best = d;
    }
    return best;
}

static unsigned steps_from_root(hwloc_obj_t o)
{
    unsigned n = 0;

    for (; o->parent; o = o->parent)
        n++;
    return n;
}

/* hwloc's own search for a common ancestor does not take devices. */
static unsigned shared_steps(hwloc_obj_t a, hwloc_obj_t b)
{
    unsigned da = steps_from_root(a), db = steps_from_root(b);

    for (; da > db; da--)
        a = a->parent;
    for (; db > da; db--)
        b = b->parent;
    for (; a != b; da--) {
        a = a->parent;
        b = b->parent;
    }
    return da;
}

/* The same for a NIC of which only the NUMA node is known. */
static unsigned shared_by_node(const struct tei_machine *m, const struct tei_place *gpu,
                               const struct tei_place *nic)
{
    if (!hwloc_bitmap_intersects(gpu->nodes, nic->nodes))
        return 0;
    return steps_from_root(hwloc_get_non_io_ancestor_obj(m->tree, gpu->object));
}

bool tei_machine_nearness(const struct tei_machine *m, const struct tei_gpu *gpu,
                          const struct tei_place *nic, struct tei_nearness *out)
{
    if (!nic->object && hwloc_bitmap_iszero(nic->nodes))
        return false;
    out->shared = nic->object ? shared_steps(gpu->place.object, nic->object)
                              : shared_by_node(m, &gpu->place, nic);
    out->distance = TEI_FAR;
    for (size_t i = 0; i < m->n_nodes; i++) {
        uint64_t d;

        if (!hwloc_bitmap_isset(gpu->place.nodes, (unsigned)m->nodes[i]))
            continue;
        d = tei_machine_distance(m, i, nic);
        if (d < out->distance)
            out->distance = d;
    }
    return true;
}
