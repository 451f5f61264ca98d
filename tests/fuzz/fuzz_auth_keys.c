/* SPDX-License-Identifier: Apache-2.0 */
/* Key files: what is read is well formed, and a line that is refused leaves nothing behind. */
#include "auth/auth_keys.h"

#include <assert.h>
#include <string.h>

#include "te.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct auth_file *f = NULL;
    int rc;

    te_log_set_level(TE_LOG_OFF);
    rc = tei_auth_parse((const char *)data, size, "keys", &f);
    assert(rc == 0 || rc == TE_ERR_INVALID);
    assert((rc == 0) == (f != NULL));
    for (size_t i = 0; f && i < f->n; i++) {
        const struct auth_line *line = &f->lines[i];

        assert(tei_auth_is_id(line->id, strlen(line->id)));
        assert(line->len >= AUTH_KEY_MIN && line->len <= AUTH_KEY_MAX);
        assert(tei_auth_find(f, line->id, strlen(line->id)) == line);
    }
    tei_auth_file_free(f);
    return 0;
}
