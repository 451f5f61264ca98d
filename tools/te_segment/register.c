/* SPDX-License-Identifier: Apache-2.0 */
/* register.c - a segment of memory before its engine is up, or one of files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "te_segment/memory.h"

/* A name that the engine itself would refuse is of no use to anybody. */
static int check_new_name(const char *name)
{
    json_t *utf8 = json_string(name);

    json_decref(utf8);
    if (strchr(name, '/'))
        return fail(USAGE,
                    "cannot register '%s': a name with a '/' is that of files, give them by "
                    "--file",
                    name);
    if (!utf8)
        return fail(USAGE, "cannot register '%s': the name is not UTF-8", name);
    if (strlen(name) >= TEI_HOSTPORT_MAX)
        return fail(USAGE, "cannot register '%.60s...': a name has at most %d bytes", name,
                    TEI_HOSTPORT_MAX - 1);
    return 0;
}

/* Whether a descriptor or an engine is there under the name: 0 no, else the status to exit with. */
static int check_vacant(struct job *j)
{
    struct tei_hostport where;
    struct tei_bytes text = {0};
    int rc = registry_get(&j->registry, tei_keys_segment(j->registry.conf, j->name), &text);
    bool stored = rc == 0;

    tei_bytes_fini(&text);
    if (rc && rc != TE_ERR_NOT_FOUND)
        return fail(FAILED, "%s", te_errmsg());
    rc = registry_where(&j->registry, j->name, &where);
    if (rc && rc != TE_ERR_JSON)
        return fail(FAILED, "%s", te_errmsg());
    if (where.port)
        return fail(FAILED,
                    "segment '%s' is registered already, by an engine at %s port %u; "
                    "--force replaces its descriptor until it publishes again",
                    j->name, where.host, (unsigned)where.port);
    if (stored || rc)
        return fail(FAILED,
                    "segment '%s' is registered already, and has no engine; --force "
                    "replaces its descriptor",
                    j->name);
    return 0;
}

int command_register(struct job *j)
{
    char *text = NULL;
    size_t len;
    int rc;

    if (j->settings->file[0])
        return register_files(j);
    rc = check_new_name(j->name);
    if (!rc && !j->settings->force)
        rc = check_vacant(j);
    if (!rc)
        rc = memory_descriptor(j, &text, &len);
    if (rc)
        return rc;
    rc = registry_put(&j->registry, tei_keys_segment(j->registry.conf, j->name), text, len);
    free(text);
    if (rc)
        return fail(FAILED, "segment '%s' is not registered: %s", j->name, te_errmsg());
    printf("registered %s\n", j->name);
    return 0;
}
