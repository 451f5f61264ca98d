/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth.c - TE_AUTH: opening, the keys in use, and what was refused.
 *
 * The engine has the files looked at (one stat each) again and again; when one has changed they are read anew. That may
 * wait for a disk, or a server, so nobody who uses a key does it. What cannot be taken is logged once, and the keys of
 * before stay: a file that is being replaced must not shut anybody out, and one that is broken must let nobody in.
 *
 * Of each key and use another one is made, HMAC-SHA256(key, label), so that what is proved with one of them is
 * worth nothing in the place of another: HKDF-Expand of RFC 5869 with one block.
 */
#include "auth/auth_state.h"

#include "base/err.h"
#include "base/hash.h"
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

unsigned long long tei_auth_refusal(struct tei_auth *a, enum tei_auth_cause cause)
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
    return tell ? count : 0;
}

const char *tei_auth_line(enum tei_auth_cause cause, unsigned long long count, const char *where,
                          const char *who, char line[TEI_AUTH_LINE])
{
    snprintf(line, TEI_AUTH_LINE, "%s: %s is refused (%s, %llu so far): %s; %s", where, who,
             causes[cause].label, count, causes[cause].what, causes[cause].remedy);
    return line;
}

void tei_auth_refused(struct tei_auth *a, enum tei_auth_cause cause, const char *where,
                      const char *who)
{
    unsigned long long count = tei_auth_refusal(a, cause);
    char line[TEI_AUTH_LINE];

    if (count)
        TEI_WARN("%s", tei_auth_line(cause, count, where, who, line));
}

void tei_auth_counts(struct tei_auth *a, uint64_t out[TEI_AUTH_N_CAUSES])
{
    pthread_mutex_lock(&a->lock);
    memcpy(out, a->counts, sizeof(a->counts));
    pthread_mutex_unlock(&a->lock);
}

/* -------------------------------------------------------------------------------------- keys */

/* With certificates, of a ticket's key. */
static bool derive(const struct tei_auth *a, const uint8_t *from, size_t len, enum auth_use use,
                   uint8_t key[TEI_AUTH_PROOF])
{
    static const char *const labels[][2] = {
        [AUTH_USE_TLS] = {"te psk 1 handshake port\1"},
        [AUTH_USE_DATA] = {"te psk 1 data port\1", "te mtls 1 data port\1"},
        [AUTH_USE_HOST] = {"te psk 1 same host\1", "te mtls 1 same host\1"}};
    const char *label = labels[use][a->is_mtls];

    return tei_auth_hmac(a, from, len, label, strlen(label), key);
}

/* Looks at the files; NULL: they are all there; else the path of one that is not, with errno. */
static const char *look_at(const struct tei_auth *a, struct auth_stamps *stamps)
{
    memset(stamps, 0, sizeof(*stamps));
    for (size_t i = 0; i < AUTH_FILES; i++)
        if (a->paths[i][0] && !tei_auth_stamp(a->paths[i], &stamps->of[i]))
            return a->paths[i];
    return NULL;
}

/* Whether the files are all there; told where one is there no more. */
static bool are_there(struct tei_auth *a, struct auth_stamps *stamps)
{
    const char *missing = look_at(a, stamps);

    if (missing && !a->is_missing)
        TEI_WARN("the keys of before stay in use, until key file %s is put back: %s", missing,
                 tei_errno_text(errno));
    a->is_missing = missing != NULL;
    return !missing;
}

static bool is_kept_out(const struct tei_auth *a, int rc, const struct auth_stamps *stamps)
{
    return a->kept_for == rc && memcmp(stamps, &a->kept_stamps, sizeof(*stamps)) == 0;
}

/* Says it once of the files as they are and a reason. */
static void keep_keys(struct tei_auth *a, int rc, const struct auth_stamps *stamps)
{
    const char *text = te_errmsg();

    if (!is_kept_out(a, rc, stamps))
        TEI_WARN("the keys of before stay in use, until %s is mended: %s",
                 a->is_mtls ? "what is told here" : a->paths[AUTH_KEYS], text);
    a->kept_for = rc;
    a->kept_stamps = *stamps;
}

/* The key file, which *stamp is of then. */
static int take_keys(struct tei_auth *a, struct auth_stamp *stamp)
{
    struct auth_file *keys, *old;
    int rc = tei_auth_read(a->paths[AUTH_KEYS], stamp, &keys);

    if (rc)
        return rc;
    pthread_mutex_lock(&a->lock);
    old = a->keys;
    a->keys = keys;
    pthread_mutex_unlock(&a->lock);
    if (old)
        TEI_INFO("key file %s was read anew: %zu ids", a->paths[AUTH_KEYS], keys->n);
    tei_auth_file_free(old);
    return 0;
}

static int take_certs(struct tei_auth *a)
{
    struct auth_certs *certs, *old;
    int rc = tei_auth_certs_read(a, &certs);

    if (rc)
        return rc;
    pthread_mutex_lock(&a->lock);
    old = a->certs;
    a->certs = certs;
    pthread_mutex_unlock(&a->lock);
    if (old)
        TEI_INFO("the certificates were read anew; this engine is %s", certs->subject);
    tei_auth_certs_free(a, old);
    return 0;
}

static int take(struct tei_auth *a, struct auth_stamps *stamps)
{
    return a->is_mtls ? take_certs(a) : take_keys(a, &stamps->of[AUTH_KEYS]);
}

void tei_auth_look(struct tei_auth *a)
{
    struct auth_stamps stamps;
    int rc;

    /* What is wrong with the files themselves is not looked at again; what may pass is. */
    if (!are_there(a, &stamps) || memcmp(&stamps, &a->stamps, sizeof(stamps)) == 0 ||
        is_kept_out(a, TE_ERR_INVALID, &stamps))
        return;
    rc = take(a, &stamps);
    if (rc) {
        keep_keys(a, rc, &stamps);
        return;
    }
    a->stamps = stamps;
    a->kept_for = 0;
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

/* Whose id or ticket it is: its key, and its certificate with mtls. */
struct found {
    const uint8_t *from; /* what keys are derived from */
    size_t len;
    X509 *certificate;
};

/* Lock held. */
static bool find(struct tei_auth *a, const char *id, size_t len, uint8_t ticket[TEI_TICKET_KEY],
                 struct found *out, enum tei_auth_cause *cause)
{
    const struct auth_line *line;

    *out = (struct found){.from = ticket, .len = TEI_TICKET_KEY};
    if (a->is_mtls)
        return tei_auth_ticket_key(a, id, len, ticket, &out->certificate, cause);
    line = line_of(a, id, len, cause);
    if (line)
        *out = (struct found){.from = line->key, .len = line->len};
    return line != NULL;
}

/* Lock held. */
static bool make_key(struct tei_auth *a, enum auth_use use, const char *id, size_t len,
                     uint8_t key[TEI_AUTH_PROOF], struct tei_who **who, enum tei_auth_cause *cause)
{
    uint8_t ticket[TEI_TICKET_KEY];
    struct found f;
    bool good = find(a, id, len, ticket, &f, cause);

    if (good) {
        *cause = TEI_AUTH_N_CAUSES;
        good = derive(a, f.from, f.len, use, key) &&
               (!who || (*who = tei_auth_who_new(a, id, len, f.certificate)));
    }
    explicit_bzero(ticket, sizeof(ticket));
    return good;
}

bool tei_auth_key(struct tei_auth *a, enum auth_use use, const char *id, size_t len,
                  uint8_t key[TEI_AUTH_PROOF], struct tei_who **who, enum tei_auth_cause *cause)
{
    bool good;

    pthread_mutex_lock(&a->lock);
    good = make_key(a, use, id, len, key, who, cause);
    pthread_mutex_unlock(&a->lock);
    tei_secret_burn();
    return good;
}

bool tei_auth_own_key(struct tei_auth *a, enum auth_use use, const struct tei_ticket *ticket,
                      char id[TEI_AUTH_ID_MAX + 1], uint8_t key[TEI_AUTH_PROOF])
{
    bool good;

    pthread_mutex_lock(&a->lock);
    if (a->is_mtls) {
        memcpy(id, ticket->id, TEI_AUTH_ID_MAX + 1);
        good = derive(a, ticket->key, sizeof(ticket->key), use, key);
    } else {
        memcpy(id, a->keys->lines[0].id, TEI_AUTH_ID_MAX + 1);
        good = derive(a, a->keys->lines[0].key, a->keys->lines[0].len, use, key);
    }
    pthread_mutex_unlock(&a->lock);
    tei_secret_burn();
    return good;
}

bool tei_auth_needs_ticket(const struct tei_auth *a)
{
    return a && a->is_mtls;
}

bool tei_auth_lacks_ticket(struct tei_auth *a, const struct tei_ticket *ticket)
{
    bool lacks;

    if (!tei_auth_needs_ticket(a))
        return false;
    pthread_mutex_lock(&a->lock);
    lacks = !ticket || ticket->epoch != a->certs->epoch;
    pthread_mutex_unlock(&a->lock);
    return lacks;
}

/* ------------------------------------------------------------------------------------- names */

struct auth_name {
    UT_hash_handle hh;
    char text[];
};

static const char *add_name(struct tei_auth *a, const char *name)
{
    size_t n = strlen(name);
    struct auth_name *x;

    HASH_FIND(hh, a->names, name, n, x);
    if (x)
        return x->text;
    x = malloc(sizeof(*x) + n + 1);
    if (!x)
        return NULL;
    memcpy(x->text, name, n + 1);
    if (TEI_HASH_ADD(a->names, x->text, n, x))
        return x->text;
    free(x);
    return NULL;
}

const char *tei_auth_name(struct tei_auth *a, const char *name)
{
    const char *text;

    if (!tei_auth_needs_ticket(a))
        return "";
    pthread_mutex_lock(&a->lock);
    text = add_name(a, name);
    pthread_mutex_unlock(&a->lock);
    return text;
}

static void free_names(struct tei_auth *a)
{
    struct auth_name *x, *next;

    HASH_ITER(hh, a->names, x, next) {
        HASH_DEL(a->names, x);
        free(x);
    }
}

/* --------------------------------------------------------------------------------- addresses */

bool tei_auth_is_classic(const struct tei_auth *a, const struct tei_addr *peer)
{
    return tei_auth_nets_have(a->nets, a->n_nets, peer);
}

bool tei_auth_has_classic(const struct tei_auth *a)
{
    return a->n_nets > 0;
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
                      "TE_AUTH needs random bytes of the kernel, which refuses getrandom()");
    a->o = &tei_auth_library;
    if (!rc)
        rc = tei_auth_nets_parse(conf->auth_classic, a->nets, &a->n_nets);
    if (!rc)
        rc = tei_auth_tls_open(a);
    if (!rc)
        (void)look_at(a, &a->stamps); /* reading them says what is missing */
    return rc ? rc : take(a, &a->stamps);
}

/* How many others may come. A text that is read in place of `id` brings the key behind it along. */
static void tell_keys(struct tei_auth *a)
{
    char id[TEI_AUTH_ID_MAX + 1];

    memcpy(id, a->keys->lines[0].id, sizeof(id));
    TEI_INFO("TE_AUTH=psk: this engine is '%s', and %zu ids of %s may come", id,
             a->keys->n - !a->keys->own_may_come, a->paths[AUTH_KEYS]);
}

static void tell_certs(const struct tei_auth *a)
{
    TEI_INFO("TE_AUTH=mtls: this engine is %s; whom the authority of %s has signed may come%s%s",
             a->certs->subject, a->paths[AUTH_CA],
             a->paths[AUTH_CRL][0] ? ", but for those of " : "", a->paths[AUTH_CRL]);
}

static int open_it(const struct tei_conf *conf, uint64_t instance, bool is_mtls,
                   const char *const paths[AUTH_FILES], struct tei_auth **out)
{
    struct tei_auth *a = calloc(1, sizeof(*a));
    int rc;

    if (!a)
        return TEI_FAIL(TE_ERR_MEMORY, "TE_AUTH: out of memory");
    a->instance = instance;
    a->is_mtls = is_mtls;
    for (size_t i = 0; i < AUTH_FILES; i++)
        if (paths[i])
            snprintf(a->paths[i], sizeof(a->paths[i]), "%s", paths[i]);
    pthread_mutex_init(&a->lock, NULL);
    rc = fill(a, conf);
    if (rc) {
        tei_auth_close(a);
        return rc;
    }
    if (is_mtls)
        tell_certs(a);
    else
        tell_keys(a);
    *out = a;
    return 0;
}

static int open_psk(const struct tei_conf *conf, uint64_t instance, struct tei_auth **out)
{
    const char *const paths[AUTH_FILES] = {[AUTH_KEYS] = conf->auth_keys};

    if (!conf->auth_keys[0])
        return TEI_FAIL(
            TE_ERR_INVALID,
            "TE_AUTH is psk, and TE_AUTH_KEYS is empty: give it the path of a file with "
            "lines ID:KEY");
    return open_it(conf, instance, false, paths, out);
}

static int open_mtls(const struct tei_conf *conf, uint64_t instance, struct tei_auth **out)
{
    const char *const paths[AUTH_FILES] = {[AUTH_CA] = conf->auth_ca,
                                           [AUTH_CERT] = conf->auth_cert,
                                           [AUTH_PRIVATE] = conf->auth_key,
                                           [AUTH_CRL] = conf->auth_crl};

    for (size_t i = 0; i < AUTH_CRL; i++)
        if (!paths[i][0])
            return TEI_FAIL(TE_ERR_INVALID,
                            "TE_AUTH is mtls, and one of TE_AUTH_CA, TE_AUTH_CERT and TE_AUTH_KEY "
                            "is empty: give each the path of a file in PEM (te_keys ca, te_keys "
                            "cert)");
    return open_it(conf, instance, true, paths, out);
}

/* Once in a process: a program may make many engines. */
static void tell_off(const struct tei_conf *conf)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool told;
    bool tell;

    if (conf->auth_keys[0] || conf->auth_classic[0] || conf->auth_cert[0])
        TEI_WARN("TE_AUTH_KEYS, TE_AUTH_CERT or TE_AUTH_CLASSIC is set and TE_AUTH is off: nobody "
                 "needs a key; set TE_AUTH=psk or TE_AUTH=mtls");
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
        return open_mtls(conf, instance, out);
    return TEI_FAIL(TE_ERR_INVALID, "TE_AUTH is '%.32s': it must be off, psk or mtls", conf->auth);
}

void tei_auth_close(struct tei_auth *a)
{
    if (!a)
        return;
    tei_auth_tls_close(a);
    tei_auth_certs_free(a, a->certs);
    tei_auth_file_free(a->keys);
    free_names(a);
    tei_auth_lists_free(a);
    pthread_mutex_destroy(&a->lock);
    free(a);
}
