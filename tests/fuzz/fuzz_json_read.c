/* SPDX-License-Identifier: Apache-2.0 */
/* Any text is read as jansson reads it; and of an object a tree is made, whatever is cut out of it. */
#include "json_same.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* All containers that are members of the object are cut: they are there, and empty. */
static void check_cuts(const struct tei_json_value *whole)
{
    struct tei_json_value cuts[16], key, value;
    struct tei_json_reader r;
    json_error_t error;
    json_t *j, *member;
    size_t n = 0;
    const char *name;

    tei_json_reader_inside(&r, whole, TEI_NEVER);
    while (n < 16 && tei_json_next(&r, &key, &value))
        if (value.kind == TEI_JSON_OBJECT || value.kind == TEI_JSON_ARRAY)
            cuts[n++] = value;
    if (n == 16 || tei_json_tree(whole, cuts, n, &j, &error) != 0)
        return;
    json_object_foreach(j, name, member) {
        assert(json_object_size(member) == 0 && json_array_size(member) == 0);
    }
    json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tei_json_value whole;
    struct tei_json_reader r;
    bool taken;

    assert(json_same((const char *)data, size, &taken));
    tei_json_reader_init(&r, (const char *)data, size, TEI_NEVER);
    if (taken && tei_json_read(&r, &whole) && whole.kind == TEI_JSON_OBJECT)
        check_cuts(&whole);
    return 0;
}
