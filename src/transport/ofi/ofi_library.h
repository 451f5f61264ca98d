/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi_library.h - libfabric, opened at run time: the library is not linked with it, so that one binary
 * runs on hosts without it. Only what is called by symbol is here; the rest of its interface goes through
 * tables of its objects. Its structs come from its own dupinfo(), so that a newer library than the headers
 * has room for members that these do not know.
 */
#ifndef TEI_OFI_LIBRARY_H
#define TEI_OFI_LIBRARY_H

#include "base/base.h"
#include "conf/conf.h"

#include <rdma/fabric.h>

/* What is asked for, and what the library has to be at least. */
#define OFI_API FI_VERSION(1, 17)

/* Name of the symbol without "fi_". */
#define OFI_SYMBOLS(X) X(version) X(getinfo) X(freeinfo) X(dupinfo) X(fabric) X(strerror)

struct ofi_library {
    void *library;
#define OFI_MEMBER(name) __typeof__(fi_##name) *name;
    OFI_SYMBOLS(OFI_MEMBER)
#undef OFI_MEMBER
};

/*
 * Opens the library that TE_OFI_PATH names ("": libfabric.so.1). TE_ERR_UNSUPPORTED with the reason in
 * te_errmsg(), not logged: for most hosts that is no fault. It stays open for as long as the process
 * lives, since providers start threads in it.
 */
int tei_ofi_library_open(const struct tei_conf *conf, struct ofi_library *out);

#endif
