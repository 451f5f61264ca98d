/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "te_segment/answers.h"
#include "te_segment/command.h"
#include "te_segment/record.h"

/* Without a descriptor there is an engine all the same where that has told its address. */
static int ask(struct job *j, struct entry *e)
{
    int rc = entry_read(&j->registry, j->name, e);

    if (rc == TE_ERR_NOT_FOUND)
        rc = registry_where(&j->registry, j->name, &e->where);
    if (rc == TE_ERR_JSON)
        return 0;
    return rc ? rc : answers_ask(j->registry.conf, e, 1);
}

/* 0 if no engine answers for the name, else the status to exit with. */
static int check_dead(struct job *j)
{
    struct entry e = {0};
    int rc = ask(j, &e);

    if (rc)
        rc = fail(FAILED, "%s", te_errmsg());
    else if (e.answer == ANSWER_YES)
        rc = fail(FAILED,
                  "segment '%s' stays: its engine answers at %s port %u; end it, which "
                  "removes its keys, or give --force",
                  j->name, e.where.host, (unsigned)e.where.port);
    entry_fini(&e);
    return rc;
}

/* Takes over `key`. Counts it if it was there; TE_ERR_* if the server could not be asked. */
static int remove_key(struct registry *r, char *key, unsigned *removed)
{
    struct tei_bytes value = {0};
    char *copy = key ? strdup(key) : NULL;
    int rc = registry_get(r, copy, &value);

    tei_bytes_fini(&value);
    if (!rc)
        rc = registry_del(r, strdup(key));
    if (!rc) {
        printf("removed %s\n", key);
        ++*removed;
    }
    free(key);
    return rc == TE_ERR_NOT_FOUND ? 0 : rc;
}

/* Files have no engine: what stands before the slash is not answered for. */
static int remove_keys(struct registry *r, const char *name, unsigned *removed)
{
    int rc = strchr(name, '/') ? 0 : remove_key(r, tei_keys_rpc(r->conf, name), removed);

    return rc ? rc : remove_key(r, tei_keys_segment(r->conf, name), removed);
}

/* As register takes a bare name for files, one that no segment of memory has is theirs. */
static int remove_files(struct job *j, unsigned *removed)
{
    char *name = malloc(strlen(RECORD_KIND) + strlen(j->name) + 1);
    int rc;

    if (!name)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for its name");
    rc = remove_keys(&j->registry, strcat(strcpy(name, RECORD_KIND), j->name), removed);
    free(name);
    return rc;
}

int command_unregister(struct job *j)
{
    unsigned removed = 0;
    int rc = !strchr(j->name, '/') && !j->settings->force ? check_dead(j) : 0;

    if (rc)
        return rc;
    rc = remove_keys(&j->registry, j->name, &removed);
    if (!rc && !removed && j->bare)
        rc = remove_files(j, &removed);
    if (rc)
        return fail(FAILED, "segment '%s': %s", j->name, te_errmsg());
    if (!removed)
        return fail_absent(j, ": nothing was removed");
    return 0;
}
