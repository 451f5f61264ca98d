/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/rdma/rdma_mlx5.h"

#include "base/err.h"
#include "base/log.h"
#include "transport/rdma/rdma.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY   "libmlx5.so.1"
#define SPORTS    "MC_MLX5_QP_UDP_SPORTS"
#define BALANCE   "MC_MLX5_QP_LAG_PORT_BALANCE"
#define LAG_LEAST 2 /* ports of a bond, of a device that does not tell */

/* --------------------------------------------------------------------------------------- opening */

/* One number up to the next ',' or the end; *text is moved there. 0: there is none. */
static uint16_t take_port(const char **text)
{
    const char *at = *text + strspn(*text, " \t");
    size_t digits = strspn(at, "0123456789");
    unsigned long port = digits > 0 && digits <= 5 ? strtoul(at, NULL, 10) : 0;

    at += digits;
    at += strspn(at, " \t");
    *text = at;
    return (uint16_t)((*at == ',' || *at == '\0') && port <= UINT16_MAX ? port : 0);
}

static int read_sports(const char *text, struct tei_mlx5 *m)
{
    for (const char *at = text; *at && m->n_sports < TEI_MLX5_SPORTS_MAX; at += *at == ',') {
        uint16_t port = take_port(&at);

        if (port == 0)
            return TEI_FAIL(TE_ERR_INVALID,
                            SPORTS ": \"%s\" is no list of UDP ports; write numbers from 1 to "
                                   "65535, separated by commas",
                            text);
        m->sports[m->n_sports++] = port;
    }
    return 0;
}

static void *find(void *library, const char *name)
{
    void *at = dlsym(library, name);

    if (!at)
        TEI_WARN("rdma: %s of libmlx5 is missing: a newer rdma-core has it", name);
    return at;
}

static void find_all(void *library, struct tei_mlx5 *m)
{
    void *at = dlsym(library, "mlx5dv_is_supported");

    memcpy(&m->is_supported, &at, sizeof at);
    at = dlsym(library, "mlx5dv_query_device");
    memcpy(&m->query_device, &at, sizeof at);
    at = m->balances ? find(library, "mlx5dv_modify_qp_lag_port") : NULL;
    memcpy(&m->modify_lag_port, &at, sizeof at);
    at = m->n_sports ? find(library, "mlx5dv_modify_qp_udp_sport") : NULL;
    memcpy(&m->modify_udp_sport, &at, sizeof at);
}

int tei_mlx5_open(const struct tei_conf *conf, struct tei_mlx5 *out)
{
    const char *path = conf->mlx5_path[0] ? conf->mlx5_path : LIBRARY;
    void *library;
    int rc;

    *out = (struct tei_mlx5){.balances = conf->mlx5_lag_port_balance};
    rc = read_sports(conf->mlx5_udp_sports, out);
    if (rc || (!out->balances && out->n_sports == 0))
        return rc;
    /* As with libibverbs it stays open: its threads and tables are those of the devices' provider. */
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library)
        find_all(library, out);
    else
        TEI_WARN("rdma: " SPORTS " and " BALANCE
                 " have no effect: %s; install libmlx5, or name it in "
                 "TE_MLX5_PATH",
                 dlerror());
    return 0;
}

/* ----------------------------------------------------------------------------------------- a NIC */

/* Of its bond; 0: it has none. */
static unsigned lag_ports(const struct rdma_nic *n)
{
    const struct tei_mlx5 *m = &n->t->mlx5;
    struct mlx5dv_context c = {.comp_mask = MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS};

    if (!m->query_device || m->query_device(n->context, &c) != 0 ||
        !(c.comp_mask & MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS))
        return LAG_LEAST;
    return c.num_lag_ports > 1 ? c.num_lag_ports : 0;
}

void tei_rdma_mlx5_look(struct rdma_nic *n, struct ibv_device *device)
{
    const struct tei_mlx5 *m = &n->t->mlx5;

    n->is_mlx5 = (m->modify_udp_sport || m->modify_lag_port) &&
                 (!m->is_supported || m->is_supported(device));
    n->lag_ports = n->is_mlx5 && m->modify_lag_port ? lag_ports(n) : 0;
    if (!n->is_mlx5 && (m->modify_udp_sport || m->modify_lag_port))
        TEI_WARN("rdma: " SPORTS " and " BALANCE " have no effect at NIC %s: it is no mlx5 device",
                 n->name);
    else if (n->is_mlx5 && m->modify_lag_port && n->lag_ports == 0)
        TEI_WARN("rdma: " BALANCE " has no effect at NIC %s: its ports are not bonded", n->name);
}

/* ----------------------------------------------------------------------------------- queue pairs */

static void tell(struct rdma_nic *n, const char *option, int errnum)
{
    if (errnum && !atomic_exchange(&n->told_mlx5, true))
        TEI_WARN("rdma: NIC %s does not do what %s asks for: %s", n->name, option,
                 tei_errno_text(errnum));
}

void tei_rdma_mlx5_spread(struct rdma_endpoint *ep)
{
    struct rdma_nic *n = ep->nic;
    const struct tei_mlx5 *m = &n->t->mlx5;

    for (unsigned i = 0; n->is_mlx5 && i < ep->n_qps; i++) {
        struct ibv_qp *qp = ep->qps[i].qp;

        if (n->lag_ports > 0) {
            unsigned next = atomic_fetch_add_explicit(&n->next_lag, 1, memory_order_relaxed);

            tell(n, BALANCE, m->modify_lag_port(qp, (uint8_t)(1 + next % n->lag_ports)));
        }
        if (m->modify_udp_sport)
            tell(n, SPORTS, m->modify_udp_sport(qp, m->sports[i % m->n_sports]));
    }
}
