/* SPDX-License-Identifier: Apache-2.0 */
/*
 * te_metad - the HTTP metadata server: GET, PUT, POST and DELETE of /metadata?key=KEY.
 *
 * Exit status: 0 stopped by SIGINT or SIGTERM, 1 could not be started, 2 wrong usage.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "common_flags.h"
#include "te_metad/http.h"
#include "te_metad/listen.h"
#include "te_metad/log.h"
#include "te_metad/secret.h"
#include "te_metad/store.h"

#define OTHER_FILES 64 /* descriptors that are no connections, generously */

struct settings {
    const char *addr, *data_dir, *backup, *path, *token_file, *tls_cert, *tls_key, *tls_client_ca;
    uint64_t max_value, max_bytes, max_keys, max_connections, idle_timeout;
    bool quiet, request_log;
};

/* What is in the files of the flags of the same names; NULL without the flag. */
struct secrets {
    struct tokens *tokens;
    char *tls_cert, *tls_key, *tls_client_ca;
};

static const struct flag setting_flags[] = {
    {.name = "addr",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct settings, addr),
     .initial = ":8080",
     .help = "Where to listen: HOST:PORT, [V6]:PORT, or :PORT for all interfaces. Port 0: any free "
             "one."},
    {.name = "data_dir",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct settings, data_dir),
     .initial = "",
     .help = "Folder that keeps the contents over restarts. Without it they are in memory."},
    {.name = "backup",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct settings, backup),
     .initial = "",
     .help =
         "File to write a copy of the contents to upon SIGUSR1; as metadata.db in an empty folder it\n"
         "      is what --data-dir wants."},
    {.name = "path",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct settings, path),
     .initial = "/metadata",
     .help = "Path of the contents in URLs."},
    {.name = "max_value",
     .kind = FLAG_SIZE,
     .offset = offsetof(struct settings, max_value),
     .initial = "16MiB",
     .min = 1,
     .max = STORE_VALUE_MAX,
     .help = "Largest value that is accepted."},
    {.name = "max_bytes",
     .kind = FLAG_SIZE,
     .offset = offsetof(struct settings, max_bytes),
     .initial = "256MiB",
     .min = 1,
     .max = UINT64_C(1) << 40,
     .help = "Bytes of all keys and values together."},
    {.name = "max_keys",
     .kind = FLAG_COUNT,
     .offset = offsetof(struct settings, max_keys),
     .initial = "100000",
     .min = 1,
     .max = 1000000000,
     .help = "How many keys there may be. An engine has two."},
    {.name = "max_connections",
     .kind = FLAG_COUNT,
     .offset = offsetof(struct settings, max_connections),
     .initial = "1024",
     .min = 1,
     .max = 100000,
     .help = "Beyond this, the client that has been idle for longest is cut off."},
    {.name = "idle_timeout",
     .kind = FLAG_COUNT,
     .offset = offsetof(struct settings, idle_timeout),
     .initial = "60",
     .min = 1,
     .max = 86400,
     .help = "Seconds after which a silent connection is closed."},
    {.name = "token_file",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct settings, token_file),
     .initial = "",
     .help = "File of tokens, of which every client must send one (TE_METADATA_TOKEN of engines). "
             "A line is TOKEN, or TOKEN rw|ro, or TOKEN rw|ro PREFIX, for keys of segments whose "
             "names begin so."},
    {.name = "tls_cert",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct settings, tls_cert),
     .initial = "",
     .help = "File of the certificate (PEM), those that signed it behind it: HTTPS only."},
    {.name = "tls_key",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct settings, tls_key),
     .initial = "",
     .help = "File of its private key (PEM)."},
    {.name = "tls_client_ca",
     .kind = FLAG_TEXT,
     .offset = offsetof(struct settings, tls_client_ca),
     .initial = "",
     .help =
         "File of the certificates of authorities (PEM): all but /health is for clients that "
         "show a certificate of one of them (TE_METADATA_CERT and TE_METADATA_KEY of engines)."},
    {.name = "request_log",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct settings, request_log),
     .initial = "false",
     .help = "Write a line to standard error for each request: time, client, method, key, status,\n"
             "      duration."},
    {.name = "quiet",
     .kind = FLAG_SWITCH,
     .offset = offsetof(struct settings, quiet),
     .initial = "false",
     .help = "Write nothing to standard error but why it cannot start."},
};

static int fail(int status, const char *text)
{
    fprintf(stderr, "te_metad: %s\n", text);
    return status;
}

/* -1 to go on, else the exit status. */
static int read_settings(int argc, char **argv, struct settings *s, struct listen_addr *addr)
{
    const struct flag_table table = {.flags = setting_flags,
                                     .count = sizeof setting_flags / sizeof setting_flags[0],
                                     .values = s};
    struct flags flags = {
        .tool = "te_metad",
        .about = "The HTTP metadata server: GET, PUT, POST and DELETE of /metadata?key=KEY.\n"
                 "Without --token-file, whoever reaches its port can read and change everything:\n"
                 "let it listen on an address that only trusted hosts reach, such as\n"
                 "--addr=127.0.0.1:8080 on one host. --tls-cert and --tls-key make it HTTPS.",
        .tables = &table,
        .count = 1};
    int rc = flags_parse(&flags, argc, argv);
    if (rc >= 0)
        return rc;
    if (!listen_parse(s->addr, addr)) {
        fprintf(stderr,
                "te_metad: bad value '%s' for --addr: expected HOST:PORT, [V6]:PORT or :PORT, as "
                "in 127.0.0.1:8080\n",
                s->addr);
        return 2;
    }
    if (s->path[0] != '/' || strcspn(s->path, "?#%") != strlen(s->path) ||
        strcmp(s->path, "/health") == 0 || strcmp(s->path, "/metrics") == 0) {
        fprintf(stderr,
                "te_metad: bad value '%s' for --path: expected a path that begins with '/', holds "
                "none of ?#%% and is neither /health nor /metrics\n",
                s->path);
        return 2;
    }
    if (!s->tls_cert[0] != !s->tls_key[0])
        return fail(2, "--tls-cert and --tls-key belong together: give both, or neither");
    if (s->tls_client_ca[0] && !s->tls_cert[0])
        return fail(2, "--tls-client-ca needs --tls-cert and --tls-key: without TLS nobody shows a "
                       "certificate");
    if (s->quiet && s->request_log)
        return fail(2, "--quiet and --request-log exclude each other: give one of them");
    return -1;
}

static bool read_secrets(const struct settings *s, struct secrets *secrets,
                         char why[SECRET_WHY_MAX])
{
    if (s->token_file[0]) {
        secrets->tokens = tokens_read("--token-file", s->token_file, why);
        if (!secrets->tokens)
            return false;
    }
    return !s->tls_cert[0] ||
           (secret_read("--tls-cert", s->tls_cert, &secrets->tls_cert, why) &&
            secret_read("--tls-key", s->tls_key, &secrets->tls_key, why) &&
            (!s->tls_client_ca[0] ||
             secret_read("--tls-client-ca", s->tls_client_ca, &secrets->tls_client_ca, why)));
}

static void free_secrets(struct secrets *secrets)
{
    tokens_free(secrets->tokens);
    secret_free(secrets->tls_cert);
    secret_free(secrets->tls_key);
    secret_free(secrets->tls_client_ca);
}

/* Allows as many open files as the connections need, or lowers their number to what is allowed. */
static unsigned fit_connections(const struct settings *s)
{
    uint64_t wanted = s->max_connections;
    rlim_t files = (rlim_t)(2 * wanted + 2 * OTHER_FILES);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= files)
        return (unsigned)wanted;
    limit.rlim_cur = files < limit.rlim_max ? files : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur == files)
        return (unsigned)wanted;
    uint64_t possible =
        limit.rlim_cur > 3 * OTHER_FILES ? (limit.rlim_cur - 2 * OTHER_FILES) / 2 : 1;
    if (!s->quiet)
        log_line("%llu connections instead of --max-connections=%llu: the limit of open "
                 "files is %llu (ulimit -Hn)",
                 (unsigned long long)possible, (unsigned long long)wanted,
                 (unsigned long long)limit.rlim_cur);
    return (unsigned)possible;
}

static void tell_contents(const struct settings *s, struct store *store)
{
    struct store_limits used, limits;
    if (s->quiet)
        return;
    store_used(store, &used, &limits);
    if (s->data_dir[0])
        log_line("%llu keys in %s", (unsigned long long)used.keys, s->data_dir);
    else
        log_line("the contents are in memory only (--data-dir=DIR keeps them)");
}

/* What other hosts can do is told once, unless they cannot come. */
static void tell_openness(const struct settings *s, const char *name)
{
    if (s->quiet || strncmp(name, "127.", 4) == 0 || strncmp(name, "[::1]", 5) == 0)
        return;
    if (!s->token_file[0] && !s->tls_client_ca[0])
        log_line("whoever reaches %s can read and change everything: --token-file=FILE "
                 "lets in who has a token, --addr=127.0.0.1:8080 this host alone",
                 name);
    else if (!s->tls_cert[0])
        log_line("tokens are sent to %s in the clear: --tls-cert and --tls-key encrypt", name);
}

/* What is secret should be its owner's. */
static void tell_readers(const struct settings *s, const char *flag, const char *path)
{
    struct stat st;

    if (!s->quiet && path[0] && stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
        st.st_mode & (S_IROTH | S_IWOTH))
        log_line("%s=%.200s: every user of this host can %s it: chmod o-rwx", flag, path,
                 st.st_mode & S_IWOTH ? "change" : "read");
}

/* The signals that stop the server, or ask for a backup; they are blocked in all threads and waited for. */
static void block_signals(sigset_t *stop)
{
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(stop);
    sigaddset(stop, SIGINT);
    sigaddset(stop, SIGTERM);
    sigaddset(stop, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, stop, NULL);
}

static void back_up(const struct settings *s, struct store *store)
{
    char why[STORE_WHY_MAX];
    if (!s->backup[0])
        log_line("no backup: start it with --backup=FILE, where SIGUSR1 has it written");
    else if (!store_backup(store, s->backup, why))
        log_line("no backup: %s", why);
    else if (!s->quiet)
        log_line("backup written: %s", s->backup);
}

static int serve(const struct settings *s, const struct secrets *secrets,
                 const struct listen_addr *addr, struct store *store, const sigset_t *stop)
{
    char name[LISTEN_NAME_MAX], why[LISTEN_WHY_MAX], why_not[HTTP_WHY_MAX];
    int sig = 0;
    int fd = listen_open(addr, name, why);
    if (fd < 0)
        return fail(1, why);
    struct http *http =
        http_start(&(struct http_options){.listen_fd = fd,
                                          .store = store,
                                          .path = s->path,
                                          .max_value = s->max_value,
                                          .max_connections = fit_connections(s),
                                          .idle_timeout_s = (unsigned)s->idle_timeout,
                                          .tokens = secrets->tokens,
                                          .tls_cert = secrets->tls_cert,
                                          .tls_key = secrets->tls_key,
                                          .tls_client_ca = secrets->tls_client_ca,
                                          .request_log = s->request_log,
                                          .quiet = s->quiet},
                   why_not);
    if (!http)
        return fail(1, why_not);
    tell_contents(s, store);
    tell_openness(s, name);
    tell_readers(s, "--token-file", s->token_file);
    tell_readers(s, "--tls-key", s->tls_key);
    printf("te_metad: listening on %s\n", name);
    fflush(stdout);
    while (sigwait(stop, &sig) != 0 || sig == SIGUSR1)
        if (sig == SIGUSR1)
            back_up(s, store);
    http_stop(http);
    if (!s->quiet)
        log_line("stopped by %s", sig == SIGINT ? "SIGINT" : "SIGTERM");
    return 0;
}

static int open_and_serve(const struct settings *s, const struct secrets *secrets,
                          const struct listen_addr *addr, const sigset_t *stop)
{
    const struct store_limits limits = {.bytes = s->max_bytes, .keys = s->max_keys};
    char why[STORE_WHY_MAX];
    struct store *store = store_open(s->data_dir[0] ? s->data_dir : NULL, &limits, why);
    if (!store)
        return fail(1, why);
    int rc = serve(s, secrets, addr, store, stop);
    store_close(store);
    return rc;
}

int main(int argc, char **argv)
{
    struct settings s = {0};
    struct secrets secrets = {0};
    struct listen_addr addr;
    char why[SECRET_WHY_MAX];
    sigset_t stop;
    int rc = read_settings(argc, argv, &s, &addr);
    if (rc >= 0)
        return rc;
    block_signals(&stop);
    umask(077); /* The contents say how to reach the memory of others. */
    if (read_secrets(&s, &secrets, why))
        rc = open_and_serve(&s, &secrets, &addr, &stop);
    else
        rc = fail(1, why);
    free_secrets(&secrets);
    return rc;
}
