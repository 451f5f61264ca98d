/* SPDX-License-Identifier: Apache-2.0 */
/* auth_keys.c - reading the key file; no byte of it is ever in memory that is not secret, or in an error. */
#include "auth/auth_keys.h"

#include "base/base64.h"
#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void tei_auth_file_free(struct auth_file *f)
{
    if (f)
        tei_secret_free(f, f->bytes);
}

/* ------------------------------------------------------------------------------------- parsing */

struct reader {
    const char *name;
    size_t line;
    struct auth_file *file;
};

static int refuse(const struct reader *r, const char *why)
{
    return TEI_FAIL(TE_ERR_INVALID, "key file %s, line %zu: %s", r->name, r->line, why);
}

static bool is_id_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

bool tei_auth_is_id(const char *id, size_t n)
{
    bool good = n >= 1 && n <= TEI_AUTH_ID_MAX;

    for (size_t i = 0; good && i < n; i++)
        good = is_id_byte(id[i]);
    return good;
}

const struct auth_line *tei_auth_find(const struct auth_file *f, const char *id, size_t n)
{
    const struct auth_line *found = NULL;

    for (size_t i = 0; i < f->n; i++)
        if (strlen(f->lines[i].id) == n && memcmp(f->lines[i].id, id, n) == 0)
            found = &f->lines[i];
    return found;
}

/* A line with an id that is there already: the first one may be repeated. */
static int repeated(const struct reader *r, const struct auth_line *seen,
                    const struct auth_line *again)
{
    struct auth_file *f = r->file;

    if (seen != &f->lines[0])
        return refuse(r, "its id stands in an earlier line, too: give each key an id of its own");
    if (seen->len != again->len || memcmp(seen->key, again->key, seen->len) != 0)
        return refuse(r, "it gives the id of the first line another key: give each key an id of "
                         "its own");
    f->own_may_come = true;
    return 0;
}

static int add_line(struct reader *r, const char *id, size_t id_len, const char *key,
                    size_t key_len)
{
    struct auth_file *f = r->file;
    struct auth_line *line = &f->lines[f->n];
    const struct auth_line *seen;

    if (f->n == AUTH_LINES_MAX)
        return refuse(r, "there are more than 4096 ids");
    memset(line, 0, sizeof(*line));
    if (!tei_auth_is_id(id, id_len))
        return refuse(r, "an id is 1 to 64 letters, digits, '.', '_' or '-'");
    if (!tei_base64_decode(key, key_len, true, line->key, sizeof(line->key), &line->len) ||
        line->len < AUTH_KEY_MIN)
        return refuse(r, "a key is 32 to 64 random bytes in base64: te_keys make makes such files");
    seen = tei_auth_find(f, id, id_len);
    if (seen)
        return repeated(r, seen, line);
    memcpy(line->id, id, id_len);
    f->n++;
    return 0;
}

static int read_line(struct reader *r, const char *line, size_t n)
{
    const char *colon;

    r->line++;
    if (n > 0 && line[n - 1] == '\r')
        n--;
    if (n == 0 || line[0] == '#')
        return 0;
    colon = memchr(line, ':', n);
    if (!colon)
        return refuse(r, "it has no ':': a line is ID:KEY");
    return add_line(r, line, (size_t)(colon - line), colon + 1, n - (size_t)(colon + 1 - line));
}

static size_t count_lines(const char *text, size_t n)
{
    size_t lines = 1;

    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    return tei_min(lines, AUTH_LINES_MAX);
}

int tei_auth_parse(const char *text, size_t n, const char *name, struct auth_file **out)
{
    /* One more than there are lines: each is read into a free one. */
    size_t bytes = sizeof(struct auth_file) + (count_lines(text, n) + 1) * sizeof(struct auth_line);
    struct reader r = {.name = name, .file = tei_secret_alloc(bytes)};
    int rc = 0;

    if (!r.file)
        return TEI_FAIL(TE_ERR_MEMORY, "key file %s: out of memory", name);
    r.file->bytes = bytes;
    for (size_t at = 0; at < n && !rc;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end - (text + at)) : n - at;

        rc = read_line(&r, text + at, len);
        at += len + 1;
    }
    if (!rc && r.file->n == 0)
        rc = TEI_FAIL(TE_ERR_INVALID, "key file %s has no line ID:KEY", name);
    if (rc)
        tei_auth_file_free(r.file);
    else
        *out = r.file;
    return rc;
}

/* ------------------------------------------------------------------------------------ the file */

static void stamp_of(const struct stat *st, struct auth_stamp *out)
{
    *out =
        (struct auth_stamp){.device = st->st_dev,
                            .inode = st->st_ino,
                            .size = (uint64_t)st->st_size,
                            .modified_ns = st->st_mtim.tv_sec * TEI_NS_PER_S + st->st_mtim.tv_nsec,
                            .changed_ns = st->st_ctim.tv_sec * TEI_NS_PER_S + st->st_ctim.tv_nsec};
}

bool tei_auth_stamp(const char *path, struct auth_stamp *out)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return false;
    stamp_of(&st, out);
    return true;
}

/* Whether the file is one that only its owner can read or change, and that owner is us or root. */
static int check_file(const char *path, const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return TEI_FAIL(TE_ERR_INVALID, "key file %s is no regular file", path);
    if (st->st_mode & (S_IRWXG | S_IRWXO))
        return TEI_FAIL(TE_ERR_INVALID,
                        "key file %s has mode %03o, so that others than its owner reach it: chmod "
                        "600 %s",
                        path, (unsigned)(st->st_mode & 0777), path);
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return TEI_FAIL(
            TE_ERR_INVALID,
            "key file %s belongs to user %u, neither to ours (%u) nor to root: chown it", path,
            (unsigned)st->st_uid, (unsigned)geteuid());
    if ((uint64_t)st->st_size > AUTH_FILE_MAX)
        return TEI_FAIL(TE_ERR_INVALID, "key file %s has more than 1 MiB", path);
    return 0;
}

/* All that is there, at most `room` bytes; -1 with errno. */
static ssize_t read_all(int fd, char *buf, size_t room)
{
    size_t got = 0;

    while (got < room) {
        ssize_t n = read(fd, buf + got, room - got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

void tei_auth_text_free(struct auth_text *t)
{
    tei_secret_free(t->bytes, t->room);
}

static int read_file(int fd, const char *path, size_t size, struct auth_text *out)
{
    struct auth_text t = {.bytes = tei_secret_alloc(size + 1), .room = size + 1};
    ssize_t n = t.bytes ? read_all(fd, t.bytes, t.room) : 0;
    int rc = 0;

    if (!t.bytes)
        return TEI_FAIL(TE_ERR_MEMORY, "key file %s: out of memory", path);
    if (n < 0)
        rc = TEI_FAIL(TE_ERR_SYSTEM, "key file %s cannot be read: %s", path, tei_errno_text(errno));
    else if ((size_t)n > size)
        rc = TEI_FAIL(TE_ERR_INVALID,
                      "key file %s grows while it is read: replace it by a rename (mv)", path);
    if (rc) {
        tei_auth_text_free(&t);
        return rc;
    }
    t.n = (size_t)n;
    *out = t;
    return 0;
}

/* Whether an open() may do better with the same file. */
static bool may_pass(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == EIO || error == EINTR;
}

int tei_auth_text_read(const char *path, const char *option, struct auth_stamp *stamp,
                       struct auth_text *out)
{
    struct stat st;
    int fd = tei_fd_own(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)), rc;

    if (fd < 0)
        return TEI_FAIL(may_pass(errno) ? TE_ERR_SYSTEM : TE_ERR_INVALID,
                        "key file %s cannot be opened: %s (%s)", path, tei_errno_text(errno),
                        option);
    if (fstat(fd, &st) != 0) {
        rc = TEI_FAIL(TE_ERR_SYSTEM, "key file %s: %s", path, tei_errno_text(errno));
    } else {
        stamp_of(&st, stamp);
        rc = check_file(path, &st);
    }
    if (!rc)
        rc = read_file(fd, path, (size_t)st.st_size, out);
    tei_fd_close(fd);
    return rc;
}

int tei_auth_read(const char *path, struct auth_stamp *stamp, struct auth_file **out)
{
    struct auth_text t;
    int rc = tei_auth_text_read(path, "TE_AUTH_KEYS", stamp, &t);

    if (rc)
        return rc;
    rc = tei_auth_parse(t.bytes, t.n, path, out);
    tei_auth_text_free(&t);
    tei_secret_burn();
    return rc;
}
