/* SPDX-License-Identifier: Apache-2.0 */
/*
 * curl.c - libcurl for the whole archive: its functions under their names, each of which calls that
 * of the shared library, opened by the first call.
 *
 * libcurl's own archive wants a dozen other libraries. cmake/archive.cmake says when this is built;
 * the names are local to the archive, so that a program's own libcurl, of whatever version, is no
 * matter.
 */
#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* By the SSL library that it was built with, Debian has two names for one interface. */
static const char *const files[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

/* Those that src/meta calls: result, name, parameters, arguments, and the result without libcurl. */
#define FUNCTIONS(X)                                                                            \
    X(CURLcode, curl_global_init, (long flags), (flags), CURLE_FAILED_INIT)                     \
    X(CURL *, curl_easy_init, (void), (), NULL)                                                 \
    X(CURLcode, curl_easy_perform, (CURL * c), (c), CURLE_FAILED_INIT)                          \
    X(const char *, curl_easy_strerror, (CURLcode code), (code), MISSING)                       \
    X(struct curl_slist *, curl_slist_append, (struct curl_slist * list, const char *s),        \
      (list, s), NULL)                                                                          \
    X(CURLM *, curl_multi_init, (void), (), NULL)                                               \
    X(CURLMcode, curl_multi_add_handle, (CURLM * m, CURL * c), (m, c), CURLM_INTERNAL_ERROR)    \
    X(CURLMcode, curl_multi_remove_handle, (CURLM * m, CURL * c), (m, c), CURLM_INTERNAL_ERROR) \
    X(CURLMcode, curl_multi_perform, (CURLM * m, int *n), (m, n), CURLM_INTERNAL_ERROR)         \
    X(CURLMcode, curl_multi_poll,                                                               \
      (CURLM * m, struct curl_waitfd fds[], unsigned n, int ms, int *ready),                    \
      (m, fds, n, ms, ready), CURLM_INTERNAL_ERROR)                                             \
    X(CURLMcode, curl_multi_wakeup, (CURLM * m), (m), CURLM_INTERNAL_ERROR)                     \
    X(CURLMcode, curl_multi_cleanup, (CURLM * m), (m), CURLM_INTERNAL_ERROR)                    \
    X(CURLMsg *, curl_multi_info_read, (CURLM * m, int *n), (m, n), NULL)                       \
    X(CURLU *, curl_url, (void), (), NULL)                                                      \
    X(CURLUcode, curl_url_set, (CURLU * u, CURLUPart what, const char *part, unsigned flags),   \
      (u, what, part, flags), CURLUE_OUT_OF_MEMORY)                                             \
    X(CURLUcode, curl_url_get, (const CURLU *u, CURLUPart what, char **part, unsigned flags),   \
      (u, what, part, flags), CURLUE_OUT_OF_MEMORY)
/* The same, without a result. */
#define PROCEDURES(X)                                          \
    X(curl_easy_cleanup, (CURL * c), (c))                      \
    X(curl_easy_reset, (CURL * c), (c))                        \
    X(curl_slist_free_all, (struct curl_slist * list), (list)) \
    X(curl_url_cleanup, (CURLU * u), (u))                      \
    X(curl_free, (void *p), (p))

#define MISSING                                                                           \
    "libcurl.so.4 cannot be opened, or is older than 7.68: install the package libcurl4 " \
    "(libcurl on Fedora)"

/*
 * Each by a name of its own in C, as the headers of some versions have a const where others have
 * none, and by libcurl's for the linker.
 */
#define NAMED(result, name, parameters, ...) result archive_##name parameters __asm__(#name);
#define NAMED_VOID(name, parameters, ...)    NAMED(void, name, parameters)
FUNCTIONS(NAMED)
PROCEDURES(NAMED_VOID)
NAMED(CURLcode, curl_easy_setopt, (CURL * c, CURLoption option, ...))
NAMED(CURLcode, curl_easy_getinfo, (CURL * c, CURLINFO what, ...))

/* What the shared library has. */
struct library {
#define MEMBER(result, name, parameters, ...) result(*name) parameters;
#define MEMBER_VOID(name, parameters, ...)    MEMBER(void, name, parameters)
    FUNCTIONS(MEMBER)
    PROCEDURES(MEMBER_VOID)
    MEMBER(CURLcode, curl_easy_setopt, (CURL * c, CURLoption option, ...))
    MEMBER(CURLcode, curl_easy_getinfo, (CURL * c, CURLINFO what, ...))
};

static const struct {
    const char *name;
    size_t at;
} symbols[] = {
#define SYMBOL(result, name, ...) {#name, offsetof(struct library, name)},
#define SYMBOL_VOID(name, ...)    SYMBOL(void, name)
    FUNCTIONS(SYMBOL) PROCEDURES(SYMBOL_VOID) SYMBOL(CURLcode, curl_easy_setopt)
        SYMBOL(CURLcode, curl_easy_getinfo)};

static bool open_file(const char *file, struct library *out)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    for (size_t i = 0; library && i < sizeof symbols / sizeof *symbols; i++) {
        void *at = dlsym(library, symbols[i].name);

        if (!at) {
            dlclose(library);
            return false;
        }
        memcpy((char *)out + symbols[i].at, &at, sizeof at);
    }
    return library;
}

/* NULL where there is none; it may be there the next time. */
static const struct library *libcurl(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct library library;
    static atomic_bool opened;

    if (!atomic_load_explicit(&opened, memory_order_acquire)) {
        pthread_mutex_lock(&lock);
        for (size_t i = 0; !opened && i < sizeof files / sizeof *files; i++)
            atomic_store_explicit(&opened, open_file(files[i], &library), memory_order_release);
        pthread_mutex_unlock(&lock);
    }
    return opened ? &library : NULL;
}

#define DEFINE(result, name, parameters, arguments, missing) \
    result archive_##name parameters                         \
    {                                                        \
        const struct library *l = libcurl();                 \
                                                             \
        return l ? l->name arguments : (missing);            \
    }
FUNCTIONS(DEFINE)

#define DEFINE_VOID(name, parameters, arguments) \
    void archive_##name parameters               \
    {                                            \
        const struct library *l = libcurl();     \
                                                 \
        if (l)                                   \
            l->name arguments;                   \
    }
PROCEDURES(DEFINE_VOID)

/* The number of an option tells the type of its value. */
CURLcode archive_curl_easy_setopt(CURL *c, CURLoption option, ...)
{
    const struct library *l = libcurl();
    CURLcode code = CURLE_FAILED_INIT;
    va_list value;

    va_start(value, option);
    if (l && (int)option < CURLOPTTYPE_OBJECTPOINT)
        code = (l->curl_easy_setopt)(c, option, va_arg(value, long));
    else if (l && (int)option >= CURLOPTTYPE_OFF_T && (int)option < CURLOPTTYPE_BLOB)
        code = (l->curl_easy_setopt)(c, option, va_arg(value, curl_off_t));
    else if (l && (int)option >= CURLOPTTYPE_FUNCTIONPOINT && (int)option < CURLOPTTYPE_OFF_T)
        code = (l->curl_easy_setopt)(c, option, va_arg(value, void (*)(void)));
    else if (l)
        code = (l->curl_easy_setopt)(c, option, va_arg(value, void *));
    va_end(value);
    return code;
}

CURLcode archive_curl_easy_getinfo(CURL *c, CURLINFO what, ...)
{
    const struct library *l = libcurl();
    CURLcode code = CURLE_FAILED_INIT;
    va_list where;

    va_start(where, what);
    if (l)
        code = (l->curl_easy_getinfo)(c, what, va_arg(where, void *));
    va_end(where);
    return code;
}
