/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth_keys.h - the key file. Private to src/auth.
 *
 * The file has lines ID:KEY. The first is the one that this engine shows, the others are those of peers that may
 * come. Empty lines, and those that begin with '#', are passed over. An id is 1 to 64 letters, digits, '.', '_' or '-';
 * a key is 32 to 64 random bytes in base64. No id stands twice, but for the first: where its line is
 * repeated, peers that show the same id may come.
 */
#ifndef TEI_AUTH_KEYS_H
#define TEI_AUTH_KEYS_H

#include "auth/auth.h"
#include "base/secret.h"

#define AUTH_KEY_MIN   32
#define AUTH_KEY_MAX   64
#define AUTH_FILE_MAX  ((size_t)1 << 20)
#define AUTH_LINES_MAX 4096

struct auth_line {
    char id[TEI_AUTH_ID_MAX + 1];
    uint8_t key[AUTH_KEY_MAX];
    size_t len;
};

/* What a file says, in secret pages. */
struct auth_file {
    size_t n, bytes;
    bool own_may_come; /* the first line was repeated */
    struct auth_line lines[];
};

bool tei_auth_is_id(const char *id, size_t n);
/* The line of an id, NULL: none. Looks at all lines, whichever it is. */
const struct auth_line *tei_auth_find(const struct auth_file *f, const char *id, size_t n);

/*
 * Reads a text of n bytes; `name` is told in errors, which never have a part of a key. TE_ERR_INVALID,
 * TE_ERR_MEMORY.
 */
int tei_auth_parse(const char *text, size_t n, const char *name, struct auth_file **out);
/* NULL is accepted. */
void tei_auth_file_free(struct auth_file *f);

/* What a file says that nobody but its owner may read, in secret pages. */
struct auth_text {
    char *bytes; /* n, and a NUL */
    size_t n, room;
};
void tei_auth_text_free(struct auth_text *t);

/* What tells one state of a file from the next. */
struct auth_stamp {
    uint64_t device, inode, size;
    int64_t modified_ns, changed_ns;
};
/* False with errno. */
bool tei_auth_stamp(const char *path, struct auth_stamp *out);
/*
 * Reads a file, if nobody but its owner may; *stamp is of what was read, or is refused; left alone where the file
 * cannot be opened. `option` is told in errors. TE_ERR_INVALID; TE_ERR_MEMORY or TE_ERR_SYSTEM: another time it may
 * be read.
 */
int tei_auth_text_read(const char *path, const char *option, struct auth_stamp *stamp,
                       struct auth_text *out);
/* The same of a key file, which is then parsed. */
int tei_auth_read(const char *path, struct auth_stamp *stamp, struct auth_file **out);

#endif
