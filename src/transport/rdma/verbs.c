/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/rdma/verbs.h"

#include "base/err.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libibverbs.so.1"

struct symbol {
    const char *name;
    size_t at; /* of the member in struct tei_verbs */
    bool required;
};

static const struct symbol symbols[] = {
#define SYMBOL(name, required) {"ibv_" #name, offsetof(struct tei_verbs, name), required},
    TEI_VERBS_SYMBOLS(SYMBOL)
#undef SYMBOL
};

static int refuse(const char *path, const char *why)
{
    char text[320];

    snprintf(text, sizeof text, "%.100s: %.200s", path, why ? why : "it cannot be opened");
    return tei_err_keep(TE_ERR_UNSUPPORTED, text);
}

int tei_verbs_open(const struct tei_conf *conf, struct tei_verbs *out)
{
    const char *path = conf->ibverbs_path[0] ? conf->ibverbs_path : LIBRARY;
    struct tei_verbs v = {.library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)};

    if (!v.library)
        return refuse(path, dlerror());
    for (size_t i = 0; i < TEI_ARRAY_LEN(symbols); i++) {
        void *at = dlsym(v.library, symbols[i].name);

        if (!at && symbols[i].required) {
            dlclose(v.library);
            return refuse(path, symbols[i].name);
        }
        memcpy((char *)&v + symbols[i].at, &at, sizeof at);
    }
    *out = v;
    return 0;
}

int tei_verbs_port(const struct tei_verbs *v, struct ibv_context *c, uint8_t port,
                   struct ibv_port_attr *out)
{
    /* The symbol fills the older, shorter struct, which has all that is asked here. */
    memset(out, 0, sizeof *out);
    return v->query_port(c, port, (struct _compat_ibv_port_attr *)out);
}

double tei_verbs_port_gbps(const struct ibv_port_attr *a)
{
    static const struct {
        uint8_t code;
        double gbps; /* of one lane */
    } speeds[] = {{1, 2.5}, {2, 5}, {4, 10}, {8, 10}, {16, 14}, {32, 25}, {64, 50}, {128, 100}};
    static const unsigned lanes[] = {[1] = 1, [2] = 4, [4] = 8, [8] = 12, [16] = 2};
    unsigned n = a->active_width < TEI_ARRAY_LEN(lanes) ? lanes[a->active_width] : 0;

    for (size_t i = 0; i < TEI_ARRAY_LEN(speeds); i++)
        if (speeds[i].code == a->active_speed)
            return speeds[i].gbps * n;
    return 0;
}
