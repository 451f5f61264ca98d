/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.c - where log lines go.
 *
 * Sink and argument must change together, while any thread may be about to call the old ones, and
 * the way to a sink must take no lock: a lock held by another thread at the time of a fork would
 * stay locked in the child for ever. So each pair of sink and argument is an immutable object, kept
 * in a list for the life of the process; setting a sink points `current` at its object. A pair seen
 * before is found again instead of being made again, so the list is as long as the sinks are many.
 */
#include "base/log.h"

#include "base/err.h"
#include "base/os.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_MAX 1280
#define SUFFIX_MAX  48

struct sink {
    te_log_sink fn;
    void *arg;
    struct sink *next;
};

_Atomic int tei_log_threshold = TE_LOG_WARN;

static _Atomic(struct sink *) current; /* NULL: the default */
static struct sink *sinks;             /* all ever made, under set_lock */
static pthread_mutex_t set_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic int target_fd = STDERR_FILENO;
static int file_fd =
    -1; /* under set_lock; its number never changes once it has one, see tei_log_set_dir */

static char file_path[PATH_MAX]; /* of file_fd, for opening it anew; under set_lock */
static int file_flags;           /* more flags it is opened with; under set_lock */
static _Atomic int format = TEI_LOG_GLOG;
static _Atomic bool reopen_asked;
static int64_t reopen_not_before_ns; /* under set_lock, as the next */
static bool reopen_failure_told;

static _Thread_local bool in_sink;

void te_log_set_level(enum te_log_level level)
{
    atomic_store_explicit(&tei_log_threshold, (int)level, memory_order_relaxed);
}

/*
 * The object of a pair, made if new; NULL, which is the default sink, when memory is out. Under
 * set_lock.
 */
static struct sink *intern(te_log_sink fn, void *arg)
{
    struct sink *s;

    for (s = sinks; s; s = s->next)
        if (s->fn == fn && s->arg == arg)
            return s;
    s = malloc(sizeof *s);
    if (!s)
        return NULL;
    *s = (struct sink){.fn = fn, .arg = arg, .next = sinks};
    sinks = s;
    return s;
}

void te_log_set_sink(te_log_sink sink, void *arg)
{
    pthread_mutex_lock(&set_lock);
    /* Release: pairs with the acquire in hand_over, which reads the object. */
    atomic_store_explicit(&current, sink ? intern(sink, arg) : NULL, memory_order_release);
    pthread_mutex_unlock(&set_lock);
}

/* Without the year and the dashes: what is left of "2026-11-20 13:50:01.123456" is "1120 13:50:01.123456". */
static int glog_line(char *line, size_t n, enum te_log_level level, uint32_t dropped,
                     const char *message)
{
    static const char letters[] = "TDIWE";
    char when[40];

    tei_timestamp(when, sizeof when);
    (void)dropped;
    return snprintf(line, n, "%c%.2s%s %ld te] %s\n", letters[level], when + 5, when + 8,
                    (long)syscall(SYS_gettid), message);
}

/* "2026-11-20T13:50:01.123456+01:00" */
#define ISO_TIME_MAX 80
static void iso_time(char buf[ISO_TIME_MAX])
{
    char date[40], zone[8];
    struct timespec ts;
    struct tm tm;

    clock_gettime(CLOCK_REALTIME, &ts);
    localtime_r(&ts.tv_sec, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    strftime(zone, sizeof zone, "%z", &tm);
    snprintf(buf, ISO_TIME_MAX, "%s.%06ld%.3s:%s", date, ts.tv_nsec / 1000, zone, zone + 3);
}

static const char *const level_names[] = {"TRACE", "DEBUG", "INFO", "WARN", "ERROR"};

static int iso_line(char *line, size_t n, enum te_log_level level, uint32_t dropped,
                    const char *message)
{
    char when[ISO_TIME_MAX];

    iso_time(when);
    (void)dropped;
    return snprintf(line, n, "%s %s [%d:%ld] te: %s\n", when, level_names[level], (int)getpid(),
                    (long)syscall(SYS_gettid), message);
}

/* A message as JSON has it: no control characters are left in it, and bytes that are no UTF-8 become '?'. */
static void quote(const char *text, char *out, size_t room)
{
    size_t n = 0;

    for (size_t len; *text && n + 5 < room; text += len) {
        len = (unsigned char)*text < 0x80
                  ? 1
                  : tei_utf8_length((const unsigned char *)text, strlen(text));
        if (*text == '"' || *text == '\\')
            out[n++] = '\\';
        if (len == 0)
            out[n++] = '?';
        memcpy(out + n, text, len);
        n += len;
        len += len == 0;
    }
    out[n] = '\0';
}

static int json_line(char *line, size_t n, enum te_log_level level, uint32_t dropped,
                     const char *message)
{
    char when[ISO_TIME_MAX], quoted[2 * MESSAGE_MAX];

    iso_time(when);
    quote(message, quoted, sizeof quoted);
    return snprintf(
        line, n,
        "{\"time\":\"%s\",\"level\":\"%s\",\"pid\":%d,\"tid\":%ld,\"dropped\":%u,\"message\":\"%s\"}\n",
        when, level_names[level], (int)getpid(), (long)syscall(SYS_gettid), dropped, quoted);
}

static void reopen(void);

static void put_line(enum te_log_level level, uint32_t dropped, const char *message)
{
    static int (*const writers[])(char *, size_t, enum te_log_level, uint32_t, const char *) = {
        [TEI_LOG_GLOG] = glog_line, [TEI_LOG_ISO] = iso_line, [TEI_LOG_JSON] = json_line};
    char line[2 * MESSAGE_MAX + 200];
    int n = writers[atomic_load_explicit(&format, memory_order_relaxed)](line, sizeof line, level,
                                                                         dropped, message);

    /*
     * One write keeps lines of several threads and processes apart. There is nobody to tell when it
     * fails.
     */
    if (n > 0 && write(atomic_load_explicit(&target_fd, memory_order_relaxed), line, (size_t)n) < 0)
        errno = 0;
}

static void write_line(enum te_log_level level, uint32_t dropped, const char *message)
{
    if (atomic_load_explicit(&reopen_asked, memory_order_relaxed))
        reopen();
    put_line(level, dropped, message);
}

void te_log_to_fd(void *arg, enum te_log_level level, const char *line)
{
    char whole[MESSAGE_MAX + 80];
    int saved = errno, n;

    n = snprintf(whole, sizeof whole, "%d %ld %.*s\n", (int)level, (long)syscall(SYS_gettid),
                 MESSAGE_MAX + SUFFIX_MAX, line);
    if (n > 0 && write((int)(intptr_t)arg, whole, (size_t)n) < 0)
        errno = saved; /* there is nobody to tell */
}

/*
 * A sink that calls a function of the library that fails must not be called again from there: its
 * second line goes to stderr.
 */
static void hand_over(enum te_log_level level, uint32_t dropped, char *message)
{
    struct sink *s = atomic_load_explicit(&current, memory_order_acquire);

    bool own = !s || in_sink;

    /* As JSON it is a member of its own. */
    if (dropped && !(own && atomic_load_explicit(&format, memory_order_relaxed) == TEI_LOG_JSON))
        snprintf(message + strlen(message), SUFFIX_MAX, " (%u more like this dropped)", dropped);
    if (own) {
        write_line(level, dropped, message);
        return;
    }
    in_sink = true;
    s->fn(s->arg, level, message);
    in_sink = false;
}

/*
 * Whether the site may log now, and how many of its lines were dropped since it last did. Threads
 * that race at the turn of a second may shift a line from one second to the next, but each dropped
 * line is told once.
 */
static bool admit(struct tei_log_site *site, uint32_t *dropped)
{
    int64_t now_s = tei_now_ns() / TEI_NS_PER_S;
    int64_t window = atomic_load_explicit(&site->window_s, memory_order_relaxed);
    uint32_t n;

    *dropped = 0;
    if (window != now_s &&
        atomic_compare_exchange_strong_explicit(&site->window_s, &window, now_s,
                                                memory_order_relaxed, memory_order_relaxed)) {
        n = atomic_exchange_explicit(&site->count, 1, memory_order_relaxed);
        *dropped = n > TEI_LOG_BURST ? n - TEI_LOG_BURST : 0;
        return true;
    }
    return atomic_fetch_add_explicit(&site->count, 1, memory_order_relaxed) < TEI_LOG_BURST;
}

/*
 * Names come from peers: a newline in one must not pass for a line of ours, nor an escape sequence
 * reach a terminal.
 */
static void blank_control_bytes(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

void tei_log(struct tei_log_site *site, enum te_log_level level, const char *fmt, ...)
{
    char message[MESSAGE_MAX + SUFFIX_MAX];
    uint32_t dropped = 0;
    int saved = errno;
    va_list args;

    if (level >= TE_LOG_OFF || (level >= TE_LOG_INFO && !admit(site, &dropped))) {
        errno = saved;
        return;
    }
    va_start(args, fmt);
    vsnprintf(message, MESSAGE_MAX, fmt, args);
    va_end(args);
    blank_control_bytes(message);
    hand_over(level, dropped, message);
    errno = saved;
}

/*
 * What a line would wait for, such as a pipe that nobody reads, is no log file; nor may opening one
 * wait.
 */
static int open_log(const char *path, int flags, const char **why)
{
    int fd =
        open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags, 0644);
    struct stat st;

    if (fd < 0 && errno == ELOOP && flags & O_NOFOLLOW)
        *why = "it is a symbolic link, which is not followed where the name has the process in it";
    else if (fd < 0 && errno != ENXIO)
        *why = tei_errno_text(errno);
    else
        *why = "it is neither a regular file nor a character device";
    if (fd < 0 || (fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISCHR(st.st_mode)) &&
                   fcntl(fd, F_SETFL, O_APPEND) == 0))
        return fd;
    close(fd);
    return -1;
}

/*
 * A thread may be about to write to the old file, so its descriptor is never closed, which would
 * free the number for somebody else's file; the new file is put in the old one's place instead.
 */
static void point_at_file(int fd)
{
    if (file_fd < 0) {
        file_fd = fd;
    } else {
        dup3(fd, file_fd, O_CLOEXEC);
        close(fd);
    }
    atomic_store_explicit(&target_fd, file_fd, memory_order_relaxed);
}

/* Lines go on to the old file, which says so once; a second later it is tried again. Under set_lock. */
static void reopen_later(const char *why)
{
    char message[MESSAGE_MAX];

    reopen_not_before_ns = tei_now_ns() + TEI_NS_PER_S;
    atomic_store_explicit(&reopen_asked, true, memory_order_relaxed);
    if (reopen_failure_told)
        return;
    reopen_failure_told = true;
    snprintf(
        message, sizeof message,
        "the log file cannot be opened anew (%s), which is tried again each second; until then "
        "lines go on to the old one: %.1000s",
        why, file_path);
    blank_control_bytes(message);
    put_line(TE_LOG_WARN, 0, message);
}

/* Whoever holds the lock sees to it; a child whose parent held it at the fork keeps the old file. */
static void reopen(void)
{
    const char *why;
    int fd;

    if (pthread_mutex_trylock(&set_lock) != 0)
        return;
    if (tei_now_ns() >= reopen_not_before_ns) {
        /* First, for a signal that comes from here on to count. */
        atomic_store_explicit(&reopen_asked, false, memory_order_relaxed);
        fd = file_path[0] ? open_log(file_path, file_flags, &why) : -1;
        if (fd >= 0) {
            point_at_file(fd);
            reopen_failure_told = false;
        } else if (file_path[0]) {
            reopen_later(why);
        }
    }
    pthread_mutex_unlock(&set_lock);
}

static void on_hangup(int signo)
{
    (void)signo;
    atomic_store_explicit(&reopen_asked, true, memory_order_relaxed);
}

void tei_log_reopen_on_hangup(void)
{
    struct sigaction now, act = {.sa_handler = on_hangup, .sa_flags = SA_RESTART};
    bool some;

    pthread_mutex_lock(&set_lock);
    some = file_path[0];
    pthread_mutex_unlock(&set_lock);
    if (!some) {
        TEI_WARN("TE_LOG_REOPEN: no log file is open, so SIGHUP stays as it is: name one that can "
                 "be opened with TE_LOG_FILE, or a folder with MC_LOG_DIR");
        return;
    }
    if (sigaction(SIGHUP, NULL, &now) != 0 || now.sa_handler == on_hangup)
        return;
    if (now.sa_handler != SIG_DFL)
        TEI_WARN(
            "TE_LOG_REOPEN: the program has its own way with SIGHUP, which stays; without it the log file is not "
            "opened anew");
    else
        sigaction(SIGHUP, &act, NULL);
}

void tei_log_set_format(enum tei_log_format f)
{
    atomic_store_explicit(&format, (int)f, memory_order_relaxed);
}

static void set_file(const char *path, int flags)
{
    const char *why = tei_errno_text(ENAMETOOLONG);
    int fd = -1;
    size_t n = strlen(path);

    pthread_mutex_lock(&set_lock);
    reopen_not_before_ns = 0;
    reopen_failure_told = false;
    if (n > 0 && n < sizeof file_path)
        fd = open_log(path, flags, &why);
    if (fd >= 0) {
        point_at_file(fd);
        memcpy(file_path, path, n + 1);
        file_flags = flags;
    } else {
        atomic_store_explicit(&target_fd, STDERR_FILENO, memory_order_relaxed);
        file_path[0] = '\0';
    }
    pthread_mutex_unlock(&set_lock);
    if (n > 0 && fd < 0)
        TEI_WARN("log file %s cannot be opened, logging to stderr: %s", path, why);
}

/* Others can tell a name with the process in it beforehand: no link that they put there is followed. */
void tei_log_set_file(const char *path)
{
    const char *mark = strstr(path, "%p");
    char whole[PATH_MAX + 64];

    if (!mark) {
        set_file(path, 0);
        return;
    }
    snprintf(whole, sizeof whole, "%.*s%ld%s", (int)(mark - path), path, (long)getpid(), mark + 2);
    set_file(whole, O_NOFOLLOW);
}

void tei_log_set_dir(const char *dir)
{
    char path[PATH_MAX + 64] = "";

    if (dir && *dir)
        snprintf(path, sizeof path, "%s/transfer_engine.%ld.log", dir, (long)getpid());
    set_file(path, O_NOFOLLOW);
}

bool tei_log_level_parse(const char *text, enum te_log_level *out)
{
    static const struct {
        const char *name;
        enum te_log_level level;
    } names[] = {
        {"TRACE", TE_LOG_TRACE}, {"DEBUG", TE_LOG_DEBUG},  {"INFO", TE_LOG_INFO},
        {"WARN", TE_LOG_WARN},   {"WARNING", TE_LOG_WARN}, {"ERROR", TE_LOG_ERROR},
        {"OFF", TE_LOG_OFF},
    };

    for (size_t i = 0; i < TEI_ARRAY_LEN(names); i++) {
        if (strcasecmp(text, names[i].name) == 0) {
            *out = names[i].level;
            return true;
        }
    }
    return false;
}
