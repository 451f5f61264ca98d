/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - key files, read and written. A file is written beside its place and brought there by one step, so that no
 * engine ever reads half of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base64.h"
#include "te.h"
#include "te_keys/keys.h"

#define LINE_BYTES (TEI_AUTH_ID_MAX + 1 + (AUTH_KEY_MAX + 2) / 3 * 4 + 1)

/* As where root looks at the file of a service, which the engine of that service reads well. */
static bool is_of_another(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && st.st_uid != 0 && st.st_uid != geteuid();
}

int keys_read(const char *path, struct auth_file **out)
{
    struct auth_stamp stamp;

    if (!tei_auth_read(path, &stamp, out))
        return DONE;
    return fail(FAILED, "%s%s", te_errmsg(),
                is_of_another(path) ? ", or run te_keys as that user" : "");
}

void draft_of(const struct auth_file *f, struct draft *out)
{
    out->n = f->n;
    out->is_group = f->own_may_come;
    for (size_t i = 0; i < f->n; i++)
        out->lines[i] = &f->lines[i];
}

int keys_make(const char *id, struct auth_line *out)
{
    snprintf(out->id, sizeof(out->id), "%s", id);
    out->len = AUTH_KEY_MIN;
    if (getrandom(out->key, out->len, 0) == (ssize_t)out->len)
        return DONE;
    return fail(FAILED, "the kernel gives no random bytes: %s", strerror(errno));
}

/* Appends a line ID:KEY; false: out of memory. */
static bool put_line(char *text, const struct auth_line *line)
{
    char *key = tei_base64_encode(line->key, line->len);
    size_t at = strlen(text);

    if (!key)
        return false;
    snprintf(text + at, LINE_BYTES + 1, "%s:%s\n", line->id, key);
    explicit_bzero(key, strlen(key));
    free(key);
    return true;
}

static bool put_lines(char *text, const struct draft *d)
{
    bool good = !d->is_group || put_line(text, d->lines[0]);

    for (size_t i = 0; good && i < d->n; i++)
        good = put_line(text, d->lines[i]);
    return good;
}

static bool write_all(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t len = write(fd, text, n);

        if (len < 0 && errno != EINTR)
            return false;
        text += len > 0 ? len : 0;
        n -= len > 0 ? (size_t)len : 0;
    }
    return fsync(fd) == 0;
}

static int refuse(const char *path)
{
    return fail(FAILED, "%s is there already: remove it first, or give another --dir", path);
}

int keys_look(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 ? refuse(path) : DONE;
}

/* Brings a file that is complete to its place, where there is none unless `replace`. */
static int put_in_place(const char *beside, const char *path, bool replace)
{
    int error = (replace ? rename(beside, path) : link(beside, path)) == 0 ? 0 : errno;

    if (error == EEXIST)
        return refuse(path);
    return error ? fail(FAILED, "%s cannot be made: %s", path, strerror(error)) : DONE;
}

int keys_put(const char *path, const char *text, mode_t mode, bool replace)
{
    char beside[PATH_MAX];
    int fd, rc;

    if (snprintf(beside, sizeof(beside), "%s.XXXXXX", path) >= (int)sizeof(beside))
        return fail(FAILED, "%s: the name is too long", path);
    fd = mkostemp(beside, O_CLOEXEC);
    if (fd < 0)
        return fail(FAILED, "%s cannot be made: %s", path, strerror(errno));
    if (fchmod(fd, mode) == 0 && write_all(fd, text, strlen(text)))
        rc = put_in_place(beside, path, replace);
    else
        rc = fail(FAILED, "%s cannot be written: %s", path, strerror(errno));
    if (rc || !replace)
        unlink(beside);
    close(fd);
    return rc;
}

int keys_write(const char *path, const struct draft *d, bool replace)
{
    size_t bytes = (d->n + 1) * LINE_BYTES + 1;
    char *text = tei_secret_alloc(bytes), *real = replace ? realpath(path, NULL) : NULL;
    int rc;

    if (!text || !put_lines(text, d))
        rc = fail(FAILED, "%s: out of memory", path);
    else
        rc = keys_put(real ? real : path, text, 0600, replace);
    tei_secret_free(text, bytes);
    tei_secret_burn();
    free(real);
    return rc;
}
