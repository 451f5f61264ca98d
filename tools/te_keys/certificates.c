/* SPDX-License-Identifier: Apache-2.0 */
#include "te_keys/certificates.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "te_keys/keys.h"
#include "te_keys/library.h"

#define NAMES_BYTES 4096
#define CN_MAX      64 /* of X.509; who checks a host looks at the other names */
#define DAY_S       (24L * 60 * 60)

struct pair {
    const struct library *o;
    X509 *certificate;
    EVP_PKEY *key;
};

static void pair_free(struct pair *p)
{
    if (p->certificate)
        p->o->X509_free(p->certificate);
    if (p->key)
        p->o->EVP_PKEY_free(p->key);
}

/* -------------------------------------------------------------------------------------- making */

static EVP_PKEY *make_key(const struct library *o)
{
    EVP_PKEY_CTX *c = o->EVP_PKEY_CTX_new_id(EVP_PKEY_EC, NULL);
    EVP_PKEY *key = NULL;

    if (!c || o->EVP_PKEY_keygen_init(c) <= 0 ||
        o->EVP_PKEY_CTX_ctrl_str(c, "ec_paramgen_curve", "P-256") <= 0 ||
        o->EVP_PKEY_CTX_ctrl_str(c, "ec_param_enc", "named_curve") <= 0 ||
        o->EVP_PKEY_keygen(c, &key) <= 0)
        key = NULL;
    o->EVP_PKEY_CTX_free(c);
    return key;
}

static bool add_extension(const struct pair *p, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *e;
    bool good;

    memset(&context, 0, sizeof(context));
    p->o->X509V3_set_ctx(&context, issuer, p->certificate, NULL, NULL, 0);
    e = p->o->X509V3_EXT_conf_nid(NULL, &context, nid, value);
    good = e && p->o->X509_add_ext(p->certificate, e, -1);
    p->o->X509_EXTENSION_free(e);
    return good;
}

/* The serial number is random: an authority that is made anew does not count again. */
static bool number(const struct pair *p)
{
    uint64_t serial;

    return getrandom(&serial, sizeof(serial), 0) == sizeof(serial) &&
           p->o->ASN1_INTEGER_set_uint64(p->o->X509_get_serialNumber(p->certificate), serial >> 1);
}

/* All but extensions and signature. Valid from an hour ago, for hosts whose clocks are behind. */
static bool begin(struct pair *p, const struct pair *issuer, const char *name, uint64_t days)
{
    const struct library *o = p->o;

    p->key = make_key(o);
    p->certificate = o->X509_new();
    return p->key && p->certificate && o->X509_set_version(p->certificate, 2) && number(p) &&
           o->X509_gmtime_adj(o->X509_getm_notBefore(p->certificate), -60L * 60) &&
           o->X509_gmtime_adj(o->X509_getm_notAfter(p->certificate), (long)days * DAY_S) &&
           o->X509_set_pubkey(p->certificate, p->key) &&
           o->X509_NAME_add_entry_by_txt(o->X509_get_subject_name(p->certificate), "CN",
                                         MBSTRING_UTF8, (const unsigned char *)name,
                                         (int)strnlen(name, CN_MAX), -1, 0) &&
           o->X509_set_issuer_name(p->certificate,
                                   o->X509_get_subject_name((issuer ? issuer : p)->certificate));
}

static bool sign(const struct pair *p, const struct pair *issuer)
{
    return p->o->X509_sign(p->certificate, issuer->key, p->o->EVP_sha256()) > 0;
}

/* --------------------------------------------------------------------------------------- files */

static int path_of(char path[PATH_MAX], const char *dir, const char *name, const char *ending)
{
    return snprintf(path, PATH_MAX, "%s/%s%s", dir, name, ending) < PATH_MAX
               ? DONE
               : fail(FAILED, "%s: the name is too long", dir);
}

/* The text of one half of a pair, in memory that is to be overwritten; NULL: out of memory. */
static char *text_of(const struct pair *p, bool secret, size_t *n)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    bool good;

    if (!f)
        return NULL;
    good = secret ? p->o->PEM_write_PrivateKey(f, p->key, NULL, NULL, 0, NULL, NULL)
                  : p->o->PEM_write_X509(f, p->certificate);
    if (fclose(f) == 0 && good)
        return text;
    free(text);
    return NULL;
}

static int write_half(const struct pair *p, bool secret, const char *path)
{
    size_t n = 0;
    char *text = text_of(p, secret, &n);
    int rc = text ? keys_put(path, text, secret ? 0600 : 0644, false)
                  : fail(FAILED, "%s: out of memory", path);

    if (text)
        explicit_bzero(text, n);
    free(text);
    return rc;
}

/* Where the halves of a pair go; an error where one is there already. */
static int places_of(char key[PATH_MAX], char certificate[PATH_MAX], const char *dir,
                     const char *name)
{
    int rc = path_of(key, dir, name, ".key");

    if (!rc)
        rc = path_of(certificate, dir, name, ".pem");
    if (!rc)
        rc = keys_look(key);
    return rc ? rc : keys_look(certificate);
}

/* The key is the first, so that no certificate is there without one; and does not stay alone. */
static int write_pair(const struct pair *p, const char *dir, const char *name)
{
    char key[PATH_MAX], certificate[PATH_MAX];
    int rc = places_of(key, certificate, dir, name);

    if (!rc)
        rc = write_half(p, true, key);
    if (rc)
        return rc;
    rc = write_half(p, false, certificate);
    if (rc)
        unlink(key);
    else
        printf("%s\n%s\n", key, certificate);
    return rc;
}

static FILE *open_half(const char *dir, const char *ending)
{
    char path[PATH_MAX];
    FILE *f;

    if (path_of(path, dir, "ca", ending))
        return NULL;
    f = fopen(path, "re");
    if (!f)
        fail(FAILED, "%s cannot be opened: %s; te_keys ca makes it", path, strerror(errno));
    return f;
}

static int read_ca(struct pair *p, const char *dir)
{
    FILE *certificate = open_half(dir, ".pem");
    FILE *key = certificate ? open_half(dir, ".key") : NULL;
    int rc = key ? DONE : FAILED;

    if (key) {
        p->certificate = p->o->PEM_read_X509(certificate, NULL, NULL, NULL);
        p->key = p->o->PEM_read_PrivateKey(key, NULL, NULL, NULL);
        if (!p->certificate || !p->key || !p->o->X509_check_private_key(p->certificate, p->key))
            rc =
                fail(FAILED, "%s/ca.pem and %s/ca.key are not a certificate and its key", dir, dir);
        fclose(key);
    }
    if (certificate)
        fclose(certificate);
    return rc;
}

/* --------------------------------------------------------------------------------------- names */

static bool is_name(const char *name, size_t n)
{
    bool good = n >= 1 && n <= 253 && name[0] != '-' && name[0] != '.';

    for (size_t i = 0; good && i < n; i++)
        good =
            strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:", name[i]);
    return good;
}

static const char *kind_of(const char *name)
{
    struct in6_addr address;

    return inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1
               ? "IP"
               : "DNS";
}

/* "a,10.0.0.1" as "DNS:a,IP:10.0.0.1"; the first of them is `first`. */
static int read_names(const char *names, char out[NAMES_BYTES], char first[256])
{
    size_t at = 0;

    for (const char *from = names;; from++) {
        size_t n = strcspn(from, ",");
        char name[256];

        if (!is_name(from, n))
            return fail(USAGE, "cert: '%s' is not NAME[,NAME...], each of a host or an address",
                        names);
        snprintf(name, sizeof(name), "%.*s", (int)n, from);
        if (from == names)
            snprintf(first, 256, "%s", name);
        at += (size_t)snprintf(out + at, NAMES_BYTES - at, "%s%s:%s", at ? "," : "", kind_of(name),
                               name);
        if (at >= NAMES_BYTES)
            return fail(USAGE, "cert: these are too many names: give fewer than 4 KiB of them");
        from += n;
        if (!*from)
            return DONE;
    }
}

/* ------------------------------------------------------------------------------------ commands */

static int finish(struct pair *p, bool good, const char *dir, const char *name)
{
    int rc = good ? write_pair(p, dir, name)
                  : fail(FAILED, "libcrypto cannot make the certificate of %s", name);

    pair_free(p);
    return rc;
}

int certificates_ca(const char *dir, uint64_t days)
{
    struct pair p = {.o = library_open()};

    if (!p.o)
        return FAILED;
    return finish(
        &p,
        begin(&p, NULL, "te_keys test authority", days) &&
            add_extension(&p, p.certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
            add_extension(&p, p.certificate, NID_key_usage, "critical,keyCertSign,cRLSign") &&
            add_extension(&p, p.certificate, NID_subject_key_identifier, "hash") && sign(&p, &p),
        dir, "ca");
}

int certificates_look(const char *dir, const char *names)
{
    char alternatives[NAMES_BYTES], first[256], key[PATH_MAX], certificate[PATH_MAX];
    int rc = read_names(names, alternatives, first);

    return rc ? rc : places_of(key, certificate, dir, first);
}

int certificates_sign(const char *dir, const char *names, uint64_t days)
{
    struct pair ca = {.o = library_open()}, p = {.o = ca.o};
    char alternatives[NAMES_BYTES], first[256];
    int rc = read_names(names, alternatives, first);

    if (!rc && !ca.o)
        rc = FAILED;
    if (!rc)
        rc = read_ca(&ca, dir);
    if (!rc)
        rc = finish(
            &p,
            begin(&p, &ca, first, days) &&
                add_extension(&p, ca.certificate, NID_basic_constraints, "critical,CA:FALSE") &&
                add_extension(&p, ca.certificate, NID_key_usage, "critical,digitalSignature") &&
                add_extension(&p, ca.certificate, NID_ext_key_usage, "serverAuth,clientAuth") &&
                add_extension(&p, ca.certificate, NID_subject_alt_name, alternatives) &&
                add_extension(&p, ca.certificate, NID_subject_key_identifier, "hash") &&
                add_extension(&p, ca.certificate, NID_authority_key_identifier, "keyid:always") &&
                sign(&p, &ca),
            dir, first);
    pair_free(&ca);
    return rc;
}
