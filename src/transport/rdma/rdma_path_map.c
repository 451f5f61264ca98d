/* SPDX-License-Identifier: Apache-2.0 */
/* rdma_path_map.c - the explicit map of local NICs to NICs of the peer, MC_NIC_PEER_AFFINITY. */
#include "transport/rdma/rdma_path.h"

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
                p->map[i] |= UINT32_C(1) << j;
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

int tei_path_map_read(struct tei_paths *p, const char *text)
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
    return tei_path_map_read(NULL, text);
}
