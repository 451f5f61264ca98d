/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth_who.c - who a peer has proved to be, and lists of those who may do something. With pre-shared keys that is the id
 * whose key it has; else it is a certificate.
 */
#include "auth/auth_who.h"
#include "auth/auth_secure.h"

#include "base/err.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 64
#define NAME_MAX  255
#define ASKED     8

struct tei_who {
    char id[TEI_AUTH_ID_MAX + 1]; /* psk */
    X509 *certificate;            /* mtls, else NULL */
    uint64_t asked[ASKED];        /* numbers of lists, 0: none; and whether each names it */
    bool named[ASKED];
};

struct tei_allow {
    const struct auth_library *o; /* mtls: names are those of certificates; else NULL */
    uint64_t number;              /* no other list has, or had, it */
    _Atomic unsigned refs;
    size_t n;
    const char *names[NAMES_MAX];
    char *whole; /* as it was given */
    char text[]; /* cut at its commas */
};

/* ----------------------------------------------------------------------------------------- a peer */

struct tei_who *tei_auth_who_new(const struct tei_auth *a, const char *id, size_t len,
                                 X509 *certificate)
{
    struct tei_who *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    if (certificate && !a->o->X509_up_ref(certificate)) {
        free(w);
        return NULL;
    }
    w->certificate = certificate;
    if (!certificate)
        memcpy(w->id, id, tei_min(len, TEI_AUTH_ID_MAX));
    return w;
}

void tei_who_free(struct tei_who *w)
{
    if (w && w->certificate)
        tei_auth_library.X509_free(w->certificate);
    free(w);
}

bool tei_who_may_be(const struct tei_who *w, const char *name)
{
    return !w || !w->certificate ||
           tei_auth_certificate_is_of(&tei_auth_library, w->certificate, name);
}

struct tei_who *tei_secure_who(const struct tei_secure *s)
{
    X509 *certificate = s->a->is_mtls ? s->a->o->SSL_get1_peer_certificate(s->ssl) : NULL;
    struct tei_who *w = NULL;

    if (!s->a->is_mtls || certificate)
        w = tei_auth_who_new(s->a, s->id, strlen(s->id), certificate);
    s->a->o->X509_free(certificate);
    return w;
}

const char *tei_who_text(const struct tei_who *w, char *buf, size_t n)
{
    char subject[AUTH_SUBJECT];

    if (!w) {
        snprintf(buf, n, "of no id");
    } else if (!w->certificate) {
        snprintf(buf, n, "id '%s'", w->id);
    } else {
        tei_auth_subject(&tei_auth_library, w->certificate, subject);
        snprintf(buf, n, "certificate '%s'", subject);
    }
    return buf;
}

/* ------------------------------------------------------------------------------------------- lists */

static bool is_printable(const char *name)
{
    while (isgraph((unsigned char)*name))
        name++;
    return *name == '\0';
}

static int check_name(const struct tei_auth *a, const char *name)
{
    size_t n = strlen(name);

    if (n == 0 || n > NAME_MAX)
        return TEI_FAIL(
            TE_ERR_INVALID,
            "a list of peers has a name of %zu bytes: give names of 1 to %d, with a comma between two of them",
            n, NAME_MAX);
    if (!a->is_mtls && !tei_auth_is_id(name, n))
        return TEI_FAIL(
            TE_ERR_INVALID,
            "'%.64s' in a list of peers is no id of a key file: letters, digits, '.', '_' and '-', %d at most",
            name, TEI_AUTH_ID_MAX);
    if (!is_printable(name))
        return TEI_FAIL(TE_ERR_INVALID,
                        "'%.64s' in a list of peers has what no name of a certificate has: give "
                        "names with a comma and no blank between two of them",
                        name);
    if (a->is_mtls && strchr(name, '*'))
        return TEI_FAIL(TE_ERR_INVALID,
                        "'%.64s' in a list of peers: a list names peers, it has no '*'; one in a "
                        "certificate stands for all names here that it is good for",
                        name);
    return 0;
}

/* Cuts the text at its commas. */
static int cut(const struct tei_auth *a, struct tei_allow *x)
{
    char *at = x->text, *name;
    int rc = 0;

    while (!rc && (name = strsep(&at, ","))) {
        rc = check_name(a, name);
        if (!rc && x->n == NAMES_MAX)
            rc = TEI_FAIL(TE_ERR_INVALID, "a list of peers has more than %d names", NAMES_MAX);
        if (!rc)
            x->names[x->n++] = name;
    }
    return rc;
}

static int make_list(const struct tei_auth *a, const char *text, struct tei_allow **out)
{
    static _Atomic uint64_t numbers;
    size_t n = strlen(text) + 1;
    struct tei_allow *x = calloc(1, sizeof(*x) + 2 * n);
    int rc;

    if (!x)
        return TEI_FAIL(TE_ERR_MEMORY, "no memory for a list of peers");
    x->o = a->is_mtls ? a->o : NULL;
    x->number = 1 + atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed);
    atomic_init(&x->refs, 1);
    memcpy(x->text, text, n);
    x->whole = memcpy(x->text + n, text, n);
    rc = cut(a, x);
    if (rc)
        free(x);
    else
        *out = x;
    return rc;
}

/* One more reference, NULL: none. */
static struct tei_allow *find_list(struct tei_auth *a, const char *text)
{
    struct tei_allow *x = NULL;

    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; !x && i < AUTH_LISTS; i++)
        if (a->lists[i] && strcmp(a->lists[i]->whole, text) == 0)
            x = tei_allow_get(a->lists[i]);
    pthread_mutex_unlock(&a->lock);
    return x;
}

static void keep_list(struct tei_auth *a, struct tei_allow *x)
{
    struct tei_allow **place;

    pthread_mutex_lock(&a->lock);
    place = &a->lists[a->next_list++ % AUTH_LISTS];
    tei_allow_put(*place);
    *place = tei_allow_get(x);
    pthread_mutex_unlock(&a->lock);
}

void tei_auth_lists_free(struct tei_auth *a)
{
    for (size_t i = 0; i < AUTH_LISTS; i++)
        tei_allow_put(a->lists[i]);
}

int tei_allow_read(struct tei_auth *a, const char *text, struct tei_allow **out)
{
    int rc = 0;

    if (!text)
        return TEI_FAIL(TE_ERR_INVALID, "the list of peers is NULL");
    if (!a)
        return TEI_FAIL(
            TE_ERR_UNSUPPORTED,
            "memory for some peers only ('%.64s') needs TE_AUTH=psk or TE_AUTH=mtls: with off nobody is known",
            text);
    *out = find_list(a, text);
    if (!*out && !(rc = make_list(a, text, out)))
        keep_list(a, *out);
    return rc;
}

struct tei_allow *tei_allow_get(struct tei_allow *x)
{
    if (x)
        atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
    return x;
}

void tei_allow_put(struct tei_allow *x)
{
    if (x && atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) == 1)
        free(x);
}

static bool is_named(const struct tei_allow *x, const struct tei_who *who, const char *name)
{
    if (x->o)
        return who->certificate && tei_auth_certificate_is_of(x->o, who->certificate, name);
    return strcmp(who->id, name) == 0;
}

bool tei_allow_has(const struct tei_allow *x, struct tei_who *who)
{
    size_t at = x->number % ASKED;
    bool has = false;

    if (!who)
        return false;
    if (who->asked[at] == x->number)
        return who->named[at];
    for (size_t i = 0; !has && i < x->n; i++)
        has = is_named(x, who, x->names[i]);
    who->asked[at] = x->number;
    who->named[at] = has;
    return has;
}
