/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "te_segment/file.h"
#include "te_segment/print.h"
#include "te_segment/record.h"

#define ANY_HOST "*"

struct here {
    char names[3][HOST_TEXT_MAX];
    size_t n;
};

/* The path that an engine of this host takes; the name that it finds it by in *name. */
static const char *path_here(const json_t *root, size_t i, const struct here *h, const char **name)
{
    for (size_t k = 0; k <= h->n; k++) {
        *name = k < h->n ? h->names[k] : ANY_HOST;
        if (record_on(root, i, *name))
            return record_on(root, i, *name);
    }
    for (size_t k = 0; k < h->n; k++) {
        *name = h->names[k];
        if (strcmp(record_owner(root), h->names[k]) == 0)
            return record_path(root, i);
    }
    return NULL;
}

static void print_here(const json_t *root, size_t i, const struct here *h)
{
    const char *name = "", *path = path_here(root, i, h, &name);
    struct file_info info;
    char why[WHY_MAX];

    if (!path)
        printf("    here         no path: te_segment mount records one\n");
    else if (file_holds(path, record_length(root, i), &info, why))
        printf("    here         %s (as %s): usable%s\n", path, name,
               info.is_read_only ? " for reading only" : "");
    else
        printf("    here         %s (as %s): not usable: %s\n", path, name, why);
}

static void print_file(const json_t *root, size_t i, uint64_t offset, const struct here *h)
{
    char text[TARGET_TEXT_MAX];
    struct target target;
    const char *host;
    json_t *path;

    printf("  file %zu: %" PRIu64 " bytes from offset %" PRIu64 "\n", i, record_length(root, i),
           offset);
    printf("    file_path    %s\n", record_path(root, i));
    json_object_foreach(record_map(root, i), host, path) {
        printf("    on %-9s %s\n", host, json_string_value(path));
    }
    print_here(root, i, h);
    if (record_target(root, i, &target))
        printf("    target       %s\n", target_format(&target, text));
}

void print_files(const struct entry *e, const char *host)
{
    const json_t *root = e->root;
    struct here here;
    uint64_t offset = 0;

    here.n = host_names(host, here.names);
    for (size_t i = 0; i < record_count(root); i++) {
        print_file(root, i, offset, &here);
        offset += record_length(root, i);
    }
}
