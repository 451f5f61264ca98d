/* SPDX-License-Identifier: Apache-2.0 */
/* query.c - list and show. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "te_segment/answers.h"
#include "te_segment/command.h"
#include "te_segment/print.h"
#include "te_segment/record.h"

int command_list(struct job *j)
{
    struct entry *list;
    size_t n;

    if (registry_list(&j->registry, &list, &n))
        return fail(FAILED, "cannot list the segments: %s", te_errmsg());
    if (answers_ask(j->registry.conf, list, n)) {
        entries_free(list, n);
        return fail(FAILED, "%s", te_errmsg());
    }
    if (j->settings->json)
        print_json(list, n);
    else
        print_table(list, n);
    entries_free(list, n);
    return 0;
}

static int show_entry(const struct job *j, struct entry *e)
{
    if (j->settings->json) {
        print_stored(e);
        return 0;
    }
    if (!e->segment)
        return fail(FAILED, "segment '%s' is malformed: %s; --json shows it as it is stored",
                    j->name, e->wrong);
    if (answers_ask(j->registry.conf, e, 1))
        return fail(FAILED, "%s", te_errmsg());
    print_segment(e, j->settings->server_name);
    return 0;
}

/* As te_open() does it where files were asked for: a name that no segment of memory has may be theirs. */
static int read_either(struct job *j, struct entry *out)
{
    int rc = entry_read(&j->registry, j->name, out);
    char *files;

    if (rc != TE_ERR_NOT_FOUND || strchr(j->name, '/') ||
        asprintf(&files, RECORD_KIND "%s", j->name) < 0)
        return rc;
    rc = entry_read(&j->registry, files, out);
    free(files);
    return rc;
}

int command_show(struct job *j)
{
    struct entry e;
    int rc = read_either(j, &e);

    if (rc == TE_ERR_NOT_FOUND)
        return fail_absent(j, "");
    if (rc)
        return fail(FAILED, "segment '%s': %s", j->name, te_errmsg());
    rc = show_entry(j, &e);
    entry_fini(&e);
    return rc;
}
