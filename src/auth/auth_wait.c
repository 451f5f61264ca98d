/* SPDX-License-Identifier: Apache-2.0 */
/* auth_wait.c - connections of the handshake port that a thread waits for, and what a refusal is told as. */
#include "auth/auth_secure.h"

#include "base/err.h"
#include "base/os.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

/* RFC 8446: alerts that a server of ours answers a ClientHello with. */
#define ALERT_HANDSHAKE_FAILURE 40
#define ALERT_REVOKED           44
#define ALERT_EXPIRED           45
#define ALERT_ILLEGAL_PARAMETER 47
#define ALERT_UNKNOWN_CA        48
#define ALERT_DECRYPT_ERROR     51
#define ALERT_INTERNAL_ERROR    80
#define ALERT_NO_PROTOCOL       120

static int wait_for(const struct tei_secure *s, int64_t deadline_ns)
{
    struct pollfd p = {.fd = s->fd, .events = s->events == EPOLLIN ? POLLIN : POLLOUT};
    int n;

    do {
        n = poll(&p, 1, tei_left_ms(deadline_ns));
    } while (n < 0 && errno == EINTR);
    return n > 0 ? 0 : n == 0 ? TE_ERR_TIMEOUT : TE_ERR_LINK;
}

/* Whether a server with certificates has ended a client's connection for what that has shown. */
static bool was_refused(const struct tei_secure *s)
{
    return s->a->is_mtls && !s->is_server && !s->ticket && s->reason > SSL_AD_REASON_OFFSET;
}

/* 0: go on; else the connection is lost. */
static int after(struct tei_secure *s, ssize_t n, int64_t deadline_ns)
{
    if (n > 0)
        return 0;
    if (n < 0 && errno == EAGAIN)
        return wait_for(s, deadline_ns);
    if (was_refused(s))
        return TE_ERR_REJECTED;
    errno = n == 0 ? 0 : errno;
    return TE_ERR_LINK;
}

int tei_secure_read_full(struct tei_secure *s, void *buf, size_t n, int64_t deadline_ns)
{
    for (size_t got = 0; got < n;) {
        ssize_t len = tei_secure_recv(s, (char *)buf + got, n - got);
        int rc = after(s, len, deadline_ns);

        if (rc)
            return rc;
        got += len > 0 ? (size_t)len : 0;
    }
    return 0;
}

int tei_secure_write_full(struct tei_secure *s, const void *buf, size_t n, int64_t deadline_ns)
{
    for (size_t sent = 0; sent < n;) {
        ssize_t len = tei_secure_send(s, (const char *)buf + sent, n - sent);
        int rc = after(s, len, deadline_ns);

        if (rc)
            return rc;
        sent += len > 0 ? (size_t)len : 0;
    }
    return 0;
}

/* ------------------------------------------------------------------------------------ refusals */

/* What the server's alert says of our certificate; NULL: nothing. */
static const char *alert_text(int reason)
{
    switch (reason - SSL_AD_REASON_OFFSET) {
    case ALERT_REVOKED:
        return "is in its list of TE_AUTH_CRL";
    case ALERT_EXPIRED:
        return "is not valid today by its clock: give us another one in TE_AUTH_CERT";
    case ALERT_UNKNOWN_CA:
        return "is signed by no authority of its TE_AUTH_CA: have one sign ours, or add our "
               "authority there";
    case ALERT_HANDSHAKE_FAILURE:
    case ALERT_NO_PROTOCOL:
        return "is not asked for: TE_AUTH is another one there; set both ends to the same";
    default:
        return "is not to be used as one of an engine by its rules: make it by te_keys cert, or "
               "see its log";
    }
}

static int fail_certificate(const struct tei_secure *s, const char *peer)
{
    const struct auth_library *o = s->a->o;
    char subject[AUTH_SUBJECT];

    tei_auth_certs_subject(s->a, s->ssl, subject);
    if (s->reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
        return TEI_FAIL(TE_ERR_REJECTED,
                        "%s shows a certificate that is not taken here: %s; see TE_AUTH_CA and "
                        "TE_AUTH_CRL here, and TE_AUTH_CERT there",
                        peer, o->X509_verify_cert_error_string(o->SSL_get_verify_result(s->ssl)));
    if (s->is_another)
        return TEI_FAIL(TE_ERR_REJECTED,
                        "%s shows the certificate of %s, which is not one of '%s': give that "
                        "engine one of this name (te_keys cert), or open it by a name of its own",
                        peer, subject, s->expected);
    if (s->reason > SSL_AD_REASON_OFFSET)
        return TEI_FAIL(TE_ERR_REJECTED, "%s refuses our certificate, which %s", peer,
                        alert_text(s->reason));
    return TEI_FAIL(TE_ERR_REJECTED,
                    "%s does not prove who it is: TE_AUTH is off there, or it is another "
                    "program; set TE_AUTH=mtls there, or have its address in TE_AUTH_CLASSIC here",
                    peer);
}

int tei_secure_refused(const struct tei_secure *s, const char *peer)
{
    return fail_certificate(s, peer);
}

struct tei_ticket *tei_secure_ticket(const struct tei_secure *s)
{
    return tei_ticket_get(s->ticket);
}

/* What the server's refusal means, for whoever can mend it. */
static int fail_refused(const struct tei_secure *s, const char *peer)
{
    int reason = s->reason;

    if (s->a->is_mtls)
        return fail_certificate(s, peer);
    if (reason == SSL_AD_REASON_OFFSET + ALERT_NO_PROTOCOL)
        return TEI_FAIL(TE_ERR_REJECTED,
                        "%s does not use pre-shared keys: set TE_AUTH to the same at both ends",
                        peer);
    if (reason == SSL_AD_REASON_OFFSET + ALERT_HANDSHAKE_FAILURE)
        return TEI_FAIL(TE_ERR_REJECTED,
                        "%s refuses our id '%s', which is not in its key file: add its line there "
                        "(TE_AUTH_KEYS)",
                        peer, s->id);
    if (reason == SSL_AD_REASON_OFFSET + ALERT_ILLEGAL_PARAMETER ||
        reason == SSL_AD_REASON_OFFSET + ALERT_DECRYPT_ERROR || reason == SSL_R_DIGEST_CHECK_FAILED)
        return TEI_FAIL(
            TE_ERR_REJECTED,
            "%s has another key for our id '%s': give the id the same key in both files "
            "of TE_AUTH_KEYS",
            peer, s->id);
    if (reason == SSL_AD_REASON_OFFSET + ALERT_INTERNAL_ERROR)
        return TEI_FAIL(
            TE_ERR_REJECTED,
            "%s refuses our id '%s', which is its own, or is this engine itself: give "
            "each side an id of its own, or repeat the first line of its key file for a "
            "group that shares one",
            peer, s->id);
    return TEI_FAIL(TE_ERR_REJECTED,
                    "%s does not prove that it has our key: TE_AUTH is off there, or it is another "
                    "program; set TE_AUTH=psk there, or have its address in TE_AUTH_CLASSIC here",
                    peer);
}

static int fail_lost(const struct tei_secure *s, const char *peer)
{
    if (s->error && s->error != ECONNRESET && s->error != EPIPE)
        return TEI_FAIL(TE_ERR_LINK, "%s: %s while proving who we are", peer,
                        tei_errno_text(s->error));
    return TEI_FAIL(
        TE_ERR_REJECTED,
        "%s closes the connection when it is asked for TLS: TE_AUTH is off there, or it "
        "is another program; set it there as it is here, or have its address in "
        "TE_AUTH_CLASSIC here",
        peer);
}

int tei_secure_connect(struct tei_secure *s, const char *peer, int64_t deadline_ns)
{
    enum tei_secure_state state;
    int rc;

    while ((state = tei_secure_greet(s)) == TEI_SECURE_WAIT) {
        rc = wait_for(s, deadline_ns);
        if (rc == TE_ERR_TIMEOUT)
            return TEI_FAIL(
                rc,
                "%s: no progress in time while proving who we are; it may be overloaded "
                "or frozen, or TE_AUTH is off there",
                peer);
        if (rc)
            return fail_lost(s, peer);
    }
    if (state == TEI_SECURE_REFUSED)
        return fail_refused(s, peer);
    return state == TEI_SECURE_DONE ? 0 : fail_lost(s, peer);
}
