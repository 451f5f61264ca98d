/* SPDX-License-Identifier: Apache-2.0 */
/* here.c - where this process is. */
#include "base/here.h"

#include "base/hex.h"
#include "base/os.h"
#include "base/siphash.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The boot id's digits as bytes; false where it cannot be read. */
static bool boot_key(uint8_t key[TEI_SIPHASH_LEN])
{
    char text[64], digits[2 * TEI_SIPHASH_LEN + 1] = "";
    size_t n = 0;

    tei_file_word("/proc/sys/kernel/random/boot_id", text, sizeof(text));
    for (const char *c = text; *c && n < sizeof(digits) - 1; c++)
        if (*c != '-')
            digits[n++] = *c;
    for (size_t i = 0; i < TEI_SIPHASH_LEN; i++)
        if (sscanf(digits + 2 * i, "%2hhx", &key[i]) != 1)
            return false;
    return true;
}

static void hash_with(const uint8_t key[TEI_SIPHASH_LEN], const uint8_t nonce[TEI_HERE_NONCE],
                      const char *what, const char *place, uint8_t hash[TEI_SIPHASH_LEN])
{
    uint8_t message[TEI_HERE_NONCE + 128];
    int n;

    memcpy(message, nonce, TEI_HERE_NONCE);
    n = snprintf((char *)message + TEI_HERE_NONCE, sizeof(message) - TEI_HERE_NONCE, "%s %s", what,
                 place);
    tei_siphash(key, message, TEI_HERE_NONCE + (size_t)n, hash);
}

static void say_with(const uint8_t key[TEI_SIPHASH_LEN], const uint8_t nonce[TEI_HERE_NONCE],
                     const char *what, const char *place, char out[TEI_HERE_TEXT + 1])
{
    uint8_t hash[TEI_SIPHASH_LEN];

    hash_with(key, nonce, what, place, hash);
    tei_hex_write(hash, sizeof(hash), out);
}

/* "" if there is no such place, or no key. */
static void say(const uint8_t nonce[TEI_HERE_NONCE], const char *what, const char *place,
                char out[TEI_HERE_TEXT + 1])
{
    uint8_t key[TEI_SIPHASH_LEN];

    out[0] = '\0';
    if (place[0] && boot_key(key))
        say_with(key, nonce, what, place, out);
}

static void say_number(const uint8_t nonce[TEI_HERE_NONCE], const char *what, uint64_t place,
                       char out[TEI_HERE_TEXT + 1])
{
    char text[24] = "";

    if (place)
        snprintf(text, sizeof(text), "%llu", (unsigned long long)place);
    say(nonce, what, text, out);
}

void tei_here_process(const uint8_t nonce[TEI_HERE_NONCE], pid_t pid, char out[TEI_HERE_TEXT + 1])
{
    say_number(nonce, "process", (uint64_t)pid, out);
}

void tei_here_device(const uint8_t nonce[TEI_HERE_NONCE], const uint8_t uuid[TEI_HERE_DEVICE],
                     uint8_t out[TEI_HERE_DEVICE])
{
    _Static_assert(TEI_HERE_DEVICE == TEI_SIPHASH_LEN, "a hash takes the place of a UUID");
    uint8_t key[TEI_SIPHASH_LEN];
    char text[TEI_HERE_TEXT + 1];

    tei_hex_write(uuid, TEI_SIPHASH_LEN, text);
    if (boot_key(key))
        hash_with(key, nonce, "device", text, out);
    else
        memset(out, 0, TEI_HERE_DEVICE);
}

static bool life_with(const uint8_t key[TEI_SIPHASH_LEN], const uint8_t nonce[TEI_HERE_NONCE],
                      pid_t pid, uint8_t out[TEI_HERE_LIFE])
{
    _Static_assert(TEI_HERE_LIFE == TEI_SIPHASH_LEN, "the hash itself");
    struct tei_process process;
    char text[64];

    if (!tei_process_look(pid, &process))
        return false;
    snprintf(text, sizeof(text), "%d %llu", (int)pid, process.began);
    hash_with(key, nonce, "life", text, out);
    return true;
}

bool tei_here_life(const uint8_t nonce[TEI_HERE_NONCE], pid_t pid, uint8_t out[TEI_HERE_LIFE])
{
    uint8_t key[TEI_SIPHASH_LEN];

    return boot_key(key) && life_with(key, nonce, pid, out);
}

/* What a process is looked for by: the one or the other. */
struct sought {
    const uint8_t *nonce;
    const char *process;
    const uint8_t *life;
};

/* Whether it is the process that /proc has as `pid`. */
static bool is_sought(const uint8_t key[TEI_SIPHASH_LEN], const struct sought *s, const char *pid)
{
    char text[TEI_HERE_TEXT + 1];
    uint8_t life[TEI_HERE_LIFE];

    if (s->life)
        return life_with(key, s->nonce, (pid_t)strtol(pid, NULL, 10), life) &&
               memcmp(life, s->life, sizeof(life)) == 0;
    say_with(key, s->nonce, "process", pid, text);
    return strcmp(text, s->process) == 0;
}

static pid_t find(const struct sought *s)
{
    uint8_t key[TEI_SIPHASH_LEN];
    DIR *all = boot_key(key) ? opendir("/proc") : NULL;
    struct dirent *d;
    pid_t pid = 0;

    while (all && !pid && (d = readdir(all)))
        if (d->d_name[0] >= '1' && d->d_name[0] <= '9' && is_sought(key, s, d->d_name))
            pid = (pid_t)strtol(d->d_name, NULL, 10);
    if (all)
        closedir(all);
    return pid;
}

pid_t tei_here_find_process(const uint8_t nonce[TEI_HERE_NONCE], const char *process)
{
    return find(&(struct sought){.nonce = nonce, .process = process});
}

pid_t tei_here_find_life(const uint8_t nonce[TEI_HERE_NONCE], const uint8_t life[TEI_HERE_LIFE])
{
    return find(&(struct sought){.nonce = nonce, .life = life});
}

void tei_here(const uint8_t nonce[TEI_HERE_NONCE], struct tei_here *out)
{
    char machine[64];

    tei_file_word("/etc/machine-id", machine, sizeof(machine));
    say(nonce, "host", "1", out->host);
    say(nonce, "machine", machine, out->machine);
    say_number(nonce, "pid_ns", tei_file_inode("/proc/self/ns/pid"), out->pid_ns);
    say_number(nonce, "net_ns", tei_file_inode("/proc/thread-self/ns/net"), out->net_ns);
    tei_here_process(nonce, getpid(), out->process);
}

static bool differ(const char *a, const char *b)
{
    return a[0] && b[0] && strcmp(a, b) != 0;
}

const char *tei_here_differs(const struct tei_here *a, const struct tei_here *b)
{
    if (differ(a->host, b->host))
        return "on another host";
    if (differ(a->machine, b->machine))
        return "on another machine";
    if (differ(a->net_ns, b->net_ns))
        return "in another network namespace";
    if (differ(a->pid_ns, b->pid_ns))
        return "in another pid namespace";
    return NULL;
}

bool tei_here_is_text(const char *text)
{
    return text[0] == '\0' || tei_hex_is(text, TEI_HERE_TEXT);
}

/* -------------------------------------------------------------------------------- whom to let in */

static bool is_overflow(uid_t uid)
{
    char text[16];

    tei_file_word("/proc/sys/kernel/overflowuid", text, sizeof(text));
    return uid == (text[0] ? strtoul(text, NULL, 10) : 65534);
}

/* Whether every user of the host has a number in our user namespace. */
static bool knows_all_users(void)
{
    FILE *f = fopen("/proc/self/uid_map", "re");
    unsigned long here, there, n = 0;
    bool all = f && fscanf(f, "%lu %lu %lu", &here, &there, &n) == 3 && n == UINT32_MAX;

    if (f)
        fclose(f);
    return all;
}

bool tei_here_admits(uid_t uid)
{
    if (uid == 0)
        return true;
    /* Users that our user namespace does not know all show as one, which may be ours. */
    return uid == geteuid() && (!is_overflow(uid) || knows_all_users());
}
