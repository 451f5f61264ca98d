/* SPDX-License-Identifier: Apache-2.0 */
#include "auth_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "te.h"

static char folder[64];
static pid_t maker;

static void die(const char *what)
{
    fprintf(stderr, "auth_rig: %s: %s\n", what, te_errmsg());
    _Exit(1);
}

static void remove_folder(void)
{
    char command[128];

    if (getpid() != maker)
        return;
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command) != 0)
        fprintf(stderr, "auth_rig: %s stays\n", folder);
}

const char *auth_folder(void)
{
    if (folder[0])
        return folder;
    strcpy(folder, "/tmp/te_auth_XXXXXX");
    if (!mkdtemp(folder))
        die("no folder");
    maker = getpid();
    atexit(remove_folder);
    return folder;
}

const char *auth_file(const char *name, const char *text)
{
    static char path[128];
    char made[160];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", auth_folder(), name);
    snprintf(made, sizeof(made), "%s.new", path);
    f = fopen(made, "w");
    if (!f || fchmod(fileno(f), 0600) != 0 || fputs(text, f) < 0 || fclose(f) != 0 ||
        rename(made, path) != 0)
        die(path);
    return path;
}

struct tei_auth *auth_open_classic(const char *name, const char *text, uint64_t instance,
                                   const char *classic)
{
    struct tei_conf *conf = calloc(1, sizeof(*conf));
    struct tei_auth *a = NULL;

    if (!conf)
        die("no memory");
    strcpy(conf->auth, "psk");
    strcpy(conf->auth_keys, auth_file(name, text));
    strcpy(conf->auth_classic, classic);
    if (tei_auth_open(conf, instance, &a) != 0)
        die(name);
    free(conf);
    return a;
}

struct tei_auth *auth_open(const char *name, const char *text, uint64_t instance)
{
    return auth_open_classic(name, text, instance, "");
}

void auth_configure(struct tei_conf *conf)
{
    static struct tei_auth *group;
    static pid_t whose; /* keys are not inherited */

    if (whose != getpid())
        group = auth_open("group", "g:" KEY_A "\ng:" KEY_A "\n", (uint64_t)getpid());
    whose = getpid();
    conf->identity = group;
}

uint64_t auth_count(struct tei_auth *a, enum tei_auth_cause cause)
{
    uint64_t counts[TEI_AUTH_N_CAUSES];

    tei_auth_counts(a, counts);
    return counts[cause];
}
