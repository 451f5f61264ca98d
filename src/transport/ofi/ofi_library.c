/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ofi/ofi_library.h"

#include "base/err.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libfabric.so.1"

static const struct {
    const char *name;
    size_t at; /* of the member in struct ofi_library */
} symbols[] = {
#define SYMBOL(name) {"fi_" #name, offsetof(struct ofi_library, name)},
    OFI_SYMBOLS(SYMBOL)
#undef SYMBOL
};

static int refuse(const char *path, const char *why)
{
    char text[320];

    snprintf(text, sizeof text, "%.100s: %.200s", path, why ? why : "it cannot be opened");
    return tei_err_keep(TE_ERR_UNSUPPORTED, text);
}

/* Of an older one the structs differ from those of the headers. */
static int check_version(const char *path, const struct ofi_library *l)
{
    uint32_t v = l->version();
    char text[64];

    if (v >= OFI_API)
        return 0;
    snprintf(text, sizeof text, "it is version %u.%u, 1.17 or newer is needed", FI_MAJOR(v),
             FI_MINOR(v));
    return refuse(path, text);
}

int tei_ofi_library_open(const struct tei_conf *conf, struct ofi_library *out)
{
    const char *path = conf->ofi_path[0] ? conf->ofi_path : LIBRARY;
    struct ofi_library l = {.library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)};
    int rc;

    if (!l.library)
        return refuse(path, dlerror());
    for (size_t i = 0; i < TEI_ARRAY_LEN(symbols); i++) {
        void *at = dlsym(l.library, symbols[i].name);

        if (!at) {
            dlclose(l.library);
            return refuse(path, symbols[i].name);
        }
        memcpy((char *)&l + symbols[i].at, &at, sizeof at);
    }
    rc = check_version(path, &l);
    if (rc)
        dlclose(l.library);
    else
        *out = l;
    return rc;
}
