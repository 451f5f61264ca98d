/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rail_map.c - which NICs are partners: by the explicit map MC_NIC_PEER_AFFINITY, else by name
 * with MC_ENABLE_DEST_DEVICE_AFFINITY.
 */
#include "rail/rail.h"

#include "base/err.h"

#include <string.h>

struct word {
    const char *text;
    size_t len;
};

/* What is before the first of `stops` or the end, without the spaces around it; *text is moved there. */
static struct word take(const char **text, const char *stops)
{
    struct word w = {*text + strspn(*text, " \t"), 0};
    const char *end = *text + strcspn(*text, stops);

    *text = end;
    while (end > w.text && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    w.len = end > w.text ? (size_t)(end - w.text) : 0;
    return w;
}

static bool is_name(struct word w, const char *name)
{
    return strlen(name) == w.len && memcmp(name, w.text, w.len) == 0;
}

static void map(struct tei_paths *p, struct word local, struct word peer)
{
    for (unsigned i = 0; i < p->n_local; i++) {
        for (unsigned j = 0; j < p->n_peer; j++) {
            if (is_name(local, p->nics->nic[i].name) && is_name(peer, p->peers[j].name))
                p->partners[i] |= UINT32_C(1) << j;
        }
    }
}

/* One "local=peer[,peer]" up to its ';' or the end; `p` may be NULL. False for anything else. */
static bool read_rule(struct tei_paths *p, const char **text)
{
    struct word local = take(text, "=,;"), peer;

    if (local.len == 0 && **text != '=' && **text != ',')
        return true; /* nothing between two ';' */
    if (local.len == 0 || **text != '=')
        return false;
    do {
        (*text)++;
        peer = take(text, "=,;");
        if (peer.len == 0 || **text == '=')
            return false;
        if (p)
            map(p, local, peer);
    } while (**text == ',');
    return true;
}

/* `p` may be NULL. */
static int read_map(struct tei_paths *p, const char *text)
{
    for (const char *at = text; *at;) {
        const char *rule = at;

        if (!read_rule(p, &at))
            return TEI_FAIL(TE_ERR_INVALID,
                            "MC_NIC_PEER_AFFINITY: \"%.*s\" is no rule; write "
                            "\"local=peer[,peer];...\"",
                            (int)strcspn(rule, ";"), rule);
        if (*at == ';')
            at++;
    }
    return 0;
}

int tei_path_affinity_check(const char *text)
{
    return read_map(NULL, text);
}

uint32_t tei_path_namesakes(const struct tei_paths *p, unsigned local)
{
    uint32_t found = 0;

    for (unsigned j = 0; j < p->n_peer; j++) {
        if (strcmp(p->nics->nic[local].name, p->peers[j].name) == 0)
            found |= UINT32_C(1) << j;
    }
    return found;
}

int tei_path_map(struct tei_paths *p, const struct tei_path_conf *conf)
{
    int rc = conf->affinity ? read_map(p, conf->affinity) : 0;

    for (unsigned i = 0; !rc && i < p->n_local; i++) {
        if (conf->same_name && p->partners[i] == 0)
            p->partners[i] = tei_path_namesakes(p, i);
        p->has_partners |= p->partners[i] != 0;
    }
    return rc;
}
