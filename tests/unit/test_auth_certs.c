/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets of TE_AUTH=mtls: their names and keys, and what a server's first bytes may be. */
#include "auth/auth_certs.h"
#include "auth/auth_state.h"
#include "test.h"

#include "base/os.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define PRINT "0123456789abcdef0123456789abcdef"
#define OTHER "1123456789abcdef0123456789abcdef"
#define EPOCH 0x1122334455667788

static uint8_t master[TEI_AUTH_PROOF] = {1, 2, 3};
static struct auth_certs certs = {.epoch = EPOCH, .master = master};

static struct tei_auth *giver(void)
{
    static struct tei_auth a;

    assert_int_equal(tei_auth_library_open(), 0);
    a.o = &tei_auth_library;
    a.certs = &certs;
    return &a;
}

/* Any certificate. */
static X509 *blank(void)
{
    void *library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_NODELETE);
    X509 *(*make)(void) = NULL;

    assert_non_null(library);
    *(void **)&make = dlsym(library, "X509_new");
    dlclose(library);
    assert_non_null(make);
    return make();
}

/* A ticket is given for a certificate with those digits. */
static void saw(const char *print)
{
    static X509 *certificate; /* of all of them; it goes with the process */

    if (!certificate)
        certificate = blank();
    assert_true(tei_auth_seen_add(giver(), &certs, print, certificate));
}

static enum tei_auth_cause cause_of(const char *id, uint8_t key[TEI_TICKET_KEY])
{
    enum tei_auth_cause cause = TEI_AUTH_N_CAUSES;
    X509 *certificate = NULL;

    if (tei_auth_ticket_key(giver(), id, strlen(id), key, &certificate, &cause)) {
        assert_non_null(certificate);
        return TEI_AUTH_N_CAUSES;
    }
    assert_int_not_equal(cause, TEI_AUTH_N_CAUSES);
    return cause;
}

static void name(char *out, size_t n, uint64_t epoch, const char *print, int64_t end)
{
    char text[96];

    snprintf(text, sizeof(text), "%016llx.%s.%lld", (unsigned long long)epoch, print,
             (long long)end);
    assert_true(strlen(text) < n);
    memcpy(out, text, strlen(text) + 1);
}

TEST(a_ticket_has_a_key_of_its_own)
{
    int64_t end = tei_wall_ms() / 1000 + 60;
    uint8_t one[TEI_TICKET_KEY], again[TEI_TICKET_KEY], other[TEI_TICKET_KEY];
    char id[TEI_TICKET_ID_MAX + 1];

    saw(PRINT);
    saw(OTHER);
    name(id, sizeof(id), EPOCH, PRINT, end);
    assert_int_equal(cause_of(id, one), TEI_AUTH_N_CAUSES);
    assert_int_equal(cause_of(id, again), TEI_AUTH_N_CAUSES);
    assert_memory_equal(one, again, sizeof(one));
    name(id, sizeof(id), EPOCH, PRINT, end + 1);
    assert_int_equal(cause_of(id, other), TEI_AUTH_N_CAUSES);
    assert_memory_not_equal(one, other, sizeof(one));
    name(id, sizeof(id), EPOCH, OTHER, end);
    assert_int_equal(cause_of(id, other), TEI_AUTH_N_CAUSES);
    assert_memory_not_equal(one, other, sizeof(one));
    master[0] ^= 1;
    name(id, sizeof(id), EPOCH, PRINT, end);
    assert_int_equal(cause_of(id, other), TEI_AUTH_N_CAUSES);
    assert_memory_not_equal(one, other, sizeof(one));
    master[0] ^= 1;
    tei_auth_seen_forget(giver(), &certs);
}

/* Whose certificate made room for others is told to ask for another ticket. */
TEST(certificates_make_room)
{
    int64_t end = tei_wall_ms() / 1000 + 60;
    char id[TEI_TICKET_ID_MAX + 1], print[AUTH_PRINT + 1];
    uint8_t key[TEI_TICKET_KEY];

    saw(PRINT);
    saw(OTHER);
    for (unsigned i = 0; i < 16383; i++) {
        snprintf(print, sizeof(print), "%032x", i);
        saw(print);
        saw(print);
    }
    name(id, sizeof(id), EPOCH, PRINT, end);
    assert_int_equal(cause_of(id, key), TEI_AUTH_TICKET);
    name(id, sizeof(id), EPOCH, OTHER, end);
    assert_int_equal(cause_of(id, key), TEI_AUTH_N_CAUSES);
    saw(PRINT);
    assert_int_equal(cause_of(id, key), TEI_AUTH_TICKET);
    tei_auth_seen_forget(giver(), &certs);
}

TEST(tickets_that_are_not_good_any_more)
{
    int64_t now = tei_wall_ms() / 1000;
    uint8_t key[TEI_TICKET_KEY];
    char id[TEI_TICKET_ID_MAX + 1];

    saw(PRINT);
    name(id, sizeof(id), EPOCH + 1, PRINT, now + 60);
    assert_int_equal(cause_of(id, key), TEI_AUTH_TICKET);
    name(id, sizeof(id), EPOCH, PRINT, now - 60);
    assert_int_equal(cause_of(id, key), TEI_AUTH_EXPIRED);
    name(id, sizeof(id), EPOCH, PRINT, -1);
    assert_int_equal(cause_of(id, key), TEI_AUTH_EXPIRED);
    tei_auth_seen_forget(giver(), &certs);
}

TEST(names_that_are_of_no_ticket)
{
    static const char *const bad[] = {"",
                                      "a",
                                      ".",
                                      "..",
                                      "1122334455667788",
                                      "1122334455667788." PRINT,
                                      "1122334455667788." PRINT ".",
                                      "1122334455667788." PRINT ".x",
                                      "1122334455667788." PRINT ".9999999999x",
                                      "1122334455667788.x" PRINT ".99999999",
                                      "11223344556677889." PRINT ".9999999",
                                      "112233445566778." PRINT ".999999999",
                                      "1122334455667788.0123456789abcdef.9999999999",
                                      "-.x.-"};
    char longest[TEI_TICKET_ID_MAX + 2];
    uint8_t key[TEI_TICKET_KEY];

    for (size_t i = 0; i < TEI_ARRAY_LEN(bad); i++)
        assert_int_equal(cause_of(bad[i], key), TEI_AUTH_MALFORMED);
    memset(longest, '9', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(cause_of(longest, key), TEI_AUTH_MALFORMED);
}

/* The first bytes of a server: as they are to be, but for those that `change` has. */
static struct tei_ticket *welcome(size_t at, uint8_t change)
{
    uint8_t bytes[AUTH_WELCOME] = {'T', 'E', 'W', 1, 3, [8] = 'a', 'b', 'c'};

    memset(bytes + 8 + TEI_TICKET_ID_MAX, 7, TEI_TICKET_KEY);
    bytes[at] ^= change;
    return tei_auth_welcome_read(bytes, EPOCH);
}

TEST(what_a_server_says_first)
{
    struct tei_ticket *t = welcome(0, 0);

    assert_non_null(t);
    assert_string_equal(t->id, "abc");
    assert_int_equal(t->key[TEI_TICKET_KEY - 1], 7);
    tei_ticket_put(tei_ticket_get(t));
    tei_ticket_put(t);
    for (size_t at = 0; at < 4; at++)
        assert_null(welcome(at, 1));
    assert_null(welcome(4, 3));    /* no name */
    assert_null(welcome(4, 0x40)); /* longer than there is room for */
    assert_null(welcome(4, 0x80));
    assert_null(welcome(4, 3 ^ 4));     /* a NUL in it */
    assert_null(welcome(8, 'a' ^ ' ')); /* a byte that no name has */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ticket_has_a_key_of_its_own),
        cmocka_unit_test(certificates_make_room),
        cmocka_unit_test(tickets_that_are_not_good_any_more),
        cmocka_unit_test(names_that_are_of_no_ticket),
        cmocka_unit_test(what_a_server_says_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
