/* SPDX-License-Identifier: Apache-2.0 */
/* install_why.c - the transports that are built in, and why one is not installed. */
#include "core/core.h"
#include "core/install.h"

#include <stdio.h>
#include <string.h>

static void list_built_in(char *buf, size_t n)
{
    const struct tei_transport_ops *ops;
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; (ops = tei_transport_at(i)) && used < n; i++)
        used += (size_t)snprintf(buf + used, n - used, "%s%s", i ? ", " : "", ops->name);
}

/* What other makes have and this one cannot. */
static bool is_closed(const char *name)
{
    return strcmp(name, "ascend_direct") == 0 || strcmp(name, "heterogeneous") == 0;
}

int tei_install_find(const char *name, const struct tei_transport_ops **out)
{
    char built_in[128];

    *out = tei_transport_find(name);
    if (*out)
        return 0;
    list_built_in(built_in, sizeof(built_in));
    if (is_closed(name))
        return TEI_FAIL(
            TE_ERR_UNSUPPORTED,
            "transport '%s' is not built in: it moves data by a closed library of the NPU's "
            "maker. Here NPUs are reached by 'ascend' on one host, by 'rdma' and 'tcp' on "
            "others; see docs/ascend.md",
            name);
    return TEI_FAIL(TE_ERR_UNSUPPORTED, "transport '%.64s' is not built in; there are: %s", name,
                    built_in);
}

bool tei_install_can_run(const struct tei_conf *conf, const struct tei_transport_ops *ops,
                         char *why, size_t n)
{
    why[0] = '\0';
    return !ops->probe || ops->probe(conf, why, n);
}

unsigned tei_install_kinds(const struct transports *s)
{
    /* Relaxed: who asks why may miss what is registered just now; who installs has admin, as who registers has. */
    return TEI_MEM_BIT(TEI_MEM_HOST) | atomic_load_explicit(&s->kinds, memory_order_relaxed);
}

const char *tei_install_why_off(const struct tei_conf *conf, const struct tei_transport_ops *ops)
{
    return ops->why_off ? ops->why_off(conf) : NULL;
}

/* The host is asked last: for that a library of a vendor may have to be loaded. */
void tei_install_why_not(const te_engine *e, const struct tei_transport_ops *ops, char *buf,
                         size_t n)
{
    char why[256];
    const char *option, *asked = tei_transport_asked(&e->conf, &option),
                        *off = tei_install_why_off(&e->conf, ops);

    if (asked && strcmp(asked, ops->name) != 0)
        snprintf(buf, n, "%s asks for %s; te_transport_install() adds this one", option, asked);
    else if (ops->beside & ~tei_install_kinds(&e->transports) & TEI_MEM_ANY)
        snprintf(buf, n,
                 "no memory of such a device is registered; te_transport_install() adds it "
                 "all the same");
    else if (off)
        snprintf(buf, n, "%s; te_transport_install() adds it all the same", off);
    else if (!tei_install_can_run(&e->conf, ops, why, sizeof(why)))
        snprintf(buf, n, "cannot run on this host: %s", why);
    else
        snprintf(buf, n, "te_transport_install() adds it");
}
