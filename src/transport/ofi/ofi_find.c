/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi_find.c - which NICs there are, and whether their providers are of use.
 *
 * Without TE_OFI_PROVIDER only providers of network hardware are asked, and only where the kernel shows
 * such hardware: libfabric looks at whatever the host has, which takes long and is seen by others.
 */
#include "base/err.h"
#include "transport/ofi/ofi.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of a kind of hardware: where the kernel shows its devices, and how their names begin. */
static const struct {
    const char *provider, *folder, *begin;
} hardware[] = {
    {"efa", "class/infiniband", "efa"},
    {"efa", "class/infiniband", "rdmap"}, /* renamed by rdma-core: EFA and others */
    {"cxi", "class/cxi", "cxi"},
    {"opx", "class/infiniband", "hfi1"},
};

/* rdma-core calls NICs of any maker by their slots: the driver says which these are. */
static bool is_of(const char *folder, const char *name, const char *provider)
{
    char path[TEI_CONF_TEXT + 400], link[256];
    ssize_t n;

    snprintf(path, sizeof path, "%s/%s/device/driver", folder, name);
    n = readlink(path, link, sizeof link - 1);
    if (n < 0)
        return strncmp(name, provider, strlen(provider)) == 0;
    link[n] = '\0';
    return strstr(link, provider) != NULL;
}

static bool has_device(const struct tei_conf *conf, size_t kind)
{
    char folder[TEI_CONF_TEXT + 32];
    const struct dirent *d;
    bool found = false;
    DIR *all;

    snprintf(folder, sizeof folder, "%s/%s", conf->sysfs_path, hardware[kind].folder);
    all = opendir(folder);
    while (all && !found && (d = readdir(all)))
        found = strncmp(d->d_name, hardware[kind].begin, strlen(hardware[kind].begin)) == 0 &&
                (strcmp(hardware[kind].begin, "rdmap") != 0 ||
                 is_of(folder, d->d_name, hardware[kind].provider));
    if (all)
        closedir(all);
    return found;
}

/* The provider of the first hardware that there is; NULL: there is none. */
static const char *find_hardware(const struct tei_conf *conf)
{
    for (size_t i = 0; i < TEI_ARRAY_LEN(hardware); i++)
        if (has_device(conf, i))
            return hardware[i].provider;
    return NULL;
}

bool tei_ofi_probe(const struct tei_conf *conf, char *why, size_t n)
{
    struct ofi_library l;

    if (!conf->ofi_provider[0] && !find_hardware(conf)) {
        snprintf(
            why, n,
            "there is no EFA, CXI or Omni-Path device; TE_OFI_PROVIDER names another provider");
        return false;
    }
    if (tei_ofi_library_open(conf, &l)) {
        snprintf(why, n, "%.150s; install libfabric1, or name the library in TE_OFI_PATH",
                 te_errmsg());
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------ what is asked for */

static struct fi_info *make_hints(struct ofi *t, const char *provider)
{
    struct fi_info *h = t->lib.dupinfo(NULL);

    if (!h)
        return NULL;
    h->ep_attr->type = FI_EP_RDM;
    h->caps = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    h->mode = FI_CONTEXT | FI_CONTEXT2;
    h->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    h->domain_attr->threading = FI_THREAD_SAFE;
    h->tx_attr->op_flags =
        FI_DELIVERY_COMPLETE; /* a WRITE ends when it is in the target's memory */
    h->fabric_attr->prov_name = strdup(provider);
    if (!h->fabric_attr->prov_name) {
        t->lib.freeinfo(h);
        return NULL;
    }
    return h;
}

/*
 * Not of use: what moves bytes past the keys, as processes of one host may. The host transport does that,
 * and looks.
 */
static bool is_unfit(const char *provider)
{
    return strcmp(provider, "shm") == 0 || strncmp(provider, "sm2", 3) == 0;
}

/* Nothing arrives in memory any more whose key such a NIC has closed. */
static bool fences(const char *provider)
{
    return strncmp(provider, "verbs", 5) == 0 || strcmp(provider, "cxi") == 0;
}

static const char *why_useless(const struct fi_info *i)
{
    uint64_t mode = (uint64_t)i->domain_attr->mr_mode;

    if (is_unfit(i->fabric_attr->prov_name))
        return "it does not check keys; the host transport reaches processes of this host";
    if (i->domain_attr->mr_key_size > sizeof(uint64_t) || (mode & FI_MR_RAW))
        return "its keys are longer than 64 bits";
    if ((mode & FI_MR_ENDPOINT) && !fences(i->fabric_attr->prov_name))
        return "its memory belongs to an endpoint";
    if (i->mode & ~(FI_CONTEXT | FI_CONTEXT2))
        return "it asks for a mode that is not supported";
    return NULL;
}

/* Whether TE_OFI_DOMAIN, a list of names, has that one. */
static bool is_wanted(const char *list, const char *name)
{
    size_t n = strlen(name);

    if (!list[0])
        return true;
    for (; *list; list += strcspn(list, ",") + (list[strcspn(list, ",")] == ','))
        if (strncmp(list, name, n) == 0 && (list[n] == ',' || !list[n]))
            return true;
    return false;
}

static bool is_known(const struct ofi *t, const char *name)
{
    for (size_t i = 0; i < t->n_nics; i++)
        if (strcmp(t->nics[i].name, name) == 0)
            return true;
    return false;
}

/* Software goes by one interface unless it was told which: its addresses are many names of one host. */
static bool is_enough(const struct ofi *t, const struct fi_info *i)
{
    bool is_software = i->addr_format == FI_SOCKADDR_IN || i->addr_format == FI_SOCKADDR_IN6;

    return t->n_nics == OFI_NICS ||
           (t->n_nics && is_software && !t->base.host->conf->ofi_domain[0]);
}

static int add_nic(struct ofi *t, const struct fi_info *i)
{
    uint64_t mode = (uint64_t)i->domain_attr->mr_mode;
    struct ofi_nic *n = &t->nics[t->n_nics];

    n->info = t->lib.dupinfo(i);
    if (!n->info)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the NICs of ofi");
    n->ofi = t;
    n->index = t->n_nics++;
    snprintf(n->name, sizeof n->name, "%s", i->domain_attr->name);
    n->is_virtual = mode & FI_MR_VIRT_ADDR;
    n->needs_local = mode & FI_MR_LOCAL;
    n->binds_memory = mode & FI_MR_ENDPOINT;
    n->fences = fences(i->fabric_attr->prov_name);
    n->credits = tei_min(i->tx_attr->size ? i->tx_attr->size : 1, OFI_CREDITS);
    n->part = tei_min(OFI_PART, i->ep_attr->max_msg_size);
    tei_list_init(&n->gens);
    n->fd = -1;
    return 0;
}

static bool is_alike(const struct ofi *t, const struct fi_info *i)
{
    const struct fi_info *first = t->n_nics ? t->nics[0].info : i;

    return strcmp(first->fabric_attr->prov_name, i->fabric_attr->prov_name) == 0 &&
           first->addr_format == i->addr_format;
}

static int choose(struct ofi *t, const struct fi_info *all, const char **why)
{
    int rc = 0;

    for (const struct fi_info *i = all; !rc && i && !is_enough(t, i); i = i->next) {
        const char *useless = why_useless(i);

        if (useless)
            *why = useless;
        else if (is_wanted(t->base.host->conf->ofi_domain, i->domain_attr->name) &&
                 is_alike(t, i) && !is_known(t, i->domain_attr->name))
            rc = add_nic(t, i);
    }
    return rc;
}

/* IP providers listen where the engine does. */
static const char *source(const struct tei_host *h)
{
    return h->conf->ofi_provider[0] && h->bind_host[0] ? h->bind_host : NULL;
}

int tei_ofi_find(struct ofi *t)
{
    const struct tei_conf *conf = t->base.host->conf;
    const char *provider = conf->ofi_provider[0] ? conf->ofi_provider : find_hardware(conf);
    const char *why = "none of its domains is in TE_OFI_DOMAIN", *node = source(t->base.host);
    struct fi_info *hints, *all = NULL;
    int rc;

    if (!provider)
        return TEI_FAIL(TE_ERR_UNSUPPORTED, "ofi: there is no device for it");
    hints = make_hints(t, provider);
    if (!hints)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for the NICs of ofi");
    rc = t->lib.getinfo(OFI_API, node, NULL, node ? FI_SOURCE : 0, hints, &all);
    if (rc && node && !is_unfit(provider)) /* not one of IP */
        rc = t->lib.getinfo(OFI_API, NULL, NULL, 0, hints, &all);
    t->lib.freeinfo(hints);
    if (rc)
        return TEI_FAIL(
            TE_ERR_UNSUPPORTED,
            "ofi: libfabric has no endpoints of provider '%.64s' that read and write: %s; "
            "fi_info -p lists what it has",
            provider, t->lib.strerror(-rc));
    rc = choose(t, all, &why);
    t->lib.freeinfo(all);
    if (!rc && !t->n_nics)
        rc =
            TEI_FAIL(TE_ERR_UNSUPPORTED, "ofi: provider '%.64s' cannot be used: %s", provider, why);
    return rc;
}
