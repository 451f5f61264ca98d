/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth.c - TE_AUTH: opening, the keys in use, and what was refused.
 *
 * The engine has the file looked at (one stat) again and again; when it has changed it is read anew. That may wait for
 * a disk, or a server, so nobody who uses a key does it. What cannot be taken is logged once, and the keys of before
 * stay: a file that is being replaced must not shut anybody out, and one that is broken must let nobody in.
 *
 * Of each key and use another one is made, HMAC-SHA256(key, label), so that what is proved with one of them is
 * worth nothing in the place of another: HKDF-Expand of RFC 5869 with one block.
 */
#include "auth/auth_state.h"

#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TOLD_AGAIN_NS (10 * TEI_NS_PER_S)

/* ------------------------------------------------------------------------------------- words */

static const struct {
    const char *label, *what, *remedy;
} causes[] = {
#define AUTH_CAUSE(name, label, what, remedy) {label, what, remedy},
    TEI_AUTH_CAUSES(AUTH_CAUSE)
#undef AUTH_CAUSE
};

const char *tei_auth_label(enum tei_auth_cause cause)
{
    return causes[cause].label;
}

const char *tei_auth_meaning(enum tei_auth_cause cause)
{
    return causes[cause].what;
}

bool tei_auth_refuse(struct tei_auth *a, enum tei_auth_cause cause, const char *where,
                     const char *who, char *line, size_t n)
{
    int64_t now_ns = tei_now_ns();
    unsigned long long count;
    bool tell;

    pthread_mutex_lock(&a->lock);
    count = ++a->counts[cause];
    tell = a->told_ns[cause] == 0 || now_ns - a->told_ns[cause] >= TOLD_AGAIN_NS;
    if (tell)
        a->told_ns[cause] = now_ns;
    pthread_mutex_unlock(&a->lock);
    if (tell)
        snprintf(line, n, "%s: %s is refused (%s, %llu so far): %s; %s", where, who,
                 causes[cause].label, count, causes[cause].what, causes[cause].remedy);
    return tell;
}

void tei_auth_refused(struct tei_auth *a, enum tei_auth_cause cause, const char *where,
                      const char *who)
{
    char line[TEI_AUTH_LINE];

    if (tei_auth_refuse(a, cause, where, who, line, sizeof(line)))
        TEI_WARN("%s", line);
}

void tei_auth_counts(struct tei_auth *a, uint64_t out[TEI_AUTH_N_CAUSES])
{
    pthread_mutex_lock(&a->lock);
    memcpy(out, a->counts, sizeof(a->counts));
    pthread_mutex_unlock(&a->lock);
}

/* -------------------------------------------------------------------------------------- keys */

bool tei_auth_hmac(const struct tei_auth *a, const uint8_t *key, size_t key_len, const void *bytes,
                   size_t n, uint8_t out[TEI_AUTH_PROOF])
{
    unsigned len = 0;

    return a->o->HMAC(a->o->EVP_sha256(), key, (int)key_len, bytes, n, out, &len) &&
           len == TEI_AUTH_PROOF;
}

static bool derive(const struct tei_auth *a, const struct auth_line *line, enum auth_use use,
                   uint8_t key[TEI_AUTH_PROOF])
{
    static const char *const labels[] = {[AUTH_USE_TLS] = "te psk 1 handshake port\1",
                                         [AUTH_USE_DATA] = "te psk 1 data port\1",
                                         [AUTH_USE_HOST] = "te psk 1 same host\1"};

    return tei_auth_hmac(a, line->key, line->len, labels[use], strlen(labels[use]), key);
}

/* Whether there is a file; told where there is none any more. */
static bool is_there(struct tei_auth *a, struct auth_stamp *stamp)
{
    bool good = tei_auth_stamp(a->path, stamp);

    if (!good && !a->is_missing)
        TEI_WARN("the keys of before stay in use, until key file %s is put back: %s", a->path,
                 tei_errno_text(errno));
    a->is_missing = !good;
    return good;
}

static bool is_kept_out(const struct tei_auth *a, int rc, const struct auth_stamp *stamp)
{
    return a->kept_for == rc && memcmp(stamp, &a->kept_stamp, sizeof(*stamp)) == 0;
}

/* Says it once of a file and a reason. */
static void keep_keys(struct tei_auth *a, int rc, const struct auth_stamp *stamp)
{
    const char *text = te_errmsg();

    if (!is_kept_out(a, rc, stamp))
        TEI_WARN("the keys of before stay in use, until %s is mended: %s", a->path, text);
    a->kept_for = rc;
    a->kept_stamp = *stamp;
}

void tei_auth_look(struct tei_auth *a)
{
    struct auth_stamp stamp;
    struct auth_file *keys, *old;
    int rc;

    /* What is wrong with the file itself is not looked at again; what may pass is. */
    if (!is_there(a, &stamp) || memcmp(&stamp, &a->stamp, sizeof(stamp)) == 0 ||
        is_kept_out(a, TE_ERR_INVALID, &stamp))
        return;
    rc = tei_auth_read(a->path, &stamp, &keys);
    if (rc) {
        keep_keys(a, rc, &stamp);
        return;
    }
    a->stamp = stamp;
    a->kept_for = 0;
    pthread_mutex_lock(&a->lock);
    old = a->keys;
    a->keys = keys;
    pthread_mutex_unlock(&a->lock);
    tei_auth_file_free(old);
    TEI_INFO("key file %s was read anew: %zu ids", a->path, keys->n);
}

/* The line of an id whose holders may come. Lock held. */
static const struct auth_line *line_of(const struct tei_auth *a, const char *id, size_t len,
                                       enum tei_auth_cause *cause)
{
    const struct auth_line *line = tei_auth_find(a->keys, id, len);

    *cause = TEI_AUTH_ID;
    if (line == &a->keys->lines[0] && !a->keys->own_may_come) {
        *cause = TEI_AUTH_OWN;
        return NULL;
    }
    return line;
}

bool tei_auth_key(struct tei_auth *a, enum auth_use use, const char *id, size_t len,
                  uint8_t key[TEI_AUTH_PROOF], enum tei_auth_cause *cause)
{
    const struct auth_line *line;
    bool good;

    pthread_mutex_lock(&a->lock);
    line = line_of(a, id, len, cause);
    good = line && derive(a, line, use, key);
    pthread_mutex_unlock(&a->lock);
    tei_secret_burn();
    if (line && !good)
        *cause = TEI_AUTH_N_CAUSES;
    return good;
}

bool tei_auth_own_key(struct tei_auth *a, enum auth_use use, char id[TEI_AUTH_ID_MAX + 1],
                      uint8_t key[TEI_AUTH_PROOF])
{
    bool good;

    pthread_mutex_lock(&a->lock);
    memcpy(id, a->keys->lines[0].id, TEI_AUTH_ID_MAX + 1);
    good = derive(a, &a->keys->lines[0], use, key);
    pthread_mutex_unlock(&a->lock);
    tei_secret_burn();
    return good;
}

void tei_auth_own_id(struct tei_auth *a, char id[TEI_AUTH_ID_MAX + 1])
{
    pthread_mutex_lock(&a->lock);
    memcpy(id, a->keys->lines[0].id, TEI_AUTH_ID_MAX + 1);
    pthread_mutex_unlock(&a->lock);
}

/* --------------------------------------------------------------------------------- addresses */

bool tei_auth_is_classic(const struct tei_auth *a, const struct tei_addr *peer)
{
    return tei_auth_nets_have(a->nets, a->n_nets, peer);
}

bool tei_auth_is_classic_fd(const struct tei_auth *a, int fd)
{
    struct tei_addr peer = {.len = sizeof(peer.ss)};

    return a->n_nets > 0 && getpeername(fd, (struct sockaddr *)&peer.ss, &peer.len) == 0 &&
           tei_auth_is_classic(a, &peer);
}

/* ------------------------------------------------------------------------------ open and close */

static int fill(struct tei_auth *a, const struct tei_conf *conf)
{
    uint8_t nonce[TEI_AUTH_NONCE];
    int rc = tei_auth_library_open();

    if (!rc && !tei_auth_nonce(nonce))
        rc = TEI_FAIL(TE_ERR_UNSUPPORTED,
                      "TE_AUTH=psk needs random bytes of the kernel, which refuses getrandom()");
    a->o = &tei_auth_library;
    if (!rc)
        rc = tei_auth_nets_parse(conf->auth_classic, a->nets, &a->n_nets);
    if (!rc)
        rc = tei_auth_read(a->path, &a->stamp, &a->keys);
    return rc ? rc : tei_auth_tls_open(a);
}

static int open_psk(const struct tei_conf *conf, uint64_t instance, struct tei_auth **out)
{
    char id[TEI_AUTH_ID_MAX + 1];
    struct tei_auth *a;
    int rc;

    if (!conf->auth_keys[0])
        return TEI_FAIL(
            TE_ERR_INVALID,
            "TE_AUTH is psk, and TE_AUTH_KEYS is empty: give it the path of a file with "
            "lines ID:KEY");
    a = calloc(1, sizeof(*a));
    if (!a)
        return TEI_FAIL(TE_ERR_MEMORY, "TE_AUTH: out of memory");
    a->instance = instance;
    snprintf(a->path, sizeof(a->path), "%s", conf->auth_keys);
    pthread_mutex_init(&a->lock, NULL);
    rc = fill(a, conf);
    if (rc) {
        tei_auth_close(a);
        return rc;
    }
    tei_auth_own_id(a, id); /* a text that is read in its place brings the key behind it along */
    TEI_INFO("TE_AUTH=psk: this engine is '%s', and %zu ids of %s may come", id,
             a->keys->n - !a->keys->own_may_come, a->path);
    *out = a;
    return 0;
}

/* Once in a process: a program may make many engines. */
static void tell_off(const struct tei_conf *conf)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool told;
    bool tell;

    if (conf->auth_keys[0] || conf->auth_classic[0])
        TEI_WARN(
            "TE_AUTH_KEYS or TE_AUTH_CLASSIC is set and TE_AUTH is off: nobody needs a key; set "
            "TE_AUTH=psk");
    pthread_mutex_lock(&lock);
    tell = !told;
    told = true;
    pthread_mutex_unlock(&lock);
    if (tell)
        TEI_INFO("TE_AUTH is off: whoever reaches the ports of an engine reaches its memory "
                 "(SECURITY.md)");
}

int tei_auth_open(const struct tei_conf *conf, uint64_t instance, struct tei_auth **out)
{
    *out = NULL;
    if (strcasecmp(conf->auth, "off") == 0) {
        tell_off(conf);
        return 0;
    }
    if (strcasecmp(conf->auth, "psk") == 0)
        return open_psk(conf, instance, out);
    if (strcasecmp(conf->auth, "mtls") == 0)
        return TEI_FAIL(TE_ERR_UNSUPPORTED,
                        "TE_AUTH=mtls: this version has no certificates; use TE_AUTH=psk");
    return TEI_FAIL(TE_ERR_INVALID, "TE_AUTH is '%.32s': it must be off or psk", conf->auth);
}

void tei_auth_close(struct tei_auth *a)
{
    if (!a)
        return;
    tei_auth_tls_close(a);
    tei_auth_file_free(a->keys);
    pthread_mutex_destroy(&a->lock);
    free(a);
}
