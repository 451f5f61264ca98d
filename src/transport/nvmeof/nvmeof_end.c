/* SPDX-License-Identifier: Apache-2.0 */
/* nvmeof_end.c - work that fails. */
#include "transport/nvmeof/nvmeof.h"

#include <stdio.h>
#include <string.h>

void tei_nvmeof_fail(struct nvmeof_work *w, int error, int sys_errno, const char *why)
{
    if (w->entry.base.error)
        return;
    tei_ledger_end(&w->file->ledger, &w->entry, error, sys_errno, why);
    tei_ledger_reap(&w->file->ledger, &w->file->owner->ended);
}

void tei_nvmeof_fail_at(struct nvmeof_work *w, int error, int sys_errno, const char *what)
{
    struct tei_host *host = w->file->owner->base.host;
    const char *place = strchr(what, '%');
    char text[512];

    if (w->entry.base.error)
        return;
    snprintf(text, sizeof text, "%.*s%.400s%s", (int)(place - what), what, w->file->path,
             place + 2);
    tei_nvmeof_fail(w, error, sys_errno, host->note(host, &w->entry.base, text));
}
